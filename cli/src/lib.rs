//! The program `advlab`: its commands, its prompt, the reports on designs, and the page of a run.
//!
//! - `command`: the commands of the command line;
//! - [`prompt`]: the session behind `advlab repl`, and its terminal;
//! - [`lsp`]: the language server behind `advlab lsp`;
//! - [`report`]: the reports of the commands and the prompt: objectives, masses, comparisons, profiles, figures, a run's page;
//! - [`doc`]: the explanations of `advlab doc`.

mod command;
mod complete;
pub mod doc;
mod loaded;
pub mod lsp;
pub(crate) mod paint;
pub mod prompt;
pub mod report;

pub use command::{command_line, read_rollouts};

pub(crate) use advlab::number_text;

use std::sync::{Mutex, MutexGuard, PoisonError};

use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::{Mapping, Unscored};

/// A result whose errors can name a place in a file, and can say what to do.
pub type Result<T, E = Diagnostics> = std::result::Result<T, E>;

/// Returns an error whose help says what to do about it.
pub(crate) fn wrong(message: impl Into<String>, help: impl Into<String>) -> Diagnostics {
    Diagnostic::error(message).with_help(help).into()
}

/// Locks a mutex even if a thread panicked while it held the lock, because no panic leaves the locked data half changed.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses a name with its value, as in `--set k=8`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let trimmed = |(name, value): (&str, &str)| (name.trim().to_string(), value.trim().to_string());
    let pair = text.split_once('=').map(trimmed);
    pair.filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        format!("\"{text}\" is not of the form NAME=VALUE, such as k=8 or reward=score")
    })
}

/// Parses a field that is read under another name, as in `--map reward=score`.
pub(crate) fn mapping(text: &str) -> Result<Mapping, String> {
    pair(text).map(|(ours, theirs)| Mapping { ours, theirs })
}

/// Parses the treatment of responses whose `reward` or `correct` is null, NaN or missing, as in `--unscored zero`.
pub fn unscored(text: &str) -> Result<Unscored, String> {
    match text {
        "error" => Ok(Unscored::Error),
        "zero" => Ok(Unscored::Zero),
        "leave-out" => Ok(Unscored::LeaveOut),
        _ => Err(format!("\"{text}\" is not leave-out, zero or error")),
    }
}

/// Returns an error if a number is given where a recipe is expected. This happens with `--noise 0.1`, because the option takes
/// its value only after `=`.
pub(crate) fn number_for_recipe(word: &str) -> Option<Diagnostics> {
    word.parse::<f64>().ok()?;
    let help = format!("write the correlation after `=`: `--noise={word}`");
    Some(wrong(format!("`{word}` is not a recipe"), help))
}

/// Parses the correlation of a response's score (the derivative of its log-prob) with its label (1 if right), as in
/// `--noise=0.1`.
pub(crate) fn correlation(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| *number > 0.0 && *number < 1.0);
    number.ok_or_else(|| format!("\"{text}\" is not a correlation above 0 and below 1"))
}
