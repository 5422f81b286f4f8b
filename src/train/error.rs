//! Why a run cannot begin, go on or be repeated.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::config::ConfigError;
use super::policy::PolicyError;
use super::task::TaskError;
use crate::diagnostic::Diagnostics;

/// Why a run cannot begin, go on or be repeated.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The task gives no prompts.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The policy refuses what it is given.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A recipe cannot be loaded, or failed at a step with no version to fall back to; or the step's columns are no batch,
    /// or a file cannot be written.
    #[error(transparent)]
    Script(#[from] Diagnostics),
    /// A file of the run's folder cannot be read or written.
    #[error("cannot {doing} {}: {source}{}", .path.display(), advice(source))]
    Io {
        /// What was tried, such as `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The folder is not a run's.
    #[error(
        "{} is no run: it has no {missing}. `advlab train` makes a run, and says its folder", .folder.display()
    )]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// What a run has.
        missing: &'static str,
    },
    /// The folder has no batches to look at.
    #[error(
        "{} is a folder, and holds no batches of a run: a run keeps them as batches/step-*.safetensors, unless its `batch_every` is 0", .folder.display()
    )]
    NoBatches {
        /// The folder.
        folder: PathBuf,
    },
    /// A new run would be written where something is already.
    #[error(
        "{} is there already and is not empty: choose another --out, or go on with it by --resume {}", .folder.display(), .folder.display()
    )]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process writes the folder.
    #[error(
        "{} is being written by another advlab: wait for it, or stop it with Ctrl-C there", .folder.display()
    )]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// A file of the run's folder is not what a run writes.
    #[error("{}: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// No checkpoint of the run can be used.
    #[error("{} has no checkpoint that can be used{why}", .folder.display())]
    NoCheckpoint {
        /// The run's folder.
        folder: PathBuf,
        /// What is wrong with those that it has.
        why: String,
    },
    /// The run has done as many steps as it is to do.
    #[error(
        "{} has done {steps} steps already: `advlab train --resume {} --steps {}` goes on", .folder.display(), .folder.display(), .steps * 2
    )]
    Done {
        /// The run's folder.
        folder: PathBuf,
        /// The steps that it has done.
        steps: u64,
    },
}

impl TrainError {
    /// For `map_err`: an error of a file.
    pub(super) fn io(
        doing: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(std::io::Error) -> TrainError {
        let path = path.as_ref().to_path_buf();
        move |source| TrainError::Io {
            doing,
            path,
            source,
        }
    }
}

/// What to do about a file that cannot be read or written; what was written before is as it was.
fn advice(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; make room, then go on with `advlab train --resume` and the run's folder"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; `--out` takes a folder that can be written"
        }
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "; `--out` takes a folder that is empty or not there yet"
        }
        _ => "",
    }
}
