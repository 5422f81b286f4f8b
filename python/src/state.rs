//! What `package/advlab/_state.py` makes of Python objects, a recipe's state (`this`) and its parameters, and its sources.

use std::collections::BTreeMap;

use advlab::Diagnostics;
use advlab::script::{Recipe, Setting, State};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::raise;
use crate::recipe::host;

/// The state of a JSON, which [`State::to_json`] gives.
pub fn read(py: Python<'_>, json: &str) -> PyResult<State> {
    let json = serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()));
    State::from_json(&json?).map_err(raise(py))
}

/// Parameters that are set, by the name of each, as `--set` takes them.
pub type Settings = Vec<(String, String)>;

pub fn set(recipe: &mut Recipe, settings: &Settings) -> Result<(), Diagnostics> {
    for (name, value) in settings {
        recipe.set_text(name, value)?;
    }
    Ok(())
}

/// The parameters with their values.
pub fn params(py: Python<'_>, recipe: &Recipe) -> PyResult<Py<PyDict>> {
    let params = PyDict::new(py);
    for (parameter, value) in recipe.params().iter() {
        params.set_item(&parameter.name, python_of(py, value)?)?;
    }
    Ok(params.unbind())
}

fn python_of(py: Python<'_>, value: &Setting) -> PyResult<Py<PyAny>> {
    match value {
        Setting::Whole(whole) => whole.into_py_any(py),
        Setting::Number(number) => number.into_py_any(py),
        Setting::Truth(truth) => truth.into_py_any(py),
        Setting::Text(text) => text.into_py_any(py),
        Setting::Nothing => Ok(py.None()),
        Setting::List(values) => {
            let values = values.iter().map(|value| python_of(py, value));
            values.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
        }
    }
}

/// The version of these sources.
pub fn restored(name: &str, sources: &BTreeMap<String, String>) -> Result<Recipe, Diagnostics> {
    let sources = sources.iter();
    host().restore(name, sources.map(|(name, text)| (&**name, &**text)))
}

/// The names and texts of a recipe and of all that it imports.
pub fn sources(recipe: &Recipe) -> BTreeMap<String, String> {
    let sources = recipe.sources();
    sources
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect()
}
