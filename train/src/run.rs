//! A run with its folder: it can be begun, stopped, resumed with the same numbers, and repeated.

mod learner;
mod rollout;
mod step;

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::config::{Config, Device, Schedule};
use super::folder::{
    CHECKPOINTS, Checkpoint, KeptVersion, LockedFolder, METRICS, Notice, RELOADS, RunFolder,
    RunKind, RunWriter, VersionState, make_empty, set_damaged_aside, step_after,
};
use super::policy;
use super::row::{Evaluation, Row};
use super::task::{self, Prompt, Task, evaluation_prompts};
use super::warnings::Warnings;
use crate::error::Result;
use advlab::batch::Batch;
use advlab::check::flipped_loss;
use advlab::diagnostic::Diagnostic;
use advlab::live::{LiveOptions, LiveRecipe, Published};
use advlab::native::Mode;
use advlab::script::{Recipe, SourceFiles, State, Version};
use learner::Learner;
use rollout::Sampled;

/// A run and its folder.
pub struct Run {
    config: Config,
    task: Box<dyn Task>,
    learner: Learner,
    /// The recipe, with its state and the versions to which it can fall back.
    live: LiveRecipe,
    evaluation: Vec<Prompt>,
    /// The number of the next step, counted from 0.
    step: u64,
    /// The data of the next step, if the responses are already sampled.
    sampled: Option<Sampled>,
    /// The evaluation before the first step, until that step's row reports it.
    initial: Option<Evaluation>,
    warnings: Warnings,
    /// The recorded rows of steps that are still to be repeated.
    pub(super) recorded: VecDeque<Row>,
    /// The version with which each repeated step began or tried to begin, if the version changed at that step.
    switches: HashMap<u64, Recipe>,
    /// The writer of the run's folder; `None` if the run is only repeated.
    writer: Option<RunWriter>,
    /// The step of the newest checkpoint.
    saved: Option<u64>,
    notes: Vec<String>,
}

/// An event of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// An update of supervised fine-tuning, before the first training step.
    FineTuned {
        /// The number of the update, counted from 0.
        update: u64,
        /// The number of updates in total.
        of: u64,
    },
    /// A new line of `reloads.jsonl`, such as an event of the recipe's file or a warning about the run's numbers.
    Log(&'a Notice),
    /// The script printed a line.
    Printed { step: u64, line: &'a str },
    /// The policy has been evaluated: before the first step, after a step, or when the run is stopped.
    Evaluated {
        /// The number of steps that were done before the evaluation.
        done: u64,
        /// The numbers of the evaluation. The row of the step also has these numbers, unless the run is being stopped.
        evaluation: &'a Evaluation,
        /// The first prompt of the evaluation set and a response to it, as text for the user.
        example: &'a str,
    },
    /// A step is done.
    Step {
        row: &'a Row,
        /// The batch on which the policy was trained.
        batch: &'a Batch,
    },
}

/// A callback that gets the events of a run.
pub(super) type Observer<'a> = dyn FnMut(&Event<'_>) + 'a;

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run has completed all its steps.
    Finished,
    /// The run was stopped before this step, and can be resumed.
    Stopped(u64),
}

impl Run {
    /// Begins a run in a new folder.
    pub fn create(config: Config) -> Result<Run> {
        config.check()?;
        let mut run = Run::first(config)?;
        run.dry_run()?;
        let folder = LockedFolder::create(&mut run.config, RunKind::Own)?;
        run.written_to(folder, 0)
    }

    /// Returns a run that has not made a step yet. It starts with the current content of the recipe's file.
    fn first(config: Config) -> Result<Run> {
        let host = config.host();
        let loss = config.set_loss(host.load(&config.loss_recipe)?)?;
        let live = LiveRecipe::watch(&host, &config.recipe, config.live_options())?;
        Run::new(config, live, loss)
    }

    /// Returns a run before its first step. Its numbers depend only on the arguments, on the files that `config` names, on the
    /// version that `live` gives at each step, and on the policy's platform.
    fn new(config: Config, live: LiveRecipe, loss: Recipe) -> Result<Run> {
        let task = task::of_config(&config)?;
        Ok(Run {
            learner: Learner {
                policy: policy::of_config(&config, &*task)?,
                loss_state: loss.init()?,
                loss,
            },
            evaluation: evaluation_prompts(&*task, config.eval_prompts),
            config,
            task,
            live,
            step: 0,
            sampled: None,
            initial: None,
            warnings: Warnings::default(),
            recorded: VecDeque::new(),
            switches: HashMap::new(),
            writer: None,
            saved: None,
            notes: Vec::new(),
        })
    }

    /// Makes the run write to a folder that has the rows of the first `rows` steps.
    fn written_to(mut self, folder: LockedFolder, rows: u64) -> Result<Run> {
        self.writer = Some(RunWriter::open(folder, &self.config, rows)?);
        Ok(self)
    }

    /// Resumes a run from its newest checkpoint. Whatever `native` is, the numbers are the same, bit for bit, as those of a run
    /// that was never stopped, on the same platform. Steps after the checkpoint are repeated with the versions that they used;
    /// then the run follows the recipe's file. `steps`, if given, changes the total number of steps.
    pub fn resume(path: &Path, steps: Option<u64>, native: Mode) -> Result<Run> {
        let (locked, mut config) = LockedFolder::open(path)?;
        if locked.kind == RunKind::Trainer {
            let message = "a trainer ran these steps; advlab only recorded them";
            let help = "to continue the run, start its trainer, which calls `advlab.watch` with this `folder`";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        config.native = native;
        let begun_with = config.steps;
        let is_extended = change_steps(&mut config, steps)?;
        let folder = RunFolder::read(path);
        let mut rows = folder.rows().map_err(|mut error| {
            let help = "repair the line, or let `advlab train --resume RUN --force` move such lines to another file and continue";
            error.first_mut().help = Some(help.to_string());
            error
        })?;
        folder.check(&rows, begun_with)?;
        let done = step_after(0, &rows);
        if done == 0 && CHECKPOINTS.all(path)?.is_empty() {
            // The run stopped before its first step, so it begins again with the current content of the recipe's file. An error
            // is ignored, because there may be no log.
            let _ = fs::remove_file(path.join(RELOADS));
            return Run::first(config)?.written_to(locked, 0);
        }
        let (checkpoint, notes) = Checkpoint::newest(path, done)?;
        let step = checkpoint.step;
        if step >= config.steps || done > config.steps {
            let (path, more) = (path.display(), done * 2);
            let problem = Diagnostic::error(format!("{path} has done {done} steps already"));
            let help = format!("`advlab train --resume {path} --steps {more}` continues the run");
            return Err(problem.with_help(help).into());
        }
        let later = rows.split_off(rows.partition_point(|row| row.step < step));
        let mut run = Run::restored(&folder, config, Some(&checkpoint), later)?;
        // The warnings about these rows are dropped, because the user has already seen them.
        for row in &rows {
            run.warnings.after(row, &run.config.warnings);
        }
        if run.recorded.is_empty() {
            run.live.follow(&run.config.recipe)?;
        }
        run.notes.splice(..0, notes);
        checkpoint.set_later_aside(path)?;
        if is_extended {
            locked.write_config(&run.config)?;
        }
        run.written_to(locked, done)
    }

    /// Returns the run of a folder in the state of a checkpoint or, without a checkpoint, before its first step. The run follows
    /// no file and writes nothing, and will repeat the steps of `rows` with the versions that these steps used.
    pub(super) fn restored(
        folder: &RunFolder,
        config: Config,
        checkpoint: Option<&Checkpoint>,
        rows: Vec<Row>,
    ) -> Result<Run> {
        let (host, path, log) = (config.host(), folder.folder(), folder.log()?);
        let first = checkpoint.map_or(0, |checkpoint| checkpoint.step);
        let steps = first..step_after(first, &rows);
        let left = |left: &VersionState| {
            let recipe = left.version.load(path, &host)?;
            Ok((recipe, left.state.clone()))
        };
        let versions = checkpoint.into_iter();
        let versions = versions.flat_map(|one| one.fallbacks.iter().chain([&one.recipe]));
        let left: Vec<(Recipe, State)> = versions.map(left).collect::<Result<_>>()?;
        let recipe = match left.last() {
            Some((recipe, _)) => recipe.clone(),
            None => log.start(path)?.load(path, &host)?,
        };
        let rejected = log.rejected_before(steps.end);
        let again = checkpoint.and_then(|one| rejected_note(&config, one, &rejected));
        let options = LiveOptions {
            left,
            rejected,
            ..config.live_options()
        };
        let live = LiveRecipe::without_file(&host, recipe, options)?;
        let switches = log.switches().filter(|(step, _)| steps.contains(step));
        let switches = switches.map(|(step, kept)| Ok((step, kept.load(path, &host)?)));
        let switches = switches.collect::<Result<_>>()?;
        let mut run = Run::new(config, live, folder.loss(&host)?)?;
        (run.switches, run.recorded) = (switches, rows.into());
        run.notes.extend(again);
        if let Some(checkpoint) = checkpoint {
            run.learner.policy.load(&checkpoint.folder)?;
            run.learner.loss_state = checkpoint.loss_state.clone();
            (run.step, run.saved) = (first, Some(first));
            let done = (!steps.is_empty()).then(|| steps.end - 1);
            run.notes.extend(done.map(|last| {
                format!("steps {first} to {last} came after the checkpoint: they are repeated, with the same numbers")
            }));
        }
        let platform = run.learner.policy.platform();
        run.notes.extend(log.other_platform(&platform));
        Ok(run)
    }

    /// Moves damaged lines of a run's `metrics.jsonl` to a file beside it, `metrics.damaged`, so that the run can be resumed.
    /// Returns a note if there were damaged lines.
    pub fn set_damaged_aside(path: &Path) -> Result<Option<String>> {
        let (_held, _) = LockedFolder::open(path)?;
        RunFolder::read(path).log()?;
        set_damaged_aside::<Row>(&path.join(METRICS))
    }

    pub fn folder(&self) -> &Path {
        let writer = self.writer.as_ref();
        writer.map_or(Path::new(""), |writer| &writer.folder.path)
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the version of the recipe with which the run continues.
    pub fn recipe(&self) -> &Recipe {
        self.live.in_use().recipe()
    }

    /// Returns the number of the next step, counted from 0.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the step of the newest checkpoint, from which a resumed run continues.
    pub fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// Returns notes on how the run was resumed, such as the checkpoints that could not be used.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the lint's warnings about the current recipe, and a warning if the loss moves the policy against the advantage.
    pub fn warnings(&self) -> Vec<Diagnostic> {
        let flipped = flipped_loss(self.learner.loss_of(self.recipe()));
        let warnings = self.recipe().warnings().iter().cloned();
        warnings.chain(flipped).collect()
    }

    /// Runs the remaining steps. If `stop` is set, the run finishes the current step, writes a checkpoint, evaluates the policy
    /// unless the step ended with an evaluation, and returns; in supervised fine-tuning, it returns after the current update.
    pub fn go(&mut self, stop: &AtomicBool, observer: &mut Observer<'_>) -> Result<Ending> {
        let is_stopped = || stop.load(Ordering::Relaxed);
        self.log_start(observer)?;
        if self.saved.is_none() {
            if !self.fine_tune(stop, observer)? {
                return Ok(Ending::Stopped(self.step));
            }
            self.checkpoint()?;
        }
        if self.step == 0 && self.recorded.is_empty() && !is_stopped() {
            self.initial = Some(self.evaluate(observer)?);
        }
        let mut is_evaluated = true;
        while self.step < self.config.steps {
            if is_stopped() {
                self.checkpoint()?;
                if !is_evaluated {
                    self.evaluate(observer)?;
                }
                return Ok(Ending::Stopped(self.step));
            }
            let (done, every) = (self.step + 1, self.config.eval_every);
            is_evaluated = done == self.config.steps || every > 0 && done.is_multiple_of(every);
            if self.recorded.is_empty() {
                self.train(is_evaluated, observer)?;
            } else {
                self.repeat(observer)?;
                if self.recorded.is_empty() {
                    self.live.follow(&self.config.recipe)?;
                }
            }
            if self.step.is_multiple_of(self.config.checkpoint_every) {
                self.checkpoint()?;
            }
        }
        self.checkpoint()?;
        Ok(Ending::Finished)
    }

    /// Logs the versions and the platform with which a new run begins, or the platform with which a run is resumed.
    fn log_start(&mut self, observer: &mut Observer<'_>) -> Result<()> {
        let platform = self.learner.policy.platform();
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let (recipe, loss) = (self.live.in_use().recipe(), &self.learner.loss);
        let notice = if writer.is_new() {
            Notice::start(recipe, Some(loss), platform)
        } else if platform.is_empty() {
            return Ok(());
        } else {
            Notice::resume(self.step, platform)
        };
        writer.log(&notice.line, &[recipe, loss], None)?;
        observer(&Event::Log(&notice));
        Ok(())
    }

    /// Returns the folder's writer, or `None` while a step is repeated, because the folder already has the step's row and log
    /// lines.
    fn recorder(&mut self) -> Option<&mut RunWriter> {
        let is_repeated = !self.recorded.is_empty();
        self.writer.as_mut().filter(|_| !is_repeated)
    }

    /// Writes a checkpoint, unless this step already has one.
    fn checkpoint(&mut self) -> Result<()> {
        let step = self.step;
        let Some(writer) = self.writer.as_ref().filter(|_| self.saved != Some(step)) else {
            return Ok(());
        };
        writer.sync()?;
        let left = |(loaded, state): (&Arc<Published>, &State)| VersionState {
            version: KeptVersion::of(loaded.recipe()),
            state: state.clone(),
        };
        let checkpoint = Checkpoint {
            step,
            recipe: left((self.live.in_use(), self.live.state())),
            loss_state: self.learner.loss_state.clone(),
            fallbacks: self.live.fallbacks().map(left).collect(),
            folder: PathBuf::new(),
        };
        let (run, keep) = (&writer.folder.path, self.config.keep_checkpoints);
        checkpoint.write(run, &mut *self.learner.policy, keep)?;
        self.saved = Some(step);
        Ok(())
    }
}

/// Sets a run's number of steps, if `steps` is given; returns whether the number changes.
fn change_steps(config: &mut Config, steps: Option<u64>) -> Result<bool> {
    let is_changed = steps.is_some_and(|steps| steps != config.steps);
    if is_changed && config.lr_schedule == Schedule::Cosine {
        let end = config.steps;
        let message = format!("the run's learning rate falls to 0 at step {end}");
        let help =
            "with `lr_schedule = \"cosine\"` a run keeps the number of steps that it began with";
        return Err(Diagnostic::error(message).with_help(help).into());
    }
    config.steps = steps.unwrap_or(config.steps);
    config.check()?;
    Ok(is_changed)
}

/// Returns a note if the recipe's file still contains a rejected version, because the run does not try that version again.
fn rejected_note(config: &Config, checkpoint: &Checkpoint, rejected: &[String]) -> Option<String> {
    let file = &config.recipe;
    let (_, reading) = config.host().load_files(&SourceFiles::of(file));
    let in_file = reading.version.as_ref().map(Version::as_str)?;
    let is_used = in_file == checkpoint.recipe.version.version;
    (!is_used && rejected.iter().any(|old| old == in_file)).then(|| {
        format!("{file} holds a version that was rejected before: save it again to have it tried")
    })
}

/// Writes the model of a run's newest usable checkpoint to a folder that transformers (Python) can open. Returns the number of
/// training steps of that checkpoint, and the problems with newer checkpoints.
pub fn export(run: &Path, folder: &Path) -> Result<(u64, Vec<String>)> {
    let mut config = RunFolder::read(run).config()?;
    // The CPU suffices, because nothing is computed here.
    config.transformer.device = Device::Cpu;
    let (checkpoint, notes) = Checkpoint::newest(run, u64::MAX)?;
    let mut policy = policy::of_config(&config, &*task::of_config(&config)?)?;
    policy.load(&checkpoint.folder)?;
    let was_there = folder.exists();
    let folder = make_empty(folder)?;
    policy.export(&folder).inspect_err(|_| {
        // The folder was empty before. Errors are ignored, because the next attempt reports a folder that is not empty.
        let _ = fs::remove_dir_all(&folder);
        if was_there {
            let _ = fs::create_dir(&folder);
        }
    })?;
    Ok((checkpoint.step, notes))
}
