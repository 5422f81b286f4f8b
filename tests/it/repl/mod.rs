//! The prompt: what it answers, what its curve shows, and how it behaves at a terminal.

mod commands;
mod complete;
mod curve;
mod data;
mod prompt;
mod saved;
mod show;
mod state;
#[cfg(unix)]
mod terminal;
mod transcripts;
mod watch;

use advlab::Host;
use advlab_cli::prompt::{Paint, Session};

/// A session without colours on the built-in batch, in the repository's folder.
fn session() -> Session {
    std::env::set_current_dir(crate::ROOT).expect("the repository");
    Session::new(&Host::new(), Paint::PLAIN)
}

/// The inputs with their answers, as a reader of the transcript sees them.
fn transcript(session: &mut Session, inputs: &[impl AsRef<str>]) -> String {
    let mut text = String::new();
    for input in inputs.iter().map(AsRef::as_ref) {
        let outcome = session.submit(input);
        let shown = input.replace('\n', "\n. ");
        let mark = if outcome.is_error { "!" } else { ">" };
        text.push_str(&format!("{mark} {shown}\n"));
        if !outcome.text.is_empty() {
            text.push_str(&outcome.text);
            text.push('\n');
        }
    }
    text
}
