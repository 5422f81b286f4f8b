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
use super::error::{call_error, line_column};
use crate::diagnostic::{Diagnostic, Span};

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
        let place =
            reported_place(self, innermost).or_else(|| self.place(&source, innermost.position()));
        if let EvalAltResult::ErrorParsing(kind, _) = innermost {
            return parse::not_parsed(self, kind, place);
        }
        let diagnostic = runtime::failed(self, innermost, place.as_ref());
        trace
            .into_iter()
            .fold(diagnostic.at(place), Diagnostic::with_note)
    }
}

/// The location that the error of a native function has itself: that of the hook that failed, or of the tensor at fault,
/// which may have been made elsewhere than where its value was asked for.
fn reported_place(script: &Script<'_>, error: &EvalAltResult) -> Option<Span> {
    let (EvalAltResult::ErrorRuntime(value, _) | EvalAltResult::ErrorTerminated(value, _)) = error
    else {
        return None;
    };
    let error = call_error(value)?;
    let of_tensor = || script.place_of(&error.tensor?.origin?);
    error.diagnostic.span.clone().or_else(of_tensor)
}
