//! Replaces a file with a new file, which is written in the same folder and then renamed to the old file's name.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{NamedTempFile, TempPath};

use crate::diagnostic::{Diagnostic, Diagnostics};

/// Locks and returns the list of the temporary files that [`discard_unfinished`] removes.
fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the unfinished files before a call of `exit`, because `exit` runs no `Drop`. A thread that begins a file afterwards
/// waits until the process ends.
pub fn discard_unfinished() {
    let mut unfinished = unfinished();
    for file in unfinished.drain(..) {
        // An error is ignored, because the process ends and cannot report it.
        let _ = fs::remove_file(file);
    }
    std::mem::forget(unfinished);
}

/// A file that is removed when this value is dropped, or by [`discard_unfinished`].
pub struct TemporaryFile(Option<TempPath>);

impl TemporaryFile {
    /// Makes a file and adds it to the list of unfinished files under one lock, so that [`discard_unfinished`] cannot miss it.
    fn new(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<(File, TemporaryFile)> {
        let mut unfinished = unfinished();
        let (file, path) = make()?.into_parts();
        unfinished.push(path.to_path_buf());
        Ok((file, TemporaryFile(Some(path))))
    }

    /// Makes a temporary file whose content is copied elsewhere once the file is complete.
    pub fn passing(ending: &OsStr) -> io::Result<TemporaryFile> {
        let made = TemporaryFile::new(|| tempfile::Builder::new().suffix(ending).tempfile())?;
        Ok(made.1)
    }

    /// Takes over a file that exists already, such as a lock file, so that the file is removed when this value is dropped.
    pub fn there(path: &Path) -> io::Result<TemporaryFile> {
        let mut unfinished = unfinished();
        let file = TempPath::try_from_path(path)?;
        unfinished.push(path.to_path_buf());
        Ok(TemporaryFile(Some(file)))
    }

    /// Returns the path of the unfinished file.
    pub fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    /// Renames the finished file to `place`. [`discard_unfinished`] waits until the file is renamed.
    fn finish(mut self, place: &Path) -> io::Result<()> {
        let mut unfinished = unfinished();
        let Some(mut file) = self.0.take() else {
            return Ok(());
        };
        unfinished.retain(|other| **other != *file);
        // `persist` is not used, because on Windows it fails while another program reads the file that is replaced.
        fs::rename(&file, place)?;
        file.disable_cleanup(true);
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            let mut unfinished = unfinished();
            unfinished.retain(|other| **other != *file);
            drop(file);
        }
    }
}

/// A file that is being written. If there is a regular file of that name, it stays unless [`Replacement::finish`] is called.
pub struct Replacement {
    asked: PathBuf,
    out: BufWriter<File>,
    /// The hidden file that is written, and the path to which it is renamed. `None` for a device or a pipe, which is written
    /// directly, because renaming a file to its path would replace the device or the pipe itself.
    beside: Option<(TemporaryFile, PathBuf)>,
}

impl Replacement {
    /// Begins to write a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(path: &Path) -> Result<Self, Diagnostics> {
        let (file, beside) = Self::open(path).map_err(|error| cannot_be_written(path, &error))?;
        Ok(Replacement {
            asked: path.to_path_buf(),
            out: BufWriter::with_capacity(1 << 20, file),
            beside,
        })
    }

    fn open(path: &Path) -> io::Result<(File, Option<(TemporaryFile, PathBuf)>)> {
        // If a link points to an existing file, that file is replaced, not the link.
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let there = fs::metadata(&place).ok();
        match &there {
            Some(there) if there.is_dir() => {
                return Err(io::Error::other("it is a folder"));
            }
            Some(there) if !there.is_file() => {
                let file = File::options().write(true).open(&place)?;
                return Ok((file, None));
            }
            Some(there) if there.permissions().readonly() => {
                return Err(io::Error::other("the existing file is read-only"));
            }
            _ => {}
        }
        let folder = match place.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".advlab-").suffix(".part");
        // The file is opened like any other file, because `tempfile` would make a file that only its owner can read, and
        // `tempfile`'s errors would name the hidden path.
        let (file, hidden) = TemporaryFile::new(|| {
            builder.make_in(folder, |path| {
                File::options().write(true).create_new(true).open(path)
            })
        })?;
        if let Some(there) = there {
            file.set_permissions(there.permissions())?;
        }
        Ok((file, Some((hidden, place))))
    }

    /// Replaces the content of a file with `bytes`, or makes the file.
    pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Diagnostics> {
        let mut file = Replacement::new(path)?;
        let written = file.write_all(bytes);
        written.map_err(|error| file.error(&error))?;
        file.finish()
    }

    /// Returns the diagnostic for a write error; it names the path that was given to [`Replacement::new`].
    pub fn error(&self, error: &io::Error) -> Diagnostic {
        cannot_be_written(&self.asked, error)
    }

    /// Completes the new file, and replaces the old file with it.
    ///
    /// # Errors
    /// The new file cannot be written or renamed.
    pub fn finish(self) -> Result<(), Diagnostics> {
        let finish = || -> io::Result<()> {
            let file = self.out.into_inner().map_err(|error| error.into_error())?;
            let Some((hidden, place)) = self.beside else {
                return Ok(());
            };
            // A network drive may report only here that it is full. Also, a crash must not leave an incomplete file at `place`.
            file.sync_all()?;
            hidden.finish(&place)
        };
        finish().map_err(|error| cannot_be_written(&self.asked, &error).into())
    }
}

/// Returns the diagnostic for a file that cannot be written, with the reason.
pub fn cannot_be_written(path: &Path, error: &io::Error) -> Diagnostic {
    let diagnostic = Diagnostic::error(format!("it cannot be written: {error}")).in_file(path);
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() || folder.is_dir() => diagnostic,
        Some(folder) if folder.exists() => {
            diagnostic.with_help("a file has the name of the output's folder")
        }
        Some(folder) => {
            diagnostic.with_help(format!("the folder {} does not exist", folder.display()))
        }
        None => diagnostic,
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_unfinished_replacement_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a.jsonl");
        fs::write(&place, "old").unwrap();
        let mut file = Replacement::new(&place).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(file);
        assert_eq!(names(folder.path()), ["a.jsonl"]);
        assert_eq!(fs::read_to_string(&place).unwrap(), "old");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_permissions_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (place, link) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&place, "old").unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o664)).unwrap();
        std::os::unix::fs::symlink(&place, &link).unwrap();
        let mut file = Replacement::new(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&place).unwrap(), "new");
        assert_eq!(
            fs::metadata(&place).unwrap().permissions().mode() & 0o777,
            0o664
        );
        assert_eq!(names(folder.path()), ["a", "b"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_is_written_through_and_a_full_one_says_so() {
        let mut file = Replacement::new(Path::new("/dev/full")).unwrap();
        file.write_all(b"x").unwrap();
        let message = file.finish().unwrap_err().to_string();
        assert!(
            message.contains("/dev/full") && message.contains("space"),
            "{message}"
        );
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}
