//! Determines a file's format by the ending of its name, and finds the rollouts in a folder, in the order of their steps.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::place::Result;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::regular_file::cannot_be_read;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Lines,
    Parquet,
    Safetensors,
}

/// The endings of files with their formats. Messages list the first five.
const ENDINGS: [(&str, Format); 8] = [
    (".jsonl", Format::Lines),
    (".jsonl.gz", Format::Lines),
    (".jsonl.zst", Format::Lines),
    (".parquet", Format::Parquet),
    (".safetensors", Format::Safetensors),
    (".ndjson", Format::Lines),
    (".ndjson.gz", Format::Lines),
    (".ndjson.zst", Format::Lines),
];

/// Returns whether the file's name has the ending of a format for rollouts.
pub fn is_rollouts(path: &Path) -> bool {
    Format::named(path).is_some()
}

pub(super) fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

impl Format {
    pub(super) fn named(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let mut endings = ENDINGS.iter();
        let known = endings.find(|(ending, _)| name.ends_with(ending));
        // A folder may be called `x.parquet`, as Spark's are; the files in a folder, JSONL or parquet, are all read as lines.
        known.map(|(_, format)| {
            if path.is_dir() {
                Format::Lines
            } else {
                *format
            }
        })
    }

    pub(super) fn endings(is: impl Fn(Format) -> bool) -> String {
        let listed = ENDINGS[..5].iter().filter(|(_, format)| is(*format));
        let listed: Vec<&str> = listed.map(|(ending, _)| *ending).collect();
        listed.join(", ")
    }

    /// Refuses a copy whose name has an ending that does not belong to the input's format.
    pub(super) fn check_copy(self, added: &str, out: &Path) -> Result<()> {
        // A name without an ending may be a pipe. Any other ending is refused, because it names another format or a recipe.
        match Format::of(out) {
            Ok(format) if format == self => return Ok(()),
            Err(_) if out.extension().is_none() => return Ok(()),
            _ => {}
        }
        let what = format!(
            "{added} is added to a copy of the input, so the output must be the same kind of file as the input"
        );
        let endings = Format::endings(|format| format == self);
        let help = format!("give the output a name that ends in {endings}");
        Err(Diagnostic::error(what).with_help(help).in_file(out))
    }

    pub(super) fn of(path: &Path) -> Result<Format> {
        Format::among(path, |_| true)
    }

    /// Returns the format of a file that has one of the formats `is`, which the error for any other file lists.
    pub(super) fn among(path: &Path, is: fn(Format) -> bool) -> Result<Format> {
        if let Some(format) = Format::named(path) {
            return Ok(format);
        }
        if path.is_dir() {
            return Ok(Format::Lines);
        }
        if path.starts_with("/dev/fd") || matches!(path.to_str(), Some("-" | "/dev/stdin")) {
            let error = Diagnostic::error("rollouts are read from files, not from a stream");
            let help = "write them to a file first: `COMMAND > rollouts.jsonl`";
            return Err(error.in_file(path).with_help(help));
        }
        // If the file does not exist, this error is returned, and not the error for its ending.
        fs::metadata(path).map_err(|error| cannot_be_read(path, &error))?;
        let ending = path.extension().unwrap_or_default();
        let ending = ending.to_string_lossy().to_lowercase();
        let help = match (&*ending, is(Format::Safetensors)) {
            ("json", _) => {
                "write one object per response and line: `jq -c '.[]' rollouts.json > rollouts.jsonl` if the file is a list of them, \
                 `jq -c '.FIELD[]'` if a field holds the list"
            }
            ("arrow" | "csv" | "tsv", _) => {
                "write the table as Parquet, with pandas for example: `df.to_parquet(\"rollouts.parquet\")`"
            }
            ("pt" | "pth" | "bin" | "ckpt", true) => {
                "write its tensors with `safetensors.torch.save_file(batch, \"rollouts.safetensors\")`"
            }
            ("npz", true) => {
                "write its arrays as safetensors: `safetensors.numpy.save_file(dict(np.load(\"rollouts.npz\")), \"rollouts.safetensors\")`"
            }
            ("npy" | "pkl" | "pickle", true) => {
                "put the arrays in one file: `safetensors.numpy.save_file({\"rewards\": ..., \"index\": ...}, \"rollouts.safetensors\")`"
            }
            _ => "the ending of a file's name decides its format",
        };
        let endings = Format::endings(is);
        let error = Diagnostic::error(format!("rollouts are read from {endings} files"));
        Err(error.in_file(path).with_help(help))
    }
}

/// Returns the folder of a step's rollouts. For prime-rl, it is the subfolder that has only the rollouts that the trainer used.
fn folder_of_rollouts(folder: &Path) -> PathBuf {
    let used = folder.join("train/effective");
    if used.is_dir() { used } else { folder.into() }
}

/// Returns whether an entry of a folder of rollouts holds something other than the training's rollouts: SkyRL writes statistics
/// of evaluations there; NeMo-RL and prime-rl write evaluations; open-instruct writes the run's settings; Tinker's cookbook writes
/// metrics, checkpoints, times and rollouts of evaluations.
fn is_apart(entry: &Path) -> bool {
    let name = entry.file_name().unwrap_or_default().to_string_lossy();
    if entry.is_dir() {
        return name == "eval" && entry.join("all").is_dir();
    }
    let others = "aggregated_results metrics checkpoints timing_spans trace_events";
    name.starts_with("eval_") && name.ends_with("_rollout_summaries.jsonl")
        || name.starts_with("val_data_step")
        || name.ends_with("_metadata.jsonl")
        || others
            .split(' ')
            .any(|other| name == format!("{other}.jsonl"))
}

/// Returns the JSONL and parquet files in a folder and its subfolders, ordered by the numbers in their names. A file occurs only
/// once, even if several links lead to it.
pub(super) fn files_of_lines(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(folder, &mut HashSet::new(), &mut found)?;
    Ok(found)
}

fn collect(folder: &Path, seen: &mut HashSet<PathBuf>, found: &mut Vec<PathBuf>) -> io::Result<()> {
    seen.insert(folder.canonicalize()?);
    for entry in entries_of(&folder_of_rollouts(folder))? {
        let is_folder = entry.is_dir();
        let is_lines = matches!(Format::of(&entry), Ok(Format::Lines | Format::Parquet));
        if !(is_folder || is_lines) || is_apart(&entry) {
            continue;
        }
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", entry.display()));
        if seen.insert(entry.canonicalize().map_err(named)?) {
            match is_folder {
                true => collect(&entry, seen, found)?,
                false => found.push(entry),
            }
        }
    }
    Ok(())
}

/// Returns the entries of a folder, ordered by the numbers in their names.
fn entries_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut entries: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    entries.sort_by_cached_key(|entry| order(entry));
    Ok(entries)
}

/// Returns the batches in a folder, ordered by the numbers in their names: each file of rollouts, and each subfolder that has a
/// number in its name and holds JSONL or parquet files. If the path is a file, that file is the only batch.
///
/// # Errors
/// The folder cannot be read, or contains no rollouts.
pub fn steps(path: impl AsRef<Path>) -> Result<Vec<PathBuf>, Diagnostics> {
    let path = path.as_ref();
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let has_lines = |folder: &Path| files_of_lines(folder).is_ok_and(|files| !files.is_empty());
    let is_step = |entry: &PathBuf| match entry.is_dir() {
        true => step_of(entry).is_some() && has_lines(entry),
        false => Format::of(entry).is_ok(),
    };
    let mut entries = entries_of(path).map_err(|error| cannot_be_read(path, &error))?;
    entries.retain(|entry| !is_apart(entry));
    let steps = entries.iter().filter(|entry| is_step(entry));
    let found: Vec<PathBuf> = steps.cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    // For example, TRL writes rollouts into `completions`, below the run's folder.
    let help = match entries.iter().find(|entry| has_lines(entry)) {
        Some(folder) => format!("there are rollouts in {}", folder.display()),
        None => format!(
            "each step is a file in this folder ({}), or a subfolder with a number in its name",
            Format::endings(|_| true)
        ),
    };
    let error = Diagnostic::error("there are no rollouts in the folder").in_file(path);
    Err(error.with_help(help).into())
}

/// Returns the last number in the name of a file or a folder: 12 for `step_12.jsonl`.
pub fn step_of(path: &Path) -> Option<u64> {
    let parts = order(Path::new(path.file_name()?));
    parts.into_iter().rev().find_map(|(_, number)| number)
}

/// Splits a name into texts and numbers, so that `step_9` is sorted before `step_10`.
fn order(path: &Path) -> Vec<(String, Option<u64>)> {
    let name = path.to_string_lossy();
    let (name, is_digit) = (name.as_bytes(), u8::is_ascii_digit);
    let parts = name.chunk_by(|one, next| is_digit(one) == is_digit(next));
    let parts = parts.map(|part| match String::from_utf8_lossy(part) {
        digits if is_digit(&part[0]) => (String::new(), digits.parse().ok()),
        text => (text.into_owned(), None),
    });
    parts.collect()
}
