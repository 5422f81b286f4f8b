//! The files that a recipe was read from: what to look at again to know whether it has changed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::recipe::Version;

/// What a file held when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Bytes, by their SHA-256.
    Bytes([u8; 32]),
    /// There was no such file.
    Missing,
    /// Something was there, and could not be read.
    Unreadable(io::ErrorKind),
}

impl Content {
    pub(super) fn of(read: &io::Result<Vec<u8>>) -> Content {
        match read {
            Ok(bytes) => Content::Bytes(Sha256::digest(bytes).into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::Missing,
            Err(error) => Content::Unreadable(error.kind()),
        }
    }
}

/// Which files a recipe was read from, or was looked for in, with what they held.
///
/// A file that was not there counts: an import that means a built-in means a file as soon as there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(super) main: Option<PathBuf>,
    pub(super) files: BTreeMap<PathBuf, Content>,
    pub(super) version: Option<Version>,
}

impl Reading {
    /// The script itself; `None` for a built-in, which has no files.
    pub(crate) fn main(&self) -> Option<&Path> {
        self.main.as_deref()
    }

    /// What the script itself held.
    pub(crate) fn main_content(&self) -> Option<Content> {
        self.files.get(self.main.as_ref()?).copied()
    }

    /// All files: the script, and where its imports are or might be.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// The version that was read, also where it does not compile; `None` where the script could not be read.
    pub(crate) fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Whether all files that were looked at both times held the same.
    pub(crate) fn agrees(&self, other: &Reading) -> bool {
        let same = |(path, content)| other.files.get(path).is_none_or(|now| now == content);
        self.files.iter().all(same)
    }

    /// The same files, as they are now.
    pub(crate) fn again(&self) -> Reading {
        let look = |path: &Path| match std::fs::metadata(path) {
            // A pipe that somebody put there would block whoever opens it.
            Ok(found) if !found.is_file() => Content::Unreadable(io::ErrorKind::InvalidInput),
            _ => Content::of(&std::fs::read(path)),
        };
        Reading {
            main: self.main.clone(),
            files: self
                .files
                .keys()
                .map(|path| (path.clone(), look(path)))
                .collect(),
            version: None,
        }
    }
}
