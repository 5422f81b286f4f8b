//! What a run has kept, to be looked at: its last batches, and the versions of its recipe. Nothing is locked or changed.

use std::path::{Path, PathBuf};

use super::error::TrainError;
use super::folder::{BATCHES, RELOADS, Scripts, Start, journal, read_config};
use super::replay::switch;
use crate::script::{Host, Recipe};

/// The folder of a run, for reading; the run may be going on.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    batches: Vec<(u64, PathBuf)>,
}

impl Kept {
    /// Looks into a folder.
    ///
    /// # Errors
    /// [`TrainError`] where it holds no batches of a run.
    pub fn open(folder: &Path) -> Result<Kept, TrainError> {
        let batches = batches(folder);
        match batches.is_empty() {
            true => Err(TrainError::NoRun {
                folder: folder.to_path_buf(),
                missing: "batches (batches/*.safetensors)",
            }),
            false => Ok(Kept {
                folder: folder.to_path_buf(),
                batches,
            }),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The batches by their steps, in order: one at least. Those on which a version failed are not among them.
    pub fn batches(&self) -> &[(u64, PathBuf)] {
        &self.batches
    }

    /// The last step that has a batch.
    pub fn last_step(&self) -> u64 {
        self.batches.last().map_or(0, |(step, _)| *step)
    }

    /// The version of the recipe that a step used, with the run's settings.
    ///
    /// # Errors
    /// [`TrainError`] where the folder does not say it, or the script that was kept is missing or has been edited.
    pub fn recipe_at(&self, host: &Host, step: u64) -> Result<Recipe, TrainError> {
        let config = read_config(&self.folder)?;
        let reloads = journal::read(&self.folder.join(RELOADS))?;
        let Some(start) = Start::of(&reloads) else {
            return Err(TrainError::NoRun {
                folder: self.folder.clone(),
                missing: "line in reloads.jsonl that says what it began with",
            });
        };
        let used = reloads.iter().filter(|line| line["event"] == "use");
        let until = used.filter_map(switch).take_while(|(at, _)| *at <= step);
        let (script, version) = until.last().map_or(start.recipe, |(_, kept)| kept);
        let mut recipe = Scripts::of(&self.folder).look_at(host, &script, &version)?;
        for (name, text) in config.settings()? {
            // A version that has not the parameter, or has it otherwise, ran without the setting.
            let _ = recipe.set_text(&name, &text);
        }
        Ok(recipe)
    }
}

/// The batches in a run's folder, by the steps in their names: `step-000140.safetensors`.
fn batches(folder: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(folder.join(BATCHES));
    let paths = entries.into_iter().flatten().flatten();
    let step_of = |path: &Path| {
        let is_batch = path.extension()? == "safetensors";
        let stem = path.file_stem()?.to_str()?;
        let step = stem.strip_prefix("step-").unwrap_or(stem);
        is_batch.then(|| step.parse().ok()).flatten()
    };
    let mut kept: Vec<(u64, PathBuf)> = paths
        .map(|entry| entry.path())
        .filter_map(|path| Some((step_of(&path)?, path)))
        .collect();
    kept.sort();
    kept
}
