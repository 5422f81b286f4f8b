//! A recipe that follows its file.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use advlab::live::{LiveEvent, LiveOptions};
use advlab::script::{Recipe, State};
use advlab::{Batch, Diagnostics, LiveRecipe};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::error::raise;
use crate::pool::{self, ForkLock};
use crate::recipe::{Advantage, Answer, Gradient, GroupUse, Shape, host};
use crate::state;

#[pyclass(frozen, name = "Live", module = "advlab._native")]
pub struct PyLive {
    path: String,
    /// The process whose thread follows the file.
    process: u32,
    settings: state::Settings,
    /// Tokens of the last batch that are kept to try new versions on.
    keep: usize,
    is_closed: AtomicBool,
    groups: GroupUse,
    live: ForkLock<Option<LiveRecipe>>,
    /// The state that the last step began with.
    before: Mutex<Option<State>>,
}

/// A version with its state: name, version, sources, parameters, `this`.
type Left = (
    String,
    String,
    BTreeMap<String, String>,
    Py<PyDict>,
    Py<PyAny>,
);

/// An event: its kind, its line, the version that it is about, the error with its place, and whether it came at a step.
type Told = (
    &'static str,
    String,
    Option<String>,
    Option<Py<PyAny>>,
    bool,
);

impl PyLive {
    fn open(
        path: &str,
        settings: &state::Settings,
        left: Vec<(Recipe, State)>,
    ) -> Result<LiveRecipe, Diagnostics> {
        let host = host();
        // Also says which values a parameter takes, where one does not fit.
        if left.is_empty() {
            state::set(&mut host.load(path)?, settings)?;
        }
        let texts = settings
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()));
        let options = LiveOptions {
            settings: texts.collect(),
            left,
            ..LiveOptions::default()
        };
        LiveRecipe::watch(&host, path, options)
    }

    fn before(&self) -> MutexGuard<'_, Option<State>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs something on the live recipe, with the interpreter's lock released.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut LiveRecipe) -> R + Send,
    ) -> PyResult<R> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(format!(
                "the file of {} is followed in the process that opened it, and not after a fork: call `advlab.watch` in this one",
                self.path
            )));
        }
        py.detach(|| match self.live.lock()?.as_mut() {
            Some(live) if !self.is_closed.load(Ordering::Relaxed) => Ok(run(live)),
            _ => Err(PyValueError::new_err(format!(
                "the live recipe of {} is closed",
                self.path
            ))),
        })
    }
}

#[pymethods]
impl PyLive {
    #[staticmethod]
    fn watch(
        py: Python<'_>,
        path: String,
        params: &Bound<'_, PyDict>,
        keep: usize,
    ) -> PyResult<PyLive> {
        let settings = state::settings(params)?;
        let live = py.detach(|| PyLive::open(&path, &settings, Vec::new()));
        let live = live.map_err(raise(py))?;
        Ok(PyLive {
            path,
            process: std::process::id(),
            settings,
            keep,
            is_closed: AtomicBool::new(false),
            groups: GroupUse::default(),
            live: ForkLock::new(Some(live)),
            before: Mutex::default(),
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
        let done = self.with(py, |live| {
            live.begin_step();
            pool::install(|| {
                live.observe(&kept(&batch.batch, self.keep));
                loop {
                    let before = live.state().clone();
                    let mut state = before.clone();
                    match live.in_use().recipe().advantage(&batch.batch, &mut state) {
                        Ok(outcome) => {
                            *self.before() = Some(before);
                            live.set_state(state);
                            let used = live.in_use();
                            let used = (used.version().as_str().to_string(), used.serial());
                            return Ok((Advantage::of(outcome, shape), used));
                        }
                        Err(error) => live.reject(error)?,
                    };
                }
            })
        })??;
        let (advantage, used) = done.map_err(|error: Diagnostics| raise(py)(error))?;
        with_version(py, advantage.into_python(py)?, used)
    }

    /// The loss by the version of the last step: one update's minibatches have one loss.
    fn loss(&self, py: Python<'_>, batch: &PyBatch, f64: bool) -> PyResult<Answer> {
        let done = self.with(py, |live| {
            pool::install(|| {
                self.groups.check(live.in_use().recipe(), batch)?;
                let mut state = live.state().clone();
                let loss = live
                    .in_use()
                    .recipe()
                    .loss(&batch.batch, None, &mut state)?;
                live.set_state(state);
                let used = live.in_use();
                Ok((
                    Gradient::of(loss, f64),
                    (used.version().as_str().to_string(), used.serial()),
                ))
            })
        })??;
        let (gradient, used) = done.map_err(|error: Diagnostics| raise(py)(error))?;
        with_version(py, gradient.into_python(py)?, used)
    }

    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    /// The newest version that passed its checks, and its number in the order of publication.
    fn newest(&self, py: Python<'_>) -> PyResult<(String, u64)> {
        self.with(py, |live| {
            let newest = live.newest();
            (newest.version().as_str().to_string(), newest.serial())
        })
    }

    #[getter]
    fn hooks(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        self.with(py, |live| {
            let newest = live.newest();
            let hooks = advlab::script::Hook::ALL.into_iter();
            hooks
                .filter(|hook| newest.recipe().has(*hook))
                .map(|hook| hook.name())
                .collect()
        })
    }

    #[getter]
    fn params(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let newest = self.with(py, |live| live.newest())?;
        state::params(py, newest.recipe())
    }

    fn events(&self, py: Python<'_>) -> PyResult<Vec<Told>> {
        let events = self.with(py, |live| live.events())?;
        Ok(events.into_iter().map(|event| told(py, event)).collect())
    }

    /// Looks at the file now; when this returns, what it holds has been judged. False where that took too long.
    fn refresh(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.with(py, |live| live.refresh(time))
    }

    /// The version of the last step with its parameters and its state, or the one that the step began with: name, version,
    /// sources, parameters, `this`.
    fn left(&self, py: Python<'_>, is_before: bool) -> PyResult<Left> {
        let (used, this) = self.with(py, |live| {
            let before = self.before().clone().filter(|_| is_before);
            let this = before.unwrap_or_else(|| live.state().clone());
            (live.in_use().clone(), this)
        })?;
        let recipe = used.recipe();
        Ok((
            recipe.name().to_string(),
            recipe.version().as_str().to_string(),
            state::sources(recipe),
            state::params(py, recipe)?,
            state::to_python(py, &this)?,
        ))
    }

    /// Goes on from where another left; the file is then judged as any new version is.
    fn resume(
        &self,
        py: Python<'_>,
        name: &str,
        sources: BTreeMap<String, String>,
        this: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let this = state::from_python(this)?;
        let resumed = self.with(py, |live| -> Result<(), Diagnostics> {
            let texts = sources
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()));
            let recipe = host().restore(name, texts)?;
            *live = PyLive::open(&self.path, &self.settings, vec![(recipe, this)])?;
            *self.before() = None;
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

fn with_version(
    py: Python<'_>,
    answer: Answer,
    (version, serial): (String, u64),
) -> PyResult<Answer> {
    answer.bind(py).set_item("version", version)?;
    answer.bind(py).set_item("serial", serial)?;
    Ok(answer)
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

fn told(py: Python<'_>, event: LiveEvent) -> Told {
    let line = event.to_string();
    let version = |version: &advlab::script::Version| Some(version.as_str().to_string());
    match event {
        LiveEvent::Published(change) => ("published", line, version(&change.to), None, false),
        LiveEvent::Rejected {
            version: failed,
            error,
            at_step,
            ..
        } => {
            let error = raise(py)(error).into_value(py).into_py_any(py).ok();
            ("rejected", line, version(&failed), error, at_step)
        }
        LiveEvent::Missing { .. } => ("missing", line, None, None, false),
        LiveEvent::Reverted { version: back } => ("reverted", line, version(&back), None, false),
        LiveEvent::Warned {
            version: warned, ..
        } => ("warned", line, version(&warned), None, false),
        LiveEvent::PollingOnly { .. } => ("polling_only", line, None, None, false),
        _ => ("other", line, None, None, false),
    }
}
