//! Computes the advantage or the loss of a batch, by the script or by the native kernel of a built-in.

use std::time::Instant;

use crate::batch::{Batch, Computed};
use crate::diagnostic::Diagnostics;
use crate::script::bindings::batch::ScriptBatch;
use crate::script::hook::Hook;
use crate::script::kernels::{HookInputs, Kernel};
use crate::script::outcome::Outcome;
use crate::script::recipe::Recipe;
use crate::script::sandbox::without_panic;
use crate::script::state::State;
use crate::tensor::Moments;

/// The maximum number of bytes that a kernel holds per response, not counting tokens: a few numbers and sums.
const BYTES_PER_RESPONSE: usize = 8 * size_of::<f64>() + 2 * size_of::<Moments>();

impl Recipe {
    /// Computes the advantage or the loss of a batch, as `hook` selects, by the script or by its kernel. `advantage` is the
    /// advantage that the loss reads, if there is one. `state` changes only if this succeeds.
    pub(super) fn answer(
        &self,
        hook: Hook,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
    ) -> Result<Outcome, Diagnostics> {
        let (script, native) = (&self.script, &self.host.native);
        let kernels = (script.builtin).and_then(|builtin| native.kernel(builtin.name));
        // No kernel supports weights.
        let Some(kernels) = kernels.filter(|_| !batch.has("weight")) else {
            return self.by_script(hook, batch, advantage, state);
        };
        // Script and kernel share one guard, so that the limits of a call hold even if both run.
        let recipe = self.for_step();
        let tokens: Vec<&str> = batch.token_columns().map(|(name, _)| name).collect();
        let columns: Vec<&str> = batch.columns().collect();
        let (is_f64, given) = (batch.is_f64(), advantage.map(Computed::level));
        let (name, version) = (&script.name, &script.version);
        let call = format!("{name} {version}: the native `{}`", hook.name());
        let kind = format!("{} {columns:?} {tokens:?} {is_f64} {given:?}", self.params);
        native.answer(
            &call,
            &kind,
            || recipe.by_script(hook, batch, advantage, state),
            || recipe.by_kernel(kernels, hook, batch, advantage),
        )
    }

    fn by_script(
        &self,
        hook: Hook,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
    ) -> Result<Outcome, Diagnostics> {
        let started = Instant::now();
        let (step, is_loss) = (batch.step(), hook == Hook::Loss);
        let update = is_loss.then(|| state.updates(step));
        let call = self.host.call_for(step, update);
        let input = ScriptBatch::new(call.clone(), batch);
        let (outcome, left) = self.with_hooks(hook, input, state, |hooks| {
            let (reward, weight, (tensor, loss)) = if is_loss {
                hooks.prepare_loss(batch, advantage)?;
                (None, None, hooks.loss()?)
            } else {
                (hooks.reward()?, hooks.weight()?, hooks.advantage()?)
            };
            let advantage = hooks.compute(&tensor, loss.as_ref())?;
            let loss = loss.map(|loss| loss.evaluate()).transpose()?;
            let correct = (!is_loss).then(|| correct(&hooks.input)).flatten();
            let mut reports = call.take_reports().reported()?;
            reports.time = started.elapsed();
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
    fn by_kernel(
        &self,
        kernels: [Kernel; 2],
        hook: Hook,
        batch: &Batch,
        advantage: Option<&Computed>,
    ) -> Option<Outcome> {
        let (started, layout) = (Instant::now(), batch.layout());
        let bytes = layout.responses() * BYTES_PER_RESPONSE;
        let call = self.host.call(batch.step());
        let _reservation = call.guard().reserve(bytes).ok()?;
        let is_advantage = hook == Hook::Advantage;
        let given = advantage.map(|advantage| batch.clone().with("advantage", advantage));
        let given = given.transpose().ok()?;
        let inputs = HookInputs {
            batch: given.as_ref().unwrap_or(batch),
            script: ScriptBatch::new(call.clone(), batch),
            params: &self.params,
            factor: is_advantage.then(|| -(layout.tokens() as f64)),
        };
        let kernel = kernels[usize::from(inputs.batch.is_f64())];
        let mut outcome = without_panic("in a kernel", || kernel(&inputs)).ok()??;
        outcome.correct = is_advantage.then(|| correct(&inputs.script)).flatten();
        outcome.reports.time = started.elapsed();
        outcome.reports.native = Some(outcome.reports.time);
        Some(outcome)
    }
}

/// Returns the column `correct` of the batch before any hook runs, because a shaped reward does not change which responses are
/// correct. Returns `None` if the batch has no such column and it cannot be derived.
fn correct(input: &ScriptBatch) -> Option<Computed> {
    let value = input.find("correct").ok()??.evaluate().ok()?;
    Some(value.over(input.frame().layout()))
}
