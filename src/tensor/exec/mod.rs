//! Executors: what computes a plan.

mod cells;
mod coarse;
mod kernels;
pub(crate) mod moments;
mod pass;
mod reduce;
mod run;
pub(crate) mod scan;
mod tile;
pub(crate) mod tokens;

use std::ops::Range;
use std::sync::Arc;

pub(crate) use reduce::finish;

use super::error::{TensorError, TensorErrorKind};
use super::exp::{exp, exp_f32};
use super::{Context, Plan, Stopped, Value};
use crate::batch::large::{Large, Plain};
use crate::batch::{Buffer, FloatBuffer, Layout};

/// The ways to compute the tensors of scripts. Both give the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executor {
    /// Token values tile by tile, through all operations between two reductions at once.
    #[default]
    Fused,
    /// Each operation separately, in order: finds the first error of several.
    Naive,
}

/// Why values could not be computed.
enum Failure {
    Stopped(Stopped),
    /// A step of the plan rejects a value, at an index of its level.
    Value {
        step: usize,
        index: usize,
        why: String,
    },
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Failure::Stopped(stopped)
    }
}

impl Context {
    /// Computes the values of a plan's steps, in their order. The value of a step that is no output may be left out.
    ///
    /// # Errors
    /// [`TensorError`] if values do not allow an operation, or if the guard stops the computation.
    pub(crate) fn run(&self, plan: &Plan) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
        let is_fused = self.executor == Executor::Fused;
        run::run(plan, self, is_fused).or_else(|error| match error.kind {
            // If several operations fail, the first one's error counts, found by computing one operation at a time. That
            // takes more memory: if there is not enough, the error stays what it was.
            TensorErrorKind::Value(_) if is_fused => {
                run::run(plan, self, false).map_err(|first| match first.kind {
                    TensorErrorKind::Value(_) => first,
                    _ => error,
                })
            }
            _ => Err(error),
        })
    }
}

/// The precision of token values.
pub(crate) trait Precision: Plain + PartialOrd {
    fn narrow(value: f64) -> Self;
    fn widen(self) -> f64;
    /// e to the power of x, to an ulp of this precision.
    fn exp(x: f64) -> f64;
    /// Token values, one after another or as the rows of an array [B, T]; an f64 array has no such rows.
    fn wrap(values: Large<Self>, rows_of: Option<&Arc<Layout>>) -> FloatBuffer;
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
    fn wrap(values: Large<f32>, rows_of: Option<&Arc<Layout>>) -> FloatBuffer {
        match rows_of {
            Some(layout) => FloatBuffer::of_rows(layout, values),
            None => Buffer::new(values).into(),
        }
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
    fn wrap(values: Large<f64>, _: Option<&Arc<Layout>>) -> FloatBuffer {
        Buffer::new(values).into()
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
}

/// How many values an elementwise loop goes through at once, in several vectors.
const STRIDE: usize = 64;

/// The stretches of an elementwise loop, each with the number of its values that the stretch before contains. The values after
/// the last whole stride, which a compiled loop would do one by one, are done together with some values before them.
#[inline(always)]
pub(crate) fn in_strides(len: usize, mut of: impl FnMut(Range<usize>, usize)) {
    let rest = len % STRIDE;
    if len < STRIDE || rest == 0 {
        return of(0..len, 0);
    }
    of(0..len - rest, 0);
    of(len - STRIDE..len, STRIDE - rest);
}

/// About the number of values that one task computes: some 10 microseconds of work, after which the guard is checked. Unit tests
/// divide small batches into many blocks.
pub(crate) const BLOCK: usize = if cfg!(test) { 1 << 10 } else { 1 << 14 };
