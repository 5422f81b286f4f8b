//! The notes on a file that reads all the same.

use crate::batch::files::names::{Role, alias, role};
use crate::diagnostic::Diagnostic;

/// How many fields are told of that nobody knows: a file may have as many as it has lines.
const SHOWN: usize = 5;

#[derive(Default)]
pub(super) struct Notes(Vec<(Kind, String)>);

/// The kind of a note: of notes on fields that nobody knows, the first few of a kind are told.
#[derive(Clone, Copy, PartialEq, Default)]
enum Kind {
    #[default]
    Told,
    LeftOut,
    NotFinite,
}

impl Notes {
    pub(super) fn add(&mut self, what: String) {
        self.0.push((Kind::Told, what));
    }

    pub(super) fn left_out(&mut self, field: &str, why: &str) {
        self.of_field(
            Kind::LeftOut,
            field,
            format!("`{field}` is left out: {why}"),
        );
    }

    /// Values that are NaN or infinite stand where the mask counts them, in a column of the researcher's own.
    pub(super) fn not_finite(&mut self, column: &str, count: usize, first: &str) {
        let plural = if count == 1 { "" } else { "s" };
        let what = format!(
            "`{column}` is NaN or infinite at {count} token{plural} that count, the first in {first}"
        );
        self.of_field(Kind::NotFinite, column, what);
    }

    fn of_field(&mut self, kind: Kind, field: &str, what: String) {
        let is_unknown = role(alias(field)) == Role::Any;
        self.0
            .push((if is_unknown { kind } else { Kind::Told }, what));
    }

    /// All notes that are told, and how many others there are.
    pub(super) fn finish(self) -> Vec<Diagnostic> {
        let mut notes = Vec::new();
        for (index, (kind, what)) in self.0.iter().enumerate() {
            let is_alike = |(other, _): &&(Kind, String)| other == kind;
            let before = self.0[..index].iter().filter(is_alike).count();
            let others = self.0[index..].iter().filter(is_alike).count();
            notes.extend(match (kind, before) {
                (Kind::Told, _) | (_, ..SHOWN) => Some(what.clone()),
                (Kind::LeftOut, SHOWN) if others == 1 => {
                    Some("and 1 more field is left out".to_string())
                }
                (Kind::LeftOut, SHOWN) => Some(format!("and {others} more fields are left out")),
                (Kind::NotFinite, SHOWN) => Some(format!(
                    "and {others} more of the columns are NaN or infinite somewhere"
                )),
                _ => None,
            });
        }
        notes.into_iter().map(Diagnostic::note).collect()
    }
}
