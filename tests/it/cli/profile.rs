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
fn a_whitened_advantage_is_stored_once_and_its_lines_are_told() {
    let lab = Lab::new();
    let whitened = json(&lab, "reinforce_pp rollouts.jsonl --set kl_beta=0");
    for executor in ["script", "naive"] {
        assert_eq!(array(&whitened[executor]["seconds"]).len(), 2);
    }
    let stages = array(&whitened["stages"]);
    let written = stages.iter().filter(|stage| stage["kind"] == "pass");
    let tokens = whitened["tokens"].as_u64().expect("a count");
    // Without a KL the returns are one number a response: they are never stored, only what comes of them. JSONL has f64
    // tokens, which are narrowed into the array after that.
    let written: Vec<u64> = written
        .filter_map(|stage| stage["written"].as_u64())
        .collect();
    assert_eq!(written[written.len() - 2..], [0, 8 * tokens], "{stages:?}");
    let lines = array(&whitened["lines"]);
    let names = |line: &Value| {
        line["text"]
            .as_str()
            .is_some_and(|text| text.contains("whiten"))
    };
    assert!(lines.iter().any(names), "{lines:?}");
    assert_eq!(whitened["fell_back"], Value::Array(Vec::new()));
}

/// The bytes of a pass are those of the columns that it reads and of what it leaves, whatever they are spread over.
#[test]
fn bytes_are_those_of_columns_and_results_by_stage_and_by_line() {
    let lab = Lab::new();
    let whitened = json(&lab, "reinforce_pp --set kl_beta=0.1");
    let tokens = whitened["tokens"].as_u64().expect("a count");
    let stages = array(&whitened["stages"]);
    let moved = |all: &[Value]| -> Vec<[u64; 2]> {
        let bytes = |one: &Value| ["read", "written"].map(|key| one[key].as_u64().expect("bytes"));
        all.iter().map(bytes).collect()
    };
    let passes: Vec<Value> = (stages.iter().filter(|one| one["kind"] == "pass"))
        .cloned()
        .collect();
    // Two log-probs are read, and the returns wait in the padded array; these are read there and written whole.
    let column = 4 * tokens;
    let expected = [[2 * column, column], [column, 4 * 1024 * 1024]];
    assert_eq!(moved(&passes), expected, "{passes:?}");
    let total = |all: Vec<[u64; 2]>| -> u64 { all.into_iter().flatten().sum() };
    let by_line = total(moved(&array(&whitened["lines"])));
    let by_stage = total(moved(&stages));
    assert!(by_line <= by_stage && by_line >= total(expected.to_vec()));
}

#[test]
fn what_does_not_go_by_tiles_is_told_with_the_reason() {
    let lab = Lab::new();
    let told = [
        (
            "x.rank(\"batch\")",
            "`rank` in line 3: it needs all values of a cell at once",
        ),
        (
            "x - x.median(\"batch\")",
            "`rank` in line 3: it needs all values of a cell at once",
        ),
        (
            "x - x.mean(\"position\")",
            "`mean` in line 3: a position goes through several responses",
        ),
        (
            "x * batch.random(\"token\")",
            "`random`: random numbers are drawn in order",
        ),
    ];
    for (formula, expected) in told {
        let script =
            format!("fn advantage(batch, p) {{\n    let x = batch.old_logp;\n    {formula}\n}}\n");
        lab.write("odd.rhai", &script);
        let fell_back = array(&json(&lab, "odd.rhai rollouts.jsonl")["fell_back"]);
        let is_told = |one: &Value| one == expected;
        assert!(fell_back.iter().any(is_told), "{formula}: {fell_back:?}");
    }
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

/// Perfetto and chrome://tracing take events of any kind; what they show are complete ones, by thread.
#[test]
fn a_trace_has_the_hooks_with_the_stages_in_them() {
    let lab = Lab::new();
    for file in ["run.json", "run.json"] {
        let ran = lab.run(&format!("profile ppo_clip --runs 1 --trace {file}"));
        assert_eq!(ran.status, 0, "{}", ran.err);
    }
    lab.write("mine.rhai", "fn advantage(batch, p) { batch.reward }");
    let ran = lab.run("profile mine.rhai --runs 1 --trace mine.rhai");
    assert_eq!(ran.status, 1);
    assert!(
        ran.err.contains("`mine.rhai` is there, and is no trace"),
        "{}",
        ran.err
    );
    assert!(lab.read("mine.rhai").starts_with("fn"));
    let trace: Value = serde_json::from_str(&lab.read("run.json")).expect("JSON");
    let events = array(&trace["traceEvents"]);
    let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    let named = |name: &str| {
        let found: Vec<_> = spans.iter().filter(|event| event["name"] == name).collect();
        assert!(!found.is_empty(), "no {name} in {events:?}");
        let (start, duration) = (number(&found[0]["ts"]), number(&found[0]["dur"]));
        assert!(duration > 0.0);
        (start, start + duration)
    };
    let (hook, pass) = (named("loss and gradient"), named("pass"));
    assert!(hook.0 <= pass.0 && pass.1 <= hook.1, "{events:?}");
    let block = named("block");
    assert!(pass.0 <= block.0 && block.1 <= pass.1, "{events:?}");
}

#[test]
fn the_table_fits_80_columns() {
    let shown = Lab::new().run("profile ppo_clip --runs 1").out;
    assert!(shown.contains("pass 1 over tokens"), "{shown}");
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
