//! Token columns read tile by tile, and the responses of a batch in parallel.

use std::ops::Range;

use rayon::prelude::*;

use super::columns::Columns;
use crate::batch::{Computed, Element, FloatBuffer, Layout, Level, Padded, Rows, TokenValues};
use crate::script::Placed;
use crate::tensor::{Precision, Reservation, TILE};

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

    /// Padded rows hold f32.
    fn of_f32s(values: &mut [f32]) -> Option<&mut [Self]>;

    /// A tile of a column of this precision, gathered where it does not lie in one stretch.
    fn read<'t>(column: &'t TokenValues, tile: Tile<'_>, gathered: &'t mut Vec<Self>)
    -> &'t [Self];
}

impl Token for f32 {
    fn next_up(self) -> f32 {
        f32::next_up(self)
    }

    fn of_f32s(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
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

    fn of_f32s(_: &mut [f32]) -> Option<&mut [f64]> {
        None
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

/// Where a kernel's token values go: one after another, or to the tokens' places in the caller's padded rows.
pub(super) enum Output<'a, T> {
    Compact {
        values: Vec<T>,
        _reservation: Reservation,
    },
    Rows(Rows<'a>),
}

/// The part of an output that one thread writes.
enum Part<'a, T> {
    Compact(&'a mut [T]),
    Rows(Rows<'a>),
    Nothing,
}

impl<'a, T: Token> Output<'a, T> {
    /// The caller's rows, which hold f32, or new memory; `None` where the guard has none left.
    pub(super) fn new(columns: &Columns<'_>, rows: Option<Rows<'a>>) -> Option<Self> {
        if let (Some(rows), true) = (rows, T::of_f32s(&mut []).is_some()) {
            return Some(Output::Rows(rows));
        }
        let tokens = columns.layout.tokens();
        Some(Output::Compact {
            _reservation: columns.reserve(tokens * size_of::<T>())?,
            values: vec![T::default(); tokens],
        })
    }

    fn part(&mut self) -> Part<'_, T> {
        match self {
            Output::Compact { values, .. } => Part::Compact(values),
            Output::Rows(rows) => Part::Rows(rows.reborrow()),
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
                    let stretch = |row: &mut [f32]| T::of_f32s(row).is_none_or(&of);
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

impl<'a, T: Token> Part<'a, T> {
    /// Cuts off the part of the first responses.
    fn split(&mut self, responses: usize, tokens: usize) -> Part<'a, T> {
        match self {
            Part::Compact(values) => {
                let (head, tail) = std::mem::take(values).split_at_mut(tokens);
                *values = tail;
                Part::Compact(head)
            }
            Part::Rows(rows) => Part::Rows(rows.split(responses)),
            Part::Nothing => Part::Nothing,
        }
    }

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
            Part::Compact(values) => return of(values),
            Part::Nothing => return of(&mut []),
            Part::Rows(rows) => rows,
        };
        let row = rows.row(0);
        layout.clear_padding(response, row);
        let runs = layout.runs(response);
        let own = match runs {
            [run] => T::of_f32s(&mut row[run.columns()]),
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
    let part: Part<'_, f32> = Part::Nothing;
    each_part(columns, part, scratch, |scratch, response, _| {
        of(scratch, response)
    })
}

fn each_part<T: Token, S, R: Send>(
    columns: &Columns<'_>,
    mut rest: Part<'_, T>,
    scratch: impl Fn() -> S + Send + Sync,
    of: impl Fn(&mut S, usize, &mut [T]) -> R + Sync,
) -> Option<Vec<R>> {
    let layout = &**columns.layout;
    let (mut blocks, mut first) = (Vec::new(), 0);
    while first < layout.responses() {
        let start = layout.tokens_of(first).start;
        let mut end = first + 1;
        while end < layout.responses() && layout.tokens_of(end).end - start <= BLOCK {
            end += 1;
        }
        let tokens = layout.tokens_of(end - 1).end - start;
        blocks.push((first..end, rest.split(end - first, tokens)));
        first = end;
    }
    let done: Option<Vec<Vec<R>>> = blocks
        .into_par_iter()
        .map_init(
            || (scratch(), Vec::new()),
            |(scratch, holes), (responses, mut part)| {
                columns.guard().check().ok()?;
                let each = responses.map(|response| {
                    part.write(layout, response, holes, |own| of(scratch, response, own))
                });
                Some(each.collect())
            },
        )
        .collect();
    Some(done?.into_iter().flatten().collect())
}
