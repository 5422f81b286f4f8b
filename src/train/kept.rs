//! What a run has kept, to be looked at: its last batches, and the versions of its recipe. Nothing is locked or changed.

use std::path::{Path, PathBuf};

use super::error::TrainError;
use super::folder::{RELOADS, Scripts, Start, journal, kept_batches, read_config};
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
        let batches = kept_batches(folder);
        match batches.is_empty() {
            true => Err(TrainError::NoBatches {
                folder: folder.to_path_buf(),
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

    /// The last batch and its step.
    pub fn last(&self) -> (u64, &Path) {
        match self.batches.last() {
            Some((step, path)) => (*step, path),
            None => unreachable!("a folder without batches is not opened"),
        }
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
