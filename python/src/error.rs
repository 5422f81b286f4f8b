//! Diagnostics as a Python exception.

use advlab::{Diagnostic, Diagnostics};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

create_exception!(
    advlab,
    RecipeError,
    PyValueError,
    "What is wrong with a recipe, its parameters, or a batch.\n\n\
     str(e) shows the script's line with a caret under the place. `path`, `line`, `column` and `help` are of the first \
     problem, None where there is none; `missing_column` is the name of the column that it lacks, if that is the problem."
);

/// Makes an exception of diagnostics.
pub fn raise<D: Into<Diagnostics>>(py: Python<'_>) -> impl Fn(D) -> PyErr {
    move |diagnostics| {
        let diagnostics = translated(diagnostics.into());
        let error = RecipeError::new_err(diagnostics.render(false).trim_end().to_string());
        let first = &diagnostics[0];
        let file = &first.file;
        let (path, line, column) = match &first.span {
            Some(span) => {
                let (line, column) = (Some(span.line), Some(span.column));
                (Some(span.source.to_string()), line, column)
            }
            None => {
                let path = Some(file.path.display().to_string()).filter(|path| !path.is_empty());
                (path, file.line, file.column)
            }
        };
        let value = error.value(py);
        let set = || -> PyResult<()> {
            value.setattr("path", path)?;
            value.setattr("line", line)?;
            value.setattr("column", column)?;
            value.setattr("help", first.help.as_deref())?;
            value.setattr("missing_column", first.missing_column())?;
            value.setattr("message", &*first.message)
        };
        // An exception that takes no attributes is one all the same.
        match set() {
            Ok(()) => error,
            Err(other) => other,
        }
    }
}

/// The diagnostics with what to type in Python.
fn translated(diagnostics: Diagnostics) -> Diagnostics {
    let one = |problem: &Diagnostic| {
        let mut problem = problem.clone();
        if problem.missing_column() == Some("advantage") {
            let help = "a loss is given it: `loss(advantage=out.advantage, ...)`, of a recipe's `advantage`";
            problem.help = Some(help.to_string());
        }
        problem.message = in_python(&problem.message);
        let known = |text: &Option<String>| text.as_deref().map(in_python);
        problem.found = known(&problem.found);
        problem.expected = known(&problem.expected);
        problem.help = known(&problem.help);
        let notes = problem.notes.iter().map(|note| in_python(note));
        problem.notes = notes.collect();
        problem
    };
    Diagnostics::several(diagnostics.iter().map(one).collect()).unwrap_or(diagnostics)
}

/// A message of the library's whose words in backticks are the command line's, with those of the package in their place.
pub fn in_python(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        1 => typed(part).unwrap_or_else(|| part.to_string()),
        _ => part.replace(" --out", " folder"),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// What to type for words of the command line.
fn typed(words: &str) -> Option<String> {
    if words == "outcome.weighted(&batch)" {
        return Some("weight=out.weight".to_string());
    }
    let (command, rest) = words.split_once(' ').unwrap_or((words, ""));
    let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
    Some(match (command, name) {
        ("--map", "") => "map".to_string(),
        ("--map", _) => format!("map={{\"{name}\": \"{value}\"}}"),
        ("--set", _) => rest.to_string(),
        ("--dtype", "f32" | "f64") => format!("dtype=\"float{}\"", &name[1..]),
        ("--out", _) => "folder".to_string(),
        ("advlab", "doc") => "advlab.doc()".to_string(),
        ("advlab", "check RECIPE FILE") => "advlab.check(recipe, batch)".to_string(),
        ("advlab", _) if name.starts_with("apply") => "recipe.advantage(batch)".to_string(),
        ("advlab", _) if name.starts_with("recipes") => "advlab.recipes()".to_string(),
        ("advlab", _) if name.starts_with("train") => "advlab.watch".to_string(),
        _ => return None,
    })
}
