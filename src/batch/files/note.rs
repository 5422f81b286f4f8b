//! What a reader decided for itself, and what it left out: nothing of that happens in silence.

use std::fmt;

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
    },
    /// The numbers of tokens come from arrays that are no known column.
    LengthOfArray {
        /// The array's name in the file.
        field: String,
    },
    /// There is no mask: all tokens count.
    NoMask,
    /// Lines of several steps are in one file.
    Steps {
        /// Whether groups were told apart by their step.
        split: bool,
    },
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
            Note::LengthInWords { field } => write!(
                f,
                "the length of a response is the number of words in `{field}`: there is no `length` and no token array"
            ),
            Note::LengthOfArray { field } => write!(
                f,
                "the length of a response is that of its array `{field}`: there is no `mask`, no `length` and no known token array"
            ),
            Note::NoMask => f.write_str("there is no mask: all tokens count"),
            Note::Steps { split: true } => f.write_str(
                "the lines come from several steps: responses of one prompt in different steps are different groups",
            ),
            Note::Steps { split: false } => f.write_str(
                "`step` differs from line to line: the batch has no step, and `step` is no column (`--map NAME=step` makes it one)",
            ),
        }
    }
}
