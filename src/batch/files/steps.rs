//! The files of a folder, or those that a name with stars means, in the order of their steps.

use std::io;
use std::path::{Path, PathBuf};

use super::format::Format;
use super::{cannot_be_read, lines};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::counted;

/// The rollouts in a folder in the order of the numbers in their names: its files, and the folders in it that have a
/// number and lines of rollouts, each of which is one batch. A file is one by itself.
///
/// # Errors
/// Why the folder cannot be read, or that there are no rollouts in it.
pub fn steps(path: impl AsRef<Path>) -> Result<Vec<PathBuf>, Diagnostics> {
    let path = path.as_ref();
    if !path.is_dir() {
        let matching = matching(path);
        return Ok(if matching.is_empty() {
            vec![path.to_path_buf()]
        } else {
            matching
        });
    }
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?.path();
            let is_step = if entry.is_dir() {
                step_of(&entry).is_some() && !lines::files(&entry)?.is_empty()
            } else {
                Format::of(&entry).is_ok()
            };
            found.extend(is_step.then_some(entry));
        }
        Ok(found)
    };
    let mut found = list().map_err(|error| cannot_be_read(path, &error))?;
    if found.is_empty() {
        let others = std::fs::read_dir(path).map_or(0, Iterator::count);
        let what = match others {
            0 => "it is empty".to_string(),
            others => format!("it has {}", counted(others, "other file")),
        };
        let error = Diagnostic::error(format!("there are no rollouts in the folder: {what}"));
        // TRL's are in `completions`, below the run's folder.
        let below = std::fs::read_dir(path).into_iter().flatten().flatten();
        let mut below = below.map(|entry| entry.path());
        let some = below.find(|entry| lines::files(entry).is_ok_and(|files| !files.is_empty()));
        let help = match some {
            Some(folder) => format!("there are some in {}", folder.display()),
            None => format!(
                "each step is a file in it ({}), or a folder with a number in its name",
                Format::endings(|_| true)
            ),
        };
        return Err(error.in_file(path).with_help(help).into());
    }
    found.sort_by_cached_key(|entry| order(entry));
    Ok(found)
}

/// The files that a name with stars means, as a shell has them, in order; none where it is the name of a file.
fn matching(path: &Path) -> Vec<PathBuf> {
    let pattern = path.file_name().and_then(|name| name.to_str());
    let Some(pattern) = pattern.filter(|name| name.contains('*') && !path.exists()) else {
        return Vec::new();
    };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    // What is hidden is meant by its dot alone.
    let is_meant =
        |name: &str| (pattern.starts_with('.') || !name.starts_with('.')) && fits(name, pattern);
    let names = names.filter(|name| name.to_str().is_some_and(is_meant));
    let mut found: Vec<PathBuf> = names.map(|name| path.with_file_name(name)).collect();
    found.sort_by_cached_key(|path| order(path));
    found
}

/// Whether a name is what a pattern with stars means.
fn fits(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return name == pattern;
    };
    let Some(name) = name.strip_prefix(start) else {
        return false;
    };
    let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.any(|at| fits(&name[at..], rest))
}

/// The step that the name of a file or a folder ends with a number for, as `step_12.jsonl` does.
pub fn step_of(path: &Path) -> Option<u64> {
    let name = Path::new(path.file_name()?);
    let mut numbers = order(name)
        .into_iter()
        .rev()
        .filter_map(|(_, number)| number);
    numbers.next()
}

/// What puts files and folders in the order of the numbers in their names: `step_9` before `step_10`.
pub(super) fn order(path: &Path) -> Vec<(String, Option<u64>)> {
    let name = path.to_string_lossy();
    let mut parts = Vec::new();
    let mut rest = &*name;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| letter.is_ascii_digit());
        let (text, more) = rest.split_at(digits.unwrap_or(rest.len()));
        let end = more.find(|letter: char| !letter.is_ascii_digit());
        let (number, more) = more.split_at(end.unwrap_or(more.len()));
        parts.push((text.to_string(), number.parse().ok()));
        rest = more;
    }
    parts
}
