//! Executors: what computes a plan.

mod cells;
mod elementwise;
mod fused;
mod kind;
pub(crate) mod moments;
mod naive;
mod reduce;
pub(crate) mod scan;
pub(crate) mod tokens;
#[cfg(feature = "torch")]
mod torch;

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use reduce::finish;

use super::error::{TensorError, TensorErrorKind};
use super::exp::{exp, exp_f32};
use super::{Context, Plan, Value};
use crate::batch::{FloatBuffer, Rows, TokenValues};
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// What computes the tensors of scripts. On the CPU, all but libtorch give the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Executor {
    /// By libtorch where token columns lie on a GPU, which takes the feature `torch`; fused otherwise.
    #[default]
    Auto,
    /// Token values tile by tile, through all operations between two reductions at once.
    Fused,
    /// Each operation in full, one after the other: the oracle that others are tested against.
    Naive,
    /// Token values by libtorch, where the columns lie, or on the GPU where there is one: within rounding of the others.
    #[cfg(feature = "torch")]
    Torch,
}

impl Executor {
    /// The names that [`Executor::from_str`] takes.
    pub const NAMES: [&str; 4] = ["auto", "fused", "naive", "torch"];

    /// Whether results on the CPU have the bits that the others' have, which libtorch's have not.
    pub(crate) fn is_exact(self) -> bool {
        match self {
            Executor::Auto | Executor::Fused | Executor::Naive => true,
            #[cfg(feature = "torch")]
            Executor::Torch => false,
        }
    }
}

impl FromStr for Executor {
    type Err = Diagnostic;

    fn from_str(name: &str) -> Result<Self, Diagnostic> {
        match name {
            "auto" => Ok(Executor::Auto),
            "fused" => Ok(Executor::Fused),
            "naive" => Ok(Executor::Naive),
            #[cfg(feature = "torch")]
            "torch" => Ok(Executor::Torch),
            #[cfg(not(feature = "torch"))]
            "torch" => {
                let help = "`cargo build --release --features torch` builds one that has it: README, \"A language model\", says where libtorch comes from";
                Err(Diagnostic::error("this advlab is built without libtorch").with_help(help))
            }
            other => Err(Diagnostic::error(format!(
                "there is no executor \"{other}\": {}",
                suggest::did_you_mean(other, Executor::NAMES)
            ))),
        }
    }
}

/// Whether a token column lies on a GPU.
#[cfg(feature = "torch")]
pub(crate) fn is_on_gpu(values: &TokenValues) -> bool {
    torch::of_column(values).is_some_and(|tensor| tensor.device().is_cuda())
}

/// Never, without libtorch.
#[cfg(not(feature = "torch"))]
pub(crate) fn is_on_gpu(_: &TokenValues) -> bool {
    false
}

/// A padded array of the caller's for the values of a plan's first output.
pub(crate) struct Sink<'a> {
    pub(crate) rows: Rows<'a>,
    /// Whether all values are finite, once an executor has written them.
    pub(crate) is_finite: Option<bool>,
}

impl Context {
    /// Computes the values of a plan's steps, in their order. A step's value may be left out, but that of an output of
    /// the plan only where it was written into the sink.
    ///
    /// # Errors
    /// [`TensorError`] where values do not allow an operation, or where the guard says to stop.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        sink: Option<&mut Sink<'_>>,
    ) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
        let found = match self.executor {
            Executor::Naive => return naive::run(plan, self),
            #[cfg(feature = "torch")]
            Executor::Torch => torch::run(plan, self),
            #[cfg(feature = "torch")]
            Executor::Auto if torch::reads_gpu(plan) => torch::run(plan, self),
            Executor::Auto | Executor::Fused => fused::run(plan, self, sink),
        };
        found.or_else(|error| match error.kind {
            // Of several errors that of the first operation is told, as by the naive executor.
            TensorErrorKind::Value(_) => naive::run(plan, self),
            _ => Err(error),
        })
    }
}

/// The precision of token values.
pub(crate) trait Precision: Copy + Default + PartialOrd + Send + Sync + 'static {
    fn narrow(value: f64) -> Self;
    fn widen(self) -> f64;
    /// e to the power of x, to an ulp of this precision.
    fn exp(x: f64) -> f64;
    fn wrap(values: Vec<Self>) -> FloatBuffer;
    fn slice(buffer: &FloatBuffer) -> Option<&[Self]>;
    /// The next value towards infinity.
    fn next_up(self) -> Self;
    /// The least value that is not below a bound.
    fn at_least(bound: f64) -> Self {
        let narrow = Self::narrow(bound);
        match narrow.widen() < bound {
            true => narrow.next_up(),
            false => narrow,
        }
    }
    /// Padded rows hold f32.
    fn of_rows(values: &mut [f32]) -> Option<&mut [Self]>;
}

impl Precision for f32 {
    fn narrow(value: f64) -> f32 {
        // Rounds to the nearest f32: what "f32 token tensors" means.
        value as f32
    }
    fn widen(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn exp(x: f64) -> f64 {
        f64::from(exp_f32(x as f32))
    }
    fn wrap(values: Vec<f32>) -> FloatBuffer {
        values.into()
    }
    fn slice(buffer: &FloatBuffer) -> Option<&[f32]> {
        match buffer {
            FloatBuffer::F32(values) => Some(values),
            FloatBuffer::F64(_) => None,
        }
    }
    fn next_up(self) -> f32 {
        f32::next_up(self)
    }
    fn of_rows(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
    }
}

impl Precision for f64 {
    fn narrow(value: f64) -> f64 {
        value
    }
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn exp(x: f64) -> f64 {
        exp(x)
    }
    fn wrap(values: Vec<f64>) -> FloatBuffer {
        values.into()
    }
    fn slice(buffer: &FloatBuffer) -> Option<&[f64]> {
        match buffer {
            FloatBuffer::F64(values) => Some(values),
            FloatBuffer::F32(_) => None,
        }
    }
    fn next_up(self) -> f64 {
        f64::next_up(self)
    }
    fn of_rows(_: &mut [f32]) -> Option<&mut [f64]> {
        None
    }
}

/// How many values an elementwise loop goes through at once, in several vectors.
const STRIDE: usize = 64;

/// The stretches that an elementwise loop goes over, each with how many of its values were in the one before. What is left
/// behind whole strides, which a compiled loop would go through one by one, is done together with some of those before it.
#[inline(always)]
pub(crate) fn in_strides(len: usize, mut of: impl FnMut(Range<usize>, usize)) {
    let rest = len % STRIDE;
    if len < STRIDE || rest == 0 {
        return of(0..len, 0);
    }
    of(0..len - rest, 0);
    of(len - STRIDE..len, STRIDE - rest);
}

/// About how many values one task computes: some 10 microseconds of work, and the grain at which a guard is looked at.
pub(crate) const BLOCK: usize = 1 << 14;
