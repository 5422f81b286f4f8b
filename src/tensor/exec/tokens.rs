//! Reads token columns in their own memory, and divides rows among threads: for executors and for kernels.

use std::ops::Range;

use rayon::prelude::*;

use super::{BLOCK, Precision};
use crate::batch::{self, Layout, Padded, TokenValues};
use crate::tensor::{Guard, Level, Stopped};

/// The location of the tokens of some neighbouring responses in padded columns.
pub(crate) struct Location<'a> {
    pub(crate) layout: &'a Layout,
    /// The responses that they belong to.
    pub(crate) responses: Range<usize>,
    pub(crate) tokens: Range<usize>,
}

impl Location<'_> {
    /// The columns of each stretch of a response's tokens.
    fn stretches(&self, response: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        self.layout.stretches(response).map(|(_, columns)| columns)
    }

    /// The columns, if the tokens are one stretch of one response.
    pub(crate) fn stretch(&self) -> Option<Range<usize>> {
        if self.responses.len() != 1 {
            return None;
        }
        let mut stretches = self.stretches(self.responses.start);
        stretches.next().filter(|_| stretches.next().is_none())
    }

    fn gather<T: batch::Element>(&self, array: &Padded<T>, out: &mut [T::Wide]) {
        let mut next = 0;
        for response in self.responses.clone() {
            for columns in self.stretches(response) {
                let own = out[next..next + columns.len()].iter_mut();
                next += columns.len();
                // Not through `cells`: for an unchanged row, the compiler emits a plain copy.
                match array.row(response, columns.clone()) {
                    Some(row) => own.zip(row).for_each(|(out, x)| *out = x.widen()),
                    None => own.zip(columns).for_each(|(out, column)| {
                        *out = array.get(response, column).widen();
                    }),
                }
            }
        }
    }
}

/// A precision that token columns are read in.
pub(crate) trait TokenPrecision: Precision {
    /// A response's values of a padded column of exactly this type, if they are contiguous.
    fn padded_row(column: &TokenValues, response: usize, columns: Range<usize>) -> Option<&[Self]>;

    /// A column's values in their own memory, if they are contiguous.
    fn in_place<'t>(column: &'t TokenValues, location: &Location<'_>) -> Option<&'t [Self]> {
        match column {
            TokenValues::Compact(values) => {
                Self::slice(values).map(|all| &all[location.tokens.clone()])
            }
            _ => Self::padded_row(column, location.responses.start, location.stretch()?),
        }
    }

    /// A padded column's values, one after another.
    fn gather(column: &TokenValues, location: &Location<'_>, out: &mut [Self]);
}

impl TokenPrecision for f32 {
    fn padded_row(column: &TokenValues, response: usize, columns: Range<usize>) -> Option<&[f32]> {
        match column {
            TokenValues::F32(array) => array.row(response, columns),
            _ => None,
        }
    }

    fn gather(column: &TokenValues, location: &Location<'_>, out: &mut [f32]) {
        match column {
            TokenValues::F16(array) => location.gather(array, out),
            TokenValues::Bf16(array) => location.gather(array, out),
            TokenValues::F32(array) => location.gather(array, out),
            _ => unreachable!("an f64 column has f64 tokens, a compact one is no padded one"),
        }
    }
}

impl TokenPrecision for f64 {
    fn padded_row(column: &TokenValues, response: usize, columns: Range<usize>) -> Option<&[f64]> {
        match column {
            TokenValues::F64(array) => array.row(response, columns),
            _ => None,
        }
    }

    fn gather(column: &TokenValues, location: &Location<'_>, out: &mut [f64]) {
        match column {
            TokenValues::F64(array) => location.gather(array, out),
            _ => unreachable!("only an f64 column has f64 tokens"),
        }
    }
}

/// Memory that results go into, row by row.
pub(crate) trait Share: Send {
    /// Splits off the memory of the first rows, which have `values` values.
    fn split(&mut self, rows: usize, values: usize) -> Self;
}

impl<T: Send> Share for &mut [T] {
    fn split(&mut self, _: usize, values: usize) -> Self {
        let (head, tail) = std::mem::take(self).split_at_mut(values);
        *self = tail;
        head
    }
}

/// Computes blocks of neighbouring rows of a level, in parallel: `of` gets a thread's scratch, the block's rows and their share
/// of the memory. Returns the blocks' results in order, or the error of the first block that has one, for any
/// number of threads.
pub(crate) fn by_blocks<W: Share, S, R: Send, E: Send + From<Stopped>>(
    (layout, level): (&Layout, Level),
    guard: &Guard,
    mut memory: W,
    scratch: impl Fn() -> S + Send + Sync,
    of: impl Fn(&mut S, Range<usize>, W) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let mut blocks = Vec::new();
    let (mut first, rows) = (0, rows(layout, level));
    while first < rows {
        let start = row_range(layout, level, first).start;
        let mut end = first + 1;
        // Rows without values count as well.
        while end < rows && row_range(layout, level, end).end - start + (end - first) < BLOCK {
            end += 1;
        }
        let values = row_range(layout, level, end - 1).end - start;
        blocks.push((first..end, memory.split(end - first, values)));
        first = end;
    }
    let blocks = blocks.into_par_iter();
    let done = blocks.map_init(scratch, |scratch, (rows, memory)| {
        guard.check()?;
        of(scratch, rows, memory)
    });
    let done: Vec<Result<R, E>> = done.collect();
    done.into_iter().collect()
}

/// The rows of a level: stretches of values that are separate for broadcasting. They are responses at the token level and
/// groups at the position level; the coarser levels are one row.
fn rows(layout: &Layout, level: Level) -> usize {
    match level {
        Level::Token => layout.responses(),
        Level::Position => layout.groups(),
        _ => 1,
    }
}

pub(super) fn row_range(layout: &Layout, level: Level, row: usize) -> Range<usize> {
    match level {
        Level::Token => layout.tokens_of(row),
        Level::Position => layout.positions_of(row),
        _ => 0..layout.size(level),
    }
}
