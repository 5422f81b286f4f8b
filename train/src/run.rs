//! A run with its folder: begun, stopped, and resumed to the very same numbers.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::Value;

use super::config::Config;
use super::event::Event;
use super::folder::{
    Checkpoint, LockedFolder, METRICS, RunFolder, RunLog, RunWriter, VersionState, empty, remove,
    set_damaged_aside, step_after, step_of,
};
use super::learner::StepFailure;
use super::policy;
use super::replay::RecordedSteps;
use super::row::Evaluation;
use super::task;
use super::trainer::Trainer;
use advlab::check::flipped_loss;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::counted;
use advlab::live::{LiveOptions, LiveRecipe};
use advlab::native::Mode;
use advlab::script::{State, Version};

/// A run and its folder.
pub struct Run {
    trainer: Trainer,
    writer: RunWriter,
    /// Steps that were done after the checkpoint that the run goes on from: they are recorded already.
    recorded: Option<RecordedSteps>,
    /// The step of the newest checkpoint.
    saved: Option<u64>,
    notes: Vec<String>,
    evaluations: Vec<(u64, Evaluation)>,
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
    ///
    /// # Errors
    /// [`Diagnostics`] if the configuration, a recipe or the folder cannot be used. A recipe is tried on the first batch before
    /// the folder is made, so that one which fails leaves none.
    pub fn create(config: Config) -> Result<Run, Diagnostics> {
        config.check()?;
        let mut trainer = first(config)?;
        // What can fail without a folder fails before there is one.
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
            evaluations: Vec::new(),
        })
    }

    /// Goes on with a run from its newest checkpoint: to the same numbers, bit for bit, as if it had never stopped. Steps that
    /// were done after it are repeated by the versions that they had; then the recipe's file is followed. `steps` changes the
    /// number of all its steps.
    ///
    /// # Errors
    /// [`Diagnostics`] if the folder is no run, is being written, has no usable checkpoint, or has done all its steps.
    pub fn resume(path: &Path, steps: Option<u64>) -> Result<Run, Diagnostics> {
        Run::resume_with(path, steps, Mode::Off)
    }

    /// As [`Run::resume`], with kernels; the run's numbers are the same.
    ///
    /// # Errors
    /// As [`Run::resume`].
    pub fn resume_with(path: &Path, steps: Option<u64>, native: Mode) -> Result<Run, Diagnostics> {
        let (folder, mut config) = LockedFolder::open(path)?;
        config.native = native;
        let is_extended = steps.is_some_and(|steps| steps != config.steps);
        if is_extended && config.ends_with_its_steps() {
            let end = config.steps;
            let message = format!("the run's learning rate falls to 0 at step {end}");
            let help = "with `lr_schedule = \"cosine\"` a run has the steps that it began with";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        config.steps = steps.unwrap_or(config.steps);
        config.check()?;
        let run = RunFolder::read(path);
        let mut metrics = run.rows()?;
        let rows = step_after(0, &metrics);
        let (checkpoint, mut notes) = Checkpoint::newest(path, rows)?;
        let Some(checkpoint) = checkpoint else {
            // It was stopped before it did anything, and begins anew with what the recipe's file has now.
            if rows == 0 && notes.is_empty() {
                folder.remove_log()?;
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
            evaluations: evaluations(&metrics),
            recorded,
            ..Run::begin(folder, trainer, rows)?
        })
    }

    /// Moves the damaged lines of a run's `metrics.jsonl` to a file beside it, `metrics.damaged`, so that it can be resumed; says
    /// what was moved.
    ///
    /// # Errors
    /// [`Diagnostics`] if the folder is no run, or is being written, or cannot be written; if a line of `reloads.jsonl` is
    /// damaged, without which the versions of the steps are not known.
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
        let recipe = self.trainer.live.in_use().recipe();
        let flipped = flipped_loss(self.trainer.learner.loss_of(recipe));
        recipe.warnings().iter().cloned().chain(flipped).collect()
    }

    /// The evaluations before the run was resumed, each with the number of steps that were done.
    pub fn evaluations(&self) -> &[(u64, Evaluation)] {
        &self.evaluations
    }

    /// Does the steps that are left, or those until `stop` is set: the step that is under way is finished then, and the
    /// policy evaluated.
    ///
    /// # Errors
    /// [`Diagnostics`]; if a recipe failed with no version to fall back to, a checkpoint of that step is written first.
    pub fn go(
        &mut self,
        stop: &AtomicBool,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Ending, Diagnostics> {
        let (first, every) = (self.step(), self.config().checkpoint_every);
        let is_stopped = || stop.load(Ordering::Relaxed);
        both(&mut self.writer, observer)(&Event::Started {
            step: first,
            recipe: self.trainer.live.in_use().recipe(),
            loss_recipe: Some(&self.trainer.learner.loss),
            platform: &self.trainer.platform(),
        })?;
        if self.saved.is_none() {
            let mut tell = both(&mut self.writer, observer);
            let is_tuned = self.trainer.fine_tune(stop, &mut tell);
            drop(tell);
            if !is_tuned? {
                return Ok(Ending::Stopped(first));
            }
            self.checkpoint(false)?;
        }
        if first == 0 && self.recorded.is_none() && !is_stopped() {
            let tell = &mut both(&mut self.writer, observer);
            self.trainer.initial = Some(self.trainer.evaluate(tell)?);
        }
        let mut is_evaluated = true;
        while self.step() < self.config().steps {
            if is_stopped() {
                self.checkpoint(false)?;
                if !is_evaluated {
                    self.trainer
                        .evaluate(&mut both(&mut self.writer, observer))?;
                }
                return Ok(Ending::Stopped(self.step()));
            }
            is_evaluated = self.config().is_evaluated(self.step());
            match self.train(is_evaluated, observer) {
                Ok(()) => {}
                Err(StepFailure::Version(error)) => {
                    self.checkpoint(true)?;
                    return Err(error);
                }
                Err(StepFailure::Run(error)) => return Err(error),
            }
            if self.step().is_multiple_of(every) {
                self.checkpoint(false)?;
            }
        }
        self.checkpoint(false)?;
        Ok(Ending::Finished)
    }

    /// The next step. One that is repeated is in the folder already, and only the observer is told of it.
    fn train(
        &mut self,
        is_evaluated: bool,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), StepFailure> {
        let Some(recorded) = &mut self.recorded else {
            let tell = &mut both(&mut self.writer, observer);
            return self.trainer.train(is_evaluated, tell).map(drop);
        };
        let difference = recorded.step(&mut self.trainer, &mut |event| {
            observer(event);
            Ok(())
        })?;
        let is_over = recorded.left() == 0;
        if let Some(difference) = difference {
            let message = format!(
                "the step was done again to another `{}`: its row stays as it was",
                difference.field
            );
            let (step, message) = (difference.step, &*message);
            both(&mut self.writer, observer)(&Event::Warned { step, message })?;
        }
        if is_over {
            self.recorded = None;
            self.trainer.live.follow(&self.trainer.config.recipe)?;
        }
        Ok(())
    }

    /// Writes a checkpoint, unless the newest one is of this step: if the step failed, that one is rewritten to say so.
    fn checkpoint(&mut self, is_failed: bool) -> Result<(), Diagnostics> {
        let step = self.step();
        let is_there = self.saved == Some(step);
        if is_there && !is_failed {
            return Ok(());
        }
        self.writer.sync()?;
        let checkpoint = self.trainer.checkpoint(self.folder(), is_failed)?;
        if is_there {
            return checkpoint.rewrite(self.folder());
        }
        let keep = self.config().keep_checkpoints;
        let policy = &mut *self.trainer.learner.policy;
        checkpoint.write(&self.writer.folder.path, policy, keep)?;
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

/// The evaluations that rows report, each with the number of steps that were done.
fn evaluations(rows: &[Value]) -> Vec<(u64, Evaluation)> {
    let of_row = |row: &Value| {
        let step = step_of(row).unwrap_or(0);
        let fields = [(step, "initial_evaluation"), (step + 1, "evaluation")];
        fields.map(|(done, field)| Some((done, Evaluation::deserialize(row.get(field)?).ok()?)))
    };
    rows.iter().flat_map(of_row).flatten().collect()
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
    log.refuse_kernels(&host);
    let rejected = log.rejected_before(step_after(checkpoint.step, &rows));
    let (_, reading) = host.load_reading(&config.recipe);
    let in_file = reading.version.as_ref().map(Version::as_str);
    let is_rejected = in_file.is_some_and(|version| rejected.iter().any(|old| old == version));
    let is_in_use = in_file == Some(&checkpoint.recipe.version.version);
    let note = (is_rejected && !is_in_use).then(|| {
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
    let recorded = match rows.is_empty() {
        true => {
            live.follow(&config.recipe)?;
            None
        }
        false => Some(RecordedSteps::new(run, log, &host, checkpoint.step, rows)?),
    };
    let mut trainer = Trainer::new(config.clone(), live, run.loss(&host)?)?;
    trainer.restore(checkpoint)?;
    if checkpoint.is_failed && recorded.is_none() {
        // The version in use fails at this very step: what the file holds now has to do it.
        let edited = host.load(&config.recipe)?;
        if edited.version() != trainer.live.newest().version() {
            trainer.live.publish(edited)?;
        }
    }
    Ok((trainer, recorded, note))
}

/// The trainer of a run before its first step.
fn first(config: Config) -> Result<Trainer, Diagnostics> {
    let host = config.host();
    let loss = config.set_loss(host.load(&config.loss_recipe)?)?;
    let live = LiveRecipe::watch(&host, &config.recipe, config.live_options())?;
    Trainer::new(config, live, loss)
}

/// The writer is told first: what the observer hears of is in the folder already.
fn both<'a>(
    writer: &'a mut RunWriter,
    observer: &'a mut dyn FnMut(&Event<'_>),
) -> impl FnMut(&Event<'_>) -> Result<(), Diagnostics> + 'a {
    move |event| {
        writer.tell(event)?;
        observer(event);
        if let (Event::Step { row, .. }, Some(message)) = (event, writer.take_warning()) {
            let (step, message) = (row.step, &*message);
            observer(&Event::Warned { step, message });
        }
        Ok(())
    }
}

/// Writes the model of a run's newest usable checkpoint to a folder that transformers (Python) opens. Gives the steps that it
/// has learned, and what is wrong with newer checkpoints.
///
/// # Errors
/// [`Diagnostics`] if the run has no checkpoint that can be used, its policy is not a language model, or the folder is not
/// empty.
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
