//! Errors that native functions report to the script that called them, on their way through the engine.

use rhai::{Dynamic, EvalAltResult, NativeCallContext, Position};

use crate::diagnostic::{Diagnostic, ProblemKind};
use crate::tensor::{Origin, TensorError, TensorErrorKind};

/// The error of a native function.
#[derive(Clone, Debug)]
pub(crate) struct CallError {
    pub(crate) diagnostic: Diagnostic,
    /// The error of the operation on tensors, if it is one.
    pub(crate) tensor: Option<Box<TensorError>>,
}

/// The result of a native function, for the script that called it.
pub(crate) type Raised<T> = Result<T, Box<EvalAltResult>>;

impl CallError {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Diagnostic::error(message).with_help(help).into()
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.diagnostic.help = Some(help.into());
        self
    }

    /// Whether it ends the script: time or memory has run out.
    fn ends_script(&self) -> bool {
        let kind = self.tensor.as_ref().map(|error| &error.kind);
        matches!(kind, Some(TensorErrorKind::Stopped(_)))
    }
}

impl From<Diagnostic> for CallError {
    fn from(diagnostic: Diagnostic) -> Self {
        CallError {
            diagnostic,
            tensor: None,
        }
    }
}

impl From<TensorError> for CallError {
    fn from(error: TensorError) -> Self {
        let kind = match error.kind {
            TensorErrorKind::Value(_) => ProblemKind::Values,
            _ => ProblemKind::Other,
        };
        CallError {
            diagnostic: Diagnostic::error(error.to_string()).of_kind(kind),
            tensor: Some(Box::new(error)),
        }
    }
}

/// The engine adds the position of the call. A script may catch the error with `try`, unless it ends the script.
impl From<CallError> for Box<EvalAltResult> {
    fn from(problem: CallError) -> Self {
        let (ends_script, error) = (problem.ends_script(), Dynamic::from(problem));
        match ends_script {
            true => EvalAltResult::ErrorTerminated(error, Position::NONE).into(),
            false => EvalAltResult::ErrorRuntime(error, Position::NONE).into(),
        }
    }
}

impl From<TensorError> for Box<EvalAltResult> {
    fn from(error: TensorError) -> Self {
        CallError::from(error).into()
    }
}

/// The error of a native function inside an error value of the engine.
pub(super) fn call_error(value: &Dynamic) -> Option<CallError> {
    value.read_lock::<CallError>().map(|error| error.clone())
}

/// An error of a native function that computes: one that ends the script keeps the location of the call, which the engine
/// loses on the way out.
pub(super) fn raise(
    context: &NativeCallContext,
    problem: impl Into<CallError>,
) -> Box<EvalAltResult> {
    let mut problem: CallError = problem.into();
    let ends_script = problem.ends_script();
    if let Some(error) = problem.tensor.as_mut().filter(|_| ends_script) {
        error.origin.get_or_insert_with(|| origin(context));
    }
    problem.into()
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
