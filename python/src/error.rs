//! Diagnostics as a Python exception.

use advlab::Diagnostics;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

create_exception!(
    advlab,
    RecipeError,
    PyValueError,
    "What is wrong with a recipe, its parameters, or a batch.\n\n\
     str(e) shows the script's line with a caret under the place. `path`, `line`, `column` and `help` are of the first \
     problem, None where there is none."
);

/// Makes an exception of diagnostics.
pub fn raise<D: Into<Diagnostics>>(py: Python<'_>) -> impl Fn(D) -> PyErr {
    move |diagnostics| {
        let diagnostics = diagnostics.into();
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
            value.setattr("message", &*first.message)
        };
        // An exception that takes no attributes is one all the same.
        match set() {
            Ok(()) => error,
            Err(other) => other,
        }
    }
}
