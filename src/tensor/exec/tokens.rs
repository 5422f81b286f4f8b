//! Token columns read where they lie, and rows shared out to threads: for executors and for kernels.

use std::ops::Range;

use rayon::prelude::*;

use super::{BLOCK, Precision};
use crate::batch::{self, Layout, Padded, Rows, TokenValues};
use crate::tensor::{Guard, Level, Stopped};

/// Where some neighbouring tokens lie in padded columns.
pub(crate) struct Location<'a> {
    pub(crate) layout: &'a Layout,
    /// The responses that they belong to.
    pub(crate) responses: Range<usize>,
    pub(crate) tokens: Range<usize>,
}

impl Location<'_> {
    /// The columns of each stretch of a response's tokens.
    fn stretches(&self, response: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let cut = |(tokens, columns): (Range<usize>, Range<usize>)| {
            let start = tokens.start.max(self.tokens.start);
            let end = tokens.end.min(self.tokens.end);
            let column = |token: usize| columns.start + (token - tokens.start);
            (start < end).then(|| column(start)..column(end))
        };
        self.layout.stretches(response).filter_map(cut)
    }

    /// The response and the columns, where the tokens are those of one stretch.
    pub(crate) fn stretch(&self) -> Option<(usize, Range<usize>)> {
        if self.responses.len() != 1 {
            return None;
        }
        let response = self.responses.start;
        let mut stretches = self.stretches(response);
        match (stretches.next(), stretches.next()) {
            (Some(columns), None) => Some((response, columns)),
            _ => None,
        }
    }

    /// A padded array's values where they lie, or gathered if they do not lie one after another.
    fn read<'t, T: batch::Element<Wide = T>>(
        &self,
        array: &'t Padded<T>,
        gathered: &'t mut Vec<T>,
    ) -> &'t [T] {
        let stretch = self.stretch();
        let row = stretch.and_then(|(response, columns)| array.row(response, columns));
        row.unwrap_or_else(|| self.gather(array, gathered))
    }

    /// Copies the tokens' values between rows of a padded array, the first of which is that of a response, and a tile.
    pub(crate) fn copy(
        &self,
        rows: &mut Rows<'_>,
        first: usize,
        mut f: impl FnMut(&mut [f32], Range<usize>),
    ) {
        let mut next = 0;
        for response in self.responses.clone() {
            for columns in self.stretches(response) {
                let tile = next..next + columns.len();
                next = tile.end;
                f(&mut rows.row(response - first)[columns], tile);
            }
        }
    }

    fn gather<'t, T: batch::Element>(
        &self,
        array: &Padded<T>,
        into: &'t mut Vec<T::Wide>,
    ) -> &'t [T::Wide] {
        into.clear();
        for response in self.responses.clone() {
            for columns in self.stretches(response) {
                match array.row(response, columns.clone()) {
                    Some(row) => into.extend(row.iter().map(|value| value.widen())),
                    None => into.extend(array.values(response, columns).map(batch::Element::widen)),
                }
            }
        }
        into
    }
}

/// A precision that token columns are read in.
pub(crate) trait Token: Precision {
    /// The values of a column of this precision, gathered where they do not lie in one stretch.
    fn read<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<Self>,
    ) -> &'t [Self] {
        let TokenValues::Compact(values) = column else {
            return Self::of_padded(column, location, gathered);
        };
        match Self::slice(values) {
            Some(values) => &values[location.tokens.clone()],
            None => unreachable!("a column is read in its own precision"),
        }
    }

    /// A response's values of a padded column of this very type, where they lie one after another.
    fn padded_row(column: &TokenValues, response: usize, columns: Range<usize>) -> Option<&[Self]>;

    /// [`Token::read`] of a padded column.
    fn of_padded<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<Self>,
    ) -> &'t [Self];
}

impl Token for f32 {
    fn padded_row(column: &TokenValues, response: usize, columns: Range<usize>) -> Option<&[f32]> {
        match column {
            TokenValues::F32(array) => array.row(response, columns),
            _ => None,
        }
    }

    fn of_padded<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<f32>,
    ) -> &'t [f32] {
        match column {
            TokenValues::F16(array) => location.gather(array, gathered),
            TokenValues::Bf16(array) => location.gather(array, gathered),
            TokenValues::F32(array) => location.read(array, gathered),
            _ => unreachable!("an f64 column has f64 tokens, a compact one is no padded one"),
        }
    }
}

impl Token for f64 {
    fn padded_row(column: &TokenValues, response: usize, columns: Range<usize>) -> Option<&[f64]> {
        match column {
            TokenValues::F64(array) => array.row(response, columns),
            _ => None,
        }
    }

    fn of_padded<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<f64>,
    ) -> &'t [f64] {
        match column {
            TokenValues::F64(array) => location.read(array, gathered),
            _ => unreachable!("only an f64 column has f64 tokens"),
        }
    }
}

/// Memory that results go into, row by row.
pub(crate) trait Share: Send {
    /// Cuts off what the first rows write, which have some values.
    fn split(&mut self, rows: usize, values: usize) -> Self;
}

impl<T: Send> Share for &mut [T] {
    fn split(&mut self, _: usize, values: usize) -> Self {
        let (head, tail) = std::mem::take(self).split_at_mut(values);
        *self = tail;
        head
    }
}

/// Computes blocks of neighbouring rows of a level, in parallel: `of` a thread's scratch, the block's rows and their share
/// of the memory. Returns the blocks' results in their order, or the error of the first block that has one, whatever the
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

/// Computes the values of a level row by row.
pub(super) fn fill<T: Precision, E: Send + From<Stopped>>(
    layout: &Layout,
    level: Level,
    guard: &Guard,
    row: impl Fn(usize, &mut [T]) -> Result<(), E> + Sync,
) -> Result<Vec<T>, E> {
    let mut values = vec![T::default(); layout.size(level)];
    let each = |(): &mut (), rows: Range<usize>, mut block: &mut [T]| {
        for index in rows {
            let length = row_range(layout, level, index).len();
            row(index, block.split(1, length))?;
        }
        Ok::<(), E>(())
    };
    by_blocks((layout, level), guard, &mut values[..], || (), each)?;
    Ok(values)
}

/// The rows of a level: stretches of values that broadcasting sees as one. They are responses at the token level and
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
