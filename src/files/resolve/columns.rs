//! The columns of a file under advlab's names, sorted by what they hold; and notes on how they are used.

use std::sync::Arc;

use crate::batch::column_names;
use crate::batch::layout::Tokens;
use crate::files::place::Place;
use crate::files::schema::{Reading, Role, role};
use crate::files::table::{ColumnData, FileColumn};
use crate::number_text::counted;

/// How many unknown fields get a note of their own; a file can have a new unknown field in each line.
const SHOWN: usize = 5;

/// A column of the file with the name under which it is read.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) reading: Reading,
    pub(super) column: Arc<FileColumn>,
}

impl Bound {
    /// Whether the column has a known role, or the user asked for it. Without a mask, the first such array gives the number of
    /// tokens of each response.
    pub(super) fn is_known(&self) -> bool {
        self.reading.role != Role::Any || self.reading.asked
    }

    /// The number of values that a response has in a column of token values.
    pub(super) fn length(&self, response: usize) -> usize {
        match &self.column.data {
            ColumnData::Lists(lists) => lists.length(response),
            ColumnData::Tensor(tensor) => tensor.shape[1],
            _ => 0,
        }
    }

    /// The first response with more or fewer values than tokens.
    pub(super) fn differs(&self, tokens: &Tokens) -> Option<usize> {
        let mut responses = 0..tokens.responses();
        responses.find(|&at| self.length(at) != tokens.row_length(at))
    }
}

/// The columns from which a batch is made.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) place: Arc<Place>,
    pub(super) responses: usize,
    pub(super) texts: Vec<Bound>,
    /// The columns with a number per response.
    pub(super) numbers: Vec<Bound>,
    /// The columns with a number per token.
    pub(super) arrays: Vec<Bound>,
    /// The field of completions whose words or tokens are counted, if no other column gives the lengths of responses.
    pub(super) counted: Option<Bound>,
    /// The field whose words would have been counted as lengths, and the reason why they are not counted.
    pub(super) no_length: Option<(String, String)>,
    /// The unit of lengths: `token`, or `word`.
    pub(super) unit: &'static str,
    /// Whether there are tensors [B, T].
    pub(super) is_padded: bool,
    pub(super) notes: Vec<String>,
    /// The number of unknown fields that are not used.
    unknown: usize,
}

impl Columns {
    pub(super) fn new(place: Arc<Place>, notes: Vec<String>) -> Self {
        Columns {
            place,
            notes,
            unit: "token",
            ..Columns::default()
        }
    }

    pub(super) fn find(&self, ours: &str) -> Option<&Bound> {
        self.numbers.iter().find(|bound| bound.reading.ours == ours)
    }

    pub(super) fn left_out(&mut self, field: &str, why: &str) {
        let ours = column_names::ours(field).unwrap_or(field);
        if role(ours) == Role::Any {
            self.unknown += 1;
            if self.unknown > SHOWN {
                return;
            }
        }
        self.notes.push(format!("`{field}` is left out: {why}"));
    }

    /// Adds a note on the number of unknown fields that no other note names.
    pub(super) fn note_more(&mut self) {
        if let Some(more @ 1..) = self.unknown.checked_sub(SHOWN) {
            let more = counted(more, "more field");
            self.notes.push(format!("left out too: {more}"));
        }
    }
}
