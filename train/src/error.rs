//! The errors that occur when a run is begun, resumed or replayed, or when a run's files are read or written.

use std::io::{self, ErrorKind};
use std::path::Path;

use serde::de::DeserializeOwned;

use advlab::diagnostic::{Diagnostic, Diagnostics};

/// A result whose error is shown to the user.
pub(super) type Result<T, E = Diagnostics> = std::result::Result<T, E>;

/// Returns a function for `map_err` that turns an I/O error into a message about a file of a run.
pub(super) fn io(doing: &str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Diagnostics {
    let message = format!("cannot {doing} {}", path.as_ref().display());
    move |error| {
        let mut problem = Diagnostic::error(format!("{message}: {error}"));
        // If the disk is full, the run can be continued later, because everything that was written before is intact.
        problem.help = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(
                "free some space, then continue with `advlab train --resume` and the run's folder",
            ),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Some("check the permissions, or choose another folder with `--out`")
            }
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                Some("`--out` takes a folder that is empty or does not exist yet")
            }
            _ => None,
        }
        .map(str::to_string);
        problem.into()
    }
}

/// Turns the result of reading a path into `None` if there is no such file.
pub(super) fn if_there<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(io("read", path)),
    }
}

/// Returns the error for a damaged file in a run's folder, whose content no run can have written.
pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Diagnostics {
    Diagnostic::error(what).in_file(path).into()
}

/// Returns the error for a folder that is not a run's folder, because `missing`, a file or a line of a file, is missing.
pub(super) fn no_run(folder: &Path, missing: &str) -> Diagnostics {
    let message = format!("{} is not a run: it has no {missing}", folder.display());
    let help = match folder.parent().filter(|_| folder.is_file()) {
        Some(parent) => format!("a run is a folder: did you mean `{}`?", parent.display()),
        None => "`advlab train` begins a run, and prints its folder".to_string(),
    };
    Diagnostic::error(message).with_help(help).into()
}

/// Reads a JSON file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = advlab::regular_file::read(path).map_err(io("read", path))?;
    serde_json::from_slice(&text).map_err(|error| damaged(path, error.to_string()))
}

/// Returns the error for a configuration that needs libtorch, which this build lacks.
#[cfg(not(feature = "torch"))]
pub(super) fn without_libtorch(what: &str) -> Diagnostics {
    let message = format!("this advlab was built without libtorch, which {what} needs");
    let help = "build it with `--features torch`: docs/language_models.md says how";
    Diagnostic::error(message).with_help(help).into()
}
