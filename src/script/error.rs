//! Errors that native functions report to the script that called them, on their way through the engine.

use rhai::{Dynamic, Engine, EvalAltResult, NativeCallContext, Position, Variant};

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

    /// An error of the script engine. A script may catch it with `try`, unless it ends the script: time, memory.
    fn into_error(self, position: Position) -> Box<EvalAltResult> {
        let kind = self.tensor.as_ref().map(|error| &error.kind);
        let ends_script = matches!(kind, Some(TensorErrorKind::Stopped(_)));
        let error = Dynamic::from(self);
        match ends_script {
            true => EvalAltResult::ErrorTerminated(error, position).into(),
            false => EvalAltResult::ErrorRuntime(error, position).into(),
        }
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

impl From<CallError> for Box<EvalAltResult> {
    fn from(problem: CallError) -> Self {
        problem.into_error(Position::NONE)
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

/// An error of the script engine, at the location of the call.
pub(crate) fn raise(
    context: &NativeCallContext,
    problem: impl Into<CallError>,
) -> Box<EvalAltResult> {
    let mut problem: CallError = problem.into();
    if let Some(error) = &mut problem.tensor {
        // An error that ends the script loses its location on the way out.
        if matches!(error.kind, TensorErrorKind::Stopped(_)) && error.origin.is_none() {
            error.origin = Some(origin(context));
        }
    }
    problem.into_error(context.call_position())
}

/// Registers a method with one argument; its error is raised at the location of the call.
pub(super) fn method<S: Variant + Clone, A: Variant + Clone, T: Variant + Clone>(
    engine: &mut Engine,
    name: &str,
    method: impl Fn(&S, A) -> Result<T, CallError> + Send + Sync + 'static,
) {
    engine.register_fn(
        name,
        move |context: NativeCallContext, receiver: &mut S, argument: A| {
            method(receiver, argument).map_err(|problem| raise(&context, problem))
        },
    );
}

/// Registers a method without arguments, as [`method`].
pub(super) fn method_without_arguments<S: Variant + Clone, T: Variant + Clone>(
    engine: &mut Engine,
    name: &str,
    method: impl Fn(&S) -> Result<T, CallError> + Send + Sync + 'static,
) {
    engine.register_fn(name, move |context: NativeCallContext, receiver: &mut S| {
        method(receiver).map_err(|problem| raise(&context, problem))
    });
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
