//! An advantage, or what else a recipe gives, as a file holds it: its value where a token counts, 0 everywhere else.

use std::io::{self, Write};

use safetensors::Dtype;
use zerocopy::{Immutable, IntoBytes};

use super::raw::Origin;
use super::written::Written;
use crate::batch::{Computed, FloatBuffer, Layout, Level};

/// What a recipe gives for each response or token of a batch, as a file is to hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The field `advantage`; in padded files the tensor `advantages` [B, T].
    Advantage,
    /// A critic's `returns`; in padded files [B, T].
    Returns,
    /// The `weight` of each response in a loss; in padded files [B].
    Weight,
    /// The reward that a recipe made of that of the file, `shaped_reward`; in padded files [B], or [B, T].
    ShapedReward,
}

impl Column {
    /// Its name in lines.
    pub fn name(self) -> &'static str {
        match self {
            Column::Advantage => "advantage",
            Column::Returns => "returns",
            Column::Weight => "weight",
            Column::ShapedReward => "shaped_reward",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Column::Returns => "return",
            Column::ShapedReward => "shaped reward",
            _ => self.name(),
        }
    }
}

/// The tensor of advantages.
pub(super) const ADVANTAGES: &str = "advantages";

/// Values that are written response by response.
pub(super) struct Spread<'a> {
    /// The name of the field or of the tensor.
    pub(super) name: &'static str,
    column: Column,
    layout: &'a Layout,
    advantage: &'a Computed,
    /// T of a tensor; `None` where the file has no tokens at all and the advantage is one of responses.
    width: Option<usize>,
    /// Whether a tensor is f64; it is f32 otherwise.
    is_f64: bool,
}

impl<'a> Spread<'a> {
    /// `width` is that of the file's token tensors, if it has any.
    pub(super) fn new(
        (column, advantage): (Column, &'a Computed),
        are_lines: bool,
        width: Option<usize>,
        is_f64: bool,
    ) -> Self {
        let layout: &Layout = advantage.layout();
        // Trainers want a number a token of these two; the others are columns of the batch.
        let is_signal = matches!(column, Column::Advantage | Column::Returns);
        Spread {
            name: match column {
                Column::Advantage if !are_lines => ADVANTAGES,
                column => column.name(),
            },
            column,
            layout,
            advantage,
            width: match advantage.level() {
                Level::Token => width.or(Some(layout.width())),
                _ => width.filter(|_| is_signal),
            },
            // As columns of responses are written elsewhere.
            is_f64: is_f64 || !is_signal && advantage.level() == Level::Response,
        }
    }

    /// The number of responses.
    pub(super) fn responses(&self) -> usize {
        self.layout.responses()
    }

    /// The first value that the file to be has no number for, in words. A value that no token has is not written to a
    /// tensor [B, T].
    pub(super) fn misfit(&self, origin: &Origin) -> Option<String> {
        let of_tensor = matches!(origin, Origin::Tensors(_));
        let is_narrow = of_tensor && !self.is_f64;
        let holds = |value: f64| value.is_finite() && !(is_narrow && (value as f32).is_infinite());
        let is_token = self.advantage.level() == Level::Token;
        let value = self.advantage.lookup();
        (0..self.layout.responses()).find_map(|response| {
            let tokens = self.layout.tokens_of(response);
            let cells = match tokens.len() {
                length if is_token => 0..length,
                0 if of_tensor && self.width.is_some() => 0..0,
                _ => 0..1,
            };
            let value = |token| value(response, tokens.start + token);
            let token = cells.into_iter().find(|&token| !holds(value(token)))?;
            let runs = self.layout.runs(response).iter();
            let column = runs.flat_map(|run| run.columns()).nth(token);
            let column = column.filter(|_| is_token);
            let column = column.map_or(String::new(), |column| format!(", token {column},"));
            let why = match (value(token).is_finite(), of_tensor) {
                (true, _) => ", which is too large for f32 (`--dtype f64` writes f64)",
                (false, true) => "",
                (false, false) => ", which JSON has no number for",
            };
            let (name, value) = (origin.name_of(response), value(token));
            let what = self.column.in_words();
            Some(format!(
                "the {what} of {name}{column} is {value}{why}; nothing was written"
            ))
        })
    }

    /// The tensor: [B, T], or [B] where there is no T.
    pub(super) fn written(&self) -> Written<'_> {
        let shape = std::iter::once(self.responses())
            .chain(self.width)
            .collect();
        let dtype = if self.is_f64 { Dtype::F64 } else { Dtype::F32 };
        Written::new(self.name, dtype, shape, |out| match self.is_f64 {
            true => self.write_as(out, |value| value),
            // The precision of the batch's tokens; it has been seen that nothing becomes infinite.
            false => self.write_as(out, |value| value as f32),
        })
    }

    fn write_as<T: Copy + Default + IntoBytes + Immutable>(
        &self,
        out: &mut dyn Write,
        narrow: impl Fn(f64) -> T,
    ) -> io::Result<()> {
        let value = self.advantage.lookup();
        if let Some(width) = self.width {
            let narrowed = |response, token| narrow(value(response, token));
            return write_rows(out, self.layout, width, narrowed);
        }
        let values = (0..self.layout.responses()).map(|response| narrow(value(response, 0)));
        out.write_all(values.collect::<Vec<T>>().as_bytes())
    }

    /// A response's advantage in JSON: a number, or an array with 0 where the mask is 0. All are finite.
    pub(super) fn json(&self, response: usize, out: &mut Vec<u8>) {
        match self.advantage.buffer() {
            _ if self.advantage.level() == Level::Response => {
                number(out, self.advantage.at(response, 0));
            }
            FloatBuffer::F32(values) => self.array(response, values, out),
            FloatBuffer::F64(values) => self.array(response, values, out),
        }
    }

    fn array<T>(&self, response: usize, values: &[T], out: &mut Vec<u8>)
    where
        T: Copy + Default + serde::Serialize,
    {
        let mut row = vec![T::default(); self.layout.row_length(response)];
        let scattered = row.as_mut_slice();
        self.layout.scatter(response, scattered, |at| values[at]);
        out.push(b'[');
        for (column, value) in row.into_iter().enumerate() {
            if column > 0 {
                out.extend_from_slice(b", ");
            }
            number(out, value);
        }
        out.push(b']');
    }
}

/// The shortest number that reads back as the same one.
fn number<T: serde::Serialize>(out: &mut Vec<u8>, value: T) {
    // Writing a float to memory cannot fail.
    let _ = serde_json::to_writer(out, &value);
}

/// Writes [B, T] with a value for each token that counts, by its response and its index, and 0 elsewhere.
pub(super) fn write_rows<T: Copy + Default + IntoBytes + Immutable>(
    out: &mut dyn Write,
    layout: &Layout,
    width: usize,
    value: impl Fn(usize, usize) -> T,
) -> io::Result<()> {
    let mut row = vec![T::default(); width];
    for response in 0..layout.responses() {
        row.fill(T::default());
        layout.scatter(response, &mut row, |token| value(response, token));
        out.write_all(row.as_bytes())?;
    }
    Ok(())
}
