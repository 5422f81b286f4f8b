//! What the commands print where all goes well.

use std::io::Read;
use std::process::Stdio;

use advlab::script::BUILTINS;
use advlab::tensor::op;
use serde_json::Value;

use super::lab::Lab;

#[test]
fn apply() {
    let lab = Lab::new();
    insta::assert_snapshot!(
        "apply_passk",
        lab.run("apply passk rollouts.jsonl --set k=2").shown()
    );
    let written = lab.run("apply reinforce_pp rollouts.jsonl --set kl_beta=0 -o out.jsonl");
    insta::assert_snapshot!("apply_reinforce_pp", written.shown());
    assert_eq!(lab.read("out.jsonl").lines().count(), 256);
    insta::assert_snapshot!("apply_pacs", lab.run("apply pacs rollouts.jsonl").shown());
}

/// As `repl` does; a folder without batches is among the wrong inputs.
#[test]
fn apply_on_a_run_takes_its_last_batch() {
    let lab = Lab::new();
    lab.write(
        "small.toml",
        "maze_size = 2\nrollout_batch_size = 2\ngroup_size = 2\nhidden_size = 8\nbatch_every = 1\neval_prompts = 1\nsteps = 3\nout = \"run\"\n",
    );
    assert_eq!(lab.run("train small.toml").status, 0);
    let batch = "run/batches/step-000002.safetensors";
    let (of_run, of_batch) = (
        lab.run("apply rloo run"),
        lab.run(&format!("apply rloo {batch}")),
    );
    assert_eq!(
        of_run.out.replace(&time(&of_run.out), ""),
        of_batch.out.replace(&time(&of_batch.out), "")
    );
    assert_eq!(
        of_run.err.lines().next(),
        Some(
            "note: run is a run's folder: this is its last batch, run/batches/step-000002.safetensors"
        )
    );
    let json: Value = serde_json::from_str(&lab.run("apply rloo run --json").out).expect("JSON");
    assert_eq!(json["input"], batch);
    assert!(
        json["notes"][0]
            .as_str()
            .is_some_and(|note| note.contains(batch)),
        "{json}"
    );
}

/// The row that no two runs share.
fn time(out: &str) -> String {
    let row = out
        .lines()
        .find(|line| line.trim_start().starts_with("time "));
    row.expect("a row of times").to_string()
}

/// Metrics, prints, and a batch without a difference.
#[test]
fn apply_with_a_script_of_ones_own() {
    let lab = Lab::new();
    lab.write(
        "mine.rhai",
        "//! Nothing.\nfn advantage(batch, p) { print(\"a line\"); metric(\"answer\", 42); 0 * batch.reward }",
    );
    insta::assert_snapshot!(
        "apply_own",
        lab.run("apply mine.rhai rollouts.jsonl").shown()
    );
}

#[test]
fn json_is_one_object_for_a_machine() {
    let lab = Lab::new();
    let ran = lab.run("apply passk rollouts.jsonl --set k=2 --json");
    assert_eq!((ran.status, ran.out.lines().count()), (0, 1));
    let mut json: Value = serde_json::from_str(&ran.out).expect("JSON");
    for time in ["read", "recipe"] {
        let seconds = json["seconds"][time].take();
        assert!(
            seconds.as_f64().is_some_and(|s| s > 0.0),
            "{time}: {seconds}"
        );
    }
    insta::assert_snapshot!("apply_json", serde_json::to_string_pretty(&json).unwrap());
}

#[test]
fn check() {
    let lab = Lab::new();
    insta::assert_snapshot!(
        "check_built_ins",
        lab.run("check grpo passk reinforce_pp pacs").shown()
    );
    lab.write(
        "bad.rhai",
        "fn advantage(batch, p) { batch.reward / batch.reward.std(\"group\") }",
    );
    insta::assert_snapshot!("check_bad", lab.run("check bad.rhai").shown());
    // Two errors of one script, one of them on one batch.
    lab.write(
        "two.rhai",
        "fn advantage(batch, p) {\n    let r = batch.reward;\n    if r.mean(\"batch\").value() == 1.0 { return (r - 1) / 0; }\n    r / r.std(\"group\")\n}\n",
    );
    insta::assert_snapshot!("check_two", lab.run("check two.rhai").shown());
}

#[test]
fn every_built_in_passes_the_check() {
    let lab = Lab::new();
    let names: Vec<&str> = BUILTINS.iter().map(|builtin| builtin.name).collect();
    let ran = lab.run(&format!("check {}", names.join(" ")));
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out.matches(" 0 fail,").count(), names.len());
}

#[test]
fn recipes() {
    insta::assert_snapshot!("recipes", Lab::new().run("recipes").shown());
}

#[test]
fn doc() {
    let lab = Lab::new();
    for name in ["suffix_sum", "where", "min", "passk"] {
        insta::assert_snapshot!(
            format!("doc_{name}"),
            lab.run(&format!("doc {name}")).shown()
        );
    }
    let all = lab.run("doc");
    assert_eq!(all.status, 0);
    // Lines are broken at the width of the terminal.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = words(&all.out);
    for op in op::table() {
        assert!(all.contains(&words(op.doc)), "{}", op.name);
    }
}

#[test]
fn every_function_and_recipe_is_explained() {
    let lab = Lab::new();
    for name in op::table()
        .map(|op| op.name)
        .chain(BUILTINS.iter().map(|builtin| builtin.name))
    {
        // A sign that looks like an option stands after `--`, as everywhere.
        let ran = lab.run(&format!("doc -- {name}"));
        assert_eq!(ran.status, 0, "{name}: {}", ran.err);
        assert!(ran.out.contains(name), "{name}: {}", ran.out);
    }
}

#[test]
fn new() {
    let lab = Lab::new();
    insta::assert_snapshot!("new", lab.run("new mine.rhai --from passk").shown());
    let passk = BUILTINS
        .iter()
        .find(|builtin| builtin.name == "passk")
        .unwrap();
    assert_eq!(lab.read("mine.rhai"), passk.text);
    let edited = lab.run("apply mine.rhai rollouts.jsonl --set k=2");
    let builtin = lab.run("apply passk rollouts.jsonl --set k=2");
    assert_eq!(
        edited.shown().replace("mine.rhai", "passk"),
        builtin.shown()
    );
}

#[test]
fn help() {
    let lab = Lab::new();
    insta::assert_snapshot!("help_apply", lab.run("apply --help").shown());
    for command in ["check", "recipes", "doc", "new"] {
        let ran = lab.run(&format!("{command} --help"));
        assert_eq!(ran.status, 0, "{command}");
    }
}

/// No colour where there is no terminal.
#[test]
fn plain_text_in_a_pipe() {
    let lab = Lab::new();
    for arguments in [
        "apply grpo rollouts.jsonl",
        "doc mean",
        "check grpo",
        "recipes",
        "doc nothing",
    ] {
        let ran = lab.run(arguments);
        assert!(
            !ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'),
            "{arguments}"
        );
    }
}

/// `advlab doc | head -1`: the reader leaves early, and nobody is told.
#[test]
fn a_reader_who_leaves_is_no_error() {
    let lab = Lab::new();
    for arguments in [
        "doc",
        "recipes",
        "check grpo passk rloo",
        "apply grpo rollouts.jsonl",
    ] {
        let mut command = lab.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        drop(child.stdout.take());
        let mut err = String::new();
        let stderr = child.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut err).expect("UTF-8");
        let status = child.wait().expect("it ends");
        assert!(
            status.success() && err.is_empty(),
            "{arguments}: {status}: {err}"
        );
    }
}
