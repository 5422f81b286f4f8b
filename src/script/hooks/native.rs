//! Hooks of a recipe that is a built-in, by its kernels or by its script.

use std::sync::Arc;
use std::time::Instant;

use super::{Loss, Outcome, correct};
use crate::batch::{Batch, Computed, Rows};
use crate::diagnostic::Diagnostics;
use crate::script::batch_type::ScriptBatch;
use crate::script::call::Call;
use crate::script::kernels::{
    Array, Asked, HookCall, Importer, KernelChange, Kernels, Placed, Same,
};
use crate::script::params::Setting;
use crate::script::recipe::{Hook, Recipe};
use crate::script::sandbox::guarded;
use crate::script::state::State;
use crate::tensor::Guard;

impl Recipe {
    /// [`Recipe::advantage`] or [`Recipe::advantage_into`], by the script or by kernels.
    pub(super) fn run_advantage<A: Same + From<Placed>>(
        &self,
        batch: &Batch,
        state: &mut State,
        array: Array<'_, '_>,
    ) -> Result<Outcome<A>, Diagnostics> {
        let guard = self.host.guard();
        let Some(kernels) = self.kernels_for(batch) else {
            return self.advantage_by_script(batch, state, &guard, array);
        };
        kernels.answer(
            &self.asked(Hook::Advantage, batch, &guard),
            array,
            |array| self.advantage_by_script(batch, state, &guard, array),
            |array| {
                let run = || self.advantage_by_kernels(kernels, batch, &guard, array);
                guarded("in a kernel", run).ok().flatten()
            },
        )
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
        let Some(kernels) = self.kernels_for(batch) else {
            return self.loss_by_script(batch, advantage, state, &guard, array);
        };
        kernels.answer(
            &self.asked(Hook::Loss, batch, &guard),
            array,
            |array| self.loss_by_script(batch, advantage, state, &guard, array),
            |array| {
                let run = || self.loss_by_kernel(kernels, batch, advantage, &guard, array);
                guarded("in a kernel", run).ok().flatten()
            },
        )
    }

    /// What has changed in how hooks are answered, of this recipe's and of all others with the same kernels.
    pub(crate) fn kernel_changes(&self) -> Vec<KernelChange> {
        let kernels = self.host.kernels.as_deref();
        kernels.map_or(Vec::new(), Kernels::changes)
    }

    /// The host's kernels, which promise the bits of scripts: not beside an executor that rounds otherwise.
    fn host_kernels(&self) -> Option<&Arc<Kernels>> {
        let kernels = self.host.kernels.as_ref()?;
        self.host.executor().is_exact().then_some(kernels)
    }

    /// What may answer the recipe's hooks, where it is a built-in.
    fn kernels(&self) -> Option<&Kernels> {
        let kernels = self.host_kernels()?;
        let builtin = self.script.builtin?;
        let mut hooks = Hook::OF_BATCH.into_iter().filter(|hook| self.has(*hook));
        let has_all = hooks.all(|hook| kernels.of.has(builtin.name, hook));
        has_all.then_some(kernels)
    }

    /// None of the kernels knows of weights.
    fn kernels_for(&self, batch: &Batch) -> Option<&Kernels> {
        self.kernels().filter(|_| !batch.has("weight"))
    }

    /// The recipe as it calls built-ins' hooks, where kernels may answer these and not its own.
    pub(super) fn importer(&self) -> Option<Importer> {
        let kernels = self.host_kernels().filter(|_| self.kernels().is_none());
        Some(Importer {
            kernels: Arc::clone(kernels?),
            script: self.script.clone(),
        })
    }

    fn asked<'a>(&'a self, hook: Hook, batch: &'a Batch, guard: &'a Arc<Guard>) -> Asked<'a> {
        let settings = self.params.iter();
        let settings = settings.map(|(known, value)| (known.name.as_str(), value.clone()));
        Asked {
            script: &self.script,
            hook,
            imported: None,
            settings: settings.collect(),
            batch,
            guard,
        }
    }

    /// The advantage without the script; `None` where a kernel declines.
    fn advantage_by_kernels<A: From<Placed>>(
        &self,
        kernels: &Kernels,
        batch: &Batch,
        guard: &Arc<Guard>,
        mut array: Array<'_, '_>,
    ) -> Option<Outcome<A>> {
        let (kernels, started) = (kernels.of, Instant::now());
        let (settings, input) = (self.settings(), self.input(batch, guard));
        let mut call = self.call(Hook::Reward, batch, &settings, guard, &input)?;
        let reward: Option<Computed> = match self.has(Hook::Reward) {
            true => Some(kernels.signal(&call, None)?.into()),
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
        let advantage = advantage.into_array(array)?.into();
        let correct = correct(&input);
        let time = started.elapsed();
        Some(Outcome {
            advantage,
            weight: None,
            loss,
            correct,
            metrics,
            prints: Vec::new(),
            notes,
            time,
            peak_bytes: guard.peak(),
            map_groups: Vec::new(),
            native: Some(time),
            reward,
        })
    }

    /// The loss without the script; `None` where the kernel declines.
    fn loss_by_kernel<G: From<Placed>>(
        &self,
        kernels: &Kernels,
        batch: &Batch,
        advantage: Option<&Computed>,
        guard: &Arc<Guard>,
        mut array: Array<'_, '_>,
    ) -> Option<Loss<G>> {
        let started = Instant::now();
        let (settings, input) = (self.settings(), self.input(batch, guard));
        let mut call = self.call(Hook::Loss, batch, &settings, guard, &input)?;
        call.advantage = advantage;
        let rows = array.as_deref_mut().and_then(Rows::of);
        let (value, gradient, metrics, notes) = kernels.of.loss(&call, None, rows)?;
        let gradient = gradient.into_array(array)?.into();
        let time = started.elapsed();
        Some(Loss {
            value,
            gradient,
            metrics,
            prints: Vec::new(),
            notes,
            time,
            map_groups: Vec::new(),
            native: Some(time),
        })
    }

    /// The batch as the script would see it.
    fn input(&self, batch: &Batch, guard: &Arc<Guard>) -> ScriptBatch {
        let call = Call::within(&self.host, batch.step(), None, guard.clone(), None);
        ScriptBatch::new(&self.host, call, batch)
    }

    fn settings(&self) -> impl Fn(&str) -> Option<Setting> + Sync + '_ {
        |name| self.params.get(name).cloned()
    }

    fn call<'a>(
        &self,
        hook: Hook,
        batch: &'a Batch,
        settings: &'a (dyn Fn(&str) -> Option<Setting> + Sync),
        guard: &'a Arc<Guard>,
        input: &'a ScriptBatch,
    ) -> Option<HookCall<'a>> {
        Some(HookCall {
            builtin: self.script.builtin?.name,
            hook,
            batch,
            reward: None,
            advantage: None,
            settings,
            guard,
            input,
        })
    }
}
