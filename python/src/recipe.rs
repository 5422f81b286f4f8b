//! Python's `Recipe`: a recipe with its parameters and its state, which may follow its file.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use advlab::batch::Level;
use advlab::live::LiveOptions;
use advlab::plan::{Plan, terms};
use advlab::script::{Hook, Loss, ParamValue, Recipe, Reports, State};
use advlab::{Diagnostics, LiveRecipe};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::to_numpy;
use crate::batch::PyBatch;
use crate::error::{in_python, raise};
use crate::held::{EventFields, Follow, Held, Settings, StepResult, Used, compute, host, restore};
use crate::pool::{install, lock};

#[pyclass(frozen, subclass, name = "Recipe", module = "advlab._native")]
pub struct PyRecipe {
    #[pyo3(get)]
    name: String,
    /// The process that opened the recipe.
    process: u32,
    /// Whether a thread of that process follows the file.
    is_live: bool,
    /// `None` once the recipe is closed.
    held: Mutex<Option<Held>>,
}

#[pymethods]
impl PyRecipe {
    /// Opens a built-in by name, a script by path or, if given, the version made of `sources`.
    #[new]
    #[pyo3(signature = (name, settings, sources = None, follow = None))]
    fn new(
        py: Python<'_>,
        name: String,
        settings: Settings,
        sources: Option<BTreeMap<String, String>>,
        follow: Option<Follow>,
    ) -> PyResult<PyRecipe> {
        let is_live = follow.is_some();
        let open = || match follow {
            Some(follow) => Held::watch(&name, settings, follow),
            None => Held::load(&name, &settings, sources),
        };
        let held = py.detach(open).map_err(raise)?;
        Ok(PyRecipe {
            name,
            process: std::process::id(),
            is_live,
            held: Mutex::new(Some(held)),
        })
    }

    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |held| held.live.newest().version().as_str().to_string())
    }

    /// Returns the version of the last step.
    fn _in_use(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |held| held.live.in_use().version().as_str().to_string())
    }

    #[getter]
    fn serial(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |held| held.serial(&held.live.newest()))
    }

    #[getter]
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |held| held.live.newest().recipe().text().to_string())
    }

    #[getter]
    fn hooks(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        self.with(py, |held| {
            let newest = held.live.newest();
            let hooks = Hook::ALL.into_iter();
            let hooks = hooks.filter(|hook| newest.recipe().has(*hook));
            hooks.map(Hook::name).collect()
        })
    }

    #[getter]
    fn params(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        params(py, self.with(py, |held| held.live.newest())?.recipe())
    }

    /// Returns whether the code of the last step's version names one of these columns; names computed at run time do not count.
    fn _reads(&self, py: Python<'_>, columns: Vec<String>) -> PyResult<bool> {
        self.with(py, |held| {
            let named = held.live.in_use().recipe().reads();
            columns.iter().any(|column| named.contains(column))
        })
    }

    /// Returns the columns that the code of the newest version names, and whether the version may read only these columns.
    fn _columns(&self, py: Python<'_>) -> PyResult<(Vec<String>, bool)> {
        let newest = self.with(py, |held| held.live.newest())?;
        let named = newest.recipe().reads().iter().cloned().collect();
        Ok((named, newest.recipe().columns().is_some()))
    }

    /// Returns whether the last step computed nothing, because it must be repeated with the rows that `_takes_turns` names.
    fn _is_repeated(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |held| held.live.is_repeated())
    }

    /// Returns whether the newest version takes a row for each turn.
    fn _takes_turns(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |held| held.live.newest().recipe().takes_turns())
    }

    /// Computes the advantage by the newest version that passed its checks or, if that version fails, by an earlier version. If
    /// `padded` is true, values per response become [B, T] too. `turns` is passed on to [`LiveRecipe::rows_are_turns`].
    /// `one_per` is a level (`response` or `trajectory`) and a reason, for [`Batch::with_one_advantage_per`].
    fn _compute_advantage(
        &self,
        py: Python<'_>,
        batch: &PyBatch,
        f64: bool,
        padded: bool,
        turns: Option<bool>,
        one_per: Option<(String, String)>,
    ) -> PyResult<Py<PyDict>> {
        let mut whole = batch.batch.clone();
        if let Some((level, why)) = one_per {
            let is_trajectory = level == Level::Trajectory.name();
            let level = if is_trajectory {
                Level::Trajectory
            } else {
                Level::Response
            };
            whole = whole.with_one_advantage_per(level, &why);
        }
        let step = self.compute(py, |held| {
            let before = held.serial(held.live.in_use());
            let step = match self.is_live {
                true => held.step(&whole, batch.given_step, turns),
                false => held.update(|recipe, state| compute(recipe, &whole, state)),
            }?;
            Ok((step, held.used(before)))
        })?;
        of_advantage(py, step, f64, padded).map(Bound::unbind)
    }

    /// Computes the loss by the version of the last step, so that all minibatches of a step use the same loss.
    fn _compute_loss(&self, py: Python<'_>, batch: &PyBatch, f64: bool) -> PyResult<Py<PyDict>> {
        let loss = self.compute(py, |held| {
            let last = held.live.next_step().saturating_sub(1);
            let step = batch.given_step.unwrap_or(last);
            let batch = batch.batch.clone().at_step(step);
            let loss = held.update(|recipe, state| recipe.loss(&batch, None, state))?;
            Ok((loss, held.used(held.serial(held.live.in_use()))))
        })?;
        of_loss(py, loss, f64).map(Bound::unbind)
    }

    /// Returns the formula of the newest version over the columns of a batch. It is a text or, if `kind` is `torch` or
    /// `per_response`, a Python file that uses PyTorch.
    fn _plan(
        &self,
        py: Python<'_>,
        batch: Option<&PyBatch>,
        kind: &str,
        expand: bool,
    ) -> PyResult<String> {
        let batch = batch.map(|batch| &batch.batch);
        self.compute(py, |held| {
            let plan = Plan::of(held.live.newest().recipe(), batch, expand)?;
            match kind {
                "torch" => plan.torch(),
                "per_response" => plan.torch_per_response(),
                _ => Ok(plan.text()),
            }
        })
    }

    /// Returns the summands of the newest version's advantage and reward, each with hook, name, standard deviation and share of
    /// the sum of absolute values.
    fn _terms(
        &self,
        py: Python<'_>,
        batch: &PyBatch,
    ) -> PyResult<Vec<(&'static str, String, f64, f64)>> {
        self.compute(py, |held| {
            let (recipe, state) = (held.live.newest().recipe().clone(), held.live.state());
            let terms = terms(&recipe, &batch.batch, state)?.into_iter();
            Ok(terms
                .map(|term| (term.hook.name(), term.name, term.std, term.share))
                .collect())
        })
    }

    /// Returns the version of the last step with its parameters and its state as JSON, and the counters of the run.
    fn _left(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let (used, state, serial, next_step) = self.with(py, |held| {
            let used = held.live.in_use().clone();
            let (state, serial) = (held.live.state().to_json(), held.serial(&used));
            (used, state, serial, held.live.next_step())
        })?;
        let (recipe, left) = (used.recipe(), PyDict::new(py));
        left.set_item("name", recipe.name())?;
        left.set_item("version", used.version().as_str())?;
        left.set_item("serial", serial)?;
        left.set_item("next_step", next_step)?;
        left.set_item("sources", recipe.sources().collect::<BTreeMap<_, _>>())?;
        left.set_item("params", params(py, recipe)?)?;
        left.set_item("state", state.to_string())?;
        Ok(left.unbind())
    }

    fn _set_state(&self, py: Python<'_>, json: &str) -> PyResult<()> {
        let state = state_of(json)?;
        self.with(py, |held| held.live.set_state(state))
    }

    /// Resumes a run from its saved version and state. The content of the file is then checked like any new version.
    fn _resume(
        &self,
        py: Python<'_>,
        name: &str,
        sources: BTreeMap<String, String>,
        json: &str,
        serial: u64,
        next_step: u64,
    ) -> PyResult<()> {
        let state = state_of(json)?;
        self.compute(py, |held| {
            let host = host();
            let options = LiveOptions {
                left: vec![(restore(&host, name, &sources)?, state)],
                next_step,
                ..held.options.clone()
            };
            held.live = LiveRecipe::watch(&host, &self.name, options)?;
            held.first_serial = serial;
            if let Some(record) = &mut held.record {
                record.resume();
            }
            Ok(())
        })
    }

    /// Returns the events since the last call.
    fn _events(&self, py: Python<'_>) -> PyResult<Vec<EventFields>> {
        self.with(py, |held| {
            held.hear();
            std::mem::take(&mut held.events)
        })
    }

    /// Reads the file now, and returns when its content has been checked. Returns false if that takes longer than `seconds`.
    fn _refresh(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.with(py, |held| held.live.refresh(time))
    }

    /// Stops following the file, and drops the recipe, so that every later call fails. Does nothing in a forked child.
    fn _close(&self, py: Python<'_>) {
        if !self.is_in_child() {
            py.detach(|| lock(&self.held, false).map(|mut held| held.take()).ok());
        }
    }
}

impl PyRecipe {
    /// Returns whether this process is a fork of the process that opened the recipe.
    fn is_in_child(&self) -> bool {
        self.process != std::process::id()
    }

    /// Runs a function on the shared data, with the interpreter's lock released.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Held) -> R + Send,
    ) -> PyResult<R> {
        let (name, is_child) = (&self.name, self.is_in_child());
        if self.is_live && is_child {
            return Err(PyRuntimeError::new_err(format!(
                "the file of {name} is followed only in the process that opened it, not after a fork: call `advlab.watch` in this process"
            )));
        }
        py.detach(|| match lock(&self.held, is_child)?.as_mut() {
            Some(held) => Ok(run(held)),
            None => Err(PyValueError::new_err(format!(
                "the live recipe of {name} is closed"
            ))),
        })
    }

    /// Runs a function as [`PyRecipe::with`] does, on this process's threads.
    fn compute<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Held) -> Result<R, Diagnostics> + Send,
    ) -> PyResult<R> {
        self.with(py, |held| install(|| run(held)))??.map_err(raise)
    }

    /// Returns the version of the last step.
    pub fn in_use(&self, py: Python<'_>) -> PyResult<Recipe> {
        self.with(py, |held| held.live.in_use().recipe().clone())
    }
}

impl Drop for PyRecipe {
    fn drop(&mut self) {
        // In a forked child, the thread that follows the file does not exist, so the data is leaked instead of dropped.
        if self.is_live
            && self.is_in_child()
            && let Ok(mut held) = lock(&self.held, true)
        {
            std::mem::forget(held.take());
        }
    }
}

/// Makes the dictionary of an advantage. If `padded` is true, values per response become [B, T] too.
fn of_advantage(
    py: Python<'_>,
    ((outcome, returns), used): (StepResult, Used),
    f64: bool,
    padded: bool,
) -> PyResult<Bound<'_, PyDict>> {
    let (arrays, level) = (PyDict::new(py), outcome.advantage.level());
    for (name, values, padded) in [
        ("advantage", Some(outcome.advantage), padded),
        ("returns", returns, padded),
        ("reward", outcome.reward, false),
        ("weight", outcome.weight, false),
    ] {
        let values = values.map(|values| to_numpy(py, values, f64, padded));
        arrays.set_item(name, values.transpose()?)?;
    }
    let answer = reported(py, outcome.reports, used)?;
    answer.set_item("arrays", arrays)?;
    answer.set_item("level", level.name())?;
    answer.set_item("loss", outcome.loss)?;
    Ok(answer)
}

fn of_loss(py: Python<'_>, (loss, used): (Loss, Used), f64: bool) -> PyResult<Bound<'_, PyDict>> {
    let answer = reported(py, loss.reports, used)?;
    answer.set_item("grad", to_numpy(py, loss.gradient, f64, false)?)?;
    answer.set_item("loss", loss.value)?;
    Ok(answer)
}

/// Makes a dictionary with the entries that advantages and losses have in common.
fn reported(
    py: Python<'_>,
    reports: Reports,
    (version, serial, is_reloaded): Used,
) -> PyResult<Bound<'_, PyDict>> {
    let answer = PyDict::new(py);
    answer.set_item("metrics", BTreeMap::from_iter(reports.metrics))?;
    answer.set_item("prints", reports.prints)?;
    let notes = reports.notes.iter().map(|note| in_python(note));
    answer.set_item("notes", notes.collect::<Vec<_>>())?;
    answer.set_item("seconds", reports.time.as_secs_f64())?;
    answer.set_item("is_native", reports.native.is_some())?;
    answer.set_item("version", version)?;
    answer.set_item("serial", serial)?;
    answer.set_item("is_reloaded", is_reloaded)?;
    Ok(answer)
}

fn state_of(json: &str) -> PyResult<State> {
    let json = serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()));
    State::from_json(&json?).map_err(raise)
}

fn params(py: Python<'_>, recipe: &Recipe) -> PyResult<Py<PyDict>> {
    let params = PyDict::new(py);
    for (parameter, value) in recipe.params().iter() {
        params.set_item(&parameter.name, python_of(py, value)?)?;
    }
    Ok(params.unbind())
}

fn python_of(py: Python<'_>, value: &ParamValue) -> PyResult<Py<PyAny>> {
    match value {
        ParamValue::Integer(whole) => whole.into_py_any(py),
        ParamValue::Number(number) => number.into_py_any(py),
        ParamValue::Bool(truth) => truth.into_py_any(py),
        ParamValue::Text(text) => text.into_py_any(py),
        ParamValue::Unset => Ok(py.None()),
        ParamValue::List(values) => {
            let values = values.iter().map(|value| python_of(py, value));
            values.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
        }
    }
}
