//! Hooks of built-ins that kernels answer in place of their scripts: the way in, which knows no kernel itself.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::{Loss, Outcome};
use crate::batch::{Batch, Computed};
use crate::diagnostic::Diagnostics;
use crate::script::params::Setting;
use crate::script::recipe::{Hook, Recipe};
use crate::script::state::State;
use crate::tensor::Guard;

/// A hook of a built-in, and all that its result depends on.
pub(crate) struct HookCall<'a> {
    /// The built-in's name. Its text is the shipped one, with all that it imports.
    pub(crate) builtin: &'static str,
    pub(crate) hook: Hook,
    pub(crate) batch: &'a Batch,
    /// The result of a `reward` hook before this one.
    pub(crate) reward: Option<&'a Computed>,
    /// The advantage that a loss is given above the batch's own.
    pub(crate) advantage: Option<&'a Computed>,
    /// The values of the parameters.
    pub(crate) settings: &'a dyn Fn(&str) -> Option<Setting>,
    pub(crate) guard: &'a Arc<Guard>,
}

/// A loss as a kernel gives it.
pub(crate) struct LossAnswer {
    pub(crate) value: f64,
    /// dloss/dlogp, at token level.
    pub(crate) gradient: Computed,
    pub(crate) metrics: Vec<(String, f64)>,
    pub(crate) notes: Vec<String>,
}

/// Kernels of the built-ins' hooks. Each gives the very bits of its script, or `None` where anything is not as it knows it:
/// then the script runs, and tells what there is to tell.
pub(crate) trait HookKernels: fmt::Debug + Send + Sync {
    fn has(&self, builtin: &str, hook: Hook) -> bool;

    /// A reward or an advantage, all of it finite.
    fn signal(&self, call: &HookCall<'_>) -> Option<Computed>;

    /// A loss with its gradient, both finite.
    fn loss(&self, call: &HookCall<'_>) -> Option<LossAnswer>;

    /// `batch.correct`, as scripts see it; `Some(None)` where nothing says it.
    fn correct(&self, call: &HookCall<'_>) -> Option<Option<Computed>>;

    /// [`Recipe::advantage`], by the script or by kernels.
    fn run_advantage(
        &self,
        recipe: &Recipe,
        batch: &Batch,
        state: &mut State,
    ) -> Result<Outcome, Diagnostics>;

    /// [`Recipe::loss`], by the script or by kernels.
    fn run_loss(
        &self,
        recipe: &Recipe,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
    ) -> Result<Loss, Diagnostics>;
}

impl Recipe {
    /// What may answer the recipe's hooks, where any of them is a built-in's.
    pub(super) fn kernels(&self) -> Option<&dyn HookKernels> {
        let kernels = self.host.kernels.as_deref()?;
        let builtin = self.script.builtin?;
        let mut hooks = Hook::OF_BATCH.into_iter().filter(|hook| self.has(*hook));
        hooks
            .all(|hook| kernels.has(builtin.name, hook))
            .then_some(kernels)
    }

    /// As [`Recipe::advantage`] without the script; `None` where a kernel declines.
    pub(crate) fn advantage_by_kernels(
        &self,
        kernels: &dyn HookKernels,
        batch: &Batch,
    ) -> Option<Outcome> {
        let started = Instant::now();
        let guard = self.host.guard();
        let settings = |name: &str| self.params.get(name).cloned();
        let mut call = HookCall {
            builtin: self.script.builtin?.name,
            hook: Hook::Reward,
            batch,
            reward: None,
            advantage: None,
            settings: &settings,
            guard: &guard,
        };
        let reward = match self.has(Hook::Reward) {
            true => Some(kernels.signal(&call)?),
            false => None,
        };
        call.reward = reward.as_ref();
        let has_advantage = self.has(Hook::Advantage);
        call.hook = if has_advantage {
            Hook::Advantage
        } else {
            Hook::Loss
        };
        let advantage = kernels.signal(&call)?;
        let correct = kernels.correct(&call)?;
        Some(Outcome {
            advantage,
            loss: None,
            correct,
            metrics: Vec::new(),
            prints: Vec::new(),
            notes: Vec::new(),
            time: started.elapsed(),
            peak_bytes: guard.peak(),
            is_native: true,
            reward,
        })
    }
}
