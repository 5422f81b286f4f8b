//! The tokens that count: how many each response has, and which of the columns agree with that.

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

impl Bound {
    /// The number of a response's values in a column of token values.
    fn length(&self, response: usize) -> usize {
        match &self.column.data {
            Data::Lists(lists) => lists.length(response),
            Data::Tensor(tensor) => tensor.shape[1],
            _ => 0,
        }
    }

    fn lengths(&self, responses: usize) -> Lengths {
        Lengths {
            of_response: (0..responses)
                .map(|response| self.length(response))
                .collect(),
            from: self.column.name.clone(),
            counted: None,
        }
    }

    /// The first response whose values are more or fewer than its tokens.
    fn differs(&self, lengths: &Lengths) -> Option<usize> {
        let mut lengths = lengths.of_response.iter().enumerate();
        lengths
            .find(|(at, length)| self.length(*at) != **length)
            .map(|(at, _)| at)
    }
}

impl Meaning<'_> {
    /// The tokens that count: by the mask or a known token column, by `length` or the words of the completion, or by unknown
    /// columns, if these agree. A column of another length is an error if it is known, and left out otherwise.
    pub(super) fn tokens(&mut self) -> Result<Option<Tokens>, Diagnostic> {
        let bound = std::mem::take(&mut self.bound).into_iter();
        let (arrays, others): (Vec<Bound>, _) = bound.partition(|one| one.level == Level::Token);
        self.bound = others;
        let mask = arrays.iter().find(|bound| bound.reading.role == Role::Mask);
        let known = mask.or_else(|| arrays.iter().find(|bound| bound.is_known()));
        let lengths = match known {
            Some(known) => Some(known.lengths(self.responses)),
            None if self.origin().has_lines() => self
                .counted_lengths()
                .or_else(|| self.lengths_of_unknown(&arrays)),
            // In padded files, T is that of the columns.
            None => self
                .lengths_of_unknown(&arrays)
                .or_else(|| self.counted_lengths()),
        };
        let is_padded = |bound: &Bound| matches!(bound.column.data, Data::Tensor(_));
        let widths = lengths.as_ref().filter(|_| arrays.iter().any(is_padded));
        self.width = widths.and_then(|lengths| lengths.of_response.first().copied());
        let mut fitting = Vec::new();
        for bound in arrays {
            match self.misfit(lengths.as_ref(), &bound)? {
                Some(why) => self.left_out(&bound.reading.theirs, &why),
                None => fitting.push(bound),
            }
        }
        let mask = fitting
            .iter()
            .find(|bound| bound.reading.role == Role::Mask);
        let tokens = match (mask, lengths) {
            (Some(mask), _) => Some(self.mask(mask)?),
            (None, Some(lengths)) => {
                if let Some(width) = self.width {
                    let hint = self.mask_hint(width);
                    self.notes
                        .push(format!("there is no mask: all tokens count{hint}"));
                }
                let mut tokens = Tokens::new(self.width);
                let lengths = lengths.of_response.into_iter();
                lengths.for_each(|length| tokens.add_full(length));
                Some(tokens)
            }
            (None, None) => None,
        };
        self.bound.append(&mut fitting);
        Ok(tokens)
    }

    /// Why a column does not have a value for each token; an error if it is known.
    fn misfit(
        &self,
        lengths: Option<&Lengths>,
        bound: &Bound,
    ) -> Result<Option<String>, Diagnostic> {
        let Some(lengths) = lengths else {
            let why = "nothing says how many tokens a response has (`mask`, `length`)";
            return Ok(Some(why.to_string()));
        };
        let Some(at) = bound.differs(lengths) else {
            return Ok(None);
        };
        let (field, from) = (&bound.reading.theirs, &lengths.from);
        let name = self.origin().name_of(at);
        let (found, length) = (bound.length(at), lengths.of_response[at]);
        if bound.is_known() {
            let of_tensor = !self.origin().has_lines();
            let place = if of_tensor {
                format!("{name}: ")
            } else {
                String::new()
            };
            let what = format!(
                "{place}`{field}` has {found} tokens, `{from}` has {length}; the token arrays of one response are of one length"
            );
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
        if let Some(bound) = self.find("length") {
            // Others are refused when the batch is built; tensors are read there.
            let Data::Numbers(lengths) = &bound.column.data else {
                return None;
            };
            let is_length =
                |length: &f64| length.fract() == 0.0 && (0.0..=u32::MAX.into()).contains(length);
            return lengths.iter().all(is_length).then(|| Lengths {
                of_response: lengths.iter().map(|&length| length as usize).collect(),
                from: bound.reading.theirs.clone(),
                counted: None,
            });
        }
        let (from, column) = self.counted.take()?;
        let Data::Texts(_, counts) = &column.data else {
            return None;
        };
        let of_response = counts.iter().map(|&count| count as usize).collect();
        let (what, by) = match self.table.names.tokenizer.as_ref() {
            Some(tokenizer) => ("tokens", format!(", by {}", tokenizer.name())),
            None => ("words", String::new()),
        };
        if what == "words" {
            self.unit = "word";
        }
        self.notes.push(format!("the length of a response is the number of {what} in `{from}`{by}: there is no `length` and no token array"));
        // They are the column `length` from here on.
        let (reading, level) = (Reading::new("length", &from, false), Level::Response);
        self.bound.push(Bound {
            reading,
            column,
            level,
        });
        Some(Lengths {
            of_response,
            from,
            counted: Some(what),
        })
    }

    /// The lengths of unknown arrays, if they agree. An array that is empty somewhere, of errors say, is no sign of responses
    /// without tokens; nor is an older advantage, perhaps of another batch.
    fn lengths_of_unknown(&mut self, arrays: &[Bound]) -> Option<Lengths> {
        let (responses, are_lines) = (self.responses, self.origin().has_lines());
        let full = arrays.iter().filter(|bound| {
            let is_old = !are_lines && bound.reading.ours == "advantage";
            !is_old && (0..responses).all(|at| bound.length(at) > 0)
        });
        let first = full.clone().next().map(|bound| bound.lengths(responses));
        let lengths =
            first.filter(|first| full.clone().all(|bound| bound.differs(first).is_none()));
        match (&lengths, self.no_length.take()) {
            (Some(lengths), _) if are_lines => self.notes.push(format!(
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
    fn mask(&self, bound: &Bound) -> Result<Tokens, Diagnostic> {
        let wrong = |(response, token, value): (usize, usize, f64)| {
            let (at, found) = ((Some(response), Some(token)), value.to_string());
            self.origin().wrong(&bound.reading.theirs, at, found, MASK)
        };
        let lists = match &bound.column.data {
            Data::Tensor(tensor) => return tensor.mask()?.map_err(wrong),
            Data::Lists(lists) => lists,
            _ => unreachable!("a column of tokens has arrays"),
        };
        let mut tokens = Tokens::new(None);
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
            Data::Tensor(tensor) if column.name.contains("mask") => Some(tensor),
            _ => None,
        });
        match mask.map(|tensor| (tensor.shape.get(1), &tensor.name)) {
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
