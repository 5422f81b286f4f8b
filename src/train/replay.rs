//! Repeats a run: the same versions at the same steps, to the same numbers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::config::TRAINER;
use super::event::Event;
use super::folder::{History, Kept, METRICS, STATES, journal};
use super::record::recompute;
use super::row::flatten;
use super::trainer::Trainer;
use crate::diagnostic::Diagnostics;
use crate::live::LiveRecipe;
use crate::native::Mode;
use crate::script::{Host, Recipe};
use crate::tensor::Executor;

/// A run that is being repeated. Its folder is only read.
pub struct Replay {
    steps: Steps,
    rows: Vec<Value>,
    note: Option<String>,
}

enum Steps {
    /// All that a run did, with the version that a step began with, where that was not the one of the step before.
    Run(Box<Trainer>, HashMap<u64, Recipe>),
    /// The recipe's part of another trainer's steps, on the batches that were kept.
    Kept(Kept, Host),
}

/// The first number of a repetition that is not the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The first step with such a number, from 0.
    pub step: u64,
    /// The field, such as `evaluation/pass@1`.
    pub field: String,
    /// The run's own value; `None` where it has no such field.
    pub recorded: Option<Value>,
    /// The value that came out now.
    pub repeated: Option<Value>,
}

impl Replay {
    /// Opens a run to repeat it.
    ///
    /// # Errors
    /// [`Diagnostics`] where the folder is no run, or a script that it kept is missing or has been edited.
    pub fn open(folder: &Path) -> Result<Replay, Diagnostics> {
        Replay::open_with(folder, Executor::default(), Mode::Off)
    }

    /// As [`Replay::open`], with another executor and with kernels; the run's numbers are the same, but those by libtorch,
    /// which differ in their last digits.
    ///
    /// # Errors
    /// As [`Replay::open`].
    pub fn open_with(
        folder: &Path,
        executor: Executor,
        native: Mode,
    ) -> Result<Replay, Diagnostics> {
        let mut history = History::read(folder)?;
        history.config.executor = executor;
        history.config.native = native;
        let mut rows = journal::read(&folder.join(METRICS))?;
        let host = history.config.host();
        if history.config.task == TRAINER {
            let kept = Kept::open(folder)?;
            // A process that was killed may have left one without the other.
            let is_kept = |row: &Value| {
                let mut steps = kept.batches().iter().map(|(step, _)| *step);
                let step = steps.find(|step| row["step"] == *step);
                step.is_some_and(|step| STATES.path(folder, step).is_file())
            };
            rows.retain(is_kept);
            return Ok(Replay {
                steps: Steps::Kept(kept, host),
                rows,
                note: None,
            });
        }
        let loss = history.loss(&host)?;
        let recipe = history.recipe.load(folder, &host)?;
        let options = history.config.live_options();
        let live = LiveRecipe::without_file(&host, recipe, options)?;
        let switches = history.switches();
        let switches = switches.map(|(step, kept)| Ok((step, kept.load(folder, &host)?)));
        let switches = switches.collect::<Result<_, Diagnostics>>()?;
        let trainer = Trainer::new(history.config.clone(), live, loss)?;
        Ok(Replay {
            note: history.other_platform(&trainer.platform()),
            steps: Steps::Run(Box::new(trainer), switches),
            rows,
        })
    }

    /// What is known beforehand of why numbers may differ: it is not the machine that the run was recorded on.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// How many steps are repeated: those that the run has done, or of a trainer's run those whose batches it has kept.
    pub fn steps(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Does all steps again, up to the first number that differs; `None` where all of them are the same, bit for bit.
    ///
    /// # Errors
    /// [`Diagnostics`] where a step cannot be repeated: a script fails where it had worked.
    pub fn go(
        self,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<Difference>, Diagnostics> {
        let (mut trainer, mut switches) = match self.steps {
            Steps::Run(trainer, switches) => (trainer, switches),
            Steps::Kept(kept, host) => return recompute(&kept, &host, &self.rows),
        };
        let tell = &mut |event: &Event<'_>| {
            observer(event);
            Ok(())
        };
        trainer.fine_tune(&AtomicBool::new(false), tell)?;
        for recorded in &self.rows {
            let step = trainer.step;
            if let Some(recipe) = switches.remove(&step) {
                trainer.live.publish(recipe)?;
            }
            if !recorded["initial_evaluation"].is_null() {
                trainer.initial = Some(trainer.evaluate(tell)?);
            }
            let is_evaluated = !recorded["evaluation"].is_null();
            let repeated = trainer.train(is_evaluated, tell)?.to_json();
            if let Some(difference) = difference(step, recorded, &repeated) {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }
}

/// The first field that is not the same in both rows, but for the times.
pub(super) fn difference(step: u64, recorded: &Value, repeated: &Value) -> Option<Difference> {
    let (recorded, repeated) = (flatten(recorded), flatten(repeated));
    let names = recorded.keys().chain(repeated.keys());
    // Bit for bit, as only strings tell: 0 is not -0.
    let shown = |value: Option<&Value>| value.map(Value::to_string);
    let mut differing =
        names.filter(|name| shown(recorded.get(*name)) != shown(repeated.get(*name)));
    let is_of_machine = |name: &String| name.starts_with("ms/") || name == "device_memory";
    let field = differing.find(|name| !is_of_machine(name))?;
    Some(Difference {
        step,
        field: field.clone(),
        recorded: recorded.get(field).cloned(),
        repeated: repeated.get(field).cloned(),
    })
}
