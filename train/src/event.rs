//! The events of a run: for its folder, for the user, for the program that embeds it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::folder::{KeptVersion, step_of};
use super::policy::Platform;
use super::row::{Evaluation, Row};
use advlab::batch::Batch;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::live::{Failed, LiveEvent, VersionChange};
use advlab::script::Recipe;

/// The hook of [`LogEvent::Failed`]: a step, or the `migrate` before it.
const STEP: &str = "step";
pub(super) const MIGRATE: &str = "migrate";

/// An event of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// An update of supervised fine-tuning, before the first step.
    FineTuned {
        /// Its number, from 0.
        update: u64,
        /// How many there are.
        of: u64,
    },
    /// An event of the recipe's file, or numbers of the run that deserve attention: a line of `reloads.jsonl`.
    Log(Box<LogLine>),
    /// The script printed a line.
    Printed { step: u64, line: &'a str },
    /// The policy has been evaluated: before the first step, after a step, or when the run is stopped.
    Evaluated {
        /// The steps that were done before it.
        done: u64,
        /// The numbers of the evaluation. The row of the step has them too, unless the run is stopped first.
        evaluation: &'a Evaluation,
        /// A prompt of the evaluation set with a response, to show to the user: always the same prompt.
        example: &'a str,
    },
    /// A step is done.
    Step {
        row: &'a Row,
        /// The batch that it was trained on.
        batch: &'a Batch,
    },
}

/// A line of `reloads.jsonl`; one that is written now also has the text to show to the user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogLine {
    /// The step at which it happened: the first step with a new version, or the step that failed.
    #[serde(default)]
    pub step: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: LogEvent,
    /// The line for a person.
    #[serde(skip)]
    pub text: String,
    /// The errors or warnings that it is about, with their places in the script.
    #[serde(skip)]
    pub problems: Vec<Diagnostic>,
    /// The versions that the folder has to keep.
    #[serde(skip)]
    pub(super) recipes: Vec<Recipe>,
    /// The batch that shows a failure.
    #[serde(skip)]
    pub(super) batch: Option<Batch>,
}

/// The content of a line of `reloads.jsonl`. A version is all 64 digits of its hash.
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum LogEvent {
    /// The versions at the start of the run, and the platform that its policy's numbers depend on.
    Start {
        #[serde(flatten)]
        recipe: KeptVersion,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss_script: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss_version: Option<String>,
        #[serde(default, skip_serializing_if = "Platform::is_empty")]
        platform: Platform,
    },
    /// The run was resumed.
    Resume { platform: Platform },
    /// Another version is used from this step on.
    Use {
        #[serde(flatten)]
        recipe: KeptVersion,
        #[serde(default)]
        from: String,
        #[serde(default)]
        lines_added: usize,
        #[serde(default)]
        lines_removed: usize,
        #[serde(default)]
        checked_in_ms: f64,
        #[serde(default)]
        ready_after_ms: f64,
    },
    /// A version failed at this step, or its `migrate` did (`hook`); `back_to` was tried instead, if there was one.
    Failed {
        #[serde(default)]
        hook: String,
        #[serde(flatten)]
        recipe: KeptVersion,
        error: String,
        back_to: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch: Option<String>,
    },
    /// A saved version did not pass its checks.
    Rejected {
        version: String,
        error: String,
        #[serde(default)]
        still_using: String,
    },
    /// Another warning for the user: about the recipe's file or the run's numbers.
    Warning { message: String },
    /// A line written by another program.
    #[default]
    #[serde(other)]
    Other,
}

impl LogLine {
    /// A line of `reloads.jsonl` from its JSON; [`LogEvent::Other`] if advlab writes no such line.
    pub fn of(line: &Value) -> LogLine {
        LogLine::deserialize(line).unwrap_or_else(|_| LogLine {
            step: step_of(line).unwrap_or(0),
            ..LogLine::default()
        })
    }

    fn new(step: u64, event: LogEvent, text: impl ToString) -> LogLine {
        LogLine {
            step,
            event,
            text: text.to_string(),
            ..LogLine::default()
        }
    }

    /// A run begins. `loss` is the run's loss recipe; a trainer's run has none.
    pub(super) fn start(recipe: &Recipe, loss: Option<&Recipe>, platform: Platform) -> LogLine {
        let kept = loss.map(KeptVersion::of);
        let (loss_script, loss_version) = kept.map(|kept| (kept.script, kept.version)).unzip();
        let start = LogEvent::Start {
            recipe: KeptVersion::of(recipe),
            loss_script,
            loss_version,
            platform,
        };
        LogLine {
            recipes: [recipe].into_iter().chain(loss).cloned().collect(),
            ..LogLine::new(0, start, "the run begins")
        }
    }

    /// A run goes on.
    pub(super) fn resume(step: u64, platform: Platform) -> LogLine {
        LogLine::new(step, LogEvent::Resume { platform }, "the run goes on")
    }

    /// Something happened to the recipe's file; `None` if it is an event of its step.
    pub(super) fn live(step: u64, event: &LiveEvent) -> Option<LogLine> {
        let warning = |text: String| {
            let message = event.to_string();
            LogLine::new(step, LogEvent::Warning { message }, text)
        };
        Some(match event {
            LiveEvent::Published(_) | LiveEvent::Rejected { at_step: true, .. } => return None,
            LiveEvent::Rejected {
                version,
                error,
                still_using,
                ..
            } => LogLine {
                problems: error.to_vec(),
                event: LogEvent::Rejected {
                    version: version.as_str().to_string(),
                    error: one_line(error),
                    still_using: still_using.as_str().to_string(),
                },
                ..warning(format!("still using {still_using}"))
            },
            LiveEvent::Warned { version, warnings } => LogLine {
                problems: warnings.clone(),
                ..warning(format!("{version} is used all the same"))
            },
            _ => warning(event.to_string()),
        })
    }

    /// From this step on, another version is used.
    pub(super) fn switched(step: u64, recipe: &Recipe, change: &VersionChange) -> LogLine {
        let switch = LogEvent::Use {
            recipe: KeptVersion::of(recipe),
            from: change.from.as_str().to_string(),
            lines_added: change.lines_added,
            lines_removed: change.lines_removed,
            checked_in_ms: change.checked_in.as_secs_f64() * 1e3,
            ready_after_ms: change.ready_after.as_secs_f64() * 1e3,
        };
        LogLine {
            recipes: vec![recipe.clone()],
            ..LogLine::new(step, switch, change)
        }
    }

    /// A version failed at a step on a batch, or its `migrate` did.
    pub(super) fn failed(step: u64, failed: &Failed, batch: Option<&Batch>) -> LogLine {
        let (recipe, back_to) = (failed.loaded.recipe(), failed.back_to.as_ref());
        let (text, problems) = match back_to {
            Some(back_to) => (
                format!("  back to {}", back_to.version()),
                &failed.error[..],
            ),
            // The run ends with this error.
            None => (String::new(), &[][..]),
        };
        let event = LogEvent::Failed {
            hook: if batch.is_some() { STEP } else { MIGRATE }.to_string(),
            recipe: KeptVersion::of(recipe),
            error: one_line(&failed.error),
            back_to: back_to.map(|loaded| loaded.version().as_str().to_string()),
            batch: None,
        };
        LogLine {
            problems: problems.to_vec(),
            recipes: vec![recipe.clone()],
            batch: batch.cloned(),
            ..LogLine::new(step, event, format!("{} failed{text}", recipe.version()))
        }
    }

    /// Somebody should look at the run's numbers or its folder.
    pub(super) fn warning(step: u64, message: String) -> LogLine {
        let text = format!("warning: {message}");
        LogLine::new(step, LogEvent::Warning { message }, text)
    }
}

/// An error on one line, for the log.
fn one_line(error: &Diagnostics) -> String {
    error.to_string().replace('\n', " ")
}
