//! Events of a run while it goes: for its folder, for a person, for the program that embeds it.

use super::policy::Platform;
use super::row::{Evaluation, Row};
use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::live::{LiveEvent, VersionChange};
use advlab::native::KernelChange;
use advlab::script::Recipe;

/// Something that happened in a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run begins, or goes on, with this step and version.
    Started {
        /// The first step to be done.
        step: u64,
        /// The version that it begins with.
        recipe: &'a Recipe,
        /// The run's loss recipe; `None` for a trainer's run, whose loss is the trainer's.
        loss_recipe: Option<&'a Recipe>,
        /// What the policy's numbers depend on beside the configuration.
        platform: &'a Platform,
    },
    /// An update of supervised fine-tuning, before the first step.
    FineTuned {
        /// Which one, from 0.
        update: u64,
        /// How many there are.
        of: u64,
    },
    /// Something happened to the recipe's file.
    Live {
        /// The step that is about to be done.
        step: u64,
        /// The change of the file.
        event: &'a LiveEvent,
    },
    /// From this step on, another version is used.
    Switched {
        /// The first step with the new version.
        step: u64,
        /// The new version.
        recipe: &'a Recipe,
        /// How it differs from the version of the step before.
        change: &'a VersionChange,
    },
    /// A version that had passed its checks failed at a step.
    Failed {
        /// The step at which it failed.
        step: u64,
        /// The version that failed.
        recipe: &'a Recipe,
        /// The error that it ended with.
        error: &'a Diagnostics,
        /// The batch on which it failed; `None` if it was `migrate` that did.
        batch: Option<&'a Batch>,
        /// The version that does the step instead; `None` if no other is left, and the run ends.
        back_to: Option<&'a Recipe>,
    },
    /// A kernel answers a hook of a built-in from here on, or gave other bits than its script and is not used.
    Native {
        /// The step in which both were compared.
        step: u64,
        /// The recipe, the hook and the times.
        change: &'a KernelChange,
    },
    /// The run's numbers are such that somebody should look.
    Warned {
        /// The step after which they are.
        step: u64,
        /// What they are, and what to look at.
        message: &'a str,
    },
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
pub(super) type Tell<'a> = dyn FnMut(&Event<'_>) -> Result<(), Diagnostics> + 'a;
