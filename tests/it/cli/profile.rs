//! `advlab profile`: times differ from run to run; what there is to time does not.

use serde_json::Value;

use super::lab::Lab;

fn json(lab: &Lab, arguments: &str) -> Value {
    let ran = lab.run(&format!("profile {arguments} --runs 2 --json"));
    assert_eq!(ran.status, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).expect("JSON")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

#[test]
fn the_lines_of_a_recipe_are_told_with_their_share_of_the_time() {
    let lab = Lab::new();
    let whitened = json(&lab, "reinforce_pp rollouts.jsonl --set kl_beta=0");
    assert_eq!(array(&whitened["script"]["seconds"]).len(), 2);
    assert!(whitened["peak_bytes"].as_u64().unwrap() > 0);
    let (lines, hooks) = (array(&whitened["lines"]), array(&whitened["hooks"]));
    let text = |line: &Value| line["text"].as_str().unwrap().to_string();
    assert!(
        lines.iter().any(|line| text(line).contains("whiten")),
        "{lines:?}"
    );
    assert_eq!(hooks.len(), 1);
    let seconds = |one: &Value| one["seconds"].as_f64().unwrap();
    let of_lines: f64 = lines.iter().map(seconds).sum();
    let all = of_lines + whitened["in_script"].as_f64().unwrap();
    assert!(
        of_lines > 0.0 && all <= 1.0001 * seconds(&hooks[0]),
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
    let lines = array(&told["map_groups"]).iter();
    let of: Vec<_> = lines
        .map(|line| (&line["line"], &line["by_one_call"]))
        .collect();
    assert_eq!(of, [(&2.into(), &true.into()), (&3.into(), &false.into())]);
    let table = lab.run("profile groups.rhai rollouts.jsonl --runs 2").out;
    for line in ["2: by one call for all groups", "3: group by group"] {
        assert!(
            table.contains(&format!("map_groups line {line}")),
            "{table}"
        );
    }
}

/// A loss has its row and is given the weights; the table fits 80 columns.
#[test]
fn a_loss_is_told_in_80_columns() {
    let lab = Lab::new();
    lab.write(
        "weighted.rhai",
        "fn weight(batch, p) { batch.reward > 0 }\nfn advantage(batch, p) { batch.reward }\nfn loss(batch, p) { -(batch.weight * batch.logp).mean(\"batch\") }\n",
    );
    for recipe in ["weighted.rhai", "ppo_clip"] {
        let ran = lab.run(&format!("profile {recipe} --runs 1"));
        assert_eq!(ran.status, 0, "{}", ran.err);
        assert!(ran.out.contains("  loss and gradient\n"), "{}", ran.out);
        let is_short = |line: &str| line.chars().count() <= 80;
        assert!(ran.out.lines().all(is_short), "{}", ran.out);
    }
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
    let is_of_loss = |line: &Value| line["script"].to_string().contains("ppo_clip");
    assert!(array(&own["lines"]).iter().any(is_of_loss), "{own}");
    assert!(!array(&passk["lines"]).iter().any(is_of_loss), "{passk}");
    let table = lab.run("profile run --runs 1").out;
    let batch = "its last batch is read, run/batches/step-";
    assert!(table.contains(batch), "{table}");
}

/// In JSON, a built-in with a kernel is timed by it, too; an edited copy has no kernel.
#[test]
fn a_built_in_is_timed_by_its_kernels_too() {
    let lab = Lab::new();
    lab.run("apply grpo rollouts.jsonl -o with.jsonl");
    for recipe in ["ppo_clip", "pacs"] {
        let native = &json(&lab, &format!("{recipe} with.jsonl"))["native"]["seconds"];
        assert_eq!(array(native).len(), 2, "{recipe}");
        // The table is of the script.
        let table = lab
            .run(&format!("profile {recipe} with.jsonl --runs 1"))
            .out;
        assert!(
            table.contains(", 1 run\n") && !table.contains("native"),
            "{table}"
        );
    }
    lab.run("new mine.rhai --from pacs");
    let text = format!("{}// edited\n", lab.read("mine.rhai"));
    lab.write("mine.rhai", &text);
    assert!(json(&lab, "mine.rhai with.jsonl")["native"].is_null());
}
