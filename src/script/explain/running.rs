//! Messages for an error that happened while a script ran.

use rhai::{Dynamic, EvalAltResult};

use super::compiling::constant;
use super::names::{no_key, no_variable, signature, unknown_function};
use super::{Script, habit, in_its_words, say};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::bounds::{ARRAY_ELEMENTS, GROWS, MAP_ENTRIES, OPERATIONS, TEXT_BYTES};
use crate::script::error::{CallError, call_error};
use crate::script::value::type_named;
use crate::tensor::{Stopped, TensorError, TensorErrorKind};

/// The most characters of a thrown value that a message shows.
const SHOWN: usize = 200;

const ENDLESS: &str =
    "is there an endless loop, or one over many responses that a tensor operation could replace?";

/// The diagnostic of an error; `place` is the location that the engine reports.
pub(super) fn failed(
    script: &Script<'_>,
    error: &EvalAltResult,
    place: Option<&Span>,
) -> Diagnostic {
    match error {
        EvalAltResult::ErrorRuntime(value, _) => thrown(value),
        EvalAltResult::ErrorFunctionNotFound(call, _) => unknown_function(script, call),
        EvalAltResult::ErrorVariableNotFound(name, _) => no_variable(script, name, place),
        EvalAltResult::ErrorPropertyNotFound(name, _) => no_key(script, name, place),
        EvalAltResult::ErrorAssignmentToConstant(name, _) => constant(name),
        EvalAltResult::ErrorMismatchDataType(expected, found, _)
        | EvalAltResult::ErrorMismatchOutputType(expected, found, _) => {
            let line = place.map_or(&[][..], |place| script.line(place));
            let mut signs = line.iter().map(|token| token.text);
            mismatch(expected, found, signs.find(|sign| ["&&", "||"].contains(sign)))
        }
        // An import whose path is computed is met only when the script runs.
        EvalAltResult::ErrorModuleNotFound(path, _) => say(
            format!("cannot import \"{path}\" here"),
            "imports come at the top of the script, with their names written out",
        ),
        EvalAltResult::ErrorIndexingType(what, _) => indexing(what),
        EvalAltResult::ErrorDotExpr(what, _) => property(what),
        EvalAltResult::ErrorFor(_) => say(
            "`for` needs an array, a range or `batch.groups`",
            "operations on tensors need no loop over responses or tokens; `for g in batch.groups { ... }` goes group by group",
        ),
        EvalAltResult::ErrorUnboundThis(_) => say(
            "`this`, the recipe's state, exists in hooks only",
            "`this.f(x)` calls a function with it; a closure gets what it needs in a variable, `let mean = this.mean;`",
        ),
        EvalAltResult::ErrorDataRace(..) => say(
            "a closure uses a variable that the call around it is changing",
            "copy what the closure needs before the call: `let n = a.len();`",
        ),
        other => stopped(script, other).unwrap_or_else(|| {
            let help = match other {
                EvalAltResult::ErrorArithmetic(..) => {
                    "numbers look like `8`, `0.5` and `1e-6`; a float goes further: `2.0` instead of `2`"
                }
                _ => {
                    "indices count from 0, and from the end with -1; `key in map` tells whether there is an entry"
                }
            };
            say(in_its_words(&other.to_string()), help)
        }),
    }
}

/// The diagnostic of an error that no script can catch: time, memory, depth; `None` for any other error.
fn stopped(script: &Script<'_>, error: &EvalAltResult) -> Option<Diagnostic> {
    let diagnostic = match error {
        EvalAltResult::ErrorTerminated(why, _) => terminated(why),
        EvalAltResult::ErrorTooManyOperations(_) => {
            let millions = OPERATIONS / 1_000_000;
            let message =
                format!("stopped after {millions} million operations, more than any formula needs");
            say(message, ENDLESS)
        }
        EvalAltResult::ErrorStackOverflow(_) => {
            let message = "stopped: calls are nested too deeply";
            return Some(say(message, "does a function call itself without end?"));
        }
        EvalAltResult::ErrorDataTooLarge(what, _) => {
            let (what, bound) = match what.to_lowercase() {
                what if what.contains("string") => ("a string", format!("{TEXT_BYTES} bytes")),
                what if what.contains("map") => ("a map", format!("{MAP_ENTRIES} entries")),
                _ => ("an array", format!("{ARRAY_ELEMENTS} elements")),
            };
            say(format!("stopped: {what} grew beyond {bound}"), GROWS)
        }
        _ => return None,
    };
    // The engine does not always give the place; then the only loop that may not terminate is shown.
    Some(diagnostic.at(script.only_loop()))
}

fn terminated(why: &Dynamic) -> Diagnostic {
    let Some(CallError { diagnostic, tensor }) = call_error(why) else {
        return Diagnostic::error("stopped");
    };
    match tensor.map(|error| error.kind) {
        Some(TensorErrorKind::Stopped(Stopped::Deadline(_))) => diagnostic.with_help(ENDLESS),
        Some(TensorErrorKind::Stopped(Stopped::Memory { .. } | Stopped::Graph { .. })) => {
            diagnostic.with_help("does a loop keep making tensors from tensors?")
        }
        _ => diagnostic,
    }
}

/// The error of one of our native functions, or of the script's own `throw`.
fn thrown(value: &Dynamic) -> Diagnostic {
    let Some(CallError { diagnostic, tensor }) = call_error(value) else {
        let text = value.to_string();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        return Diagnostic::error(shown);
    };
    match tensor.and_then(|error| operation_help(&error)) {
        Some(help) if diagnostic.help.is_none() => diagnostic.with_help(help),
        _ => diagnostic,
    }
}

/// The help for an error of an operation; `None` if its message says enough.
fn operation_help(error: &TensorError) -> Option<String> {
    let help = match &error.kind {
        TensorErrorKind::Argument(_) if !error.op.starts_with(char::is_alphabetic) => {
            "operators work on tensors and numbers; `parse_float(string)` makes a number of a string"
        }
        TensorErrorKind::Argument(_) => return signature(error.op),
        TensorErrorKind::Value { .. } if error.op.contains("binomial") => {
            "k can be as large as the smallest group, `batch.reward.count(\"group\").min(\"batch\")`; 1 less where each \
             response itself is left out"
        }
        _ => return None,
    };
    Some(help.to_string())
}

/// The diagnostic of a value of the wrong type; `sign` is the `&&` or `||` in its line, if any.
fn mismatch(expected: &str, found: &str, sign: Option<&str>) -> Diagnostic {
    let ((name, expected), (found_name, found)) = (type_named(expected), type_named(found));
    let help = match (name, found_name, sign) {
        ("bool", "tensor", Some(sign)) => {
            let one = &sign[..1];
            return say(
                format!("`{sign}` works on booleans, and one side is a tensor"),
                format!(
                    "elementwise it is `{one}`, with brackets around comparisons: `(a > b) {one} (c > d)`"
                ),
            );
        }
        ("bool", "tensor", None) => {
            return say(
                "a tensor cannot be used as a condition",
                "elementwise it is `where(c, a, b)`, `&`, `|` and `!`; to branch, compare a single value, as in \
                 `if x.mean(\"batch\") > 0.5`",
            );
        }
        ("bool", ..) => "compare it, as in `x > 0` or `x != ()`",
        ("i64", ..) => "`x.to_int()` makes an integer",
        ("f64", ..) => "`x.to_float()` makes a float",
        _ => "look where the value comes from",
    };
    say(format!("expected {expected}, found {found}"), help)
}

fn immutable() -> Diagnostic {
    say(
        "a batch or a tensor cannot be changed in place",
        "make a new one: `let r = where(c, a, batch.reward);`; a reward for all hooks is what `reward(batch, p)` returns",
    )
}

/// From the engine's `tensor [i64] = f64`.
fn indexing(what: &str) -> Diagnostic {
    let (object, index) = what.split_once(" [").unwrap_or((what, ""));
    let (name, object) = type_named(object);
    let help = match name {
        "tensor" | "batch" if index.contains('=') => return immutable(),
        "tensor" => {
            "`x[0]` is its first value; a part of it is chosen with `where(c, x, 0)` or a selection, `x.mean(\"group\", chosen)`"
        }
        "batch" => "`batch.groups[0]` is its first group, `batch[\"reward\"]` a column",
        _ => "arrays, maps, strings and tensors can be indexed: `a[0]`, `m[\"key\"]`",
    };
    let index = type_named(index.split(']').next().unwrap_or("")).1;
    say(format!("{object} cannot be indexed by {index}"), help)
}

/// From the engine's `Unknown property 'size' - a getter is not registered for type 'i64'`.
fn property(what: &str) -> Diagnostic {
    let mut quoted = what.split('\'').skip(1).step_by(2);
    let (name, owner) = (quoted.next().unwrap_or(""), quoted.next().unwrap_or(""));
    let (owner_name, owner) = type_named(owner);
    let is_set = what.contains("writable") || what.contains("setter");
    let help = match owner_name {
        "batch" | "tensor" if is_set => return immutable(),
        "tensor" => habit("properties", name).map(str::to_string).or_else(|| signature(name)).unwrap_or(
            "its only property is `level`; the rest are methods, such as `x.mean(\"group\")`".to_string(),
        ),
        _ => "maps and batches have properties, such as `p.k` and `batch.reward`; only those of maps can be set".to_string(),
    };
    say(format!("{owner} has no property `{name}`"), help)
}
