//! Reads token columns in their own memory, and divides rows among threads: for executors and for kernels.

use std::ops::Range;
use std::sync::Mutex;

use super::{BLOCK, Precision};
use crate::batch::{Layout, TokenValues};
use crate::parallel::{each_with, lock};
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
}

/// A column's values in their own memory, if they are contiguous.
pub(super) fn in_place<'t, T: Precision>(
    column: &'t TokenValues,
    location: &Location<'_>,
) -> Option<&'t [T]> {
    let first = location.responses.start;
    let columns = match column.row(first) {
        Some(_) => location.stretch()?,
        None => 0..0,
    };
    let place = column.place(first, (location.tokens.clone(), columns));
    T::slice(column.numbers()).map(|numbers| &numbers[place])
}

/// A column's values, one after another.
pub(super) fn gather<T: Precision>(column: &TokenValues, location: &Location<'_>, out: &mut [T]) {
    let Some(numbers) = T::slice(column.numbers()) else {
        unreachable!("a column's tokens have its precision");
    };
    let mut next = 0;
    for response in location.responses.clone() {
        for stretch in location.layout.stretches(response) {
            let values = &numbers[column.place(response, stretch)];
            out[next..next + values.len()].copy_from_slice(values);
            next += values.len();
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
        let block = (first..end, memory.split(end - first, values));
        blocks.push(Mutex::new(Some(block)));
        first = end;
    }
    let done = each_with(blocks.len(), 1, &scratch, &|scratch, index| {
        guard.check()?;
        match lock(&blocks[index]).take() {
            Some((rows, memory)) => of(scratch, rows, memory).map(Some),
            None => Ok(None),
        }
    });
    done.into_iter().filter_map(Result::transpose).collect()
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
