//! Kernels that answer hooks of built-ins in place of their scripts: the way in, which knows no kernel itself.

mod answer;
mod imported;
mod ledger;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ndarray::ArrayViewMut2;

pub(super) use answer::{Asked, Same};
pub(super) use imported::{AROUND, Importer, offered};
use ledger::KernelLedger;
pub use ledger::Mode;

use super::batch_type::ScriptBatch;
use super::params::Setting;
use super::recipe::{Hook, Version};
use crate::batch::{Batch, Buffer, Computed, FloatBuffer, Level, Rows};
use crate::figures::time;
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
    /// The batch as the script sees it, the results of hooks before this one left aside.
    pub(super) input: &'a ScriptBatch,
}

impl HookCall<'_> {
    /// A column of the responses as the script sees it; `None` where there is none, or one at another level.
    pub(crate) fn column(&self, name: &str) -> Option<Buffer<f64>> {
        let value = self.input.column(name).ok()?.evaluate().ok()?;
        match (value.level(), value.buffer()) {
            (Level::Response, FloatBuffer::F64(values)) => Some(values.clone()),
            _ => None,
        }
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
}

/// The kernels of a host: when they answer, and what is known of them in this process.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(super) of: &'static dyn HookKernels,
    mode: Mode,
    /// The share of a step from which on a hook is worth a kernel.
    threshold: f64,
    ledger: Mutex<KernelLedger>,
}

/// The caller's array [B, T] that a result may be written into.
pub(super) type Array<'a, 'b> = Option<&'a mut ArrayViewMut2<'b, f32>>;

/// A result: its values, or the level of what was written into the caller's array.
#[derive(Debug)]
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

    /// Writes values into the array after all, where there is one.
    pub(super) fn into_array(self, array: Array<'_, '_>) -> Option<Placed> {
        let (Placed::Values(values), Some(array)) = (&self, array) else {
            return Some(self);
        };
        values.write_into(array).ok()?;
        Some(Placed::Written(values.level()))
    }
}

impl From<Placed> for Computed {
    fn from(placed: Placed) -> Computed {
        match placed {
            Placed::Values(values) => values,
            Placed::Written(_) => unreachable!("without an array, nothing is written into one"),
        }
    }
}

impl From<Placed> for Level {
    fn from(placed: Placed) -> Level {
        placed.level()
    }
}

impl From<Placed> for () {
    fn from(_: Placed) {}
}

/// A change of what answers a hook: see [`Native::changes`](crate::native::Native::changes).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelChange {
    /// The recipe's name.
    pub recipe: String,
    /// Its version.
    pub version: Version,
    /// The hook, such as `advantage`, or `passk::advantage` where the script imports it: a kernel answers it from now on,
    /// unless it disagreed.
    pub hook: String,
    /// How long the script took on the batch that both computed; `None` where a kernel answers without a comparison, with
    /// [`Mode::On`].
    pub script: Option<Duration>,
    /// How long the kernel took.
    pub kernel: Duration,
    /// The batch on which the kernel gave other bits than the script: a defect of advlab. The script's are used.
    pub disagrees_on: Option<Batch>,
}

impl fmt::Display for KernelChange {
    /// One line: which hook, and what answers it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, hook) = (&self.version, &self.hook);
        if self.disagrees_on.is_some() {
            return write!(
                f,
                "{version}: the native `{hook}` is not the script's to the last bit, and not used: a defect of advlab, please report it"
            );
        }
        let kernel = time(self.kernel);
        match self.script.map(time) {
            Some(script) => write!(
                f,
                "{version}: `{hook}` is native from here on, the same bits in {kernel} and not {script}"
            ),
            None => write!(f, "{version}: `{hook}` is native, in {kernel}"),
        }
    }
}
