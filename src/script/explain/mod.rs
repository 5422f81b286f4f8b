//! Turns the script engine's errors into diagnostics: what happened in the field's words, where, and what to do.

mod elsewhere;
mod functions;
mod place;
mod runtime;
mod stopped;
mod syntax;
mod text;
mod words;

use std::sync::Arc;

use rhai::{Dynamic, EvalAltResult, Position};

use super::error::{Problem, line_column};
use super::library::Sources;
use crate::diagnostic::{Diagnostic, Span};
use crate::tensor::Origin;

pub(super) use elsewhere::property as property_elsewhere;
pub(super) use runtime::SEES;
pub(super) use words::arguments;

/// What a diagnostic needs to know of the recipe.
pub(super) struct Script<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) sources: &'a Sources,
    /// The names of the recipe's parameters.
    pub(super) parameters: Vec<String>,
    /// The names of all functions that the script can call.
    pub(super) functions: Vec<String>,
}

/// What the engine calls a function that the script gives no name.
const CLOSURE: &str = "anon$";

/// A function of the script, as messages name it.
fn called(function: &str) -> String {
    match function.starts_with(CLOSURE) {
        true => "a closure".to_string(),
        false => format!("`{function}`"),
    }
}

impl Script<'_> {
    /// The diagnostic of an error that came out of the engine.
    pub(super) fn explain(&self, error: &EvalAltResult) -> Diagnostic {
        let mut source: Arc<str> = self.name.clone();
        let mut trace = Vec::new();
        let mut innermost = error;
        // Each layer says in which function, or which module, the next one happened.
        loop {
            match innermost {
                EvalAltResult::ErrorInFunctionCall(function, of, inner, position) => {
                    if let Some((line, _)) = line_column(*position) {
                        let function = called(function);
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
        let diagnostic = match innermost {
            EvalAltResult::ErrorParsing(kind, _) => {
                return self.syntax(kind, place);
            }
            other => match self.stopped(other) {
                Some((diagnostic, suspect)) => diagnostic.at(place.or(suspect)),
                None => self.runtime(other, place.as_ref()).at(place),
            },
        };
        trace.into_iter().fold(diagnostic, Diagnostic::with_note)
    }
}

/// A line and a column as the engine's own, which have 16 bits.
fn position(line: usize, column: usize) -> Position {
    Position::new(line.min(65_535) as u16, column.min(65_535) as u16)
}

/// What a native function of ours reported.
fn problem(value: &Dynamic) -> Option<Problem> {
    value.read_lock::<Problem>().map(|problem| problem.clone())
}

fn origin(error: &EvalAltResult) -> Option<Origin> {
    let (EvalAltResult::ErrorRuntime(value, _) | EvalAltResult::ErrorTerminated(value, _)) = error
    else {
        return None;
    };
    problem(value)?.tensor?.origin
}

/// The name that stands before a place and its dot: `p` of `p.k`.
fn receiver(place: &Span) -> Option<String> {
    let line = place.text.lines().nth(place.line - 1)?;
    let before: String = line.chars().take(place.column - 1).collect();
    let before = before.trim_end().strip_suffix('.')?.trim_end();
    let start = before
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |end| end + 1);
    (start < before.len()).then(|| before[start..].to_string())
}
