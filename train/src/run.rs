//! A run with its folder: begun, stopped, and resumed to the very same numbers.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::config::{COSINE, Config};
use super::event::{Event, LogEntry, Tell};
use super::folder::{
    Checkpoint, LockedFolder, METRICS, RELOADS, RunFolder, RunLog, RunWriter, VersionState,
    make_empty, set_damaged_aside, step_after, step_of,
};
use super::replay::RecordedSteps;
use super::trainer::Trainer;
use super::{policy, task};
use advlab::check::flipped_loss;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::counted;
use advlab::live::{LiveOptions, LiveRecipe};
use advlab::native::Mode;
use advlab::script::{Recipe, State, Version};

/// A run and its folder.
pub struct Run {
    trainer: Trainer,
    writer: RunWriter,
    /// Steps that were done after the checkpoint that the run goes on from: they are recorded already.
    recorded: Option<RecordedSteps>,
    /// The step of the newest checkpoint.
    saved: Option<u64>,
    notes: Vec<String>,
}

/// How a run came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It did all its steps.
    Finished,
    /// It was stopped before this step, and can be resumed.
    Stopped(u64),
}

impl Run {
    /// Begins a run in a folder of its own.
    pub fn create(config: Config) -> Result<Run, Diagnostics> {
        config.check()?;
        let mut trainer = first(config)?;
        trainer.dry_run()?;
        let folder = LockedFolder::create(&mut trainer.config)?;
        Run::begin(folder, trainer, 0)
    }

    /// A run whose folder has so many rows.
    fn begin(folder: LockedFolder, trainer: Trainer, rows: u64) -> Result<Run, Diagnostics> {
        Ok(Run {
            writer: RunWriter::open(folder, &trainer.config, rows)?,
            trainer,
            recorded: None,
            saved: None,
            notes: Vec::new(),
        })
    }

    /// Goes on with a run from its newest checkpoint: to the same numbers, bit for bit, as if it had never stopped, with
    /// kernels or without. Steps that were done after it are repeated by the versions that they had; then the recipe's file
    /// is followed. `steps` changes the number of all its steps.
    pub fn resume(path: &Path, steps: Option<u64>, native: Mode) -> Result<Run, Diagnostics> {
        let (folder, mut config) = LockedFolder::open(path)?;
        config.native = native;
        let is_extended = steps.is_some_and(|steps| steps != config.steps);
        if is_extended && config.lr_schedule == COSINE {
            let end = config.steps;
            let message = format!("the run's learning rate falls to 0 at step {end}");
            let help = "with `lr_schedule = \"cosine\"` a run has the steps that it began with";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        config.steps = steps.unwrap_or(config.steps);
        config.check()?;
        let run = RunFolder::read(path);
        let mut metrics = run.rows().map_err(|mut error| {
            let help = "repair it, or `advlab train --resume RUN --force` moves such lines to a file beside it and goes on";
            error.first_mut().help = Some(help.to_string());
            error
        })?;
        let rows = step_after(0, &metrics);
        let (checkpoint, mut notes) = Checkpoint::newest(path, rows)?;
        let Some(checkpoint) = checkpoint else {
            // It was stopped before it did anything, and begins anew with what the recipe's file has now.
            if rows == 0 && notes.is_empty() {
                // The file may not be there.
                let _ = fs::remove_file(path.join(RELOADS));
                return Run::begin(folder, first(config)?, 0);
            }
            return Err(no_checkpoint(path, notes));
        };
        let step = checkpoint.step;
        if step >= config.steps || rows > config.steps {
            let (path, more) = (path.display(), rows * 2);
            let problem = Diagnostic::error(format!("{path} has done {rows} steps already"));
            let help = format!("`advlab train --resume {path} --steps {more}` goes on");
            return Err(problem.with_help(help).into());
        }
        let log = run.log()?;
        let is_before = |row: &Value| step_of(row).unwrap_or(0) < step;
        let later = metrics.split_off(metrics.partition_point(is_before));
        let (trainer, recorded, note) = restored(&run, &log, &config, &checkpoint, later)?;
        notes.extend(note);
        if recorded.is_some() {
            let last = rows - 1;
            notes.push(format!(
                "steps {step} to {last} came after the checkpoint: they are done again, as they were"
            ));
        }
        notes.extend(log.other_platform(&trainer.platform()));
        checkpoint.set_later_aside(path)?;
        if is_extended {
            folder.write_config(&config)?;
        }
        Ok(Run {
            saved: Some(step),
            notes,
            recorded,
            ..Run::begin(folder, trainer, rows)?
        })
    }

    /// Moves the damaged lines of a run's `metrics.jsonl` to a file beside it, `metrics.damaged`, so that it can be resumed; says
    /// what was moved.
    pub fn set_damaged_aside(path: &Path) -> Result<Option<String>, Diagnostics> {
        let (_held, _) = LockedFolder::open(path)?;
        RunFolder::read(path).log()?;
        let moved = set_damaged_aside(&path.join(METRICS))?;
        Ok(moved.map(|(aside, lines)| {
            let (lines, aside) = (counted(lines, "damaged line"), aside.display());
            format!("{lines} of {METRICS} moved to {aside}")
        }))
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.writer.folder.path
    }

    /// The run's configuration.
    pub fn config(&self) -> &Config {
        &self.trainer.config
    }

    /// The version of the recipe that the run goes on with.
    pub fn recipe(&self) -> &Recipe {
        self.trainer.live.in_use().recipe()
    }

    /// The step that comes next, from 0.
    pub fn step(&self) -> u64 {
        self.trainer.step
    }

    /// The step of the newest checkpoint, from which a resumed run goes on.
    pub fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// What to know of how the run was resumed, such as which checkpoints could not be used.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The findings of the lint in the recipe that the run goes on with, and a loss that leads away from the advantage.
    pub fn warnings(&self) -> Vec<Diagnostic> {
        let flipped = flipped_loss(self.trainer.learner.loss_of(self.recipe()));
        let warnings = self.recipe().warnings().iter().cloned();
        warnings.chain(flipped).collect()
    }

    /// Does the steps that are left, or those until `stop` is set: the step that is under way is finished then, and the
    /// policy evaluated.
    pub fn go(
        &mut self,
        stop: &AtomicBool,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Ending, Diagnostics> {
        let first = self.step();
        let is_stopped = || stop.load(Ordering::Relaxed);
        self.log_start(observer)?;
        if self.saved.is_none() {
            let is_tuned =
                self.with_events(observer, |trainer, tell| trainer.fine_tune(stop, tell))?;
            if !is_tuned {
                return Ok(Ending::Stopped(first));
            }
            self.checkpoint()?;
        }
        if first == 0 && self.recorded.is_none() && !is_stopped() {
            self.trainer.initial = Some(self.with_events(observer, Trainer::evaluate)?);
        }
        let mut is_evaluated = true;
        while self.step() < self.config().steps {
            if is_stopped() {
                self.checkpoint()?;
                if !is_evaluated {
                    self.with_events(observer, Trainer::evaluate)?;
                }
                return Ok(Ending::Stopped(self.step()));
            }
            is_evaluated = self.config().is_evaluated(self.step());
            self.train(is_evaluated, observer)?;
            if self.step().is_multiple_of(self.config().checkpoint_every) {
                self.checkpoint()?;
            }
        }
        self.checkpoint()?;
        Ok(Ending::Finished)
    }

    /// Logs the versions that a new run begins with, or where a run goes on.
    fn log_start(&mut self, observer: &mut dyn FnMut(&Event<'_>)) -> Result<(), Diagnostics> {
        let platform = self.trainer.platform();
        let entry = if self.writer.is_new() {
            let loss = &self.trainer.learner.loss;
            LogEntry::start(self.recipe(), Some(loss), platform)
        } else if !platform.is_empty() {
            LogEntry::resume(self.step(), platform)
        } else {
            return Ok(());
        };
        self.with_events(observer, |_, tell| tell(Event::Log(Box::new(entry))))
    }

    /// The next step. One that is repeated is in the folder already, and only the observer is told of it.
    fn train(
        &mut self,
        is_evaluated: bool,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), Diagnostics> {
        let Some(recorded) = &mut self.recorded else {
            let train =
                |trainer: &mut Trainer, tell: &mut Tell<'_>| trainer.train(is_evaluated, tell);
            return self.with_events(observer, train).map(drop);
        };
        recorded.step(&mut self.trainer, &mut |event| {
            observer(&event);
            Ok(())
        })?;
        if recorded.left() == 0 {
            self.recorded = None;
            self.trainer.live.follow(&self.trainer.config.recipe)?;
        }
        Ok(())
    }

    /// Lets the trainer act and tell its events: first to the writer, so that what the observer hears of is in the folder.
    fn with_events<R>(
        &mut self,
        observer: &mut dyn FnMut(&Event<'_>),
        act: impl FnOnce(&mut Trainer, &mut Tell<'_>) -> Result<R, Diagnostics>,
    ) -> Result<R, Diagnostics> {
        let writer = &mut self.writer;
        act(&mut self.trainer, &mut |mut event| {
            writer.tell(&mut event)?;
            observer(&event);
            Ok(())
        })
    }

    /// Writes a checkpoint, unless the newest one is of this step.
    fn checkpoint(&mut self) -> Result<(), Diagnostics> {
        let step = self.step();
        if self.saved == Some(step) {
            return Ok(());
        }
        self.writer.sync()?;
        let keep = self.config().keep_checkpoints;
        let (checkpoint, run) = (self.trainer.checkpoint(), &self.writer.folder.path);
        checkpoint.write(run, &mut *self.trainer.learner.policy, keep)?;
        self.saved = Some(step);
        Ok(())
    }
}

fn no_checkpoint(run: &Path, notes: Vec<String>) -> Diagnostics {
    let message = format!("{} has no checkpoint that can be used", run.display());
    let mut problem = Diagnostic::error(message);
    problem.notes = notes;
    problem.into()
}

/// The trainer as it was at a checkpoint, the steps that were done after it, which have these rows, and a note about the
/// recipe's file.
fn restored(
    run: &RunFolder,
    log: &RunLog,
    config: &Config,
    checkpoint: &Checkpoint,
    rows: Vec<Value>,
) -> Result<(Trainer, Option<RecordedSteps>, Option<String>), Diagnostics> {
    let host = config.host();
    let rejected = log.rejected_before(step_after(checkpoint.step, &rows));
    let (_, reading) = host.load_reading(&config.recipe);
    let in_file = reading.version.as_ref().map(Version::as_str);
    let in_file = in_file.filter(|version| *version != checkpoint.recipe.version.version);
    let is_rejected = in_file.is_some_and(|version| rejected.iter().any(|old| old == version));
    let note = is_rejected.then(|| {
        let file = &config.recipe;
        format!("{file} holds a version that was rejected before: save it again to have it tried")
    });
    let load = |left: &VersionState| {
        let recipe = left.version.load(run.folder(), &host)?;
        Ok((recipe, State::from_json(&left.state)?))
    };
    let left = checkpoint.fallback.iter().chain([&checkpoint.recipe]);
    let options = LiveOptions {
        left: left.map(load).collect::<Result<_, Diagnostics>>()?,
        rejected,
        ..config.live_options()
    };
    let recipe = checkpoint.recipe.version.load(run.folder(), &host)?;
    let mut live = LiveRecipe::without_file(&host, recipe, options)?;
    let mut recorded = None;
    if rows.is_empty() {
        live.follow(&config.recipe)?;
    } else {
        recorded = Some(RecordedSteps::new(run, log, &host, checkpoint.step, rows)?);
    }
    let mut trainer = Trainer::new(config.clone(), live, run.loss(&host)?)?;
    trainer.learner.policy.load(&checkpoint.folder)?;
    trainer.learner.loss_state = State::from_json(&checkpoint.loss_state)?;
    trainer.step = checkpoint.step;
    Ok((trainer, recorded, note))
}

/// The trainer of a run before its first step.
fn first(config: Config) -> Result<Trainer, Diagnostics> {
    let host = config.host();
    let loss = config.set_loss(host.load(&config.loss_recipe)?)?;
    let live = LiveRecipe::watch(&host, &config.recipe, config.live_options())?;
    Trainer::new(config, live, loss)
}

/// Writes the model of a run's newest usable checkpoint to a folder that transformers (Python) opens. Gives the steps that it
/// has learned, and what is wrong with newer checkpoints.
pub fn export(run: &Path, folder: &Path) -> Result<(u64, Vec<String>), Diagnostics> {
    let mut config = RunFolder::read(run).config()?;
    // Nothing is computed here, wherever the run was.
    config.transformer.device = "cpu".to_string();
    let (checkpoint, notes) = Checkpoint::newest(run, u64::MAX)?;
    let Some(checkpoint) = checkpoint else {
        return Err(no_checkpoint(run, notes));
    };
    let mut policy = policy::of_config(&config, &*task::of_config(&config)?)?;
    policy.load(&checkpoint.folder)?;
    let was_there = folder.exists();
    let folder = make_empty(folder)?;
    policy.export(&folder).inspect_err(|_| {
        // It was empty; what cannot be removed is in the way of another try, which says so.
        let _ = fs::remove_dir_all(&folder);
        if was_there {
            let _ = fs::create_dir(&folder);
        }
    })?;
    Ok((checkpoint.step, notes))
}
