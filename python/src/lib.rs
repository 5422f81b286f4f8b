//! The native half of the Python package `advlab`: it takes arrays, runs recipes with the interpreter's lock released, and
//! gives arrays back. No formula stands here; what a user sees is made in `package/advlab`.

mod array;
mod batch;
mod error;
mod groups;
mod live;
mod output;
mod pool;
mod recipe;
mod state;

use std::ffi::OsString;
use std::process::ExitCode;

use advlab::Diagnostics;
use advlab::answers::Verdict;
use advlab::check::{CheckResult, check};
use advlab::paint::Paint;
use advlab::script::{BUILTINS, Host};
use advlab_cli::doc;
use pyo3::prelude::*;

use batch::PyBatch;
use error::{in_python, raise};
use recipe::PyRecipe;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    let error = module.py().get_type::<error::RecipeError>();
    for name in [
        "message",
        "path",
        "line",
        "column",
        "help",
        "missing_column",
    ] {
        // Of one that is made in Python.
        error.setattr(name, module.py().None())?;
    }
    module.add("RecipeError", error)?;
    module.add_class::<PyBatch>()?;
    module.add_class::<PyRecipe>()?;
    module.add_class::<live::PyLive>()?;
    module.add_function(wrap_pyfunction!(batch::row_sums, module)?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add_function(wrap_pyfunction!(recipes, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(check_recipe, module)?)?;
    module.add_function(wrap_pyfunction!(verify, module)?)?;
    module.add_function(wrap_pyfunction!(answer, module)?)
}

/// Runs the command line, and gives its exit status.
#[pyfunction]
fn command_line(py: Python<'_>, words: Vec<OsString>) -> u8 {
    let code = py.detach(|| advlab_cli::command_line(words));
    // There is no way to read a status but to compare it.
    let mut all = 0..=u8::MAX;
    all.find(|status| ExitCode::from(*status) == code)
        .unwrap_or(1)
}

/// The built-in recipes: name, and one line each.
#[pyfunction]
fn recipes(py: Python<'_>) -> PyResult<Vec<(&'static str, String)>> {
    let host = Host::new();
    let described = BUILTINS.iter().map(|builtin| {
        let recipe = host.load(builtin.name)?;
        Ok((builtin.name, recipe.summary().to_string()))
    });
    let described: Result<_, Diagnostics> = described.collect();
    described.map_err(raise(py))
}

/// A recipe or a function explained; an overview of all names without one.
#[pyfunction]
fn explain(py: Python<'_>, name: Option<&str>) -> PyResult<String> {
    match name {
        Some(name) => doc::explain(&Host::new(), name, Paint::PLAIN).map_err(raise(py)),
        None => Ok(doc::overview(Paint::PLAIN)),
    }
}

/// How the answer of a completion compares with that of a reference: `right`, `wrong`, `no answer` or `not decided`.
#[pyfunction]
fn verify(py: Python<'_>, solution: &str, completion: &str) -> &'static str {
    match py.detach(|| advlab::answers::equal(solution, completion)) {
        Verdict::Equal => "right",
        Verdict::Different => "wrong",
        Verdict::NoAnswer => "no answer",
        Verdict::Undecided => "not decided",
    }
}

/// The answer of a completion; `None` where it has none.
#[pyfunction]
fn answer(py: Python<'_>, completion: &str) -> Option<String> {
    py.detach(|| advlab::answers::answer(completion))
}

/// A check, how it came out, the detail, and the recipe's own error.
type Found = (&'static str, &'static str, String, Option<Py<PyAny>>);

/// The findings of `advlab check`.
#[pyfunction]
fn check_recipe(
    py: Python<'_>,
    recipe: &PyRecipe,
    batch: Option<&PyBatch>,
) -> PyResult<Vec<Found>> {
    let findings = py.detach(|| {
        let batch = batch.map(|batch| &batch.batch);
        pool::install(|| check(recipe.recipe(), batch))
    })?;
    let rows = findings.into_iter().map(|finding| {
        let result = match finding.result {
            CheckResult::Holds => "holds",
            CheckResult::Fails => "fails",
            CheckResult::Note => "note",
        };
        let error = finding
            .error
            .map(|error| raise(py)(error).into_value(py).into_any());
        (finding.check, result, in_python(&finding.detail), error)
    });
    Ok(rows.collect())
}
