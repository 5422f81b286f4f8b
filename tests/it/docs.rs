//! The documentation does what it says: every block of README and docs/ runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use advlab::batch::Batch;
use advlab::check::{CheckResult, check};
use advlab::script::Host;
use advlab_cli::prompt;
use advlab_cli::prompt::{Paint, Session};

fn root() -> &'static Path {
    Path::new(crate::ROOT)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a page of the documentation")
}

/// README and all pages of docs/.
fn pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("docs")).expect("docs/ is there");
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.expect("a page").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    paths.sort();
    let names = paths
        .iter()
        .map(|path| format!("docs/{}", path.file_name().unwrap().to_string_lossy()));
    let all = std::iter::once("README.md".to_string()).chain(names);
    all.map(|name| (name.clone(), read(&name))).collect()
}

/// The code blocks of a page: language and text.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body: Vec<&str> = lines
                .by_ref()
                .take_while(|line| !line.starts_with("```"))
                .collect();
            blocks.push((language.to_string(), body.join("\n") + "\n"));
        }
    }
    blocks
}

fn blocks_in(language: &str) -> Vec<(String, String)> {
    let in_language = |(name, text): (String, String)| {
        let own = blocks(&text).into_iter().filter(|(of, _)| of == language);
        own.map(|(_, block)| (name.clone(), block))
            .collect::<Vec<_>>()
    };
    pages().into_iter().flat_map(in_language).collect()
}

#[test]
fn every_block_is_of_a_kind_that_a_test_runs() {
    for (name, text) in pages() {
        for (language, block) in blocks(&text) {
            let run = ["sh", "rhai", "repl", "python", "text", "rust"];
            assert!(
                run.contains(&language.as_str()),
                "{name}: ```{language}\n{block}"
            );
            // README's Rust is a documentation test; other pages have none.
            assert!(
                language != "rust" || name == "README.md",
                "{name}: nothing runs this\n{block}"
            );
            assert!(
                language != "sh" || name == "README.md",
                "{name}: nothing runs this\n{block}"
            );
        }
    }
}

#[test]
fn every_recipe_of_the_documentation_passes_the_check() {
    let host = Host::new();
    let recipes = blocks_in("rhai");
    assert!(recipes.len() >= 6, "{} recipes", recipes.len());
    for (name, text) in recipes {
        let recipe = host
            .compile(&name, &text)
            .unwrap_or_else(|error| panic!("{}", error.render(false)));
        recipe
            .test_batch()
            .unwrap_or_else(|error| panic!("{}", error.render(false)));
        for finding in check(&recipe, None) {
            let (what, detail) = (finding.check, &finding.detail);
            assert_ne!(
                finding.result,
                CheckResult::Fails,
                "{name}: {what}: {detail}\n{text}"
            );
        }
    }
}

#[test]
fn every_transcript_is_what_the_prompt_answers() {
    let transcripts = blocks_in("repl");
    assert!(!transcripts.is_empty());
    for (name, shown) in transcripts {
        let mut session = Session::new(&Host::new(), Paint::PLAIN);
        let mut answered = String::new();
        for input in shown.lines().filter_map(|line| line.strip_prefix("> ")) {
            let outcome = session.submit(input);
            answered.push_str(&format!("> {input}\n"));
            if !outcome.text.is_empty() {
                answered.push_str(&outcome.text);
                answered.push('\n');
            }
        }
        assert_eq!(answered, shown, "{name}");
    }
}

/// What the guide's Python functions get: two prompts of three and two responses and one of one, with holes in the mask.
const REWARDS: [[f64; 4]; 6] = [
    [0.0, 0.0, 1.0, 0.0],
    [0.0, 0.5, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.25],
    [0.0, 0.0, 0.7, 0.0],
    [1.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.3],
];
const MASK: [[f64; 4]; 6] = [
    [1.0, 1.0, 1.0, 0.0],
    [1.0, 1.0, 0.0, 0.0],
    [1.0, 0.0, 1.0, 1.0],
    [0.0, 1.0, 1.0, 0.0],
    [1.0, 0.0, 0.0, 0.0],
    [1.0, 1.0, 1.0, 1.0],
];
const INDEX: [i64; 6] = [0, 0, 1, 0, 1, 2];

fn logp(shift: f64) -> Vec<[f64; 4]> {
    let value = |row: usize, column: usize| -0.1 - shift * ((row * 7 + column * 3) % 5) as f64;
    (0..6)
        .map(|row| [0, 1, 2, 3].map(|column| value(row, column)))
        .collect()
}

/// The tokens of a row that count.
fn kept<'a>(rows: &'a [[f64; 4]]) -> impl Iterator<Item = Vec<f64>> + 'a {
    let of_row = |(row, mask): (&[f64; 4], &[f64; 4])| {
        let pairs = row.iter().zip(mask).filter(|(_, mask)| **mask == 1.0);
        pairs.map(|(value, _)| *value).collect()
    };
    rows.iter().zip(&MASK).map(of_row)
}

#[test]
fn the_python_functions_and_the_recipes_give_the_same() {
    let all = blocks_in("python").into_iter();
    let mut functions = all.filter(|(_, block)| block.contains("def grpo("));
    let (_, python) = functions.next().expect("the guide has the functions");
    let (old, reference) = (logp(0.1), logp(0.17));
    let calls = [
        "grpo(REWARDS, MASK, INDEX)",
        "rloo(REWARDS, MASK, INDEX)",
        "reinforce_plus_plus(REWARDS, MASK, OLD, REF)",
    ];
    let driver = format!(
        "{python}\nREWARDS, MASK, INDEX, OLD, REF = {REWARDS:?}, {MASK:?}, {INDEX:?}, {old:?}, {reference:?}\nimport json\nprint(json.dumps([{}]))\n",
        calls.join(", ")
    );
    let output = match Command::new("python3").arg("-c").arg(&driver).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: there is no python3 ({error})");
            return;
        }
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let theirs: Vec<Vec<[f64; 4]>> = serde_json::from_slice(&output.stdout).expect("numbers");

    let batch = Batch::builder()
        .groups(INDEX)
        .ragged("token_reward", kept(&REWARDS))
        .ragged("old_logp", kept(&old))
        .ragged("ref_logp", kept(&reference))
        .build()
        .expect("a batch");
    let guide = blocks(&read("docs/guide.md"));
    let after = guide
        .iter()
        .skip_while(|(language, _)| language != "python");
    let recipes: Vec<&String> = after
        .filter(|(language, _)| language == "rhai")
        .map(|(_, text)| text)
        .collect();
    assert_eq!(recipes.len(), calls.len());
    for ((text, theirs), call) in recipes.into_iter().zip(&theirs).zip(calls) {
        let recipe = Host::new().compile("guide", text).expect("a recipe");
        let outcome = recipe
            .advantage(&batch, &mut recipe.init().expect("no state"))
            .expect("an advantage");
        for (response, row) in kept(theirs).enumerate() {
            for (token, expected) in row.into_iter().enumerate() {
                let ours = outcome.advantage.at(response, token);
                assert!(
                    (ours - expected).abs() < 1e-9,
                    "{call}: response {response}, token {token}: {ours} and {expected}"
                );
            }
        }
    }
}

/// The built-in batch is the beginning of the example file, but for the digits that were left out.
#[test]
fn the_builtin_batch_is_the_beginning_of_the_example_file() {
    let rollouts = advlab::files::read(root().join("examples/rollouts.jsonl"), &Default::default())
        .expect("the example");
    let (small, whole) = (prompt::builtin(), rollouts.batch);
    let number = small.layout().responses();
    assert_eq!(number, 128);
    let rewards =
        |batch: &Batch| batch.response_column("reward").expect("rewards")[..number].to_vec();
    assert_eq!(rewards(&small), rewards(&whole));
    for response in 0..number {
        assert_eq!(
            small.layout().tokens_of(response),
            whole.layout().tokens_of(response)
        );
        assert_eq!(
            small.layout().group_id(small.layout().group_of(response)),
            whole.layout().group_id(whole.layout().group_of(response))
        );
    }
}
