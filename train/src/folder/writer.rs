//! Writes the rows, the log, the batches and the TensorBoard events of a run's folder.

use std::path::Path;

use super::tensorboard::{EventFile, seconds};
use super::{
    BATCHES, FAILED, Journal, KeptVersion, LockedFolder, LogEvent, LogLine, METRICS, RELOADS,
    STATES, make_folder, remove, sync_folder,
};
use crate::config::Config;
use crate::error::{Result, io};
use crate::row::Row;
use advlab::batch::Batch;
use advlab::replace::Replacement;
use advlab::script::{Recipe, State};

/// The maximum number of batches that are kept because a version failed on them.
const EVIDENCE: usize = 20;

/// Writes the files that grow during a run.
#[derive(Debug)]
pub(crate) struct RunWriter {
    pub(crate) folder: LockedFolder,
    metrics: Journal,
    log: Journal,
    events: Option<EventFile>,
    batch_every: u64,
    keep_batches: usize,
}

impl RunWriter {
    /// Opens the files, and removes the lines of `step` and later steps, but keeps the log's line about the start of the run.
    pub(crate) fn open(folder: LockedFolder, config: &Config, step: u64) -> Result<RunWriter> {
        make_folder(&folder.path.join("batches"))?;
        let events = match config.tensorboard {
            true => Some(EventFile::create(&folder.path, step)?),
            false => None,
        };
        let (metrics, log) = journals(&folder.path, step)?;
        Ok(RunWriter {
            metrics,
            log,
            folder,
            events,
            batch_every: config.batch_every,
            keep_batches: config.keep_batches,
        })
    }

    /// Removes the batches and the lines of `step` and later steps, but keeps the log's line about the start of the run. If these
    /// batches were kept, new batches of earlier steps would count as the oldest batches and be removed first.
    pub(crate) fn cut(&mut self, step: u64) -> Result<()> {
        let run = &self.folder.path;
        for kind in [BATCHES, STATES, FAILED] {
            for (_, path) in kind.all(run)?.into_iter().filter(|(own, _)| *own >= step) {
                remove(&path).map_err(io("remove", &path))?;
            }
        }
        (self.metrics, self.log) = journals(run, step)?;
        Ok(())
    }

    /// Returns whether the run's log is still empty.
    pub(crate) fn is_new(&self) -> bool {
        self.log.is_empty()
    }

    /// Syncs the files, so that their lines survive a crash of the machine; a checkpoint relies on this.
    pub(crate) fn sync(&self) -> Result<()> {
        self.metrics.sync()?;
        self.log.sync()?;
        // The folder is synced too, because it contains the names of these files and of the configuration.
        sync_folder(&self.folder.path)
    }

    /// Saves the versions and the batch that a line of the log names, and then writes the line.
    pub(crate) fn log(
        &mut self,
        line: &LogLine,
        recipes: &[&Recipe],
        batch: Option<&Batch>,
    ) -> Result<()> {
        let run = &self.folder.path;
        for recipe in recipes {
            KeptVersion::keep(run, recipe)?;
        }
        if let LogEvent::Failed { batch: name, .. } = &line.event
            && let Some((name, evidence)) = name.as_ref().zip(batch)
        {
            evidence.write_safetensors(run.join(name))?;
            FAILED.remove_old(run, EVIDENCE)?;
        }
        self.log.append(line)
    }

    /// Writes the row of a step, with the current time. If the step's batch is to be kept, the batch is written first, together
    /// with the state before the step, `before`, which only runs without checkpoints need.
    pub(crate) fn step(&mut self, row: &Row, batch: &Batch, before: Option<&State>) -> Result<()> {
        let (run, step) = (&self.folder.path, row.step);
        if self.batch_every > 0 && step.is_multiple_of(self.batch_every) {
            if let Some(state) = before {
                let text = state.to_json().to_string();
                Replacement::write(&STATES.path(run, step), text.as_bytes())?;
                STATES.remove_old(run, self.keep_batches)?;
            }
            batch.write_safetensors(BATCHES.path(run, step))?;
            BATCHES.remove_old(run, self.keep_batches)?;
        }
        self.metrics.append(&Row {
            time: Some((seconds() * 1e3).round() / 1e3),
            ..row.clone()
        })?;
        if let Some(events) = &mut self.events {
            let mut values = row.flat();
            values.remove("step");
            events.scalars(step, &values)?;
        }
        Ok(())
    }
}

/// Opens the journals of the metrics and of the log, and removes the lines of `step` and later steps, but keeps the log's line
/// about the start of the run.
fn journals(run: &Path, step: u64) -> Result<(Journal, Journal)> {
    let metrics = Journal::open(&run.join(METRICS), |row: &Row| row.step < step)?;
    let log = Journal::open(&run.join(RELOADS), |line: &LogLine| {
        line.step < step || matches!(line.event, LogEvent::Start { .. })
    })?;
    Ok((metrics, log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::RunKind;
    use serde_json::json;

    #[test]
    fn the_newest_failed_batches_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            out: folder.path().join("run").display().to_string(),
            tensorboard: false,
            ..Config::default()
        };
        let run = LockedFolder::create(&mut config, RunKind::Own).unwrap();
        let mut writer = RunWriter::open(run, &config, 0).unwrap();
        let batch = Batch::builder().groups([0, 0]);
        let batch = batch.response("reward", vec![1.0, 0.0]).build().unwrap();
        let fail = |writer: &mut RunWriter, step| {
            let name = FAILED.name(step, "-4f8ad7");
            let line = json!({ "step": step, "event": "failed", "version": "4f8ad7", "error": "", "back_to": null, "batch": name });
            let line = serde_json::from_value(line).unwrap();
            writer.log(&line, &[], Some(&batch)).unwrap();
        };
        for step in 0..30 {
            fail(&mut writer, step);
        }
        let run = writer.folder.path.clone();
        let steps = || {
            let all = FAILED.all(&run).unwrap().into_iter();
            all.map(|(step, _)| step).collect::<Vec<_>>()
        };
        assert_eq!(steps(), (10..30).collect::<Vec<_>>());
        // After the run has gone back to step 5, the batch of the new step 5 is the newest.
        for step in [4, 5] {
            std::fs::write(run.join(FAILED.name(step, "-4f8ad7")), "").unwrap();
        }
        writer.cut(5).unwrap();
        fail(&mut writer, 5);
        assert_eq!(steps(), [4, 5]);
    }
}
