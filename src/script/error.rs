//! Everything that can be wrong with a recipe, as diagnostics: what, where in the script, and what to do.

use std::fmt;
use std::sync::Arc;

use rhai::{Dynamic, EvalAltResult, NativeCallContext, Position};

use crate::tensor::{Origin, TensorError, TensorErrorKind};

/// A problem that a native function of ours reports to the script that called it.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) tensor: Option<Box<TensorError>>,
}

impl Problem {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Problem {
            message: message.into(),
            help: None,
            tensor: None,
        }
    }

    /// An error of the script engine. A script may catch it with `try`, but for what ends the script: time, memory.
    fn into_error(self, position: Position) -> Box<EvalAltResult> {
        let ends = self
            .tensor
            .as_ref()
            .is_some_and(|error| matches!(error.kind, TensorErrorKind::Stopped(_)));
        let problem = Dynamic::from(self);
        match ends {
            true => EvalAltResult::ErrorTerminated(problem, position).into(),
            false => EvalAltResult::ErrorRuntime(problem, position).into(),
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<TensorError> for Problem {
    fn from(error: TensorError) -> Self {
        Problem {
            message: error.to_string(),
            help: None,
            tensor: Some(Box::new(error)),
        }
    }
}

/// A problem as an error of the script engine, at the place of the call.
pub(super) fn raise(
    context: &NativeCallContext,
    problem: impl Into<Problem>,
) -> Box<EvalAltResult> {
    let mut problem: Problem = problem.into();
    if let Some(error) = &mut problem.tensor {
        // What ends the script loses its place on the way out.
        if matches!(error.kind, TensorErrorKind::Stopped(_)) && error.origin.is_none() {
            error.origin = Some(origin(context));
        }
    }
    problem.into_error(context.call_position())
}

/// The place in the script that a native call comes from.
pub(super) fn origin(context: &NativeCallContext) -> Origin {
    let position = context.call_position();
    Origin {
        source: context.call_source().map(Into::into),
        line: position.line().unwrap_or(0),
        column: position.position().unwrap_or(0),
    }
}

impl From<Problem> for Box<EvalAltResult> {
    fn from(problem: Problem) -> Self {
        problem.into_error(Position::NONE)
    }
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The recipe cannot be used.
    Error,
    /// The recipe runs, but may not do what it looks like.
    Warning,
}

/// A place in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The script's file or name.
    pub source: Arc<str>,
    /// The script's whole text.
    pub text: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The number of characters that it covers.
    pub length: usize,
}

/// What is wrong with a script: what, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub message: String,
    /// Where, if it is anywhere in a script.
    pub place: Option<Place>,
    /// What to do.
    pub help: Option<String>,
    /// The calls that led there, innermost first, such as ``in `advantage`, line 12``.
    pub trace: Vec<String>,
}

impl Diagnostic {
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            place: None,
            help: None,
            trace: Vec::new(),
        }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn at(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }
}

impl fmt::Display for Diagnostic {
    /// One line: `passk.rhai:12:8: message (help)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{}:{}:{}: ", place.source, place.line, place.column)?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// What is wrong with a recipe: one diagnostic or more.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .diagnostics.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ScriptError {
    /// What is wrong, the first first.
    pub diagnostics: Vec<Diagnostic>,
}

impl From<Diagnostic> for ScriptError {
    fn from(diagnostic: Diagnostic) -> Self {
        ScriptError {
            diagnostics: vec![diagnostic],
        }
    }
}

/// The line and column of a position, if it has any.
pub(super) fn line_column(position: Position) -> Option<(usize, usize)> {
    Some((position.line()?, position.position().unwrap_or(1)))
}
