//! The folder of a run whose steps are done by another program: it records a live recipe in a trainer, in the layout of our own
//! runs, so that the prompt can open it. And the replay of such a run, or of our own: the same versions at the same steps, to the
//! same numbers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use zerocopy::IntoBytes;

use super::config::Config;
use super::error::{Result, damaged};
use super::folder::{
    CONFIG, Journal, LockedFolder, LogLine, RunFolder, RunWriter, STATES, step_after, step_of,
};
use super::policy::Platform;
use super::row::{flatten, rounded};
use super::run::{Observer, Run};
use super::task::TRAINER;
use advlab::batch::{Batch, FloatBuffer};
use advlab::diagnostic::Diagnostic;
use advlab::files::{ReadOptions, read};
use advlab::live::{Failed, LiveEvent, LiveRecipe, Loaded};
use advlab::native::Mode;
use advlab::number_text::in_json;
use advlab::script::{Host, Outcome, Recipe, State, Statistics, Summary};

/// The earlier rows of steps that were done again.
const CUT: &str = "cut.jsonl";

/// A folder that is being written.
#[derive(Debug)]
pub struct Record {
    writer: RunWriter,
    before: Arc<Loaded>,
    /// The version that the folder records as the one in use.
    used: String,
    /// The first step that has no row yet.
    next: u64,
    /// The first step that the folder had when it was opened, until the trainer has gone on or begun.
    first: Option<u64>,
    /// Whether a step has begun since the folder was opened.
    is_begun: bool,
}

impl Record {
    /// Opens the folder of a live recipe with these settings, or makes it. The last `keep_batches` batches are kept.
    pub fn open(
        path: &Path,
        live: &LiveRecipe,
        settings: &[(String, String)],
        keep_batches: usize,
    ) -> Result<Record> {
        let before = live.in_use().clone();
        let mut config = Config {
            task: TRAINER.to_string(),
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
            let (folder, old) = LockedFolder::open(path)?;
            if !old.is_recorded() {
                let message = format!("{} is a run of `advlab train`", path.display());
                let help = "name a folder that is empty or does not exist yet";
                return Err(Diagnostic::error(message).with_help(help).into());
            }
            folder.write_config(&config)?;
            folder
        } else {
            LockedFolder::create(&mut config)?
        };
        let rows = RunFolder::read(path).rows()?;
        let mut record = Record {
            writer: RunWriter::open(folder, &config, u64::MAX)?,
            used: String::new(),
            next: step_after(0, &rows),
            first: rows.first().and_then(step_of),
            is_begun: false,
            before,
        };
        if record.writer.is_new() {
            let start = LogLine::start(record.before.recipe(), None, Platform::default());
            record.writer.log(&start)?;
        }
        record.cut(u64::MAX)?;
        Ok(record)
    }

    pub fn path(&self) -> &Path {
        &self.writer.folder.path
    }

    /// Removes all rows and files of a step and of later ones.
    fn cut(&mut self, step: u64) -> Result<()> {
        self.writer.cut(step)?;
        let log = RunFolder::read(self.path()).log()?;
        let used = log.versions();
        self.used = used.last().map_or("", |(_, version)| version).to_string();
        Ok(())
    }

    /// The trainer continues from a saved state, so its next step may be the folder's first one.
    pub fn resume(&mut self) {
        self.first = None;
    }

    /// Whether a call may begin: without a state, it may not remove all rows of an earlier run.
    pub fn check(&self, theirs: Option<u64>) -> Result<()> {
        match theirs.zip(self.first) {
            Some((own, first)) if own <= first => {
                let message = format!("{} has the rows of an earlier run", self.path().display());
                let help = "choose another folder, or remove this one; `load_state_dict` before the first step goes on with it";
                Err(Diagnostic::error(message).with_help(help).into())
            }
            _ => Ok(()),
        }
    }

    /// Begins a call. Its step is the trainer's own number, except that each call has a different one. If the trainer has
    /// gone back to an earlier step, the folder's rows from that step on are set aside, and an event says so.
    pub fn begin(&mut self, theirs: Option<u64>) -> Result<Option<String>> {
        self.check(theirs)?;
        let mut told = None;
        if let Some(step) = theirs.filter(|step| !self.is_begun && *step < self.next) {
            let (path, last) = (self.path().display(), self.next - 1);
            told = Some(format!(
                "{path}: the trainer has gone back to step {step}; the rows of steps {step} to {last} are in {CUT} now"
            ));
            let mut aside = Journal::open(&self.path().join(CUT), |_| true)?;
            let rows = RunFolder::read(self.path()).rows()?;
            for row in rows.iter().filter(|row| step_of(row) >= Some(step)) {
                aside.append(row)?;
            }
            self.cut(step)?;
            self.next = step;
        }
        (self.is_begun, self.first) = (true, None);
        self.next = self.next.max(theirs.unwrap_or(0));
        Ok(told)
    }

    /// Something happened to the recipe's file.
    pub fn changed(&mut self, event: &LiveEvent) -> Result<()> {
        let line = LogLine::live(self.next, event);
        line.map_or(Ok(()), |line| self.writer.log(&line))
    }

    /// A version failed at this step.
    pub fn failed(&mut self, failed: &Failed, batch: &Batch) -> Result<()> {
        let line = LogLine::failed(self.next, failed, Some(batch));
        self.writer.log(&line)
    }

    /// The step is done: by the version in use, which began it with the state `before`.
    pub fn step(
        &mut self,
        live: &LiveRecipe,
        batch: &Batch,
        before: &State,
        outcome: &Outcome,
    ) -> Result<()> {
        let (step, loaded) = (self.next, live.in_use().clone());
        // A call without a row still takes a number.
        self.next += 1;
        if loaded.version().as_str() != self.used {
            let line = LogLine::switched(step, live, &self.before);
            self.writer.log(&line)?;
            self.used = loaded.version().as_str().to_string();
        }
        let mut line = row(step, loaded.recipe(), batch, outcome);
        line["ms"] = json!({ "recipe": rounded(outcome.time) });
        self.before = loaded;
        self.writer.step(step, &line, batch, Some(before))
    }
}

/// The row of a step, with those fields of a run's row that come from the recipe.
pub(super) fn row(step: u64, recipe: &Recipe, batch: &Batch, outcome: &Outcome) -> Value {
    let reward = batch.response_column("reward");
    let reward = reward.map(|values| Statistics::of(values.iter().copied()));
    let summary = Summary::of(outcome);
    let advantage = summary.advantage;
    let metrics = outcome.metrics.iter();
    let metrics = metrics.map(|(name, value)| (name, in_json(*value)));
    let metrics: BTreeMap<_, _> = metrics.collect();
    let crc = match outcome.advantage.buffer() {
        FloatBuffer::F32(values) => crc32c::crc32c(values.as_bytes()),
        FloatBuffer::F64(values) => crc32c::crc32c(values.as_bytes()),
    };
    json!({
        "step": step,
        "version": recipe.version().as_str(),
        // What `batch.step` was.
        "batch_step": batch.step(),
        "responses": summary.responses,
        "groups": summary.groups,
        "reward_mean": reward.map(|reward| reward.mean),
        "reward_std": reward.map(|reward| reward.std),
        "groups_without_signal": summary.groups_without_signal as f64 / summary.groups.max(1) as f64,
        "advantage_mean": advantage.mean,
        "advantage_std": advantage.std,
        "advantage_min": advantage.min,
        "advantage_max": advantage.max,
        "loss": outcome.loss,
        "metrics": metrics,
        // Last, so that a difference in another field is reported by that field.
        "crc32c": crc,
    })
}

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

/// Repeats steps, up to the first number that differs.
type Repeat = dyn FnOnce(&mut Observer<'_>) -> Result<Option<Difference>>;

/// A run that can be repeated. Its folder is not changed.
pub struct Replay {
    /// Why numbers may differ, if that is known beforehand: it is not the machine that the run was recorded on.
    pub note: Option<String>,
    /// The number of steps to repeat: all steps of the run, or, for a trainer's run, the steps with a saved batch.
    pub steps: u64,
    repeat: Box<Repeat>,
}

impl Replay {
    /// Opens a run to repeat it, with kernels or without: the run's numbers are the same. Of a trainer's run, only the recipe's
    /// part is repeated, on the saved batches.
    pub fn open(folder: &Path, native: Mode) -> Result<Replay> {
        let run = RunFolder::read(folder);
        let mut config = run.config()?;
        config.native = native;
        run.log()?.start(folder)?;
        let mut rows = run.rows()?;
        if !config.is_recorded() {
            run.check(&rows, config.steps)?;
            let mut run = Run::restored(&run, config, None, rows)?;
            return Ok(Replay {
                note: run.notes().first().cloned(),
                steps: run.recorded.len() as u64,
                repeat: Box::new(move |observer| run.repeat_all(observer)),
            });
        }
        let (run, host) = (RunFolder::open(folder)?, config.host());
        // A process that was killed may have left a batch without its state, or a row without either.
        let is_kept = |step| run.at(step).is_ok() && STATES.path(folder, step).is_file();
        rows.retain(|row| step_of(row).is_some_and(is_kept));
        Ok(Replay {
            note: None,
            steps: rows.len() as u64,
            repeat: Box::new(move |_| {
                let mut rows = rows.iter();
                let difference = rows.find_map(|row| recompute(&run, &host, row).transpose());
                difference.transpose()
            }),
        })
    }

    /// Repeats all steps, up to the first number that differs; `None` if all of them are the same, bit for bit.
    pub fn go(self, observer: &mut Observer<'_>) -> Result<Option<Difference>> {
        (self.repeat)(observer)
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
    let repeated = row(step, &recipe, &batch, &outcome);
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
        drop(Record::open(&folder, &live, &[], 2).unwrap());
        for name in [crate::folder::METRICS, crate::folder::RELOADS] {
            let well = std::fs::read(folder.join(name)).unwrap();
            std::fs::write(folder.join(name), "{\"st?\n").unwrap();
            let error = Record::open(&folder, &live, &[], 2).unwrap_err();
            let text = error.render(false);
            assert!(text.contains(&format!("{name}, line 1: ")), "{text}");
            assert!(text.contains("repair it"), "{text}");
            std::fs::write(folder.join(name), well).unwrap();
        }
        Record::open(&folder, &live, &[], 2).unwrap();
    }

    /// Any version would do for an empty one.
    #[test]
    fn a_row_without_a_version_is_not_repeated() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        let recipe = Host::new().load("grpo").unwrap();
        let mut live =
            LiveRecipe::without_file(&Host::new(), recipe, LiveOptions::default()).unwrap();
        let mut record = Record::open(&folder, &live, &[], 2).unwrap();
        let batch = Batch::builder().groups([0, 0]);
        let batch = batch.response("reward", vec![1.0, 0.0]).build().unwrap();
        record.begin(Some(0)).unwrap();
        let before = live.state().clone();
        let done = live.step(&batch).unwrap();
        record.step(&live, &batch, &before, &done.outcome).unwrap();
        let repeat = || Replay::open(&folder, Mode::Off).unwrap().go(&mut |_| {});
        assert_eq!(repeat().unwrap(), None);
        let path = folder.join(crate::folder::METRICS);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"version\"", "\"edition\"")).unwrap();
        let error = repeat().unwrap_err().to_string();
        assert!(error.contains("not kept the version of step 0"), "{error}");
    }

    #[test]
    fn metrics_that_are_no_numbers_are_seen_in_a_row() {
        let text = "fn advantage(batch, p) { metric(\"a\", 1.0 / 0.0); batch.reward }";
        let recipe = Host::new().compile("a.rhai", text).unwrap();
        let batch = Batch::builder().groups([0, 0]);
        let batch = batch.response("reward", vec![1.0, 0.0]).build().unwrap();
        let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
        let row = row(0, &recipe, &batch, &outcome.unwrap());
        assert_eq!(row["metrics"]["a"], "inf");
    }
}
