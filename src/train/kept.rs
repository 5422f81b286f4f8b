//! A run's folder, to be looked at: its last batches, and the versions of its recipe. Nothing is locked or changed.

use std::path::{Path, PathBuf};

use super::config::settings;
use super::folder::{BATCHES, History, KeptVersion};
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
        let batches = BATCHES.all(folder).unwrap_or_default();
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
        let history = History::read(&self.folder)?;
        let used = history.used().take_while(|(first, _)| *first <= step);
        let kept = used
            .last()
            .map_or(history.start.recipe.clone(), |(_, kept)| kept);
        load(&history, host, &kept)
    }

    /// The version whose name begins so, with the run's settings; `None` where the run used no such version.
    ///
    /// # Errors
    /// As [`Kept::recipe_at`].
    pub fn recipe_named(&self, host: &Host, version: &str) -> Result<Option<Recipe>, Diagnostics> {
        let history = History::read(&self.folder)?;
        let mut used = history.used().map(|(_, kept)| kept);
        let named = used.find(|kept| kept.version.starts_with(version));
        named.map(|kept| load(&history, host, &kept)).transpose()
    }
}

fn load(history: &History, host: &Host, kept: &KeptVersion) -> Result<Recipe, Diagnostics> {
    let mut recipe = kept.load(&history.folder, host)?;
    for (name, text) in settings(&history.config.params) {
        // A version that has not the parameter, or has it otherwise, ran without the setting.
        let _ = recipe.set_text(&name, &text);
    }
    Ok(recipe)
}
