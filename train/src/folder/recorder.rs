//! Writes the events of a run into its folder.

use std::path::Path;

use serde_json::{Value, json};

use super::journal::Journal;
use super::numbered::{FAILED, NATIVE, Numbered, remove};
use super::tensorboard::EventFile;
use super::{BATCHES, Folder, KeptVersion, METRICS, RELOADS, STATES, make_folder};
use crate::config::Config;
use crate::error::io;
use crate::event::Event;
use crate::policy::Platform;
use crate::row::flatten;
use advlab::batch::{Batch, Replacement};
use advlab::diagnostic::Diagnostics;
use advlab::live::LiveEvent;
use advlab::native::KernelChange;
use advlab::script::{Recipe, State, Version};

/// Batches of failures that are kept, and as many of kernels that gave other bits.
const EVIDENCE: usize = 20;

/// The files of a run's folder that grow with it.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) folder: Folder,
    metrics: Journal,
    reloads: Journal,
    events: Option<EventFile>,
    batch_every: u64,
    keep_batches: usize,
    /// Versions that were kept since the last checkpoint.
    kept: Vec<KeptVersion>,
    /// Whether a batch could not be kept; and the warning of the first one, until somebody has been told.
    has_lost: bool,
    warning: Option<String>,
}

impl Recorder {
    /// Opens the files, and cuts off all that they have of `step` and later ones.
    pub(crate) fn open(
        folder: Folder,
        config: &Config,
        step: u64,
    ) -> Result<Recorder, Diagnostics> {
        make_folder(&folder.path.join(BATCHES.folder))?;
        let events = config
            .tensorboard
            .then(|| EventFile::create(&folder.path, step));
        let (metrics, reloads) = journals(&folder.path, step)?;
        Ok(Recorder {
            metrics,
            reloads,
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
        (self.metrics, self.reloads) = journals(&self.folder.path, step)?;
        Ok(())
    }

    /// After this, what was written survives a crash of the machine; a checkpoint relies on it.
    pub(crate) fn sync(&mut self) -> Result<(), Diagnostics> {
        for version in self.kept.drain(..) {
            version.sync(&self.folder.path)?;
        }
        self.metrics.sync()?;
        self.reloads.sync()
    }

    /// Keeps a version; the next checkpoint syncs it, as a step must not wait for the disk.
    fn keep(&mut self, recipe: &Recipe) -> Result<KeptVersion, Diagnostics> {
        let kept = KeptVersion::keep(&self.folder.path, recipe)?;
        self.kept.push(kept.clone());
        Ok(kept)
    }

    /// The row of a step, and its batch where it is kept: with the state that the step began with, where that is not in the run's
    /// checkpoints.
    pub(crate) fn step(
        &mut self,
        step: u64,
        line: &Value,
        batch: &Batch,
        before: Option<&State>,
    ) -> Result<(), Diagnostics> {
        self.metrics.append(line)?;
        if let Some(events) = &mut self.events {
            let fields = flatten(line);
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
                let line = json!({ "step": step, "event": "warning", "message": message });
                self.warning = Some(message);
                self.reloads.append(&line)
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

    /// Keeps the batch that a line is of beside those of the steps.
    fn keep_evidence(&self, line: &mut Value, kind: Numbered, version: &Version, batch: &Batch) {
        let step = line["step"].as_u64().unwrap_or(0);
        let name = kind.name(step, version.short());
        let run = &self.folder.path;
        // A run does not end for want of this evidence, nor does the evidence fill the disk.
        let written = batch.write_safetensors(run.join(&name));
        match written.and_then(|_| kind.remove_old(run, EVIDENCE)) {
            Ok(()) => line["batch"] = name.into(),
            Err(error) => line["batch_not_kept"] = error.to_string().into(),
        }
    }

    /// The line of a version that failed at a step, whose batch is kept.
    fn failed(
        &mut self,
        step: u64,
        recipe: &Recipe,
        error: &Diagnostics,
        batch: Option<&Batch>,
        back_to: Option<&Recipe>,
    ) -> Result<Value, Diagnostics> {
        let mut line = json!({
            "step": step,
            "event": "failed",
            "hook": if batch.is_some() { "step" } else { "migrate" },
            "script": self.keep(recipe)?.script,
            "version": recipe.version().as_str(),
            "error": one_line(error),
            "back_to": back_to.map(|recipe| recipe.version().as_str()),
        });
        if let Some(batch) = batch {
            self.keep_evidence(&mut line, FAILED, recipe.version(), batch);
        }
        Ok(line)
    }

    /// The line of a run's start, or of its going on, which has the first line already; none where that says nothing.
    fn started(
        &mut self,
        step: u64,
        recipe: &Recipe,
        loss_recipe: Option<&Recipe>,
        platform: &Platform,
    ) -> Result<Option<Value>, Diagnostics> {
        let mut line = if self.reloads.is_empty() {
            let recipe = self.keep(recipe)?;
            let mut line = json!({
                "step": 0,
                "event": "start",
                "script": recipe.script,
                "version": recipe.version,
            });
            if let Some(loss) = loss_recipe {
                let loss = self.keep(loss)?;
                line["loss_script"] = json!(loss.script);
                line["loss_version"] = json!(loss.version);
            }
            line
        } else if platform.is_empty() {
            return Ok(None);
        } else {
            json!({ "step": step, "event": "resume" })
        };
        if !platform.is_empty() {
            line["platform"] = json!(platform);
        }
        Ok(Some(line))
    }

    /// The line of a hook whose kernel is used from now on, or not any more; with a batch on which it disagrees, that batch is
    /// kept.
    fn native(&self, step: u64, change: &KernelChange) -> Value {
        let mut line = json!({
            "step": step,
            "event": "native",
            "version": change.version.as_str(),
            "hook": change.hook,
            "agrees": change.disagrees_on.is_none(),
            "script_ms": change.script.as_secs_f64() * 1e3,
            "native_ms": change.kernel.as_secs_f64() * 1e3,
        });
        if let Some(batch) = &change.disagrees_on {
            self.keep_evidence(&mut line, NATIVE, &change.version, batch);
        }
        line
    }

    pub(crate) fn tell(&mut self, event: &Event<'_>) -> Result<(), Diagnostics> {
        let line = match *event {
            Event::Started {
                step,
                recipe,
                loss_recipe,
                platform,
            } => match self.started(step, recipe, loss_recipe, platform)? {
                Some(line) => line,
                None => return Ok(()),
            },
            Event::Live { step, event } => match of_file(step, event) {
                Some(line) => line,
                None => return Ok(()),
            },
            Event::Switched {
                step,
                recipe,
                change,
            } => json!({
                "step": step,
                "event": "use",
                "script": self.keep(recipe)?.script,
                "version": change.to.as_str(),
                "from": change.from.as_str(),
                "lines_added": change.lines_added(),
                "lines_removed": change.lines_removed(),
                "checked_in_ms": change.checked_in.as_secs_f64() * 1e3,
                "ready_after_ms": change.ready_after.as_secs_f64() * 1e3,
            }),
            Event::Failed {
                step,
                recipe,
                error,
                batch,
                back_to,
            } => self.failed(step, recipe, error, batch, back_to)?,
            Event::Native { step, change } => self.native(step, change),
            Event::Warned { step, message } => {
                json!({ "step": step, "event": "warning", "message": message })
            }
            Event::Step { row, batch } => return self.step(row.step, &row.to_json(), batch, None),
            Event::FineTuned { .. } | Event::Printed { .. } | Event::Evaluated { .. } => {
                return Ok(());
            }
        };
        self.reloads.append(&line)
    }
}

/// The journals of metrics and of reloads, without what they have of `step` and later ones.
fn journals(run: &Path, step: u64) -> Result<(Journal, Journal), Diagnostics> {
    let is_before = |line: &Value| line["step"].as_u64().is_some_and(|own| own < step);
    let metrics = Journal::open(&run.join(METRICS), is_before)?;
    let reloads = Journal::open(&run.join(RELOADS), |line| {
        is_before(line) || line["event"] == "start"
    })?;
    Ok((metrics, reloads))
}

/// The line of a change of the recipe's file; none where it is told as a switch or a failure of its step.
fn of_file(step: u64, event: &LiveEvent) -> Option<Value> {
    let line = match event {
        LiveEvent::Rejected {
            version,
            error,
            still_using,
            at_step: false,
        } => json!({
            "step": step,
            "event": "rejected",
            "version": version.as_str(),
            "error": one_line(error),
            "still_using": still_using.as_str(),
        }),
        LiveEvent::Missing { why, .. } => json!({ "step": step, "event": "missing", "why": why }),
        LiveEvent::Reverted { version } => {
            json!({ "step": step, "event": "reverted", "version": version.as_str() })
        }
        LiveEvent::Warned { version, warnings } => json!({
            "step": step,
            "event": "warned",
            "version": version.as_str(),
            "warnings": warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
        LiveEvent::PollingOnly { why } => json!({ "step": step, "event": "polling", "why": why }),
        LiveEvent::Published(_) | LiveEvent::Rejected { .. } => return None,
    };
    Some(line)
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
        let run = Folder::create(&mut config).unwrap();
        let mut recorder = Recorder::open(run, &config, 0).unwrap();
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
            recorder.tell(&fail(step)).unwrap();
        }
        let run = recorder.folder.path.clone();
        let steps = |kind: Numbered| {
            let all = kind.all(&run).unwrap().into_iter();
            all.map(|(step, _)| step).collect::<Vec<_>>()
        };
        assert_eq!(steps(FAILED), (10..30).collect::<Vec<_>>());
        // After it has gone back, the batch of the new step 5 is the newest.
        for kind in [NATIVE, FAILED] {
            std::fs::write(run.join(kind.name(4, "4f8ad7")), "").unwrap();
            std::fs::write(run.join(kind.name(5, "4f8ad7")), "").unwrap();
        }
        recorder.cut(5).unwrap();
        recorder.tell(&fail(5)).unwrap();
        assert_eq!((steps(FAILED), steps(NATIVE)), (vec![4, 5], vec![4]));
    }
}
