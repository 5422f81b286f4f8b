//! Columns of lines: which of them are whole, and how many tokens the response of a line has.

use super::{Cells, Given, Inference};
use crate::batch::GroupId;
use crate::batch::files::names::{Reading, Role};
use crate::batch::files::raw::{Arrays, RawColumn, Values};
use crate::batch::files::words;
use crate::batch::layout::Tokens;
use crate::diagnostic::Diagnostic;

/// How many tokens each response has.
struct Lengths {
    of_response: Vec<usize>,
    /// The field that says so.
    from: String,
    /// Whether they are the words of a completion.
    are_words: bool,
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

impl Inference<'_> {
    /// Whether a column has a value of the right kind in every line. Otherwise it is left out, or that is an error.
    pub(super) fn is_whole(&mut self, reading: &Reading, index: usize) -> Result<bool, Diagnostic> {
        let field = &reading.theirs;
        let column = &self.raw.columns[index];
        if reading.role == Role::Completion {
            if self.raw.names.count_words
                && let Some(why) = no_words(column, |response| self.raw.origin.name_of(response))
            {
                self.no_length = Some((field.clone(), why));
                return Ok(false);
            }
            return Ok(self.raw.names.count_words);
        }
        let wrong = |response: usize, found: String| {
            Err(self
                .raw
                .wrong(field, Some(response), None, found, expected(reading)))
        };
        if let Some(odd) = &column.odd {
            let is_other = matches!(column.values, Values::Other(_));
            return match (reading.is_needed(), odd.found.as_str()) {
                (true, "missing") => {
                    let other = self.raw.origin.name_of(odd.other);
                    let what = format!(
                        "`{field}` is missing, while {other} has it; a column has a value in every response"
                    );
                    Err(self.raw.error(Some(odd.response), Diagnostic::error(what)))
                }
                (true, found) => wrong(odd.response, found.to_string()),
                // A string or an object is not meant to be a column.
                (false, _) if is_other => Ok(false),
                (false, found) => {
                    let [here, other] =
                        [odd.response, odd.other].map(|at| self.raw.origin.name_of(at));
                    let why = format!("it is {found} in {here}, and not in {other}");
                    self.notes.left_out(field, &why);
                    Ok(false)
                }
            };
        }
        if column.filled == 0 {
            if reading.asked || matches!(reading.role, Role::Group | Role::Response) {
                return wrong(column.null.unwrap_or_default(), "null".to_string());
            }
            if matches!(reading.role, Role::Token | Role::Mask) {
                self.notes.left_out(field, "it is null wherever it is");
            }
            return Ok(false);
        }
        let has_kind = match (reading.role, &column.values) {
            (Role::Group, Values::Ids { .. }) => true,
            (Role::Mask | Role::Token | Role::Any, Values::Arrays(_)) => true,
            (Role::Response | Role::Step | Role::Any, Values::Numbers(_)) => true,
            // The field names groups too.
            (Role::Response | Role::Step | Role::Any, Values::Ids { ids, .. }) => {
                numbers(ids).is_some()
            }
            _ => false,
        };
        let found = column.describe(0);
        match (has_kind, reading.is_needed()) {
            (false, true) => return wrong(0, found),
            (false, false) => self.notes.left_out(field, &format!("it is {found}")),
            (true, _) => {}
        }
        Ok(has_kind)
    }

    /// How many tokens each response has, and which count: by the mask or a known token array, by `length`, by the words
    /// of the completion, or by arrays that nobody knows, which all or none say it.
    pub(super) fn ragged_tokens(&mut self) -> Result<(), Diagnostic> {
        let known: Vec<(Reading, usize)> = self
            .arrays()
            .filter(|(reading, _)| reading.role != Role::Any || reading.asked)
            .cloned()
            .collect();
        let lengths = match known.first() {
            Some((_, index)) => {
                let lengths = self.lengths_of(*index, false);
                for (_, other) in &known[1..] {
                    self.agree(&lengths, *other)?;
                }
                Some(lengths)
            }
            None => match self.lengths() {
                Some(lengths) => Some(lengths),
                None => self.lengths_of_unknown(),
            },
        };
        if let Some(lengths) = &lengths {
            let mask = known.iter().find(|(reading, _)| reading.role == Role::Mask);
            self.tokens = Some(self.count_tokens(lengths, mask.map(|(_, index)| *index))?);
        }
        self.leave_out_arrays(lengths.as_ref());
        Ok(())
    }

    fn arrays(&self) -> impl Iterator<Item = &(Reading, usize)> {
        let is_array = |index: usize| matches!(self.raw.columns[index].values, Values::Arrays(_));
        self.readings
            .iter()
            .filter(move |(_, index)| is_array(*index))
    }

    fn rows(&self, index: usize) -> &Arrays {
        match &self.raw.columns[index].values {
            Values::Arrays(arrays) => arrays,
            _ => unreachable!("a column of arrays was asked for"),
        }
    }

    fn lengths_of(&self, index: usize, are_words: bool) -> Lengths {
        let rows = self.rows(index);
        Lengths {
            of_response: (0..self.responses)
                .map(|response| rows.row(response).len())
                .collect(),
            from: self.raw.columns[index].name.clone(),
            are_words,
        }
    }

    /// Makes sure that the token arrays of one response are of one length.
    fn agree(&self, lengths: &Lengths, index: usize) -> Result<(), Diagnostic> {
        let Some(response) = self.differs(lengths, index) else {
            return Ok(());
        };
        let Lengths {
            of_response, from, ..
        } = lengths;
        let field = &self.raw.columns[index].name;
        let what = format!(
            "`{field}` has {} tokens, `{from}` has {}; the token arrays of one response are of one length",
            self.rows(index).row(response).len(),
            of_response[response]
        );
        Err(self.raw.error(Some(response), Diagnostic::error(what)))
    }

    /// The first response whose array is of another length.
    fn differs(&self, lengths: &Lengths, index: usize) -> Option<usize> {
        let rows = self.rows(index);
        (0..self.responses)
            .find(|&response| rows.row(response).len() != lengths.of_response[response])
    }

    /// The lengths by `length` or by the words of a completion.
    fn lengths(&mut self) -> Option<Lengths> {
        if let Some((reading, index)) = self.find("length") {
            let Values::Numbers(lengths) = &self.raw.columns[index].values else {
                return None;
            };
            // Other numbers are refused when the batch is built.
            let is_length = |&length: &f64| {
                length.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&length)
            };
            return lengths.iter().all(is_length).then(|| Lengths {
                of_response: lengths.iter().map(|&length| length as usize).collect(),
                from: reading.theirs,
                are_words: false,
            });
        }
        let mut readings = self.readings.iter();
        let at = readings.position(|(reading, _)| reading.role == Role::Completion)?;
        let (reading, index) = &mut self.readings[at];
        let Values::Words { counts, messages } = &self.raw.columns[*index].values else {
            return None;
        };
        let field = reading.theirs.clone();
        let what = if *messages {
            format!("in the `content` of each message of `{field}`")
        } else {
            format!("in `{field}`")
        };
        self.notes.add(format!(
            "the length of a response is the number of words {what}: there is no `length` and no token array"
        ));
        let lengths = Lengths {
            of_response: counts.iter().map(|&count| count as usize).collect(),
            from: field,
            are_words: true,
        };
        // They are the column `length` from here on.
        reading.ours = "length".to_string();
        reading.role = Role::Response;
        Some(lengths)
    }

    /// The lengths of the arrays that nobody knows. An array that is empty somewhere, of errors say, is no sign of
    /// responses without tokens.
    fn lengths_of_unknown(&mut self) -> Option<Lengths> {
        let is_full = |index: usize| {
            let rows = self.rows(index);
            (0..self.responses).all(|response| !rows.row(response).is_empty())
        };
        let full: Vec<usize> = self
            .arrays()
            .map(|(_, index)| *index)
            .filter(|&index| is_full(index))
            .collect();
        let lengths = full.first().map(|&index| self.lengths_of(index, false));
        let lengths = lengths.filter(|lengths| {
            full.iter()
                .all(|&index| self.differs(lengths, index).is_none())
        });
        match (&lengths, self.no_length.take()) {
            (Some(lengths), _) => self.notes.add(format!(
                "the length of a response is that of its array `{}`: there is no `mask`, no `length`, no known token array and no `completion`",
                lengths.from
            )),
            (None, Some((field, why))) => self.notes.add(format!(
                "no response has a length: `{field}` does not give it ({why}), and there is no `length` and no token array"
            )),
            (None, None) => {}
        }
        lengths
    }

    fn count_tokens(&self, lengths: &Lengths, mask: Option<usize>) -> Result<Tokens, Diagnostic> {
        let mut tokens = Tokens::ragged();
        for (response, &length) in lengths.of_response.iter().enumerate() {
            let Some(mask) = mask else {
                tokens.add_full(length);
                continue;
            };
            let row = self.rows(mask).row(response);
            if let Some(token) = row.iter().position(|&value| value != 0.0 && value != 1.0) {
                let name = &self.raw.columns[mask].name;
                let expected = "1 for a token that counts or 0 for one that does not";
                let found = row[token].to_string();
                return Err(self
                    .raw
                    .wrong(name, Some(response), Some(token), found, expected));
            }
            tokens.add(row.iter().map(|&value| value == 1.0));
        }
        Ok(tokens)
    }

    /// Leaves out the arrays that have not one number a token.
    fn leave_out_arrays(&mut self, lengths: Option<&Lengths>) {
        let nothing = "nothing says how many tokens the response has (`mask`, `length`)";
        let arrays: Vec<(Reading, usize)> = self.arrays().cloned().collect();
        for (reading, index) in arrays {
            let field = &reading.theirs;
            let rows = self.rows(index);
            let empty = || (0..self.responses).find(|&response| rows.row(response).is_empty());
            let why = match lengths {
                None => match empty() {
                    Some(at) => format!(
                        "it is empty in {}, and {nothing}",
                        self.raw.origin.name_of(at)
                    ),
                    None => format!("the arrays of the lines differ in length, and {nothing}"),
                },
                Some(lengths) => {
                    let Some(at) = self.differs(lengths, index) else {
                        continue;
                    };
                    let Lengths {
                        of_response,
                        from,
                        are_words,
                    } = lengths;
                    let (line, length) = (self.raw.origin.name_of(at), of_response[at]);
                    match rows.row(at).len() {
                        0 if *are_words => format!("it is empty in {line}"),
                        found if *are_words => format!(
                            "it has {found} numbers in {line}, where `{from}` has {length} words (`--map {field}={field}` makes it the array that says how many tokens a response has)"
                        ),
                        found => format!(
                            "it has {found} numbers in {line}, where `{from}` says {length} tokens"
                        ),
                    }
                }
            };
            self.notes.left_out(field, &why);
            self.readings
                .retain(|(other, _)| other.ours != reading.ours);
        }
    }

    pub(super) fn take_lines(&mut self, index: usize, is_last: bool) -> Given {
        let values = &mut self.raw.columns[index].values;
        match values {
            Values::Numbers(numbers) => Given::Responses(numbers.clone()),
            Values::Words { counts, .. } => Given::Responses(counts.clone()),
            Values::Ids { ids, .. } => numbers(ids).map_or(Given::Nothing, Given::Responses),
            Values::Arrays(arrays) if is_last => {
                let arrays = std::mem::replace(arrays, Arrays::new());
                Given::Tokens(Cells::Ragged(arrays))
            }
            Values::Arrays(arrays) => Given::Tokens(Cells::Ragged(arrays.clone())),
            Values::None | Values::Tensor(_) | Values::Other(_) => Given::Nothing,
        }
    }
}

/// Groups as numbers, if all are.
fn numbers(ids: &[GroupId]) -> Option<Vec<f64>> {
    let ids = ids.iter().map(|id| match id {
        // Exact up to 2^53, as any number of a line.
        GroupId::Number(number) => Some(*number as f64),
        GroupId::Text(_) => None,
    });
    ids.collect()
}

/// Why a completion does not say how long the responses are, if it does not.
fn no_words(column: &RawColumn, name_of: impl Fn(usize) -> String) -> Option<String> {
    let Some(odd) = &column.odd else {
        let is_null = matches!(column.values, Values::None);
        return is_null.then(|| "it is null wherever it is".to_string());
    };
    let (here, other) = (name_of(odd.response), name_of(odd.other));
    Some(match odd.found.as_str() {
        found @ ("missing" | "null") => format!("it is {found} in {here}, and not in {other}"),
        found => format!("it is {found} in {here}, and not {}", words::EXPECTED),
    })
}
