//! What a live recipe reports: versions published and rejected, and what has become of the file.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures;
use crate::script::{Hook, Setting, Version};

/// Something that happened to a live recipe. [`LiveRecipe::events`](super::LiveRecipe::events) hands them out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LiveEvent {
    /// A new version has passed its checks: the next step uses it.
    Published(Published),
    /// A version failed its checks, or at a step. Said once for each content that fails, however often it is saved.
    Rejected {
        /// The version that failed.
        version: Version,
        /// What is wrong with it.
        error: Diagnostics,
        /// The version that the run goes on with.
        still_using: Version,
        /// Whether it had been published, and failed at a step.
        at_step: bool,
    },
    /// The script is gone, or cannot be read. Said once, until it is there again.
    Missing {
        /// The script's path.
        path: PathBuf,
        /// Why it cannot be read, as the system says it.
        why: String,
        /// The version that the run goes on with.
        still_using: Version,
    },
    /// The file is again what the run uses, after it was missing, or held a version that was rejected.
    Reverted {
        /// The version in use.
        version: Version,
    },
    /// A published version has something odd about it that the version before it had not.
    Warned {
        /// The version, which is in use all the same.
        version: Version,
        /// What the lint found, and on which batches that have not occurred yet the version would fail.
        warnings: Vec<Diagnostic>,
    },
    /// The system gives no events for the files: a save is found by the poll alone, up to a second later.
    PollingOnly {
        /// Why, as the system says it.
        why: String,
    },
}

/// A new version, and how it differs from the one before.
#[derive(Clone, Debug)]
pub struct Published {
    /// The version before.
    pub from: Version,
    /// The new version.
    pub to: Version,
    /// The new version's place in the order of publication; see [`Loaded::serial`](super::Loaded::serial).
    pub serial: u64,
    /// Lines that are new, in the script and in what both versions import.
    pub lines_added: usize,
    /// Lines that are gone.
    pub lines_removed: usize,
    /// How long reading, compiling and the dry runs took.
    pub checked_in: Duration,
    /// The time from the first event of the save until the version was ready, settling included.
    pub ready_after: Duration,
    /// Parameters that are new, gone, or have another value.
    pub parameters: Vec<ParameterChange>,
    /// Parameters whose default was edited, and that keep the value which the run sets.
    pub held: Vec<HeldParameter>,
    /// Hooks that the version before did not have.
    pub hooks_added: Vec<Hook>,
    /// Hooks that only the version before had.
    pub hooks_removed: Vec<Hook>,
}

/// A parameter that a new version declares otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterChange {
    /// The parameter's name.
    pub name: String,
    /// Its value in the version before; `None` where that had no such parameter.
    pub was: Option<Setting>,
    /// Its value now; `None` where the new version has no such parameter.
    pub now: Option<Setting>,
    /// Whether the run sets the parameter. Where it is gone, what the run sets has no effect until it comes back.
    pub set_by_run: bool,
}

/// A parameter with another default, which changes nothing: the run sets it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldParameter {
    /// The parameter's name.
    pub name: String,
    /// Its value, before and now.
    pub value: Setting,
}

impl fmt::Display for LiveEvent {
    /// One line: what happened, and what the run goes on with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveEvent::Published(published) => write!(f, "{published}"),
            LiveEvent::Rejected {
                version,
                error,
                still_using,
                at_step,
            } => {
                let (failed, goes_on) = match at_step {
                    true => ("failed at a step", "back to"),
                    false => ("failed its checks", "still using"),
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

impl fmt::Display for Published {
    /// One line: `db6bda -> 4f8ad7  (+1 -1 lines, checked in 2.3 ms)  k 4 -> 8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} -> {}  (+{} -{} lines, checked in {})",
            self.from,
            self.to,
            self.lines_added,
            self.lines_removed,
            figures::time(self.checked_in)
        )?;
        for change in &self.parameters {
            write!(f, "  {change}")?;
        }
        for held in &self.held {
            write!(f, "  {held}: the run sets it")?;
        }
        Ok(())
    }
}

impl fmt::Display for ParameterChange {
    /// `k 4 -> 8`; `none` where a version has no such parameter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [was, now] = [&self.was, &self.now].map(|setting| match setting {
            Some(setting) => setting.to_string(),
            None => "none".to_string(),
        });
        write!(f, "{} {was} -> {now}", self.name)
    }
}

impl fmt::Display for HeldParameter {
    /// `k stays 8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stays {}", self.name, self.value)
    }
}

/// A message of several lines, as that of several diagnostics, in one.
fn one_line(message: impl fmt::Display) -> String {
    message.to_string().replace('\n', "; ")
}
