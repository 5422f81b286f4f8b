//! Describes the file from which responses are read: its name for errors, the line of each response, and a checksum.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;

pub(super) type Result<T, E = Diagnostic> = std::result::Result<T, E>;

/// The path of a file, the lines of its responses, and a checksum by which a later change of the file is detected.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// For each blank line, the index of the response after it; `None` if the file holds tensors, which have no lines.
    pub(super) blank: Option<Vec<usize>>,
    /// The checksum of all lines, of the end of a parquet file, or of the header of a tensor file.
    pub(super) sum: u32,
}

impl Place {
    pub(super) fn has_lines(&self) -> bool {
        self.blank.is_some()
    }

    /// Returns the number of a response's line, counted from 1; `None` if the file has no lines.
    pub(super) fn line(&self, response: usize) -> Option<usize> {
        let blank = self.blank.as_ref()?;
        Some(response + 1 + blank.partition_point(|&after| after <= response))
    }

    /// Refuses a file that has changed since it was read; `sum` is its current checksum.
    pub(super) fn check(&self, sum: u32) -> Result<()> {
        match sum == self.sum {
            true => Ok(()),
            false => Err(changed(&self.path, "its bytes differ")),
        }
    }

    /// Returns the name of a response, such as `line 3` or `response 2`.
    pub(super) fn name_of(&self, response: usize) -> String {
        match self.line(response) {
            Some(line) => format!("line {line}"),
            None => format!("response {response}"),
        }
    }

    /// Adds the file to an error and, if the file has lines, the line of a response.
    pub(super) fn error(&self, response: Option<usize>, error: Diagnostic) -> Diagnostic {
        let error = error.in_file(&self.path);
        match response.and_then(|response| self.line(response)) {
            Some(line) => error.on_line(line),
            None => error,
        }
    }

    /// Returns the error for an invalid value of a column, with the response and the token if these are known.
    pub(super) fn wrong(
        &self,
        column: &str,
        (response, token): (Option<usize>, Option<usize>),
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Diagnostic {
        let row = response.filter(|_| !self.has_lines());
        let row = row.map(|at| format!("response {at}")).into_iter();
        let place = row.chain(token.map(|at| format!("token {at}")));
        let place = place.collect::<Vec<_>>().join(", ");
        let mut found: String = found.into();
        if !place.is_empty() {
            found = format!("{found} at {place}");
        }
        let error = Diagnostic::error("").found(found).expected(expected);
        self.error(response, error.in_field(column))
    }
}

/// Returns the error for an input that has changed since it was read.
pub(super) fn changed(input: &Path, what: impl fmt::Display) -> Diagnostic {
    Diagnostic::error(format!(
        "the file changed after it was read ({what}); try again"
    ))
    .in_file(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_with_the_blank_ones_before_them() {
        // Lines 1, 2, 6, 7 and 9 are blank; lines 3, 4, 5, 8 and 10 have the responses 0 to 4.
        let blank = vec![0, 0, 3, 3, 4];
        let origin = Place {
            path: PathBuf::new(),
            blank: Some(blank),
            sum: 0,
        };
        let lines = (0..5).map(|response| origin.line(response).unwrap());
        assert_eq!(lines.collect::<Vec<_>>(), [3, 4, 5, 8, 10]);
    }
}
