//! Records a recipe's steps in another trainer, in the folder layout of advlab's runs, so that `repl`, `view` and `replay` can
//! open the folder.

use std::path::Path;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::config::Config;
use super::error::Result;
use super::folder::{
    CONFIG, Journal, LockedFolder, Notice, RunFolder, RunKind, RunWriter, step_after,
};
use super::policy::Platform;
use super::row::{Row, Stage, rounded};
use advlab::batch::{Batch, FloatBuffer};
use advlab::diagnostic::Diagnostic;
use advlab::live::{Failed, LiveEvent, LiveRecipe, Published};
use advlab::script::{Outcome, Recipe, State, Summary};

/// The file that receives the old rows of steps that the trainer repeats.
const CUT: &str = "cut.jsonl";

/// The folder of a trainer's run, open for writing.
#[derive(Debug)]
pub struct TrainerRun {
    writer: RunWriter,
    before: Arc<Published>,
    /// The version that is in use according to the folder's log.
    used: String,
    /// The first step that has no row yet.
    next: u64,
    /// The first step that had a row when the folder was opened; `None` once the trainer has resumed or begun a step.
    first: Option<u64>,
    /// Whether a step has begun since the folder was opened.
    is_begun: bool,
}

impl TrainerRun {
    /// Opens or creates the folder of a live recipe with these parameters. The folder keeps the last `keep_batches` batches.
    pub fn open(
        path: &Path,
        live: &LiveRecipe,
        settings: &[(String, String)],
        keep_batches: usize,
    ) -> Result<TrainerRun> {
        let before = live.in_use().clone();
        let mut config = Config {
            recipe: before.recipe().name().to_string(),
            batch_every: u64::from(keep_batches > 0),
            keep_batches: keep_batches.max(1),
            tensorboard: false,
            out: path.display().to_string(),
            ..Config::default()
        };
        for (name, text) in settings {
            config.set(name, text);
        }
        let folder = if path.join(CONFIG).is_file() {
            let (folder, _) = LockedFolder::open(path)?;
            if folder.kind == RunKind::Own {
                let message = format!("{} is a run of `advlab train`", path.display());
                let help = "name a folder that is empty or does not exist yet";
                return Err(Diagnostic::error(message).with_help(help).into());
            }
            folder.write_config(&config)?;
            folder
        } else {
            LockedFolder::create(&mut config, RunKind::Trainer)?
        };
        let rows = RunFolder::read(path).rows()?;
        let mut run = TrainerRun {
            writer: RunWriter::open(folder, &config, u64::MAX)?,
            used: String::new(),
            next: step_after(0, &rows),
            first: rows.first().map(|row| row.step),
            is_begun: false,
            before,
        };
        if run.writer.is_new() {
            let recipe = run.before.recipe();
            let start = Notice::start(recipe, None, Platform::default());
            run.writer.log(&start.line, &[recipe], None)?;
        }
        run.cut(u64::MAX)?;
        Ok(run)
    }

    pub fn path(&self) -> &Path {
        &self.writer.folder.path
    }

    /// Removes all rows and files of `step` and of later steps.
    fn cut(&mut self, step: u64) -> Result<()> {
        self.writer.cut(step)?;
        let log = RunFolder::read(self.path()).log()?;
        let used = log.versions();
        self.used = used.last().map_or("", |(_, version)| version).to_string();
        Ok(())
    }

    /// Records that the trainer has loaded a saved state. Its next step may then be the folder's first step (see `check`).
    pub fn resume(&mut self) {
        self.first = None;
    }

    /// Checks that a call may begin: a trainer that loaded no state must not remove all rows of an earlier run.
    pub fn check(&self, theirs: Option<u64>) -> Result<()> {
        match theirs.zip(self.first) {
            Some((own, first)) if own <= first => {
                let message = format!("{} has the rows of an earlier run", self.path().display());
                let help = "choose another folder, or remove this one; to continue the earlier run, call `load_state_dict` before the first step";
                Err(Diagnostic::error(message).with_help(help).into())
            }
            _ => Ok(()),
        }
    }

    /// Begins a call. Its step is the trainer's step, raised if necessary so that no two rows have the same step. If the trainer
    /// has gone back to an earlier step, the folder's rows from that step on are moved to another file, and the returned message
    /// says so.
    pub fn begin(&mut self, theirs: Option<u64>) -> Result<Option<String>> {
        self.check(theirs)?;
        let mut told = None;
        if let Some(step) = theirs.filter(|step| !self.is_begun && *step < self.next) {
            let (path, last) = (self.path().display(), self.next - 1);
            told = Some(format!(
                "{path}: the trainer has gone back to step {step}; the rows of steps {step} to {last} are in {CUT} now"
            ));
            let mut aside = Journal::open(&self.path().join(CUT), |_: &Row| true)?;
            let rows = RunFolder::read(self.path()).rows()?;
            for row in rows.iter().filter(|row| row.step >= step) {
                aside.append(row)?;
            }
            self.cut(step)?;
            self.next = step;
        }
        (self.is_begun, self.first) = (true, None);
        self.next = self.next.max(theirs.unwrap_or(0));
        Ok(told)
    }

    /// Records an event of the recipe's file.
    pub fn changed(&mut self, event: &LiveEvent) -> Result<()> {
        let notice = Notice::live(self.next, event);
        notice.map_or(Ok(()), |notice| self.writer.log(&notice.line, &[], None))
    }

    /// Records that a version failed at this step.
    pub fn failed(&mut self, failed: &Failed, batch: &Batch) -> Result<()> {
        let notice = Notice::failed(self.next, failed, Some(batch));
        let recipes = [failed.loaded.recipe()];
        self.writer.log(&notice.line, &recipes, Some(batch))
    }

    /// Records a completed step of the version in use; `before` is the state with which the step began.
    pub fn step(
        &mut self,
        live: &LiveRecipe,
        batch: &Batch,
        before: &State,
        outcome: &Outcome,
    ) -> Result<()> {
        let (step, loaded) = (self.next, live.in_use().clone());
        // The step is counted first, so that a call uses up its step number even if its row cannot be written.
        self.next += 1;
        if loaded.version().as_str() != self.used {
            let notice = Notice::switched(step, live, &self.before);
            self.writer.log(&notice.line, &[loaded.recipe()], None)?;
            self.used = loaded.version().as_str().to_string();
        }
        let row = row(step, loaded.recipe(), batch, outcome);
        self.before = loaded;
        self.writer.step(&row, batch, Some(before))
    }
}

/// Returns the row of a trainer's step, with the numbers that the batch and the recipe's outcome give.
pub(super) fn row(step: u64, recipe: &Recipe, batch: &Batch, outcome: &Outcome) -> Row {
    let summary = Summary::of(outcome);
    let crc = match outcome.advantage.buffer() {
        FloatBuffer::F32(values) => crc32c::crc32c(values.as_bytes()),
        FloatBuffer::F64(values) => crc32c::crc32c(values.as_bytes()),
    };
    Row {
        batch_step: Some(batch.step()),
        responses: Some(summary.responses),
        groups: Some(summary.groups),
        loss: outcome.loss,
        metrics: outcome.reports.metrics.iter().cloned().collect(),
        crc32c: Some(crc),
        ms: [(Stage::Recipe, rounded(outcome.reports.time))].into(),
        ..Row::of_batch(step, recipe.version(), batch, &summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use advlab::live::LiveOptions;
    use advlab::script::Host;

    #[test]
    fn a_damaged_line_of_a_trainers_folder_is_told() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        let recipe = Host::new().load("grpo").unwrap();
        let live = LiveRecipe::without_file(&Host::new(), recipe, LiveOptions::default()).unwrap();
        drop(TrainerRun::open(&folder, &live, &[], 2).unwrap());
        for name in [crate::folder::METRICS, crate::folder::RELOADS] {
            let well = std::fs::read(folder.join(name)).unwrap();
            std::fs::write(folder.join(name), "{\"st?\n").unwrap();
            let error = TrainerRun::open(&folder, &live, &[], 2).unwrap_err();
            let text = error.render(false);
            assert!(text.contains(&format!("{name}, line 1: ")), "{text}");
            assert!(text.contains("repair the line"), "{text}");
            std::fs::write(folder.join(name), well).unwrap();
        }
        TrainerRun::open(&folder, &live, &[], 2).unwrap();
    }

    #[test]
    fn the_reward_of_a_row_is_a_mean_over_trajectories() {
        let recipe = Host::new().load("grpo").unwrap();
        let batch = Batch::builder().groups([0, 0, 0, 0]);
        let batch = batch.response("reward", vec![1.0, 1.0, 1.0, 0.0]);
        let turns = batch
            .clone()
            .response("trajectory", vec![7.0, 7.0, 7.0, 8.0]);
        let texts = batch.clone().text("trajectory", ["a", "a", "a", "b"]);
        for (batch, mean) in [(batch, 0.75), (turns, 0.5), (texts, 0.5)] {
            let batch = batch.build().unwrap();
            let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
            assert_eq!(
                row(0, &recipe, &batch, &outcome.unwrap()).reward_mean,
                Some(mean)
            );
        }
    }

    #[test]
    fn metrics_that_are_no_numbers_are_seen_in_a_row() {
        let text = "fn advantage(batch, p) { metric(\"a\", 1.0 / 0.0); batch.reward }";
        let recipe = Host::new().compile("a.rhai", text).unwrap();
        let batch = Batch::builder().groups([0, 0]);
        let batch = batch.response("reward", vec![1.0, 0.0]).build().unwrap();
        let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
        let row = row(0, &recipe, &batch, &outcome.unwrap());
        assert_eq!(row.metrics["a"], f64::INFINITY);
    }
}
