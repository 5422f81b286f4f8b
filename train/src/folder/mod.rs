//! The run's folder: all files of a run, which are written so that a kill at any moment leaves no unreadable file.
//!
//! - `config.toml`: the configuration that the run used
//! - `metrics.jsonl`: a [`Row`](super::Row) per step
//! - `reloads.jsonl`: a [`LogLine`](super::LogLine) for each start, change of version, rejected save, failure and warning
//! - `scripts/<version>/`: each version that was used or failed at a step, and the loss, with all imports
//! - `batches/`: the last few batches, and batches on which a version failed; in a trainer's run also the recipe's states
//! - `checkpoints/<step>/`: the state for `--resume`, in `run.json` and the policy's files
//! - `events.out.tfevents.*`: the metrics for TensorBoard
//! - `lock`: locked by the process that writes to the folder

mod checkpoint;
mod journal;
mod log;
mod reader;
mod step_files;
mod tensorboard;
mod writer;

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) use checkpoint::{Checkpoint, VersionState};
pub(super) use journal::{Journal, set_damaged_aside};
pub use log::{KeptVersion, LogEvent, LogLine, Notice, RunLog};
pub(super) use reader::step_after;
pub use reader::{RunFolder, RunKind};
use step_files::FAILED;
pub(super) use step_files::{BATCHES, CHECKPOINTS, STATES};
pub(super) use writer::RunWriter;

use super::config::Config;
use super::error::{Result, io};
use advlab::diagnostic::Diagnostic;
use advlab::regular_file;
use advlab::replace::Replacement;

pub(super) const CONFIG: &str = "config.toml";
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const RELOADS: &str = "reloads.jsonl";
/// The line that replaces the task in the configuration of a trainer's run.
const TRAINER: &str = "task = \"trainer\"";
const SCRIPTS: &str = "scripts";
const LOCK: &str = "lock";
/// The prefix and the suffix of the names that files and folders have while they are being written. [`Replacement`] uses the same
/// names.
const PART: (&str, &str) = (".advlab-", ".part");
/// The time to wait for a lock, because the system takes a moment to release the lock of a killed process.
const PATIENCE: Duration = Duration::from_secs(1);

/// A run's folder, locked so that only this process writes to it.
#[derive(Debug)]
pub(super) struct LockedFolder {
    pub(super) path: PathBuf,
    pub(super) kind: RunKind,
    /// The locked file. The system releases the lock when the process ends, even if the process is killed.
    _lock: File,
}

impl LockedFolder {
    /// Makes the folder of a new run, writes the configuration to the folder, and sets `config.out` to the folder's path.
    pub(super) fn create(config: &mut Config, kind: RunKind) -> Result<LockedFolder> {
        let path = match config.out.as_str() {
            "" => next_free(config)?,
            out => make_empty(Path::new(out))?,
        };
        config.out = path.display().to_string();
        let _lock = lock(&path)?;
        // The folder is checked again, because another process may have begun and ended a run here while this process waited for
        // the lock.
        make_empty(&path)?;
        let folder = LockedFolder { _lock, path, kind };
        folder.remove_unfinished();
        folder.write_config(config)?;
        Ok(folder)
    }

    /// Locks the folder of an existing run, and removes files that a killed process left unfinished.
    pub(super) fn open(path: &Path) -> Result<(LockedFolder, Config)> {
        // The configuration is read first, so that a folder that is not a run's folder is an error before the lock file is
        // created.
        RunFolder::read(path).config()?;
        let _lock = lock(path)?;
        // The configuration is read again, because another process may have extended the run while this process waited for the
        // lock.
        let (kind, config) = RunFolder::read(path).kind_and_config()?;
        let path = path.to_path_buf();
        let folder = LockedFolder { _lock, path, kind };
        folder.remove_unfinished();
        Ok((folder, config))
    }

    fn remove_unfinished(&self) {
        for name in ["", "batches", "checkpoints", SCRIPTS] {
            let entries = fs::read_dir(self.path.join(name)).into_iter().flatten();
            for entry in entries.flatten() {
                if is_part(&entry.file_name().to_string_lossy()) {
                    // An error is ignored, because readers skip unfinished files.
                    let _ = remove(&entry.path());
                }
            }
        }
    }

    /// Writes the configuration with absolute paths, because a run may be resumed from any folder.
    pub(super) fn write_config(&self, config: &Config) -> Result<()> {
        let config = config.with_absolute_paths();
        let text = match self.kind {
            RunKind::Own => config.to_commented(),
            RunKind::Trainer => {
                let (recipe, params) = (toml::Value::from(config.recipe), &config.params);
                let about = "# A trainer's run, as advlab recorded it";
                format!("{about}\nrecipe = {recipe}\n{TRAINER}\n\n[params]\n{params}")
            }
        };
        Replacement::write(&self.path.join(CONFIG), text.as_bytes())
    }
}

/// Syncs a folder, so that files that were renamed into it stay there even if the machine crashes.
fn sync_folder(path: &Path) -> Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(io("write", path))
}

/// Writes a folder of a run under a temporary name and renames it, so that after a kill at any moment, or a crash of the machine,
/// a new folder has all of its files or does not exist. An existing folder is removed just before the new folder is renamed.
fn write_folder(place: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let above = place.parent().unwrap_or(place);
    make_folder(above)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(PART.0).suffix(PART.1);
    // Dropping `part` removes the folder if it was not renamed.
    let part = builder.tempdir_in(above).map_err(io("write", place))?;
    write(part.path())?;
    sync_folder(part.path())?;
    if place.exists() {
        fs::remove_dir_all(place).map_err(io("remove", place))?;
    }
    fs::rename(part.path(), place).map_err(io("write", place))?;
    sync_folder(above)?;
    // The folder that contains `above` is synced too, because `above` may have been made just now.
    above.parent().map_or(Ok(()), sync_folder)
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(io("make the folder", path))
}

/// Makes the first of the folders runs/TASK-RECIPE-1, -2, ... that does not exist; no other process gets the same folder.
fn next_free(config: &Config) -> Result<PathBuf> {
    let stem = Path::new(&config.recipe).file_stem().unwrap_or_default();
    let stem = format!("{}-{}", config.task, stem.to_string_lossy());
    let runs = Path::new("runs");
    make_folder(runs)?;
    let path = |number| runs.join(format!("{stem}-{number}"));
    Ok(first_free(path, |path| fs::create_dir(path))?.0)
}

/// Makes the first numbered file or folder that does not exist.
fn first_free<T>(
    path: impl Fn(u64) -> PathBuf,
    make: impl Fn(&Path) -> io::Result<T>,
) -> Result<(PathBuf, T)> {
    let mut number = 1;
    loop {
        let path = path(number);
        match make(&path) {
            Ok(made) => return Ok((path, made)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(io("make", path)(error)),
        }
    }
}

/// Makes a folder. An existing folder must be empty, apart from files of a process that was killed before it wrote the
/// configuration.
pub(super) fn make_empty(path: &Path) -> Result<PathBuf> {
    make_folder(path)?;
    let entries = fs::read_dir(path).map_err(io("read", path))?;
    let mut names = entries.flatten().map(|entry| entry.file_name());
    if names.all(|name| name == LOCK || is_part(&name.to_string_lossy())) {
        return Ok(path.to_path_buf());
    }
    let folder = path.display();
    let message = format!("the folder {folder} exists already and is not empty");
    let mut help = "choose another --out".to_string();
    if path.join(CONFIG).is_file() {
        help += &format!(", or continue this run: `advlab train --resume {folder}`");
    }
    Err(Diagnostic::error(message).with_help(help).into())
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let mut options = File::options();
    // The file is opened for reading too, because Windows does not lock a file that is open only for appending.
    let file = regular_file::open_as(&path, options.create(true).read(true).append(true));
    let file = file.map_err(io("write", &path))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => sleep(PATIENCE / 20),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another process is writing to {}", folder.display());
                let help = "wait until that process ends, or stop it with Ctrl-C";
                return Err(Diagnostic::error(message).with_help(help).into());
            }
            Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                return Err(io("lock", path)(error));
            }
            // The file is locked now, or the drive (for example a network drive) does not support locks; in that case, the run
            // continues without a lock, because that is better than not running.
            _ => return Ok(file),
        }
    }
}

/// Returns whether a run has stopped after `done` steps: no process writes to the run's folder, and there is a checkpoint from
/// which the run can be resumed.
pub fn is_stopped(run: &Path, done: u64) -> bool {
    // Holding the lock for a moment does not disturb a process that waits for it, because such a process retries for a second.
    let is_free = |lock: File| lock.try_lock_shared().is_ok();
    CHECKPOINTS.path(run, done).is_dir() && regular_file::open(&run.join(LOCK)).is_ok_and(is_free)
}

/// Returns whether a file or folder with this name is unfinished.
fn is_part(name: &str) -> bool {
    name.starts_with(PART.0) && name.ends_with(PART.1)
}

/// Removes a file, or a folder with its contents.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_here_becomes_absolute_and_short_again() {
        let here = std::env::current_dir().unwrap();
        let path = here.join("scripts/x.rhai").display().to_string();
        let absolute = |recipe: &str| {
            let config = Config {
                recipe: recipe.to_string(),
                ..Config::default()
            };
            config.with_absolute_paths().recipe
        };
        assert_eq!(absolute("scripts/x.rhai"), path);
        assert_eq!(reader::from_here(&path), "scripts/x.rhai");
        // A built-in remains a built-in, and a script with its name remains a script.
        for recipe in ["grpo", &here.join("grpo").display().to_string(), "/x.rhai"] {
            assert_eq!(absolute(recipe), recipe);
            assert_eq!(reader::from_here(recipe), recipe);
        }
    }
}
