//! Transcripts: every kind of value, of error and of command, and inputs over several lines.

use super::{session, transcript};

/// A transcript is a test of its own: its inputs are read from its snapshot, in lines after `> `, or `! ` if they are wrong,
/// and `. ` if they go on. A new input is added there.
#[test]
fn transcripts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/it/repl/snapshots");
    for file in std::fs::read_dir(folder).expect("snapshots") {
        let path = file.expect("a snapshot").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = name.strip_prefix("it__repl__transcripts__");
        // Beside them may lie new ones that nobody has accepted.
        let Some(name) = name.and_then(|name| name.strip_suffix(".snap")) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).expect("a transcript");
        let mut inputs: Vec<String> = Vec::new();
        for line in text.lines() {
            match (line.get(..2).unwrap_or(line), inputs.last_mut()) {
                ("> " | "! ", _) => inputs.push(line[2..].to_string()),
                (". ", Some(input)) => *input += &format!("\n{}", &line[2..]),
                _ => {}
            }
        }
        let text = transcript(&mut session(), &inputs);
        // Times differ from run to run.
        let is_kept = |line: &&str| !line.trim_start().starts_with("time ");
        let text = text.lines().filter(is_kept).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn an_input_goes_on_in_the_next_line_if_it_is_incomplete() {
    let session = session();
    let open = [
        "fn f(x) {",
        "fn f(x) {\n    x + 1",
        "batch.reward.mean(",
        "1 +",
        "let x =",
        "[1, 2,",
        "#{ a: 1,",
        "/* a comment",
        "if true {",
        "`a text over",
        // What is wrong in a block is told when it is whole.
        "fn f(x) {\n    let a = 1\n    x + a",
    ];
    for text in open {
        assert!(session.is_incomplete(text), "{text}");
    }
    let done = [
        "",
        "fn f(x) { x + 1 }",
        "1 + )",
        "let = 3",
        "batch.reward.",
        "\"not closed",
        ":recipe {",
        "?mean(",
        "// a comment",
        "let x = 1;",
        "fn f(x) {\n    let a = 1\n    x + a\n}",
        "f(]",
        "f(\"not closed",
    ];
    for text in done {
        assert!(!session.is_incomplete(text), "{text}");
    }
}

#[test]
fn words_that_people_type_at_any_prompt_work() {
    let mut session = session();
    assert!(session.submit("help").text.contains(":recipe"));
    assert!(session.submit("let help = 1; help").text == "1");
    assert_eq!(
        session.submit("help").text,
        "1",
        "a variable of one's own comes first"
    );
    session.submit("exit()");
    assert!(session.is_over());
}

#[test]
fn what_failed_leaves_no_trace() {
    let mut session = session();
    assert!(session.submit("let a = 1; let b = nothing;").is_error);
    assert!(
        session.submit("a").is_error,
        "a variable of an input that failed is gone"
    );
    assert!(session.submit("fn f() { 1 } nothing").is_error);
    assert!(session.submit("f()").is_error, "and so is a function");
    assert_eq!(session.submit("1 + 1").text, "2");
}

/// Without an end, and slow enough that the limit of operations is far away.
const SLOW: &str = "loop { batch.reward.mean(\"group\").values(); }";

#[test]
fn an_endless_loop_ends_at_the_limit_or_when_it_is_cancelled() {
    use advlab::script::{Host, Limits};
    let limits = Limits {
        time: std::time::Duration::from_millis(50),
        ..Limits::default()
    };
    let host = Host::new().with_limits(limits);
    let mut session = advlab_cli::prompt::Session::new(&host, advlab_cli::prompt::Paint::PLAIN);
    let ended = session.submit(SLOW).text;
    assert!(ended.contains("the time that it was given"), "{ended}");
    assert_eq!(
        session.submit("1 + 1").text,
        "2",
        "the next input has its own time"
    );

    let mut session = super::session();
    let guard = session.guard().clone();
    let stop = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        guard.cancel();
    });
    let ended = session.submit(SLOW).text;
    assert!(ended.contains("cancelled"), "{ended}");
    stop.join().expect("the thread that cancels");
    assert_eq!(session.submit("1 + 1").text, "2");
}
