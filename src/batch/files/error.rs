//! What can be wrong with a file of rollouts, and with the place where one is to be written.

use std::io;
use std::path::{Path, PathBuf};

use crate::batch::BatchError;

/// Why a file could not be read as a batch. The message names the file, the place, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file's name does not end like a format that can be read.
    #[error("{}: {found}; rollouts are read from .jsonl, .safetensors and .npz files{advice}", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
        /// The ending, in words.
        found: String,
        /// What to do about this one.
        advice: &'static str,
    },
    /// The file could not be opened or read.
    #[error("{}: it cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no response in the file.
    #[error("{}: there is no response in the file; expected one JSON object a line, one line a response", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line is not an object in JSON.
    #[error("{}, line {line}, column {column}: found {found}; expected {expected}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A field's value is of the wrong kind.
    #[error("{}, line {line}: `{field}`{place} is {found}; expected {expected}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The field, as the file calls it.
        field: String,
        /// Where in the field, or nothing.
        place: String,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A field that is in some lines is not in this one.
    #[error(
        "{}, line {line}: `{field}` is missing, while line {other} has it; a column has a value in every response",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The line without it, from 1.
        line: usize,
        /// The field, as the file calls it.
        field: String,
        /// A line that has it.
        other: usize,
    },
    /// A field stands twice in one line.
    #[error("{}, line {line}, column {column}: the field `{field}` stands twice in this line; keep one of them", path.display())]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// The field.
        field: String,
    },
    /// Two arrays of one response differ in length.
    #[error(
        "{}, line {line}: `{field}` has {found} tokens, `{from}` has {expected}; the token arrays of one response are of one length",
        path.display()
    )]
    RowLength {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The array at fault.
        field: String,
        /// Its length.
        found: usize,
        /// The length of the others.
        expected: usize,
        /// The array that set the length.
        from: String,
    },
    /// Nothing says which responses belong to one prompt.
    #[error("{}: nothing says which responses belong to one prompt: there is no {wanted}; {hint}", path.display())]
    NoGroup {
        /// The file.
        path: PathBuf,
        /// The names that would do.
        wanted: &'static str,
        /// What there is instead, and what to do.
        hint: String,
    },
    /// Nothing says how good a response is.
    #[error("{}: nothing says how good a response is: there is no {wanted}; {hint}", path.display())]
    NoReward {
        /// The file.
        path: PathBuf,
        /// The names that would do.
        wanted: &'static str,
        /// What there is instead, and what to do.
        hint: String,
    },
    /// A mapping names a field that the file does not have.
    #[error("{}: `--map {ours}={theirs}`: there is no field `{theirs}`; {hint}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// The name that was to be given.
        ours: String,
        /// The field that is not there.
        theirs: String,
        /// The nearest field, or all of them.
        hint: String,
    },
    /// Two mappings give one name.
    #[error(
        "`--map`: `{ours}` is mapped twice, from `{first}` and from `{second}`; a column comes from one field"
    )]
    MapTwice {
        /// The name.
        ours: String,
        /// The field of the first mapping.
        first: String,
        /// The field of the second.
        second: String,
    },
    /// A file of tensors is damaged, or not what its name says.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what it should be.
        what: String,
    },
    /// Two tensors have one name of ours.
    #[error(
        "{}: tensors `{first}` and `{second}` are both read as `{ours}`: say which it is, with `--map {ours}={first}` or `--map {ours}={second}`",
        path.display()
    )]
    TwoTensors {
        /// The file.
        path: PathBuf,
        /// Our name.
        ours: String,
        /// One tensor, as the file calls it.
        first: String,
        /// The other.
        second: String,
    },
    /// A tensor is not of the type or shape that its column has.
    #[error("{}: tensor `{tensor}` is {found}; expected {expected}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor, as the file calls it.
        tensor: String,
        /// Its type, shape or value.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// The columns do not make a batch.
    #[error("{}{}: {source}", path.display(), at_line(*line))]
    Batch {
        /// The file.
        path: PathBuf,
        /// The line of the response at fault, from 1, where the file has lines.
        line: Option<usize>,
        /// What does not fit.
        source: BatchError,
    },
}

fn at_line(line: Option<usize>) -> String {
    line.map(|line| format!(", line {line}"))
        .unwrap_or_default()
}

/// Why a file could not be written. Nothing half-written is left, and a file that was there before is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file could not be made, written or put in its place.
    #[error("{}: it cannot be written: {source}{}", path.display(), advice(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file to write has another ending than the one that was read.
    #[error(
        "{}: the advantage is added to a copy of the input, which is {expected}; give the output a name that ends in {expected} too",
        path.display()
    )]
    Extension {
        /// The file.
        path: PathBuf,
        /// The input's ending.
        expected: &'static str,
    },
    /// The input is not what it was when it was read.
    #[error("{}: the file changed after it was read ({what}); nothing was written, run it again", path.display())]
    Changed {
        /// The input.
        path: PathBuf,
        /// What is different.
        what: String,
    },
    /// JSON has no number for a value.
    #[error("{}: the advantage of line {line}{place} is {found}, which JSON has no number for; nothing was written", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The line of the response, from 1.
        line: usize,
        /// The token, or nothing.
        place: String,
        /// The value.
        found: f64,
    },
    /// A tensor cannot hold a value, or none should.
    #[error("{}: the advantage of response {response}{place} is {found}{why}; nothing was written", path.display())]
    NoValue {
        /// The file.
        path: PathBuf,
        /// The response, from 0.
        response: usize,
        /// The token, or nothing.
        place: String,
        /// The value.
        found: f64,
        /// Why a number is none in the file, and what to do, or nothing.
        why: &'static str,
    },
    /// The advantage is not one of this batch.
    #[error("{}: the advantage has {found} values, the batch has {expected} (one for each {level})", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Number of values given.
        found: usize,
        /// Number of cells of the level.
        expected: usize,
        /// The level.
        level: crate::batch::Level,
    },
}

impl WriteError {
    pub(super) fn changed(input: &Path, what: impl Into<String>) -> Self {
        WriteError::Changed {
            path: input.to_path_buf(),
            what: what.into(),
        }
    }

    /// The input, which was read before, can no longer be read.
    pub(super) fn gone(input: &Path, error: ReadError) -> Self {
        match error {
            ReadError::Io { source, .. } => WriteError::changed(input, source.to_string()),
            error => WriteError::changed(input, error.to_string()),
        }
    }
}

/// What to do about a place that is not there.
fn advice(path: &Path) -> &'static str {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            "; its folder does not exist: make it first"
        }
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            "; what should be its folder is a file"
        }
        _ => "",
    }
}

/// At most `most` characters of a text, with dots where more were there.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
