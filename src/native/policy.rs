//! When kernels answer: what is known in this process of each hook of each version, and what changes it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ndarray::{Array2, ArrayViewMut2};

use super::Mode;
use crate::batch::{Batch, Computed};
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, KernelChange, Loss, Outcome, Placed, Recipe, Version};

/// A hook that takes so long is worth a kernel, whatever its share of a step.
const LONG: Duration = Duration::from_millis(50);
/// A mode, and what is known so far.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) mode: Mode,
    /// The share of a step from which on a hook is worth a kernel.
    pub(super) threshold: f64,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    hooks: HashMap<Key, Stage>,
    changes: Vec<KernelChange>,
}

/// What a kernel's bits have been compared of: a hook of a version with its settings, and the precision of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    version: Version,
    hook: Hook,
    settings: String,
    is_f64: bool,
}

/// What is known of such a hook.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The script runs, and is timed. Its share is that of the time from one call of the hook to the next.
    Watched { last: Instant },
    /// It takes long: the next batch is computed both ways.
    Due,
    /// The kernel has given the script's bits, and answers.
    Switched,
    /// It has not, and is not asked again.
    Disagreed,
}

impl Ledger {
    /// Notes what is known now, unless another thread has found out more in the meantime. Returns whether it is new.
    fn note(&mut self, key: Key, stage: Stage) -> bool {
        let known = self.hooks.get(&key);
        let is_known = match stage {
            Stage::Disagreed => matches!(known, Some(Stage::Disagreed)),
            _ => matches!(known, Some(Stage::Disagreed | Stage::Switched)),
        };
        if !is_known {
            self.hooks.insert(key, stage);
        }
        !is_known
    }
}

/// The caller's array that a result may be written into.
type Array<'a, 'b> = Option<&'a mut ArrayViewMut2<'b, f32>>;

/// A call of a hook, and the two ways to answer it.
pub(super) struct Call<'a, Script, Kernel> {
    pub(super) recipe: &'a Recipe,
    pub(super) hook: Hook,
    pub(super) batch: &'a Batch,
    pub(super) by_script: Script,
    pub(super) by_kernel: Kernel,
}

impl Policy {
    pub(super) fn new(mode: Mode, threshold: f64) -> Policy {
        Policy {
            mode,
            threshold,
            ledger: Mutex::default(),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changes(&self) -> Vec<KernelChange> {
        std::mem::take(&mut self.ledger().changes)
    }

    /// Answers a call, by the kernel where it is to be used and does not decline.
    pub(super) fn answer<R: Same>(
        &self,
        mut call: Call<
            '_,
            impl FnMut(Array<'_, '_>) -> Result<R, Diagnostics>,
            impl FnMut(Array<'_, '_>) -> Option<R>,
        >,
        mut array: Array<'_, '_>,
    ) -> Result<R, Diagnostics> {
        if self.mode == Mode::On {
            return match (call.by_kernel)(array.as_deref_mut()) {
                Some(answer) => Ok(answer),
                None => (call.by_script)(array),
            };
        }
        let key = Key {
            version: call.recipe.version().clone(),
            hook: call.hook,
            settings: format!("{:?}", call.recipe.params()),
            is_f64: call.batch.is_f64(),
        };
        let stage = self.ledger().hooks.get(&key).copied();
        let last = match stage {
            Some(Stage::Switched) => match (call.by_kernel)(array.as_deref_mut()) {
                Some(answer) => return Ok(answer),
                None => return (call.by_script)(array),
            },
            Some(Stage::Disagreed) => return (call.by_script)(array),
            Some(Stage::Due) => return self.compare(key, call, array),
            Some(Stage::Watched { last }) => Some(last),
            None => None,
        };
        let started = Instant::now();
        let answer = (call.by_script)(array)?;
        let took = started.elapsed();
        let is_large_share = |last: Instant| {
            took.as_secs_f64() > self.threshold * started.duration_since(last).as_secs_f64()
        };
        let is_hot = took > LONG || last.is_some_and(is_large_share);
        self.ledger().note(
            key,
            match is_hot {
                true => Stage::Due,
                false => Stage::Watched { last: started },
            },
        );
        Ok(answer)
    }

    /// Computes both ways, answers with the script, and decides about the kernel.
    fn compare<R: Same>(
        &self,
        key: Key,
        mut call: Call<
            '_,
            impl FnMut(Array<'_, '_>) -> Result<R, Diagnostics>,
            impl FnMut(Array<'_, '_>) -> Option<R>,
        >,
        mut array: Array<'_, '_>,
    ) -> Result<R, Diagnostics> {
        let started = Instant::now();
        let answer = (call.by_script)(array.as_deref_mut())?;
        let script = started.elapsed();
        let mut own = array.as_ref().map(|array| Array2::zeros(array.dim()));
        let mut view = own.as_mut().map(|own| own.view_mut());
        let started = Instant::now();
        let Some(other) = (call.by_kernel)(view.as_mut()) else {
            self.ledger().note(key, Stage::Watched { last: started });
            return Ok(answer);
        };
        let kernel = started.elapsed();
        let pairs = array.iter().zip(&own);
        let mut pairs = pairs.flat_map(|(array, own)| array.iter().zip(own));
        let agrees =
            answer.same(&other) && pairs.all(|(a, b): (&f32, &f32)| a.to_bits() == b.to_bits());
        let mut ledger = self.ledger();
        let stage = if agrees {
            Stage::Switched
        } else {
            Stage::Disagreed
        };
        if ledger.note(key, stage) {
            ledger.changes.push(KernelChange {
                recipe: call.recipe.name().to_string(),
                version: call.recipe.version().clone(),
                hook: call.hook,
                script,
                kernel,
                disagrees_on: (!agrees).then(|| call.batch.clone()),
            });
        }
        Ok(answer)
    }
}

/// Whether two answers are the same, bit for bit, but for times and memory.
pub(super) trait Same {
    fn same(&self, other: &Self) -> bool;
}

impl Same for Computed {
    fn same(&self, other: &Self) -> bool {
        let (a, b) = (self.buffer(), other.buffer());
        self.level() == other.level()
            && a.is_f64() == b.is_f64()
            && a.len() == b.len()
            && a.iter()
                .zip(b.iter())
                .all(|(a, b)| a.to_bits() == b.to_bits())
    }
}

impl Same for Placed {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Placed::Values(a), Placed::Values(b)) => a.same(b),
            (a, b) => a.level() == b.level(),
        }
    }
}

impl<T: Same> Same for Option<T> {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(a), Some(b)) => a.same(b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Same for f64 {
    fn same(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

fn same_metrics(a: &[(String, f64)], b: &[(String, f64)]) -> bool {
    let mut pairs = a.iter().zip(b);
    a.len() == b.len() && pairs.all(|(a, b)| a.0 == b.0 && a.1.same(&b.1))
}

impl Same for Outcome<Placed> {
    fn same(&self, other: &Self) -> bool {
        self.advantage.same(&other.advantage)
            && self.reward.same(&other.reward)
            && self.loss.same(&other.loss)
            && self.correct.same(&other.correct)
            && same_metrics(&self.metrics, &other.metrics)
            && (&self.prints, &self.notes) == (&other.prints, &other.notes)
    }
}

impl Same for Loss<Placed> {
    fn same(&self, other: &Self) -> bool {
        self.value.same(&other.value)
            && self.gradient.same(&other.gradient)
            && same_metrics(&self.metrics, &other.metrics)
            && (&self.prints, &self.notes) == (&other.prints, &other.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    /// Calls a hook once; the script gives 1.
    fn ask(policy: &Policy, kernel: Option<f64>, asked: &mut usize) -> f64 {
        let (recipe, batch) = (Host::new().load("grpo").unwrap(), Batch::example());
        let call = Call {
            recipe: &recipe,
            hook: Hook::Advantage,
            batch: &batch,
            by_script: |_: Array<'_, '_>| Ok(1.0),
            by_kernel: |_: Array<'_, '_>| {
                *asked += 1;
                kernel
            },
        };
        policy.answer(call, None).unwrap()
    }

    fn asked_in_six_calls(policy: &Policy, kernel: Option<f64>) -> Vec<usize> {
        let mut asked = 0;
        let mut calls = Vec::new();
        for _ in 0..6 {
            assert_eq!(ask(policy, kernel, &mut asked), 1.0);
            calls.push(std::mem::take(&mut asked));
        }
        calls
    }

    #[test]
    fn a_hot_hook_is_computed_both_ways_and_then_by_its_kernel() {
        // The first call is no step's end yet, the second is hot, the third is computed both ways.
        let policy = Policy::new(Mode::Auto, 0.0);
        assert_eq!(asked_in_six_calls(&policy, Some(1.0)), [0, 0, 1, 1, 1, 1]);
        let changes = policy.changes();
        assert_eq!(changes.len(), 1);
        assert!(changes[0].disagrees_on.is_none() && policy.changes().is_empty());
        let cold = Policy::new(Mode::Auto, 2.0);
        assert_eq!(asked_in_six_calls(&cold, Some(1.0)), [0; 6]);
    }

    #[test]
    fn a_kernel_with_other_bits_is_told_of_with_its_batch_and_never_used() {
        let policy = Policy::new(Mode::Auto, 0.0);
        assert_eq!(
            asked_in_six_calls(&policy, Some(1.0 + f64::EPSILON)),
            [0, 0, 1, 0, 0, 0]
        );
        let changes = policy.changes();
        let batch = changes[0].disagrees_on.as_ref().unwrap();
        assert_eq!(
            batch.layout().responses(),
            Batch::example().layout().responses()
        );
    }

    #[test]
    fn a_kernel_that_declines_leaves_the_hook_to_the_script() {
        let policy = Policy::new(Mode::Auto, 0.0);
        assert_eq!(asked_in_six_calls(&policy, None), [0, 0, 1, 0, 1, 0]);
        assert!(policy.changes().is_empty());
    }
}
