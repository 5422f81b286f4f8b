//! The reports of the commands and of the prompt, each with a text in colours, a figure if there is one, and numbers.

use std::path::PathBuf;

use advlab::diagnostic::Diagnostics;
use advlab::paint::{Paint, WIDTH};
use advlab::script::Recipe;
use advlab::session::Answer;
use advlab::{Batch, Diagnostic};
use advlab_cli::prompt::builtin;
use advlab_cli::report::compare::{Comparison, read};
use advlab_cli::report::study::{curve, diff, mass, objectives, outcome, surface};
use advlab_cli::report::{Report, check, show};
use pyo3::prelude::*;
use serde_json::Value;

use crate::batch::PyBatch;
use crate::error::{in_python, raise};
use crate::pool::in_pool;
use crate::recipe::PyRecipe;

/// The style of texts: in colours, with lines as wide as those that a command writes to a file.
const PAINT: Paint = Paint {
    color: true,
    width: WIDTH,
};

/// The output of a command.
#[pyclass(frozen, name = "Report", module = "advlab._native")]
pub struct PyReport(Report);

#[pymethods]
impl PyReport {
    /// Returns the text below the figure.
    #[getter]
    fn text(&self) -> String {
        in_python(&self.0.text)
    }

    /// Returns the figure as text, and the text below it.
    fn whole(&self) -> String {
        in_python(&self.0.whole(usize::MAX))
    }

    #[getter]
    fn svg(&self) -> Option<String> {
        self.0.shown_figure().map(|figure| figure.svg())
    }

    /// Returns the rows of the table and all other numbers, as JSON.
    fn numbers(&self) -> (String, String) {
        let mut numbers = (Value::from(self.0.rows()), self.0.about.clone());
        translate(&mut numbers.0);
        translate(&mut numbers.1);
        (numbers.0.to_string(), numbers.1.to_string())
    }

    /// Writes the report to a file, as the command does; `plain` is the whole text without colours.
    fn save(&self, path: PathBuf, plain: &str) -> PyResult<()> {
        self.0.write(&path, plain).map_err(raise)
    }
}

/// Replaces commands and options of the command line by their Python equivalents, in all strings of a report.
fn translate(value: &mut Value) {
    match value {
        Value::String(text) => *text = in_python(text),
        Value::Array(values) => values.iter_mut().for_each(translate),
        Value::Object(entries) => entries.values_mut().for_each(translate),
        _ => {}
    }
}

/// Makes the report of a command or of one of the prompt's commands.
#[pyfunction]
#[pyo3(signature = (kind, recipes, batch = None, n = None, noise = None, folders = Vec::new()))]
pub fn report(
    py: Python<'_>,
    kind: &str,
    recipes: Vec<PyRef<'_, PyRecipe>>,
    batch: Option<PyRef<'_, PyBatch>>,
    n: Option<usize>,
    noise: Option<f64>,
    folders: Vec<PathBuf>,
) -> PyResult<PyReport> {
    let recipes = recipes.iter().map(|recipe| recipe.in_use(py));
    let recipes: Vec<Recipe> = recipes.collect::<PyResult<_>>()?;
    let batch = batch.map(|batch| batch.batch.clone());
    let report = in_pool(py, || {
        made(kind, recipes, batch.as_ref(), (n, noise), &folders)
    })?;
    report.map(PyReport).map_err(raise)
}

fn made(
    kind: &str,
    recipes: Vec<Recipe>,
    batch: Option<&Batch>,
    (n, noise): (Option<usize>, Option<f64>),
    folders: &[PathBuf],
) -> Result<Report, Diagnostics> {
    match (kind, &recipes[..], batch) {
        ("check", [recipe], batch) => {
            let mut report = check::report(recipe, batch, PAINT);
            if let Some(warnings) = Diagnostics::several(recipe.warnings().to_vec()) {
                report.text.insert_str(0, &warnings.render_within(PAINT));
            }
            Ok(report)
        }
        ("curve", [_, ..], Some(batch)) => curve::report(recipes, batch, n, PAINT),
        ("curve", [_, ..], None) => curve::report(recipes, &builtin(), n.or(Some(16)), PAINT),
        ("objective", [_, ..], batch) => objectives::report(&recipes, batch, n, noise, PAINT),
        ("surface", [recipe], None) => Ok(Report::of_figure(surface(recipe, false)?, PAINT)),
        ("mass", [first, ..], Some(batch)) => {
            mass::report(&recipes, &first.host().loss()?, batch, None, PAINT)
        }
        ("run", [recipe], Some(batch)) => {
            let loss = (recipe.host().loss()?, "default");
            outcome::report(recipe, batch, loss, true, PAINT)
        }
        ("diff", [a, b], Some(batch)) => diff::report(a, b, batch, PAINT),
        ("compare", [], None) => {
            let words = folders
                .iter()
                .map(|folder| format!(" {}", folder.display()));
            let command = format!("advlab compare{}", words.collect::<String>());
            Ok(Comparison::of(read(folders)?, &[]).report(PAINT, &command))
        }
        ("summary", [], Some(batch)) => match advlab::Host::new().evaluate("batch", batch)? {
            Answer::Batch(columns) => Ok(show::batch(&columns, PAINT)),
            _ => unreachable!("`batch` is a batch"),
        },
        _ => Err(Diagnostic::error(format!("these arguments give no report `{kind}`")).into()),
    }
}
