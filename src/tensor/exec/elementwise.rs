//! The naive executor's elementwise rows, with broadcasting from coarser levels, and the reading of columns.

use std::ops::Range;

use super::Precision;
use super::fused::Loop;
use super::tokens::{Location, Token, fill, row_range};
use crate::batch::{FloatBuffer, Layout, TokenValues};
use crate::tensor::error::{TensorError, TensorErrorKind};
use crate::tensor::op::{Kernel, Op};
use crate::tensor::{Guard, Level, Stopped, Value};

/// An argument: its values, and the layout that they lie over.
pub(super) struct Operand<'a> {
    pub(super) value: &'a Value,
    pub(super) layout: &'a Layout,
}

/// An argument as one row of the result sees it.
enum OperandRow<'a> {
    Constant(f64),
    F32(&'a [f32]),
    F64(&'a [f64]),
    /// A value for each finer cell, by the coarser one that it lies in: groups may be interleaved.
    Gathered(&'a FloatBuffer, &'a Layout, fn(&Layout, usize) -> usize),
}

/// How many values are widened at once: few enough to stay in the nearest cache, many enough that finding out what kind
/// of source they come from costs nothing.
const CHUNK: usize = 256;

impl OperandRow<'_> {
    /// The values from `start` on, widened, as many as there is room for.
    fn read(&self, start: usize, into: &mut [f64]) {
        let indices = start..start + into.len();
        match self {
            OperandRow::Constant(value) => into.fill(*value),
            OperandRow::F32(values) => {
                for (into, value) in into.iter_mut().zip(&values[indices]) {
                    *into = f64::from(*value);
                }
            }
            OperandRow::F64(values) => into.copy_from_slice(&values[indices]),
            OperandRow::Gathered(values, layout, cell_of) => {
                for (into, index) in into.iter_mut().zip(indices) {
                    *into = values.get(cell_of(layout, index));
                }
            }
        }
    }
}

fn slice(buffer: &FloatBuffer, range: Range<usize>) -> OperandRow<'_> {
    match buffer {
        FloatBuffer::F32(values) => OperandRow::F32(&values[range]),
        FloatBuffer::F64(values) => OperandRow::F64(&values[range]),
    }
}

impl<'a> Operand<'a> {
    fn row(&self, level: Level, row: usize, length: usize) -> OperandRow<'a> {
        let buffer = self.value.buffer();
        let (value, layout) = (self.value, self.layout);
        match (level, value.level()) {
            (_, Level::Batch) => OperandRow::Constant(value.get(0)),
            (Level::Token, Level::Token) => slice(buffer, layout.tokens_of(row)),
            (Level::Token, Level::Response) => OperandRow::Constant(value.get(row)),
            (Level::Token, Level::Group) => OperandRow::Constant(value.get(layout.group_of(row))),
            (Level::Token, Level::Position) => {
                let start = layout.positions_of(layout.group_of(row)).start;
                slice(buffer, start..start + length)
            }
            (Level::Position, Level::Position) => slice(buffer, layout.positions_of(row)),
            (Level::Position, Level::Group) => OperandRow::Constant(value.get(row)),
            (Level::Token, Level::Trajectory) => {
                OperandRow::Constant(value.get(layout.trajectory_of(row)))
            }
            (Level::Response, Level::Group) => {
                OperandRow::Gathered(buffer, layout, Layout::group_of)
            }
            (Level::Response, Level::Trajectory) => {
                OperandRow::Gathered(buffer, layout, Layout::trajectory_of)
            }
            (Level::Trajectory, Level::Group) => {
                OperandRow::Gathered(buffer, layout, Layout::group_of_trajectory)
            }
            _ => slice(buffer, 0..value.len()),
        }
    }
}

/// Why a row could not be computed; where it was, is added once the first such row is known.
pub(super) enum Failure {
    Stopped(Stopped),
    Value { index: usize, why: String },
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Failure::Stopped(stopped)
    }
}

pub(super) fn map<T: Precision>(
    op: &'static Op,
    args: &[Operand<'_>],
    layout: &Layout,
    level: Level,
    guard: &Guard,
) -> Result<FloatBuffer, TensorError> {
    let outcome = fill::<T, Failure>(layout, level, guard, |row, out| {
        let sources: Vec<OperandRow<'_>> = args
            .iter()
            .map(|arg| arg.row(level, row, out.len()))
            .collect();
        let mut read = vec![[0.0; CHUNK]; sources.len()];
        for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
            for (source, read) in sources.iter().zip(&mut read) {
                source.read(chunk * CHUNK, &mut read[..out.len()]);
            }
            if let Kernel::Checked(f) = op.kernel {
                let start = row_range(layout, level, row).start + chunk * CHUNK;
                checked(f, &read, out, start, guard)?;
            } else {
                unchecked(op, &read, out);
            }
        }
        Ok(())
    });
    match outcome {
        Ok(values) => Ok(T::wrap(values)),
        Err(Failure::Stopped(stopped)) => Err(TensorError::new(op.name, stopped)),
        Err(Failure::Value { index, why }) => {
            let location = layout.describe(level, index);
            let kind = TensorErrorKind::Value(format!("{why}, at {location}"));
            Err(TensorError::new(op.name, kind))
        }
    }
}

fn unchecked<T: Precision>(op: &'static Op, read: &[[f64; CHUNK]], out: &mut [T]) {
    let length = out.len();
    match (op.kernel, read) {
        (Kernel::One(f), [a]) => f.visit(Loop(out, (&a[..length],))),
        (Kernel::Two(f), [a, b]) => f.visit(Loop(out, (&a[..length], &b[..length]))),
        (Kernel::Three(f), [a, b, c]) => {
            f.visit(Loop(out, (&a[..length], &b[..length], &c[..length])));
        }
        _ => unreachable!("{op:?} is elementwise and has as many arguments as its kernel takes"),
    }
}

/// A kernel that may refuse values; `start` is the index of the first.
fn checked<T: Precision>(
    f: fn(&[f64]) -> Result<f64, String>,
    read: &[[f64; CHUNK]],
    out: &mut [T],
    start: usize,
    guard: &Guard,
) -> Result<(), Failure> {
    for (i, out) in out.iter_mut().enumerate() {
        // One value of these may take milliseconds.
        guard.check()?;
        let values: Vec<f64> = read.iter().map(|values| values[i]).collect();
        let index = start + i;
        *out = T::narrow(f(&values).map_err(|why| Failure::Value { index, why })?);
    }
    Ok(())
}

pub(super) fn expand<T: Precision>(
    arg: &Operand<'_>,
    layout: &Layout,
    level: Level,
    guard: &Guard,
) -> Result<FloatBuffer, TensorError> {
    let values = fill::<T, Stopped>(layout, level, guard, |row, out| {
        let source = arg.row(level, row, out.len());
        let mut read = [0.0; CHUNK];
        for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
            source.read(chunk * CHUNK, &mut read[..out.len()]);
            for (out, value) in out.iter_mut().zip(read) {
                *out = T::narrow(value);
            }
        }
        Ok(())
    });
    values
        .map(T::wrap)
        .map_err(|stopped| TensorError::new("expand", stopped))
}

/// A column's tokens that count, response by response.
pub(super) fn column(
    values: &TokenValues,
    layout: &Layout,
    guard: &Guard,
) -> Result<FloatBuffer, TensorError> {
    let read = match values {
        TokenValues::Compact(values) => return Ok(values.clone()),
        values if values.is_f64() => read::<f64>(values, layout, guard),
        values => read::<f32>(values, layout, guard),
    };
    read.map_err(|stopped| TensorError::new("column", stopped))
}

fn read<T: Token>(
    values: &TokenValues,
    layout: &Layout,
    guard: &Guard,
) -> Result<FloatBuffer, Stopped> {
    let values = fill(layout, Level::Token, guard, |response, out: &mut [T]| {
        let location = Location {
            layout,
            responses: response..response + 1,
            tokens: layout.tokens_of(response),
        };
        out.copy_from_slice(T::read(values, &location, &mut Vec::new()));
        Ok::<(), Stopped>(())
    })?;
    Ok(T::wrap(values))
}
