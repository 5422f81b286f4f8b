//! The versions that a run used, as its folder has them.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{KeptVersion, RELOADS, journal, read_config};
use crate::diagnostic::Diagnostics;
use crate::script::{Host, Recipe};
use crate::train::config::Config;
use crate::train::error::no_run;

/// The first line of `reloads.jsonl`: the versions that the run began with.
#[derive(Deserialize)]
pub(in crate::train) struct Start {
    #[serde(flatten)]
    pub(in crate::train) recipe: KeptVersion,
    loss_script: String,
    loss_version: String,
}

/// The configuration of a run and the lines of its `reloads.jsonl`.
pub(in crate::train) struct History {
    pub(in crate::train) config: Config,
    pub(in crate::train) folder: PathBuf,
    pub(in crate::train) start: Start,
    reloads: Vec<Value>,
}

impl History {
    pub(in crate::train) fn read(folder: &Path) -> Result<History, Diagnostics> {
        let config = read_config(folder)?;
        let reloads = journal::read(&folder.join(RELOADS))?;
        let start = reloads
            .first()
            .and_then(|line| Start::deserialize(line).ok());
        let start = start.ok_or_else(|| {
            // It was killed before it wrote the line.
            let missing = "line in reloads.jsonl with the versions that it began with";
            no_run(folder, missing)
        })?;
        Ok(History {
            config,
            folder: folder.to_path_buf(),
            start,
            reloads,
        })
    }

    /// The run's loss recipe.
    pub(in crate::train) fn loss(&self, host: &Host) -> Result<Recipe, Diagnostics> {
        let kept = KeptVersion {
            script: self.start.loss_script.clone(),
            version: self.start.loss_version.clone(),
        };
        self.config.set_loss(kept.load(&self.folder, host)?)
    }

    /// The versions that the run used, each with its first step.
    pub(in crate::train) fn used(&self) -> impl Iterator<Item = (u64, KeptVersion)> {
        let start = (0, self.start.recipe.clone());
        let used = self.reloads.iter().filter(|line| line["event"] == "use");
        std::iter::once(start).chain(used.filter_map(version))
    }

    /// The versions that steps after the first one began with, or tried to: those whose `migrate` failed.
    pub(in crate::train) fn switches(&self) -> impl Iterator<Item = (u64, KeptVersion)> {
        let is_switch = |line: &&Value| line["event"] == "use" || line["hook"] == "migrate";
        self.reloads.iter().filter(is_switch).filter_map(version)
    }

    /// The versions that were rejected or failed before a step: a run that was never stopped would not try them again.
    pub(in crate::train) fn rejected_before(&self, step: u64) -> Vec<String> {
        let lines = self.reloads.iter().filter(|line| {
            let is_before = line["step"].as_u64().is_some_and(|own| own < step);
            is_before && (line["event"] == "rejected" || line["event"] == "failed")
        });
        lines
            .filter_map(|line| line["version"].as_str().map(str::to_string))
            .collect()
    }
}

fn version(line: &Value) -> Option<(u64, KeptVersion)> {
    Some((line["step"].as_u64()?, KeptVersion::deserialize(line).ok()?))
}
