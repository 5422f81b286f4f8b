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
    std::fs::create_dir(lab.path().join("empty")).expect("a folder");
    for (name, arguments) in [
        ("typo", "apply typo.rhai rollouts.jsonl"),
        ("level", "apply level.rhai rollouts.jsonl"),
        ("two_errors", "check two.rhai"),
        ("no_input", "apply grpo rollout.jsonl"),
        ("no_recipe", "apply grppo rollouts.jsonl"),
        ("no_script", "apply mine.rhai rollouts.jsonl"),
        ("no_script_near", "apply typos.rhai rollouts.jsonl"),
        ("native_naive", "apply grpo rollouts.jsonl --native naive"),
        ("profile_parameter", "profile passk --k 2"),
        ("train_key", "train --policy transformer"),
        ("no_parameter", "apply grpo rollouts.jsonl --set epsilon=1"),
        ("out_of_range", "apply grpo rollouts.jsonl --set eps=-1"),
        ("k_beyond_the_group", "apply passk rollouts.jsonl --set k=9"),
        ("k_beyond_the_checks_groups", "check passk --set k=7"),
        ("no_group", "look rollouts.jsonl maze-99"),
        (
            "verify_map",
            "verify rollouts.jsonl --map completion=answer",
        ),
        ("no_column", "apply gae rollouts.jsonl"),
        ("no_function", "doc sufix_sum"),
        ("folder_as_input", "apply grpo empty"),
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

/// Only `--force` lets the output replace the input, and then as a whole, at the end.
#[test]
fn the_input_is_not_overwritten_by_mistake() {
    let lab = Lab::new();
    let before = lab.read("rollouts.jsonl");
    let mut names = vec!["rollouts.jsonl", "./rollouts.jsonl"];
    #[cfg(unix)]
    {
        let input = lab.path().join("rollouts.jsonl");
        std::os::unix::fs::symlink(&input, lab.path().join("link.jsonl")).expect("a link");
        std::fs::hard_link(&input, lab.path().join("hard.jsonl")).expect("a link");
        names.extend(["link.jsonl", "hard.jsonl"]);
    }
    let files = std::fs::read_dir(lab.path()).unwrap().count();
    for name in names {
        let ran = lab.run(&format!("apply grpo rollouts.jsonl -o {name}"));
        assert_eq!(ran.status, 1, "{}", ran.err);
        assert!(ran.err.contains("is the input itself") && ran.err.contains("`--force`"));
    }
    assert_eq!(lab.read("rollouts.jsonl"), before);
    let ran = lab.run("apply grpo rollouts.jsonl -o rollouts.jsonl --force");
    assert_eq!(ran.status, 0, "{}", ran.err);
    let after = lab.read("rollouts.jsonl");
    assert_eq!(after.lines().count(), before.lines().count());
    assert!(after.lines().all(|line| line.contains("\"advantage\"")));
    let left = std::fs::read_dir(lab.path()).unwrap().count();
    assert_eq!(left, files, "something was left beside it");
}

/// Probabilities, or -logp, are no log-probs.
#[test]
fn positive_log_probs_are_told() {
    let lab = Lab::new();
    let line = |logp: &str| format!("{{\"group\": 1, \"reward\": 1, \"old_logp\": [{logp}]}}\n");
    lab.write(
        "positive.jsonl",
        &[line("-1, 0, 0.0005"), line("-0.5, 0.5, 2")].concat(),
    );
    let said =
        "Note: `old_logp` is above 0 at 2 tokens, the first in line 2, token 1: no log-prob is";
    let ran = lab.run("convert positive.jsonl out.npz");
    assert!(ran.status == 0 && ran.err.starts_with(said), "{}", ran.err);
    lab.write("negative.jsonl", &line("-1, 0, 0.0005"));
    assert_eq!(lab.run("convert negative.jsonl out.npz").err, "");
}

/// Slips of the hand: what was meant is told.
#[test]
fn what_was_meant() {
    let lab = Lab::new();
    lab.write(
        "verl.rhai",
        "fn advantage(batch, p) { batch.old_log_probs }",
    );
    lab.write("ours.rhai", "fn advantage(batch, p) { batch.old_logp }");
    lab.write(
        "mask.rhai",
        "fn advantage(batch, p) { batch.response_mask }",
    );
    lab.write("gone.rhai", "fn advantage(batch, p) { batch.length }");
    lab.write("bare.jsonl", "{\"group\": 1, \"reward\": 1}\n");
    lab.write(
        "verl.jsonl",
        "{\"group\": 1, \"reward\": 1, \"old_log_probs\": [-1]}\n",
    );
    std::fs::create_dir(lab.path().join("run")).expect("a folder");
    for (arguments, status, said) in [
        (
            "train --steps -1",
            2,
            "'-1' for '--steps <STEPS>': it takes a whole number",
        ),
        (
            "train --steps ten",
            2,
            "'ten' for '--steps <STEPS>': it takes a whole number",
        ),
        ("train run", 1, "`advlab train --resume run`"),
        ("train bare.jsonl", 1, "a configuration is a TOML file"),
        ("train --edit", 2, "a recipe is edited in any editor"),
        ("compare grpo --seeds abc", 2, "it takes a whole number"),
        (
            "new nowhere/x.rhai",
            1,
            "folder does not exist: make it first",
        ),
        ("verify run.npz", 1, "answers are compared in lines"),
        (
            "look rollouts.jsonl bare.jsonl",
            1,
            "bare.jsonl is a second file, and one is shown",
        ),
        ("train --recipe gae", 1, "trained without a critic"),
        (
            "apply rollouts.jsonl grpo",
            1,
            "`advlab apply grpo rollouts.jsonl`",
        ),
        (
            "check rollouts.jsonl",
            1,
            "`rollouts.jsonl` is a file of rollouts, not a recipe",
        ),
        (
            "doc rollouts.jsonl",
            1,
            "`rollouts.jsonl` is a file of rollouts, not a recipe",
        ),
        (
            "new mine.rhai --from rollouts.jsonl",
            1,
            "is a file of rollouts, not a recipe",
        ),
        (
            "repl --recipe rollouts.jsonl",
            1,
            "is a file of rollouts, not a recipe",
        ),
        ("apply . rollouts.jsonl", 1, "`.` is a folder, not a recipe"),
        (
            "new grpo mine.rhai",
            2,
            "tip: 'advlab new mine.rhai --from grpo'",
        ),
        (
            "apply passk rollouts.jsonl --set k 2",
            2,
            "tip: '--set k=2'",
        ),
        (
            "apply --set k 2 passk rollouts.jsonl",
            2,
            "tip: '--set k=2'",
        ),
        (
            "apply grpo rollouts.jsonl --map reward score",
            2,
            "tip: '--map reward=score'",
        ),
        (
            "apply passk rollouts.jsonl --k 2",
            2,
            "is set by '--set k=2'",
        ),
        (
            "apply passk rollouts.jsonl --k=2",
            2,
            "is set by '--set k=2'",
        ),
        (
            "apply passk rollouts.jsonl --k",
            2,
            "is set by '--set k=VALUE'",
        ),
        (
            "apply verl.rhai rollouts.jsonl",
            1,
            "did you mean `old_logp`?",
        ),
        (
            "apply mask.rhai rollouts.jsonl",
            1,
            "a script needs no mask",
        ),
        (
            "apply gone.rhai bare.jsonl",
            1,
            "it has `reward`; from these follow `token_reward`, `correct`\n",
        ),
        (
            "apply ours.rhai verl.jsonl",
            1,
            "`--map old_logp=old_log_probs`",
        ),
    ] {
        let ran = lab.run(arguments);
        assert_eq!(ran.status, status, "{arguments}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments}: {}", ran.err);
    }
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
