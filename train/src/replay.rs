//! Repeats a run: the same versions at the same steps, to the same numbers.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::error::damaged;
use super::event::{Event, Tell};
use super::folder::{RunFolder, RunLog, STATES, step_after, step_of};
use super::record;
use super::row::flatten;
use super::trainer::Trainer;
use advlab::diagnostic::Diagnostics;
use advlab::files::{ReadOptions, read};
use advlab::live::LiveRecipe;
use advlab::native::Mode;
use advlab::script::{Host, Recipe};

/// Steps that a run has done, to be repeated from the first of them on.
pub(super) struct RecordedSteps {
    rows: VecDeque<Value>,
    /// The version that a step began with, or tried to, if that was not the one of the step before.
    switches: HashMap<u64, Recipe>,
}

impl RecordedSteps {
    /// The steps that have these rows, the first of which is `step`.
    pub(super) fn new(
        run: &RunFolder,
        log: &RunLog,
        host: &Host,
        step: u64,
        rows: Vec<Value>,
    ) -> Result<RecordedSteps, Diagnostics> {
        let steps = step..step_after(step, &rows);
        let mut switches = HashMap::new();
        for (step, kept) in log.switches().filter(|(step, _)| steps.contains(step)) {
            switches.insert(step, kept.load(run.folder(), host)?);
        }
        Ok(RecordedSteps {
            switches,
            rows: rows.into(),
        })
    }

    /// How many steps are left.
    pub(super) fn left(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Repeats the next step; gives the first number that is not the same.
    pub(super) fn step(
        &mut self,
        trainer: &mut Trainer,
        tell: &mut Tell<'_>,
    ) -> Result<Option<Difference>, Diagnostics> {
        let step = trainer.step;
        // A row that was damaged is missing: its step is repeated and compared with nothing.
        let is_next = self.rows.front().is_some_and(|row| row["step"] == step);
        let recorded = is_next.then(|| self.rows.pop_front()).flatten();
        if let Some(recipe) = self.switches.remove(&step) {
            trainer.live.publish(recipe)?;
        }
        let has = |field| recorded.as_ref().is_some_and(|row| !row[field].is_null());
        if has("initial_evaluation") {
            trainer.initial = Some(trainer.evaluate(tell)?);
        }
        let repeated = trainer.train(has("evaluation"), tell)?.to_json();
        Ok(recorded.and_then(|row| difference(step, &row, &repeated)))
    }
}

/// The first number of a repetition that is not the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The first step with such a number, from 0.
    pub step: u64,
    /// The field, such as `evaluation/pass@1`.
    pub field: String,
    /// The run's own value; `None` if it has no such field.
    pub recorded: Option<Value>,
    /// The value that came out now.
    pub repeated: Option<Value>,
}

/// A run that is being repeated. Its folder is only read.
pub struct Replay {
    steps: Steps,
    note: Option<String>,
}

enum Steps {
    /// All that a run did.
    OfRun(Box<Trainer>, RecordedSteps),
    /// The recipe's part of another trainer's steps, on the batches that were kept.
    OfTrainer(RunFolder, Host, Vec<Value>),
}

impl Replay {
    /// Opens a run to repeat it, with kernels or without: the run's numbers are the same.
    pub fn open(folder: &Path, native: Mode) -> Result<Replay, Diagnostics> {
        let run = RunFolder::read(folder);
        let mut config = run.config()?;
        config.native = native;
        let log = run.log()?;
        let (recipe, _) = log.start(folder)?;
        let mut rows = run.rows()?;
        let host = config.host();
        if config.is_recorded() {
            let run = RunFolder::open(folder)?;
            // A process that was killed may have left a batch without its state, or a row without them.
            let is_kept = |step| run.at(step).is_ok() && STATES.path(folder, step).is_file();
            rows.retain(|row| step_of(row).is_some_and(is_kept));
            let steps = Steps::OfTrainer(run, host, rows);
            return Ok(Replay { steps, note: None });
        }
        let recipe = recipe.load(folder, &host)?;
        let live = LiveRecipe::without_file(&host, recipe, config.live_options())?;
        let steps = RecordedSteps::new(&run, &log, &host, 0, rows)?;
        let trainer = Trainer::new(config, live, run.loss(&host)?)?;
        Ok(Replay {
            note: log.other_platform(&trainer.platform()),
            steps: Steps::OfRun(Box::new(trainer), steps),
        })
    }

    /// Why numbers may differ, if that is known beforehand: it is not the machine that the run was recorded on.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// How many steps are repeated: those that the run has done, or of a trainer's run those whose batches it has kept.
    pub fn steps(&self) -> u64 {
        match &self.steps {
            Steps::OfRun(_, steps) => steps.left(),
            Steps::OfTrainer(.., rows) => rows.len() as u64,
        }
    }

    /// Repeats all steps, up to the first number that differs; `None` if all of them are the same, bit for bit.
    pub fn go(
        self,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<Difference>, Diagnostics> {
        let (mut trainer, mut steps) = match self.steps {
            Steps::OfRun(trainer, steps) => (trainer, steps),
            Steps::OfTrainer(run, host, rows) => {
                let mut rows = rows.iter();
                let difference = rows.find_map(|row| recompute(&run, &host, row).transpose());
                return difference.transpose();
            }
        };
        let tell = &mut |event: Event<'_>| {
            observer(&event);
            Ok(())
        };
        trainer.fine_tune(&AtomicBool::new(false), tell)?;
        while steps.left() > 0 {
            if let Some(difference) = steps.step(&mut trainer, tell)? {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }
}

/// Computes a trainer's step again, by its version from the state that it began with; gives the first number that is not
/// the same.
fn recompute(
    run: &RunFolder,
    host: &Host,
    recorded: &Value,
) -> Result<Option<Difference>, Diagnostics> {
    let step = step_of(recorded).unwrap_or_default();
    let lost = |what| {
        damaged(
            run.folder(),
            format!("it has not kept the {what} of step {step}"),
        )
    };
    let version = recorded["version"].as_str().unwrap_or_default();
    let recipe = run.recipe_named(host, version)?;
    let recipe = recipe.ok_or_else(|| lost("version"))?;
    let mut state = run.state_at(step)?.ok_or_else(|| lost("state"))?;
    let batch = read(run.at(step)?, &ReadOptions::default())?.batch;
    let outcome = recipe.advantage(&batch, &mut state)?;
    let repeated = record::row(step, &recipe, &batch, &outcome);
    Ok(difference(step, recorded, &repeated))
}

/// The first field that is not the same in both rows, except for times and memory.
fn difference(step: u64, recorded: &Value, repeated: &Value) -> Option<Difference> {
    let (recorded, repeated) = (flatten(recorded), flatten(repeated));
    // Bit for bit, which only texts tell: 0 is not -0.
    let shown = |value: Option<&Value>| value.map(Value::to_string);
    let differs = |name: &&String| shown(recorded.get(*name)) != shown(repeated.get(*name));
    let is_of_machine = |name: &&String| name.starts_with("ms/") || *name == "device_memory";
    let mut names = recorded.keys().chain(repeated.keys());
    let field = names.find(|name| !is_of_machine(name) && differs(name))?;
    Some(Difference {
        step,
        field: field.clone(),
        recorded: recorded.get(field).cloned(),
        repeated: repeated.get(field).cloned(),
    })
}
