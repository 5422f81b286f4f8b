//! Transcripts: every kind of value, of error and of command, and inputs over several lines.

use super::session;

/// Each is a session of its own.
const NAMES: [&str; 5] = ["designs", "errors", "recipes", "sources", "values"];

/// The inputs of a transcript are read from its snapshot, in lines after `> `, or `! ` if they are wrong, and `. ` if they go
/// on. A new input is added there. Of an answer that ends with a line `...`, the lines before it are compared.
#[test]
fn transcripts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/it/repl/snapshots");
    for name in NAMES {
        let path = format!("{folder}/it__repl__transcripts__{name}.snap");
        let text = std::fs::read_to_string(&path).expect("a transcript");
        let mut inputs: Vec<(String, usize, bool)> = Vec::new();
        for line in text.lines() {
            match (line.get(..2).unwrap_or(line), inputs.last_mut()) {
                ("> " | "! ", _) => inputs.push((line[2..].to_string(), 0, false)),
                (". ", Some((input, ..))) => *input += &format!("\n{}", &line[2..]),
                (_, Some((.., is_cut))) if line == "..." => *is_cut = true,
                (_, Some((_, lines, _))) => *lines += 1,
                _ => {}
            }
        }
        assert!(!inputs.is_empty(), "{name} has no input");
        let (mut session, mut text) = (session(), Vec::new());
        for (input, lines, is_cut) in inputs {
            let reply = session.submit(&input);
            let mark = if reply.is_error { "!" } else { ">" };
            text.push(format!("{mark} {}", input.replace('\n', "\n. ")));
            // Times differ from run to run.
            let shown = reply.text.lines();
            let shown = shown.filter(|line| !line.trim_start().starts_with("time "));
            let shown = shown.take(if is_cut { lines } else { usize::MAX });
            text.extend(shown.map(str::to_string));
            text.extend(is_cut.then(|| "...".to_string()));
        }
        insta::assert_snapshot!(name, text.join("\n"));
    }
}
