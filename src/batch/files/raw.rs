//! The columns of a file as a reader gives them, before anybody asks what they mean.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::json::Type;
use super::names::Names;
use super::tensor::{Info, Tensor};
use crate::batch::GroupId;
use crate::batch::column::Ragged;
use crate::diagnostic::Diagnostic;

/// How a reader learns, from the fields that its file begins with, under which names they are read. It asks once.
pub(super) type Schema<'a> = &'a dyn Fn(&[(String, Type)], &Header) -> Result<Names, Diagnostic>;

/// The kind of a file, by its format or its header.
#[derive(Clone, Debug)]
pub(super) enum Header {
    /// Lines of fields, which may be another program's dump.
    Lines,
    /// Tensors under the names that trainers give them.
    Tensors,
    /// A batch that was saved under our own names: the step, texts of responses, and the names that the tensor `group` counts through,
    /// where a group has a string for a name.
    Saved {
        step: u64,
        group_names: Option<Arc<[GroupId]>>,
        texts: BTreeMap<String, Vec<String>>,
    },
}

/// A file as its reader gives it.
pub(super) struct Raw {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) names: Names,
    pub(super) columns: Vec<RawColumn>,
    pub(super) origin: Origin,
}

/// The location of each response in a file, and what a copy of the file must find there again.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A line for each response, beside the blank ones; the checksum of all bytes.
    Lines {
        blank: Blank,
        sum: u32,
    },
    Tensors(Vec<Info>),
}

/// The blank lines of a file: for each response that some stand before, how many there are so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Blank(Vec<(usize, usize)>);

impl Blank {
    /// All blank lines.
    pub(super) fn count(&self) -> usize {
        self.0.last().map_or(0, |(_, count)| *count)
    }

    /// The blank lines before a response.
    fn before(&self, response: usize) -> usize {
        let after = self.0.partition_point(|(next, _)| *next <= response);
        after.checked_sub(1).map_or(0, |last| self.0[last].1)
    }

    /// Adds blank lines behind all others, and before a response.
    pub(super) fn add(&mut self, response: usize, more: usize) {
        let count = self.count() + more;
        match self.0.last_mut() {
            Some(last) if last.0 == response => last.1 = count,
            _ if more > 0 => self.0.push((response, count)),
            _ => {}
        }
    }

    /// Adds those of lines that follow so many responses.
    pub(super) fn append(&mut self, responses: usize, more: &Blank) {
        let mut count = 0;
        for (response, so_far) in &more.0 {
            self.add(responses + response, so_far - count);
            count = *so_far;
        }
    }
}

impl Origin {
    /// The line of a response, from 1, where the file has lines.
    pub(super) fn line(&self, response: usize) -> Option<usize> {
        match self {
            Origin::Lines { blank, .. } => Some(response + 1 + blank.before(response)),
            Origin::Tensors(_) => None,
        }
    }

    /// A response in words, such as `line 3` or `response 2`.
    pub(super) fn name_of(&self, response: usize) -> String {
        match self.line(response) {
            Some(line) => format!("line {line}"),
            None => format!("response {response}"),
        }
    }

    /// Whether these are the tensors that were read.
    pub(super) fn is(&self, tensors: &[Info]) -> bool {
        matches!(self, Origin::Tensors(then) if then == tensors)
    }
}

/// One field of the lines, or one tensor.
#[derive(Debug)]
pub(super) struct RawColumn {
    pub(super) name: String,
    pub(super) values: Values,
    /// The strings, or the messages of chats as text, where the batch holds them.
    pub(super) texts: Option<Vec<Arc<str>>>,
    /// A reward of several: where its function has none to give, it is null.
    pub(super) is_summand: bool,
    /// Whether only the lengths of arrays are held, since nobody wants their numbers.
    pub(super) is_unread: bool,
    /// How many responses have a value, from the first on.
    pub(super) filled: usize,
    /// The first response that has null.
    pub(super) null: Option<usize>,
    /// The first response whose value is none, or of another kind than those before.
    pub(super) odd: Option<Odd>,
}

/// The values of a column, all of one kind.
#[derive(Clone, Debug)]
pub(super) enum Values {
    /// Nothing but null.
    None,
    /// A number (or 0 and 1 for a boolean) a response.
    Numbers(Vec<f64>),
    /// A string, a chat or a whole number a response, each string held once; whether they are no numbers in the file. A
    /// number beyond i64 is an id of its digits, and stands beside smaller ones.
    Ids {
        ids: Vec<GroupId>,
        are_strings: bool,
    },
    /// The number of words a response; whether they are those of a list of messages.
    Words { counts: Vec<f64>, messages: bool },
    /// A string or a chat a response; the first in words.
    Strings(String),
    /// An array of numbers a response.
    Arrays(Ragged),
    /// An array of the whole batch, read when it is used.
    Tensor(Tensor),
    /// Something that no column is made of: the first response's, in words.
    Other(String),
}

/// The first value that keeps a column of lines from being whole.
#[derive(Debug)]
pub(super) struct Odd {
    pub(super) response: usize,
    /// The value in words, or `missing` or `null`.
    pub(super) found: String,
    /// A response that has a value.
    pub(super) other: usize,
}

impl RawColumn {
    pub(super) fn new(name: String, values: Values) -> Self {
        RawColumn {
            name,
            values,
            texts: None,
            is_summand: false,
            is_unread: false,
            filled: 0,
            null: None,
            odd: None,
        }
    }

    /// Counts the value of a response. Where one before it has none, that one is odd.
    pub(super) fn take(&mut self, response: usize) {
        if self.filled < response {
            self.end(response);
        } else {
            self.filled += 1;
        }
    }

    /// The first response without a value is odd; `other` has one.
    pub(super) fn end(&mut self, other: usize) {
        let is_null = self.null == Some(self.filled);
        self.odd = Some(Odd {
            response: self.filled,
            found: if is_null { "null" } else { "missing" }.to_string(),
            other,
        });
    }

    /// Whether there is a text for every response.
    pub(super) fn is_text(&self) -> bool {
        self.odd.is_none() && self.filled > 0 && self.texts.is_some()
    }

    /// The first response's value in words.
    pub(super) fn describe_first(&self) -> String {
        match &self.values {
            Values::None => "null".to_string(),
            Values::Numbers(values) => number(values[0]),
            Values::Ids { ids, .. } => match &ids[0] {
                GroupId::Number(number) => number.to_string(),
                text => format!("the string {text}"),
            },
            Values::Words { .. } => "a string".to_string(),
            Values::Arrays(arrays) => of_numbers(arrays.length(0)),
            Values::Tensor(tensor) => tensor.info.describe(),
            Values::Strings(words) | Values::Other(words) => words.clone(),
        }
    }
}

impl Raw {
    /// An error in the file, at the line of a response where there is one.
    pub(super) fn error(&self, response: Option<usize>, error: Diagnostic) -> Diagnostic {
        let error = error.in_file(&self.path);
        match response.and_then(|response| self.origin.line(response)) {
            Some(line) => error.on_line(line),
            None => error,
        }
    }

    /// The error for what is found in a column of the file, at a response and at one of its tokens where it is theirs.
    pub(super) fn wrong(
        &self,
        column: &str,
        response: Option<usize>,
        token: Option<usize>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Diagnostic {
        let error = Diagnostic::error("").expected(expected).in_field(column);
        let line = response.and_then(|response| self.origin.line(response));
        let at = match (response.filter(|_| line.is_none()), token) {
            (Some(response), Some(token)) => format!(" at response {response}, token {token}"),
            (Some(response), None) => format!(" at response {response}"),
            (None, Some(token)) => format!(" at token {token}"),
            (None, None) => String::new(),
        };
        self.error(response, error.found(format!("{}{at}", found.into())))
    }
}

/// An array in words.
pub(super) fn of_numbers(count: usize) -> String {
    match count {
        0 => "an empty array".to_string(),
        count => format!("an array of {count} numbers"),
    }
}

/// A number in words: a very large or small one by its exponent.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:?}");
    text.strip_suffix(".0").unwrap_or(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_with_the_blank_ones_before_them() {
        let mut blank = Blank::default();
        // Blank lines 1 and 2, responses 0 to 2, blank line 6; then a block of blank 7, response 3, blank 9, response 4.
        blank.add(0, 2);
        blank.add(3, 1);
        let mut more = Blank::default();
        more.add(0, 1);
        more.add(1, 1);
        blank.append(3, &more);
        let origin = Origin::Lines { blank, sum: 0 };
        let lines = (0..5).map(|response| origin.line(response).unwrap());
        assert_eq!(lines.collect::<Vec<_>>(), [3, 4, 5, 8, 10]);
    }
}
