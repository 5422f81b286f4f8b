//! The fast paths of the built-ins: a kernel for each hook that can be hot, with the very bits of its script.
//!
//! A kernel is tied to the shipped script's exact text, imports included: an edited copy is another version, and runs as a
//! script. It takes its parameters as the recipe has resolved them, shares the executors' sums and scans, and declines
//! where a batch is not as it knows it (a column of an unusual kind, values that are not finite): then the script runs, so
//! that results, errors and notes are always those of the script.

mod columns;
mod groups;
mod tokens;

use std::sync::Arc;

use crate::batch::{Batch, Computed, FloatBuffer, Level};
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, HookCall, HookKernels, Host, Loss, LossAnswer, Outcome, Recipe, State};
use columns::{Columns, Responses};

/// When kernels answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Where a hook takes long, and once its kernel has given the script's bits.
    #[default]
    Auto,
    /// Wherever there is a kernel.
    On,
    /// Never.
    Off,
}

/// The kernels of the built-ins, and what is known of them in this process.
#[derive(Clone, Debug)]
pub struct Native(Arc<Kernels>);

#[derive(Debug)]
struct Kernels {
    mode: Mode,
}

impl Native {
    /// Kernels that answer in a mode.
    pub fn new(mode: Mode) -> Native {
        Native(Arc::new(Kernels { mode }))
    }
}

impl Host {
    /// The same host with kernels for the built-ins' hooks; the bits of results are the same.
    pub fn with_native(self, native: &Native) -> Host {
        let kernels = native.0.clone();
        self.with_kernels((kernels.mode != Mode::Off).then_some(kernels))
    }
}

/// A kernel of a reward or an advantage.
type Signal = fn(&Columns<'_>) -> Option<Computed>;

fn signal(builtin: &str, hook: Hook) -> Option<Signal> {
    Some(match (builtin, hook) {
        ("passk", Hook::Advantage) => groups::passk,
        _ => return None,
    })
}

impl HookKernels for Kernels {
    fn has(&self, builtin: &str, hook: Hook) -> bool {
        signal(builtin, hook).is_some()
    }

    fn signal(&self, call: &HookCall<'_>) -> Option<Computed> {
        signal(call.builtin, call.hook)?(&Columns::of(call))
    }

    fn loss(&self, _: &HookCall<'_>) -> Option<LossAnswer> {
        None
    }

    fn correct(&self, call: &HookCall<'_>) -> Option<Option<Computed>> {
        let over = |values: FloatBuffer| {
            Computed::new(call.batch.layout().clone(), Level::Response, values)
        };
        let correct = columns::correct(&Columns::of(call))?;
        Some(correct.map(|correct| match correct {
            Responses::Own(values) => over(FloatBuffer::F64(values.clone())),
            Responses::Made(values) => over(values.into()),
        }))
    }

    fn run_advantage(
        &self,
        recipe: &Recipe,
        batch: &Batch,
        state: &mut State,
    ) -> Result<Outcome, Diagnostics> {
        match recipe.advantage_by_kernels(self, batch) {
            Some(outcome) => Ok(outcome),
            None => recipe.advantage_by_script(batch, state),
        }
    }

    fn run_loss(
        &self,
        recipe: &Recipe,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
    ) -> Result<Loss, Diagnostics> {
        recipe.loss_by_script(batch, advantage, state)
    }
}
