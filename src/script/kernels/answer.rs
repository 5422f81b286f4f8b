//! Answers a hook by its kernel or by its script, and compares the two.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::{Array2, ArrayViewMut2};

use super::ledger::{Key, Way};
use super::{Array, KernelChange, Kernels};
use crate::batch::{Batch, Computed, Level};
use crate::script::hooks::{Loss, Outcome};
use crate::script::params::Setting;
use crate::script::recipe::{Compiled, Hook};
use crate::tensor::Guard;

/// A hook that is asked for its result on a batch.
pub(in crate::script) struct Asked<'a> {
    pub(in crate::script) script: &'a Compiled,
    pub(in crate::script) hook: Hook,
    /// The built-in that the script imports, where the hook is that one's.
    pub(in crate::script) imported: Option<&'static str>,
    pub(in crate::script) settings: Vec<(&'a str, Setting)>,
    pub(in crate::script) batch: &'a Batch,
    pub(in crate::script) guard: &'a Arc<Guard>,
}

impl Asked<'_> {
    /// As [`KernelChange::hook`].
    pub(super) fn hook(&self) -> String {
        let hook = self.hook.name();
        match self.imported {
            Some(builtin) => format!("{builtin}::{hook}"),
            None => hook.to_string(),
        }
    }

    fn key(&self) -> Key {
        let settings = self.settings.iter().map(|(name, setting)| match *setting {
            Setting::Whole(whole) => format!("{name}={}", sign(whole as f64)),
            Setting::Number(number) => format!("{name}={}", sign(number)),
            ref other => format!("{name}={other:?}"),
        });
        Key {
            version: self.script.version.clone(),
            hook: self.hook(),
            settings: settings.collect::<Vec<_>>().join(" "),
            is_f64: self.batch.is_f64(),
        }
    }

    fn change(
        &self,
        key: Key,
        script: Option<Duration>,
        kernel: Duration,
        agrees: bool,
    ) -> KernelChange {
        KernelChange {
            recipe: self.script.name.to_string(),
            version: key.version,
            hook: key.hook,
            script,
            kernel,
            disagrees_on: (!agrees).then(|| self.batch.clone()),
        }
    }
}

fn sign(number: f64) -> &'static str {
    match number {
        0.0 => "0",
        1.0 => "1",
        number if number > 0.0 => "+",
        _ => "-",
    }
}

impl Kernels {
    /// Answers a hook, by the kernel where that is to be used and does not decline.
    ///
    /// # Errors
    /// That of the script.
    pub(in crate::script) fn answer<R: Same, E>(
        &self,
        asked: &Asked<'_>,
        mut array: Array<'_, '_>,
        by_script: impl FnOnce(Array<'_, '_>) -> Result<R, E>,
        by_kernel: impl FnOnce(Array<'_, '_>) -> Option<R>,
    ) -> Result<R, E> {
        match self.way(|| asked.key()) {
            Way::Kernel => {
                let started = Instant::now();
                let Some(answer) = by_kernel(array.as_deref_mut()) else {
                    return by_script(array);
                };
                let kernel = started.elapsed();
                self.used(asked, || asked.change(asked.key(), None, kernel, true));
                Ok(answer)
            }
            Way::Script => by_script(array),
            Way::Timed(key, last) => {
                let started = Instant::now();
                let answer = by_script(array)?;
                self.timed(key, last, started);
                Ok(answer)
            }
            Way::Both(key) => {
                let started = Instant::now();
                let answer = by_script(array.as_deref_mut())?;
                let script = started.elapsed();
                match compared(asked, array.as_deref(), &answer, by_kernel) {
                    None => self.declined(key),
                    Some((agrees, kernel)) => {
                        let change = asked.change(key.clone(), Some(script), kernel, agrees);
                        self.compared(key, change);
                    }
                }
                Ok(answer)
            }
        }
    }
}

/// Whether a kernel gives the script's bits, in its answer and in the array, and how long it takes; `None` where it
/// declines, or where there is no room for a second array.
fn compared<R: Same>(
    asked: &Asked<'_>,
    array: Option<&ArrayViewMut2<'_, f32>>,
    answer: &R,
    by_kernel: impl FnOnce(Array<'_, '_>) -> Option<R>,
) -> Option<(bool, Duration)> {
    let bytes = array.map_or(0, |array| array.len() * size_of::<f32>());
    let _reservation = asked.guard.reserve(bytes).ok()?;
    let mut own = array.map(|array| Array2::zeros(array.dim()));
    let started = Instant::now();
    let mut view = own.as_mut().map(|own| own.view_mut());
    let other = by_kernel(view.as_mut())?;
    let took = started.elapsed();
    let pairs = array.iter().zip(&own);
    let mut pairs = pairs.flat_map(|(array, own)| array.iter().zip(own));
    let agrees =
        answer.same(&other) && pairs.all(|(a, b): (&f32, &f32)| a.to_bits() == b.to_bits());
    Some((agrees, took))
}

/// Whether two answers are the same, bit for bit, but for times and memory.
pub(in crate::script) trait Same {
    fn same(&self, other: &Self) -> bool;
}

impl Same for Computed {
    fn same(&self, other: &Self) -> bool {
        let (a, b) = (self.buffer(), other.buffer());
        let mut pairs = a.iter().zip(b.iter());
        (self.level(), a.is_f64(), a.len()) == (other.level(), b.is_f64(), b.len())
            && pairs.all(|(a, b)| a.to_bits() == b.to_bits())
    }
}

/// The level of what is in an array, which is compared by itself.
impl Same for Level {
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Same for () {
    fn same(&self, (): &Self) -> bool {
        true
    }
}

impl Same for f64 {
    fn same(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl Same for (String, f64) {
    fn same(&self, other: &Self) -> bool {
        self.0 == other.0 && self.1.same(&other.1)
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

impl<T: Same> Same for Vec<T> {
    fn same(&self, other: &Self) -> bool {
        let mut pairs = self.iter().zip(other);
        self.len() == other.len() && pairs.all(|(a, b)| a.same(b))
    }
}

impl<A: Same> Same for Outcome<A> {
    fn same(&self, other: &Self) -> bool {
        self.advantage.same(&other.advantage)
            && self.reward.same(&other.reward)
            && self.loss.same(&other.loss)
            && self.correct.same(&other.correct)
            && self.metrics.same(&other.metrics)
            && (&self.prints, &self.notes) == (&other.prints, &other.notes)
    }
}

impl<G: Same> Same for Loss<G> {
    fn same(&self, other: &Self) -> bool {
        self.value.same(&other.value)
            && self.gradient.same(&other.gradient)
            && self.metrics.same(&other.metrics)
            && (&self.prints, &self.notes) == (&other.prints, &other.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;
    use crate::native::{Mode, Native};

    /// Calls a hook once; the script gives 1.
    fn ask(kernels: &Kernels, kernel: Option<f64>, asked: &mut usize) -> f64 {
        let (recipe, batch) = (Host::new().load("grpo").unwrap(), Batch::example());
        let call = Asked {
            script: &recipe.script,
            hook: Hook::Advantage,
            imported: None,
            settings: Vec::new(),
            batch: &batch,
            guard: &Guard::unlimited(),
        };
        let by_kernel = |_: Array<'_, '_>| {
            *asked += 1;
            kernel
        };
        let answer = kernels.answer(&call, None, |_| Ok::<_, ()>(1.0), by_kernel);
        answer.unwrap()
    }

    fn asked_in_six_calls(kernels: &Kernels, kernel: Option<f64>) -> Vec<usize> {
        let mut asked = 0;
        let mut calls = Vec::new();
        for _ in 0..6 {
            assert_eq!(ask(kernels, kernel, &mut asked), 1.0);
            calls.push(std::mem::take(&mut asked));
        }
        calls
    }

    #[test]
    fn a_hot_hook_is_computed_both_ways_and_then_by_its_kernel() {
        // The first call is no step's end yet, the second is hot, the third is computed both ways.
        let native = Native::with_threshold(Mode::Auto, 0.0);
        let calls = asked_in_six_calls(native.kernels(), Some(1.0));
        assert_eq!(calls, [0, 0, 1, 1, 1, 1]);
        let changes = native.changes();
        assert_eq!(changes.len(), 1);
        assert!(changes[0].disagrees_on.is_none() && native.changes().is_empty());
        let cold = Native::with_threshold(Mode::Auto, 2.0);
        assert_eq!(asked_in_six_calls(cold.kernels(), Some(1.0)), [0; 6]);
    }

    #[test]
    fn a_kernel_with_other_bits_is_told_of_with_its_batch_and_never_used() {
        let native = Native::with_threshold(Mode::Auto, 0.0);
        let calls = asked_in_six_calls(native.kernels(), Some(1.0 + f64::EPSILON));
        assert_eq!(calls, [0, 0, 1, 0, 0, 0]);
        let changes = native.changes();
        let batch = changes[0].disagrees_on.as_ref().unwrap();
        let example = Batch::example();
        assert_eq!(batch.layout().responses(), example.layout().responses());
    }

    #[test]
    fn a_kernel_that_declines_leaves_the_hook_to_the_script() {
        let native = Native::with_threshold(Mode::Auto, 0.0);
        assert_eq!(
            asked_in_six_calls(native.kernels(), None),
            [0, 0, 1, 0, 1, 0]
        );
        assert!(native.changes().is_empty());
    }

    #[test]
    fn what_has_disagreed_before_is_not_asked_again() {
        let version = Host::new().load("grpo").unwrap().version().clone();
        for mode in [Mode::Auto, Mode::On] {
            let native = Native::with_threshold(mode, 0.0);
            native.kernels().refuse(version.as_str(), "advantage");
            assert_eq!(asked_in_six_calls(native.kernels(), Some(1.0)), [0; 6]);
        }
    }
}
