//! The two precisions of token values.

use std::ops::Range;
use std::sync::Arc;

use super::exp::{exp, exp_f32};
use crate::batch::large::{Large, Plain};
use crate::batch::{Buffer, Computed, FloatBuffer, Layout, Level};

/// A precision of token values.
pub(crate) trait Precision: Plain + PartialOrd {
    fn narrow(value: f64) -> Self;
    fn widen(self) -> f64;
    /// Returns e to the power of x, with an error of at most one ulp of this precision.
    fn exp(x: f64) -> f64;
    /// Makes a result from token values. If `by_rows` is true, f32 values (but not f64 values) are the rows of an array [B, T].
    fn computed(values: Large<Self>, layout: Arc<Layout>, by_rows: bool) -> Computed;
    fn slice(buffer: &FloatBuffer) -> Option<&[Self]>;
    /// Returns the next larger value.
    fn next_up(self) -> Self;
    /// Returns the least value that is not below a bound.
    fn at_least(bound: f64) -> Self {
        let narrow = Self::narrow(bound);
        if narrow.widen() < bound {
            narrow.next_up()
        } else {
            narrow
        }
    }
}

impl Precision for f32 {
    fn narrow(value: f64) -> f32 {
        // Rounds to the nearest f32, which is the precision of f32 token tensors.
        value as f32
    }
    fn widen(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn exp(x: f64) -> f64 {
        f64::from(exp_f32(x as f32))
    }
    fn computed(values: Large<f32>, layout: Arc<Layout>, by_rows: bool) -> Computed {
        if by_rows {
            Computed::of_rows(layout, values)
        } else {
            Computed::new(layout, Level::Token, Buffer::new(values))
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
    fn computed(values: Large<f64>, layout: Arc<Layout>, _: bool) -> Computed {
        Computed::new(layout, Level::Token, Buffer::new(values))
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

/// The number of values that one iteration of an elementwise loop computes, in several vectors.
const STRIDE: usize = 64;

/// Runs an elementwise loop over `len` values. If `len` is above 64 and not a multiple of 64, the loop runs over a multiple of 64
/// values and then over the last 64 values: computing some values twice is faster than computing the remaining values singly.
#[inline(always)]
pub(crate) fn in_strides(len: usize, mut of: impl FnMut(Range<usize>)) {
    let rest = len % STRIDE;
    if len < STRIDE || rest == 0 {
        return of(0..len);
    }
    of(0..len - rest);
    of(len - STRIDE..len);
}
