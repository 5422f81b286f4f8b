//! Token columns read tile by tile, and the responses of a batch in parallel.

use std::ops::Range;

use rayon::prelude::*;

use super::columns::Columns;
use crate::batch::{Element, FloatBuffer, Layout, Padded, TokenValues};
use crate::tensor::{Precision, TILE};

/// About how many tokens a thread computes before it looks at the guard: some tenth of a millisecond.
const BLOCK: usize = 1 << 16;

/// The tokens of a tile: some of one response's.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    layout: &'a Layout,
    pub(super) response: usize,
    /// The first, among those of the response that count.
    start: usize,
    pub(super) len: usize,
    /// Whether the response ends with it.
    pub(super) is_last: bool,
}

impl<'a> Tile<'a> {
    /// The tiles of a response, from the first token on: sums are over these.
    pub(super) fn all(
        layout: &'a Layout,
        response: usize,
    ) -> impl DoubleEndedIterator<Item = Tile<'a>> + ExactSizeIterator {
        let tokens = layout.tokens_of(response).len();
        (0..tokens.div_ceil(TILE)).map(move |index| {
            let start = index * TILE;
            let len = TILE.min(tokens - start);
            let is_last = start + len == tokens;
            Tile {
                layout,
                response,
                start,
                len,
                is_last,
            }
        })
    }

    /// The tile's tokens among all of its response.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// A padded array's values where they lie, if they lie one after another.
    fn slice<'t, T: Element>(&self, array: &'t Padded<T>) -> Option<&'t [T]> {
        let [run] = self.layout.runs(self.response) else {
            return None;
        };
        let first = run.start as usize + self.start;
        array.row(self.response, first..first + self.len)
    }

    fn gather<'t, T: Element>(
        &self,
        array: &Padded<T>,
        into: &'t mut Vec<T::Wide>,
    ) -> &'t [T::Wide] {
        into.clear();
        let first = self.layout.tokens_of(self.response).start + self.start;
        for (tokens, columns) in self.layout.stretches(self.response) {
            let own = tokens.start.max(first)..tokens.end.min(first + self.len);
            if own.is_empty() {
                continue;
            }
            let start = columns.start + (own.start - tokens.start);
            let columns = start..start + own.len();
            match array.row(self.response, columns.clone()) {
                Some(row) => into.extend(row.iter().map(|value| value.widen())),
                None => into.extend(array.values(self.response, columns).map(Element::widen)),
            }
        }
        into
    }

    fn compact<'t, T>(&self, values: &'t [T]) -> &'t [T] {
        let first = self.layout.tokens_of(self.response).start + self.start;
        &values[first..first + self.len]
    }
}

/// A precision that token columns are read in.
pub(super) trait Token: Precision {
    /// The next value towards infinity.
    fn next_up(self) -> Self;

    /// A tile of a column of this precision, gathered where it does not lie in one stretch.
    fn read<'t>(column: &'t TokenValues, tile: Tile<'_>, gathered: &'t mut Vec<Self>)
    -> &'t [Self];
}

impl Token for f32 {
    fn next_up(self) -> f32 {
        f32::next_up(self)
    }

    fn read<'t>(column: &'t TokenValues, tile: Tile<'_>, gathered: &'t mut Vec<f32>) -> &'t [f32] {
        match column {
            TokenValues::F16(array) => tile.gather(array, gathered),
            TokenValues::Bf16(array) => tile.gather(array, gathered),
            TokenValues::F32(array) => match tile.slice(array) {
                Some(values) => values,
                None => tile.gather(array, gathered),
            },
            TokenValues::Compact(FloatBuffer::F32(values)) => tile.compact(values),
            _ => unreachable!("columns of another precision are declined"),
        }
    }
}

impl Token for f64 {
    fn next_up(self) -> f64 {
        f64::next_up(self)
    }

    fn read<'t>(column: &'t TokenValues, tile: Tile<'_>, gathered: &'t mut Vec<f64>) -> &'t [f64] {
        match column {
            TokenValues::F64(array) => match tile.slice(array) {
                Some(values) => values,
                None => tile.gather(array, gathered),
            },
            TokenValues::Compact(FloatBuffer::F64(values)) => tile.compact(values),
            _ => unreachable!("columns of another precision are declined"),
        }
    }
}

/// Computes something of each response, and its tokens' part of `values`, which has all tokens or nothing. Threads share
/// blocks of neighbours. `None` where the guard says to stop.
pub(super) fn each_response<T: Send, S, R: Send>(
    columns: &Columns<'_>,
    values: &mut [T],
    scratch: impl Fn() -> S + Send + Sync,
    of: impl Fn(&mut S, usize, &mut [T]) -> R + Sync,
) -> Option<Vec<R>> {
    let layout = columns.layout;
    let tokens = |response: usize, rest: &[T]| match rest {
        [] => 0,
        _ => layout.tokens_of(response).len(),
    };
    let (mut blocks, mut rest, mut first) = (Vec::new(), values, 0);
    while first < layout.responses() {
        let start = layout.tokens_of(first).start;
        let mut end = first + 1;
        while end < layout.responses() && layout.tokens_of(end).end - start <= BLOCK {
            end += 1;
        }
        let length = if rest.is_empty() { 0 } else { layout.tokens_of(end - 1).end - start };
        let (block, after) = std::mem::take(&mut rest).split_at_mut(length);
        blocks.push((first..end, block));
        (rest, first) = (after, end);
    }
    let done: Option<Vec<Vec<R>>> = blocks
        .into_par_iter()
        .map_init(scratch, |scratch, (responses, mut block)| {
            columns.guard().check().ok()?;
            let each = responses.map(|response| {
                let length = tokens(response, block);
                let (own, after) = std::mem::take(&mut block).split_at_mut(length);
                block = after;
                of(scratch, response, own)
            });
            Some(each.collect())
        })
        .collect();
    Some(done?.into_iter().flatten().collect())
}
