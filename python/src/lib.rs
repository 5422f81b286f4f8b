//! The native half of the Python package `advlab`: takes arrays, runs recipes with the interpreter's lock released, and returns
//! arrays. It contains no formulas; `package/advlab` is the interface for users.

mod array;
mod batch;
mod error;
mod held;
mod pool;
mod recipe;
mod report;

use std::ffi::OsString;
use std::process::ExitCode;

use advlab::allocation::Counting;
use advlab::check::check;
use advlab::paint::Paint;
use advlab::script::{BUILTINS, Host};
use advlab_cli::doc;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use batch::PyBatch;
use error::{in_python, raise};
use recipe::PyRecipe;

/// The allocator, which counts the memory that scripts allocate, but not the memory that Python allocates.
#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<PyBatch>()?;
    module.add_class::<PyRecipe>()?;
    module.add_class::<report::PyReport>()?;
    module.add_function(wrap_pyfunction!(report::report, module)?)?;
    module.add_function(wrap_pyfunction!(row_sums, module)?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add_function(wrap_pyfunction!(recipes, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(check_recipe, module)?)?;
    module.add_function(wrap_pyfunction!(verify, module)?)?;
    module.add_function(wrap_pyfunction!(answer_of, module)?)
}

/// Returns the sums of the rows of an array [B, T], as float64 [B].
#[pyfunction]
fn row_sums<'py>(
    py: Python<'py>,
    array: &Bound<'py, PyUntypedArray>,
) -> PyResult<Bound<'py, numpy::PyArray1<f64>>> {
    Ok(numpy::PyArray1::from_vec(py, array::row_sums(array)?))
}

/// Runs the command line, and returns its exit status.
#[pyfunction]
fn command_line(py: Python<'_>, words: Vec<OsString>) -> u8 {
    let code = py.detach(|| advlab_cli::command_line(words));
    // The status is found by comparison, because an `ExitCode` can be compared but not read.
    let mut all = 0..=u8::MAX;
    all.find(|status| ExitCode::from(*status) == code)
        .unwrap_or(1)
}

/// Returns the built-in recipes by name, each with a line that describes it.
#[pyfunction]
fn recipes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let (host, recipes) = (Host::new(), PyDict::new(py));
    for builtin in BUILTINS {
        let recipe = host.load(builtin.name).map_err(raise)?;
        recipes.set_item(builtin.name, recipe.summary().to_string())?;
    }
    Ok(recipes)
}

/// Explains a recipe or a function, with an example; other words are searched for. Without a name, lists all names.
///
/// Raises `RecipeError` if nothing has that name and the search finds nothing.
#[pyfunction]
#[pyo3(name = "doc", signature = (name = None))]
fn explain(name: Option<&str>) -> PyResult<String> {
    match name {
        Some(name) => doc::explain(&Host::new(), name, Paint::PLAIN).map_err(raise),
        None => Ok(doc::overview(Paint::PLAIN)),
    }
}

/// Compares the answer of a completion with the answer of a reference: `right`, `wrong`, `no answer` or `not decided`.
#[pyfunction]
fn verify(py: Python<'_>, solution: &str, completion: &str) -> &'static str {
    py.detach(|| advlab::answers::equal(solution, completion))
        .name()
}

/// Returns the answer of a completion; None if it has none.
#[pyfunction(name = "answer")]
fn answer_of(py: Python<'_>, completion: &str) -> Option<String> {
    py.detach(|| advlab::answers::answer(completion))
}

/// A finding of `advlab check`, as the fields of Python's `Finding`.
type FindingFields = (&'static str, &'static str, String, Option<PyErr>);

#[pyfunction]
fn check_recipe(
    py: Python<'_>,
    recipe: &PyRecipe,
    batch: Option<&PyBatch>,
) -> PyResult<Vec<FindingFields>> {
    let recipe = recipe.in_use(py)?;
    let batch = batch.map(|batch| &batch.batch);
    let findings = pool::in_pool(py, || check(&recipe, batch))?;
    let findings = findings.into_iter().map(|finding| {
        let (detail, error) = (in_python(&finding.detail), finding.error.map(raise));
        (finding.check, finding.result.name(), detail, error)
    });
    Ok(findings.collect())
}
