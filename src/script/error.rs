//! The errors of our native functions, in the form in which the engine passes them to the script.

use rhai::{Dynamic, EvalAltResult, NativeCallContext, Position};

use super::limits::{ENDLESS, GROWS, MEMORY};
use super::reference::signature;
use crate::diagnostic::{Diagnostic, ProblemKind};
use crate::tensor::{Origin, Stopped, TensorError, TensorErrorKind};

/// The error of a native function.
#[derive(Clone, Debug)]
pub(crate) struct CallError {
    pub(crate) diagnostic: Diagnostic,
    /// The location where the tensor that caused the error was made, or the location of the call that ended the script.
    pub(super) origin: Option<Origin>,
    /// Whether the error ends the script, because a limit was exceeded or the call was cancelled.
    ends_script: bool,
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
}

impl From<Diagnostic> for CallError {
    fn from(diagnostic: Diagnostic) -> Self {
        CallError {
            diagnostic,
            origin: None,
            ends_script: false,
        }
    }
}

impl From<TensorError> for CallError {
    fn from(error: TensorError) -> Self {
        let kind = match error.kind {
            TensorErrorKind::Value(_) => ProblemKind::Values,
            _ => ProblemKind::Other,
        };
        let mut diagnostic = Diagnostic::error(error.to_string()).of_kind(kind);
        diagnostic.help = help_for(&error);
        CallError {
            diagnostic,
            origin: error.origin,
            ends_script: matches!(error.kind, TensorErrorKind::Stopped(_)),
        }
    }
}

/// Returns the help for an error of a tensor operation; `None` if the message needs no help.
fn help_for(error: &TensorError) -> Option<String> {
    let help = match &error.kind {
        TensorErrorKind::Argument(_) if !error.op.starts_with(char::is_alphabetic) => {
            "operators work on tensors and numbers; `parse_float(string)` makes a number from a string"
        }
        TensorErrorKind::Argument(_) => return signature(error.op),
        TensorErrorKind::Value { .. } if error.op.contains("binomial") => {
            "k can be at most the size of the smallest group, `batch.reward.count(\"group\").min(\"batch\")`, and 1 less in a leave-one-out formula"
        }
        TensorErrorKind::Stopped(Stopped::Script(MEMORY)) => GROWS,
        TensorErrorKind::Stopped(Stopped::Deadline(_) | Stopped::Script(_)) => ENDLESS,
        TensorErrorKind::Stopped(Stopped::Memory { .. } | Stopped::Graph { .. }) => {
            "does a loop keep making tensors from tensors?"
        }
        _ => return None,
    };
    Some(help.to_string())
}

/// The engine adds the position of the call. A script may catch the error with `try`, unless the error ends the script.
impl From<CallError> for Box<EvalAltResult> {
    fn from(problem: CallError) -> Self {
        let (ends_script, error) = (problem.ends_script, Dynamic::from(problem));
        if ends_script {
            EvalAltResult::ErrorTerminated(error, Position::NONE).into()
        } else {
            EvalAltResult::ErrorRuntime(error, Position::NONE).into()
        }
    }
}

impl From<TensorError> for Box<EvalAltResult> {
    fn from(error: TensorError) -> Self {
        CallError::from(error).into()
    }
}

/// Returns the error of a native function that an error value of the engine contains.
pub(super) fn call_error(value: &Dynamic) -> Option<CallError> {
    value.read_lock::<CallError>().map(|error| error.clone())
}

/// Converts the result of a native function. An error that ends the script gets the call's location if it has none, because
/// the engine would lose that location.
pub(super) fn located<T>(context: &NativeCallContext, result: Result<T, CallError>) -> Raised<T> {
    Ok(result.map_err(|mut problem| {
        if problem.ends_script {
            problem.origin.get_or_insert_with(|| origin(context));
        }
        problem
    })?)
}

/// Returns the location, in the script, of the call of a native function.
pub(super) fn origin(context: &NativeCallContext) -> Origin {
    let position = context.call_position();
    Origin {
        source: context.call_source().map(Into::into),
        line: position.line().unwrap_or(0),
        column: position.position().unwrap_or(0),
    }
}
