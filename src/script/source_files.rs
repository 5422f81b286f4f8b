//! The files that a recipe was read from, which tell whether it has changed.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::recipe::Version;
use crate::regular_file;

/// The bytes of a file when it was read, or why it could not be read: the kind of the error, and the system's message.
pub(crate) type FileBytes = Result<Arc<[u8]>, (ErrorKind, String)>;

/// The largest script, in bytes. A recipe has a few kilobytes; a larger script has data in it, and compiling megabytes
/// takes minutes.
pub(super) const LARGEST: usize = 256 << 10;

/// Reads a regular file. One that is too large is not read further.
pub(super) fn read(path: &Path) -> FileBytes {
    let mut bytes = Vec::new();
    let file = regular_file::open(path);
    let read = file.and_then(|file| file.take(LARGEST as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| (error.kind(), error.to_string()))?;
    if bytes.len() > LARGEST {
        let most = LARGEST >> 10;
        let why = format!("it has more than {most} KiB, and a script is a formula");
        return Err((ErrorKind::FileTooLarge, why));
    }
    Ok(bytes.into())
}

/// The text of a file, or why there is none, in words.
pub(super) fn text<'a>(path: &Path, content: &'a FileBytes) -> Result<&'a str, String> {
    let path = path.display();
    let bytes = content.as_ref();
    let bytes = bytes.map_err(|(_, why)| format!("{path}: {why}"))?;
    std::str::from_utf8(bytes).map_err(|error| {
        let byte = error.valid_up_to();
        format!("{path}: its byte {byte} is not UTF-8")
    })
}

pub(super) fn is_missing(content: &FileBytes) -> bool {
    matches!(content, Err((ErrorKind::NotFound, _)))
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The names of the scripts in a folder, without their ending.
pub(super) fn scripts_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| PathBuf::from(entry.file_name()));
    let scripts = files.filter(|file| file.extension().is_some_and(|ending| ending == "rhai"));
    let names = scripts.filter_map(|file| Some(file.file_stem()?.to_str()?.to_string()));
    names.collect()
}

/// The files that a recipe was read from, or was looked for in, with what they held.
///
/// A missing file counts too: an import that refers to a built-in refers to a file of that name as soon as one exists.
#[derive(Clone, Debug, Default)]
pub struct SourceFiles {
    /// The script itself; `None` for a built-in, which has no files.
    pub(crate) main: Option<PathBuf>,
    /// The script, and the files where its imports are or might be.
    pub(crate) files: BTreeMap<PathBuf, FileBytes>,
    /// The version that was read, even if it does not compile; `None` if the script could not be read.
    pub version: Option<Version>,
}

impl SourceFiles {
    /// A script, before its imports are known.
    pub(super) fn of(path: &Path) -> SourceFiles {
        SourceFiles {
            main: Some(path.to_path_buf()),
            files: [(path.to_path_buf(), read(path))].into(),
            version: None,
        }
    }

    pub(crate) fn main_content(&self) -> Option<&FileBytes> {
        self.files.get(self.main.as_ref()?)
    }

    /// Whether all files that were read both times have equal contents.
    pub(crate) fn agrees(&self, other: &SourceFiles) -> bool {
        let same = |(path, content)| other.files.get(path).is_none_or(|now| now == content);
        self.files.iter().all(same)
    }

    /// The same files with their present contents.
    pub(crate) fn again(&self) -> SourceFiles {
        let files = self.files.keys();
        SourceFiles {
            main: self.main.clone(),
            files: files.map(|path| (path.clone(), read(path))).collect(),
            version: None,
        }
    }
}
