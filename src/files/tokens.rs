//! The tokens that count: how many each response has, and which of the columns agree with that.

use std::collections::HashSet;

use super::meaning::{Bound, Meaning};
use super::names::{Reading, Role};
use super::table::Data;
use crate::batch::Level;
use crate::batch::layout::Tokens;
use crate::diagnostic::Diagnostic;

const MASK: &str = "1 for a token that counts or 0 for one that does not";

/// The number of tokens of each response.
struct Lengths {
    of_response: Vec<usize>,
    /// The field that says so.
    from: String,
    /// What they are, if they are not the response's own tokens: words or tokens of a text.
    counted: Option<&'static str>,
}

impl Meaning<'_> {
    /// The number of a response's values in a column of token values.
    fn length(&self, index: usize, response: usize) -> usize {
        match self.data(index) {
            Data::Lists(lists) => lists.length(response),
            Data::Tensor(tensor) => tensor.shape[1],
            _ => 0,
        }
    }

    fn lengths_of(&self, index: usize) -> Lengths {
        let responses = 0..self.responses;
        Lengths {
            of_response: responses
                .map(|response| self.length(index, response))
                .collect(),
            from: self.table.columns[index].name.clone(),
            counted: None,
        }
    }

    /// The first response whose values are more or fewer than its tokens.
    fn differs(&self, lengths: &Lengths, index: usize) -> Option<usize> {
        let mut responses = lengths.of_response.iter().enumerate();
        let (response, _) = responses.find(|(at, length)| self.length(index, *at) != **length)?;
        Some(response)
    }

    /// The tokens that count: by the mask or a known token column, by `length` or the words of the completion, or by unknown
    /// columns, if these agree. A column of another length is an error if it is known, and left out otherwise.
    pub(super) fn tokens(&mut self) -> Result<Option<Tokens>, Diagnostic> {
        let mut arrays = self.bound.clone();
        arrays.retain(|bound| self.level(bound) == Some(Level::Token));
        let is_known = |reading: &Reading| reading.role != Role::Any || reading.asked;
        let mask = arrays
            .iter()
            .find(|(reading, _)| reading.role == Role::Mask)
            .cloned();
        let known = arrays.iter().find(|(reading, _)| is_known(reading));
        let known = mask
            .as_ref()
            .or(known)
            .map(|(_, index)| self.lengths_of(*index));
        let lengths = match self.origin().has_lines() {
            _ if known.is_some() => known,
            true => self
                .counted_lengths()
                .or_else(|| self.lengths_of_unknown(&arrays)),
            // In padded files, T is that of the columns.
            false => self
                .lengths_of_unknown(&arrays)
                .or_else(|| self.counted_lengths()),
        };
        let mut misfits = HashSet::new();
        for (reading, index) in &arrays {
            if let Some(why) = self.misfit(lengths.as_ref(), reading, *index)? {
                self.left_out(&reading.theirs, &why);
                misfits.insert(reading.ours.clone());
            }
        }
        self.bound
            .retain(|(reading, _)| !misfits.contains(&reading.ours));
        let is_padded = arrays
            .iter()
            .any(|(_, index)| matches!(self.data(*index), Data::Tensor(_)));
        let widths = lengths.as_ref().filter(|_| is_padded);
        self.width = widths.and_then(|lengths| lengths.of_response.first().copied());
        match (mask, lengths) {
            (Some((reading, index)), _) => self.mask(&reading, index).map(Some),
            (None, Some(lengths)) => {
                if let Some(width) = self.width {
                    let hint = self.mask_hint(width);
                    self.notes
                        .push(format!("there is no mask: all tokens count{hint}"));
                }
                let mut tokens = Tokens::new();
                lengths
                    .of_response
                    .into_iter()
                    .for_each(|length| tokens.add_full(length));
                Ok(Some(tokens))
            }
            (None, None) => Ok(None),
        }
    }

    /// Why a column does not have a value for each token; an error if it is known.
    fn misfit(
        &self,
        lengths: Option<&Lengths>,
        reading: &Reading,
        index: usize,
    ) -> Result<Option<String>, Diagnostic> {
        let Some(lengths) = lengths else {
            return Ok(Some(
                "nothing says how many tokens a response has (`mask`, `length`)".to_string(),
            ));
        };
        let Some(at) = self.differs(lengths, index) else {
            return Ok(None);
        };
        let (field, from, name) = (&reading.theirs, &lengths.from, self.origin().name_of(at));
        let (found, length) = (self.length(index, at), lengths.of_response[at]);
        if reading.role != Role::Any || reading.asked {
            let mut what = format!(
                "`{field}` has {found} tokens, `{from}` has {length}; the token arrays of one response are of one length"
            );
            if !self.origin().has_lines() {
                what = format!("{name}: {what}");
            }
            return Err(self.origin().error(Some(at), Diagnostic::error(what)));
        }
        Ok(Some(match lengths.counted {
            Some(what) if found > 0 => format!(
                "it has {found} numbers in {name}, where `{from}` has {length} {what} (`--map {field}={field}` makes it the array that says how many tokens a response has)"
            ),
            _ => format!("it has {found} numbers in {name}, where `{from}` says {length} tokens"),
        }))
    }

    /// The lengths by `length` or by the words of a completion.
    fn counted_lengths(&mut self) -> Option<Lengths> {
        if let Some((reading, index)) = self.find("length") {
            // Others are refused when the batch is built; tensors are read there.
            let Data::Numbers(lengths) = self.data(index) else {
                return None;
            };
            let is_length =
                |length: &f64| length.fract() == 0.0 && (0.0..=u32::MAX.into()).contains(length);
            return lengths.iter().all(is_length).then(|| Lengths {
                of_response: lengths.iter().map(|&length| length as usize).collect(),
                from: reading.theirs,
                counted: None,
            });
        }
        let mut bound = self.bound.iter_mut();
        let (reading, index) = bound.find(|(reading, _)| reading.role == Role::Completion)?;
        let Data::Counts(counts) = &self.table.columns[*index].data else {
            return None;
        };
        // They are the column `length` from here on.
        let field = reading.theirs.clone();
        *reading = Reading::new("length", &field, false);
        let (what, by) = match &self.table.names.tokenizer {
            Some(tokenizer) => ("tokens", format!(", by {}", tokenizer.name())),
            None => {
                self.unit = "word";
                ("words", String::new())
            }
        };
        self.notes.push(format!("the length of a response is the number of {what} in `{field}`{by}: there is no `length` and no token array"));
        Some(Lengths {
            of_response: counts.iter().map(|&count| count as usize).collect(),
            from: field,
            counted: Some(what),
        })
    }

    /// The lengths of unknown arrays, if they agree. An array that is empty somewhere, of errors say, is no sign of responses
    /// without tokens; nor is an older advantage, perhaps of another batch.
    fn lengths_of_unknown(&mut self, arrays: &[Bound]) -> Option<Lengths> {
        let is_old = |reading: &Reading| !self.origin().has_lines() && reading.ours == "advantage";
        let is_full = |index: usize| (0..self.responses).all(|at| self.length(index, at) > 0);
        let full = arrays
            .iter()
            .filter(|(reading, index)| !is_old(reading) && is_full(*index));
        let full: Vec<usize> = full.map(|(_, index)| *index).collect();
        let first = full.first().map(|&index| self.lengths_of(index));
        let lengths = first.filter(|first| {
            full.iter()
                .all(|&index| self.differs(first, index).is_none())
        });
        match (&lengths, self.no_length.take()) {
            (Some(lengths), _) if self.origin().has_lines() => self.notes.push(format!(
                "the length of a response is that of its array `{}`: there is no `mask`, no `length`, no known token array and no `completion`",
                lengths.from
            )),
            (None, Some((field, why))) => self.notes.push(format!(
                "no response has a length: `{field}` does not give it ({why}), and there is no `length` and no token array"
            )),
            _ => {}
        }
        lengths
    }

    /// The tokens that count by the mask.
    fn mask(&self, reading: &Reading, index: usize) -> Result<Tokens, Diagnostic> {
        let wrong = |(response, token, value): (usize, usize, f64)| {
            let (at, found) = ((Some(response), Some(token)), value.to_string());
            self.origin().wrong(&reading.theirs, at, found, MASK)
        };
        let lists = match self.data(index) {
            Data::Tensor(tensor) => return tensor.mask()?.map_err(wrong),
            Data::Lists(lists) => lists,
            _ => unreachable!("`fits` has seen that the mask is an array"),
        };
        let mut tokens = Tokens::new();
        for response in 0..self.responses {
            let added = tokens.add(lists.row(response));
            added.map_err(|(token, value)| wrong((response, token, value)))?;
        }
        Ok(tokens)
    }

    /// The tensor that may be the mask of a file that has none by our names.
    fn mask_hint(&self, width: usize) -> String {
        let mut columns = self.table.columns.iter();
        let mask = columns.find_map(|column| match &column.data {
            Data::Tensor(tensor) if column.name.contains("mask") => Some((tensor, &column.name)),
            _ => None,
        });
        match mask.map(|(tensor, name)| (tensor.shape.get(1), name)) {
            Some((Some(&found), name)) if found == width => {
                format!("; if `{name}` says which do, say `--map mask={name}`")
            }
            // As verl's is, of prompt and response.
            Some((Some(&found), name)) if found > width => format!(
                "; if the end of `{name}` says which do, add `{name}[:, -{width}:]` to the file as `response_mask`"
            ),
            _ => String::new(),
        }
    }
}
