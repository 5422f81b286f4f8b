//! Where a session's batch comes from: a file of rollouts, a run's folder, or a script's own test batch.

use std::path::Path;
use std::sync::Arc;

use super::builtin::builtin;
use crate::Batch;
use crate::batch::{Mapping, ReadOptions, read};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Host, Recipe, TEST_BATCH};
use crate::train::Kept;

/// A batch, and where it is from.
pub(super) struct Data {
    /// What messages call it.
    pub(super) name: String,
    pub(super) batch: Arc<Batch>,
    /// What was read otherwise than it stands there.
    pub(super) notes: Vec<String>,
    /// The run that it is from, and the step.
    pub(super) run: Option<(Kept, u64)>,
    /// The script whose test batch it is.
    pub(super) script: Option<String>,
}

impl Data {
    /// The batch that is there without an input.
    pub(super) fn builtin() -> Data {
        Data {
            name: "the built-in batch".to_string(),
            batch: Arc::new(builtin()),
            notes: Vec::new(),
            run: None,
            script: None,
        }
    }

    /// What a path holds.
    pub(super) fn open(host: &Host, path: &Path, map: &[Mapping]) -> Result<Data, Diagnostics> {
        if path.is_dir() {
            return Data::of_run(path);
        }
        if path.extension().is_some_and(|ending| ending == "rhai") {
            return Data::of_script(host, path);
        }
        let options = ReadOptions {
            map,
            ..ReadOptions::default()
        };
        let rollouts =
            read(path, &options).map_err(|error| Diagnostic::error(error.to_string()))?;
        Ok(Data {
            name: path.display().to_string(),
            batch: Arc::new(rollouts.batch),
            notes: rollouts.notes.iter().map(ToString::to_string).collect(),
            run: None,
            script: None,
        })
    }

    /// The last batch of a run's folder.
    fn of_run(folder: &Path) -> Result<Data, Diagnostics> {
        let kept = Kept::open(folder)?;
        let last = kept.last().0;
        Data::of_step(kept, last)
    }

    /// Another batch of the run's folder.
    pub(super) fn at_step(&self, step: u64) -> Result<Data, Diagnostics> {
        let Some((kept, _)) = &self.run else {
            let message = format!("{} is not a run's folder, and has one batch", self.name);
            let help = "`:load RUN` opens a run's folder";
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        // A run that goes on has others by now.
        let kept = Kept::open(kept.folder())?;
        Data::of_step(kept, step)
    }

    /// The recipe that a run used: at the step of the batch, where that is the run's, else at its last batch.
    pub(super) fn recipe_of_run(&self, host: &Host, folder: &Path) -> Result<Recipe, Diagnostics> {
        let asked = Kept::open(folder)?;
        let is_same = |run: &Path| run.canonicalize().ok() == folder.canonicalize().ok();
        let step = match &self.run {
            Some((run, step)) if is_same(run.folder()) => *step,
            _ => asked.last().0,
        };
        asked.recipe_at(host, step)
    }

    /// A version that the batch's run used, by the digits that name it.
    pub(super) fn version_of_run(
        &self,
        host: &Host,
        name: &str,
    ) -> Result<Option<Recipe>, Diagnostics> {
        let is_version = name.len() >= 4 && name.chars().all(|c| c.is_ascii_hexdigit());
        match &self.run {
            Some((run, _)) if is_version => run.recipe_named(host, name),
            _ => Ok(None),
        }
    }

    fn of_step(kept: Kept, step: u64) -> Result<Data, Diagnostics> {
        let Some((_, path)) = kept.batches().iter().find(|(own, _)| *own == step) else {
            let steps: Vec<u64> = kept.batches().iter().map(|(own, _)| *own).collect();
            let message = format!("the run has kept no batch of step {step}");
            let help = match &steps[..] {
                [first, .., last] if steps.len() > 12 => {
                    let near = steps.iter().min_by_key(|own| own.abs_diff(step));
                    let near = near.unwrap_or(last);
                    let number = steps.len();
                    format!("it has {number}, from {first} to {last}; the nearest is {near}")
                }
                _ => {
                    let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
                    format!("it has those of {}", steps.join(", "))
                }
            };
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        let mut data = Data::open(&Host::new(), path, &[])?;
        data.run = Some((kept, step));
        Ok(data)
    }

    fn of_script(host: &Host, path: &Path) -> Result<Data, Diagnostics> {
        let name = path.display().to_string();
        let recipe = host.load(&name)?;
        let Some(batch) = recipe.test_batch()? else {
            let note = format!(
                "{name} has no `{TEST_BATCH}()`, which would return one as a map of columns: this is the built-in batch"
            );
            return Ok(Data {
                notes: vec![note],
                script: Some(name),
                ..Data::builtin()
            });
        };
        Ok(Data {
            name: format!("the test batch of {name}"),
            batch: Arc::new(batch),
            notes: Vec::new(),
            run: None,
            script: Some(name),
        })
    }
}
