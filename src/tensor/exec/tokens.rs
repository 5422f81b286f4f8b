//! Token columns read where they lie, and responses shared out to threads: for the fused executor and for kernels.

use std::ops::Range;

use rayon::prelude::*;

use super::{BLOCK, Precision};
use crate::batch::{self, Layout, Padded, Rows, TokenValues};
use crate::tensor::{Guard, Stopped};

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

    /// A padded array's values where they lie, if they lie one after another.
    fn slice<'t, T: batch::Element>(&self, array: &'t Padded<T>) -> Option<&'t [T]> {
        let (response, columns) = self.stretch()?;
        array.row(response, columns)
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

    /// [`Token::read`] of a padded column.
    fn of_padded<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<Self>,
    ) -> &'t [Self];
}

impl Token for f32 {
    fn of_padded<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<f32>,
    ) -> &'t [f32] {
        match column {
            TokenValues::F16(array) => location.gather(array, gathered),
            TokenValues::Bf16(array) => location.gather(array, gathered),
            TokenValues::F32(array) => match location.slice(array) {
                Some(values) => values,
                None => location.gather(array, gathered),
            },
            _ => unreachable!("an f64 column has f64 tokens, a compact one is no padded one"),
        }
    }
}

impl Token for f64 {
    fn of_padded<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<f64>,
    ) -> &'t [f64] {
        match column {
            TokenValues::F64(array) => match location.slice(array) {
                Some(values) => values,
                None => location.gather(array, gathered),
            },
            _ => unreachable!("only an f64 column has f64 tokens"),
        }
    }
}

/// Memory that responses' results go into.
pub(crate) trait Share: Send {
    /// Cuts off what the first responses write, which have some tokens.
    fn split(&mut self, responses: usize, tokens: usize) -> Self;
}

/// Computes blocks of neighbouring responses, in parallel: `of` a thread's scratch, the block's responses and their share of
/// the memory. Returns the blocks' results in their order.
pub(crate) fn by_blocks<W: Share, S, R: Send>(
    layout: &Layout,
    guard: &Guard,
    mut memory: W,
    scratch: impl Fn() -> S + Send + Sync,
    of: impl Fn(&mut S, Range<usize>, W) -> Result<R, Stopped> + Sync,
) -> Result<Vec<R>, Stopped> {
    let mut blocks = Vec::new();
    let mut first = 0;
    while first < layout.responses() {
        let start = layout.tokens_of(first).start;
        let mut end = first + 1;
        // Responses without tokens count as well.
        while end < layout.responses() && layout.tokens_of(end).end - start + (end - first) < BLOCK
        {
            end += 1;
        }
        let tokens = layout.tokens_of(end - 1).end - start;
        blocks.push((first..end, memory.split(end - first, tokens)));
        first = end;
    }
    let blocks = blocks.into_par_iter();
    let done = blocks.map_init(scratch, |scratch, (responses, memory)| {
        guard.check()?;
        of(scratch, responses, memory)
    });
    done.collect()
}
