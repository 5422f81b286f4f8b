//! The file that is read: names it in errors, finds the line of each response, and detects changes.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;

pub(super) type Result<T, E = Diagnostic> = std::result::Result<T, E>;

/// The file, the line of each response, and a checksum that detects a changed file.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// For each blank line, the index of the response after it; `None` if responses are not lines.
    pub(super) blank: Option<Vec<usize>>,
    /// The checksum of all lines, of the end of a parquet file, or of the header of a tensor file.
    pub(super) sum: u32,
}

impl Place {
    pub(super) fn has_lines(&self) -> bool {
        self.blank.is_some()
    }

    /// Returns the line of a response, from 1, if the file has lines.
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

    /// Returns a response in words, such as `line 3` or `response 2`.
    pub(super) fn name_of(&self, response: usize) -> String {
        match self.line(response) {
            Some(line) => format!("line {line}"),
            None => format!("response {response}"),
        }
    }

    /// Returns an error in the file, at the line of a response if there is one.
    pub(super) fn error(&self, response: Option<usize>, error: Diagnostic) -> Diagnostic {
        let error = error.in_file(&self.path);
        match response.and_then(|response| self.line(response)) {
            Some(line) => error.on_line(line),
            None => error,
        }
    }

    /// Returns the error for a value of a column, at a response and one of its tokens.
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
        // Blank lines 1 and 2, responses 0 to 2, blank 6 and 7, response 3, blank 9, response 4.
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
