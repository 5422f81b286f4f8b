//! The host: what the calls of recipes share, such as functions, limits and a seed. `load.rs` loads recipes with it.

use std::sync::Arc;
use std::time::Duration;

use super::call::CallContext;
use super::functions::Functions;
use super::kernels::Native;
use super::limits::Limits;
use crate::batch::large::SpareMemory;
use crate::tensor::profile::Profile;
use crate::tensor::{Context, Guard, Trace};

/// Loads recipes, and holds their shared data: functions, limits, a seed. The seed is 0 unless it is set.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub(crate) functions: Functions,
    limits: Limits,
    seed: u64,
    /// Whether results at token level are written as the rows of an array [B, T].
    pub(super) by_rows: bool,
    profile: Option<Arc<Profile>>,
    trace: Option<Arc<Trace>>,
    /// The kernels of built-ins.
    pub(super) native: Native,
    /// The guard of all calls; if there is none, each call has a guard of its own.
    guard: Option<Arc<Guard>>,
    /// Memory that earlier calls no longer use, for the next call.
    spare: SpareMemory,
}

impl Host {
    /// A host with the default limits and the seed 0.
    pub fn new() -> Host {
        Host::default()
    }

    /// The same host with other limits.
    pub fn with_limits(self, limits: Limits) -> Host {
        Host { limits, ..self }
    }

    /// The limits of one call.
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

    /// The same host for callers that take results by [`Computed::into_rows`](crate::batch::Computed::into_rows): the values are
    /// written straight into the rows, instead of being copied there.
    pub fn with_padded_results(self) -> Host {
        let by_rows = true;
        Host { by_rows, ..self }
    }

    /// The same host, which records the time of computations in a profile.
    pub fn with_profile(self, profile: Arc<Profile>) -> Host {
        let profile = Some(profile);
        Host { profile, ..self }
    }

    /// The same host, which notes the calls of scripts in a trace.
    pub(crate) fn with_trace(self, trace: &Arc<Trace>) -> Host {
        let trace = Some(trace.clone());
        Host { trace, ..self }
    }

    /// The same host with kernels for the hooks of built-ins. A kernel's results have the same bits as the script's.
    pub fn with_native(self, native: &Native) -> Host {
        let native = native.clone();
        Host { native, ..self }
    }

    /// A call at a step, under a guard of its own unless the host has a guard for all calls.
    pub(crate) fn call(&self, step: u64) -> Arc<CallContext> {
        self.call_under(&self.guard(), step, None)
    }

    /// A call at a step, under a guard. `update` is the index of the step's loss computation.
    pub(super) fn call_under(
        &self,
        guard: &Arc<Guard>,
        step: u64,
        update: Option<u64>,
    ) -> Arc<CallContext> {
        let context = Context {
            by_rows: self.by_rows,
            guard: guard.clone(),
            profile: self.profile.clone(),
            trace: self.trace.clone().map(|trace| trace as _),
        };
        CallContext::new(context, self.seed, step, update)
    }

    /// The same host with one guard for all calls: the holder of the guard can cancel the running call.
    pub fn with_guard(self, guard: Arc<Guard>) -> Host {
        let guard = Some(guard);
        Host { guard, ..self }
    }

    /// The guard of the next call: the host's, or a new one.
    pub fn guard(&self) -> Arc<Guard> {
        let new = || self.guard_for(self.limits.time);
        self.guard.clone().unwrap_or_else(new)
    }

    /// A guard with the host's limit on memory and the given limit on time.
    pub(crate) fn guard_for(&self, time: Duration) -> Arc<Guard> {
        Guard::sharing(&self.spare, Some(time), self.limits.memory)
    }
}
