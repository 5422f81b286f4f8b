//! What the commands say where something is wrong: what it is, where, and what to do.

use super::lab::Lab;

#[test]
fn messages() {
    let lab = Lab::new();
    lab.write(
        "typo.rhai",
        "fn advantage(batch, p) {\n    let r = batch.rewrad;\n    r - r.mean(\"group\")\n}\n",
    );
    lab.write(
        "level.rhai",
        "fn advantage(batch, p) {\n    batch.reward.mean(\"group\")\n}\n",
    );
    lab.write("two.rhai", "fn advantage(batch, p) {\n    let x = mena(batch.reward, \"group\");\n    x.meen(\"batch\")\n}\n");
    for (name, arguments) in [
        ("typo", "apply typo.rhai rollouts.jsonl"),
        ("level", "apply level.rhai rollouts.jsonl"),
        ("two_errors", "check two.rhai"),
        ("no_input", "apply grpo rollout.jsonl"),
        ("no_recipe", "apply grppo rollouts.jsonl"),
        ("no_script", "apply mine.rhai rollouts.jsonl"),
        ("no_parameter", "apply grpo rollouts.jsonl --set epsilon=1"),
        ("out_of_range", "apply grpo rollouts.jsonl --set eps=-1"),
        ("k_beyond_the_group", "apply passk rollouts.jsonl --set k=9"),
        ("no_column", "apply gae rollouts.jsonl"),
        ("no_function", "doc sufix_sum"),
        ("folder_as_input", "apply grpo ."),
        (
            "folder_missing",
            "apply grpo rollouts.jsonl -o missing/out.jsonl",
        ),
        ("over_a_recipe", "apply grpo rollouts.jsonl -o typo.rhai"),
        (
            "another_kind",
            "apply grpo rollouts.jsonl -o out.safetensors",
        ),
        ("bad_map", "apply grpo rollouts.jsonl --map reward=nothing"),
    ] {
        insta::assert_snapshot!(format!("wrong_{name}"), lab.run(arguments).shown());
    }
}

/// What was there stays as it was.
#[test]
fn nothing_is_lost() {
    let lab = Lab::new();
    lab.write("mine.rhai", "my own");
    assert_eq!(lab.run("new mine.rhai").status, 1);
    assert_eq!(lab.read("mine.rhai"), "my own");

    lab.write("out.jsonl", "an older result");
    assert_eq!(
        lab.run("apply passk rollouts.jsonl --set k=9 -o out.jsonl")
            .status,
        1
    );
    assert_eq!(lab.read("out.jsonl"), "an older result");
}

/// The input may be the output: it is replaced as a whole, at the end.
#[test]
fn a_file_can_be_written_over_itself() {
    let lab = Lab::new();
    let before = lab.read("rollouts.jsonl");
    let ran = lab.run("apply grpo rollouts.jsonl -o rollouts.jsonl");
    assert_eq!(ran.status, 0, "{}", ran.err);
    let after = lab.read("rollouts.jsonl");
    assert_eq!(after.lines().count(), before.lines().count());
    assert!(after.lines().all(|line| line.contains("\"advantage\"")));
    let files = std::fs::read_dir(lab.path()).unwrap().count();
    assert_eq!(files, 1, "something was left beside it");
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_that_says_so() {
    if !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: there is no /dev/full");
        return;
    }
    let lab = Lab::new();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = lab.command("apply grpo rollouts.jsonl");
    let output = command.stdout(full).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("No space left on device") && !err.contains("panicked"),
        "{err}"
    );
}
