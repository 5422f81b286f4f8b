//! Finds the number of tokens of each response, the tokens that count, and the columns that have that number of values.

use super::Resolving;
use crate::batch::layout::Tokens;
use crate::diagnostic::Diagnostic;
use crate::files::padded;
use crate::files::place::Result;
use crate::files::schema::{Reading, Role};
use crate::files::table::{ColumnData, FileColumn};
use crate::number_text::counted;
use crate::tensor_file::FileTensor;

const MASK: &str = "1 for a token that counts, 0 for a token that does not";

/// The tokens of each response; the field from which their number was taken; and the unit (words or tokens), if that field is a
/// text in which they were counted.
type Lengths = (Tokens, String, Option<&'static str>);

/// Returns whether the words or tokens of a column are counted, because no other column gives the lengths of responses.
fn is_counted(column: &FileColumn) -> bool {
    column.reading.role == Role::Completion && column.keep.counts
}

impl Resolving<'_> {
    /// Returns the tokens of each response, found from the mask or a known token column, or else from `length`, completions, or
    /// unknown arrays that agree. A column with other lengths is an error if it is known, and is skipped otherwise.
    pub(super) fn tokens(&mut self) -> Result<Option<Tokens>> {
        let is_counted = self.texts.iter().any(is_counted);
        if self.options.tokenizer.is_some() && !is_counted {
            let why = "the file gives the number of tokens, or has no `completion` that is text";
            self.notes
                .push(format!("the tokenizer is not used, because {why}"));
        }
        let arrays = std::mem::take(&mut self.arrays);
        let mask = arrays
            .iter()
            .find(|column| column.reading.role == Role::Mask);
        let known = arrays.iter().find(|column| column.is_known());
        let lengths = if let Some(mask) = mask {
            Some((self.mask_of(mask)?, mask.name().to_string(), None))
        } else if let Some(known) = known {
            Some(self.lengths_of(known))
        } else if self.place.has_lines() {
            let counted = self.counted_lengths();
            counted.or_else(|| self.lengths_of_unknown(&arrays))
        } else {
            // In padded files, unknown tensors are tried before `length`, because their width is T.
            let unknown = self.lengths_of_unknown(&arrays);
            unknown.or_else(|| self.counted_lengths())
        };
        let has_mask = mask.is_some();
        let tensors = arrays.iter().filter_map(|column| match &column.data {
            ColumnData::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        });
        let tensors: Vec<FileTensor> = tensors.collect();
        for column in arrays {
            match self.misfit(lengths.as_ref(), &column)? {
                Some(why) => self.left_out(column.name(), &why),
                None => self.arrays.push(column),
            }
        }
        let Some((tokens, ..)) = lengths else {
            return Ok(None);
        };
        self.is_padded = !tensors.is_empty() && tokens.responses() > 0;
        if self.is_padded && !has_mask {
            let mask_like = tensors.iter().find(|tensor| tensor.name.contains("mask"));
            let hint = mask_hint(mask_like, tokens.row_length(0));
            self.notes
                .push(format!("there is no mask, so all tokens count{hint}"));
        }
        Ok(Some(tokens))
    }

    /// Returns the reason if a column does not have one value per token. Fails with this reason if the column is known.
    fn misfit(&self, lengths: Option<&Lengths>, column: &FileColumn) -> Result<Option<String>> {
        let Some((tokens, from, counted)) = lengths else {
            let why = "no `mask` or `length` says how many tokens a response has";
            return Ok(Some(why.to_string()));
        };
        let Some(at) = column.differs(tokens) else {
            return Ok(None);
        };
        let (field, name) = (column.name(), self.place.name_of(at));
        let (found, length) = (column.length(at), tokens.row_length(at));
        if column.is_known() {
            let place = if self.place.has_lines() {
                String::new()
            } else {
                format!("{name}: ")
            };
            let what = format!(
                "{place}`{field}` has {found} tokens, but `{from}` has {length}: all token arrays of a response must have the same length"
            );
            return Err(self.place.error(Some(at), Diagnostic::error(what)));
        }
        Ok(Some(match counted {
            Some(what) if found > 0 => format!(
                "it has {found} numbers in {name}, but `{from}` has {length} {what} there (`--map {field}={field}` takes the number of tokens from this array instead)"
            ),
            _ => format!("it has {found} numbers in {name}, but `{from}` says {length} tokens"),
        }))
    }

    /// Returns the lengths of a column's arrays. Each value belongs to a token that counts, because there is no mask.
    fn lengths_of(&self, column: &FileColumn) -> Lengths {
        let lengths = (0..self.responses).map(|response| column.length(response));
        (Tokens::full(lengths), column.name().to_string(), None)
    }

    /// Returns the lengths from the column `length`, or else the number of words or tokens in the completions.
    fn counted_lengths(&mut self) -> Option<Lengths> {
        if let Some(column) = self.find("length") {
            // Other data are not used here, because the batch builder reads a tensor of lengths and refuses anything else.
            let ColumnData::Numbers(lengths) = &column.data else {
                return None;
            };
            let is_length =
                |length: &f64| length.fract() == 0.0 && (0.0..=u32::MAX.into()).contains(length);
            let from = column.name().to_string();
            let whole = lengths.iter().map(|&length| length as usize);
            let is_right = lengths.iter().all(is_length);
            return is_right.then(|| (Tokens::full(whole), from, None));
        }
        let column = self.texts.iter_mut().find(|column| is_counted(column))?;
        let ColumnData::Texts(_, counts) = &mut column.data else {
            return None;
        };
        let counts = std::mem::take(counts);
        let tokens = Tokens::full(counts.iter().map(|&count| count as usize));
        let from = column.name().to_string();
        let (what, by) = match self.options.tokenizer {
            Some(tokenizer) => ("tokens", format!(", counted by {}", tokenizer.name())),
            None => ("words", String::new()),
        };
        if what == "words" {
            self.unit = "word";
        }
        self.notes.push(format!("the length of a response is the number of {what} in `{from}`{by}, because there is no `length` and no token array"));
        // From here on, these counts are the column `length`.
        self.numbers.push(FileColumn {
            reading: Reading::new("length", &from),
            data: ColumnData::Numbers(counts),
            ..FileColumn::new(&from, &self.schema)
        });
        Some((tokens, from, Some(what)))
    }

    /// Returns the lengths of the unknown arrays if these agree. A column with an empty array (for example, a list of errors) is
    /// not used, because an empty array does not prove that the response has no tokens. In padded files, an old advantage is not
    /// used either, because it may belong to another batch.
    fn lengths_of_unknown(&mut self, arrays: &[FileColumn]) -> Option<Lengths> {
        let (responses, are_lines) = (self.responses, self.place.has_lines());
        let full = arrays.iter().filter(|column| {
            let is_old = !are_lines && column.reading.ours == "advantage";
            !is_old && (0..responses).all(|at| column.length(at) > 0)
        });
        let first = full.clone().next().map(|column| self.lengths_of(column));
        let lengths = first.filter(|(tokens, ..)| {
            let mut all = full.clone();
            all.all(|column| column.differs(tokens).is_none())
        });
        match (&lengths, self.no_length.take()) {
        (Some((_, from, _)), _) if are_lines => self.notes.push(format!(
            "the length of a response is the length of its array `{from}`, because there is no `mask`, no `length`, no known token array and no `completion`"
        )),
        (None, Some((field, why))) => self.notes.push(format!(
            "no response has a length: `{field}` does not give the lengths ({why}), and there is no `length` and no token array"
        )),
        _ => {}
    }
        lengths
    }

    /// Adds a note on responses whose mask is 0 everywhere.
    pub(super) fn note_bare(&mut self, tokens: &Tokens) {
        let is_bare = |&row: &usize| tokens.row_length(row) > 0 && tokens.runs(row).is_empty();
        let mut bare = (0..tokens.responses()).filter(is_bare);
        if let Some(first) = bare.next() {
            let first = self.place.name_of(first);
            let count = counted(1 + bare.count(), "response");
            self.notes.push(format!("the mask is 0 for all tokens of {count} (the first: {first}), so no token has an advantage there"));
        }
    }

    fn mask_of(&self, column: &FileColumn) -> Result<Tokens> {
        let wrong = |(response, token, value): (usize, usize, f64)| {
            let (at, found) = ((Some(response), Some(token)), value.to_string());
            self.place.wrong(column.name(), at, found, MASK)
        };
        let lists = match &column.data {
            ColumnData::Tensor(tensor) => return padded::mask(tensor)?.map_err(wrong),
            ColumnData::Lists(lists) => lists,
            _ => unreachable!("a column of tokens has arrays"),
        };
        let mut tokens = Tokens::new(self.responses);
        for response in 0..self.responses {
            let added = tokens.add(lists.row(response));
            added.map_err(|(token, value)| wrong((response, token, value)))?;
        }
        Ok(tokens)
    }
}

/// Returns a hint that names the tensor which may be the mask, for a file in which no tensor has a known name of a mask.
fn mask_hint(mask: Option<&FileTensor>, width: usize) -> String {
    match mask.map(|tensor| (tensor.shape.get(1), &tensor.name)) {
        Some((Some(&found), name)) if found == width => {
            format!("; if `{name}` says which tokens count, add `--map mask={name}`")
        }
        // The tensor may cover prompt and response, as verl's attention mask does.
        Some((Some(&found), name)) if found > width => format!(
            "; if the end of `{name}` says which tokens count, add `{name}[:, -{width}:]` to the file as `response_mask`"
        ),
        _ => String::new(),
    }
}
