//! The documentation does what it says: every block of README and docs/ runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use advlab::batch::Batch;
use advlab::check::{CheckResult, check};
use advlab::script::Host;
use advlab_cli::prompt;
use advlab_cli::prompt::{Paint, PromptSession};

fn root() -> &'static Path {
    Path::new(crate::ROOT)
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a page of the documentation")
}

/// README and all pages of docs/.
fn pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("docs")).expect("docs/ is there");
    let paths = folder.map(|entry| entry.expect("a page").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let paths = paths.filter(is_page).chain([root().join("README.md")]);
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    let mut names: Vec<String> = paths.map(|path| name(&path)).collect();
    names.sort();
    names
        .into_iter()
        .map(|name| (name.clone(), read(&name)))
        .collect()
}

/// The code blocks of a page: language and text.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n'))
}

/// The blocks of a language in all pages, with the names of these.
pub fn blocks_in(language: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, text) in pages() {
        let own = blocks(&text).filter(|(of, _)| *of == language);
        all.extend(own.map(|(_, block)| (name.clone(), format!("{block}\n"))));
    }
    all
}

#[test]
fn every_block_is_of_a_kind_that_a_test_runs() {
    for (name, text) in pages() {
        for (language, block) in blocks(&text) {
            // The Rust of embedding.md is a documentation test of the library.
            let run = ["sh", "rhai", "repl", "python", "text"];
            let is_run =
                run.contains(&language) || (&*name, language) == ("docs/embedding.md", "rust");
            assert!(is_run, "{name}: ```{language}\n{block}");
        }
    }
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// All pages with links: also those beside docs/.
#[test]
fn every_relative_link_leads_to_a_file_and_an_anchor() {
    let mut seen = 0;
    let others = ["CONTRIBUTING.md", "CHANGELOG.md", "python/README.md"];
    let all = pages()
        .into_iter()
        .chain(others.map(|name| (name.to_string(), read(name))));
    for (name, text) in all {
        let prose: Vec<&str> = text.split("\n```").step_by(2).collect();
        for link in prose.join("\n").split("](").skip(1) {
            let link = link.split_once(')').expect("a link ends").0;
            if link.contains("://") {
                continue;
            }
            let (path, wanted) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&name).parent().expect("a folder");
            let target = match path {
                "" => name.clone(),
                path => folder.join(path).display().to_string(),
            };
            assert!(root().join(&target).exists(), "{name}: {link}");
            let has_anchor = |text: &str| {
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                headings.any(|heading| anchor(heading) == wanted)
            };
            assert!(
                wanted.is_empty() || has_anchor(&read(&target)),
                "{name}: {link}"
            );
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} links");
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = read("docs/SUMMARY.md");
    for (name, _) in pages() {
        let page = name.trim_start_matches("docs/");
        let is_listed = summary.contains(&format!("]({page})"));
        assert!(
            is_listed || ["README.md", "SUMMARY.md"].contains(&page),
            "{name}"
        );
    }
}

#[test]
fn every_recipe_passes_the_check() {
    let host = Host::new();
    let blocks = blocks_in("rhai").into_iter();
    let blocks = blocks.map(|(name, text)| (host.compile(&name, &text), name));
    let mut recipes: Vec<_> = blocks.collect();
    assert!(recipes.len() >= 6, "{} recipes", recipes.len());
    // The scripts to edit, too.
    let scripts = std::fs::read_dir(root().join("scripts")).expect("scripts/ is there");
    let paths = scripts.map(|entry| entry.expect("an entry").path());
    let names = paths.map(|path| path.display().to_string());
    let names: Vec<String> = names.filter(|name| name.ends_with(".rhai")).collect();
    assert!(names.len() >= 3, "{names:?}");
    recipes.extend(names.into_iter().map(|name| (host.load(&name), name)));
    for (recipe, name) in recipes {
        let recipe = recipe.unwrap_or_else(|error| panic!("{}", error.render(false)));
        for finding in check(&recipe, None) {
            let (what, detail) = (finding.check, &finding.detail);
            let is_wrong = finding.result == CheckResult::Fails;
            assert!(!is_wrong, "{name}: {what}: {detail}");
        }
    }
}

#[test]
fn every_transcript_is_what_the_prompt_answers() {
    let transcripts = blocks_in("repl");
    assert!(!transcripts.is_empty());
    for (name, shown) in transcripts {
        let mut session = PromptSession::new(&Host::new(), Paint::PLAIN);
        let mut answered = String::new();
        for input in shown.lines().filter_map(|line| line.strip_prefix("> ")) {
            let text = session.submit(input).text;
            let answer = if text.is_empty() { text } else { text + "\n" };
            answered += &format!("> {input}\n{answer}");
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
    let rows = (0..6).map(|row| [0, 1, 2, 3].map(|column| value(row, column)));
    rows.collect()
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
    let Ok(output) = Command::new("python3").arg("-c").arg(&driver).output() else {
        return eprintln!("skipped: there is no python3");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let theirs: Vec<Vec<[f64; 4]>> = serde_json::from_slice(&output.stdout).expect("numbers");

    let batch = Batch::builder()
        .groups(INDEX)
        .ragged("token_reward", kept(&REWARDS))
        .ragged("old_logp", kept(&old))
        .ragged("ref_logp", kept(&reference))
        .build()
        .expect("a batch");
    let guide = read("docs/guide.md");
    let after = blocks(&guide).skip_while(|(language, _)| *language != "python");
    let recipes: Vec<_> = after.filter(|(language, _)| *language == "rhai").collect();
    assert_eq!(recipes.len(), calls.len());
    for (((_, text), theirs), call) in recipes.into_iter().zip(&theirs).zip(calls) {
        let recipe = Host::new().compile("guide", text).expect("a recipe");
        let mut state = recipe.init().expect("no state");
        let outcome = recipe.advantage(&batch, &mut state).expect("values");
        for (response, row) in kept(theirs).enumerate() {
            for (token, expected) in row.into_iter().enumerate() {
                let ours = outcome.advantage.at(response, token);
                let place = format!("{call}: response {response}, token {token}");
                assert!(
                    (ours - expected).abs() < 1e-9,
                    "{place}: {ours} and {expected}"
                );
            }
        }
    }
}

/// The built-in batch is the beginning of the example file, but for the digits that were left out.
#[test]
fn the_builtin_batch_is_the_beginning_of_the_example_file() {
    let rollouts = advlab::files::read(root().join("examples/rollouts.jsonl"), &Default::default());
    let (small, whole) = (prompt::builtin(), rollouts.expect("the example").batch);
    assert_eq!(small.layout().responses(), 128);
    let of = |batch: &Batch, response: usize| {
        let (layout, reward) = (batch.layout(), batch.response_column("reward"));
        let group = layout.group_id(layout.group_of(response)).clone();
        let reward = reward.expect("rewards")[response];
        (layout.tokens_of(response), group, reward)
    };
    for response in 0..128 {
        assert_eq!(of(&small, response), of(&whole, response));
    }
}
