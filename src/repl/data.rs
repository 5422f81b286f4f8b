//! Where a session's batch comes from: a file of rollouts, a run's folder, or a script's own test batch.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::builtin::builtin;
use crate::Batch;
use crate::batch::{ReadOptions, read};
use crate::script::{Diagnostic, Host, ScriptError, TEST_BATCH};

/// A batch, and where it is from.
pub(super) struct Data {
    /// What messages call it.
    pub(super) name: String,
    pub(super) batch: Arc<Batch<'static>>,
    /// What was read otherwise than it stands there.
    pub(super) notes: Vec<String>,
    /// The batches of a run's folder, by step.
    pub(super) kept: Vec<(u64, PathBuf)>,
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
            kept: Vec::new(),
            script: None,
        }
    }

    /// What a path holds.
    pub(super) fn open(host: &Host, path: &Path) -> Result<Data, ScriptError> {
        if path.is_dir() {
            return Data::of_run(path);
        }
        if path.extension().is_some_and(|ending| ending == "rhai") {
            return Data::of_script(host, path);
        }
        let rollouts = read(path, &ReadOptions::default())
            .map_err(|error| Diagnostic::error(error.to_string()))?;
        Ok(Data {
            name: path.display().to_string(),
            batch: Arc::new(rollouts.batch),
            notes: rollouts.notes.iter().map(ToString::to_string).collect(),
            kept: Vec::new(),
            script: None,
        })
    }

    /// The last batch of a run's folder.
    fn of_run(folder: &Path) -> Result<Data, ScriptError> {
        let kept = batches(folder);
        let Some((_, last)) = kept.last() else {
            let message = format!("{} holds no batches of a run", folder.display());
            let help = "a run keeps them as batches/*.safetensors";
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        let mut data = Data::file(last)?;
        data.kept = kept;
        Ok(data)
    }

    /// Another batch of the run's folder.
    pub(super) fn at_step(&self, step: u64) -> Result<Data, ScriptError> {
        let Some((_, path)) = self.kept.iter().find(|(kept, _)| *kept == step) else {
            let steps: Vec<String> = self.kept.iter().map(|(step, _)| step.to_string()).collect();
            let (message, help) = match steps.is_empty() {
                true => (
                    format!("{} is not a run's folder, and has one batch", self.name),
                    "`:load RUN` opens a run's folder".to_string(),
                ),
                false => (
                    format!("the run has kept no batch of step {step}"),
                    format!("it has those of {}", steps.join(", ")),
                ),
            };
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        let mut data = Data::file(path)?;
        data.kept = self.kept.clone();
        Ok(data)
    }

    fn file(path: &Path) -> Result<Data, ScriptError> {
        Data::open(&Host::new(), path)
    }

    fn of_script(host: &Host, path: &Path) -> Result<Data, ScriptError> {
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
            kept: Vec::new(),
            script: Some(name),
        })
    }
}

/// The batches in a run's folder, by the step in their names: `step-000140.safetensors`. Others, such as those on which a
/// version failed, can be opened by their paths.
fn batches(folder: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(folder.join("batches"))
        .into_iter()
        .flatten()
        .flatten();
    let mut kept: Vec<(u64, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|ending| ending == "safetensors")
        })
        .filter_map(|path| {
            let stem = path.file_stem()?.to_str()?;
            let step = stem.strip_prefix("step-").unwrap_or(stem);
            Some((step.parse().ok()?, path))
        })
        .collect();
    kept.sort();
    kept
}
