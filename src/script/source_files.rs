//! The files from which a recipe was read, with their contents, by which a change of the recipe is noticed.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::library::Builtin;
use super::limits::SCRIPT_BYTES;
use super::version::Version;
use crate::regular_file;

/// The bytes that were read from a file, or the reason why it could not be read: the kind of the error, and the system's message.
pub(crate) type FileBytes = Result<Arc<[u8]>, (ErrorKind, String)>;

/// Reads a regular file. Reading a file larger than the limit stops at the limit and fails.
pub(super) fn read(path: &Path) -> FileBytes {
    let mut bytes = Vec::new();
    let file = regular_file::open(path);
    let read = file.and_then(|file| file.take(SCRIPT_BYTES as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| (error.kind(), error.to_string()))?;
    if bytes.len() > SCRIPT_BYTES {
        let most = SCRIPT_BYTES >> 10;
        let why = format!("a script can have at most {most} KiB, because it holds only a formula");
        return Err((ErrorKind::FileTooLarge, why));
    }
    Ok(bytes.into())
}

/// Returns the text of a file, or the message that says why there is no text.
pub(super) fn text<'a>(path: &Path, content: &'a FileBytes) -> Result<&'a str, String> {
    let path = path.display();
    let bytes = content
        .as_ref()
        .map_err(|(_, why)| format!("{path}: {why}"))?;
    std::str::from_utf8(bytes).map_err(|error| {
        let byte = error.valid_up_to();
        format!("{path}: the byte at offset {byte} is not valid UTF-8")
    })
}

/// Returns the kind of the file at a path, such as `a folder`, if a file of this kind cannot be a script; `None` otherwise.
pub(super) fn another_kind(path: &Path) -> Option<&'static str> {
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_deref().and_then(|ending| ending.to_str()) {
        _ if path.is_dir() => Some("a folder"),
        Some("jsonl" | "ndjson" | "gz" | "zst" | "json" | "safetensors" | "parquet") => {
            Some("a file of rollouts")
        }
        Some("toml") => Some("a configuration"),
        _ => None,
    }
}

pub(super) fn is_missing(content: &FileBytes) -> bool {
    matches!(content, Err((ErrorKind::NotFound, _)))
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the names of the scripts in a folder, without the ending `.rhai`.
pub(super) fn scripts_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| PathBuf::from(entry.file_name()));
    let scripts = files.filter(|file| file.extension().is_some_and(|ending| ending == "rhai"));
    let names = scripts.filter_map(|file| Some(file.file_stem()?.to_str()?.to_string()));
    names.collect()
}

/// The files from which a recipe was read, and the files in which its imports were sought, with their contents.
///
/// Missing files are included, because an import that now refers to a built-in will refer to a file of that name if one appears.
#[derive(Clone, Debug, Default)]
pub struct SourceFiles {
    /// The recipe as the caller names it: a built-in's name, or the script's path.
    pub(super) recipe: String,
    /// The path of the script itself; `None` if `recipe` is not the path of a script.
    pub(crate) main: Option<PathBuf>,
    /// The script's file, and the files in which its imports were sought, including missing files.
    pub(crate) files: BTreeMap<PathBuf, FileBytes>,
    /// The version that was read, even if it does not compile; `None` for a built-in, and if the script is not loaded yet or
    /// could not be read.
    pub version: Option<Version>,
}

impl SourceFiles {
    /// Reads the script if `recipe` is a script's path, but not its imports, which are not known yet.
    pub fn of(recipe: &str) -> SourceFiles {
        let path = Path::new(recipe);
        let is_path = recipe.contains(['/', '\\']) || recipe.ends_with(".rhai") || path.exists();
        let is_script = is_path && Builtin::find(recipe).is_none() && another_kind(path).is_none();
        let main = is_script.then(|| path.to_path_buf());
        let files = main.iter().map(|path| (path.clone(), read(path)));
        SourceFiles {
            recipe: recipe.to_string(),
            files: files.collect(),
            version: None,
            main,
        }
    }

    pub(crate) fn main_content(&self) -> Option<&FileBytes> {
        self.files.get(self.main.as_ref()?)
    }

    /// Returns whether each file that is in both readings has the same content in both.
    pub(crate) fn agrees(&self, other: &SourceFiles) -> bool {
        let same = |(path, content)| other.files.get(path).is_none_or(|now| now == content);
        self.files.iter().all(same)
    }

    /// Reads the same files again.
    pub(crate) fn again(&self) -> SourceFiles {
        let files = self.files.keys();
        SourceFiles {
            recipe: self.recipe.clone(),
            main: self.main.clone(),
            files: files.map(|path| (path.clone(), read(path))).collect(),
            version: None,
        }
    }
}
