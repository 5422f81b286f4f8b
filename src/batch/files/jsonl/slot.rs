//! One column of a JSONL file while it is being read, and what keeps a field from being one.

use std::path::Path;

use super::groups;
use super::json::{Field, Line, Value};
use super::shape::{Basis, Shape};
use crate::batch::files::names::{self, Reading, Role};
use crate::batch::files::{Dtype, ReadError};

/// The line in hand.
#[derive(Clone, Copy)]
pub(super) struct Here<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    pub(super) number: usize,
    /// The lines of the responses before.
    pub(super) before: &'a [usize],
}

impl Here<'_> {
    /// The error for a value of the wrong kind.
    pub(super) fn wrong(
        &self,
        field: &str,
        place: String,
        found: String,
        expected: &'static str,
    ) -> ReadError {
        ReadError::Field {
            path: self.path.to_path_buf(),
            line: self.number,
            field: field.to_string(),
            place,
            found,
            expected,
        }
    }
}

/// The numbers of a column so far.
#[derive(Debug)]
pub(super) enum Values {
    None,
    Responses(Vec<f64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Whether a field becomes a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    In,
    /// Left out, and why.
    Out(String),
    /// A text or an object, which nobody expects to be a column.
    Silent,
}

/// One of our names, the field that it is read from, and its values so far.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) reading: Reading,
    pub(super) values: Values,
    pub(super) fate: Fate,
    /// How many responses have a value: all so far, or the column has a gap.
    pub(super) filled: usize,
    /// The first line that has null.
    pub(super) null: Option<usize>,
    /// How many values that count are not finite, and the line and the token of the first.
    pub(super) stray: Option<(usize, usize, usize)>,
    /// How many responses have a reward where the mask is 0, and the line and the token of the first.
    pub(super) masked: Option<(usize, usize, usize)>,
    /// Whether a completion is a list of messages.
    pub(super) messages: bool,
}

impl Slot {
    pub(super) fn new(reading: Reading) -> Self {
        Slot {
            reading,
            values: Values::None,
            fate: Fate::In,
            filled: 0,
            null: None,
            stray: None,
            masked: None,
            messages: false,
        }
    }

    /// Whether a gap is an error: in a column that we know, or that the user asked for.
    pub(super) fn needed(&self) -> bool {
        match self.reading.role {
            Role::Group | Role::Mask | Role::Response | Role::Token => true,
            Role::Any => self.reading.asked,
            Role::Step | Role::Completion => false,
        }
    }

    fn expected(&self) -> &'static str {
        match (self.reading.role, self.reading.ours.as_str()) {
            (Role::Mask, _) => "an array with a 0 or 1 for each token",
            (Role::Token, _) => "an array with a number for each token",
            (Role::Response, "correct") => "true or false (or 1 or 0)",
            (Role::Response, "length") => "a number of tokens",
            (Role::Response, _) => "a number",
            (Role::Group, _) => groups::EXPECTED,
            _ => "a number, or an array with a number for each token",
        }
    }

    /// Takes a response's value.
    pub(super) fn put(
        &mut self,
        here: Here,
        field: &Field,
        line: &Line,
        shape: &Shape,
        dtype: Dtype,
    ) -> Result<(), ReadError> {
        if self.fate != Fate::In {
            return Ok(());
        }
        let numbers = matches!(self.values, Values::None | Values::Responses(_));
        let arrays = !matches!(self.values, Values::Responses(_));
        match (self.reading.role, &field.value) {
            (_, Value::Null) => {
                self.null.get_or_insert(here.number);
                if self.needed() && self.filled > 0 {
                    return Err(self.wrong(here, field));
                }
            }
            (Role::Mask, Value::Numbers(_)) => {
                self.claim(here)?;
            }
            (Role::Step, &Value::Number(value)) if names::step(value).is_none() => {
                let found = here.text[field.place.clone()].to_string();
                let theirs = &self.reading.theirs;
                return Err(here.wrong(theirs, String::new(), found, names::STEP));
            }
            (Role::Response | Role::Step, &Value::Number(value)) => self.response(here, value)?,
            (Role::Response, &Value::Bool(value)) => {
                self.response(here, f64::from(u8::from(value)))?
            }
            (Role::Any, &Value::Number(value)) if numbers => self.response(here, value)?,
            (Role::Any, &Value::Bool(value)) if numbers => {
                self.response(here, f64::from(u8::from(value)))?;
            }
            (Role::Token | Role::Any, Value::Numbers(range)) if arrays => {
                self.tokens(here, &line.numbers[range.clone()], line, shape, dtype)?;
            }
            (Role::Any | Role::Step, Value::Text | Value::Other(_))
                if self.filled == 0 && !self.needed() =>
            {
                self.fate = Fate::Silent;
            }
            _ if self.needed() => return Err(self.wrong(here, field)),
            _ => {
                let found = field.value.describe(&here.text[field.place.clone()]);
                self.fate = Fate::Out(match here.before.first() {
                    Some(first) => format!(
                        "it is {found} in line {}, and not in line {first}",
                        here.number
                    ),
                    None => format!("it is {found}"),
                });
            }
        }
        Ok(())
    }

    pub(super) fn wrong(&self, here: Here, field: &Field) -> ReadError {
        let found = field.value.describe(&here.text[field.place.clone()]);
        here.wrong(&self.reading.theirs, String::new(), found, self.expected())
    }

    /// Makes sure that every response before has a value; `false` where the column is left out because one has not.
    pub(super) fn claim(&mut self, here: Here) -> Result<bool, ReadError> {
        self.gap(here, here.number)?;
        if self.fate != Fate::In {
            return Ok(false);
        }
        self.filled += 1;
        Ok(true)
    }

    /// Looks for a response before without a value; line `other` has one.
    pub(super) fn gap(&mut self, here: Here, other: usize) -> Result<(), ReadError> {
        let Some(&line) = here.before.get(self.filled) else {
            return Ok(());
        };
        let field = self.reading.theirs.as_str();
        let null = self.null == Some(line);
        match (self.needed(), null) {
            (true, true) => Err(ReadError::Field {
                path: here.path.to_path_buf(),
                line,
                field: field.to_string(),
                place: String::new(),
                found: "null".to_string(),
                expected: self.expected(),
            }),
            (true, false) => Err(ReadError::Missing {
                path: here.path.to_path_buf(),
                line,
                field: field.to_string(),
                other,
            }),
            (false, _) => {
                let what = if null { "null" } else { "missing" };
                self.fate = Fate::Out(format!(
                    "it is {what} in line {line}, and not in line {other}"
                ));
                Ok(())
            }
        }
    }

    /// Looks for a gap when all lines are there.
    pub(super) fn close(&mut self, here: Here) -> Result<(), ReadError> {
        if self.filled == 0 && !self.reading.asked {
            match self.reading.role {
                Role::Token | Role::Mask | Role::Completion => {
                    self.fate = Fate::Out("it is null wherever it is".to_string());
                    return Ok(());
                }
                Role::Any => return Ok(()),
                _ => {}
            }
        }
        let first = here.before.first().copied();
        let other = match self.filled {
            0 => self.null.or(first),
            _ => first,
        };
        self.gap(here, other.unwrap_or_default())
    }

    /// Whether this is a column, with a value in every response.
    pub(super) fn is_filled(&self) -> bool {
        self.fate == Fate::In && self.filled > 0
    }

    pub(super) fn response(&mut self, here: Here, value: f64) -> Result<(), ReadError> {
        if self.claim(here)? {
            match &mut self.values {
                Values::Responses(values) => values.push(value),
                none => *none = Values::Responses(vec![value]),
            }
        }
        Ok(())
    }

    fn tokens(
        &mut self,
        here: Here,
        numbers: &[f64],
        line: &Line,
        shape: &Shape,
        dtype: Dtype,
    ) -> Result<(), ReadError> {
        match &shape.row {
            Some((length, _)) if *length == numbers.len() => {}
            Some((length, from)) if self.reading.asked => {
                return Err(ReadError::RowLength {
                    path: here.path.to_path_buf(),
                    line: here.number,
                    field: self.reading.theirs.clone(),
                    found: numbers.len(),
                    expected: *length,
                    from: from.clone(),
                });
            }
            Some((length, from)) => {
                let (found, line) = (numbers.len(), here.number);
                self.fate = Fate::Out(match shape.basis {
                    Basis::Completion if found > 0 => {
                        let field = &self.reading.theirs;
                        format!(
                            "it has {found} numbers in line {line}, where `{from}` has {length} words (`--map {field}={field}` makes it the array that says how many tokens a response has)"
                        )
                    }
                    Basis::Completion => format!("it is empty in line {line}"),
                    _ => format!(
                        "it has {found} numbers in line {line}, where `{from}` says {length} tokens"
                    ),
                });
                return Ok(());
            }
            None if numbers.is_empty() => {
                self.fate = Fate::Out(format!(
                    "it is empty in line {}, and nothing says how many tokens the response has (`mask`, `length`)",
                    here.number
                ));
                return Ok(());
            }
            None => {
                self.fate = Fate::Out(format!(
                    "the arrays of line {} differ in length, and nothing says how many tokens the response has (`mask`, `length`)",
                    here.number
                ));
                return Ok(());
            }
        }
        if !self.claim(here)? {
            return Ok(());
        }
        if matches!(self.values, Values::None) {
            self.values = match dtype {
                Dtype::F32 => Values::F32(Vec::new()),
                Dtype::F64 => Values::F64(Vec::new()),
            };
        }
        let mask = shape.mask.clone().map(|mask| &line.numbers[mask]);
        let counts = |token: usize| mask.is_none_or(|mask| mask[token] == 1.0);
        if self.reading.ours == "token_reward" {
            let lost = |(token, &value): (usize, &f64)| {
                value != 0.0 && value.is_finite() && !counts(token)
            };
            if let Some(token) = numbers.iter().enumerate().position(lost) {
                let (count, ..) = self.masked.get_or_insert((0, here.number, token));
                *count += 1;
            }
        }
        let finite = |value: f64| match dtype {
            Dtype::F32 => (value as f32).is_finite(),
            Dtype::F64 => value.is_finite(),
        };
        for (token, &value) in numbers.iter().enumerate() {
            if !finite(value) && counts(token) {
                if self.reading.role == Role::Token {
                    let found = match (value.is_nan(), value.is_finite()) {
                        (true, _) => "NaN or null".to_string(),
                        (_, true) => format!("{value}, too large for f32"),
                        _ => value.to_string(),
                    };
                    return Err(here.wrong(
                        &self.reading.theirs,
                        format!(", token {token},"),
                        found,
                        "a finite number where the mask is 1",
                    ));
                }
                let (count, ..) = self.stray.get_or_insert((0, here.number, token));
                *count += 1;
            }
        }
        let kept = numbers
            .iter()
            .enumerate()
            .filter(|(token, _)| counts(*token))
            .map(|(_, &value)| value);
        match &mut self.values {
            Values::F32(values) => values.extend(kept.map(|value| value as f32)),
            Values::F64(values) if mask.is_none() => values.extend_from_slice(numbers),
            Values::F64(values) => values.extend(kept),
            Values::None | Values::Responses(_) => {}
        }
        Ok(())
    }
}
