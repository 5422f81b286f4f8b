//! The host: the data that recipes share, and their limits.

use std::sync::Arc;
use std::time::Duration;

use super::call::Call;
use super::engine::Functions;
use super::recipe::Recipe;
use crate::native::Native;
use crate::tensor::profile::Profile;
use crate::tensor::{Executor, Guard};

/// The bounds of one call of a recipe: [`Recipe::advantage`] with the hooks `reward` and `weight`, each update's
/// [`Recipe::loss`], [`Recipe::returns`]. [`Recipe::for_step`] puts several calls under one bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time limit for all hooks of the call together; native code obeys it too.
    pub time: Duration,
    /// The bytes that the tensors of the call may hold at once.
    pub memory: usize,
}

impl Default for Limits {
    /// A minute and 4 GiB: far more than a step needs, and a bound for a script that does not terminate.
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(60),
            memory: 4 << 30,
        }
    }
}

/// Loads recipes, and holds their shared data: functions, limits, an executor, a seed.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) functions: Functions,
    limits: Limits,
    pub(super) seed: u64,
    pub(super) executor: Executor,
    pub(super) profile: Option<Arc<Profile>>,
    /// The kernels of built-ins.
    pub(super) native: Native,
    /// One guard for all calls; without it each call has its own.
    guard: Option<Arc<Guard>>,
    /// The loss recipe of a run.
    pub(super) loss: Option<Arc<Recipe>>,
}

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

impl Host {
    /// A host with the default limits and the seed 0.
    pub fn new() -> Host {
        Host {
            functions: Functions::new(),
            limits: Limits::default(),
            seed: 0,
            executor: Executor::default(),
            profile: None,
            native: Native::default(),
            guard: None,
            loss: None,
        }
    }

    /// The same host with other limits.
    pub fn with_limits(self, limits: Limits) -> Host {
        Host { limits, ..self }
    }

    /// The bounds of one call.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The seed, from which `batch.random` draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The same host with another seed, from which `batch.random` draws.
    pub fn with_seed(self, seed: u64) -> Host {
        Host { seed, ..self }
    }

    /// The same host with another executor, for tests and benchmarks; the bits of results are the same.
    pub fn with_executor(self, executor: Executor) -> Host {
        Host { executor, ..self }
    }

    /// The same host, which records the time of computations in a profile.
    pub fn with_profile(self, profile: Arc<Profile>) -> Host {
        let profile = Some(profile);
        Host { profile, ..self }
    }

    /// The same host with kernels for the built-ins' hooks; the bits of results are the same.
    pub fn with_native(self, native: &Native) -> Host {
        let native = native.clone();
        Host { native, ..self }
    }

    /// The same host with a loss for recipes that have none: a run's, or `ppo_clip`.
    pub(crate) fn with_loss(self, loss: Option<Recipe>) -> Host {
        let loss = loss.map(Arc::new);
        Host { loss, ..self }
    }

    /// A call at a step, with its own bounds.
    pub(crate) fn call(&self, step: u64) -> Arc<Call> {
        Call::new(self, &self.guard(), step, None)
    }

    /// The same host with one guard for all calls: the holder of the guard can cancel the running call.
    pub fn with_guard(self, guard: Arc<Guard>) -> Host {
        let guard = Some(guard);
        Host { guard, ..self }
    }

    /// The guard of the next call.
    pub fn guard(&self) -> Arc<Guard> {
        let new = || Guard::new(Some(self.limits.time), self.limits.memory);
        self.guard.clone().unwrap_or_else(new)
    }
}
