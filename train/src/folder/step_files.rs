//! The names of a run's batches, states and checkpoints, which contain the step, and the removal of old files;
//! `config/defaults.toml` says how many batches and checkpoints are kept.

use std::fs;
use std::path::{Path, PathBuf};

use super::remove;
use crate::error::{Result, if_there};

/// Files or folders of a run whose names contain a step, given by the text before the step and the ending. A suffix may follow
/// the step, as in `batches/failed-000140-4f8ad7.safetensors`.
pub(crate) struct StepFiles(&'static str, &'static str);

pub(crate) const BATCHES: StepFiles = StepFiles("batches/step-", ".safetensors");
/// The batches on which a version failed.
pub(super) const FAILED: StepFiles = StepFiles("batches/failed-", ".safetensors");
/// The recipe's states at the start of steps, which only a trainer's run saves.
pub(crate) const STATES: StepFiles = StepFiles("batches/step-", ".json");
pub(crate) const CHECKPOINTS: StepFiles = StepFiles("checkpoints/", "");

impl StepFiles {
    pub(crate) fn path(&self, run: &Path, step: u64) -> PathBuf {
        run.join(self.name(step, ""))
    }

    /// Returns the path of a step's file, relative to the run's folder.
    pub(super) fn name(&self, step: u64, suffix: &str) -> String {
        format!("{}{step:06}{suffix}{}", self.0, self.1)
    }

    /// Returns the paths with their steps, sorted by step.
    pub(crate) fn all(&self, run: &Path) -> Result<Vec<(u64, PathBuf)>> {
        let (folder, prefix) = self.0.split_once('/').unwrap_or_default();
        let folder = run.join(folder);
        let entries = if_there(&folder, fs::read_dir(&folder))?;
        let found = entries.into_iter().flatten().flatten().filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix(prefix)?;
            let step = name.strip_suffix(self.1)?.split('-').next()?;
            Some((step.parse().ok()?, entry.path()))
        });
        // The steps are sorted as numbers, because as strings 1000000 comes before 999990.
        let mut found: Vec<(u64, PathBuf)> = found.collect();
        found.sort();
        Ok(found)
    }

    /// Removes all files or folders except the newest `keep`.
    pub(super) fn remove_old(&self, run: &Path, keep: usize) -> Result<()> {
        for (_, old) in self.all(run)?.into_iter().rev().skip(keep) {
            // An error is ignored, because a leftover file is harmless.
            let _ = remove(&old);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_also_where_their_names_are_longer() {
        let run = tempfile::tempdir().unwrap();
        let batches = run.path().join("batches");
        fs::create_dir(&batches).unwrap();
        for step in [999_980, 999_990, 1_000_000, 1_000_010] {
            fs::write(BATCHES.path(run.path(), step), "").unwrap();
        }
        fs::write(batches.join("failed-000003-4f8ad7.safetensors"), "").unwrap();
        BATCHES.remove_old(run.path(), 2).unwrap();
        let steps = BATCHES.all(run.path()).unwrap();
        let steps = steps.into_iter().map(|(step, _)| step);
        assert_eq!(steps.collect::<Vec<_>>(), [1_000_000, 1_000_010]);
        assert_eq!(fs::read_dir(&batches).unwrap().count(), 3);
    }
}
