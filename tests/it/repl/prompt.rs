//! What the prompt has beside formulas and commands: sources, an editor, the values before the last, an exit status.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use advlab::Host;
use advlab_cli::prompt::{Paint, Session, piped};

use super::session;

/// A session whose editor replaces one text by another.
fn editing(from: &'static str, to: &'static str) -> Session {
    let mut session = session();
    session.set_editor(move |file| {
        let text = std::fs::read_to_string(file)?;
        std::fs::write(file, text.replace(from, to))
    });
    session
}

#[test]
fn an_editor_changes_the_last_input_a_function_or_the_recipe() {
    let mut session = editing("2", "20");
    let inputs = [
        (":edit", "nothing to edit yet"),
        (":recipe dr_grpo", "its parameters"),
        ("1 + 2", "3"),
        (":edit", "21"),
        (":edit", "201"),
        ("fn twice(x) { x * 2 }", ""),
        ("1 +", "Error"),
        (":edit twice", ""),
        ("twice(1)", "20"),
        (":edit mean", "is no script"),
    ];
    for (input, expected) in inputs {
        let text = session.submit(input).text;
        assert!(text.contains(expected), "{input}: {text}");
    }

    let mut session = editing("batch.reward", "2.0 * batch.reward");
    session.submit(":recipe dr_grpo");
    let before = session.submit("advantage().max(\"batch\").value()").text;
    session.submit(":reset");
    let text = session.submit(":edit").text;
    assert!(text.contains("is the recipe now"), "{text}");
    let after = session.submit("advantage().max(\"batch\").value()").text;
    let number = |text: &str| text.parse::<f64>().expect("a number");
    assert_ne!(number(&before), number(&after));
    assert!(session.submit(":edit twice").is_error);
}

/// A recipe of the user's own is edited in its file.
#[test]
fn an_edited_file_becomes_the_recipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.rhai");
    let script = "fn params() { #{ k: #{ value: 1.0 } } }\nfn advantage(batch, p) { 3 * p.k * batch.reward }\n";
    std::fs::write(&file, script).expect("a script");
    let mut session = editing("3 *", "7 *");
    for input in [&format!(":recipe {} k=2", file.display()), ":edit"] {
        let reply = session.submit(input);
        assert!(!reply.is_error, "{}", reply.text);
    }
    let most = session.submit("advantage().max(\"batch\").value()").text;
    assert_eq!(most, "14", "with the settings of before");
    let written = std::fs::read_to_string(&file).expect("a script");
    assert!(written.contains("7 *"), "{written}");
    let reply = session.submit(":edit");
    assert!(!reply.is_error, "{}", reply.text);
}

#[test]
fn piped_lines_all_run_and_the_wrong_ones_are_counted() {
    let run = |lines: &str| {
        let mut out = Vec::new();
        let wrong = piped(&mut session(), lines.as_bytes(), &mut out).expect("lines");
        (wrong, String::from_utf8(out).expect("text"))
    };
    assert_eq!(run("1\n2\n"), (0, "1\n2\n".to_string()));
    let (wrong, text) = run("nothing\n:nope\n7\nfn f( {");
    assert_eq!(wrong, 3, "{text}");
    assert!(text.contains("\n7\n"), "{text}");
    assert_eq!(run("nothing\n:q\nnothing\n").0, 1);
}

#[test]
fn the_status_says_whether_an_input_was_wrong_and_a_recipe_is_no_batch() {
    let repl = |arguments: &[&str], lines: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_advlab"));
        let command = command.arg("repl").args(arguments).arg("--stdin");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn().expect("the binary");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A wrong argument ends it before it reads.
        let _ = stdin.write_all(lines.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("an end");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), error)
    };
    assert_eq!(repl(&[], "1 + 1\n").0, Some(0));
    assert_eq!(repl(&[], "1 + nothing\n1 + 1\n").0, Some(1));
    let (status, error) = repl(&["grpo"], "");
    assert_eq!(status, Some(1), "{error}");
    assert!(error.contains("advlab repl --recipe grpo"), "{error}");
}

/// The widths of the answers' lines.
fn widths(width: usize, inputs: &[&str]) -> Vec<usize> {
    let paint = Paint {
        width,
        ..Paint::PLAIN
    };
    let mut session = Session::new(&Host::new(), paint);
    let text: Vec<String> = inputs
        .iter()
        .map(|input| session.submit(input).text)
        .collect();
    let all = text.iter().flat_map(|text| text.lines());
    all.map(|line| line.chars().count()).collect()
}

#[test]
fn answers_fill_the_width_of_the_terminal() {
    let inputs = [
        "batch.reward.mean(\"group\")",
        "batch.old_logp",
        ":curve grpo",
        ":recipe grpo",
        "?batch",
        ":help",
        "?functions",
        "?kl",
        "?binomial_ratio",
        "?pacs",
        "?old_logp",
        "??passk",
    ];
    for (width, filled) in [(60, 50), (80, 70), (120, 100)] {
        for input in inputs {
            let most = widths(width, &[input]).into_iter().max().unwrap_or(0);
            // Scripts and tables in an explanation stay as they are.
            let is_wide = ["?batch", "?old_logp"].contains(&input) && width < 80;
            assert!(most <= width || is_wide, "{input}: {most} of {width}");
        }
        for input in [inputs[0], inputs[1], inputs[2], inputs[4]] {
            let most = widths(width, &[input]).into_iter().max().unwrap_or(0);
            assert!(most >= filled, "{input}: {most} of {width}");
        }
    }
}

#[test]
fn files_are_found_where_they_are_before_recipes_of_their_name() {
    let reply = session().submit(":load grpo");
    assert!(!Path::new("grpo").exists() && reply.is_error);
    assert!(reply.text.contains(":recipe grpo"), "{}", reply.text);
}
