//! Computes a request by the script, by the kernel of a built-in, or by both to compare them.

use std::time::Instant;

use super::{Outcome, Request, correct};
use crate::batch::Computed;
use crate::diagnostic::Diagnostics;
use crate::native::{CallKey, HookInputs, HookState, NativeHook};
use crate::script::bindings::batch::ScriptBatch;
use crate::script::hook::Hook;
use crate::script::sandbox::without_panic;
use crate::script::state::State;
use crate::tensor::Moments;

/// The most bytes that a kernel holds per response, besides tokens: some numbers and sums.
const BYTES_PER_RESPONSE: usize = 8 * size_of::<f64>() + 2 * size_of::<Moments>();

impl Request<'_> {
    /// Computes the request, with `state` changed if that succeeds; by the script if the kernel declines.
    pub(super) fn run(&self, state: &mut State) -> Result<Outcome, Diagnostics> {
        let (recipe, native) = (self.recipe, &self.recipe.host.native);
        let builtin = recipe.script.builtin;
        let kernel = builtin.and_then(|builtin| native.kernel(builtin.name, self.hook));
        // No kernel knows weights.
        let Some(kernel) = kernel.filter(|_| !self.batch.has("weight")) else {
            return self.by_script(state);
        };
        let call = self.key();
        let known = native.state(&call);
        if known == HookState::Switched
            && let Some(answer) = self.by_kernel(kernel)
        {
            return Ok(answer);
        }
        let started = Instant::now();
        let answer = self.by_script(state)?;
        match known {
            HookState::Timed(last) => native.timed(&call, last, started),
            HookState::Due => {
                let script = started.elapsed();
                // The script has run before, so its code and memory are warm: the kernel's are at its second run.
                let warm = self.by_kernel(kernel);
                let native_answer = warm.and_then(|_| self.by_kernel(kernel));
                let compared = native_answer.map(|own| (own.time, same_bits(&answer, &own)));
                native.compared(&call, script, compared, self.batch);
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Everything that selects the code of a kernel: parameters, columns and their precision.
    fn key(&self) -> CallKey<'_> {
        let mut tokens: Vec<&str> = self.batch.token_columns().map(|(name, _)| name).collect();
        tokens.sort_unstable();
        let columns: Vec<&str> = self.batch.columns().collect();
        let given = self.advantage.map(Computed::level);
        CallKey {
            recipe: &self.recipe.script.name,
            version: &self.recipe.script.version,
            hook: self.hook,
            kind: format!(
                "{} {columns:?} {tokens:?} {} {given:?}",
                self.recipe.params,
                self.batch.is_f64()
            ),
        }
    }

    /// The kernel's answer on the batch as the script would see it; `None` if it declines, fails, or has no memory.
    fn by_kernel(&self, kernel: NativeHook) -> Option<Outcome> {
        let started = Instant::now();
        let (host, layout) = (&self.recipe.host, self.batch.layout());
        let bytes = layout.responses() * BYTES_PER_RESPONSE;
        let _reservation = self.guard.reserve(bytes).ok()?;
        let call = host.call_under(&self.guard, self.batch.step(), None);
        let is_advantage = self.hook == Hook::Advantage;
        let inputs = HookInputs {
            batch: self.batch,
            script: ScriptBatch::new(call, self.batch),
            guard: &self.guard,
            params: &self.recipe.params,
            advantage: self.advantage,
            factor: is_advantage.then(|| -(layout.tokens() as f64)),
            by_rows: host.by_rows,
        };
        let mut answer = without_panic("in a kernel", || kernel(&inputs)).ok()??;
        answer.correct = is_advantage.then(|| correct(&inputs.script)).flatten();
        answer.time = started.elapsed();
        answer.native = Some(answer.time);
        Some(answer)
    }
}

/// Whether the kernel's results equal the script's bit for bit.
fn same_bits(script: &Outcome, kernel: &Outcome) -> bool {
    let of = |a: Option<&Computed>, b: Option<&Computed>| match (a, b) {
        (Some(a), Some(b)) => {
            let (level, a, b) = (a.level() == b.level(), a.buffer(), b.buffer());
            let bits = a.iter().map(f64::to_bits);
            level && a.is_f64() == b.is_f64() && bits.eq(b.iter().map(f64::to_bits))
        }
        (a, b) => a.is_none() && b.is_none(),
    };
    let told = |all: &Outcome| format!("{:?}", (all.loss, &all.metrics, &all.notes));
    of(Some(&script.advantage), Some(&kernel.advantage))
        && of(script.reward.as_ref(), kernel.reward.as_ref())
        && of(script.correct.as_ref(), kernel.correct.as_ref())
        && script.prints.is_empty()
        && told(script) == told(kernel)
}
