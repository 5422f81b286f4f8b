//! The sources of a session's batch: the built-in one, a file of rollouts, a run's folder, a script's test batch.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::command::wrong;
use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::counted;
use advlab::files::{Mapping, ReadOptions, Tokenize, read, steps};
use advlab::script::{Builtin, Host, Recipe, TEST_BATCH};
use advlab_train::RunFolder;

/// The first 16 groups of `examples/rollouts.jsonl`: a small policy on mazes, after 150 steps of GRPO.
const ROLLOUTS: &str = include_str!("rollouts.jsonl");

#[derive(Deserialize)]
struct Rollout {
    group: String,
    reward: f64,
    old_logp: Vec<f64>,
    ref_logp: Vec<f64>,
    entropy: Vec<f64>,
}

/// The batch of a session without an input: 128 responses to 16 prompts, with their tokens' log-probs and entropies.
pub fn builtin() -> Batch {
    let rows = ROLLOUTS.lines().map(serde_json::from_str);
    let rows: Vec<Rollout> = rows
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| unreachable!("the built-in rollouts are right: {error}"));
    let rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
    Batch::builder()
        .groups(rows.iter().map(|row| row.group.as_str()))
        .response("reward", rewards)
        .ragged("old_logp", rows.iter().map(|row| &row.old_logp))
        .ragged("ref_logp", rows.iter().map(|row| &row.ref_logp))
        .ragged("entropy", rows.iter().map(|row| &row.entropy))
        .build()
        .unwrap_or_else(|error| unreachable!("the built-in rollouts make a batch: {error}"))
}

/// A batch and its source.
#[derive(Clone)]
pub(super) struct Data {
    /// The source, as messages name it.
    pub(super) name: String,
    pub(super) batch: Arc<Batch>,
    /// Notes on values that were read differently than they are written.
    pub(super) notes: Vec<String>,
    /// The run that it is from, and the step.
    pub(super) run: Option<(RunFolder, u64)>,
    /// The recipe whose test batch it is.
    pub(super) recipe: Option<Recipe>,
}

impl Data {
    fn new(name: impl Into<String>, batch: Batch) -> Data {
        Data {
            name: name.into(),
            batch: Arc::new(batch),
            notes: Vec::new(),
            run: None,
            recipe: None,
        }
    }

    /// The batch of a session without an input.
    pub(super) fn builtin() -> Data {
        Data::new("the built-in batch", builtin())
    }

    pub(super) fn open(
        host: &Host,
        path: &Path,
        map: &[Mapping],
        tokenizer: Option<&Arc<dyn Tokenize>>,
    ) -> Result<Data, Diagnostics> {
        let name = path.display().to_string();
        if path.is_dir() {
            let kept = RunFolder::open(path);
            if let (Err(_), Ok(steps)) = (&kept, steps(path))
                && let Some(last) = steps.last()
            {
                let mut data = Data::open(host, last, map, tokenizer)?;
                let note = format!(
                    "the last of {} in {name}: `:load FILE` opens another",
                    counted(steps.len(), "step")
                );
                data.notes.insert(0, note);
                return Ok(data);
            }
            let kept = kept?;
            let last = kept.last().0;
            return Data::of_step(kept, last);
        }
        if path.extension().is_some_and(|ending| ending == "rhai") {
            return Data::of_script(host, name);
        }
        if Builtin::find(&name).is_some() && !path.exists() {
            let message = format!("`{name}` is a recipe, and a batch is read from a file or a run");
            let help = format!("`:recipe {name}` loads it, as `advlab repl --recipe {name}` does");
            return Err(wrong(message, help));
        }
        let options = ReadOptions {
            map,
            tokenizer,
            ..ReadOptions::default()
        };
        let rollouts = read(path, &options)?;
        let mut data = Data::new(name, rollouts.batch);
        data.notes = rollouts.notes.iter().map(ToString::to_string).collect();
        Ok(data)
    }

    /// Another batch of the run's folder.
    pub(super) fn at_step(&self, step: u64) -> Result<Data, Diagnostics> {
        let Some((kept, _)) = &self.run else {
            let message = format!("{} is not a run's folder, and has one batch", self.name);
            let help = "`:load RUN` opens a run's folder";
            return Err(wrong(message, help));
        };
        // A run that goes on has others by now.
        let kept = RunFolder::open(kept.folder())?;
        Data::of_step(kept, step)
    }

    /// The recipe that a run used: at the step of this batch if it is from that run, else at the run's last batch.
    pub(super) fn recipe_of_run(&self, host: &Host, folder: &Path) -> Result<Recipe, Diagnostics> {
        let asked = RunFolder::open(folder)?;
        let is_same = |run: &Path| run.canonicalize().ok() == folder.canonicalize().ok();
        let step = match &self.run {
            Some((run, step)) if is_same(run.folder()) => *step,
            _ => asked.last().0,
        };
        asked.recipe_at(host, step)
    }

    /// A version that the batch's run used, by its hexadecimal digits.
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

    fn of_step(kept: RunFolder, step: u64) -> Result<Data, Diagnostics> {
        let mut data = Data::open(&Host::new(), kept.at(step)?, &[], None)?;
        data.run = Some((kept, step));
        Ok(data)
    }

    fn of_script(host: &Host, name: String) -> Result<Data, Diagnostics> {
        let recipe = host.load(&name)?;
        let mut data = match recipe.test_batch()? {
            Some(batch) => Data::new(format!("the test batch of {name}"), batch),
            None => {
                let mut data = Data::builtin();
                data.notes.push(format!("{name} has no `{TEST_BATCH}()`, which would return one as a map of columns: this is the built-in batch"));
                data
            }
        };
        data.recipe = Some(recipe);
        Ok(data)
    }
}
