//! A recipe's state (`this`), its parameters and its sources as Python objects, and back.

use std::collections::BTreeMap;

use advlab::script::{Recipe, Setting, State};
use advlab::{Diagnostic, Diagnostics};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use serde_json::{Value, json};

use crate::error::raise;
use crate::recipe::host;

/// Where a state's dictionary has what is remembered by key: no name that a script could give a field.
const BY_KEY: &str = "(by key)";

/// The state as dictionaries, lists, numbers and strings; a character becomes a string. What is remembered by key stands under
/// `(by key)`: for each table a list of keys with their numbers, the one that was written longest ago first.
pub fn to_python(py: Python<'_>, state: &State) -> PyResult<Py<PyAny>> {
    let mut json = state.to_json();
    if let Some(tables) = json
        .as_object_mut()
        .and_then(|state| state.remove("tables"))
    {
        let as_floats = |table: &Value| -> Value {
            let entries = table.as_array().into_iter().flatten();
            entries
                .map(|entry| json!([entry[0], { "f64": entry[1] }]))
                .collect()
        };
        let tables = tables.as_object().into_iter().flatten();
        let tables = tables.map(|(name, table)| (name.clone(), as_floats(table)));
        json["map"][BY_KEY] = json!({ "map": tables.collect::<serde_json::Map<_, _>>() });
    }
    object(py, &json)
}

/// [`State::to_json`] marks floats, characters and maps, each by an object with one entry.
fn object(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Null => Ok(py.None()),
        Value::Bool(truth) => truth.into_py_any(py),
        Value::Number(number) => number.as_i64().into_py_any(py),
        Value::String(text) => text.into_py_any(py),
        Value::Array(values) => {
            let values = values.iter().map(|value| object(py, value));
            values.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
        }
        Value::Object(marked) => match marked.iter().next() {
            Some((mark, Value::Object(entries))) if mark == "map" => {
                let map = PyDict::new(py);
                for (key, value) in entries {
                    map.set_item(key, object(py, value)?)?;
                }
                map.into_py_any(py)
            }
            Some((mark, Value::String(text))) if mark == "f64" => {
                let number = if text.starts_with("NaN") {
                    f64::NAN
                } else {
                    text.parse().unwrap_or(f64::NAN)
                };
                number.into_py_any(py)
            }
            Some((_, other)) => object(py, other),
            None => Ok(py.None()),
        },
    }
}

/// The state of a dictionary.
pub fn from_python(this: &Bound<'_, PyAny>) -> PyResult<State> {
    let mut state = json(this)?;
    let map = state.get_mut("map").and_then(Value::as_object_mut);
    let by_key = map.and_then(|map| map.remove(BY_KEY));
    if let Some(by_key) = by_key {
        let as_texts = |table: &Value| -> Value {
            let entries = table.as_array().into_iter().flatten();
            entries
                .map(|entry| json!([entry[0], entry[1]["f64"]]))
                .collect()
        };
        let tables = by_key["map"].as_object().into_iter().flatten();
        let tables = tables.map(|(name, table)| (name.clone(), as_texts(table)));
        state["tables"] = Value::Object(tables.collect());
    }
    State::from_json(&state).map_err(raise(this.py()))
}

fn json(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        Ok(Value::Null)
    } else if let Ok(truth) = value.cast::<PyBool>() {
        Ok(truth.is_true().into())
    } else if value.is_instance_of::<PyInt>() {
        Ok(value.extract::<i64>()?.into())
    } else if value.is_instance_of::<PyFloat>() {
        Ok(
            json!({ "f64": format!("{:?}", value.extract::<f64>()?).replace("NaN", "NaN:7ff8000000000000") }),
        )
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(text.to_cow()?.into())
    } else if let Ok(list) = value.cast::<PyList>() {
        list.iter().map(|value| json(&value)).collect()
    } else if let Ok(map) = value.cast::<PyDict>() {
        let entries = map
            .iter()
            .map(|(key, value)| Ok((key.extract::<String>()?, json(&value)?)));
        let entries: serde_json::Map<_, _> = entries.collect::<PyResult<_>>()?;
        Ok(json!({ "map": entries }))
    } else {
        let message = format!(
            "{value} cannot be kept in a recipe's state: numbers, strings, lists and dictionaries can"
        );
        Err(PyTypeError::new_err(message))
    }
}

/// Parameters that are set, by the name of each.
pub type Settings = Vec<(String, Setting)>;

/// The values of keywords; those of NumPy and torch by their `item()`.
pub fn settings(params: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let params = params.iter();
    params
        .map(|(name, value)| Ok((name.extract()?, setting(&name, &value)?)))
        .collect()
}

fn setting(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Setting> {
    if value.is_none() {
        Ok(Setting::Nothing)
    } else if let Ok(truth) = value.cast::<PyBool>() {
        Ok(Setting::Truth(truth.is_true()))
    } else if value.is_instance_of::<PyInt>() {
        Ok(Setting::Whole(value.extract()?))
    } else if value.is_instance_of::<PyFloat>() {
        Ok(Setting::Number(value.extract()?))
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(Setting::Text(text.to_string()))
    } else if let Ok(list) = value.cast::<PyList>() {
        let values = list.iter().map(|value| setting(name, &value));
        Ok(Setting::List(values.collect::<PyResult<_>>()?))
    } else if let Ok(item) = value.call_method0("item") {
        setting(name, &item)
    } else {
        let message = format!(
            "`{name}` is {value}: a parameter is a number, a truth value, a string, a list of these or None"
        );
        Err(PyTypeError::new_err(message))
    }
}

/// Sets parameters; strings as the command line's, so that `k="8"` of a configuration is a number where it must be one.
pub fn set(recipe: &mut Recipe, settings: &Settings) -> Result<(), Diagnostics> {
    for (name, value) in settings {
        let is_set: Result<(), Diagnostic> = match value {
            Setting::Text(text) => recipe.set_text(name, text),
            value => recipe.set(name, value.clone()),
        };
        is_set?;
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
    Ok(match value {
        Setting::Whole(whole) => whole.into_py_any(py)?,
        Setting::Number(number) => number.into_py_any(py)?,
        Setting::Truth(truth) => truth.into_py_any(py)?,
        Setting::Text(text) => text.into_py_any(py)?,
        Setting::Nothing => py.None(),
        Setting::List(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(python_of(py, value)?)?;
            }
            list.into_py_any(py)?
        }
    })
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
