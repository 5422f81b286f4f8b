//! Rows of token columns, and a gradient that is computed response by response.

use std::ops::Range;

use super::Columns;
use crate::batch::{Computed, Layout, Level, Rows, TokenValues};
use crate::script::Placed;
use crate::tensor::{Share, Stopped, TILE, Token, by_blocks};

/// The tiles of a response's tokens: sums are over these.
pub(super) fn tiles(tokens: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let tiles = 0..tokens.div_ceil(TILE);
    tiles.map(move |tile| tile * TILE..tokens.min((tile + 1) * TILE))
}

/// A response's values of a column; `None` where they are not of this precision, or do not lie one after another.
pub(super) fn row<'a, T: Token>(
    column: &'a TokenValues,
    layout: &Layout,
    response: usize,
) -> Option<&'a [T]> {
    let columns = columns(layout, response)?;
    match column {
        TokenValues::Compact(values) => Some(&T::slice(values)?[layout.tokens_of(response)]),
        _ => T::padded_row(column, response, columns),
    }
}

/// The columns of a response's tokens, where there are no holes between them.
fn columns(layout: &Layout, response: usize) -> Option<Range<usize>> {
    match layout.runs(response) {
        [] => Some(0..0),
        [run] => Some(run.columns()),
        _ => None,
    }
}

/// Where a gradient goes: memory for the tokens one after another, or the caller's rows.
enum Out<'a, T> {
    Compact(&'a mut [T]),
    Rows(Rows<'a>),
}

impl<T: Token> Share for Out<'_, T> {
    fn split(&mut self, responses: usize, tokens: usize) -> Self {
        match self {
            Out::Compact(values) => Out::Compact(values.split(responses, tokens)),
            Out::Rows(rows) => Out::Rows(rows.split(responses)),
        }
    }
}

/// A kernel declined, or its guard said to stop.
struct Declined;

impl From<Stopped> for Declined {
    fn from(_: Stopped) -> Declined {
        Declined
    }
}

/// Computes the values of each response's tokens, and something beside. The values go into the caller's rows, which
/// hold f32, or into new memory; `None` where `of` declines, or where the guard says to stop.
pub(super) fn by_response<T: Token, S, R: Send>(
    at: &Columns<'_>,
    mut rows: Option<Rows<'_>>,
    scratch: impl Fn() -> S + Send + Sync,
    of: impl Fn(&mut S, usize, &mut [T]) -> Option<R> + Sync,
) -> Option<(Placed, Vec<R>)> {
    let layout = &**at.layout;
    let rows = rows.as_mut().filter(|_| T::of_rows(&mut []).is_some());
    let is_written = rows.is_some();
    let memory = if is_written { 0 } else { layout.tokens() };
    let _reservation = at.guard.reserve(memory * size_of::<T>()).ok()?;
    let mut values = vec![T::default(); memory];
    let out = match rows {
        Some(rows) => Out::Rows(rows.reborrow()),
        None => Out::Compact(&mut values),
    };
    let of_response = |scratch: &mut S, response: usize, mut out: Out<'_, T>| {
        let own = match &mut out {
            Out::Compact(values) => values,
            Out::Rows(rows) => {
                let row = rows.row(0);
                layout.clear_padding(response, row);
                T::of_rows(&mut row[columns(layout, response)?])?
            }
        };
        of(scratch, response, own)
    };
    let of_block = |scratch: &mut S, responses: Range<usize>, mut out: Out<'_, T>| {
        let each = responses.map(|response| {
            let out = out.split(1, layout.tokens_of(response).len());
            of_response(scratch, response, out).ok_or(Declined)
        });
        each.collect::<Result<Vec<R>, Declined>>()
    };
    let done = by_blocks((layout, Level::Token), at.guard, out, scratch, of_block).ok()?;
    let placed = if is_written {
        Placed::Written(Level::Token)
    } else {
        let layout = at.layout.clone();
        Placed::Values(Computed::new(layout, Level::Token, T::wrap(values)))
    };
    Some((placed, done.into_iter().flatten().collect()))
}
