//! Turns the script engine's errors into diagnostics: what happened in the field's words, where, and what to do.

mod elsewhere;
mod functions;
mod parse;
mod runtime;
mod script;
mod stopped;

pub(super) use functions::unknown_function;
pub(super) use runtime::{SEES, tensor_condition, tensor_property};
pub(super) use script::Script;

use rhai::Dynamic;

use super::error::Problem;

/// The prefix of the engine's names for closures.
pub(super) const CLOSURE: &str = "anon$";

const NOTHING: &str =
    "an `if` without an `else` gives nothing, as does a block whose last line ends in `;`";

fn problem(value: &Dynamic) -> Option<Problem> {
    value.read_lock::<Problem>().map(|problem| problem.clone())
}

/// A message of the engine's, as the middle of a sentence.
fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().collect::<String>() + letters.as_str()
    })
}
