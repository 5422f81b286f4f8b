//! The results of calls, as Python dictionaries.

use std::collections::BTreeMap;
use std::time::Duration;

use advlab::script::Loss;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::to_numpy;
use crate::error::in_python;
use crate::held::{StepResult, Used};

/// With `padded`, one value per response also becomes [B, T].
pub fn of_advantage(
    py: Python<'_>,
    ((outcome, returns), used): (StepResult, Used),
    f64: bool,
    padded: bool,
) -> PyResult<Bound<'_, PyDict>> {
    let arrays = PyDict::new(py);
    for (name, values, padded) in [
        ("advantage", Some(&outcome.advantage), padded),
        ("returns", returns.as_ref(), padded),
        ("reward", outcome.reward.as_ref(), false),
        ("weight", outcome.weight.as_ref(), false),
    ] {
        let values = values.map(|values| to_numpy(py, values, f64, padded));
        arrays.set_item(name, values.transpose()?)?;
    }
    let times = (outcome.time, outcome.native);
    let answer = reported(
        py,
        outcome.metrics,
        outcome.prints,
        &outcome.notes,
        times,
        used,
    )?;
    answer.set_item("arrays", arrays)?;
    answer.set_item("level", outcome.advantage.level().name())?;
    answer.set_item("loss", outcome.loss)?;
    Ok(answer)
}

pub fn of_loss(
    py: Python<'_>,
    (loss, used): (Loss, Used),
    f64: bool,
) -> PyResult<Bound<'_, PyDict>> {
    let times = (loss.time, loss.native);
    let answer = reported(py, loss.metrics, loss.prints, &loss.notes, times, used)?;
    answer.set_item("grad", to_numpy(py, &loss.gradient, f64, false)?)?;
    answer.set_item("loss", loss.value)?;
    Ok(answer)
}

/// The entries that advantages and losses have in common.
fn reported<'py>(
    py: Python<'py>,
    metrics: Vec<(String, f64)>,
    prints: Vec<String>,
    notes: &[String],
    (time, native): (Duration, Option<Duration>),
    (version, serial, is_reloaded): Used,
) -> PyResult<Bound<'py, PyDict>> {
    let answer = PyDict::new(py);
    answer.set_item("metrics", BTreeMap::from_iter(metrics))?;
    answer.set_item("prints", prints)?;
    let notes = notes.iter().map(|note| in_python(note));
    answer.set_item("notes", notes.collect::<Vec<_>>())?;
    answer.set_item("seconds", time.as_secs_f64())?;
    answer.set_item("is_native", native.is_some())?;
    answer.set_item("version", version)?;
    answer.set_item("serial", serial)?;
    answer.set_item("is_reloaded", is_reloaded)?;
    Ok(answer)
}
