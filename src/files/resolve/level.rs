//! Decides whether a column has a value per response or per token, and refuses a needed column that has neither.

use super::Resolving;
use super::groups::{GUESSED, STEP};
use crate::batch::Level::{self, Response, Token};
use crate::diagnostic::Diagnostic;
use crate::files::messages::{COMPLETION, REFERENCE, TextKind};
use crate::files::place::Result;
use crate::files::schema::{PART, Reading, Role, SPLIT};
use crate::files::table::{ColumnData, FileColumn};

impl Resolving<'_> {
    /// Returns whether a column holds the rewards of one of several reward functions that are read, as numbers or as strings of
    /// numbers.
    pub(super) fn is_score(&self, column: &FileColumn) -> bool {
        let ours = &column.reading.ours;
        let text = column.first.2.strip_prefix("the string \"");
        let number = text.and_then(|text| text.strip_suffix('"')?.parse::<f64>().ok());
        let is_number = matches!(column.data, ColumnData::Numbers(_)) || number.is_some();
        ours.starts_with(PART) && is_number && self.schema.reads(ours)
    }

    /// Returns the level of a column that has a number, or an array of numbers, for every response. Any other column is an error
    /// if it is needed, and is skipped otherwise.
    pub(super) fn level(&mut self, column: &FileColumn) -> Result<Option<Level>> {
        let (reading, rows) = (&column.reading, self.responses);
        let role = reading.role;
        let possible = match &column.data {
            ColumnData::Numbers(_) | ColumnData::Ids(_) => Some(Response),
            ColumnData::Texts(..) if role == Role::Group => Some(Response),
            ColumnData::Lists(_) => Some(Token),
            ColumnData::Tensor(tensor) if tensor.is_number() => match tensor.shape[..] {
                [n] if n == rows => Some(Response),
                // The shape [B, 1] is accepted for a known response column.
                [n, 1] if n == rows && role == Role::Response => Some(Response),
                [n, _] if n == rows => Some(Token),
                // A step may be a single number for the whole batch.
                [] if role == Role::Step => Some(Response),
                _ => None,
            },
            _ => None,
        };
        let of = |level: Level| possible.filter(|found| *found == level);
        let names = &self.schema;
        let is_reference = names.references == Some(reading.ours.as_str());
        // A field that is also read under another name need not be valid under its own name.
        let is_free = !reading.asked && names.is_read_twice(&reading.theirs);
        let (level, is_needed) = match role {
            Role::Group => (of(Response), reading.ours != SPLIT),
            Role::Response => (of(Response), !is_free),
            // The column is not needed if all its values are null, such as log-probs that were not recorded.
            Role::Mask | Role::Token => {
                let is_null = matches!(column.data, ColumnData::Null);
                // A number per response may be the mean of its tokens' values, as logs have it.
                let is_mean = role == Role::Token
                    && matches!(column.data, ColumnData::Numbers(_))
                    && (is_free || names.columns.is_none() || !names.reads(&reading.ours));
                (of(Token), reading.asked || !is_null && !is_mean)
            }
            Role::Any => {
                let is_needed = reading.asked || is_reference || self.is_score(column);
                (possible, is_needed)
            }
            Role::Step if self.saved_step.is_some() => (None, false),
            // Rows of several steps would share a group if the column were not used.
            Role::Step => {
                let is_number = matches!(column.data, ColumnData::Numbers(_));
                let is_guessed = GUESSED.contains(&&*reading.theirs);
                (of(Response), is_number && !is_guessed && !is_free)
            }
            Role::Completion => (None, reading.asked || names.references.is_some()),
        };
        // If the first value's type cannot form the column, the first value is reported, not a later value of another type.
        let is_usable = level.is_some() || column.keep.kind != TextKind::Any;
        let (at, found) = match &column.odd {
            Some((at, found)) if is_usable || *at == 0 => (*at, found.clone()),
            None if level.is_some() => return Ok(level),
            _ => (0, column.first.2.clone()),
        };
        if is_needed {
            return Err(self.wrong_kind(column, at, &found));
        }
        let why = match column.data {
            ColumnData::Tensor(_) => {
                format!("it is {found}, but a column must be [{rows}] or [{rows}, T]")
            }
            _ => format!("it is {found} in {}", self.place.name_of(at)),
        };
        match (role, &column.data) {
            (Role::Completion, _) if column.keep.counts => {
                self.no_length = Some((reading.theirs.clone(), why));
            }
            // No note is added, because a string or an object is not meant to be a column.
            (Role::Any, ColumnData::Null | ColumnData::Other | ColumnData::Texts(..))
            | (Role::Completion | Role::Step, ColumnData::Null) => {}
            _ => self.left_out(&reading.theirs, &why),
        }
        Ok(None)
    }

    fn wrong_kind(&self, column: &FileColumn, at: usize, found: &str) -> Diagnostic {
        let (ours, field, rows) = (&*column.reading.ours, column.name(), self.responses);
        let is_missing = found.ends_with("missing");
        let found = if is_missing { "nothing" } else { found };
        let tensor = match &column.data {
            ColumnData::Tensor(tensor) => Some(tensor),
            _ => None,
        };
        let expected = expected(&column.reading, tensor.map(|_| rows));
        let at = tensor.map_or(Some(at), |_| None);
        let error = self.place.wrong(field, (at, None), found, expected);
        let help = match (ours, tensor) {
            ("token_reward", Some(_)) => "a reward for the whole response is `reward`".to_string(),
            ("reward", Some(tensor))
                if tensor.is_number() && matches!(tensor.shape[..], [n, _] if n == rows) =>
            {
                format!("a reward for each token is `token_reward`: `--map token_reward={field}`")
            }
            (_, None) if found == "an object" => {
                format!("`--map {ours}={field}.FIELD` reads a field of this object")
            }
            ("reward", None) if found.starts_with("an array") => format!(
                "`--map token_reward={field}` reads a reward for each token; if the line holds several responses, \
                 write one line for each response"
            ),
            _ => return error,
        };
        error.with_help(help)
    }
}

/// Describes the values that a column should hold, for messages. `rows` is the number of responses if the column is a tensor.
pub(super) fn expected(reading: &Reading, rows: Option<usize>) -> String {
    let text = match (reading.role, reading.ours.as_str(), rows) {
        (Role::Mask | Role::Token, _, Some(rows)) => {
            return format!("numbers [{rows}, T], one for each token");
        }
        (Role::Response, _, Some(rows)) => {
            return format!("numbers [{rows}], one for each response");
        }
        (_, _, Some(rows)) => return format!("numbers [{rows}] or [{rows}, T]"),
        (Role::Group, ..) => "a string or a whole number that names the prompt",
        (Role::Completion, ..) => COMPLETION,
        (_, "solution" | "answer", _) => REFERENCE,
        (Role::Mask, ..) => "an array with a 0 or 1 for each token",
        (Role::Token, ..) => "an array with a number for each token",
        (Role::Step, ..) => STEP,
        (Role::Response, "correct", _) => "true or false (or 1 or 0)",
        (Role::Response, "length", _) => "a number of tokens",
        (Role::Response, ..) => "a number",
        (_, name, _) if name.starts_with(PART) => "a number",
        _ => "a number, or an array with a number for each token",
    };
    text.to_string()
}
