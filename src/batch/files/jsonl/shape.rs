//! How many tokens a response of a JSONL file has, and which of them count.

use std::ops::Range;

use super::completion;
use super::json::{Line, Value};
use super::rows::Rows;
use super::slot::Fate;
use crate::batch::files::ReadError;
use crate::batch::files::names::Role;

/// What says how many tokens a response has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// `mask` or a known token column.
    Known,
    /// The number `length`.
    Length,
    /// The words of the completion.
    Completion,
    /// An array that is no known column, by its slot.
    Array(usize),
    /// Nothing, or arrays that differ.
    Nothing,
}

/// The tokens of one response.
pub(super) struct Shape {
    pub(super) basis: Basis,
    /// The length of the row, and the field that set it.
    pub(super) row: Option<(usize, String)>,
    /// The mask's range of `Line::numbers`.
    pub(super) mask: Option<Range<usize>>,
}

impl Rows {
    /// How many tokens the response has, and which count. The words of a completion are looked at only where there is no
    /// length and no token array; of arrays that nobody knows, all or none say it.
    pub(super) fn shape(&self, number: usize, text: &str, line: &Line) -> Result<Shape, ReadError> {
        let mut shape = Shape {
            basis: Basis::Nothing,
            row: None,
            mask: None,
        };
        let mut length = None;
        let mut completion = None;
        let mut arrays: Option<(usize, usize)> = None;
        let mut differ = false;
        for (field, &known) in line.fields.iter().zip(&self.order) {
            for &slot in &self.fields[known].slots {
                let name = &self.fields[known].name;
                let reading = &self.slots[slot].reading;
                match (reading.role, &field.value) {
                    (Role::Mask, Value::Numbers(range)) => {
                        self.check_mask(number, name, &line.numbers[range.clone()])?;
                        shape.mask = Some(range.clone());
                        self.agree(number, &mut shape.row, name, range.len())?;
                    }
                    (Role::Token, Value::Numbers(range)) => {
                        self.agree(number, &mut shape.row, name, range.len())?;
                    }
                    (Role::Response, &Value::Number(value))
                        if reading.ours == "length"
                            && (0.0..=f64::from(u32::MAX)).contains(&value) =>
                    {
                        length = Some((value as usize, name.clone()));
                    }
                    (Role::Any, Value::Numbers(range)) if reading.asked => {
                        self.agree(number, &mut shape.row, name, range.len())?;
                    }
                    (Role::Completion, _) => completion = Some((field, name)),
                    // An empty list, of errors say, is no sign of a response without tokens.
                    (Role::Any, Value::Numbers(range))
                        if self.slots[slot].fate == Fate::In && !range.is_empty() =>
                    {
                        let (_, first) = *arrays.get_or_insert((slot, range.len()));
                        differ |= first != range.len();
                    }
                    _ => {}
                }
            }
        }
        if shape.row.is_some() {
            shape.basis = Basis::Known;
        } else if length.is_some() {
            shape.basis = Basis::Length;
            shape.row = length;
        } else if let Some((field, name)) = completion
            && let Some(length) = completion::length(text, field)
        {
            shape.basis = Basis::Completion;
            shape.row = Some((length, name.clone()));
        } else if let Some((slot, length)) = arrays
            && !differ
        {
            shape.basis = Basis::Array(slot);
            shape.row = Some((length, self.slots[slot].reading.theirs.clone()));
        }
        Ok(shape)
    }

    /// Makes sure that an array is as long as the response's other ones.
    fn agree(
        &self,
        number: usize,
        row: &mut Option<(usize, String)>,
        field: &str,
        found: usize,
    ) -> Result<(), ReadError> {
        let (expected, from) = row.get_or_insert_with(|| (found, field.to_string()));
        if *expected == found {
            return Ok(());
        }
        Err(ReadError::RowLength {
            path: self.path.clone(),
            line: number,
            field: field.to_string(),
            found,
            expected: *expected,
            from: from.clone(),
        })
    }

    fn check_mask(&self, number: usize, field: &str, mask: &[f64]) -> Result<(), ReadError> {
        match mask.iter().position(|&value| value != 0.0 && value != 1.0) {
            None => Ok(()),
            Some(token) => Err(ReadError::Field {
                path: self.path.clone(),
                line: number,
                field: field.to_string(),
                place: format!(", token {token},"),
                found: mask[token].to_string(),
                expected: "1 for a token that counts or 0 for one that does not",
            }),
        }
    }
}
