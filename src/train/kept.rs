//! A run's folder, to be looked at: its last batches, and the versions of its recipe. Nothing is locked or changed.

use std::path::{Path, PathBuf};

use super::config::settings;
use super::error::no_start;
use super::folder::{KeptVersion, RELOADS, Scripts, Start, journal, kept_batches, read_config};
use super::replay::switch;
use crate::diagnostic::{Diagnostic, Diagnostics};
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
    /// [`Diagnostics`] where it holds no batches of a run.
    pub fn open(folder: &Path) -> Result<Kept, Diagnostics> {
        let batches = kept_batches(folder);
        if batches.is_empty() {
            let folder = folder.display();
            let problem =
                Diagnostic::error(format!("{folder} is a folder without batches of a run"));
            let help =
                "a run keeps them as batches/step-*.safetensors, unless its `batch_every` is 0";
            return Err(problem.with_help(help).into());
        }
        Ok(Kept {
            folder: folder.to_path_buf(),
            batches,
        })
    }

    /// The run's folder.
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
    /// [`Diagnostics`] where the folder does not say it, or the script that was kept is missing or has been edited.
    pub fn recipe_at(&self, host: &Host, step: u64) -> Result<Recipe, Diagnostics> {
        let used = self.used()?;
        let until = used.iter().take_while(|(at, ..)| *at <= step);
        match until.last() {
            Some((_, kept)) => self.load(host, kept),
            None => Err(no_start(&self.folder)),
        }
    }

    /// The version whose name begins so, with the run's settings; `None` where the run used no such version.
    ///
    /// # Errors
    /// As [`Kept::recipe_at`].
    pub fn recipe_named(&self, host: &Host, version: &str) -> Result<Option<Recipe>, Diagnostics> {
        let used = self.used()?;
        let found = used
            .iter()
            .find(|(_, kept)| kept.version.starts_with(version));
        found.map(|(_, kept)| self.load(host, kept)).transpose()
    }

    /// The versions that the run used, each with its first step.
    fn used(&self) -> Result<Vec<(u64, KeptVersion)>, Diagnostics> {
        let reloads = journal::read(&self.folder.join(RELOADS))?;
        let start = Start::of(&reloads).map(|start| (0, start.recipe));
        let used = reloads.iter().filter(|line| line["event"] == "use");
        Ok(start.into_iter().chain(used.filter_map(switch)).collect())
    }

    fn load(&self, host: &Host, kept: &KeptVersion) -> Result<Recipe, Diagnostics> {
        let config = read_config(&self.folder)?;
        let mut recipe = Scripts::of(&self.folder).load(host, kept)?;
        for (name, text) in settings(&config.params) {
            // A version that has not the parameter, or has it otherwise, ran without the setting.
            let _ = recipe.set_text(&name, &text);
        }
        Ok(recipe)
    }
}
