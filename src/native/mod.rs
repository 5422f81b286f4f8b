//! The fast paths of the built-ins: a kernel for each hook that can be hot, with the very bits of its script.
//!
//! A kernel is tied to the shipped script's exact text, imports included: an edited copy is another version, and runs as a
//! script. It takes its parameters as the recipe has resolved them, shares the executors' sums and scans, and declines
//! where a batch is not as it knows it (a column of an unusual kind, values that are not finite): then the script runs, so
//! that results, errors and notes are always those of the script.

mod columns;
mod groups;
mod kl;
mod pacs;
mod ppo_clip;
mod returns;
mod tokens;

use std::sync::Arc;

use crate::batch::Rows;
pub use crate::script::Mode;
use crate::script::{Hook, HookCall, HookKernels, Host, KernelChange, Kernels, LossAnswer, Placed};
use crate::tensor::Moments;
use columns::Columns;

/// The share of the time between two calls of a hook from which on it is worth a kernel, unless set.
const THRESHOLD: f64 = 0.02;

/// The bytes that a kernel holds for each response at the most, beside tokens: some numbers, and what is known of its tokens.
const BY_RESPONSE: usize = 8 * size_of::<f64>() + 2 * size_of::<Moments>();

/// The kernels of the built-ins, and what is known of them in this process. A clone shares that.
#[derive(Clone, Debug)]
pub struct Native(Arc<Kernels>);

impl Native {
    /// Kernels that answer in a mode.
    pub fn new(mode: Mode) -> Native {
        Native::with_threshold(mode, THRESHOLD)
    }

    /// The same with another share of the time between two calls from which on, in [`Mode::Auto`], a hook is worth a kernel.
    pub fn with_threshold(mode: Mode, threshold: f64) -> Native {
        Native(Arc::new(Kernels::new(&Builtins, mode, threshold)))
    }

    /// The hooks that kernels answer from now on, and those whose kernels disagreed, since this was last asked for.
    pub fn changes(&self) -> Vec<KernelChange> {
        self.0.changes()
    }

    #[cfg(test)]
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.0
    }
}

impl Host {
    /// The same host with kernels for the built-ins' hooks; the bits of results are the same.
    pub fn with_native(self, native: &Native) -> Host {
        let kernels = native.0.clone();
        self.with_kernels((kernels.mode() != Mode::Off).then_some(kernels))
    }
}

/// A kernel of a reward or an advantage; tokens are written into rows, where there are some.
type Signal = fn(&Columns<'_>, Option<Rows<'_>>) -> Option<Placed>;

fn signal(builtin: &str, hook: Hook) -> Option<Signal> {
    Some(match (builtin, hook) {
        ("grpo" | "grpo_lambda", Hook::Advantage) => |c, _| groups::grpo(c).map(Placed::Values),
        ("dr_grpo", Hook::Advantage) | ("reinforce_pp_baseline", Hook::Reward) => {
            |c, _| groups::less_mean(c).map(Placed::Values)
        }
        ("rloo", Hook::Advantage) => |c, _| groups::rloo(c).map(Placed::Values),
        ("passk", Hook::Advantage) => |c, _| groups::passk(c).map(Placed::Values),
        ("grpo_lambda", Hook::Reward) => |c, _| groups::length_penalty(c).map(Placed::Values),
        ("reinforce_pp" | "reinforce_pp_baseline", Hook::Advantage) => returns::reinforce_pp,
        ("gae", Hook::Advantage) => returns::gae,
        _ => return None,
    })
}

/// A kernel of a loss, with its gradient times a factor.
type LossOf = fn(&Columns<'_>, Option<f64>, Option<Rows<'_>>) -> Option<LossAnswer>;

fn loss(builtin: &str) -> Option<LossOf> {
    Some(match builtin {
        "ppo_clip" => ppo_clip::loss,
        "pacs" => pacs::loss,
        _ => return None,
    })
}

/// The kernels that there are.
#[derive(Debug)]
struct Builtins;

impl HookKernels for Builtins {
    fn has(&self, builtin: &str, hook: Hook) -> bool {
        match hook {
            Hook::Loss => loss(builtin).is_some(),
            hook => signal(builtin, hook).is_some(),
        }
    }

    fn signal(&self, call: &HookCall<'_>, rows: Option<Rows<'_>>) -> Option<Placed> {
        let columns = Columns::of(call)?;
        let _reservation = columns.reserve(call.batch.layout().responses() * BY_RESPONSE)?;
        signal(call.builtin, call.hook)?(&columns, rows)
    }

    fn loss(
        &self,
        call: &HookCall<'_>,
        factor: Option<f64>,
        rows: Option<Rows<'_>>,
    ) -> Option<LossAnswer> {
        let columns = Columns::of(call)?;
        let _reservation = columns.reserve(call.batch.layout().responses() * BY_RESPONSE)?;
        loss(call.builtin)?(&columns, factor, rows)
    }
}
