//! The notes on a file that reads all the same.

use std::collections::BTreeMap;

use crate::batch::files::names::{Role, alias, role};
use crate::diagnostic::Diagnostic;
use crate::figures::counted;

/// How many fields are told of that nobody knows: a file may have as many as it has lines.
const SHOWN: usize = 5;

#[derive(Default)]
pub(super) struct Notes {
    told: Vec<String>,
    /// How many fields that nobody knows are left out, and so on.
    unknown: BTreeMap<&'static str, usize>,
}

impl Notes {
    pub(super) fn add(&mut self, what: String) {
        self.told.push(what);
    }

    pub(super) fn left_out(&mut self, field: &str, why: &str) {
        let what = format!("`{field}` is left out: {why}");
        self.of_field("left out", field, what);
    }

    /// Values that are NaN or infinite stand where the mask counts them, in a column of the researcher's own.
    pub(super) fn not_finite(&mut self, column: &str, count: usize, first: &str) {
        let plural = if count == 1 {
            " that counts"
        } else {
            "s that count"
        };
        let what =
            format!("`{column}` is NaN or infinite at {count} token{plural}, the first in {first}");
        self.of_field("NaN or infinite", column, what);
    }

    fn of_field(&mut self, state: &'static str, field: &str, what: String) {
        if role(alias(field)) == Role::Any {
            let fields = self.unknown.entry(state).or_default();
            *fields += 1;
            if *fields > SHOWN {
                return;
            }
        }
        self.told.push(what);
    }

    /// All notes that are told, and how many others there are.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        let more = self.unknown.iter().filter(|(_, fields)| **fields > SHOWN);
        self.told.extend(more.map(|(state, fields)| {
            format!("{state} too: {}", counted(fields - SHOWN, "more field"))
        }));
        self.told.into_iter().map(Diagnostic::note).collect()
    }
}
