//! Columns that are written to files: a recipe's results in a copy of the input, and the columns of a saved batch.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use safetensors::Dtype;
use zerocopy::IntoBytes;

use super::cell::{write_array, write_number};
use super::place::Place;
use crate::batch::column_names::ADVANTAGES;
use crate::batch::{Column, Computed, FloatBuffer, Layout, Level};
use crate::tensor_file::NewTensor;

/// A result of a recipe that is written to a file, with a value per response or per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedColumn {
    /// The field `advantage`; in padded files, the tensor `advantages` [B, T].
    Advantage,
    /// The field `returns` for a critic; in padded files, a tensor [B, T].
    Returns,
    /// The field `weight`, the weight of each response in a loss; in padded files, a tensor [B].
    Weight,
    /// The field `shaped_reward`, the recipe's reward; in padded files, a tensor [B] or [B, T].
    ShapedReward,
}

impl AddedColumn {
    /// Returns the name of the column's field in JSONL or parquet.
    pub fn name(self) -> &'static str {
        match self {
            AddedColumn::Advantage => "advantage",
            AddedColumn::Returns => "returns",
            AddedColumn::Weight => "weight",
            AddedColumn::ShapedReward => "shaped_reward",
        }
    }
}

/// Spreads the values of a batch over all responses of the batch's file. A response that is not in the batch gets 0.
pub(super) fn spread(values: &Computed, all: &Arc<Layout>, kept: &[usize]) -> Computed {
    let (level, buffer) = (values.level(), values.buffer());
    let place = |layout: &Layout, response| match level {
        Level::Token => layout.tokens_of(response),
        _ => response..response + 1,
    };
    let mut spread = vec![0.0; all.size(level)];
    for (response, &row) in kept.iter().enumerate() {
        let own = place(values.layout(), response).map(|at| buffer.get(at));
        place(all, row)
            .zip(own)
            .for_each(|(at, value)| spread[at] = value);
    }
    let spread: FloatBuffer = match buffer.is_f64() {
        true => spread.into(),
        false => FloatBuffer::F32(narrowed(&spread, |value| value as f32).into()),
    };
    Computed::new(all.clone(), level, spread)
}

/// A column of numbers that is written to a file.
pub(super) struct NewColumn<'a> {
    pub(super) name: &'a str,
    pub(super) layout: &'a Layout,
    pub(super) values: Column,
    /// If true, the column is a tensor [B, T] or an array per line, with a number for each token (0 if the token does not count).
    /// If false, the column has a number for each response.
    pub(super) per_token: bool,
    /// The element type of a tensor or of a list in parquet. In JSONL, it determines how many digits of token values are written.
    pub(super) dtype: Dtype,
}

impl<'a> NewColumn<'a> {
    /// Makes the column of a recipe's result in a copy of a file. `is_padded` says whether the file has tensors [B, T], and
    /// `is_f64` whether the batch is in f64.
    pub(super) fn added(
        (column, values): (AddedColumn, &'a Computed),
        place: &Place,
        is_padded: bool,
        is_f64: bool,
    ) -> Self {
        let (buffer, is_token) = (values.buffer().clone(), values.level() == Level::Token);
        // Trainers that read tensors need the advantage and the returns for each token. Other columns keep their level.
        let is_signal = matches!(column, AddedColumn::Advantage | AddedColumn::Returns);
        let in_lines = place.has_lines();
        let is_wide = match in_lines {
            true => buffer.is_f64(),
            // Response values are written as f64, as in JSONL and parquet.
            false => is_f64 || !is_signal && !is_token,
        };
        NewColumn {
            name: match column {
                AddedColumn::Advantage if !in_lines => ADVANTAGES,
                column => column.name(),
            },
            layout: values.layout(),
            per_token: is_token || is_signal && is_padded,
            values: match is_token {
                true => Column::Token(buffer.into()),
                false => Column::Response(buffer.iter().collect()),
            },
            dtype: if is_wide { Dtype::F64 } else { Dtype::F32 },
        }
    }

    /// Returns the numbers of a response: one for each token of its row, or a single number for the response.
    pub(super) fn row(&self, response: usize, length: usize) -> Cow<'_, [f64]> {
        if let (Column::Response(values), false) = (&self.values, self.per_token) {
            return Cow::Borrowed(&values[response..=response]);
        }
        let mut row = vec![0.0; if self.per_token { length } else { 1 }];
        for (tokens, columns) in self.layout.token_runs(response) {
            let row = &mut row[columns.clone()];
            match &self.values {
                Column::Response(values) => row.fill(values[response]),
                Column::Token(values) => {
                    let place = values.place(response, (tokens, columns));
                    match values.numbers() {
                        FloatBuffer::F64(numbers) => row.copy_from_slice(&numbers[place]),
                        FloatBuffer::F32(numbers) => (row.iter_mut().zip(&numbers[place]))
                            .for_each(|(number, &narrow)| *number = narrow.into()),
                    }
                }
            }
        }
        row.into()
    }

    /// Refuses values that the file cannot represent. If the output has values per token, the value of a response without tokens
    /// is not checked, because it is not written.
    pub(super) fn check(&self, place: &Place) -> Result<(), String> {
        let in_lines = place.has_lines();
        let is_narrow = !in_lines && self.dtype == Dtype::F32;
        let is_wrong =
            |value: &f64| !value.is_finite() || is_narrow && (*value as f32).is_infinite();
        for response in 0..self.layout.responses() {
            let row = self.row(response, self.layout.row_length(response));
            let Some(column) = row.iter().position(is_wrong) else {
                continue;
            };
            let value = row[column];
            let why = match in_lines {
                _ if value.is_finite() => ", which is too large for f32 (`--dtype f64` writes f64)",
                true => ", which JSON cannot represent",
                false => "",
            };
            let mut place = place.name_of(response);
            if let Column::Token(_) = self.values {
                place = format!("{place}, token {column},");
            }
            let what = self.name.replace('_', " ");
            let what = what.trim_end_matches('s');
            return Err(format!(
                "the {what} of {place} is {value}{why}; nothing was written"
            ));
        }
        Ok(())
    }

    pub(super) fn tensor(&self) -> NewTensor<'_> {
        let (rows, width) = (self.layout.responses(), self.layout.width());
        let shape = [rows].into_iter().chain(self.per_token.then_some(width));
        let write = move |out: &mut dyn Write| {
            (0..rows).try_for_each(|response| {
                let row = self.row(response, width);
                match self.dtype {
                    Dtype::BOOL => out.write_all(&narrowed(&row, |value| value as u8)),
                    // `check` has ensured that no value becomes infinite in f32.
                    Dtype::F32 => out.write_all(narrowed(&row, |value| value as f32).as_bytes()),
                    _ => out.write_all(row.as_bytes()),
                }
            })
        };
        NewTensor {
            name: self.name.into(),
            dtype: self.dtype,
            shape: shape.collect(),
            write: Box::new(write),
        }
    }

    /// Returns a response's values as JSON.
    pub(super) fn json(&self, response: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let row = self.row(response, self.layout.row_length(response));
        match (self.per_token, self.dtype) {
            (false, _) => write_number(&mut out, row[0]),
            (true, Dtype::F32) => write_array(&mut out, &narrowed(&row, |value| value as f32)),
            (true, _) => write_array(&mut out, &row),
        }
        out
    }
}

/// The values of a column that is added to a parquet file.
// Only parquet files use this type, and only the verifier writes booleans and counts.
#[cfg_attr(not(all(feature = "answers", feature = "parquet")), expect(dead_code))]
pub(super) enum AddedValues<'a> {
    Bools(Vec<Option<bool>>),
    Counts(Vec<Option<i64>>),
    Numbers(&'a NewColumn<'a>),
}

fn narrowed<T>(row: &[f64], narrow: fn(f64) -> T) -> Vec<T> {
    row.iter().map(|&value| narrow(value)).collect()
}
