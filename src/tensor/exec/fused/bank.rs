//! What a tile's program works on, by precision: registers, outputs, and inputs where they lie or gathered.

use std::ops::Range;

use super::stage::{Input, Operand};
use super::tile::{Segment, Tile};
use crate::batch::{self, Layout, Padded, Rows, TokenValues};
use crate::tensor::exec::Precision;

/// Where the tokens of a tile lie in padded columns.
pub(super) struct Location<'a> {
    pub(super) layout: &'a Layout,
    pub(super) tokens: Range<usize>,
    pub(super) segments: &'a [Segment],
}

impl Location<'_> {
    /// The columns of each stretch of a response's tokens that lies in the tile.
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
    pub(super) fn stretch(&self) -> Option<(usize, Range<usize>)> {
        let [segment] = self.segments else {
            return None;
        };
        let mut stretches = self.stretches(segment.response);
        match (stretches.next(), stretches.next()) {
            (Some(columns), None) => Some((segment.response, columns)),
            _ => None,
        }
    }

    /// A padded array's values where they lie, if they lie one after another.
    fn slice<'t, T: batch::Element>(&self, array: &'t Padded<T>) -> Option<&'t [T]> {
        let (response, columns) = self.stretch()?;
        array.row(response, columns)
    }

    /// Copies the tokens' values between rows of a padded array, the first of which is that of a response, and a tile.
    pub(super) fn copy(
        &self,
        rows: &mut Rows<'_>,
        first: usize,
        mut f: impl FnMut(&mut [f32], Range<usize>),
    ) {
        let mut next = 0;
        for segment in self.segments {
            for columns in self.stretches(segment.response) {
                let tile = next..next + columns.len();
                next = tile.end;
                f(&mut rows.row(segment.response - first)[columns], tile);
            }
        }
    }

    fn gather<'t, T: batch::Element>(
        &self,
        array: &Padded<T>,
        into: &'t mut Vec<T::Wide>,
    ) -> &'t [T::Wide] {
        into.clear();
        for segment in self.segments {
            for columns in self.stretches(segment.response) {
                match array.row(segment.response, columns.clone()) {
                    Some(row) => into.extend(row.iter().map(|value| value.widen())),
                    None => into.extend(
                        array
                            .values(segment.response, columns)
                            .map(batch::Element::widen),
                    ),
                }
            }
        }
        into
    }
}

/// The buffers of one precision: registers, then the tiles of outputs; and the tiles of inputs.
pub(super) struct Bank<'t, T> {
    pub(super) buffers: Vec<&'t mut [T]>,
    pub(super) inputs: Vec<&'t [T]>,
}

impl<'t, T> Bank<'t, T> {
    pub(super) fn new(
        registers: &'t mut [Vec<T>],
        outputs: &'t mut [&mut [T]],
        padded: Option<&'t mut [T]>,
        own: &Range<usize>,
    ) -> Bank<'t, T> {
        let registers = registers
            .iter_mut()
            .map(|register| &mut register[..own.len()]);
        let outputs = outputs.iter_mut().map(|output| &mut output[own.clone()]);
        Bank {
            buffers: registers.chain(outputs).chain(padded).collect(),
            inputs: Vec::new(),
        }
    }

    /// The values of an operand that is no slot.
    pub(super) fn values(&self, operand: Operand) -> &[T] {
        match operand {
            Operand::Buffer(buffer) => self.buffers[buffer],
            Operand::Input(input) => self.inputs[input],
            Operand::Slot(_) | Operand::Output(_) => {
                unreachable!("a slot is filled into a buffer, an output is one")
            }
        }
    }
}

/// A precision with its bank.
pub(super) trait Banked: Precision {
    fn bank<'a, 't>(tile: &'a Tile<'t>) -> &'a Bank<'t, Self>;
    fn bank_mut<'a, 't>(tile: &'a mut Tile<'t>) -> &'a mut Bank<'t, Self>;
    fn of_f32s(_: &[f32]) -> Option<&[Self]> {
        None
    }
    fn of_f64s(_: &[f64]) -> Option<&[Self]> {
        None
    }
    /// A padded column's tile, gathered where it does not lie in one stretch.
    fn column<'t>(
        column: &'t TokenValues,
        location: &Location<'_>,
        gathered: &'t mut Vec<Self>,
    ) -> &'t [Self];
}

impl Banked for f32 {
    fn bank<'a, 't>(tile: &'a Tile<'t>) -> &'a Bank<'t, f32> {
        &tile.f32s
    }
    fn bank_mut<'a, 't>(tile: &'a mut Tile<'t>) -> &'a mut Bank<'t, f32> {
        &mut tile.f32s
    }
    fn of_f32s(values: &[f32]) -> Option<&[f32]> {
        Some(values)
    }
    fn column<'t>(
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
            _ => unreachable!("an f64 column has f64 tokens, a compact one is read as it is"),
        }
    }
}

impl Banked for f64 {
    fn bank<'a, 't>(tile: &'a Tile<'t>) -> &'a Bank<'t, f64> {
        &tile.f64s
    }
    fn bank_mut<'a, 't>(tile: &'a mut Tile<'t>) -> &'a mut Bank<'t, f64> {
        &mut tile.f64s
    }
    fn of_f64s(values: &[f64]) -> Option<&[f64]> {
        Some(values)
    }
    fn column<'t>(
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

/// The tile of an input.
pub(super) fn read<'t, T: Banked>(
    input: &'t Input<'_>,
    location: &Location<'_>,
    gathered: &'t mut Vec<T>,
) -> &'t [T] {
    let own = match input {
        Input::Column(TokenValues::Compact(values)) => T::slice(values),
        Input::Column(column) => return T::column(column, location, gathered),
        Input::F32(values) => T::of_f32s(values),
        Input::F64(values) => T::of_f64s(values),
    };
    match own {
        Some(values) => &values[location.tokens.clone()],
        None => unreachable!("an input has the precision of its step"),
    }
}
