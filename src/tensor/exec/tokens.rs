//! Reads token columns in their own memory: for executors and for kernels.

use std::ops::Range;

use super::Precision;
use crate::batch::{Layout, TokenValues};

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
