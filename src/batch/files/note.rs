//! What a reader decided for itself, and what it left out: nothing of that happens in silence.

use std::fmt;

use super::Mapping;
use super::names::{self, Role};
use crate::batch::Batch;

/// Something about a file that whoever reads its numbers should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The file was recognised as another program's dump.
    Dump {
        /// Whose dump it is.
        kind: &'static str,
        /// Our names and theirs.
        names: Vec<(String, String)>,
    },
    /// A field or tensor was left out.
    LeftOut {
        /// Its name in the file.
        field: String,
        /// Why.
        why: String,
    },
    /// Values that are NaN or infinite stand where the mask counts them, in a column of the researcher's own.
    NotFinite {
        /// The column.
        column: String,
        /// Where the first one is.
        first: String,
        /// How many there are.
        count: usize,
    },
    /// Lengths are words of the completion.
    LengthInWords {
        /// The text's name in the file.
        field: String,
        /// Whether it is a list of messages, whose contents are counted.
        messages: bool,
    },
    /// There is a completion, but not every response has a length by it.
    NoLength {
        /// The completion's name in the file.
        field: String,
        /// Why.
        why: String,
    },
    /// Rewards of tokens stand where the mask does not count them.
    MaskedReward {
        /// The reward's name in the file.
        field: String,
        /// How many responses have one.
        responses: usize,
        /// Where the first one is.
        first: String,
    },
    /// The mask leaves responses without any token.
    NoTokens {
        /// How many.
        responses: usize,
        /// Where the first one is.
        first: String,
    },
    /// A column would be named `groups`, which is something else in a script.
    Unreachable {
        /// Its name in the file.
        field: String,
    },
    /// Fields were left out that no note of their own tells of.
    MoreLeftOut {
        /// How many.
        fields: usize,
    },
    /// Columns have values that are NaN or infinite that no note of their own tells of.
    MoreNotFinite {
        /// How many.
        columns: usize,
    },
    /// The numbers of tokens come from arrays that are no known column.
    LengthOfArray {
        /// The array's name in the file.
        field: String,
    },
    /// There is no mask: all tokens count.
    NoMask {
        /// The tensor that may be it, and what to do about that; or nothing.
        hint: String,
    },
    /// Lines of several steps are in one file.
    Steps {
        /// Whether groups were told apart by their step.
        split: bool,
    },
}

/// How many fields are told of that nobody knows: a file may have as many as it has lines.
const SHOWN: usize = 5;

impl Note {
    /// What is to be said of a column that shares its name with something else that scripts find in a batch.
    pub(super) fn unreachable(batch: &Batch, map: &[Mapping]) -> Option<Note> {
        // `batch.groups` is the list of the groups' batches. No file gives a column named `step`.
        let mapped = map.iter().find(|mapping| mapping.ours == "groups");
        batch.has("groups").then(|| Note::Unreachable {
            field: mapped
                .map_or("groups", |mapping| &mapping.theirs)
                .to_string(),
        })
    }

    /// All notes on what we know, and the first few on fields that nobody knows.
    pub(super) fn first_few(notes: Vec<Note>) -> Vec<Note> {
        let (mut strays, mut left_out, mut more) = (0, 0, 0);
        let unknown = |field: &str| names::role(names::alias(field)) == Role::Any;
        let mut kept: Vec<Note> = Vec::new();
        for note in notes {
            match &note {
                Note::LeftOut { field, .. } if unknown(field) => {
                    left_out += 1;
                    if left_out > SHOWN {
                        more += 1;
                        continue;
                    }
                }
                Note::NotFinite { column, .. } if unknown(column) => {
                    strays += 1;
                    if strays > SHOWN {
                        continue;
                    }
                }
                _ => {}
            }
            kept.push(note);
        }
        let after = |kept: &[Note], of: fn(&Note) -> bool| {
            kept.iter().rposition(of).map_or(kept.len(), |at| at + 1)
        };
        if more > 0 {
            let at = after(&kept, |note| matches!(note, Note::LeftOut { .. }));
            kept.insert(at, Note::MoreLeftOut { fields: more });
        }
        if strays > SHOWN {
            let at = after(&kept, |note| matches!(note, Note::NotFinite { .. }));
            let columns = strays - SHOWN;
            kept.insert(at, Note::MoreNotFinite { columns });
        }
        kept
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Dump { kind, names } => {
                let names: Vec<String> = names
                    .iter()
                    .map(|(ours, theirs)| format!("{ours} = `{theirs}`"))
                    .collect();
                write!(f, "read as a dump of {kind}: {}", names.join(", "))
            }
            Note::LeftOut { field, why } => write!(f, "`{field}` is left out: {why}"),
            Note::NotFinite {
                column,
                first,
                count,
            } => write!(
                f,
                "`{column}` is NaN or infinite at {count} place{} that count, the first in {first}",
                if *count == 1 { "" } else { "s" }
            ),
            Note::LengthInWords { field, messages } => {
                let what = match messages {
                    true => format!("in the `content` of each message of `{field}`"),
                    false => format!("in `{field}`"),
                };
                write!(
                    f,
                    "the length of a response is the number of words {what}: there is no `length` and no token array"
                )
            }
            Note::NoLength { field, why } => write!(
                f,
                "no response has a length: `{field}` does not give it ({why}), and there is no `length` and no token array"
            ),
            Note::MaskedReward {
                field,
                responses,
                first,
            } => write!(
                f,
                "`{field}` holds rewards where the mask is 0, in {} (the first in {first}): they do not count",
                count(*responses)
            ),
            Note::NoTokens { responses, first } => write!(
                f,
                "the mask is 0 for all tokens of {} (the first: {first}): no token has an advantage there",
                count(*responses)
            ),
            Note::Unreachable { field } => write!(
                f,
                "`{field}` is a column that scripts cannot reach, since `batch.groups` is the list of the groups: `--map other={field}` gives it another name"
            ),
            Note::MoreLeftOut { fields: 1 } => f.write_str("and 1 more field is left out"),
            Note::MoreLeftOut { fields } => write!(f, "and {fields} more fields are left out"),
            Note::MoreNotFinite { columns: 1 } => {
                f.write_str("and 1 more column is NaN or infinite somewhere")
            }
            Note::MoreNotFinite { columns } => {
                write!(f, "and {columns} more columns are NaN or infinite somewhere")
            }
            Note::LengthOfArray { field } => write!(
                f,
                "the length of a response is that of its array `{field}`: there is no `mask`, no `length`, no known token array and no `completion`"
            ),
            Note::NoMask { hint } => write!(f, "there is no mask: all tokens count{hint}"),
            Note::Steps { split: true } => f.write_str(
                "the lines come from several steps: responses of one prompt in different steps are different groups",
            ),
            Note::Steps { split: false } => f.write_str(
                "`step` differs from line to line: the batch has no step, and `step` is no column (`--map NAME=step` makes it one)",
            ),
        }
    }
}

fn count(responses: usize) -> String {
    match responses {
        1 => "1 response".to_string(),
        several => format!("{several} responses"),
    }
}
