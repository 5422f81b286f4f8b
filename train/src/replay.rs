//! Repeats a run: the same versions at the same steps, to the same numbers.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::error::{Result, damaged};
use super::event::Event;
use super::folder::{RunFolder, STATES, step_of};
use super::record;
use super::row::flatten;
use super::run::Run;
use advlab::files::{ReadOptions, read};
use advlab::native::Mode;
use advlab::script::Host;

/// The first number of a repetition that is not the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The first step with a differing number, from 0.
    pub step: u64,
    /// The field, such as `evaluation/pass@1`.
    pub field: String,
    /// The run's own value; `None` if it has no such field.
    pub recorded: Option<Value>,
    /// The value that came out now.
    pub repeated: Option<Value>,
}

/// A run that is being repeated. Its folder is not changed.
pub enum Replay {
    /// All that a run did.
    OfRun(Box<Run>),
    /// The recipe's part of the steps of another trainer: its rows, computed again on the saved batches.
    OfTrainer(RunFolder, Box<Host>, Vec<Value>),
}

impl Replay {
    /// Opens a run to repeat it, with kernels or without: the run's numbers are the same.
    pub fn open(folder: &Path, native: Mode) -> Result<Replay> {
        let run = RunFolder::read(folder);
        let mut config = run.config()?;
        config.native = native;
        let log = run.log()?;
        log.start(folder)?;
        let mut rows = run.rows()?;
        if !config.is_recorded() {
            let run = Run::restored(&run, &log, config, None, rows)?;
            return Ok(Replay::OfRun(Box::new(run)));
        }
        let run = RunFolder::open(folder)?;
        // A process that was killed may have left a batch without its state, or a row without either.
        let is_kept = |step| run.at(step).is_ok() && STATES.path(folder, step).is_file();
        rows.retain(|row| step_of(row).is_some_and(is_kept));
        Ok(Replay::OfTrainer(run, Box::new(config.host()), rows))
    }

    /// Why numbers may differ, if that is known beforehand: it is not the machine that the run was recorded on.
    pub fn note(&self) -> Option<&str> {
        match self {
            Replay::OfRun(run) => run.notes().first().map(String::as_str),
            Replay::OfTrainer(..) => None,
        }
    }

    /// The number of steps to repeat: all steps of the run, or, for a trainer's run, the steps with a saved batch.
    pub fn steps(&self) -> u64 {
        let steps = match self {
            Replay::OfRun(run) => run.recorded.len(),
            Replay::OfTrainer(.., rows) => rows.len(),
        };
        steps as u64
    }

    /// Repeats all steps, up to the first number that differs; `None` if all of them are the same, bit for bit.
    pub fn go(self, observer: &mut dyn FnMut(&Event<'_>)) -> Result<Option<Difference>> {
        let mut run = match self {
            Replay::OfRun(run) => run,
            Replay::OfTrainer(run, host, rows) => {
                let mut rows = rows.iter();
                let difference = rows.find_map(|row| recompute(&run, &host, row).transpose());
                return difference.transpose();
            }
        };
        run.fine_tune(&AtomicBool::new(false), observer)?;
        while !run.recorded.is_empty() {
            if let Some(difference) = run.repeat(observer)? {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }
}

/// Computes a trainer's step again, with its version and the state at its start; returns the first number that
/// differs.
fn recompute(run: &RunFolder, host: &Host, recorded: &Value) -> Result<Option<Difference>> {
    let step = step_of(recorded).unwrap_or_default();
    let lost = |what| {
        let message = format!("it has not kept the {what} of step {step}");
        damaged(run.folder(), message)
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
pub(super) fn difference(step: u64, recorded: &Value, repeated: &Value) -> Option<Difference> {
    let (recorded, repeated) = (flatten(recorded), flatten(repeated));
    // Bit for bit, which only texts tell: 0 is not -0.
    let shown = |value: Option<&Value>| value.map(Value::to_string);
    let differs = |name: &&String| shown(recorded.get(*name)) != shown(repeated.get(*name));
    let of_machine = ["time", "device_memory"];
    let is_of_machine = |name: &&String| name.starts_with("ms/") || of_machine.contains(&&***name);
    let mut names = recorded.keys().chain(repeated.keys());
    let field = names.find(|name| !is_of_machine(name) && differs(name))?;
    Some(Difference {
        step,
        field: field.clone(),
        recorded: recorded.get(field).cloned(),
        repeated: repeated.get(field).cloned(),
    })
}
