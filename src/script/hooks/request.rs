//! A request for the advantage or the loss of a batch, which the script or the native kernel of a built-in answers.

use std::sync::Arc;
use std::time::Instant;

use crate::batch::{Batch, Computed};
use crate::diagnostic::Diagnostics;
use crate::script::bindings::batch::ScriptBatch;
use crate::script::hook::Hook;
use crate::script::kernels::{HookInputs, Kernel};
use crate::script::outcome::{Outcome, Reports};
use crate::script::recipe::Recipe;
use crate::script::sandbox::without_panic;
use crate::script::state::State;
use crate::tensor::{Guard, Moments};

/// The maximum number of bytes that a kernel holds per response, not counting tokens: a few numbers and sums.
const BYTES_PER_RESPONSE: usize = 8 * size_of::<f64>() + 2 * size_of::<Moments>();

/// A request for the advantage or the loss of a batch.
pub(super) struct Request<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) hook: Hook,
    pub(super) batch: &'a Batch,
    /// The advantage that the loss gets, if any.
    pub(super) advantage: Option<&'a Computed>,
    pub(super) guard: Arc<Guard>,
}

impl Request<'_> {
    /// Answers the request. `state` changes only if the request succeeds.
    pub(super) fn answer(&self, state: &mut State) -> Result<Outcome, Diagnostics> {
        let (script, native) = (&self.recipe.script, &self.recipe.host.native);
        let kernel = script
            .builtin
            .and_then(|builtin| native.kernel(builtin.name));
        // No kernel supports weights.
        let Some(kernel) = kernel.filter(|_| !self.batch.has("weight")) else {
            return self.by_script(state);
        };
        let tokens: Vec<&str> = self.batch.token_columns().map(|(name, _)| name).collect();
        let columns: Vec<&str> = self.batch.columns().collect();
        let (is_f64, given) = (self.batch.is_f64(), self.advantage.map(Computed::level));
        let (name, version) = (&script.name, &script.version);
        let call = format!("{name} {version}: the native `{}`", self.hook.name());
        let params = &self.recipe.params;
        let kind = format!("{params} {columns:?} {tokens:?} {is_f64} {given:?}");
        native.answer(
            &call,
            &kind,
            || self.by_script(state),
            || self.by_kernel(kernel),
        )
    }

    /// Answers the request by running the script. `state` changes only if the request succeeds.
    fn by_script(&self, state: &mut State) -> Result<Outcome, Diagnostics> {
        let started = Instant::now();
        let (step, is_loss) = (self.batch.step(), self.hook == Hook::Loss);
        let update = is_loss.then(|| state.updates(step));
        let call = self.recipe.host.call_under(&self.guard, step, update);
        let input = ScriptBatch::new(call.clone(), self.batch);
        let (outcome, left) = self.recipe.with_hooks(self.hook, input, state, |hooks| {
            let (reward, weight, (tensor, loss)) = if is_loss {
                hooks.give(self.batch, self.advantage)?;
                (None, None, hooks.loss()?)
            } else {
                (hooks.reward()?, hooks.weight()?, hooks.advantage()?)
            };
            let advantage = hooks.compute(&tensor, loss.as_ref())?;
            let loss = loss.map(|loss| loss.evaluate()).transpose()?;
            let correct = (!is_loss).then(|| correct(&hooks.input)).flatten();
            let effects = call.take_reports();
            let metrics = effects.metrics.iter().map(|(metric, _)| metric.clone());
            let reporters = metrics.filter_map(|(hook, name)| Some((hook?, name)));
            let reports = Reports {
                metrics: effects.metrics()?,
                reporters: reporters.collect(),
                prints: effects.prints,
                notes: effects.notes,
                map_groups: effects.map_groups,
                time: started.elapsed(),
                native: None,
            };
            let outcome = Outcome {
                reward,
                weight,
                loss: loss.map(|loss| loss.get(0)),
                correct,
                reports,
                ..Outcome::of(advantage)
            };
            Ok((outcome, hooks.finished_state()?))
        })?;
        *state = left;
        if let Some(update) = update {
            state.updates = (step, update + 1);
        }
        Ok(outcome)
    }

    /// Runs the kernel on the batch that the script would get. Returns `None` if the kernel declines or fails, or if there is not
    /// enough memory.
    fn by_kernel(&self, kernel: Kernel) -> Option<Outcome> {
        let started = Instant::now();
        let (host, layout) = (&self.recipe.host, self.batch.layout());
        let bytes = layout.responses() * BYTES_PER_RESPONSE;
        let _reservation = self.guard.reserve(bytes).ok()?;
        let call = host.call_under(&self.guard, self.batch.step(), None);
        let is_advantage = self.hook == Hook::Advantage;
        let mut batch = self.batch.clone();
        if let Some(advantage) = self.advantage {
            batch = batch.with("advantage", advantage).ok()?;
        }
        let inputs = HookInputs {
            script: ScriptBatch::new(call, self.batch),
            batch,
            guard: &self.guard,
            params: &self.recipe.params,
            factor: is_advantage.then(|| -(layout.tokens() as f64)),
            by_rows: host.by_rows,
        };
        let mut outcome = without_panic("in a kernel", || kernel(&inputs)).ok()??;
        outcome.correct = is_advantage.then(|| correct(&inputs.script)).flatten();
        outcome.reports.time = started.elapsed();
        outcome.reports.native = Some(outcome.reports.time);
        Some(outcome)
    }
}

/// Returns the column `correct` of the batch before any hook, because a shaped reward does not change which responses are
/// correct. Returns `None` if the batch has no such column and it cannot be derived.
fn correct(input: &ScriptBatch) -> Option<Computed> {
    let value = input.find("correct").ok()??.evaluate().ok()?;
    Some(value.over(input.frame().layout()))
}
