//! The replay of a run of advlab or of another trainer: the replay uses the same versions at the same steps, and must give the
//! same numbers.

use std::path::Path;

use serde_json::Value;

use super::error::{Result, damaged};
use super::folder::{RunFolder, RunKind, STATES};
use super::row::Row;
use super::run::{Observer, Run};
use super::trainer_run;
use advlab::files::{ReadOptions, read};
use advlab::native::Mode;
use advlab::script::Host;

/// The first value of a replay that differs from the recorded value.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The step of the value, counted from 0.
    pub step: u64,
    /// The path of the value in the row, such as `evaluation/pass@1`.
    pub field: String,
    /// The value in the run's row; `None` if the row has no such field.
    pub recorded: Option<Value>,
    /// The value that the replay computed; `None` if the replay's row has no such field.
    pub repeated: Option<Value>,
}

/// Repeats steps up to the first value that differs, and returns the difference.
type Repeat = dyn FnOnce(&mut Observer<'_>) -> Result<Option<Difference>>;

/// A run that is ready to be repeated. Repeating a run does not change its folder.
pub struct Replay {
    /// The reason why numbers may differ, if it is known beforehand: the run was recorded on another platform.
    pub note: Option<String>,
    /// The number of steps to repeat: all steps of the run, or, for a trainer's run, the steps with a saved batch and state.
    pub steps: u64,
    repeat: Box<Repeat>,
}

impl Replay {
    /// Opens a run to repeat it. `native` does not change the numbers. Only the recipe's part of a trainer's run is repeated, on
    /// the saved batches.
    pub fn open(folder: &Path, native: Mode) -> Result<Replay> {
        let run = RunFolder::read(folder);
        let (kind, mut config) = run.kind_and_config()?;
        config.native = native;
        run.log()?.start(folder)?;
        let mut rows = run.rows()?;
        if kind == RunKind::Own {
            run.check(&rows, config.steps)?;
            let mut run = Run::restored(&run, config, None, rows)?;
            return Ok(Replay {
                note: run.notes().first().cloned(),
                steps: run.recorded.len() as u64,
                repeat: Box::new(move |observer| run.repeat_all(observer)),
            });
        }
        let (run, host) = (RunFolder::open(folder)?, config.host());
        // A killed process may have left a batch without its state, or a row without a batch and a state.
        let is_kept = |step| run.at(step).is_ok() && STATES.path(folder, step).is_file();
        rows.retain(|row| is_kept(row.step));
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

    /// Repeats the steps, up to the first value that differs. Returns `None` if all values but times and memory are the same, bit
    /// for bit.
    pub fn go(self, observer: &mut Observer<'_>) -> Result<Option<Difference>> {
        (self.repeat)(observer)
    }
}

/// Computes a trainer's step again, with the version that it used and the state at its start; returns the first value that
/// differs.
fn recompute(run: &RunFolder, host: &Host, recorded: &Row) -> Result<Option<Difference>> {
    let step = recorded.step;
    let lost = |what| {
        let message = format!("the run has not kept the {what} of step {step}");
        damaged(run.folder(), message)
    };
    let recipe = run.recipe_named(host, &recorded.version)?;
    let recipe = recipe.ok_or_else(|| lost("version"))?;
    let mut state = run.state_at(step)?.ok_or_else(|| lost("state"))?;
    let batch = read(run.at(step)?, &ReadOptions::default())?.batch;
    let outcome = recipe.advantage(&batch, &mut state)?;
    let repeated = trainer_run::row(step, &recipe, &batch, &outcome);
    Ok(difference(recorded, &repeated))
}

/// Returns the first field that differs between the rows, apart from times and memory.
pub(super) fn difference(recorded: &Row, repeated: &Row) -> Option<Difference> {
    let step = repeated.step;
    let (recorded, repeated) = (recorded.flat(), repeated.flat());
    // The values are compared as text, because 0 and -0 must count as different, but are equal as numbers.
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
    use crate::TrainerRun;
    use crate::folder::{CONFIG, METRICS};
    use advlab::batch::Batch;
    use advlab::live::{LiveOptions, LiveRecipe};

    /// A row without a version is refused, because every version begins with the empty string.
    #[test]
    fn a_trainers_folder_is_repeated_also_in_its_old_form_and_never_without_a_version() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        let recipe = Host::new().load("grpo").unwrap();
        let settings = [("k".to_string(), "8".to_string())];
        let mut live =
            LiveRecipe::without_file(&Host::new(), recipe, LiveOptions::default()).unwrap();
        let mut run = TrainerRun::open(&folder, &live, &settings, 2).unwrap();
        let batch = Batch::builder().groups([0, 0]);
        let batch = batch.response("reward", vec![1.0, 0.0]).build().unwrap();
        run.begin(Some(0)).unwrap();
        let before = live.state().clone();
        let done = live.step(&batch).unwrap();
        run.step(&live, &batch, &before, &done.outcome).unwrap();
        let repeat = || Replay::open(&folder, Mode::Off).unwrap().go(&mut |_| {});
        assert_eq!(repeat().unwrap(), None);
        let path = folder.join(METRICS);
        let text = std::fs::read_to_string(&path).unwrap();
        // Earlier versions wrote such folders: the configuration may have a key that no longer exists, and a number that a run
        // did not have was written as null.
        let config = "# A trainer's run, as advlab recorded it\nrecipe = \"grpo\"\ntask = \"trainer\"\n\n[params]\nk = 8\n";
        assert_eq!(
            std::fs::read_to_string(folder.join(CONFIG)).unwrap(),
            config
        );
        let with_key = config.replace("task", "native_threshold = 0.02\ntask");
        std::fs::write(folder.join(CONFIG), with_key).unwrap();
        let old = text.replace(",\"crc32c\"", ",\"loss\":null,\"metrics\":{},\"crc32c\"");
        assert!(old != text);
        std::fs::write(&path, old).unwrap();
        assert_eq!(repeat().unwrap(), None);
        std::fs::write(&path, text.replace("\"version\"", "\"edition\"")).unwrap();
        let error = repeat().unwrap_err().to_string();
        assert!(error.contains("not kept the version of step 0"), "{error}");
    }
}
