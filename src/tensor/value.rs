//! The values of a computed tensor.

use std::sync::Arc;

use super::guard::Reservation;
use crate::batch::{Computed, FloatBuffer, Layout, Level};

/// The values of a computed tensor: one per cell of its level, in the layout's order.
///
/// Token values are f32 or f64; all coarser ones are f64.
#[derive(Debug)]
pub struct Value {
    level: Level,
    buffer: FloatBuffer,
    /// Whether an executor has found all values to be finite.
    is_finite: bool,
    /// The values' share of the guard's memory; dropped with the values.
    _reservation: Option<Reservation>,
}

impl Value {
    pub(crate) fn new(
        level: Level,
        buffer: FloatBuffer,
        reservation: Option<Reservation>,
    ) -> Arc<Self> {
        Arc::new(Value {
            level,
            buffer,
            is_finite: false,
            _reservation: reservation,
        })
    }

    /// Values that an executor has checked for being finite.
    pub(crate) fn checked(
        level: Level,
        buffer: FloatBuffer,
        reservation: Reservation,
        is_finite: bool,
    ) -> Arc<Self> {
        Arc::new(Value {
            level,
            buffer,
            is_finite,
            _reservation: Some(reservation),
        })
    }

    pub(crate) fn number(number: f64) -> Arc<Self> {
        Value::new(Level::Batch, vec![number].into(), None)
    }

    /// The level that the values are at.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The values themselves.
    pub fn buffer(&self) -> &FloatBuffer {
        &self.buffer
    }

    /// Joins the values with `layout`, which must be the one they were computed for.
    pub(crate) fn over(&self, layout: &Arc<Layout>) -> Computed {
        Computed::new(layout.clone(), self.level, self.buffer.clone())
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there is no value: a token tensor of a batch without tokens.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The value at an index, widened to f64.
    pub fn get(&self, index: usize) -> f64 {
        self.buffer.get(index)
    }

    /// All values, widened to f64.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.buffer.iter()
    }

    pub(crate) fn first_not_finite(&self) -> Option<(usize, f64)> {
        if self.is_finite {
            return None;
        }
        self.iter()
            .enumerate()
            .find(|(_, value)| !value.is_finite())
    }
}
