//! Turns the script engine's errors into diagnostics: what happened in the field's words, where, and what to do.

mod functions;
mod habits;
mod parse;
mod runtime;
mod script;

use std::sync::Arc;

use rhai::EvalAltResult;

pub(super) use self::functions::unknown_function;
pub use self::habits::help_for_foreign;
pub(crate) use self::habits::{CLOSURE, type_in_words, type_named};
pub(crate) use self::script::Script;
use super::error::{line_column, problem};
use crate::diagnostic::Diagnostic;
use crate::tensor::Origin;

impl Script<'_> {
    pub(crate) fn explain(&self, error: &EvalAltResult) -> Diagnostic {
        let mut source: Arc<str> = self.name.clone();
        let mut trace = Vec::new();
        let mut innermost = error;
        // Each layer says in which function, or which module, the next one happened.
        loop {
            match innermost {
                EvalAltResult::ErrorInFunctionCall(function, of, inner, position) => {
                    if let Some((line, _)) = line_column(*position) {
                        let function = if function.starts_with(CLOSURE) {
                            "a closure".to_string()
                        } else {
                            format!("`{function}`")
                        };
                        trace.insert(0, format!("in {function}, called at {source}:{line}"));
                    }
                    if !of.is_empty() {
                        source = of.as_str().into();
                    }
                    innermost = inner;
                }
                EvalAltResult::ErrorInModule(module, inner, _) => {
                    source = module.as_str().into();
                    innermost = inner;
                }
                _ => break,
            }
        }
        let place = match origin(innermost) {
            // The tensor at fault was made elsewhere than where its value was asked for: that is the line to look at.
            Some(origin) => self.place_of(&origin),
            None => self.place(&source, innermost.position()),
        };
        if let EvalAltResult::ErrorParsing(kind, _) = innermost {
            return parse::not_parsed(self, kind, place);
        }
        let diagnostic = runtime::failed(self, innermost, place.as_ref());
        trace
            .into_iter()
            .fold(diagnostic.at(place), Diagnostic::with_note)
    }
}

/// Where the tensor at fault was made, if an error has one.
fn origin(error: &EvalAltResult) -> Option<Origin> {
    let (EvalAltResult::ErrorRuntime(value, _) | EvalAltResult::ErrorTerminated(value, _)) = error
    else {
        return None;
    };
    problem(value)?.tensor?.origin
}
