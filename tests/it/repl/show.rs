//! What answers and figures look like where values are huge, tiny, not finite, or hold what a terminal would obey.

use std::path::PathBuf;

use advlab::Host;
use advlab_cli::prompt::{Paint, Session};

use super::session;

fn answer(session: &mut Session, input: &str) -> String {
    session.submit(input).text
}

fn columns_at_most(text: &str, most: usize) {
    let wide = text.lines().find(|line| line.chars().count() > most);
    assert_eq!(wide, None, "{text}");
}

#[test]
fn huge_and_tiny_numbers_have_an_exponent() {
    let mut session = session();
    assert_eq!(answer(&mut session, "1e300"), "1e300");
    assert_eq!(answer(&mut session, "-1e-300"), "-1e-300");
    assert_eq!(answer(&mut session, "[1e300, 0.5]"), "[1e300, 0.5]");
    let tensor = answer(&mut session, "batch.reward.max(\"batch\") * 1e300");
    assert_eq!(tensor, "1e300   batch tensor, f64");
}

#[test]
fn a_long_text_is_cut_beside_others_and_whole_alone() {
    let mut session = session();
    answer(&mut session, "let long = \"\"; long.pad(4096, 'x');");
    columns_at_most(&answer(&mut session, ":vars"), 80);
    columns_at_most(&answer(&mut session, "[long]"), 80);
    assert_eq!(answer(&mut session, "long").len(), 4096 + 2);
}

#[test]
fn the_std_that_is_printed_is_the_std_of_scripts() {
    let mut session = session();
    let std = answer(&mut session, "batch.reward.std(\"batch\").value()");
    let std: f64 = std.parse().expect("a number");
    let printed = answer(&mut session, "batch.reward");
    assert!(printed.contains(&format!("std {std:.4}")), "{printed}");
    let population = answer(
        &mut session,
        "batch.reward.population_std(\"batch\").value()",
    );
    let population: f64 = population.parse().expect("a number");
    assert_ne!(format!("{std:.4}"), format!("{population:.4}"));
}

/// A session on rollouts whose groups have names that a terminal would obey, or that take two columns a letter.
fn named(name: &str) -> (PathBuf, Session) {
    let folder = std::env::temp_dir().join(format!("advlab-show-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let row = |group: &str, reward: u8| {
        let row = serde_json::json!({ "group": group, "reward": reward, "\u{1b}odd": 1.5, "old_logp": [-1.0] });
        format!("{row}\n")
    };
    let rows = [row("\u{1b}[31m\u{7}", 1), row("数学", 0), row("ab", 1)].concat();
    let file = folder.join("rollouts.jsonl");
    std::fs::write(&file, rows).expect("a file");
    let mut session = Session::new(&Host::new(), Paint::PLAIN);
    let outcome = session.submit(&format!(":load {}", file.display()));
    assert!(!outcome.is_error, "{}", outcome.text);
    (folder, session)
}

#[test]
fn names_from_a_file_reach_the_terminal_as_text_that_lines_up() {
    let (folder, mut session) = named("names");
    for input in [
        "batch.reward",
        "batch.reward.mean(\"group\")",
        "batch.old_logp",
        "batch",
    ] {
        let text = answer(&mut session, input);
        let raw = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(raw, None, "{input}: {text}");
    }
    let text = answer(&mut session, "batch.reward");
    assert!(text.contains("\\u{1b}[31m\\u{7}"), "{text}");
    // 4 and 2 columns of names, both before the same column of numbers.
    let line = |name: &str| {
        text.lines()
            .find(|line| line.contains(name))
            .expect("a line")
    };
    let (wide, narrow) = (line("数学"), line("ab"));
    assert_eq!(wide.chars().count() + 2, narrow.chars().count(), "{text}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_plot_says_what_it_leaves_out() {
    let mut session = session();
    let mut titled = |input: &str| {
        let text = answer(&mut session, input);
        text.lines().next().unwrap_or("").to_string()
    };
    assert_eq!(
        titled(":plot [1.0, 2.0, 1.0/0.0, 0.0/0.0, 0.0/0.0]"),
        "[1.0, 2.0, 1.0/0.0, 0.0/0.0, 0.0/0.0]: 2 values; left out: 2 NaN, 1 infinite"
    );
    assert_eq!(
        titled(":plot [1.0, 2.0, 0.0/0.0], [1.0, 1.0/0.0, 2.0]"),
        "1 point; left out: 1 NaN, 1 infinite"
    );
    let text = titled(":plot batch.length / (batch.length > 10)");
    assert!(
        text.contains(" response values; left out: ") && text.ends_with(" infinite"),
        "{text}"
    );
}

#[test]
fn where_nothing_is_finite_the_error_says_so() {
    let mut session = session();
    for (input, why) in [
        (
            ":plot batch.reward * (0.0/0.0)",
            "`batch.reward * (0.0/0.0)` has no finite value to draw: 128 NaN",
        ),
        (
            ":plot (batch.reward - 0.5) / 0.0",
            "`(batch.reward - 0.5) / 0.0` has no finite value to draw: 128 infinite",
        ),
        (
            ":plot batch.reward, batch.reward * (0.0/0.0)",
            "`batch.reward * (0.0/0.0)` over `batch.reward` has no finite point to draw: 128 NaN",
        ),
        (
            ":plot batch.reward * 0.0",
            "all values of `batch.reward * 0.0` are 0: there is nothing to draw",
        ),
    ] {
        let outcome = session.submit(input);
        let said = outcome.text.replace('\n', " ");
        assert!(outcome.is_error && said.contains(why), "{said}");
    }
}

#[test]
fn a_plot_of_a_long_expression_keeps_to_80_columns() {
    let mut session = session();
    let long = ["batch.length"; 12].join("+");
    columns_at_most(&answer(&mut session, &format!(":plot {long}")), 80);
    columns_at_most(&answer(&mut session, &format!(":plot {long}, {long}")), 80);
    let text = answer(&mut session, &format!(":plot {long}"));
    assert!(
        text.lines().last().is_some_and(|line| line.contains('…')),
        "{text}"
    );
}
