//! The prompt: what it answers, what its curve shows, and how it behaves at a terminal.

mod complete;
mod curve;
mod data;
mod dialogues;
mod edited;
mod saved;
#[cfg(unix)]
mod terminal;
mod transcripts;

use advlab::Host;
use advlab_cli::prompt::{Paint, PromptSession};

/// A session without colours on the built-in batch, in the repository's folder.
fn session() -> PromptSession {
    std::env::set_current_dir(crate::ROOT).expect("the repository");
    PromptSession::new(&Host::new(), Paint::PLAIN)
}

/// Plays a dialogue in a folder of its own, which it calls DIR. A file is written by `+ ` and its name, and lines after `. `.
#[track_caller]
fn play_in_folder(session: &mut PromptSession, dialogue: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().display().to_string();
    let (mut file, mut rest) = (None, String::new());
    for line in dialogue.lines().map(str::trim_start) {
        match (line.split_at(line.len().min(2)), &mut file) {
            (("+ ", name), _) => file = Some((folder.path().join(name), String::new())),
            ((". ", text), Some((path, all))) => {
                *all += &format!("{text}\n");
                std::fs::write(path, all).expect("a file");
            }
            _ => {
                file = None;
                rest += &format!("{}\n", line.replace("DIR", &place));
            }
        }
    }
    play(session, &rest);
}

/// Plays a dialogue: lines of input after `> `, which go on after `. `, each with what is expected of its answer: `= ` the
/// whole, `~ ` a part of it, `! ` a part of an error. Without an expectation, the input must not be wrong.
#[track_caller]
fn play(session: &mut PromptSession, dialogue: &str) {
    let lines: Vec<&str> = dialogue.lines().map(str::trim_start).collect();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let Some(input) = line.strip_prefix("> ") else {
            assert!(line.is_empty(), "{line}");
            continue;
        };
        let mut input = input.to_string();
        while let Some(more) = lines.get(at).and_then(|line| line.strip_prefix(". ")) {
            input += &format!("\n{more}");
            at += 1;
        }
        let reply = session.submit(&input);
        let text = reply.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut is_wrong = false;
        while let Some((mark, part)) = lines.get(at).map(|line| line.split_at(line.len().min(1)))
            && ["=", "~", "!"].contains(&mark)
        {
            at += 1;
            let part = part.trim_start();
            is_wrong |= mark == "!";
            let is_met = if mark == "=" {
                text == part
            } else {
                text.contains(part)
            };
            assert!(is_met, "{input}: {part}\n{}", reply.text);
        }
        assert_eq!(reply.is_error, is_wrong, "{input}: {}", reply.text);
    }
}
