//! The run's folder: all that a run leaves behind, written so that a kill at any moment leaves nothing unreadable.
//!
//! - `config.toml`: the configuration as used
//! - `metrics.jsonl`: a [`Row`](super::Row) a step
//! - `reloads.jsonl`: which version was used from which step on, and what was rejected
//! - `scripts/<version>/`: each version that was used, with all that it imports
//! - `batches/`: the last few batches, and those on which a version failed
//! - `checkpoints/`: what `--resume` goes on from
//! - `events.out.tfevents.*`: the metrics for TensorBoard
//! - `lock`: held by the process that writes here

mod batches;
mod checkpoint;
pub(super) mod journal;
mod places;
mod recorder;
mod scripts;
mod tensorboard;

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) use batches::kept_batches;
pub(super) use checkpoint::Checkpoint;
use journal::Journal;
pub(super) use recorder::{Recorder, Start};
pub(super) use scripts::Scripts;

use super::config::Config;
use super::error::TrainError;
use crate::batch::Replacement;

const CONFIG: &str = "config.toml";
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const RELOADS: &str = "reloads.jsonl";
const LOCK: &str = "lock";
/// How long a lock is waited for: a process that was just killed holds it until the system has cleared up behind it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A run's folder, which no other process writes as long as this one has it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The system gives the lock back when the process ends, however it ends.
    _lock: File,
}

impl Folder {
    /// Makes the folder of a new run, with its configuration; gives back where it is in `config.out`.
    pub(super) fn create(config: &mut Config) -> Result<Folder, TrainError> {
        let path = match config.out.as_str() {
            "" => next_free(config)?,
            out => empty(Path::new(out))?,
        };
        config.out = path.display().to_string();
        let folder = Folder {
            _lock: lock(&path)?,
            path,
        };
        folder.write_config(config)?;
        Ok(folder)
    }

    /// Takes the folder of a run that is there.
    pub(super) fn open(path: &Path) -> Result<(Folder, Config), TrainError> {
        let config = read_config(path)?;
        let folder = Folder {
            _lock: lock(path)?,
            path: path.to_path_buf(),
        };
        for name in [batches::FOLDER, checkpoint::FOLDER] {
            remove_parts(&path.join(name));
        }
        Ok((folder, config))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes the configuration, with scripts by their absolute paths: a run is resumed from any folder.
    pub(super) fn write_config(&self, config: &Config) -> Result<(), TrainError> {
        let config = Config {
            recipe: places::absolute(&config.recipe),
            loss_recipe: places::absolute(&config.loss_recipe),
            ..config.clone()
        };
        Ok(Replacement::write(
            &self.file(CONFIG),
            config.to_commented().as_bytes(),
        )?)
    }
}

/// The configuration of a run, with scripts by paths as short as people write them.
pub(super) fn read_config(folder: &Path) -> Result<Config, TrainError> {
    let path = folder.join(CONFIG);
    if !path.is_file() {
        return Err(TrainError::NoRun {
            folder: folder.to_path_buf(),
            missing: CONFIG,
        });
    }
    let config = Config::read(&path)?;
    Ok(Config {
        recipe: places::from_here(&config.recipe),
        loss_recipe: places::from_here(&config.loss_recipe),
        ..config
    })
}

/// Makes what was renamed into a folder last.
fn sync_folder(path: &Path) -> Result<(), TrainError> {
    // Only Unix can, and has to.
    if cfg!(unix) {
        File::open(path)
            .and_then(|folder| folder.sync_all())
            .map_err(TrainError::io("write", path))?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> Result<(), TrainError> {
    fs::create_dir_all(path).map_err(TrainError::io("make the folder", path))
}

/// The first of runs/TASK-RECIPE-1, -2, ... that is not there; made by this call alone, whoever else looks for one.
fn next_free(config: &Config) -> Result<PathBuf, TrainError> {
    let stem = Path::new(&config.recipe).file_stem();
    let stem = stem.map_or("recipe".into(), |stem| stem.to_string_lossy());
    let runs = Path::new("runs");
    make_folder(runs)?;
    for number in 1u64.. {
        let path = runs.join(format!("{}-{stem}-{number}", config.task));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(TrainError::io("make the folder", path)(error)),
        }
    }
    unreachable!("there are fewer folders than whole numbers")
}

/// A folder that is there and empty, but for what a process leaves that was killed before it wrote the configuration.
fn empty(path: &Path) -> Result<PathBuf, TrainError> {
    make_folder(path)?;
    let entries = fs::read_dir(path).map_err(TrainError::io("read", path))?;
    let is_left_behind = |name: &str| name == LOCK || is_part(name);
    let mut names = entries.flatten().map(|entry| entry.file_name());
    match names.all(|name| is_left_behind(&name.to_string_lossy())) {
        true => Ok(path.to_path_buf()),
        false => Err(TrainError::Occupied {
            folder: path.to_path_buf(),
        }),
    }
}

fn lock(folder: &Path) -> Result<File, TrainError> {
    let path = folder.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(TrainError::io("write", &path))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => {
                std::thread::sleep(PATIENCE / 20);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(TrainError::Locked {
                    folder: folder.to_path_buf(),
                });
            }
            // Some network drives have no locks: better no lock than no run.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                return Ok(file);
            }
            Err(TryLockError::Error(error)) => return Err(TrainError::io("lock", path)(error)),
        }
    }
}

/// Removes what a killed process has half written. What cannot be removed does no harm.
fn remove_parts(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_part(&entry.file_name().to_string_lossy()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether this is the name of a file that is being written.
fn is_part(name: &str) -> bool {
    name.starts_with(".advlab-") && name.ends_with(".part")
}
