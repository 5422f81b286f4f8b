//! The run's folder: all that a run leaves behind, written so that a kill at any moment leaves nothing unreadable.
//!
//! - `config.toml`: the configuration as used
//! - `metrics.jsonl`: a [`Row`](super::Row) a step
//! - `reloads.jsonl`: which version was used from which step on, what was rejected, and what the run warned of
//! - `scripts/<version>/`: each version that was used, with all that it imports
//! - `batches/`: the last few batches, and those on which a version failed; of a trainer's run with the recipe's states
//! - `checkpoints/<step>/`: what `--resume` goes on from: `run.json`, and the policy's files
//! - `events.out.tfevents.*`: the metrics for TensorBoard
//! - `lock`: held by the process that writes here

mod checkpoint;
pub(super) mod journal;
mod logged;
mod numbered;
mod recorder;
mod tensorboard;
mod versions;

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) use checkpoint::{Checkpoint, LeftState};
pub use logged::Logged;
use numbered::CHECKPOINTS;
pub(super) use numbered::{BATCHES, STATES, remove};
pub(super) use recorder::Recorder;
pub use versions::Kept;
use versions::SCRIPTS;
pub(crate) use versions::in_use;
pub(super) use versions::{History, KeptVersion};

use super::config::{Config, MathConfig, TransformerConfig};
use super::error::{io, no_run};
use advlab::batch::Replacement;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::Builtin;

pub(super) const CONFIG: &str = "config.toml";
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const RELOADS: &str = "reloads.jsonl";
const LOCK: &str = "lock";
/// How long a lock is waited for: a process that was just killed holds it until the system has cleared up behind it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A run's folder, which no other process writes as long as this one has it.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// The system gives the lock back when the process ends, however it ends.
    _lock: File,
}

impl Folder {
    /// Makes the folder of a new run, with its configuration, and sets `config.out` to its path.
    pub(super) fn create(config: &mut Config) -> Result<Folder, Diagnostics> {
        let path = match config.out.as_str() {
            "" => next_free(config)?,
            out => empty(Path::new(out))?,
        };
        config.out = path.display().to_string();
        let folder = Folder {
            _lock: lock(&path)?,
            path,
        };
        // While the lock was waited for, another process may have begun a run here and ended it.
        empty(&folder.path)?;
        folder.write_config(config)?;
        Ok(folder)
    }

    /// Locks the folder of an existing run, and removes what a killed process left half written.
    pub(super) fn open(path: &Path) -> Result<(Folder, Config), Diagnostics> {
        let config = read_config(path)?;
        let folder = Folder {
            _lock: lock(path)?,
            path: path.to_path_buf(),
        };
        for name in [BATCHES.folder, CHECKPOINTS.folder, SCRIPTS] {
            remove_parts(&path.join(name));
        }
        Ok((folder, config))
    }

    /// Forgets how a run began that has not done anything: it begins again, perhaps with another version.
    pub(super) fn forget_history(&self) -> Result<(), Diagnostics> {
        let path = self.path.join(RELOADS);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Writes the configuration, with absolute paths: a run is resumed from any folder.
    pub(super) fn write_config(&self, config: &Config) -> Result<(), Diagnostics> {
        let config = config.with_absolute_paths();
        let text = if config.is_recorded() {
            config.to_recorded()
        } else {
            config.to_commented()
        };
        Replacement::write(&self.path.join(CONFIG), text.as_bytes())
    }
}

impl Config {
    /// The configuration with the absolute paths of scripts, model and data.
    pub fn with_absolute_paths(&self) -> Config {
        Config {
            recipe: absolute(&self.recipe),
            loss_recipe: absolute(&self.loss_recipe),
            transformer: TransformerConfig {
                model: from_root(&self.transformer.model),
                ..self.transformer.clone()
            },
            math: MathConfig {
                data: from_root(&self.math.data),
                ..self.math.clone()
            },
            ..self.clone()
        }
    }
}

/// The configuration of a run, with scripts by paths as short as people write them.
fn read_config(folder: &Path) -> Result<Config, Diagnostics> {
    let path = folder.join(CONFIG);
    if !path.is_file() {
        return Err(no_run(folder, CONFIG));
    }
    let config = Config::read(&path)?;
    Ok(Config {
        recipe: from_here(&config.recipe),
        loss_recipe: from_here(&config.loss_recipe),
        ..config
    })
}

/// A built-in's name as it is, a script's path from the root.
fn absolute(recipe: &str) -> String {
    if Builtin::find(recipe).is_some() {
        return recipe.to_string();
    }
    from_root(recipe)
}

/// A path from the root; nothing where there is none.
fn from_root(text: &str) -> String {
    let path = std::path::absolute(text).ok();
    let path = path.as_deref().and_then(Path::to_str);
    path.unwrap_or(text).to_string()
}

/// The path from the folder that the process is in, where the script is below it.
fn from_here(recipe: &str) -> String {
    let below = std::env::current_dir().ok().and_then(|here| {
        let below = Path::new(recipe).strip_prefix(here).ok()?;
        below.to_str()
    });
    match below {
        // Without its ending or a folder, it would be a built-in's name.
        Some(below) if below.ends_with(".rhai") => below.to_string(),
        _ => recipe.to_string(),
    }
}

/// After this, files that were renamed into a folder stay there through a crash of the machine.
fn sync_folder(path: &Path) -> Result<(), Diagnostics> {
    // Only Unix can, and has to.
    if cfg!(unix) {
        File::open(path)
            .and_then(|folder| folder.sync_all())
            .map_err(io("write", path))?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> Result<(), Diagnostics> {
    fs::create_dir_all(path).map_err(io("make the folder", path))
}

/// The first of runs/TASK-RECIPE-1, -2, ... that is not there; made by this call alone, whoever else looks for one.
fn next_free(config: &Config) -> Result<PathBuf, Diagnostics> {
    let stem = Path::new(&config.recipe).file_stem();
    let stem = stem.map_or("recipe".into(), |stem| stem.to_string_lossy());
    let runs = Path::new("runs");
    make_folder(runs)?;
    let path = |number| runs.join(format!("{}-{stem}-{number}", config.task));
    Ok(first_free(path, |path| fs::create_dir(path))?.0)
}

/// Makes the first of some numbered files or folders that is not there.
fn first_free<T>(
    path: impl Fn(u64) -> PathBuf,
    make: impl Fn(&Path) -> std::io::Result<T>,
) -> Result<(PathBuf, T), Diagnostics> {
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

/// A folder that is there and empty, but for what a process leaves that was killed before it wrote the configuration.
pub(super) fn empty(path: &Path) -> Result<PathBuf, Diagnostics> {
    make_folder(path)?;
    let entries = fs::read_dir(path).map_err(io("read", path))?;
    let is_left_behind = |name: &str| name == LOCK || is_part(name);
    let mut names = entries.flatten().map(|entry| entry.file_name());
    if names.all(|name| is_left_behind(&name.to_string_lossy())) {
        return Ok(path.to_path_buf());
    }
    let folder = path.display();
    let problem = Diagnostic::error(format!(
        "the folder {folder} exists already and is not empty"
    ));
    let help = if path.join(CONFIG).is_file() {
        format!("choose another --out, or go on with this run: `advlab train --resume {folder}`")
    } else {
        "choose another --out".to_string()
    };
    Err(problem.with_help(help).into())
}

fn lock(folder: &Path) -> Result<File, Diagnostics> {
    let path = folder.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(io("write", &path))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => {
                std::thread::sleep(PATIENCE / 20);
            }
            Err(TryLockError::WouldBlock) => {
                let message = format!("{} is being written by another advlab", folder.display());
                let help = "wait for it, or stop it with Ctrl-C there";
                return Err(Diagnostic::error(message).with_help(help).into());
            }
            // Some network drives have no locks: better no lock than no run.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                return Ok(file);
            }
            Err(TryLockError::Error(error)) => return Err(io("lock", path)(error)),
        }
    }
}

/// Whether a run stopped after so many steps: no process writes in its folder, which has the checkpoint to go on from.
pub fn is_stopped(run: &Path, done: u64) -> bool {
    // Who waits for the lock does not notice that it was had for a moment.
    let is_free = |lock: File| lock.try_lock_shared().is_ok();
    CHECKPOINTS.path(run, done).is_dir() && File::open(run.join(LOCK)).is_ok_and(is_free)
}

/// Removes what a killed process has half written. A file that cannot be removed does no harm.
fn remove_parts(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_part(&entry.file_name().to_string_lossy()) {
            let _ = remove(&entry.path());
        }
    }
}

/// A file or folder that is being written has a name with this beginning and end until it is complete.
const PART: (&str, &str) = (".advlab-", ".part");

fn is_part(name: &str) -> bool {
    name.starts_with(PART.0) && name.ends_with(PART.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_here_becomes_absolute_and_short_again() {
        let here = std::env::current_dir().unwrap();
        let path = here.join("scripts/x.rhai").display().to_string();
        assert_eq!(absolute("scripts/x.rhai"), path);
        assert_eq!(from_here(&path), "scripts/x.rhai");
        // A built-in stays one, and a script that is called like one stays a script.
        for recipe in ["grpo", &here.join("grpo").display().to_string(), "/x.rhai"] {
            assert_eq!(absolute(recipe), recipe);
            assert_eq!(from_here(recipe), recipe);
        }
    }
}
