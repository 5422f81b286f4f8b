//! The result of a recipe in the form of a file: its value for tokens that count, 0 everywhere else.

use std::io::{self, Write};

use safetensors::Dtype;
use zerocopy::{Immutable, IntoBytes};

use super::json::{write_array, write_number};
use super::names::ADVANTAGES;
use super::parquet::{Shape, ValueType};
use super::table::FileOrigin;
use super::tensors::{NewTensor, write_rows};
use crate::batch::{Computed, FloatBuffer, Layout, Level};

/// A result that a recipe gives per response or token of a batch, to be written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedColumn {
    /// The field `advantage`; in padded files the tensor `advantages` [B, T].
    Advantage,
    /// A critic's `returns`; in padded files [B, T].
    Returns,
    /// The `weight` of each response in a loss; in padded files [B].
    Weight,
    /// The reward as the recipe shaped it, `shaped_reward`; in padded files [B], or [B, T].
    ShapedReward,
}

impl AddedColumn {
    /// Its name in lines.
    pub fn name(self) -> &'static str {
        match self {
            AddedColumn::Advantage => "advantage",
            AddedColumn::Returns => "returns",
            AddedColumn::Weight => "weight",
            AddedColumn::ShapedReward => "shaped_reward",
        }
    }
}

/// Values that are written response by response.
pub(super) struct Added<'a> {
    pub(super) name: &'static str,
    column: AddedColumn,
    layout: &'a Layout,
    values: &'a Computed,
    /// T of a tensor; `None` if the file has no tokens and the values are per response.
    width: Option<usize>,
    /// Whether a tensor is f64; it is f32 otherwise.
    is_f64: bool,
}

impl<'a> Added<'a> {
    /// `width` is the width of the file's token tensors, if it has any.
    pub(super) fn new(
        (column, values): (AddedColumn, &'a Computed),
        origin: &FileOrigin,
        width: Option<usize>,
        is_f64: bool,
    ) -> Self {
        let layout: &Layout = values.layout();
        // Trainers want a number per token of these two; the others are columns of the batch.
        let is_signal = matches!(column, AddedColumn::Advantage | AddedColumn::Returns);
        Added {
            name: match column {
                AddedColumn::Advantage if !origin.has_lines() => ADVANTAGES,
                column => column.name(),
            },
            column,
            layout,
            values,
            width: match values.level() {
                Level::Token => width.or(Some(layout.width())),
                _ => width.filter(|_| is_signal),
            },
            // As response columns are written elsewhere.
            is_f64: is_f64 || !is_signal && values.level() == Level::Response,
        }
    }

    /// Refuses a value that the file to be has no number for. A value that no token has is not written to a tensor [B, T].
    pub(super) fn check(&self, origin: &FileOrigin) -> Result<(), String> {
        let of_tensor = !origin.has_lines();
        let is_token = self.values.level() == Level::Token;
        let is_narrow = of_tensor && !self.is_f64;
        let lookup = self.values.lookup();
        for response in 0..self.layout.responses() {
            let tokens = self.layout.tokens_of(response);
            let cells = match tokens.len() {
                length if is_token => length,
                0 if of_tensor && self.width.is_some() => 0,
                _ => 1,
            };
            for token in 0..cells {
                let value = lookup(response, tokens.start + token);
                let why = match (value.is_finite(), of_tensor) {
                    (true, _) if is_narrow && (value as f32).is_infinite() => {
                        ", which is too large for f32 (`--dtype f64` writes f64)"
                    }
                    (true, _) => continue,
                    (false, true) => "",
                    (false, false) => ", which JSON has no number for",
                };
                let runs = self.layout.runs(response).iter();
                let column = runs.flat_map(|run| run.columns()).nth(token);
                let mut place = origin.name_of(response);
                if let Some(column) = column.filter(|_| is_token) {
                    place = format!("{place}, token {column},");
                }
                let what = self.column.name().replace('_', " ");
                let what = what.trim_end_matches('s');
                return Err(format!(
                    "the {what} of {place} is {value}{why}; nothing was written"
                ));
            }
        }
        Ok(())
    }

    /// The tensor: [B, T], or [B] if there is no T.
    pub(super) fn tensor(&self) -> NewTensor<'_> {
        let shape = [self.layout.responses()]
            .into_iter()
            .chain(self.width)
            .collect();
        let dtype = if self.is_f64 { Dtype::F64 } else { Dtype::F32 };
        NewTensor::new(self.name, dtype, shape, |out| match self.is_f64 {
            true => self.write_as(out, |value| value),
            // The precision of the batch's tokens; `check` has seen that nothing becomes infinite.
            false => self.write_as(out, |value| value as f32),
        })
    }

    fn write_as<T: Copy + Default + IntoBytes + Immutable>(
        &self,
        out: &mut dyn Write,
        narrow: impl Fn(f64) -> T,
    ) -> io::Result<()> {
        let value = self.values.lookup();
        if let Some(width) = self.width {
            let narrowed = |response, token| narrow(value(response, token));
            return write_rows(out, self.layout, width, narrowed);
        }
        let values = (0..self.layout.responses()).map(|response| narrow(value(response, 0)));
        out.write_all(values.collect::<Vec<T>>().as_bytes())
    }

    /// In lines, each response has an array or a number.
    pub(super) fn shape(&self) -> Shape {
        (ValueType::Float, self.values.level() == Level::Token)
    }

    /// A response's values in JSON: a number, or an array with 0 where the mask is 0. All are finite.
    pub(super) fn json(&self, response: usize) -> Vec<u8> {
        let mut out = Vec::new();
        match self.values.buffer() {
            _ if !self.shape().1 => write_number(&mut out, self.values.at(response, 0)),
            FloatBuffer::F32(values) => write_array(&mut out, &self.row(response, values)),
            FloatBuffer::F64(values) => write_array(&mut out, &self.row(response, values)),
        }
        out
    }

    fn row<T: Copy + Default>(&self, response: usize, values: &[T]) -> Vec<T> {
        let mut row = vec![T::default(); self.layout.row_length(response)];
        self.layout.scatter(response, &mut row[..], |at| values[at]);
        row
    }
}
