//! Problems that native functions report to the script that called them, on their way through the engine.

use rhai::{Dynamic, EvalAltResult, NativeCallContext, Position};

use crate::diagnostic::{Diagnostic, ProblemKind};
use crate::tensor::{Origin, TensorError, TensorErrorKind};

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) kind: ProblemKind,
    pub(crate) tensor: Option<Box<TensorError>>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Problem {
            message: message.into(),
            help: None,
            kind: ProblemKind::Other,
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
        if ends {
            EvalAltResult::ErrorTerminated(problem, position).into()
        } else {
            EvalAltResult::ErrorRuntime(problem, position).into()
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<Diagnostic> for Problem {
    fn from(mut diagnostic: Diagnostic) -> Self {
        Problem {
            message: std::mem::take(&mut diagnostic.message),
            help: diagnostic.help.take(),
            kind: std::mem::take(&mut diagnostic.kind),
            tensor: None,
        }
    }
}

impl From<TensorError> for Problem {
    fn from(error: TensorError) -> Self {
        Problem {
            message: error.to_string(),
            help: None,
            kind: match error.kind {
                TensorErrorKind::Value(_) => ProblemKind::Values,
                _ => ProblemKind::Other,
            },
            tensor: Some(Box::new(error)),
        }
    }
}

/// The problem that a value of the engine's errors carries.
pub(super) fn problem(value: &Dynamic) -> Option<Problem> {
    value.read_lock::<Problem>().map(|problem| problem.clone())
}

/// The result of a native function, for the script that called it.
pub(crate) type Raised<T> = Result<T, Box<EvalAltResult>>;

/// A problem as an error of the script engine, at the location of the call.
pub(crate) fn raise(
    context: &NativeCallContext,
    problem: impl Into<Problem>,
) -> Box<EvalAltResult> {
    let mut problem: Problem = problem.into();
    if let Some(error) = &mut problem.tensor {
        // An error that ends the script loses its location on the way out.
        if matches!(error.kind, TensorErrorKind::Stopped(_)) && error.origin.is_none() {
            error.origin = Some(origin(context));
        }
    }
    problem.into_error(context.call_position())
}

/// The location in the script that a native call comes from.
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

pub(super) fn line_column(position: Position) -> Option<(usize, usize)> {
    Some((position.line()?, position.position().unwrap_or(1)))
}
