//! Transcripts: every kind of value, of error and of command, and inputs over several lines.

use super::{session, transcript};

/// Each is a session of its own.
const NAMES: [&str; 5] = ["designs", "errors", "recipes", "sources", "values"];

/// The inputs of a transcript are read from its snapshot, in lines after `> `, or `! ` if they are wrong, and `. ` if they go
/// on. A new input is added there.
#[test]
fn transcripts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/it/repl/snapshots");
    for name in NAMES {
        let path = format!("{folder}/it__repl__transcripts__{name}.snap");
        let text = std::fs::read_to_string(&path).expect("a transcript");
        let mut inputs: Vec<String> = Vec::new();
        for line in text.lines() {
            match (line.get(..2).unwrap_or(line), inputs.last_mut()) {
                ("> " | "! ", _) => inputs.push(line[2..].to_string()),
                (". ", Some(input)) => *input += &format!("\n{}", &line[2..]),
                _ => {}
            }
        }
        assert!(!inputs.is_empty(), "{name} has no input");
        let text = transcript(&mut session(), &inputs);
        // Times differ from run to run.
        let is_kept = |line: &&str| !line.trim_start().starts_with("time ");
        let text = text.lines().filter(is_kept).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(name, text);
    }
}
