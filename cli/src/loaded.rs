//! A batch and its source: the built-in rollouts, a file of rollouts, or a run's folder. The prompt and the language server use
//! this module to open batches.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::number_text::counted;
use crate::{Result, read_rollouts, wrong};
use advlab::Batch;
use advlab::files::{ReadOptions, steps};
use advlab::script::{Builtin, Host, Recipe};
use advlab_train::RunFolder;

/// The first 16 groups of `examples/rollouts.jsonl`, rounded and without texts: rollouts of a small policy on mazes, after 150
/// steps of GRPO.
const ROLLOUTS: &str = include_str!("rollouts.jsonl");

#[derive(Deserialize)]
struct ExampleRow {
    group: String,
    reward: f64,
    old_logp: Vec<f64>,
    ref_logp: Vec<f64>,
    entropy: Vec<f64>,
}

/// Returns the batch that is used if no input is given: 128 responses to 16 prompts, with their tokens' log-probs and entropies.
pub fn builtin() -> Batch {
    let rows = ROLLOUTS.lines().map(serde_json::from_str);
    let rows: Vec<ExampleRow> = rows
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| unreachable!("the built-in rollouts cannot be parsed: {error}"));
    let rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
    Batch::builder()
        .groups(rows.iter().map(|row| row.group.as_str()))
        .response("reward", rewards)
        .ragged("old_logp", rows.iter().map(|row| &row.old_logp))
        .ragged("ref_logp", rows.iter().map(|row| &row.ref_logp))
        .ragged("entropy", rows.iter().map(|row| &row.entropy))
        .build()
        .unwrap_or_else(|error| unreachable!("the built-in rollouts do not make a batch: {error}"))
}

/// A batch and its source.
#[derive(Clone)]
pub(crate) struct LoadedBatch {
    /// The name of the source in messages.
    pub(crate) name: String,
    pub(crate) batch: Arc<Batch>,
    /// Notes on how the batch was read.
    pub(crate) notes: Vec<String>,
    /// The run that the batch is from, and the batch's step.
    pub(crate) run: Option<(RunFolder, u64)>,
    /// The recipe that comes with the batch: the run's recipe at that step, or the script that was opened.
    pub(crate) recipe: Option<Recipe>,
    /// The run's loss recipe.
    pub(crate) loss: Option<Recipe>,
}

impl LoadedBatch {
    fn new(name: impl Into<String>, batch: Batch) -> LoadedBatch {
        LoadedBatch {
            name: name.into(),
            batch: Arc::new(batch),
            notes: Vec::new(),
            run: None,
            recipe: None,
            loss: None,
        }
    }

    pub(crate) fn builtin() -> LoadedBatch {
        LoadedBatch::new("the built-in batch", builtin())
    }

    pub(crate) fn open(host: &Host, path: &Path, options: &ReadOptions) -> Result<LoadedBatch> {
        let name = path.display().to_string();
        if path.is_dir() {
            let run = RunFolder::open(path);
            let files = steps(path).unwrap_or_default();
            let (Err(_), Some(last)) = (&run, files.last()) else {
                let run = run?;
                let last = run.last().0;
                return LoadedBatch::of_step(host, run, last);
            };
            let mut data = LoadedBatch::open(host, last, options)?;
            let files = counted(files.len(), "step");
            let note = format!("this is the batch of the last of {files} in {name}");
            data.notes.insert(0, note);
            return Ok(data);
        }
        if path.extension().is_some_and(|ending| ending == "rhai") {
            return LoadedBatch::of_script(host, name);
        }
        if Builtin::find(&name).is_some() && !path.exists() {
            let message = format!("`{name}` is a recipe, but a batch is read from a file or a run");
            let help = format!("`:recipe {name}` loads it, as `advlab repl --recipe {name}` does");
            return Err(wrong(message, help));
        }
        let (rollouts, notes) = read_rollouts(path, None, options)?;
        let data = LoadedBatch::new(name, rollouts.batch);
        Ok(LoadedBatch { notes, ..data })
    }

    /// Returns the run's batch of another step.
    pub(crate) fn at_step(&self, host: &Host, step: u64) -> Result<LoadedBatch> {
        let Some((run, _)) = &self.run else {
            let message = format!(
                "{} is not a run's folder, so it has only one batch",
                self.name
            );
            return Err(wrong(message, "`:load RUN` opens a run's folder"));
        };
        // The folder is opened again, because a run in progress may have more batches by now.
        LoadedBatch::of_step(host, RunFolder::open(run.folder())?, step)
    }

    fn of_step(host: &Host, run: RunFolder, step: u64) -> Result<LoadedBatch> {
        let mut data = LoadedBatch::open(host, run.at(step)?, &ReadOptions::default())?;
        let recipe = run.recipe_at(host, step).map_err(|error| ("recipe", error));
        let loss = run.loss(host).map_err(|error| ("loss recipe", error));
        let errors = [&recipe, &loss].into_iter();
        for (what, error) in errors.flat_map(|one| one.as_ref().err()) {
            let note = format!("the run's {what} is not loaded: {error}");
            data.notes.push(note);
        }
        (data.recipe, data.loss) = (recipe.ok(), loss.ok());
        let state_note = data.recipe.as_ref().and_then(RunFolder::state_note);
        data.notes.extend(state_note);
        data.run = Some((run, step));
        Ok(data)
    }

    fn of_script(host: &Host, name: String) -> Result<LoadedBatch> {
        let mut data = LoadedBatch::builtin();
        data.recipe = Some(host.load(&name)?);
        data.notes
            .push(format!("{name} is a recipe, so the built-in batch is used"));
        Ok(data)
    }
}
