//! `advlab profile`: times differ from run to run; what there is to time does not.

use serde_json::Value;

use super::lab::Lab;

fn json(lab: &Lab, arguments: &str) -> Value {
    let ran = lab.run(&format!("profile {arguments} --runs 2 --json"));
    assert_eq!(ran.status, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).expect("JSON")
}

fn array(value: &Value) -> Vec<Value> {
    value.as_array().expect("an array").clone()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn the_lines_of_a_recipe_are_told_with_their_share_of_the_time() {
    let lab = Lab::new();
    let whitened = json(&lab, "reinforce_pp rollouts.jsonl --set kl_beta=0");
    for kind in ["script", "script_new_array"] {
        assert_eq!(array(&whitened[kind]["seconds"]).len(), 2);
    }
    assert!(
        whitened["peak_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    );
    let lines = array(&whitened["lines"]);
    let names = |line: &Value| {
        line["text"]
            .as_str()
            .is_some_and(|text| text.contains("whiten"))
    };
    assert!(lines.iter().any(names), "{lines:?}");
    let seconds = |all: &[Value]| -> f64 { all.iter().map(|one| number(&one["seconds"])).sum() };
    let hooks = array(&whitened["hooks"]);
    assert_eq!(hooks.len(), 1);
    let all = seconds(&lines) + number(&whitened["in_script"]);
    assert!(
        seconds(&lines) > 0.0 && all <= 1.0001 * seconds(&hooks),
        "{whitened}"
    );
}

#[test]
fn map_groups_is_told_to_go_by_one_call_or_group_by_group() {
    let lab = Lab::new();
    lab.write(
        "groups.rhai",
        "fn advantage(batch, p) {\n    let a = batch.map_groups(|g| g.reward);\n    a * batch.map_groups(|g| g.reward.len())\n}\n",
    );
    let told = json(&lab, "groups.rhai rollouts.jsonl");
    let lines: Vec<Value> = array(&told["map_groups"]);
    let of = |line: &Value| (line["line"].clone(), line["by_one_call"].clone());
    let of: Vec<_> = lines.iter().map(of).collect();
    assert_eq!(of, [(2.into(), true.into()), (3.into(), false.into())]);
    let table = lab.run("profile groups.rhai rollouts.jsonl --runs 2").out;
    assert!(
        table.contains("map_groups line 2: by one call for all groups"),
        "{table}"
    );
    assert!(
        table.contains("map_groups line 3: group by group: its function looks"),
        "{table}"
    );
}

#[test]
fn a_loss_is_given_the_weights() {
    let lab = Lab::new();
    lab.write(
        "weighted.rhai",
        "fn weight(batch, p) { batch.reward > 0 }\nfn advantage(batch, p) { batch.reward }\nfn loss(batch, p) { -(batch.weight * batch.logp).mean(\"batch\") }\n",
    );
    let ran = lab.run("profile weighted.rhai --runs 1");
    assert_eq!(ran.status, 0, "{}", ran.err);
}

#[test]
fn the_table_fits_80_columns() {
    let shown = Lab::new().run("profile ppo_clip --runs 1").out;
    assert!(shown.contains("  loss and gradient\n"), "{shown}");
    let is_short = |line: &str| line.chars().count() <= 80;
    assert!(shown.lines().all(is_short), "{shown}");
}

/// A run's folder gives its batch, and in a recipe's place the version that the batch was for.
#[test]
fn a_run_is_profiled_with_its_own_recipe_or_with_another() {
    let lab = Lab::new();
    let ran = lab.run("train --recipe passk --set k=8 --steps 2 --out run");
    assert_eq!(ran.status, 0, "{}", ran.err);
    let own = json(&lab, "run");
    let passk = json(&lab, "passk run --set k=8");
    for field in ["version", "responses", "tokens"] {
        assert_eq!(own[field], passk[field]);
    }
    assert_ne!(json(&lab, "grpo run")["version"], own["version"]);
    // The run follows a loss behind the recipe, and so does its profile.
    let is_of_loss = |line: &Value| {
        line["script"]
            .as_str()
            .is_some_and(|s| s.contains("ppo_clip"))
    };
    assert!(array(&own["lines"]).iter().any(is_of_loss), "{own}");
    assert!(!array(&passk["lines"]).iter().any(is_of_loss), "{passk}");
    let table = lab.run("profile run --runs 1").out;
    assert!(
        table.contains("its last batch, run/batches/step-"),
        "{table}"
    );
}

/// A built-in is timed by its kernels too; a script of somebody's own has none.
#[test]
fn a_built_in_is_timed_by_its_kernels_too() {
    let lab = Lab::new();
    for recipe in ["ppo_clip", "passk"] {
        let native = &json(&lab, recipe)["native"]["seconds"];
        assert_eq!(array(native).len(), 2, "{recipe}");
    }
    lab.run("new mine.rhai --from passk");
    let text = format!("{}// edited\n", lab.read("mine.rhai"));
    lab.write("mine.rhai", &text);
    assert!(json(&lab, "mine.rhai")["native"].is_null());
}
