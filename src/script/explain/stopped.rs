//! Messages for a script that a bound ended: time, memory, depth. The engine does not say where.

use rhai::{Dynamic, EvalAltResult};

use super::super::sandbox::{ARRAY_ELEMENTS, MAP_ENTRIES, OPERATIONS, Overfull, TEXT_BYTES};
use super::{Script, find, helped, problem, said};
use crate::diagnostic::Diagnostic;
use crate::tensor::{Stopped, TensorErrorKind};

/// The diagnostic of an end that no script can catch, at the location to suspect; `None` for any other error.
pub(super) fn stopped(script: &Script<'_>, error: &EvalAltResult) -> Option<Diagnostic> {
    Some(match error {
        EvalAltResult::ErrorTerminated(why, _) => terminated(why).at(script.only_loop()),
        EvalAltResult::ErrorTooManyOperations(_) => {
            let millions = (OPERATIONS / 1_000_000).to_string();
            said("stopped", "operations", &[&millions]).at(script.only_loop())
        }
        EvalAltResult::ErrorStackOverflow(_) => {
            said("stopped", "calls", &[]).at(script.only_recursion())
        }
        EvalAltResult::ErrorDataTooLarge(what, _) => {
            let (row, most) = match what.to_lowercase() {
                what if what.contains("string") => ("string", TEXT_BYTES),
                what if what.contains("map") => ("map", MAP_ENTRIES),
                _ => ("array", ARRAY_ELEMENTS),
            };
            let suspect = script.only_loop().or_else(|| script.only_call("pad"));
            said("stopped", row, &[&most.to_string()]).at(suspect)
        }
        EvalAltResult::ErrorTooManyVariables(_) | EvalAltResult::ErrorTooManyModules(_) => {
            said("stopped", "variables", &[]).at(script.only_loop())
        }
        _ => return None,
    })
}

fn terminated(why: &Dynamic) -> Diagnostic {
    if let Some(overfull) = why.read_lock::<Overfull>() {
        // A variable, or the state as `this`, that holds too much.
        let (row, most) = overfull.excess;
        return said("stopped", row, &[&overfull.variable, &most.to_string()]);
    }
    let by_tensor = problem(why).and_then(|problem| problem.tensor);
    let stopped = match by_tensor.map(|error| error.kind) {
        Some(TensorErrorKind::Stopped(stopped)) => Some(stopped),
        _ => why.read_lock::<Stopped>().map(|stopped| *stopped),
    };
    let Some(stopped) = stopped else {
        return Diagnostic::error("stopped");
    };
    let diagnostic = Diagnostic::error(stopped.to_string());
    let help = match stopped {
        Stopped::Deadline(_) => find("stopped", "deadline"),
        Stopped::Memory { .. } | Stopped::Graph { .. } => find("stopped", "memory"),
        Stopped::Cancelled => None,
    };
    helped(diagnostic, help)
}
