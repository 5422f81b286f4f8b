//! A recipe that follows its file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use advlab::live::{LiveEvent, LiveOptions, Loaded};
use advlab::script::Hook;
use advlab::{Batch, Diagnostics, LiveRecipe};
use advlab_train::Record;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::error::{in_python, raise};
use crate::pool::{self, ForkLock};
use crate::recipe::{Advantage, Answer, Gradient, Shape, Used, compute, hooks, host, reads};
use crate::state;

#[pyclass(frozen, name = "Live", module = "advlab._native")]
pub struct PyLive {
    path: String,
    /// The process whose thread follows the file.
    process: u32,
    options: LiveOptions,
    /// Tokens of the last batch that are kept to try new versions on.
    keep: usize,
    is_closed: AtomicBool,
    live: ForkLock<Option<Held>>,
}

/// What the calls of all threads share.
struct Held {
    live: LiveRecipe,
    /// The serial number that a resumed run began with: its versions are counted on from there.
    first_serial: u64,
    record: Option<Record>,
    /// Whether the folder could be written the last time.
    is_recorded: bool,
    /// What happened, and was not asked for yet.
    heard: Vec<Heard>,
}

enum Heard {
    Live(LiveEvent),
    /// Of the folder: what it is, and why it cannot be written, where that is so.
    Folder(String, Option<Diagnostics>),
}

impl Held {
    fn used(&self, loaded: &Loaded) -> Used {
        let serial = self.first_serial + loaded.serial();
        (loaded.version().clone(), serial)
    }

    fn advantage(
        &mut self,
        batch: &PyBatch,
        keep: usize,
        shape: Shape,
    ) -> Result<(Advantage, Used), Diagnostics> {
        if let Some(record) = &self.record {
            record.check(batch.step)?;
        }
        // If it fails, the failure is among the events.
        let _ = self.live.begin_step();
        let numbered = &self.live.numbered(&batch.batch);
        let mut told = None;
        self.record(|record, _| {
            told = record.begin(batch.step)?;
            Ok(false)
        });
        self.heard
            .extend(told.map(|line| Heard::Folder(line, None)));
        self.hear();
        let attempt = self.live.attempt(&kept(numbered, keep), |recipe, state| {
            let before = state.clone();
            Ok((before, compute(recipe, numbered, state)?))
        });
        for failed in &attempt.failed {
            self.record(|record, _| record.failed(failed, numbered).map(|()| false));
        }
        let (before, computed) = attempt.result?;
        self.record(|record, live| {
            let done = record.step(live, numbered, &before, &computed.0);
            done.map(|()| true)
        });
        let used = self.used(self.live.in_use());
        Ok((Advantage::of(computed, shape), used))
    }

    /// Writes to the folder, where there is one; `write` says whether it has the step now. The run goes on without what cannot
    /// be written: that is told once.
    fn record(
        &mut self,
        write: impl FnOnce(&mut Record, &LiveRecipe) -> Result<bool, Diagnostics>,
    ) {
        let Some(record) = &mut self.record else {
            return;
        };
        let done = write(record, &self.live);
        let folder = record.path().display();
        match done {
            Ok(true) if !std::mem::replace(&mut self.is_recorded, true) => {
                let line = format!("{folder} is written again");
                self.heard.push(Heard::Folder(line, None));
            }
            Err(error) if std::mem::take(&mut self.is_recorded) => {
                let why = &error[0].message;
                let line = format!("{folder} lacks this step, and the run goes on: {why}");
                self.heard.push(Heard::Folder(line, Some(error)));
            }
            _ => {}
        }
    }

    /// Takes what has become of the file, for the folder and for whoever asks.
    fn hear(&mut self) {
        for event in self.live.events() {
            self.record(|record, _| record.changed(&event).map(|()| false));
            self.heard.push(Heard::Live(event));
        }
    }
}

/// An event: its kind, its line, the version that it is about, the error with its place, and whether it came at a step.
type Told = (
    &'static str,
    String,
    Option<String>,
    Option<Py<PyAny>>,
    bool,
);

impl PyLive {
    /// Runs something on the live recipe, with the interpreter's lock released.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Held) -> R + Send,
    ) -> PyResult<R> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(format!(
                "the file of {} is followed in the process that opened it, and not after a fork: call `advlab.watch` in this one",
                self.path
            )));
        }
        py.detach(|| match self.live.lock()?.as_mut() {
            Some(held) if !self.is_closed.load(Ordering::Relaxed) => Ok(run(held)),
            _ => Err(PyValueError::new_err(format!(
                "the live recipe of {} is closed",
                self.path
            ))),
        })
    }
}

#[pymethods]
impl PyLive {
    // The arguments of Python's function, by position.
    #[allow(clippy::too_many_arguments)]
    #[staticmethod]
    fn watch(
        py: Python<'_>,
        path: String,
        settings: state::Settings,
        keep: usize,
        folder: Option<PathBuf>,
        keep_batches: usize,
        refuses: BTreeMap<String, String>,
        of_returns: Vec<String>,
    ) -> PyResult<PyLive> {
        let refuses = Hook::ALL
            .into_iter()
            .filter_map(|hook| Some((hook, refuses.get(hook.name())?.clone())));
        let options = LiveOptions {
            settings,
            refuses: refuses.collect(),
            of_returns,
            ..LiveOptions::default()
        };
        let open = || -> Result<Held, Diagnostics> {
            let live = LiveRecipe::watch(&host(), &path, options.clone())?;
            let settings = &options.settings;
            let record = folder.map(|folder| Record::open(&folder, &live, settings, keep_batches));
            Ok(Held {
                live,
                first_serial: 0,
                record: record.transpose()?,
                is_recorded: true,
                heard: Vec::new(),
            })
        };
        let held = py.detach(open).map_err(raise(py))?;
        Ok(PyLive {
            path,
            process: std::process::id(),
            options,
            keep,
            is_closed: AtomicBool::new(false),
            live: ForkLock::new(Some(held)),
        })
    }

    /// The advantage by the newest version that passed its checks, or by the one before where that fails.
    fn advantage(
        &self,
        py: Python<'_>,
        batch: &PyBatch,
        f64: bool,
        padded: bool,
    ) -> PyResult<Answer> {
        let shape = Shape { f64, padded };
        let done = self.with(py, |held| {
            pool::install(|| held.advantage(batch, self.keep, shape))
        })??;
        let (advantage, used) = done.map_err(raise(py))?;
        advantage.into_python(py, &used)
    }

    /// The loss by the version of the last step: one update's minibatches have one loss.
    fn loss(&self, py: Python<'_>, batch: &PyBatch, f64: bool) -> PyResult<Answer> {
        let compute = |held: &mut Held| -> Result<(Gradient, Used), Diagnostics> {
            let used = held.live.in_use().clone();
            let mut state = held.live.state().clone();
            // The loss is that of the last step.
            let step = held.live.next_step().saturating_sub(1);
            let batch = batch.batch.clone().at_step(batch.step.unwrap_or(step));
            let loss = used.recipe().loss(&batch, None, &mut state)?;
            held.live.set_state(state);
            Ok((Gradient::of(loss, f64), held.used(&used)))
        };
        let done = self.with(py, |held| pool::install(|| compute(held)))??;
        let (gradient, used) = done.map_err(raise(py))?;
        gradient.into_python(py, &used)
    }

    /// The newest version that passed its checks, and its number in the order of publication.
    fn newest(&self, py: Python<'_>) -> PyResult<(String, u64)> {
        self.with(py, |held| {
            let (version, serial) = held.used(&held.live.newest());
            (version.as_str().to_string(), serial)
        })
    }

    /// The version of the last step.
    #[getter]
    fn in_use(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |held| held.live.in_use().version().as_str().to_string())
    }

    #[getter]
    fn hooks(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        self.with(py, |held| hooks(held.live.newest().recipe()))
    }

    /// As that of a recipe, of the version of the last step.
    fn reads(&self, py: Python<'_>, columns: Vec<String>) -> PyResult<bool> {
        self.with(py, |held| reads(held.live.in_use().recipe(), &columns))
    }

    #[getter]
    fn params(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let newest = self.with(py, |held| held.live.newest())?;
        state::params(py, newest.recipe())
    }

    fn events(&self, py: Python<'_>) -> PyResult<Vec<Told>> {
        let heard = self.with(py, |held| {
            held.hear();
            std::mem::take(&mut held.heard)
        })?;
        Ok(heard.into_iter().map(|heard| told(py, heard)).collect())
    }

    /// Looks at the file now; when this returns, what it holds has been judged. False where that took too long.
    fn refresh(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.with(py, |held| held.live.refresh(time))
    }

    /// The version of the last step with its parameters and its state, and what the run has counted.
    fn left(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let (used, this, serial, next_step) = self.with(py, |held| {
            let used = held.live.in_use().clone();
            let serial = held.used(&used).1;
            let this = held.live.state().to_json();
            (used, this, serial, held.live.next_step())
        })?;
        let (recipe, left) = (used.recipe(), PyDict::new(py));
        left.set_item("name", recipe.name())?;
        left.set_item("version", recipe.version().as_str())?;
        left.set_item("serial", serial)?;
        left.set_item("next_step", next_step)?;
        left.set_item("sources", state::sources(recipe))?;
        left.set_item("params", state::params(py, recipe)?)?;
        left.set_item("state", this.to_string())?;
        Ok(left.unbind())
    }

    /// Goes on from where another left; the file is then judged as any new version is.
    fn resume(
        &self,
        py: Python<'_>,
        name: &str,
        sources: BTreeMap<String, String>,
        this: &str,
        serial: u64,
        next_step: u64,
    ) -> PyResult<()> {
        let this = state::read(py, this)?;
        let resumed = self.with(py, |held| -> Result<(), Diagnostics> {
            let options = LiveOptions {
                left: vec![(state::restored(name, &sources)?, this)],
                next_step,
                ..self.options.clone()
            };
            held.live = LiveRecipe::watch(&host(), &self.path, options)?;
            held.first_serial = serial;
            if let Some(record) = &mut held.record {
                record.resume();
            }
            Ok(())
        })?;
        resumed.map_err(raise(py))
    }

    /// Stops following.
    fn close(&self, py: Python<'_>) {
        if self.process == std::process::id() && !self.is_closed.swap(true, Ordering::Relaxed) {
            py.detach(|| self.live.lock().map(|mut live| live.take()).ok());
        }
    }
}

impl Drop for PyLive {
    fn drop(&mut self) {
        // The thread to wait for is not there after a fork.
        if self.process != std::process::id()
            && let Ok(mut live) = self.live.lock()
        {
            std::mem::forget(live.take());
        }
    }
}

/// A copy of the first groups of a batch, so many tokens of them, and of two groups in any case, as a version is tried on more
/// than one: the trainer's memory is its own again after the call.
fn kept(batch: &Batch, tokens: usize) -> Batch {
    let layout = batch.layout();
    let (mut taken, mut left) = (Vec::new(), tokens);
    for group in 0..layout.groups() {
        let members = layout
            .members(group)
            .iter()
            .map(|&response| response as usize);
        let size: usize = members
            .clone()
            .map(|response| layout.tokens_of(response).len())
            .sum();
        if group > 1 && size > left {
            break;
        }
        left = left.saturating_sub(size.max(1));
        taken.extend(members);
    }
    taken.sort_unstable();
    batch.select(&taken)
}

fn told(py: Python<'_>, heard: Heard) -> Told {
    let error = |error: Diagnostics| raise(py)(error).into_value(py).into_py_any(py).ok();
    let event = match heard {
        Heard::Live(event) => event,
        Heard::Folder(line, why) => return ("folder", line, None, why.and_then(error), false),
    };
    let line = in_python(&event.to_string());
    let name = |version: &advlab::script::Version| Some(version.as_str().to_string());
    let (kind, version, error, at_step) = match event {
        LiveEvent::Published(change) => ("published", name(&change.to), None, false),
        LiveEvent::Rejected {
            version,
            error: why,
            at_step,
            ..
        } => ("rejected", name(&version), error(why), at_step),
        LiveEvent::Missing { .. } => ("missing", None, None, false),
        LiveEvent::Reverted { version } => ("reverted", name(&version), None, false),
        LiveEvent::Warned { version, .. } => ("warned", name(&version), None, false),
        LiveEvent::PollingOnly { .. } => ("polling_only", None, None, false),
    };
    (kind, line, version, error, at_step)
}
