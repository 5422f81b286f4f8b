//! The README does what it says: its commands run, its recipes pass the check, its shown output is the output.

use std::path::Path;
use std::process::Command;

use advlab::check::{CheckResult, check};
use advlab::script::Host;

fn readme() -> String {
    let path = Path::new(crate::ROOT).join("README.md");
    std::fs::read_to_string(path).expect("README.md is there")
}

/// The code blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next().map(str::to_string))
        .collect()
}

/// Runs a command of the README in a folder that has the repository's examples, and returns what it printed.
fn run(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_advlab"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "advlab {}: {out}{err}",
        arguments.join(" ")
    );
    out.into_owned()
}

/// The words of a command; of a run's hundreds of steps, a few show that it works.
fn short(arguments: &str) -> Vec<&str> {
    let words = arguments.split_whitespace();
    words
        .map(|word| match word {
            "100" => "3",
            "200" => "6",
            word => word,
        })
        .chain(match arguments {
            "train --recipe scripts/k_annealed.rhai" => vec!["--steps", "3"],
            _ => vec![],
        })
        .collect()
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
    for line in blocks(&readme(), "sh")
        .iter()
        .flat_map(|block| block.lines())
    {
        let line = line.trim();
        if let Some(arguments) = line
            .strip_prefix("advlab ")
            .or_else(|| line.strip_prefix("cargo run --release -- "))
        {
            run(&short(arguments), folder.path());
            ran += 1;
        } else {
            // The one runs this test, the other has its own in `.ci/run`.
            let elsewhere = ["cargo test", "pip install ./python"];
            assert!(
                elsewhere.contains(&line),
                "a command that nothing runs: {line}"
            );
        }
    }
    assert!(ran >= 10, "{ran} commands ran");
    assert!(folder.path().join("with_advantages.jsonl").exists());
}

#[test]
fn the_shown_output_is_the_output() {
    let readme = readme();
    let shown = blocks(&readme, "text");
    let shown = shown.iter().find(|block| block.starts_with("passk"));
    let shown = shown.expect("the README shows what apply prints");
    let root = Path::new(crate::ROOT);
    let printed = run(
        &["apply", "passk", "examples/rollouts.jsonl", "--set", "k=2"],
        root,
    );
    let without_time = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| !line.trim_start().starts_with("time"))
            .map(|line| line.trim_end().to_string())
            .collect()
    };
    assert_eq!(without_time(&printed), without_time(shown));
}

#[test]
fn every_recipe_passes_the_check() {
    let host = Host::new();
    let recipes = blocks(&readme(), "rhai");
    assert!(recipes.len() >= 2);
    for text in recipes {
        let recipe = host
            .compile("README", &text)
            .unwrap_or_else(|error| panic!("{}", error.render(false)));
        for finding in check(&recipe, None) {
            assert_ne!(
                finding.result,
                CheckResult::Fails,
                "{}: {}",
                finding.check,
                finding.detail
            );
        }
    }
}

#[test]
fn the_scripts_to_edit_pass_the_check() {
    let host = Host::new();
    let folder = Path::new(crate::ROOT).join("scripts");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).expect("scripts/ is there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "rhai") {
            let recipe = host
                .load(&path.display().to_string())
                .unwrap_or_else(|error| panic!("{}", error.render(false)));
            for finding in check(&recipe, None) {
                assert_ne!(
                    finding.result,
                    CheckResult::Fails,
                    "{}: {}",
                    finding.check,
                    finding.detail
                );
            }
            checked += 1;
        }
    }
    assert!(checked >= 3, "{checked} scripts");
}
