//! What a run has logged, for reading: its own, or that of another trainer which writes the same files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CONFIG, METRICS, RELOADS, journal, read_config};
use crate::diagnostic::Diagnostics;
use crate::train::config::Config;

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
        let used = reloads.iter().filter(|line| line["event"] == "use");
        let named = |line: &Value, key: &str| Some(line[key].as_str()?.to_string());
        let first = reloads.first();
        let last = used.clone().next_back().or(first);
        Ok(Logged {
            folder: folder.to_path_buf(),
            config: has_config.then(|| read_config(folder)).transpose()?,
            version: first.and_then(|line| named(line, "version")),
            last: [
                last.and_then(|line| named(line, "version")),
                first.and_then(|line| named(line, "loss_version")),
            ],
            rows: journal::read(&folder.join(METRICS))?,
            reloads: used.filter_map(|line| line["step"].as_u64()).collect(),
        })
    }
}
