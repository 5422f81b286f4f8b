//! What a run has logged, for reading: its own, or that of another trainer which writes the same files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CONFIG, METRICS, RELOADS, in_use, journal, read_config};
use crate::config::Config;
use advlab::diagnostic::Diagnostics;

/// The rows of a run, and when its versions changed; the run may be going on.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The run's folder.
    pub folder: PathBuf,
    /// Its configuration, where it has one.
    pub config: Option<Config>,
    /// The version that it began with, where it says so.
    pub version: Option<String>,
    /// The version that it used last, and that of its loss, where it says so.
    pub last: [Option<String>; 2],
    /// A row for each step, as `metrics.jsonl` has them.
    pub rows: Vec<Value>,
    /// The steps from which another version was used.
    pub reloads: Vec<u64>,
}

impl Logged {
    /// Reads what is there.
    ///
    /// # Errors
    /// [`Diagnostics`] where a file cannot be read, or the configuration is none.
    pub fn open(folder: &Path) -> Result<Logged, Diagnostics> {
        let has_config = folder.join(CONFIG).is_file();
        let reloads = journal::read(&folder.join(RELOADS))?;
        let used = in_use(&reloads);
        let version = |used: &(u64, &str)| used.1.to_string();
        let loss = reloads
            .first()
            .and_then(|line| line["loss_version"].as_str());
        Ok(Logged {
            folder: folder.to_path_buf(),
            config: has_config.then(|| read_config(folder)).transpose()?,
            version: used.first().map(version),
            last: [used.last().map(version), loss.map(str::to_string)],
            rows: journal::read(&folder.join(METRICS))?,
            reloads: used.iter().skip(1).map(|(step, _)| *step).collect(),
        })
    }
}
