//! A run's model for others.

use std::fs;
use std::path::Path;

use super::folder::{Checkpoint, RunFolder, empty, remove};
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// Writes the model of a run's newest checkpoint that can be used to a folder that transformers (Python) opens. Gives the
/// steps that it has learned, and what is wrong with newer checkpoints.
///
/// # Errors
/// [`Diagnostics`] where the run has no checkpoint that can be used, its policy is not a language model, or the
/// folder is not empty.
pub fn export(run: &Path, folder: &Path) -> Result<(u64, Vec<String>), Diagnostics> {
    let mut config = RunFolder::read(run).config()?;
    // Wherever the run was: its numbers are not computed with.
    config.transformer.device = "cpu".to_string();
    let (checkpoint, notes) = Checkpoint::newest(run, u64::MAX)?;
    let Some(checkpoint) = checkpoint else {
        let message = format!("{} has no checkpoint that can be used", run.display());
        let mut problem = Diagnostic::error(message);
        problem.notes = notes;
        return Err(problem.into());
    };
    let mut policy = config.make_policy(&*config.make_task()?)?;
    policy.load(&checkpoint.folder)?;
    let was_there = folder.exists();
    let folder = empty(folder)?;
    policy.export(&folder).inspect_err(|_| {
        // It was empty; what cannot be removed is in the way of another try, which says so.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let _ = remove(&entry.path());
        }
        if !was_there {
            let _ = fs::remove_dir(&folder);
        }
    })?;
    Ok((checkpoint.step, notes))
}
