//! Exit status: 0 done, 1 the input or the script is wrong, 2 wrong usage.

use super::lab::Lab;

#[test]
fn done_is_0() {
    let lab = Lab::new();
    for arguments in [
        "apply grpo rollouts.jsonl",
        "check grpo",
        "profile grpo rollouts.jsonl --runs 1",
        "recipes",
        "doc",
        "new mine.rhai",
        "--help",
        "--version",
    ] {
        let ran = lab.run(arguments);
        assert_eq!(ran.status, 0, "{arguments}: {}", ran.err);
        assert!(!ran.out.is_empty(), "{arguments}");
    }
}

#[test]
fn a_wrong_input_or_script_is_1_and_prints_no_result() {
    let lab = Lab::new();
    lab.write("broken.rhai", "fn advantage(batch, p) {");
    lab.write("fails.rhai", "fn advantage(batch, p) { batch.rewrad }");
    lab.write("broken.jsonl", "{\"group\": 1, \"reward\":");
    lab.write("taken.rhai", "");
    for arguments in [
        "apply grpo missing.jsonl",
        "apply passk k=2 rollouts.jsonl",
        "apply grpo broken.jsonl",
        "apply broken.rhai rollouts.jsonl",
        "apply fails.rhai rollouts.jsonl",
        "apply missing.rhai rollouts.jsonl",
        "apply grpoo rollouts.jsonl",
        "apply grpo rollouts.jsonl --set epss=1",
        "apply grpo rollouts.jsonl --set eps=-1",
        "apply passk rollouts.jsonl --set k=9",
        "apply grpo rollouts.jsonl -o missing/out.jsonl",
        "apply grpo rollouts.jsonl -o out.safetensors",
        "apply grpo rollouts.jsonl --map reward=nothing",
        "check broken.rhai",
        "new taken.rhai",
        "new mine.txt",
        "new mine.rhai --from nothing",
        "doc sufix_sum",
    ] {
        let ran = lab.run(arguments);
        assert_eq!(ran.status, 1, "{arguments}: {}{}", ran.out, ran.err);
        assert!(ran.out.is_empty(), "{arguments} printed {}", ran.out);
        assert!(ran.err.starts_with("Error: "), "{arguments}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{arguments}: {}", ran.err);
    }
}

#[test]
fn wrong_usage_is_2() {
    let lab = Lab::new();
    for arguments in [
        "",
        "aply grpo rollouts.jsonl",
        "apply",
        "apply grpo",
        "apply grpo rollouts.jsonl --stes 3",
        "apply grpo rollouts.jsonl --set k",
        "apply grpo rollouts.jsonl --dtype f16",
        "check grpo --stes 3",
        "check",
    ] {
        let ran = lab.run(arguments);
        assert_eq!(ran.status, 2, "{arguments}: {}{}", ran.out, ran.err);
        assert!(ran.out.is_empty(), "{arguments} printed {}", ran.out);
        // Without a command, the help itself is the answer.
        let is_help = arguments.is_empty();
        assert_eq!(ran.err.starts_with("error: "), !is_help, "{}", ran.err);
    }
}
