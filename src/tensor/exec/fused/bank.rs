//! What a tile's program works on, by precision: registers, outputs, and inputs where they lie or gathered.

use std::ops::Range;

use super::program::{Arg, Input};
use super::tile::Tile;
use crate::tensor::exec::tokens::{Location, Token};

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
    pub(super) fn values(&self, operand: Arg) -> &[T] {
        match operand {
            Arg::Buffer(buffer) => self.buffers[buffer],
            Arg::Input(input) => self.inputs[input],
            Arg::Slot(_) | Arg::Output(_) => {
                unreachable!("a slot is filled into a buffer, an output is one")
            }
        }
    }
}

/// A precision with its bank.
pub(super) trait Banked: Token {
    fn bank<'a, 't>(tile: &'a Tile<'t>) -> &'a Bank<'t, Self>;
    fn bank_mut<'a, 't>(tile: &'a mut Tile<'t>) -> &'a mut Bank<'t, Self>;
    fn of_f32s(_: &[f32]) -> Option<&[Self]> {
        None
    }
    fn of_f64s(_: &[f64]) -> Option<&[Self]> {
        None
    }
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
}

/// The tile of an input.
pub(super) fn read<'t, T: Banked>(
    input: &'t Input<'_>,
    location: &Location<'_>,
    gathered: &'t mut Vec<T>,
) -> &'t [T] {
    let own = match input {
        Input::Column(column) => return T::read(column, location, gathered),
        Input::F32(values) => T::of_f32s(values),
        Input::F64(values) => T::of_f64s(values),
    };
    match own {
        Some(values) => &values[location.tokens.clone()],
        None => unreachable!("an input has the precision of its step"),
    }
}
