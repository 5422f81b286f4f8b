//! The one writer of a run's folder.

use std::path::Path;

use serde_json::Value;

use super::log::{LogEvent, LogLine, MIGRATE, STEP};
use super::tensorboard::EventFile;
use super::{
    BATCHES, FAILED, Journal, KeptVersion, LockedFolder, METRICS, NATIVE, RELOADS, STATES,
    StepFiles, make_folder, remove, step_of,
};
use crate::config::Config;
use crate::error::io;
use crate::event::Event;
use crate::row::flatten;
use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::files::Replacement;
use advlab::live::LiveEvent;
use advlab::script::{Recipe, State, Version};

/// Batches of failures that are kept, and as many of kernels that gave other bits.
const EVIDENCE: usize = 20;

/// The files of a run's folder that grow with it.
#[derive(Debug)]
pub(crate) struct RunWriter {
    pub(crate) folder: LockedFolder,
    metrics: Journal,
    log: Journal,
    events: Option<EventFile>,
    batch_every: u64,
    keep_batches: usize,
    /// Versions that were kept since the last checkpoint.
    kept: Vec<KeptVersion>,
    /// Whether a batch could not be kept; and the warning of the first one, until it is taken.
    has_lost: bool,
    warning: Option<String>,
}

impl RunWriter {
    /// Opens the files, and cuts off all that they have of `step` and later ones.
    pub(crate) fn open(
        folder: LockedFolder,
        config: &Config,
        step: u64,
    ) -> Result<RunWriter, Diagnostics> {
        make_folder(&folder.path.join(BATCHES.folder))?;
        let events = config
            .tensorboard
            .then(|| EventFile::create(&folder.path, step));
        let (metrics, log) = journals(&folder.path, step)?;
        Ok(RunWriter {
            metrics,
            log,
            folder,
            events: events.transpose()?,
            batch_every: config.batch_every,
            keep_batches: config.keep_batches,
            kept: Vec::new(),
            has_lost: false,
            warning: None,
        })
    }

    /// Cuts off all that the journals have of `step` and later ones, and removes their batches: beside those, a new one of an
    /// earlier step would be the oldest, and go first.
    pub(crate) fn cut(&mut self, step: u64) -> Result<(), Diagnostics> {
        let run = &self.folder.path;
        for kind in [BATCHES, STATES, FAILED, NATIVE] {
            let later = kind.all(run)?.into_iter().filter(|(own, _)| *own >= step);
            for (_, path) in later {
                remove(&path).map_err(io("remove", &path))?;
            }
        }
        (self.metrics, self.log) = journals(&self.folder.path, step)?;
        Ok(())
    }

    /// After this, what was written survives a crash of the machine; a checkpoint relies on it.
    pub(crate) fn sync(&mut self) -> Result<(), Diagnostics> {
        for version in self.kept.drain(..) {
            version.sync(&self.folder.path)?;
        }
        self.metrics.sync()?;
        self.log.sync()
    }

    /// Keeps a version; the next checkpoint syncs it: a step must not wait for the disk.
    fn keep(&mut self, recipe: &Recipe) -> Result<KeptVersion, Diagnostics> {
        let kept = KeptVersion::keep(&self.folder.path, recipe)?;
        self.kept.push(kept.clone());
        Ok(kept)
    }

    /// Writes the row of a step, and its batch if it is one to keep: with the state that the step began with, if the run has no
    /// checkpoints for it.
    pub(crate) fn step(
        &mut self,
        step: u64,
        row: &Value,
        batch: &Batch,
        before: Option<&State>,
    ) -> Result<(), Diagnostics> {
        self.metrics.append(row)?;
        if let Some(events) = &mut self.events {
            let fields = flatten(row);
            let fields = fields.iter().filter(|(name, _)| *name != "step");
            let numbers = fields.filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)));
            events.scalars(step, numbers)?;
        }
        if self.batch_every == 0 || !step.is_multiple_of(self.batch_every) {
            return Ok(());
        }
        // A run does not end for want of a batch to look at.
        match self.keep_batch(step, batch, before) {
            Err(error) if !std::mem::replace(&mut self.has_lost, true) => {
                let message = format!("batches are not kept: {}", one_line(&error));
                self.warning = Some(message.clone());
                let event = LogEvent::Warning { message };
                self.log.append(&LogLine { step, event })
            }
            _ => Ok(()),
        }
    }

    fn keep_batch(
        &self,
        step: u64,
        batch: &Batch,
        before: Option<&State>,
    ) -> Result<(), Diagnostics> {
        let run = &self.folder.path;
        if let Some(state) = before {
            let text = state.to_json().to_string();
            Replacement::write(&STATES.path(run, step), text.as_bytes())?;
            STATES.remove_old(run, self.keep_batches)?;
        }
        batch.write_safetensors(BATCHES.path(run, step))?;
        BATCHES.remove_old(run, self.keep_batches)
    }

    /// What went wrong with the folder and did not end the run, once.
    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Keeps the batch that shows a failure: gives its path, or why it could not be kept.
    fn keep_evidence(
        &self,
        kind: &StepFiles,
        step: u64,
        version: &Version,
        batch: Option<&Batch>,
    ) -> (Option<String>, Option<String>) {
        let Some(batch) = batch else {
            return (None, None);
        };
        let name = kind.name(step, version.short());
        let run = &self.folder.path;
        // A run does not end for want of this evidence, nor does the evidence fill the disk.
        let written = batch.write_safetensors(run.join(&name));
        match written.and_then(|_| kind.remove_old(run, EVIDENCE)) {
            Ok(()) => (Some(name), None),
            Err(error) => (None, Some(error.to_string())),
        }
    }

    /// Writes what an event says to the log, or the row of a step.
    pub(crate) fn tell(&mut self, event: &Event<'_>) -> Result<(), Diagnostics> {
        let (step, event) = match *event {
            Event::Step { row, batch } => return self.step(row.step, &row.to_json(), batch, None),
            Event::Started { step, platform, .. } if !self.log.is_empty() => {
                if platform.is_empty() {
                    return Ok(());
                }
                let platform = platform.clone();
                (step, LogEvent::Resume { platform })
            }
            Event::Started {
                recipe,
                loss_recipe,
                platform,
                ..
            } => {
                let recipe = self.keep(recipe)?;
                let loss = loss_recipe.map(|loss| self.keep(loss)).transpose()?;
                let loss = loss.map(|kept| (kept.script, kept.version));
                let (loss_script, loss_version) = loss.unzip();
                let start = LogEvent::Start {
                    recipe,
                    loss_script,
                    loss_version,
                    platform: platform.clone(),
                };
                (0, start)
            }
            Event::Live { step, event } => match of_file(event) {
                Some(event) => (step, event),
                None => return Ok(()),
            },
            Event::Switched {
                step,
                recipe,
                change,
            } => {
                let switch = LogEvent::Use {
                    recipe: self.keep(recipe)?,
                    from: change.from.as_str().to_string(),
                    lines_added: change.lines_added(),
                    lines_removed: change.lines_removed(),
                    checked_in_ms: change.checked_in.as_secs_f64() * 1e3,
                    ready_after_ms: change.ready_after.as_secs_f64() * 1e3,
                };
                (step, switch)
            }
            Event::Failed {
                step,
                recipe,
                error,
                batch,
                back_to,
            } => {
                let hook = if batch.is_some() { STEP } else { MIGRATE };
                let (kept, not_kept) = self.keep_evidence(&FAILED, step, recipe.version(), batch);
                let failed = LogEvent::Failed {
                    hook: hook.to_string(),
                    recipe: self.keep(recipe)?,
                    error: one_line(error),
                    back_to: back_to.map(|recipe| recipe.version().as_str().to_string()),
                    batch: kept,
                    batch_not_kept: not_kept,
                };
                (step, failed)
            }
            Event::Native { step, change } => {
                let on = change.disagrees_on.as_ref();
                let (batch, batch_not_kept) =
                    self.keep_evidence(&NATIVE, step, &change.version, on);
                let native = LogEvent::Native {
                    version: change.version.as_str().to_string(),
                    hook: change.hook.to_string(),
                    agrees: on.is_none(),
                    script_ms: change.script.as_secs_f64() * 1e3,
                    native_ms: change.kernel.as_secs_f64() * 1e3,
                    batch,
                    batch_not_kept,
                };
                (step, native)
            }
            Event::Warned { step, message } => {
                let message = message.to_string();
                (step, LogEvent::Warning { message })
            }
            Event::FineTuned { .. } | Event::Printed { .. } | Event::Evaluated { .. } => {
                return Ok(());
            }
        };
        self.log.append(&LogLine { step, event })
    }
}

/// The journals of metrics and of the log, without what they have of `step` and later ones.
fn journals(run: &Path, step: u64) -> Result<(Journal, Journal), Diagnostics> {
    let is_before = |line: &Value| step_of(line).is_some_and(|own| own < step);
    let metrics = Journal::open(&run.join(METRICS), is_before)?;
    let log = Journal::open(&run.join(RELOADS), |line| {
        is_before(line) || matches!(LogLine::of(line).event, LogEvent::Start { .. })
    })?;
    Ok((metrics, log))
}

/// The line of a change of the recipe's file; none if it is told as a switch or a failure of its step.
fn of_file(event: &LiveEvent) -> Option<LogEvent> {
    let text = |version: &Version| version.as_str().to_string();
    Some(match event {
        LiveEvent::Rejected {
            version,
            error,
            still_using,
            at_step: false,
        } => LogEvent::Rejected {
            version: text(version),
            error: one_line(error),
            still_using: text(still_using),
        },
        LiveEvent::Missing { why, .. } => LogEvent::Missing {
            why: why.to_string(),
        },
        LiveEvent::Reverted { version } => LogEvent::Reverted {
            version: text(version),
        },
        LiveEvent::Warned { version, warnings } => LogEvent::Warned {
            version: text(version),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        },
        LiveEvent::PollingOnly { why } => LogEvent::Polling {
            why: why.to_string(),
        },
        LiveEvent::Published(_) | LiveEvent::Rejected { .. } => return None,
    })
}

fn one_line(error: &Diagnostics) -> String {
    error.to_string().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_failed_batches_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            out: folder.path().join("run").display().to_string(),
            tensorboard: false,
            ..Config::default()
        };
        let run = LockedFolder::create(&mut config).unwrap();
        let mut writer = RunWriter::open(run, &config, 0).unwrap();
        let batch = Batch::builder().groups([0, 0]);
        let batch = batch.response("reward", vec![1.0, 0.0]).build().unwrap();
        let recipe = config.host().load("grpo").unwrap();
        let error = Diagnostics::from(advlab::diagnostic::Diagnostic::error("worn out"));
        let fail = |step| Event::Failed {
            step,
            recipe: &recipe,
            error: &error,
            batch: Some(&batch),
            back_to: None,
        };
        for step in 0..30 {
            writer.tell(&fail(step)).unwrap();
        }
        let run = writer.folder.path.clone();
        let steps = |kind: StepFiles| {
            let all = kind.all(&run).unwrap().into_iter();
            all.map(|(step, _)| step).collect::<Vec<_>>()
        };
        assert_eq!(steps(FAILED), (10..30).collect::<Vec<_>>());
        // After it has gone back, the batch of the new step 5 is the newest.
        for kind in [NATIVE, FAILED] {
            std::fs::write(run.join(kind.name(4, "4f8ad7")), "").unwrap();
            std::fs::write(run.join(kind.name(5, "4f8ad7")), "").unwrap();
        }
        writer.cut(5).unwrap();
        writer.tell(&fail(5)).unwrap();
        assert_eq!((steps(FAILED), steps(NATIVE)), (vec![4, 5], vec![4]));
    }
}
