//! Hooks of a recipe that is a built-in: by its script, by its kernel, or by both to compare them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::Array2;

use super::outcome::{Array, Placed};
use super::{Loss, Outcome, correct};
use crate::batch::{Batch, Computed, FloatBuffer, Level, Rows};
use crate::diagnostic::Diagnostics;
use crate::native::{CallKey, Columns, Kernel, KernelChange, Native, Way, kernel};
use crate::script::batch_type::ScriptBatch;
use crate::script::call::Call;
use crate::script::recipe::{Hook, Recipe};
use crate::script::sandbox::guarded;
use crate::script::state::State;
use crate::tensor::{Guard, Moments};

/// The bytes that a kernel holds for each response at most, beside tokens: some numbers and sums.
const BY_RESPONSE: usize = 8 * size_of::<f64>() + 2 * size_of::<Moments>();

/// A hook's call: its batch, the advantage that a loss is given, and its bounds.
struct Asked<'a> {
    recipe: &'a Recipe,
    hook: Hook,
    batch: &'a Batch,
    advantage: Option<&'a Computed>,
    guard: &'a Arc<Guard>,
}

/// What a kernel gives.
struct Answer {
    reward: Option<Computed>,
    /// The advantage, or the gradient.
    values: Placed,
    loss: Option<f64>,
    correct: Option<Computed>,
    metrics: Vec<(String, f64)>,
    notes: Vec<String>,
    time: Duration,
}

impl Recipe {
    /// [`Recipe::advantage`] or [`Recipe::advantage_into`], by the script or by a kernel.
    pub(super) fn run_advantage<A: Same + From<Placed>>(
        &self,
        batch: &Batch,
        state: &mut State,
        array: Array<'_, '_>,
    ) -> Result<Outcome<A>, Diagnostics> {
        let guard = self.host.guard();
        let asked = Asked {
            recipe: self,
            hook: Hook::Advantage,
            batch,
            advantage: None,
            guard: &guard,
        };
        let outcome = |answer: Answer| Outcome {
            reward: answer.reward,
            weight: None,
            advantage: answer.values.into(),
            loss: answer.loss,
            correct: answer.correct,
            metrics: answer.metrics,
            prints: Vec::new(),
            notes: answer.notes,
            map_groups: Vec::new(),
            time: answer.time,
            peak_bytes: guard.peak(),
            native: Some(answer.time),
        };
        let by_script =
            |array: Array<'_, '_>| self.advantage_by_script(batch, state, &guard, array);
        asked.answer(array, by_script, outcome, |a: &Outcome<A>, b| {
            let told = |all: &Outcome<A>| format!("{:?}", (all.loss, &all.metrics, &all.notes));
            a.advantage.same(&b.advantage)
                && a.reward.same(&b.reward)
                && a.correct.same(&b.correct)
                && a.prints.is_empty()
                && told(a) == told(b)
        })
    }

    /// [`Recipe::loss`] or [`Recipe::loss_into`], by the script or by a kernel.
    pub(super) fn run_loss<G: Same + From<Placed>>(
        &self,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
        array: Array<'_, '_>,
    ) -> Result<Loss<G>, Diagnostics> {
        let guard = self.host.guard();
        let asked = Asked {
            recipe: self,
            hook: Hook::Loss,
            batch,
            advantage,
            guard: &guard,
        };
        let loss = |answer: Answer| Loss {
            value: answer.loss.unwrap_or_default(),
            gradient: answer.values.into(),
            metrics: answer.metrics,
            prints: Vec::new(),
            notes: answer.notes,
            map_groups: Vec::new(),
            time: answer.time,
            native: Some(answer.time),
        };
        let by_script =
            |array: Array<'_, '_>| self.loss_by_script(batch, advantage, state, &guard, array);
        asked.answer(array, by_script, loss, |a: &Loss<G>, b| {
            let told = |all: &Loss<G>| format!("{:?}", (all.value, &all.metrics, &all.notes));
            a.gradient.same(&b.gradient) && a.prints.is_empty() && told(a) == told(b)
        })
    }

    /// What has changed in how hooks are answered, of this recipe's and of all others of the same host.
    pub fn kernel_changes(&self) -> Vec<KernelChange> {
        let native = self.host.native.as_ref();
        native.map_or(Vec::new(), Native::changes)
    }
}

impl Asked<'_> {
    /// Answers by the script or by the kernel, as [`Native::way`] says; by the script too where the kernel declines.
    fn answer<R>(
        &self,
        mut array: Array<'_, '_>,
        by_script: impl FnOnce(Array<'_, '_>) -> Result<R, Diagnostics>,
        result: impl Fn(Answer) -> R,
        same: impl Fn(&R, &R) -> bool,
    ) -> Result<R, Diagnostics> {
        let builtin = self.recipe.script.builtin;
        let kernel = builtin.and_then(|builtin| kernel(builtin.name));
        // No kernel knows of weights.
        let kernel = kernel.filter(|_| !self.batch.has("weight"));
        let (Some(native), Some(kernel)) = (&self.recipe.host.native, kernel) else {
            return by_script(array);
        };
        let call = self.key(array.is_some());
        match native.way(&call) {
            Way::Script => by_script(array),
            Way::Kernel => match self.by_kernel(kernel, array.as_deref_mut()) {
                Some(answer) => Ok(result(answer)),
                None => by_script(array),
            },
            Way::Timed => {
                let started = Instant::now();
                let answer = by_script(array)?;
                native.timed(&call, started);
                Ok(answer)
            }
            Way::Both => {
                let started = Instant::now();
                let answer = by_script(array.as_deref_mut())?;
                let script = started.elapsed();
                let bytes = array
                    .as_ref()
                    .map_or(0, |array| array.len() * size_of::<f32>());
                let found = self.guard.reserve(bytes).ok().and_then(|_reservation| {
                    let mut own = array.as_ref().map(|array| Array2::zeros(array.dim()));
                    let mut run = || {
                        let mut view = own.as_mut().map(|own| own.view_mut());
                        self.by_kernel(kernel, view.as_mut())
                    };
                    // The script has run before, so its code and memory are warm: the kernel's are at its second run.
                    run()?;
                    let other = run()?;
                    let took = other.time;
                    let pairs = array.iter().zip(&own);
                    let mut pairs = pairs.flat_map(|(array, own)| array.iter().zip(own));
                    let agrees = pairs.all(|(a, b): (&f32, &f32)| a.to_bits() == b.to_bits())
                        && same(&answer, &result(other));
                    Some((took, agrees))
                });
                native.compared(&call, script, found, self.batch);
                Ok(answer)
            }
        }
    }

    /// All that decides which code of a kernel runs: parameters, columns and their precision, where the result goes.
    fn key(&self, has_array: bool) -> CallKey<'_> {
        let mut tokens: Vec<&str> = self.batch.token_columns().map(|(name, _)| name).collect();
        tokens.sort_unstable();
        let columns: Vec<&str> = self.batch.columns().collect();
        let given = self.advantage.map(Computed::level);
        CallKey {
            recipe: &self.recipe.script.name,
            version: &self.recipe.script.version,
            hook: self.hook,
            kind: format!(
                "{} {columns:?} {tokens:?} {} {given:?} {has_array}",
                self.recipe.params,
                self.batch.is_f64()
            ),
        }
    }

    /// The kernel's answer on the batch as the script would see it; `None` where it declines, fails, or has no memory.
    fn by_kernel(&self, kernel: Kernel, mut array: Array<'_, '_>) -> Option<Answer> {
        let started = Instant::now();
        let (host, layout) = (&self.recipe.host, self.batch.layout());
        let _reservation = self.guard.reserve(layout.responses() * BY_RESPONSE).ok()?;
        let call = Call::within(host, self.batch.step(), None, self.guard.clone());
        let input = ScriptBatch::new(host, call, self.batch);
        let column = |name: &str| {
            let value = input.column(name).ok()?.evaluate().ok()?;
            match (value.level(), value.buffer()) {
                (Level::Response, FloatBuffer::F64(values)) => Some(values.clone()),
                _ => None,
            }
        };
        let columns = Columns {
            batch: self.batch,
            layout,
            guard: self.guard,
            params: &self.recipe.params,
            advantage: self.advantage,
            column: &column,
        };
        let rows = array.as_deref_mut().and_then(Rows::of);
        let run = || match (kernel, self.hook) {
            (Kernel::Advantage(kernel), Hook::Advantage) => {
                let (reward, advantage) = kernel(&columns)?;
                Some((
                    reward,
                    Placed::Values(advantage),
                    None,
                    Vec::new(),
                    Vec::new(),
                ))
            }
            (Kernel::Loss(kernel), hook) => {
                // The advantage that is the equivalent of a loss.
                let factor = (hook == Hook::Advantage).then(|| -(layout.tokens() as f64));
                let (loss, gradient, metrics, notes) = kernel(&columns, factor, rows)?;
                Some((None, gradient, Some(loss), metrics, notes))
            }
            _ => None,
        };
        let (reward, values, loss, metrics, notes) = guarded("in a kernel", run).ok()??;
        let values = values.into_array(array)?;
        Some(Answer {
            reward,
            values,
            loss,
            correct: correct(&input),
            metrics,
            notes,
            time: started.elapsed(),
        })
    }
}

/// Whether two results are the same, bit for bit.
pub(super) trait Same {
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

impl Same for Option<Computed> {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(a), Some(b)) => a.same(b),
            (a, b) => a.is_none() && b.is_none(),
        }
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
