//! What to say when a bound ended the script: time, memory, depth. The engine does not say where.

use rhai::{Dynamic, EvalAltResult};

use super::super::held::{BYTES, DEPTH, Excess, Overfull};
use super::super::sandbox::{ARRAY_ELEMENTS, MAP_ENTRIES, OPERATIONS, TEXT_BYTES};
use super::{Script, problem};
use crate::diagnostic::{Diagnostic, Span};
use crate::tensor::{Stopped, TensorErrorKind};

const ENDLESS: &str =
    "is there an endless loop, or one over many responses that a tensor operation could replace?";
const KEEPS: &str = "does a loop keep adding to it? Values by response or token belong in tensors";

/// The diagnostic of an end that no script can catch, with the location to suspect; `None` for any other error.
pub(super) fn stopped(
    script: &Script<'_>,
    error: &EvalAltResult,
) -> Option<(Diagnostic, Option<Span>)> {
    Some(match error {
        EvalAltResult::ErrorTerminated(why, _) => (terminated(why), script.only_loop()),
        EvalAltResult::ErrorTooManyOperations(_) => {
            let millions = OPERATIONS / 1_000_000;
            let message =
                format!("stopped after {millions} million operations, more than any formula needs");
            (
                Diagnostic::error(message).with_help(ENDLESS),
                script.only_loop(),
            )
        }
        EvalAltResult::ErrorStackOverflow(_) => {
            let message = "stopped: calls are nested too deeply";
            let help = "does a function call itself without end?";
            (
                Diagnostic::error(message).with_help(help),
                script.only_recursion(),
            )
        }
        EvalAltResult::ErrorDataTooLarge(what, _) => {
            let what = match what.to_lowercase() {
                what if what.contains("string") => {
                    format!("a string grew beyond {TEXT_BYTES} bytes")
                }
                what if what.contains("map") => {
                    format!("a map grew beyond {MAP_ENTRIES} entries")
                }
                _ => format!("an array grew beyond {ARRAY_ELEMENTS} elements"),
            };
            let diagnostic = Diagnostic::error(format!("stopped: {what}"));
            let suspect = script.only_loop().or_else(|| script.only_call("pad"));
            (diagnostic.with_help(KEEPS), suspect)
        }
        EvalAltResult::ErrorTooManyVariables(_) | EvalAltResult::ErrorTooManyModules(_) => {
            let diagnostic = Diagnostic::error("stopped: too many variables or imports");
            (diagnostic.with_help(ENDLESS), script.only_loop())
        }
        _ => return None,
    })
}

fn terminated(why: &Dynamic) -> Diagnostic {
    if let Some(overfull) = why.read_lock::<Overfull>() {
        return too_much(&overfull.variable, overfull.excess);
    }
    let stopped = match problem(why).and_then(|problem| problem.tensor) {
        Some(error) => match error.kind {
            TensorErrorKind::Stopped(stopped) => Some(stopped),
            _ => None,
        },
        None => why.read_lock::<Stopped>().map(|stopped| *stopped),
    };
    match stopped {
        Some(stopped) => by_guard(stopped),
        None => Diagnostic::error("stopped"),
    }
}

/// The diagnostic of a variable, or of the state as `this`, that holds too much.
fn too_much(variable: &str, excess: Excess) -> Diagnostic {
    match excess {
        Excess::Depth => Diagnostic::error(format!(
            "stopped: `{variable}` nests arrays, maps or closures more than {DEPTH} deep"
        ))
        .with_help("does a loop put it into itself? To add to an array, write `a.push(x)`"),
        Excess::Entries => Diagnostic::error(format!(
            "stopped: `{variable}` holds a map of more than {MAP_ENTRIES} entries"
        ))
        .with_help(KEEPS),
        Excess::Bytes => Diagnostic::error(format!(
            "stopped: with `{variable}`, the variables hold more than {} MiB",
            BYTES >> 20
        ))
        .with_help(KEEPS),
    }
}

fn by_guard(stopped: Stopped) -> Diagnostic {
    let diagnostic = Diagnostic::error(stopped.to_string());
    match stopped {
        Stopped::Deadline(_) => diagnostic.with_help(ENDLESS),
        Stopped::Memory { .. } | Stopped::Graph { .. } => {
            diagnostic.with_help("does a loop keep making tensors from tensors?")
        }
        Stopped::Cancelled => diagnostic,
    }
}
