//! Decides when a native kernel computes a built-in's loss in place of its script. The kernels are listed in [`crate::native`].

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex};

use super::bindings::batch::ScriptBatch;
use super::outcome::{Outcome, same_bits};
use super::params::Params;
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::parallel::lock;

/// The conditions under which kernels are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A kernel is used for a kind of call after it has given the same bits as the script in less time. This is the default of
    /// the commands and of the Python package.
    Auto,
    /// Every call for which a kernel exists uses the kernel, unless the batch has a column `weight` or the kernel declines.
    On,
    /// No kernel is used. This is the default of the library.
    #[default]
    Off,
}

/// A call's inputs, as a kernel reads them.
pub(crate) struct HookInputs<'a> {
    /// The batch, with the advantage that the loss gets, if any.
    pub(crate) batch: &'a Batch,
    /// The batch as the script sees it, with derived columns and with the limits of the call.
    pub(crate) script: ScriptBatch,
    pub(crate) params: &'a Params,
    /// The factor by which the gradient is multiplied to give the advantage; `None` if the gradient itself is wanted.
    pub(crate) factor: Option<f64>,
}

/// Computes the loss of a built-in. In place of the advantage, the outcome has the gradient, times the inputs' factor if there is
/// one. The result is `None` if the kernel declines.
pub(crate) type Kernel = fn(&HookInputs<'_>) -> Option<Outcome>;

/// The kernels by built-in, the mode that says when they are used, and the results of comparing them with their scripts in this
/// process. Clones share these results.
#[derive(Clone, Debug, Default)]
pub struct Native {
    pub(crate) kernels: &'static [(&'static str, [Kernel; 2])],
    pub(crate) mode: Mode,
    pub(crate) known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    choices: HashMap<String, Choice>,
    defects: Vec<String>,
}

/// The way in which a kind of call is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    /// The script has run once, so that its code and memory are warm. At the next call, script and kernel are compared.
    Compare,
    Kernel,
    Script,
}

impl Native {
    /// Returns the outcome of the kernel, or of the script if the kernel is not used or declines. `call` names the kernel in
    /// messages; `call` and `kind` together identify the kind of call.
    pub(super) fn answer(
        &self,
        call: &str,
        kind: &str,
        script: impl FnOnce() -> Result<Outcome, Diagnostics>,
        kernel: impl Fn() -> Option<Outcome>,
    ) -> Result<Outcome, Diagnostics> {
        let key = format!("{call} {kind}");
        let choice = match self.mode {
            Mode::On => Some(Choice::Kernel),
            _ => lock(&self.known).choices.get(&key).copied(),
        };
        if choice == Some(Choice::Kernel)
            && let Some(outcome) = kernel()
        {
            return Ok(outcome);
        }
        let outcome = script()?;
        if choice.is_none() {
            lock(&self.known).choices.insert(key, Choice::Compare);
        } else if choice == Some(Choice::Compare)
            // The kernel's second run is compared, because code and memory are cold in its first run.
            && let Some(own) = kernel().and_then(|_| kernel())
        {
            let agrees = same_bits(&outcome, &own);
            let is_faster = own.reports.time < outcome.reports.time;
            let choice = if agrees && is_faster {
                Choice::Kernel
            } else {
                Choice::Script
            };
            let mut known = lock(&self.known);
            let is_first = known.choices.insert(key, choice) == Some(Choice::Compare);
            if is_first && !agrees {
                known.defects.push(format!(
                    "{call} differs from the script's result, and is not used: this is a defect of advlab, please report it"
                ));
            }
        }
        Ok(outcome)
    }

    /// Returns messages about the kernels that were found, since the last call, to differ from their scripts.
    pub fn defects(&self) -> Vec<String> {
        take(&mut lock(&self.known).defects)
    }

    /// Returns the kernels of a built-in's loss for f32 and for f64, which can also compute the equivalent advantage; `None` if
    /// there are none or the mode is [`Mode::Off`].
    pub(super) fn kernel(&self, builtin: &str) -> Option<[Kernel; 2]> {
        let mut kernels = self.kernels.iter().filter(|_| self.mode != Mode::Off);
        Some(kernels.find(|(name, _)| *name == builtin)?.1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::batch::{Computed, Level};

    #[test]
    fn a_kernel_is_used_once_it_was_faster_and_gave_the_same_bits() {
        let batch = Batch::example();
        let outcome = |ms: u64, number: f64, is_native: bool| {
            let values = vec![number; batch.layout().responses()];
            let values = Computed::new(batch.layout().clone(), Level::Response, values);
            let mut outcome = Outcome::of(values);
            outcome.reports.time = Duration::from_millis(ms);
            outcome.reports.native = is_native.then_some(outcome.reports.time);
            outcome
        };
        // The times of the script and of the kernel, and the kernel's number, where the script's is 1.
        for (script, kernel, number, is_used, defects) in [
            (3, 2, Some(1.0), true, 0),
            (3, 3, Some(1.0), false, 0),
            (1, 10, Some(1.0), false, 0),
            (3, 2, Some(1.5), false, 1),
            (3, 2, None, false, 0),
        ] {
            let native = Native {
                mode: Mode::Auto,
                ..Native::default()
            };
            let by_script = || Ok(outcome(script, 1.0, false));
            let by_kernel = || Some(outcome(kernel, number?, true));
            let are_native = [(); 4].map(|()| {
                let answer = native
                    .answer("its kernel", "", by_script, by_kernel)
                    .unwrap();
                answer.reports.native.is_some()
            });
            // The first call warms the script, the second compares.
            assert_eq!(are_native, [false, false, is_used, is_used]);
            assert_eq!(native.defects().len(), defects);
            assert!(native.defects().is_empty());
        }
    }
}
