//! The naive executor's elementwise rows, with broadcasting from coarser levels, and the reading of columns.

use std::ops::Range;

use ndarray::ArrayView2;

use super::{Element, fill};
use crate::batch::{Floats, Layout, Row, TokenStore};
use crate::tensor::error::{TensorError, TensorErrorKind};
use crate::tensor::op::{Kernel, Op};
use crate::tensor::{Guard, Level, Value};

/// An argument: its values, and the layout that they lie over.
pub(super) struct Operand<'a> {
    pub(super) value: &'a Value,
    pub(super) layout: &'a Layout,
}

/// An argument as one row of the result sees it.
enum Source<'a> {
    Constant(f64),
    Narrow(&'a [f32]),
    Wide(&'a [f64]),
    /// A group value for each response: groups may be interleaved.
    Gathered(&'a Floats, &'a Layout),
}

impl Source<'_> {
    fn at(&self, place: usize) -> f64 {
        match self {
            Source::Constant(value) => *value,
            Source::Narrow(values) => f64::from(values[place]),
            Source::Wide(values) => values[place],
            Source::Gathered(values, layout) => values.get(layout.group_of(place)),
        }
    }
}

fn slice(floats: &Floats, range: Range<usize>) -> Source<'_> {
    match floats {
        Floats::F32(values) => Source::Narrow(&values[range]),
        Floats::F64(values) => Source::Wide(&values[range]),
    }
}

impl<'a> Operand<'a> {
    fn row(&self, level: Level, row: usize, length: usize) -> Source<'a> {
        let floats = self.value.floats();
        let (value, layout) = (self.value, self.layout);
        match (level, value.level()) {
            (_, Level::Batch) => Source::Constant(value.get(0)),
            (Level::Token, Level::Token) => slice(floats, layout.tokens_of(row)),
            (Level::Token, Level::Response) => Source::Constant(value.get(row)),
            (Level::Token, Level::Group) => Source::Constant(value.get(layout.group_of(row))),
            (Level::Token, Level::Position) => {
                let start = layout.positions_of(layout.group_of(row)).start;
                slice(floats, start..start + length)
            }
            (Level::Position, Level::Position) => slice(floats, layout.positions_of(row)),
            (Level::Position, Level::Group) => Source::Constant(value.get(row)),
            (Level::Response, Level::Group) => Source::Gathered(floats, layout),
            _ => slice(floats, 0..value.len()),
        }
    }
}

/// Why a row could not be computed; where it was, is added once the first such row is known.
pub(super) enum Failure {
    Stopped(crate::tensor::Stopped),
    Value { place: usize, why: String },
}

impl From<crate::tensor::Stopped> for Failure {
    fn from(stopped: crate::tensor::Stopped) -> Self {
        Failure::Stopped(stopped)
    }
}

/// An elementwise row of the op table at `level`.
pub(super) fn map<T: Element>(
    op: &'static Op,
    args: &[Operand<'_>],
    layout: &Layout,
    level: Level,
    guard: &Guard,
) -> Result<Floats, TensorError> {
    let outcome = fill::<T, Failure>(layout, level, guard, |row, out| {
        let sources: Vec<Source<'_>> = args
            .iter()
            .map(|arg| arg.row(level, row, out.len()))
            .collect();
        match (op.kernel, &sources[..]) {
            (Kernel::One(f), [x]) => each(out, |i| f(x.at(i))),
            (Kernel::Two(f), [a, b]) => each(out, |i| f(a.at(i), b.at(i))),
            (Kernel::Three(f), [a, b, c]) => each(out, |i| f(a.at(i), b.at(i), c.at(i))),
            (Kernel::Checked(f), sources) => {
                let mut values = vec![0.0; sources.len()];
                for (i, out) in out.iter_mut().enumerate() {
                    // One value of these may take milliseconds.
                    guard.check()?;
                    for (value, source) in values.iter_mut().zip(sources) {
                        *value = source.at(i);
                    }
                    *out = T::narrow(f(&values).map_err(|why| {
                        let start = super::row_range(layout, level, row).start;
                        Failure::Value {
                            place: start + i,
                            why,
                        }
                    })?);
                }
            }
            _ => {
                unreachable!("{op:?} is elementwise and has as many arguments as its kernel takes")
            }
        }
        Ok(())
    });
    match outcome {
        Ok(values) => Ok(T::wrap(values)),
        Err(Failure::Stopped(stopped)) => Err(TensorError::new(op.name, stopped)),
        Err(Failure::Value { place, why }) => {
            let place = layout.describe(level, place);
            Err(TensorError::new(
                op.name,
                TensorErrorKind::Value { why, place },
            ))
        }
    }
}

fn each<T: Element>(out: &mut [T], f: impl Fn(usize) -> f64) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = T::narrow(f(i));
    }
}

/// The same values at a finer level.
pub(super) fn expand<T: Element>(
    arg: &Operand<'_>,
    layout: &Layout,
    level: Level,
    guard: &Guard,
) -> Result<Floats, TensorError> {
    let values = fill::<T, crate::tensor::Stopped>(layout, level, guard, |row, out| {
        let source = arg.row(level, row, out.len());
        each(out, |i| source.at(i));
        Ok(())
    });
    values
        .map(T::wrap)
        .map_err(|stopped| TensorError::new("expand", stopped))
}

/// A column's tokens that count, response by response.
pub(super) fn column(
    store: &TokenStore,
    layout: &Layout,
    guard: &Guard,
) -> Result<Floats, TensorError> {
    let read = store.read(|row| match row {
        Row::Padded32(array) => gather(&array, layout, guard),
        Row::Padded64(array) => gather(&array, layout, guard),
        Row::Compact(values) => Ok(values.clone()),
    });
    match read {
        Ok(Ok(floats)) => Ok(floats),
        Ok(Err(stopped)) => Err(TensorError::new("column", stopped)),
        Err(_) => Err(TensorError::new("column", TensorErrorKind::BatchGone)),
    }
}

fn gather<T: Element>(
    array: &ArrayView2<'_, T>,
    layout: &Layout,
    guard: &Guard,
) -> Result<Floats, crate::tensor::Stopped> {
    let values = fill(layout, Level::Token, guard, |response, out: &mut [T]| {
        let row = array.row(response);
        let mut place = 0;
        for run in layout.runs(response) {
            let out = &mut out[place..place + run.len as usize];
            match row.as_slice() {
                Some(row) => out.copy_from_slice(&row[run.columns()]),
                None => run
                    .columns()
                    .zip(out)
                    .for_each(|(column, out)| *out = row[column]),
            }
            place += run.len as usize;
        }
        Ok::<(), crate::tensor::Stopped>(())
    })?;
    Ok(T::wrap(values))
}
