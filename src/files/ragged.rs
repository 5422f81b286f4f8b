//! Columns of lines: which of them are whole, and how many tokens the response of a line has.

use std::collections::HashSet;

use super::Dtype;
use super::meaning::{MASK, Meaning};
use super::names::{Reading, Role};
use super::table::{Column, Data};
use super::words;
use crate::batch::layout::Tokens;
use crate::batch::{Given, GroupId, Ragged};
use crate::diagnostic::Diagnostic;

/// How many tokens each response has.
struct Lengths {
    of_response: Vec<usize>,
    /// The field that says so.
    from: String,
    /// What they are, if they are not the response's own tokens: words or tokens of a text.
    counted: Option<&'static str>,
}

/// The kind of values that a column should hold, for messages.
fn expected(reading: &Reading) -> &'static str {
    match (reading.role, reading.ours.as_str()) {
        (Role::Group, _) => "a string or a whole number that names the prompt",
        (Role::Mask, _) => "an array with a 0 or 1 for each token",
        (Role::Token, _) => "an array with a number for each token",
        (Role::Response, "correct") => "true or false (or 1 or 0)",
        (Role::Response, "length") => "a number of tokens",
        (Role::Response, _) => "a number",
        _ => "a number, or an array with a number for each token",
    }
}

impl Meaning<'_> {
    /// Whether a column has a value of the right kind in every line. Otherwise it is left out, or that is an error.
    pub(super) fn is_whole(&mut self, reading: &Reading, index: usize) -> Result<bool, Diagnostic> {
        let field = &reading.theirs;
        let column = &self.table.columns[index];
        if reading.role == Role::Completion {
            let counts = self.table.names.count_words;
            let why = self.no_words(column).filter(|_| counts);
            let is_counted = counts && why.is_none();
            self.no_length = why.map(|why| (field.clone(), why));
            return Ok(is_counted);
        }
        let why = if column.odd.is_some() {
            self.why_odd(reading, column)?
        } else if column.filled == 0 {
            if reading.asked || matches!(reading.role, Role::Group | Role::Response) {
                let at = column.null.unwrap_or_default();
                return Err(self.wrong_value(reading, at, "null"));
            }
            matches!(reading.role, Role::Token | Role::Mask)
                .then(|| "it is null wherever it is".to_string())
        } else {
            let is_right = match (reading.role, &column.data) {
                (Role::Group, Data::Ids(..)) => true,
                (Role::Mask | Role::Token | Role::Any, Data::Lists(_)) => true,
                (Role::Response | Role::Step | Role::Any, Data::Numbers(_)) => true,
                // The field names groups too.
                (Role::Any, Data::Ids(_, true)) => return Ok(false),
                (Role::Response | Role::Step | Role::Any, Data::Ids(ids, _)) => {
                    numbers(ids).is_some()
                }
                // It is a text column, or nobody wants it.
                (Role::Any, Data::Texts(_)) => return Ok(false),
                _ => false,
            };
            let found = column.describe_first();
            match (is_right, reading.is_needed()) {
                (true, _) => return Ok(true),
                (false, true) => return Err(self.wrong_value(reading, 0, &found)),
                (false, false) => Some(format!("it is {found}")),
            }
        };
        if let Some(why) = why {
            self.left_out(field, &why);
        }
        Ok(false)
    }

    fn wrong_value(&self, reading: &Reading, response: usize, found: &str) -> Diagnostic {
        let (field, response) = (&reading.theirs, Some(response));
        self.table
            .wrong(field, response, None, found, expected(reading))
    }

    /// Why a column without a value of one kind in every line is left out, if that is worth a word; or the error, if the column is
    /// needed.
    fn why_odd(&self, reading: &Reading, column: &Column) -> Result<Option<String>, Diagnostic> {
        let Some(odd) = &column.odd else {
            return Ok(None);
        };
        let (field, other) = (&reading.theirs, self.table.origin.name_of(odd.other));
        match odd.found.as_str() {
            "missing" if reading.is_needed() => {
                let what = format!(
                    "`{field}` is missing, while {other} has it; a column has a value in every response"
                );
                Err(self
                    .table
                    .error(Some(odd.response), Diagnostic::error(what)))
            }
            found if reading.is_needed() => Err(self.wrong_value(reading, odd.response, found)),
            // A string or an object is not meant to be a column.
            _ if matches!(column.data, Data::Other(_) | Data::Texts(_)) => Ok(None),
            found => {
                let here = self.table.origin.name_of(odd.response);
                Ok(Some(format!("it is {found} in {here}, and not in {other}")))
            }
        }
    }

    /// Why a completion does not say how long the responses are, if it does not.
    fn no_words(&self, column: &Column) -> Option<String> {
        let name_of = |response| self.table.origin.name_of(response);
        let Some(odd) = &column.odd else {
            let is_null = column.filled == 0;
            return is_null.then(|| "it is null wherever it is".to_string());
        };
        let (here, found) = (name_of(odd.response), &odd.found);
        let rest = match found.as_str() {
            "missing" | "null" => format!("in {}", name_of(odd.other)),
            _ => words::EXPECTED.to_string(),
        };
        Some(format!("it is {found} in {here}, and not {rest}"))
    }

    /// How many tokens each response has, and which count: by the mask or a known token array, by `length`, by the
    /// words of the completion, or by unknown arrays, if these agree. An array of another length is an error if it is known, and
    /// left out otherwise.
    pub(super) fn ragged_tokens(&mut self) -> Result<(), Diagnostic> {
        let is_array = |index: usize| matches!(self.table.columns[index].data, Data::Lists(_));
        let arrays = self.readings.iter().filter(|(_, index)| is_array(*index));
        let arrays: Vec<(Reading, usize)> = arrays.cloned().collect();
        let is_known = |reading: &Reading| reading.role != Role::Any || reading.asked;
        let known = arrays.iter().find(|(reading, _)| is_known(reading));
        let lengths = known
            .map(|(_, index)| self.lengths_of(*index))
            .or_else(|| self.lengths())
            .or_else(|| self.lengths_of_unknown(&arrays));
        let mut left_out = Vec::new();
        for (reading, index) in &arrays {
            let Some(lengths) = &lengths else {
                let why = match self.first_empty(*index) {
                    Some(at) => format!("it is empty in {}", self.table.origin.name_of(at)),
                    None => "the arrays of the lines differ in length".to_string(),
                };
                left_out.push((
                    reading,
                    format!(
                        "{why}, and nothing says how many tokens the response has (`mask`, `length`)"
                    ),
                ));
                continue;
            };
            let Some(at) = self.differs(lengths, *index) else {
                continue;
            };
            let (field, from) = (&reading.theirs, &lengths.from);
            let (found, length) = (self.lists(*index).length(at), lengths.of_response[at]);
            if is_known(reading) {
                let what = format!(
                    "`{field}` has {found} tokens, `{from}` has {length}; the token arrays of one response are of one length"
                );
                return Err(self.table.error(Some(at), Diagnostic::error(what)));
            }
            let line = self.table.origin.name_of(at);
            let why = match (found, lengths.counted) {
                (0, Some(_)) => format!("it is empty in {line}"),
                (found, Some(what)) => format!(
                    "it has {found} numbers in {line}, where `{from}` has {length} {what} (`--map {field}={field}` makes it the array that says how many tokens a response has)"
                ),
                (found, None) => {
                    format!("it has {found} numbers in {line}, where `{from}` says {length} tokens")
                }
            };
            left_out.push((reading, why));
        }
        if let Some(lengths) = &lengths {
            self.tokens = Some(self.count_tokens(lengths)?);
        }
        let names: HashSet<&str> = left_out.iter().map(|(reading, _)| &*reading.ours).collect();
        self.readings
            .retain(|(other, _)| !names.contains(&*other.ours));
        for (reading, why) in &left_out {
            self.left_out(&reading.theirs, why);
        }
        Ok(())
    }

    fn lists(&self, index: usize) -> &Ragged {
        match &self.table.columns[index].data {
            Data::Lists(rows) => rows,
            _ => unreachable!("a column of arrays was asked for"),
        }
    }

    fn lengths_of(&self, index: usize) -> Lengths {
        let rows = self.lists(index);
        let lengths = (0..self.responses).map(|response| rows.length(response));
        Lengths {
            of_response: lengths.collect(),
            from: self.table.columns[index].name.clone(),
            counted: None,
        }
    }

    /// The first response whose array is of another length.
    fn differs(&self, lengths: &Lengths, index: usize) -> Option<usize> {
        let rows = self.lists(index);
        (0..self.responses).find(|&response| rows.length(response) != lengths.of_response[response])
    }

    fn first_empty(&self, index: usize) -> Option<usize> {
        let rows = self.lists(index);
        (0..self.responses).find(|&response| rows.length(response) == 0)
    }

    /// The lengths by `length` or by the words of a completion.
    fn lengths(&mut self) -> Option<Lengths> {
        if let Some((reading, index)) = self.find("length") {
            let Data::Numbers(lengths) = &self.table.columns[index].data else {
                return None;
            };
            // Other numbers are refused when the batch is built.
            let is_length = |&length: &f64| {
                length.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&length)
            };
            return lengths.iter().all(is_length).then(|| Lengths {
                of_response: lengths.iter().map(|&length| length as usize).collect(),
                from: reading.theirs,
                counted: None,
            });
        }
        let mut readings = self.readings.iter_mut();
        let (reading, index) = readings.find(|(reading, _)| reading.role == Role::Completion)?;
        let Data::Words(counts) = &self.table.columns[*index].data else {
            return None;
        };
        let field = reading.theirs.clone();
        let (what, by) = match &self.table.names.tokenizer {
            Some(tokenizer) => ("tokens", format!(", by {}", tokenizer.name())),
            None => {
                self.unit = "word";
                ("words", String::new())
            }
        };
        self.notes.push(format!(
            "the length of a response is the number of {what} in `{field}`{by}: there is no `length` and no token array"
        ));
        // They are the column `length` from here on.
        reading.ours = "length".to_string();
        reading.role = Role::Response;
        Some(Lengths {
            of_response: counts.iter().map(|&count| count as usize).collect(),
            from: field,
            counted: Some(what),
        })
    }

    /// The lengths of unknown arrays, if they agree. An array that is empty somewhere, of errors say, is no sign of responses
    /// without tokens.
    fn lengths_of_unknown(&mut self, arrays: &[(Reading, usize)]) -> Option<Lengths> {
        let full = arrays.iter().map(|(_, index)| *index);
        let full: Vec<usize> = full
            .filter(|&index| self.first_empty(index).is_none())
            .collect();
        let first = full.first().map(|&index| self.lengths_of(index));
        let lengths = first.filter(|first| {
            let mut full = full.iter();
            full.all(|&index| self.differs(first, index).is_none())
        });
        match (&lengths, self.no_length.take()) {
            (Some(lengths), _) => self.notes.push(format!(
                "the length of a response is that of its array `{}`: there is no `mask`, no `length`, no known token array and no `completion`",
                lengths.from
            )),
            (None, Some((field, why))) => self.notes.push(format!(
                "no response has a length: `{field}` does not give it ({why}), and there is no `length` and no token array"
            )),
            (None, None) => {}
        }
        lengths
    }

    fn count_tokens(&self, lengths: &Lengths) -> Result<Tokens, Diagnostic> {
        let mut readings = self.readings.iter();
        let mask = readings.find(|(reading, _)| reading.role == Role::Mask);
        let mut tokens = Tokens::new(None);
        for (response, &length) in lengths.of_response.iter().enumerate() {
            let Some((reading, index)) = mask else {
                tokens.add_full(length);
                continue;
            };
            let added = tokens.add(self.lists(*index).row(response));
            added.map_err(|(token, value)| {
                let (at, token) = (Some(response), Some(token));
                self.table
                    .wrong(&reading.theirs, at, token, value.to_string(), MASK)
            })?;
        }
        Ok(tokens)
    }

    /// The columns that are to be read: of an array that nobody wants there are only the lengths.
    pub(super) fn wanted(&mut self, mut readings: Vec<(Reading, usize)>) -> Vec<(Reading, usize)> {
        let all = readings.len();
        readings.retain(|(reading, index)| {
            let is_array = matches!(self.table.columns[*index].data, Data::Lists(_));
            !is_array || self.table.names.wants(reading)
        });
        if readings.len() < all {
            self.unread = Some(self.options.dtype != Some(Dtype::F32));
        }
        readings
    }

    /// The values of a column of lines, which are taken if `is_last`, since nothing else reads them.
    pub(super) fn values_of_lines(&mut self, index: usize, is_last: bool) -> Option<Given> {
        let data = &mut self.table.columns[index].data;
        let data = match is_last {
            true => std::mem::replace(data, Data::Null),
            false => data.clone(),
        };
        Some(match data {
            Data::Numbers(numbers) | Data::Words(numbers) => Given::Responses(numbers.into()),
            Data::Ids(ids, _) => Given::Responses(numbers(&ids)?.into()),
            Data::Lists(mut rows) => {
                rows.is_f64 = self.options.dtype != Some(Dtype::F32);
                Given::Rows(rows)
            }
            _ => return None,
        })
    }
}

/// Groups as numbers, if all are.
fn numbers(ids: &[GroupId]) -> Option<Vec<f64>> {
    let ids = ids.iter().map(|id| match id {
        // Exact up to 2^53, as any number of a line.
        GroupId::Number(number) => Some(*number as f64),
        GroupId::String(_) => None,
    });
    ids.collect()
}
