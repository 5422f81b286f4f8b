//! The commands of README and docs/ run, and README's shown output is the output.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::docs::blocks_in;

/// Runs a command in a folder that has the repository's examples, and returns what it printed.
fn run(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_advlab"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "advlab {arguments:?}: {out}{err}");
    out
}

/// The words of a command; of a run's hundreds of steps, and of its batch, a few show that it works.
fn short(arguments: &str) -> Vec<&str> {
    let is_run = arguments.starts_with("train --recipe");
    let steps = is_run && !arguments.contains("--steps");
    let fewer = |word| match word {
        "100" => "3",
        "200" => "6",
        word => word,
    };
    let words = arguments.split_whitespace().map(fewer);
    let small = ["--set", "rollout_batch_size=8", "--set", "eval_prompts=8"];
    let small = small.into_iter().take(if is_run { 4 } else { 0 });
    let steps = ["--steps", "3"].into_iter().take(if steps { 2 } else { 0 });
    words.chain(small).chain(steps).collect()
}

#[test]
fn every_command_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = Path::new(crate::ROOT);
    for file in [
        "examples/rollouts.jsonl",
        "tests/data/verl.jsonl",
        "tests/data/math.jsonl",
        "tests/data/tokenizers/gpt.json",
        "tests/data/dumps/trl/completions_00001.parquet",
        "tests/data/dumps/trl/completions_00002.parquet",
        "tests/data/dumps/trl_plain.parquet",
        "tests/data/dumps/prime_rl/step_41/train/effective/traces.jsonl",
        "tests/data/dumps/prime_rl/step_42/train/effective/traces.jsonl",
        "scripts/k_annealed.rhai",
    ] {
        let copy = folder.path().join(file);
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
        std::fs::copy(root.join(file), copy).expect("a copy");
    }
    let mut ran = 0;
    for (page, block) in blocks_in("sh") {
        for line in block.lines() {
            let command = line.strip_prefix("advlab ");
            if let Some(arguments) = command.or(line.strip_prefix("cargo run --release -- ")) {
                run(&short(arguments), folder.path());
                ran += 1;
            } else {
                // The first runs this test; the others build for minutes.
                let elsewhere = [
                    "cargo test --features full",
                    "cargo install --path cli --features full",
                    "pip install ./python",
                    ".ci/wheel x86_64-unknown-linux-gnu",
                    "pip install target/wheels/advlab-*x86_64.whl",
                ];
                assert!(elsewhere.contains(&line), "{page}: nothing runs {line}");
            }
        }
    }
    assert!(ran >= 25, "{ran} commands ran");
    assert!(folder.path().join("with_advantages.jsonl").exists());
}

/// The keys in the first column of a table are all keys of the command's JSON above it.
#[test]
fn every_json_has_the_keys_of_its_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["examples", "tests", "scripts"] {
        let there = Path::new(crate::ROOT).join(name);
        std::os::unix::fs::symlink(there, folder.path().join(name)).unwrap();
    }
    let page = super::docs::read("docs/json.md");
    let mut commands = 0;
    for section in page.split("\n## ").skip(1) {
        let (_, rest) = section.split_once("```sh\n").expect("a command");
        let (block, rest) = rest.split_once("```").expect("its end");
        let mut said = String::new();
        for line in block.lines() {
            let arguments = line.strip_prefix("advlab ").expect("a command");
            said = run(&short(arguments), folder.path());
        }
        let first = said.lines().next().expect("a line");
        let mut value: Value = serde_json::from_str(first).expect("JSON");
        if let Value::Array(items) = &mut value {
            value = items.remove(0);
        }
        let keys = value.as_object().expect("an object").keys();
        let keys: BTreeSet<&str> = keys.map(String::as_str).collect();
        let rows = rest.lines().filter_map(|line| line.strip_prefix("| `"));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        let told = cells.flat_map(|cell| cell.split(['`', ',', ' ']));
        let told: BTreeSet<&str> = told.filter(|key| !key.is_empty()).collect();
        assert_eq!(told, keys, "{block}");
        commands += 1;
    }
    assert!(commands >= 11, "{commands} commands");
}

#[test]
fn the_shown_output_is_the_output() {
    let mut all = blocks_in("text").into_iter();
    let shown = all.find(|(page, block)| page == "README.md" && block.starts_with("passk"));
    let (_, shown) = shown.expect("the README shows what apply prints");
    let command = "apply passk examples/rollouts.jsonl --set k=2";
    let printed = run(&short(command), Path::new(crate::ROOT));
    let without_time = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("time"));
        lines.map(|line| line.trim_end().to_string()).collect()
    };
    assert_eq!(without_time(&printed), without_time(&shown));
}
