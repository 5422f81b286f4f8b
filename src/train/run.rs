//! A run with its folder: begun, stopped, and gone on with to the very same numbers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::config::Config;
use super::error::TrainError;
use super::event::{Event, Observer};
use super::folder::{Checkpoint, Folder, METRICS, RELOADS, Recorder, Scripts, Start, journal};
use super::trainer::Trainer;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::live::{LiveOptions, LiveRecipe};
use crate::script::{Hook, Host, Limits, Recipe, Version};

/// A run and its folder.
pub struct Run {
    folder: Folder,
    trainer: Trainer,
    recorder: Recorder,
    /// The step of the newest checkpoint.
    saved: Option<u64>,
    notes: Vec<String>,
    evaluated: Vec<f64>,
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
    /// [`TrainError`] where the configuration, a recipe or the folder is not one to begin with. Where it is the recipe,
    /// no folder is left; it is tried on the first batch for that.
    pub fn create(config: Config) -> Result<Run, TrainError> {
        config.check()?;
        let host = host(&config);
        let loss = loss_recipe(&host, &config)?;
        let live = LiveRecipe::watch(&host, &config.recipe, options(&config)?)?;
        let mut trainer = trainer(config, live, loss)?;
        // What can fail without a folder fails before there is one.
        trainer.dry_run()?;
        let folder = Folder::create(trainer.config_mut())?;
        Run::begin(folder, trainer)
    }

    fn begin(folder: Folder, trainer: Trainer) -> Result<Run, TrainError> {
        Ok(Run {
            recorder: Recorder::open(&folder, trainer.config(), 0)?,
            trainer,
            folder,
            saved: None,
            notes: Vec::new(),
            evaluated: Vec::new(),
        })
    }

    /// Goes on with a run from its newest checkpoint: to the same numbers, bit for bit, as if it had never stopped.
    /// `steps` is how many it has in all, where that is to change.
    ///
    /// # Errors
    /// [`TrainError`] where the folder is no run, is being written, has no checkpoint that can be used, or all its steps
    /// are done.
    pub fn resume(path: &Path, steps: Option<u64>) -> Result<Run, TrainError> {
        let (folder, mut config) = Folder::open(path)?;
        let is_extended = steps.is_some_and(|steps| steps != config.steps);
        config.steps = steps.unwrap_or(config.steps);
        config.check()?;
        let host = host(&config);
        let metrics = journal::read(&folder.file(METRICS))?;
        let rows = metrics.len() as u64;
        let (checkpoint, mut notes) = match Checkpoint::newest(path, rows, &host) {
            Ok(found) => found,
            // It was killed before it did anything.
            Err(TrainError::NoCheckpoint { why, .. }) if rows == 0 && why.is_empty() => {
                let loss = loss_recipe(&host, &config)?;
                let live = LiveRecipe::watch(&host, &config.recipe, options(&config)?)?;
                return Run::begin(folder, trainer(config, live, loss)?);
            }
            Err(error) => return Err(error),
        };
        let step = checkpoint.snapshot.step;
        if step >= config.steps {
            return Err(TrainError::Done {
                folder: path.to_path_buf(),
                steps: step,
            });
        }
        let (trainer, note) = restored(&folder, &host, &config, &checkpoint)?;
        notes.extend(note);
        if is_extended {
            folder.write_config(&config)?;
        }
        let evaluations = metrics[..step as usize].iter();
        Ok(Run {
            recorder: Recorder::open(&folder, &config, step)?,
            trainer,
            folder,
            saved: Some(step),
            notes,
            evaluated: evaluations
                .filter_map(|row| row["evaluation"]["pass@1"].as_f64())
                .collect(),
        })
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the run is set to.
    pub fn config(&self) -> &Config {
        self.trainer.config()
    }

    /// The step that comes next, from 0.
    pub fn step(&self) -> u64 {
        self.trainer.step()
    }

    /// What is worth knowing of how the run was resumed: checkpoints that could not be used.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// pass@1 of the evaluations before the run was resumed.
    pub fn evaluated(&self) -> &[f64] {
        &self.evaluated
    }

    /// Does the steps that are left, or those until `stop` is set: the step that is under way is finished then.
    ///
    /// # Errors
    /// [`TrainError`]; where a recipe failed with no version to fall back to, a checkpoint of that step is written first.
    pub fn go(
        &mut self,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Ending, TrainError> {
        let (steps, every) = (self.config().steps, self.config().checkpoint_every);
        let started = Event::Started {
            step: self.trainer.step(),
            recipe: self.trainer.recipe(),
            loss_recipe: self.trainer.loss_recipe(),
        };
        self.recorder.tell(&started)?;
        observer.tell(&started)?;
        if self.saved.is_none() {
            self.checkpoint(false, observer)?;
        }
        while self.trainer.step() < steps {
            if stop.load(Ordering::Relaxed) {
                self.checkpoint(false, observer)?;
                return Ok(Ending::Stopped(self.trainer.step()));
            }
            let is_evaluated = is_evaluated(self.config(), self.trainer.step());
            let mut both = Both(&mut self.recorder, observer);
            match self.trainer.train(is_evaluated, &mut both) {
                Ok(_) => {}
                Err(TrainError::Script(error)) => {
                    self.saved = None;
                    self.checkpoint(true, observer)?;
                    return Err(error.into());
                }
                Err(error) => return Err(error),
            }
            if self.trainer.step().is_multiple_of(every) {
                self.checkpoint(false, observer)?;
            }
        }
        self.checkpoint(false, observer)?;
        Ok(Ending::Finished)
    }

    fn checkpoint(
        &mut self,
        is_failed: bool,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let step = self.trainer.step();
        if self.saved == Some(step) {
            return Ok(());
        }
        self.recorder.sync()?;
        let checkpoint = Checkpoint {
            snapshot: self.trainer.snapshot(),
            is_failed,
        };
        let path = checkpoint.write(self.folder.path(), self.config().keep_checkpoints)?;
        self.saved = Some(step);
        observer.tell(&Event::Checkpoint { step, path: &path })
    }
}

/// The trainer as it was at a checkpoint, and what is worth knowing of the recipe's file.
fn restored(
    folder: &Folder,
    host: &Host,
    config: &Config,
    checkpoint: &Checkpoint,
) -> Result<(Trainer, Option<String>), TrainError> {
    let path = folder.file(RELOADS);
    let reloads = journal::read(&path)?;
    let Some(start) = Start::of(&reloads) else {
        return Err(TrainError::Damaged {
            path,
            what: "its first line is not the run's start".to_string(),
        });
    };
    let (script, version) = &start.loss;
    let mut loss = Scripts::of(folder.path()).load(host, script, version)?;
    set_loss(&mut loss, config)?;
    let snapshot = &checkpoint.snapshot;
    let rejected = rejected_before(snapshot.step, &reloads);
    let (_, reading) = host.load_reading(&config.recipe);
    let in_file = reading.version().map(Version::as_str);
    let is_rejected = in_file.is_some_and(|version| rejected.iter().any(|old| old == version));
    let is_in_use = in_file == Some(snapshot.recipe.version().as_str());
    let note = (is_rejected && !is_in_use).then(|| {
        format!(
            "{} holds a version that was rejected before: save it again to have it tried",
            config.recipe
        )
    });
    let options = options(config)?
        .start(snapshot.recipe.clone())
        .state(snapshot.state.clone())
        .fallbacks(snapshot.fallbacks.clone())
        .rejected(rejected);
    let live = LiveRecipe::watch(host, &config.recipe, options)?;
    let mut trainer = trainer(config.clone(), live, loss)?;
    trainer.restore(snapshot)?;
    if checkpoint.is_failed {
        // The version in use fails at this very step: what the file holds now has to do it.
        let edited = host.load(&config.recipe)?;
        if edited.version() != snapshot.recipe.version() {
            trainer.live().publish(edited)?;
        }
    }
    Ok((trainer, note))
}

/// The versions that were rejected or failed before a step: a run that was never stopped would not try them again.
fn rejected_before(step: u64, reloads: &[Value]) -> Vec<String> {
    let lines = reloads.iter().filter(|line| {
        let is_before = line["step"].as_u64().is_some_and(|own| own < step);
        is_before && (line["event"] == "rejected" || line["event"] == "failed")
    });
    lines
        .filter_map(|line| line["version"].as_str().map(str::to_string))
        .collect()
}

/// Two that are told, one after the other.
struct Both<'a>(&'a mut Recorder, &'a mut dyn Observer);

impl Observer for Both<'_> {
    fn tell(&mut self, event: &Event<'_>) -> Result<(), TrainError> {
        self.0.tell(event)?;
        self.1.tell(event)
    }
}

/// Whether the policy is evaluated after a step.
pub(super) fn is_evaluated(config: &Config, step: u64) -> bool {
    let next = step + 1;
    next == config.steps || config.eval_every > 0 && next.is_multiple_of(config.eval_every)
}

pub(super) fn host(config: &Config) -> Host {
    Host::new().with_seed(config.seed).with_limits(Limits {
        time: Duration::from_secs(config.hook_deadline_s),
        ..Limits::default()
    })
}

pub(super) fn options(config: &Config) -> Result<LiveOptions, TrainError> {
    let deadline = Duration::from_millis(config.check_deadline_ms);
    let options = LiveOptions::default().deadline(deadline);
    let settings = config.settings()?.into_iter();
    Ok(settings.fold(options, |options, (name, value)| options.set(name, value)))
}

/// The loss for recipes that have none, with the run's parameters.
fn loss_recipe(host: &Host, config: &Config) -> Result<Recipe, TrainError> {
    let mut recipe = host.load(&config.loss_recipe)?;
    set_loss(&mut recipe, config)?;
    Ok(recipe)
}

pub(super) fn set_loss(recipe: &mut Recipe, config: &Config) -> Result<(), TrainError> {
    if !recipe.has(Hook::Loss) {
        let name = recipe.name();
        let error = Diagnostic::error(format!("the loss recipe {name} has no `loss`"));
        let help = "the built-in losses are `ppo_clip` and `policy_gradient`";
        return Err(Diagnostics::from(error.with_help(help)).into());
    }
    for (name, text) in config.loss_settings()? {
        recipe.set_text(&name, &text).map_err(|error| {
            let error = Diagnostic::error(format!("loss_params.{name} = {text}: {error}"));
            Diagnostics::from(error)
        })?;
    }
    Ok(())
}

pub(super) fn trainer(
    config: Config,
    live: LiveRecipe,
    loss: Recipe,
) -> Result<Trainer, TrainError> {
    let task = config.make_task()?;
    let policy = config.make_policy(&task.shape());
    Trainer::new(config, task, policy, live, loss)
}
