//! The host: the data that the calls of recipes share, such as functions, limits and a seed. `load.rs` loads recipes with a host.

use std::sync::Arc;
use std::time::Duration;

use super::call::CallContext;
use super::functions::Functions;
use super::kernels::Native;
use super::limits::Limits;
use crate::batch::large::SpareMemory;
use crate::tensor::profile::Profile;
use crate::tensor::{Context, Guard, Trace};

/// Loads recipes, and holds the data that their calls share: functions, limits and a seed. The default seed is 0.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub(crate) functions: Functions,
    limits: Limits,
    seed: u64,
    /// Whether f32 results at token level of a padded batch are stored as the rows of an array [B, T].
    pub(super) by_rows: bool,
    profile: Option<Arc<Profile>>,
    trace: Option<Arc<Trace>>,
    /// The native kernels of built-ins, and the mode that says when they are used.
    pub(super) native: Native,
    /// The guard that all calls share; if it is `None`, each call gets a new guard.
    guard: Option<Arc<Guard>>,
    /// Memory that earlier calls have released, and that the next call reuses.
    spare: SpareMemory,
}

impl Host {
    /// Makes a host with the default limits and the seed 0.
    pub fn new() -> Host {
        Host::default()
    }

    /// Returns the same host with other limits.
    pub fn with_limits(self, limits: Limits) -> Host {
        Host { limits, ..self }
    }

    /// Returns the limits of one call.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the seed from which `batch.random` draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the same host with another seed, from which `batch.random` draws.
    pub fn with_seed(self, seed: u64) -> Host {
        Host { seed, ..self }
    }

    /// Returns the same host for callers that take results by [`Computed::into_rows`](crate::batch::Computed::into_rows): f32
    /// token values of a padded batch are computed directly in these rows, so that no copy is needed.
    pub fn with_padded_results(self) -> Host {
        let by_rows = true;
        Host { by_rows, ..self }
    }

    /// Returns the same host, but one that records the times of computations in a profile.
    pub fn with_profile(self, profile: Arc<Profile>) -> Host {
        let profile = Some(profile);
        Host { profile, ..self }
    }

    /// Returns the same host, but one that records the operations and calls of scripts in a trace.
    pub(crate) fn with_trace(self, trace: &Arc<Trace>) -> Host {
        let trace = Some(trace.clone());
        Host { trace, ..self }
    }

    /// Returns the same host with native kernels for built-ins. A kernel gives the same bits as the built-in's script.
    pub fn with_native(self, native: &Native) -> Host {
        let native = native.clone();
        Host { native, ..self }
    }

    /// Starts a call at a step, under the host's guard or, if the host has none, under a new guard.
    pub(crate) fn call(&self, step: u64) -> Arc<CallContext> {
        self.call_for(step, None)
    }

    /// Starts a call as [`Host::call`] does. `update` is the number of earlier losses in the step, if this is a call of
    /// [`Recipe::loss`](super::Recipe::loss).
    pub(super) fn call_for(&self, step: u64, update: Option<u64>) -> Arc<CallContext> {
        let context = Context {
            by_rows: self.by_rows,
            guard: self.guard(),
            profile: self.profile.clone(),
            trace: self.trace.clone().map(|trace| trace as _),
        };
        CallContext::new(context, self.seed, step, update)
    }

    /// Returns the same host with one guard for all calls, by which another thread can cancel the running call.
    pub fn with_guard(self, guard: Arc<Guard>) -> Host {
        let guard = Some(guard);
        Host { guard, ..self }
    }

    /// Returns the guard of the next call: the host's guard or, if the host has none, a new guard.
    pub fn guard(&self) -> Arc<Guard> {
        let new = || self.guard_for(self.limits.time);
        self.guard.clone().unwrap_or_else(new)
    }

    /// Makes a guard with the host's memory limit and the given time limit.
    pub(crate) fn guard_for(&self, time: Duration) -> Arc<Guard> {
        Guard::sharing(&self.spare, Some(time), self.limits.memory)
    }
}
