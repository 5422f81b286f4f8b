//! The program `advlab`: its commands, its prompt, the reports of what a design does, and the page of a run.
//!
//! - `command`: a file per command of the command line;
//! - [`prompt`]: the session behind `advlab repl`, and its terminal;
//! - [`report`]: what commands and prompt show alike: objectives, masses, comparisons, profiles, figures, a run's page;
//! - [`doc`]: what `advlab doc` explains.

mod command;
pub mod doc;
pub mod prompt;
pub mod report;

pub use command::command_line;

use advlab::diagnostic::{Diagnostic, Diagnostics};

/// An error with what to do about it.
pub(crate) fn wrong(message: impl Into<String>, help: impl Into<String>) -> Diagnostics {
    Diagnostic::error(message).with_help(help).into()
}
