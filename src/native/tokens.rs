//! Token columns read tile by tile, and the responses of a batch in parallel.

use std::ops::Range;

use rayon::prelude::*;

use super::columns::Columns;
use crate::batch::{Computed, Layout, Level, Rows, TokenValues};
use crate::script::Placed;
use crate::tensor::{BLOCK, Location, Reservation, Share, Stopped, TILE, Token, by_blocks};

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

    /// The tokens' values in a column, gathered where they do not lie in one stretch.
    pub(super) fn read<'t, T: Token>(
        &self,
        column: &'t TokenValues,
        gathered: &'t mut Vec<T>,
    ) -> &'t [T] {
        let first = self.layout.tokens_of(self.response).start + self.start;
        let location = Location {
            layout: self.layout,
            responses: self.response..self.response + 1,
            tokens: first..first + self.len,
        };
        T::read(column, &location, gathered)
    }
}

/// Where a kernel's token values go: one after another, or to the tokens' places in the caller's padded rows.
pub(super) enum Output<'a, T> {
    Compact {
        values: Vec<T>,
        _reservation: Reservation,
    },
    Rows(Rows<'a>),
}

/// The part of an output that one thread writes.
enum Target<'a, T> {
    Compact(&'a mut [T]),
    Rows(Rows<'a>),
    Nothing,
}

impl<'a, T: Token> Output<'a, T> {
    /// The caller's rows, which hold f32, or new memory; `None` where the guard has none left.
    pub(super) fn new(columns: &Columns<'_>, rows: Option<Rows<'a>>) -> Option<Self> {
        if let (Some(rows), true) = (rows, T::of_rows(&mut []).is_some()) {
            return Some(Output::Rows(rows));
        }
        let tokens = columns.layout.tokens();
        Some(Output::Compact {
            _reservation: columns.reserve(tokens * size_of::<T>())?,
            values: vec![T::default(); tokens],
        })
    }

    fn part(&mut self) -> Target<'_, T> {
        match self {
            Output::Compact { values, .. } => Target::Compact(values),
            Output::Rows(rows) => Target::Rows(rows.reborrow()),
        }
    }

    /// Computes the tokens of each response, and something beside: see [`each_response`].
    pub(super) fn fill<S, R: Send>(
        &mut self,
        columns: &Columns<'_>,
        scratch: impl Fn() -> S + Send + Sync,
        of: impl Fn(&mut S, usize, &mut [T]) -> R + Sync,
    ) -> Option<Vec<R>> {
        each_part(columns, self.part(), scratch, of)
    }

    /// Changes the values in place, stretch by stretch; whether `of` says yes to all of them.
    pub(super) fn change(
        &mut self,
        columns: &Columns<'_>,
        of: impl Fn(&mut [T]) -> bool + Sync,
    ) -> bool {
        match self {
            Output::Compact { values, .. } => {
                let parts = values.par_chunks_mut(BLOCK).map(&of);
                parts.reduce(|| true, |a, b| a & b)
            }
            Output::Rows(rows) => {
                let rows = rows.par_iter_mut().enumerate().map(|(response, row)| {
                    let mut runs = columns.layout.runs(response).iter();
                    let stretch = |row: &mut [f32]| T::of_rows(row).is_none_or(&of);
                    runs.all(|run| stretch(&mut row[run.columns()]))
                });
                rows.reduce(|| true, |a, b| a & b)
            }
        }
    }

    pub(super) fn placed(self, columns: &Columns<'_>) -> Placed {
        match self {
            Output::Compact { values, .. } => {
                let layout = columns.layout.clone();
                Placed::Values(Computed::new(layout, Level::Token, T::wrap(values)))
            }
            Output::Rows(_) => Placed::Written(Level::Token),
        }
    }
}

impl<'a, T: Token> Share for Target<'a, T> {
    fn split(&mut self, responses: usize, tokens: usize) -> Target<'a, T> {
        match self {
            Target::Compact(values) => Target::Compact(values.split(responses, tokens)),
            Target::Rows(rows) => Target::Rows(rows.split(responses)),
            Target::Nothing => Target::Nothing,
        }
    }
}

impl<T: Token> Target<'_, T> {
    /// Writes a response's tokens, the first of the part's own.
    fn write<R>(
        &mut self,
        layout: &Layout,
        response: usize,
        holes: &mut Vec<T>,
        of: impl FnOnce(&mut [T]) -> R,
    ) -> R {
        let tokens = layout.tokens_of(response).len();
        let mut rows = match self.split(1, tokens) {
            Target::Compact(values) => return of(values),
            Target::Nothing => return of(&mut []),
            Target::Rows(rows) => rows,
        };
        let row = rows.row(0);
        layout.clear_padding(response, row);
        let runs = layout.runs(response);
        let own = match runs {
            [run] => T::of_rows(&mut row[run.columns()]),
            _ => None,
        };
        if let Some(own) = own {
            return of(own);
        }
        holes.resize(tokens, T::default());
        let result = of(&mut holes[..tokens]);
        layout.scatter(response, row, |token| {
            holes[token - layout.tokens_of(response).start].widen() as f32
        });
        result
    }
}

/// Computes something of each response. Threads share blocks of neighbours; `None` where the guard says to stop.
pub(super) fn each_response<S, R: Send>(
    columns: &Columns<'_>,
    scratch: impl Fn() -> S + Send + Sync,
    of: impl Fn(&mut S, usize) -> R + Sync,
) -> Option<Vec<R>> {
    let part: Target<'_, f32> = Target::Nothing;
    each_part(columns, part, scratch, |scratch, response, _| {
        of(scratch, response)
    })
}

fn each_part<T: Token, S, R: Send>(
    columns: &Columns<'_>,
    part: Target<'_, T>,
    scratch: impl Fn() -> S + Send + Sync,
    of: impl Fn(&mut S, usize, &mut [T]) -> R + Sync,
) -> Option<Vec<R>> {
    let layout = &**columns.layout;
    let of_block = |memory: &mut (S, Vec<T>), responses: Range<usize>, mut part: Target<'_, T>| {
        let (scratch, holes) = memory;
        let each = responses
            .map(|response| part.write(layout, response, holes, |own| of(scratch, response, own)));
        Ok::<Vec<R>, Stopped>(each.collect())
    };
    let scratch = || (scratch(), Vec::new());
    let place = (layout, Level::Token);
    let done = by_blocks(place, columns.guard(), part, scratch, of_block);
    Some(done.ok()?.into_iter().flatten().collect())
}
