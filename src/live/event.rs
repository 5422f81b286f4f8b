//! The events of a live recipe: versions published and rejected, and changes of the file.

use std::fmt;
use std::path::PathBuf;

use super::change::VersionChange;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::Version;

/// Something that happened to a live recipe: see [`LiveRecipe::events`](super::LiveRecipe::events).
#[derive(Clone, Debug)]
pub enum LiveEvent {
    /// A new version has passed its checks: the next step uses it.
    Published(VersionChange),
    /// A version failed its checks, or at a step. Reported once for each content that fails, however often it is saved.
    Rejected {
        /// The version that failed.
        version: Version,
        /// Why it failed.
        error: Diagnostics,
        /// The version that the run continues with.
        still_using: Version,
        /// Whether it had been published, and failed at a step.
        at_step: bool,
    },
    /// The script is gone, or cannot be read. Reported once, until it is there again.
    Missing {
        /// The script's path.
        path: PathBuf,
        /// Why it cannot be read: the system's message.
        why: String,
        /// The version that the run continues with.
        still_using: Version,
    },
    /// The file holds the version in use again, after it was missing or held a rejected version.
    Reverted {
        /// The version in use.
        version: Version,
    },
    /// A published version has warnings that the version before did not have.
    Warned {
        /// The version, which is used nevertheless.
        version: Version,
        /// Those of the lint, and failures on batches that have not occurred yet.
        warnings: Vec<Diagnostic>,
    },
    /// The system gives no events for the files: only the poll finds a save, up to a second later.
    PollingOnly {
        /// The system's message.
        why: String,
    },
}

impl fmt::Display for LiveEvent {
    /// One line: what happened, and what the run continues with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveEvent::Published(change) => write!(f, "{change}"),
            LiveEvent::Rejected {
                version,
                error,
                still_using,
                at_step,
            } => {
                let (failed, goes_on) = if *at_step {
                    ("failed at a step", "back to")
                } else {
                    ("failed its checks", "still using")
                };
                let error = one_line(error);
                write!(f, "{version} {failed}: {error}  {goes_on} {still_using}")
            }
            LiveEvent::Missing {
                path,
                why,
                still_using,
            } => {
                let path = path.display();
                write!(f, "{path}: {why}  still using {still_using}")
            }
            LiveEvent::Reverted { version } => {
                write!(f, "the script is {version} again, which is in use")
            }
            LiveEvent::Warned { version, warnings } => {
                let warnings: Vec<String> = warnings.iter().map(one_line).collect();
                let warnings = warnings.join("; ");
                write!(f, "{version} is used all the same: {warnings}")
            }
            LiveEvent::PollingOnly { why } => write!(
                f,
                "{why}: the recipe is looked at each second, and a save takes up to that long"
            ),
        }
    }
}

/// Joins the lines of a message, such as that of several diagnostics.
fn one_line(message: impl fmt::Display) -> String {
    message.to_string().replace('\n', "; ")
}
