//! Hooks of built-ins that kernels answer in place of their scripts: the way in, which knows no kernel itself.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ndarray::ArrayViewMut2;

use super::{Loss, Outcome};
use crate::batch::{Batch, Computed, Level, Rows};
use crate::diagnostic::Diagnostics;
use crate::figures::time;
use crate::script::params::Setting;
use crate::script::recipe::{Hook, Recipe, Version};
use crate::script::sandbox::guarded;
use crate::script::state::State;
use crate::tensor::Guard;

/// A hook of a built-in, and all that its result depends on.
#[derive(Clone, Copy)]
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
    pub(crate) settings: &'a (dyn Fn(&str) -> Option<Setting> + Sync),
    pub(crate) guard: &'a Arc<Guard>,
    /// The reward by token, summed for each response, once something has asked for it.
    pub(crate) sums: &'a OnceLock<Option<Vec<f64>>>,
}

/// A result: its values, or the level of what was written into the caller's array.
#[derive(Clone, Debug)]
pub(crate) enum Placed {
    Values(Computed),
    Written(Level),
}

impl Placed {
    pub(crate) fn level(&self) -> Level {
        match self {
            Placed::Values(values) => values.level(),
            Placed::Written(level) => *level,
        }
    }

    /// The values, where there was no array to write into.
    pub(super) fn values(self) -> Computed {
        match self {
            Placed::Values(values) => values,
            Placed::Written(_) => unreachable!("without an array, nothing is written into one"),
        }
    }

    /// Writes values into the array after all, where there is one.
    fn into_array(self, array: Option<&mut ArrayViewMut2<'_, f32>>) -> Option<Placed> {
        let (Placed::Values(values), Some(array)) = (&self, array) else {
            return Some(self);
        };
        values.write_into(array).ok()?;
        Some(Placed::Written(values.level()))
    }
}

/// A change of what answers a hook: see [`Native::changes`](crate::native::Native::changes).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelChange {
    /// The recipe's name.
    pub recipe: String,
    /// Its version.
    pub version: Version,
    /// The hook: a kernel answers it from now on, unless it disagreed.
    pub hook: Hook,
    /// How long the script took on the batch that both computed.
    pub script: Duration,
    /// How long the kernel took.
    pub kernel: Duration,
    /// The batch on which the kernel gave other bits than the script: a defect of advlab. The script's are used.
    pub disagrees_on: Option<Batch>,
}

impl fmt::Display for KernelChange {
    /// One line: which hook, and what answers it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, hook) = (&self.version, self.hook.name());
        if self.disagrees_on.is_some() {
            return write!(
                f,
                "{version}: the native `{hook}` is not the script's to the last bit, and not used: a defect of advlab, please report it"
            );
        }
        let (kernel, script) = (time(self.kernel), time(self.script));
        write!(
            f,
            "{version}: `{hook}` is native from here on, the same bits in {kernel} and not {script}"
        )
    }
}

/// A loss as a kernel gives it, with dloss/dlogp at token level.
pub(crate) type LossAnswer = (f64, Placed, Vec<(String, f64)>, Vec<String>);

/// Kernels of the built-ins' hooks. Each gives the very bits of its script, or `None` where anything is not as it knows it:
/// then the script runs, and tells what there is to tell.
pub(crate) trait HookKernels: fmt::Debug + Send + Sync {
    fn has(&self, builtin: &str, hook: Hook) -> bool;

    /// A reward or an advantage, all of it finite; tokens may be written into the rows.
    fn signal(&self, call: &HookCall<'_>, rows: Option<Rows<'_>>) -> Option<Placed>;

    /// A loss with its gradient times a factor, all of it finite.
    fn loss(
        &self,
        call: &HookCall<'_>,
        factor: Option<f64>,
        rows: Option<Rows<'_>>,
    ) -> Option<LossAnswer>;

    /// `batch.correct`, as scripts see it; `Some(None)` where nothing says it.
    fn correct(&self, call: &HookCall<'_>) -> Option<Option<Computed>>;

    /// [`Recipe::advantage`], by the script or by kernels.
    fn run_advantage(
        &self,
        recipe: &Recipe,
        batch: &Batch,
        state: &mut State,
        array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Result<Outcome<Placed>, Diagnostics>;

    /// [`Recipe::loss`], by the script or by kernels.
    fn run_loss(
        &self,
        recipe: &Recipe,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
        array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Result<Loss<Placed>, Diagnostics>;

    /// What has changed since this was last asked for.
    fn changes(&self) -> Vec<KernelChange>;
}

impl<A> Outcome<A> {
    pub(super) fn map<B>(self, f: impl FnOnce(A) -> B) -> Outcome<B> {
        Outcome {
            advantage: f(self.advantage),
            reward: self.reward,
            loss: self.loss,
            correct: self.correct,
            metrics: self.metrics,
            prints: self.prints,
            notes: self.notes,
            time: self.time,
            peak_bytes: self.peak_bytes,
            map_groups: self.map_groups,
            is_native: self.is_native,
        }
    }
}

impl<G> Loss<G> {
    pub(super) fn map<B>(self, f: impl FnOnce(G) -> B) -> Loss<B> {
        Loss {
            gradient: f(self.gradient),
            value: self.value,
            metrics: self.metrics,
            prints: self.prints,
            notes: self.notes,
            time: self.time,
            map_groups: self.map_groups,
            is_native: self.is_native,
        }
    }
}

impl Recipe {
    pub(super) fn run_advantage(
        &self,
        batch: &Batch,
        state: &mut State,
        array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Result<Outcome<Placed>, Diagnostics> {
        match self.kernels() {
            Some(kernels) => kernels.run_advantage(self, batch, state, array),
            None => self.advantage_by_script(batch, state, array),
        }
    }

    pub(super) fn run_loss(
        &self,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
        array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Result<Loss<Placed>, Diagnostics> {
        match self.kernels() {
            Some(kernels) => kernels.run_loss(self, batch, advantage, state, array),
            None => self.loss_by_script(batch, advantage, state, array),
        }
    }

    /// What has changed in how hooks are answered, of this recipe's and of all others with the same kernels.
    pub(crate) fn kernel_changes(&self) -> Vec<KernelChange> {
        let kernels = self.host.kernels.as_deref();
        kernels.map_or(Vec::new(), |kernels| kernels.changes())
    }

    /// What may answer the recipe's hooks, where it is a built-in.
    fn kernels(&self) -> Option<&dyn HookKernels> {
        let kernels = self.host.kernels.as_deref()?;
        let builtin = self.script.builtin?;
        let mut hooks = Hook::OF_BATCH.into_iter().filter(|hook| self.has(*hook));
        hooks
            .all(|hook| kernels.has(builtin.name, hook))
            .then_some(kernels)
    }

    /// [`Recipe::advantage`] without the script; `None` where a kernel declines, as one that panics does.
    pub(crate) fn advantage_by_kernels(
        &self,
        kernels: &dyn HookKernels,
        batch: &Batch,
        array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Option<Outcome<Placed>> {
        let run = || self.advantage_of_kernels(kernels, batch, array);
        guarded("in a kernel", run).ok().flatten()
    }

    fn advantage_of_kernels(
        &self,
        kernels: &dyn HookKernels,
        batch: &Batch,
        mut array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Option<Outcome<Placed>> {
        let started = Instant::now();
        let guard = self.host.guard();
        let settings = |name: &str| self.params.get(name).cloned();
        let sums = OnceLock::new();
        let mut call = self.call(Hook::Reward, batch, &settings, &guard, &sums)?;
        let reward = match self.has(Hook::Reward) {
            true => Some(kernels.signal(&call, None)?.values()),
            false => None,
        };
        call.reward = reward.as_ref();
        let rows = array.as_deref_mut().and_then(Rows::of);
        let (advantage, loss, metrics, notes) = if self.has(Hook::Advantage) {
            call.hook = Hook::Advantage;
            (kernels.signal(&call, rows)?, None, Vec::new(), Vec::new())
        } else {
            call.hook = Hook::Loss;
            let factor = -(batch.layout().tokens() as f64);
            let (loss, advantage, metrics, notes) = kernels.loss(&call, Some(factor), rows)?;
            (advantage, Some(loss), metrics, notes)
        };
        Some(Outcome {
            advantage: advantage.into_array(array)?,
            loss,
            correct: kernels.correct(&call)?,
            metrics,
            prints: Vec::new(),
            notes,
            time: started.elapsed(),
            peak_bytes: guard.peak(),
            map_groups: Vec::new(),
            is_native: true,
            reward,
        })
    }

    /// [`Recipe::loss`] without the script; `None` where a kernel declines, as one that panics does.
    pub(crate) fn loss_by_kernels(
        &self,
        kernels: &dyn HookKernels,
        batch: &Batch,
        advantage: Option<&Computed>,
        array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Option<Loss<Placed>> {
        let run = || self.loss_of_kernels(kernels, batch, advantage, array);
        guarded("in a kernel", run).ok().flatten()
    }

    fn loss_of_kernels(
        &self,
        kernels: &dyn HookKernels,
        batch: &Batch,
        advantage: Option<&Computed>,
        mut array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Option<Loss<Placed>> {
        let started = Instant::now();
        let guard = self.host.guard();
        let settings = |name: &str| self.params.get(name).cloned();
        let sums = OnceLock::new();
        let mut call = self.call(Hook::Loss, batch, &settings, &guard, &sums)?;
        call.advantage = advantage;
        let rows = array.as_deref_mut().and_then(Rows::of);
        let (value, gradient, metrics, notes) = kernels.loss(&call, None, rows)?;
        Some(Loss {
            value,
            gradient: gradient.into_array(array)?,
            metrics,
            prints: Vec::new(),
            notes,
            time: started.elapsed(),
            map_groups: Vec::new(),
            is_native: true,
        })
    }

    fn call<'a>(
        &self,
        hook: Hook,
        batch: &'a Batch,
        settings: &'a (dyn Fn(&str) -> Option<Setting> + Sync),
        guard: &'a Arc<Guard>,
        sums: &'a OnceLock<Option<Vec<f64>>>,
    ) -> Option<HookCall<'a>> {
        Some(HookCall {
            builtin: self.script.builtin?.name,
            hook,
            batch,
            reward: None,
            advantage: None,
            settings,
            guard,
            sums,
        })
    }
}
