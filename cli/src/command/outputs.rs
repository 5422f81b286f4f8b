//! The outputs of commands: never over an input, unless that is allowed, and to standard output all at once.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use advlab::diagnostic::Diagnostics;
use advlab::files::TemporaryFile;
use anyhow::Result;
use same_file::is_same_file;

use crate::wrong;

/// Whether two paths are the same file, also through links, and also before the file exists. Devices and pipes may be used twice;
/// opening a pipe to compare it would break it.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let is_no_file = |path: &Path| path.metadata().is_ok_and(|there| !there.is_file());
    if is_no_file(one) || is_no_file(other) {
        return false;
    }
    is_same_file(one, other).unwrap_or(false) || resolved(one) == resolved(other)
}

/// Whether a path is the input, or lies in it if the input is a folder.
pub fn holds(input: &Path, path: &Path) -> bool {
    is_same(input, path) || input.is_dir() && resolved(path).starts_with(resolved(input))
}

/// The path without links, also of a file that does not exist yet.
pub fn resolved(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let to_come = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    let found = path.canonicalize().ok().or_else(to_come);
    found.unwrap_or_else(|| path.to_path_buf())
}

/// Refuses an output that is the input, also by way of a link, unless it is `forced`.
pub fn spare_the_input(input: &Path, output: &Path, forced: bool) -> Result<(), Diagnostics> {
    if forced || !is_same(input, output) {
        return Ok(());
    }
    let message = format!("{} is the input itself", output.display());
    let help = "choose another name, or `--force` to replace it";
    Err(wrong(message, help))
}

pub fn is_stdout(output: &Path) -> bool {
    output == Path::new("-")
}

/// Writes a copy of the input with `write`. For standard output, `-`, it first writes a file: the reader of the pipe gets all
/// of it or nothing.
pub fn written<R>(
    output: &Path,
    input: &Path,
    write: impl FnOnce(&Path) -> Result<R>,
) -> Result<R> {
    if !is_stdout(output) {
        return write(output);
    }
    // The name says what kind of file it is.
    let file = TemporaryFile::passing(input.file_name().unwrap_or_default())?;
    let result = write(file.path())?;
    let mut out = io::stdout().lock();
    io::copy(&mut File::open(file.path())?, &mut out)?;
    // At exit, an error would not be reported.
    out.flush()?;
    Ok(result)
}
