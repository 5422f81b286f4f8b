//! Converts diagnostics to a Python exception, with help in terms of Python. Values that are not arrays of numbers are refused
//! earlier, in `package/advlab/_arrays.py`.

use advlab::diagnostic::{Diagnostic, Diagnostics, Problem};
use pyo3::prelude::*;

pyo3::import_exception!(advlab, RecipeError);

/// Makes an exception with the text of all diagnostics, and with the message, location and help of the first diagnostic.
pub fn raise(diagnostics: impl Into<Diagnostics>) -> PyErr {
    let diagnostics = translated(diagnostics.into());
    let text = diagnostics.render(false).trim_end().to_string();
    let (first, file) = (&diagnostics[0], &diagnostics[0].file);
    let (path, line, column) = match &first.span {
        Some(span) => (span.source.to_string(), Some(span.line), Some(span.column)),
        None => (file.path.display().to_string(), file.line, file.column),
    };
    let path = Some(path).filter(|path| !path.is_empty());
    let missing_column = first.missing_column().map(str::to_string);
    let (message, help) = (first.message.clone(), first.help.clone());
    RecipeError::new_err((text, message, path, line, column, help, missing_column))
}

fn translated(diagnostics: Diagnostics) -> Diagnostics {
    let one = |problem: &Diagnostic| {
        let mut problem = problem.clone();
        if problem.message == "the batch has no column `advantage`" {
            let help = "pass it to the loss: `loss(advantage=out.advantage, ...)`, with `out` from a recipe's `advantage`";
            problem.help = Some(help.to_string());
        }
        let of: &mut Problem = &mut problem;
        let texts = [&mut of.found, &mut of.expected, &mut of.help];
        let texts = texts.into_iter().flatten().chain(&mut of.notes);
        for text in texts.chain([&mut of.message]) {
            *text = in_python(text);
        }
        problem
    };
    Diagnostics::several(diagnostics.iter().map(one).collect()).unwrap_or(diagnostics)
}

/// Returns a message of the library in which commands and options, in backticks, are replaced by their Python equivalents.
pub fn in_python(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        1 => typed(part).unwrap_or_else(|| part.to_string()),
        _ => part.replace(" --out", " folder"),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Returns the Python expression that replaces words of the command line; `None` if the words stay as they are.
fn typed(words: &str) -> Option<String> {
    let (command, rest) = words.split_once(' ').unwrap_or((words, ""));
    let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
    let fixed = match (command, rest) {
        ("outcome.weighted(&batch)", "") => "weight=out.weight",
        ("--map", "") => "map",
        ("--map", _) => return Some(format!("map={{\"{name}\": \"{value}\"}}")),
        ("--unscored", _) => return Some(format!("unscored=\"{rest}\"")),
        ("--set", _) => rest,
        ("--input", _) => "batch=batch",
        ("--step", "N") => "step=N",
        ("--step", "") => "step",
        ("--dtype", "f32") => "dtype=\"float32\"",
        ("--dtype", "f64") => "dtype=\"float64\"",
        ("--out", _) => "folder",
        ("advlab", "doc") => "advlab.doc()",
        ("advlab", _) if rest.starts_with("check") => "advlab.check(recipe, batch)",
        ("advlab", _) if rest.starts_with("apply") => "recipe.advantage(batch)",
        ("advlab", _) if rest.starts_with("recipes") => "advlab.recipes()",
        ("advlab", _) if rest.starts_with("train") => "advlab.watch",
        _ => return None,
    };
    Some(fixed.to_string())
}
