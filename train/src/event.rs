//! Events of a run while it goes: for its folder, for a person, for the program that embeds it.

use super::folder::log::{MIGRATE, STEP};
use super::folder::{KeptVersion, LogEvent, LogLine, one_line};
use super::policy::Platform;
use super::row::{Evaluation, Row};
use advlab::batch::Batch;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::live::{Failed, LiveEvent, VersionChange};
use advlab::script::Recipe;

/// Something that happened in a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// An update of supervised fine-tuning, before the first step.
    FineTuned {
        /// Its number, from 0.
        update: u64,
        /// How many there are.
        of: u64,
    },
    /// Something happened to the recipe, or the run's numbers deserve a look: a line of `reloads.jsonl`.
    Log(Box<LogEntry>),
    /// The script printed a line.
    Printed {
        /// The step in which it was printed.
        step: u64,
        /// The line that was printed.
        line: &'a str,
    },
    /// The policy has been evaluated: before the first step, after a step, or when the run is stopped.
    Evaluated {
        /// The steps that were done before it.
        done: u64,
        /// The numbers, which the row of the step has too, unless the run is stopped.
        evaluation: &'a Evaluation,
        /// A prompt of the evaluation set with a response to it, for a person: always the same prompt.
        example: &'a str,
    },
    /// A step is done.
    Step {
        /// The step's row of `metrics.jsonl`.
        row: &'a Row,
        /// The batch that it was trained on.
        batch: &'a Batch,
    },
}

/// Tells an event to the run's folder and to the observer; an error ends the run.
pub(super) type Tell<'a> = dyn FnMut(Event<'_>) -> Result<(), Diagnostics> + 'a;

/// A line of the log, with what a person sees of it.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The line.
    pub line: LogLine,
    /// The line for a person.
    pub text: String,
    /// The errors or warnings that it is about, with their places in the script.
    pub problems: Vec<Diagnostic>,
    /// The versions that the folder has to keep.
    pub(super) recipes: Vec<Recipe>,
    /// The batch that shows a failure.
    pub(super) batch: Option<Batch>,
}

impl LogEntry {
    fn new(step: u64, event: LogEvent, text: String) -> LogEntry {
        LogEntry {
            line: LogLine { step, event },
            text,
            problems: Vec::new(),
            recipes: Vec::new(),
            batch: None,
        }
    }

    /// A run begins. `loss` is the run's loss recipe; a trainer's run has none.
    pub(super) fn start(recipe: &Recipe, loss: Option<&Recipe>, platform: Platform) -> LogEntry {
        let kept = loss.map(KeptVersion::of);
        let (loss_script, loss_version) = kept.map(|kept| (kept.script, kept.version)).unzip();
        let start = LogEvent::Start {
            recipe: KeptVersion::of(recipe),
            loss_script,
            loss_version,
            platform,
        };
        LogEntry {
            recipes: [Some(recipe), loss]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            ..LogEntry::new(0, start, "the run begins".to_string())
        }
    }

    /// A run goes on.
    pub(super) fn resume(step: u64, platform: Platform) -> LogEntry {
        let text = "the run goes on".to_string();
        LogEntry::new(step, LogEvent::Resume { platform }, text)
    }

    /// Something happened to the recipe's file; `None` if it is an event of its step.
    pub(super) fn live(step: u64, event: &LiveEvent) -> Option<LogEntry> {
        let message = event.to_string();
        let mut entry = LogEntry::warning(step, message.clone());
        match event {
            LiveEvent::Published(_) | LiveEvent::Rejected { at_step: true, .. } => return None,
            LiveEvent::Rejected {
                version,
                error,
                still_using,
                ..
            } => {
                entry.text = format!("still using {still_using}");
                entry.problems = error.to_vec();
                entry.line.event = LogEvent::Rejected {
                    version: version.as_str().to_string(),
                    error: one_line(error),
                    still_using: still_using.as_str().to_string(),
                };
            }
            LiveEvent::Warned { version, warnings } => {
                entry.text = format!("{version} is used all the same");
                entry.problems = warnings.clone();
            }
            _ => entry.text = message,
        }
        Some(entry)
    }

    /// From this step on, another version is used.
    pub(super) fn switched(step: u64, recipe: &Recipe, change: &VersionChange) -> LogEntry {
        let switch = LogEvent::Use {
            recipe: KeptVersion::of(recipe),
            from: change.from.as_str().to_string(),
            lines_added: change.lines_added,
            lines_removed: change.lines_removed,
            checked_in_ms: change.checked_in.as_secs_f64() * 1e3,
            ready_after_ms: change.ready_after.as_secs_f64() * 1e3,
        };
        LogEntry {
            recipes: vec![recipe.clone()],
            ..LogEntry::new(step, switch, change.to_string())
        }
    }

    /// A version failed at a step on a batch, or its `migrate` did.
    pub(super) fn failed(step: u64, failed: &Failed, batch: Option<&Batch>) -> LogEntry {
        let (recipe, back_to) = (failed.loaded.recipe(), failed.back_to.as_ref());
        let mut text = format!("{} failed", recipe.version());
        let mut problems = Vec::new();
        if let Some(back_to) = back_to {
            text += &format!("  back to {}", back_to.version());
            // If no version is left, the run ends with this error.
            problems = failed.error.to_vec();
        }
        let event = LogEvent::Failed {
            hook: if batch.is_some() { STEP } else { MIGRATE }.to_string(),
            recipe: KeptVersion::of(recipe),
            error: one_line(&failed.error),
            back_to: back_to.map(|loaded| loaded.version().as_str().to_string()),
            batch: None,
        };
        LogEntry {
            problems,
            recipes: vec![recipe.clone()],
            batch: batch.cloned(),
            ..LogEntry::new(step, event, text)
        }
    }

    /// Somebody should look at the run's numbers or its folder.
    pub(super) fn warning(step: u64, message: String) -> LogEntry {
        let text = format!("warning: {message}");
        LogEntry::new(step, LogEvent::Warning { message }, text)
    }
}
