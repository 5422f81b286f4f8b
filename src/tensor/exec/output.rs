//! The memory that keeps token values after the pass that computes them. It is divided among the pass's blocks and tiles.

use std::mem::take;
use std::sync::Arc;

use super::execution::Execution;
use super::sums::Moments;
use crate::batch::large::Large;
use crate::batch::{Buffer, Computed, Layout, Level};
use crate::tensor::error::{TensorError, TensorErrorKind};
use crate::tensor::guard::Reservation;

/// The memory for the token values of a step.
pub(super) enum Output {
    F32(Large<f32>),
    F64(Large<f64>),
    /// The rows of an array [B, T].
    Rows(Large<f32>),
}

impl Output {
    /// Allocates the memory for a step's values and reserves it in the guard.
    pub(super) fn new(
        execution: &Execution<'_>,
        step: usize,
        layout: &Layout,
    ) -> Result<(Output, Reservation), TensorError> {
        let (tensor, spare) = (execution.tensor(step), execution.context.guard.spare());
        let by_rows = execution.rows_of == Some(step) && !tensor.is_f64() && layout.is_padded();
        let count = if by_rows {
            layout.responses() * layout.width()
        } else {
            layout.tokens()
        };
        let reserved = execution.reserve(step, count)?;
        let memory = if tensor.is_f64() {
            spare.numbers(count).map(Output::F64)
        } else if by_rows {
            spare.numbers(count).map(Output::Rows)
        } else {
            spare.numbers(count).map(Output::F32)
        };
        let memory = memory.map_err(|_| {
            let why = format!("the system has no memory left for its {count} values");
            execution.error(step, TensorErrorKind::Machine(why))
        })?;
        Ok((memory, reserved))
    }

    pub(super) fn whole(&mut self) -> Part<'_> {
        match self {
            Output::F32(values) => Part::F32(values),
            Output::F64(values) => Part::F64(values),
            Output::Rows(rows) => Part::Rows(rows),
        }
    }

    pub(super) fn computed(self, layout: Arc<Layout>) -> Computed {
        match self {
            Output::F32(values) => Computed::new(layout, Level::Token, Buffer::new(values)),
            Output::F64(values) => Computed::new(layout, Level::Token, Buffer::new(values)),
            Output::Rows(rows) => Computed::of_rows(layout, rows),
        }
    }
}

/// The part of an output that belongs to some consecutive responses.
pub(super) enum Part<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    Rows(&'a mut [f32]),
}

/// The outputs of a pass, or the parts of them that a block or a tile writes.
pub(super) struct Parts<'a> {
    pub(super) outputs: Vec<Part<'a>>,
    /// For each reduction, the moments of each response's tokens.
    pub(super) moments: Vec<&'a mut [Moments]>,
}

impl<'a> Parts<'a> {
    /// Splits off the parts of the first `responses` responses, which have `tokens` tokens.
    pub(super) fn split(&mut self, responses: usize, tokens: usize, width: usize) -> Parts<'a> {
        let outputs = self.outputs.iter_mut().map(|part| match part {
            Part::F32(values) => Part::F32(first(values, tokens)),
            Part::F64(values) => Part::F64(first(values, tokens)),
            Part::Rows(rows) => Part::Rows(first(rows, responses * width)),
        });
        let moments = self.moments.iter_mut().map(|of| first(of, responses));
        Parts {
            outputs: outputs.collect(),
            moments: moments.collect(),
        }
    }
}

/// Splits off the first `count` values.
fn first<'a, T>(all: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (first, rest) = take(all).split_at_mut(count);
    *all = rest;
    first
}
