//! The notes on a file that reads all the same.

use crate::batch::files::names::{Role, alias, role};
use crate::batch::files::raw::Origin;
use crate::batch::layout::Tokens;
use crate::diagnostic::Diagnostic;

/// How many fields are told of that nobody knows: a file may have as many as it has lines.
const SHOWN: usize = 5;

pub(super) struct Notes {
    notes: Vec<Diagnostic>,
    left_out: Few,
    not_finite: Few,
}

/// Notes on fields that nobody knows, of which only the first few are kept.
#[derive(Default)]
struct Few {
    count: usize,
    /// Where in the notes the last one is followed.
    end: usize,
}

impl Few {
    /// Counts a note on a field, and says whether it is kept.
    fn keeps(&mut self, field: &str, notes: usize) -> bool {
        let is_unknown = role(alias(field)) == Role::Any;
        self.count += usize::from(is_unknown);
        let keeps = !is_unknown || self.count <= SHOWN;
        if keeps {
            self.end = notes + 1;
        }
        keeps
    }
}

impl Notes {
    pub(super) fn new(first: Option<Diagnostic>) -> Self {
        Notes {
            notes: first.into_iter().collect(),
            left_out: Few::default(),
            not_finite: Few::default(),
        }
    }

    pub(super) fn add(&mut self, what: String) {
        self.notes.push(Diagnostic::note(what));
    }

    /// All notes, with the number of those that were not kept behind the last of their kind.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        let more = |few: &Few, one: &str, several: &str| match few.count.saturating_sub(SHOWN) {
            0 => None,
            1 => Some((few.end, format!("and 1 more {one}"))),
            more => Some((few.end, format!("and {more} more {several}"))),
        };
        let mut more = [
            more(&self.left_out, "field is left out", "fields are left out"),
            more(
                &self.not_finite,
                "column is NaN or infinite somewhere",
                "columns are NaN or infinite somewhere",
            ),
        ];
        // The later one first: the other then keeps its index.
        more.sort_by_key(|more| std::cmp::Reverse(more.as_ref().map(|(end, _)| *end)));
        for (end, what) in more.into_iter().flatten() {
            self.notes.insert(end, Diagnostic::note(what));
        }
        self.notes
    }

    pub(super) fn left_out(&mut self, field: &str, why: &str) {
        if self.left_out.keeps(field, self.notes.len()) {
            self.add(format!("`{field}` is left out: {why}"));
        }
    }

    /// Values that are NaN or infinite stand where the mask counts them, in a column of the researcher's own.
    pub(super) fn not_finite(&mut self, column: &str, count: usize, first: &str) {
        if self.not_finite.keeps(column, self.notes.len()) {
            let plural = if count == 1 { "" } else { "s" };
            self.add(format!(
                "`{column}` is NaN or infinite at {count} place{plural} that count, the first in {first}"
            ));
        }
    }

    /// Log-probs stand above 0.
    pub(super) fn positive(&mut self, field: &str, count: usize, first: &str) {
        let plural = if count == 1 { "" } else { "s" };
        self.add(format!(
            "`{field}` is above 0 at {count} token{plural}, the first in {first}: no log-prob is; are these probabilities, or -logp?"
        ));
    }

    /// Rewards of tokens stand where the mask does not count them.
    pub(super) fn masked_reward(&mut self, field: &str, responses: usize, first: &str) {
        self.add(format!(
            "`{field}` holds rewards where the mask is 0, in {} (the first in {first}): they do not count",
            count(responses)
        ));
    }

    /// The mask may leave responses without any token.
    pub(super) fn no_tokens(&mut self, tokens: &Tokens, origin: &Origin) {
        let is_bare = |&row: &usize| tokens.row_length(row) > 0 && tokens.runs(row).is_empty();
        let mut bare = (0..tokens.responses()).filter(is_bare);
        if let Some(first) = bare.next() {
            self.add(format!(
                "the mask is 0 for all tokens of {} (the first: {}): no token has an advantage there",
                count(1 + bare.count()),
                origin.name_of(first)
            ));
        }
    }

    /// Responses of several steps are in one file.
    pub(super) fn steps(&mut self, are_split: bool) {
        self.add(if are_split {
            "the lines come from several steps: responses of one prompt in different steps are different groups".to_string()
        } else {
            "`step` differs from line to line: the batch has no step, and `step` is no column (`--map NAME=step` makes it one)".to_string()
        });
    }
}

fn count(responses: usize) -> String {
    match responses {
        1 => "1 response".to_string(),
        several => format!("{several} responses"),
    }
}
