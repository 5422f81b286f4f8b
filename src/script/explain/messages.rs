//! Messages for a script that cannot be compiled, and for an error that happens while a script runs.

use rhai::{Dynamic, EvalAltResult, LexError, ParseErrorType};

use super::habits::{habit, in_its_words, row, say, words};
use super::names::{no_key, no_module, no_variable, unknown_function};
use super::script::Script;
use crate::diagnostic::{Diagnostic, Span};
use crate::script::error::call_error;
use crate::script::limits::{ARRAY_ELEMENTS, GROWS, MAP_ENTRIES, TEXT_BYTES};
use crate::script::misread::floor_divisions;
use crate::script::reference::signature;
use crate::script::syntax::TokenKind;
use crate::script::value::{describe, type_named};

pub(super) fn not_parsed(
    script: &Script<'_>,
    kind: &ParseErrorType,
    place: Option<Span>,
) -> Diagnostic {
    let here = place.as_ref();
    // A `//` that is meant as a division is looked for first, because it begins a comment, which may hide the end of a statement.
    let (source, last) = here.map_or((script.name, usize::MAX), |at| (&at.source, at.line));
    if let Some(text) = script.sources.get(source) {
        let mut hidden = floor_divisions(source, text, &|_| false).into_iter();
        let is_before = |found: &Diagnostic| found.span.as_ref().is_some_and(|at| at.line <= last);
        if let Some(hidden) = hidden.rfind(is_before) {
            return hidden;
        }
    }
    if let Some(habit) = here.and_then(|place| foreign(script, place, kind)) {
        return habit.at(place);
    }
    // This is the token at which the parser stopped.
    let found = here.map_or("", |place| script.site(place).text(0));
    let end_before = || here.map(|place| script.end_before(place));
    let diagnostic = match kind {
        ParseErrorType::VariableUndefined(name) => no_variable(script, name, here),
        ParseErrorType::ModuleUndefined(name) => no_module(name),
        ParseErrorType::MissingToken(token, _) if token != ";" || !found.is_empty() => {
            let message = format!("a `{token}` is missing after this");
            let other = || say(message, "is something missing before this?");
            let missing = row("missing", token).unwrap_or_else(other);
            // Any word of the row may be the missing token.
            let signs = words("missing", token).map_or(&**token, |(signs, _)| signs);
            let signs = signs.split(' ').filter(|sign| *sign != "in");
            let fixed = signs.fold(missing, |error, sign| error.with_fix("", sign));
            return fixed.at(end_before());
        }
        ParseErrorType::MissingToken(..) | ParseErrorType::UnexpectedEOF => {
            let ends = say("the script ends too early", "is a `}` or a `)` missing?");
            return ends.at(end_before());
        }
        ParseErrorType::BadInput(error) => lexical(error),
        ParseErrorType::Reserved(name) | ParseErrorType::UnknownOperator(name) => reserved(name),
        ParseErrorType::AssignmentToConstant(name) => constant(name),
        ParseErrorType::FnDuplicatedDefinition(name, _) => say(
            format!("the function `{name}` is defined twice, with the same number of parameters"),
            "rename or remove one of them",
        ),
        ParseErrorType::WrongFnDefinition => say(
            "a function cannot be defined inside another function or a block",
            "move it to the top level, or write a closure, `let f = |x| ...;`, and call it by `f.call(x)`",
        ),
        ParseErrorType::ExprTooDeep => say(
            "brackets or blocks are nested too deeply",
            "give the parts names, with `let`",
        ),
        other => {
            let help = match other {
                ParseErrorType::MismatchedType(..) => {
                    "a condition is a comparison, `if batch.step > 100 { ... }`; a loop runs over a range or an array, \
                     `for i in 0..3 { ... }`"
                }
                _ => "is something missing or superfluous here?",
            };
            say(in_its_words(&other.to_string()), help)
        }
    };
    diagnostic.at(place)
}

/// Returns the diagnostic for code that is written as in another language; `None` if the parser's own message suffices.
fn foreign(script: &Script<'_>, place: &Span, kind: &ParseErrorType) -> Option<Diagnostic> {
    let (site, line) = (script.site(place), script.line(place));
    let word = |index: usize| line.get(index).map_or("", |token| token.text);
    let begins = match (word(0), word(1)) {
        ("let", "mut") => "let-mut",
        // The code is like `let a = 1, b = 2`.
        ("let", _) if site.text(0) == "," && site.text(2) == "=" => "let-two",
        ("import", _) if line.iter().any(|token| token.kind == TokenKind::String) => "",
        (first, _) => first,
    };
    if let Some(row) = row("line", begins) {
        return Some(row);
    }
    let ParseErrorType::MissingToken(wanted, _) = kind else {
        return None;
    };
    let found = site.text(0);
    row("found", &format!("{wanted}{found}"))
        .or_else(|| row("found", &format!("{}{found}", word(0))))
        .or_else(|| {
            let message = format!("`{found}` in this place is not part of this language");
            Some(say(message, habit("keywords", found)?))
        })
}

fn lexical(error: &LexError) -> Diagnostic {
    match error {
        LexError::UnexpectedInput(sign) => {
            let first = sign.chars().next().map_or(0, char::len_utf8);
            let help = habit("signs", &sign[..first]).unwrap_or(
                "a name consists of ASCII letters, digits and `_`; other characters are allowed only in comments and strings",
            );
            say(format!("`{sign}` is unexpected here"), help)
        }
        LexError::MalformedIdentifier(name) => say(
            format!("`{name}` cannot be used as a variable's name"),
            "choose another name",
        ),
        LexError::UnterminatedString => say(
            "this string has no closing quote",
            "a string ends in a `\"` on the same line; a string in backquotes may have several lines",
        ),
        LexError::MalformedChar(_) => say(
            "single quotes are for one character",
            "a string is written in double quotes: \"group\"",
        ),
        LexError::ImproperSymbol(sign, _) => reserved(sign),
        other => say(
            in_its_words(&other.to_string()),
            "numbers look like `8`, `0.5` and `1e-6`; a backslash in a string is `\\\\`",
        ),
    }
}

pub(super) fn constant(name: &str) -> Diagnostic {
    let help = match name {
        "p" => "`:set k=8` sets a parameter; a variable is declared with `let`",
        _ => "a variable is declared with `let` instead of `const`",
    };
    say(
        format!("`{name}` is a constant and cannot be changed"),
        help,
    )
}

fn reserved(name: &str) -> Diagnostic {
    let (what, help) = match name.starts_with(char::is_alphabetic) {
        true => ("a reserved word", "choose another name"),
        false if signature(name).is_some() => (
            "an operator, not a function",
            "write a function: `|a, b| a + b`",
        ),
        false => (
            "not an operator of this language",
            "is another operator meant?",
        ),
    };
    let known = habit("reserved", name).or_else(|| habit("keywords", name));
    say(format!("`{name}` is {what}"), known.unwrap_or(help))
}

/// The maximum number of characters of a thrown value that a message shows.
const SHOWN: usize = 200;

/// Returns the diagnostic of an error; `place` is the location that the engine reports.
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
        // An import whose path is computed can fail only when the script runs.
        EvalAltResult::ErrorModuleNotFound(path, _) => say(
            format!("cannot import \"{path}\" here"),
            "imports come at the top of the script, and their names must be literal strings",
        ),
        EvalAltResult::ErrorIndexingType(what, _) => indexing(what),
        EvalAltResult::ErrorDotExpr(what, _) => property(what),
        EvalAltResult::ErrorFor(_) => say(
            "`for` needs an array, a range or `batch.groups`",
            "operations on tensors need no loop over responses or tokens; `for g in batch.groups { ... }` goes group by group",
        ),
        EvalAltResult::ErrorUnboundThis(_) => say(
            "`this`, the recipe's state, exists in hooks only",
            "`this.f(x)` calls a function with the state; copy what a closure needs into a variable, `let mean = this.mean;`",
        ),
        EvalAltResult::ErrorDataRace(..) => say(
            "a closure uses the variable on which the method around it is called",
            "copy what the closure needs before the call: `let n = a.len();`",
        ),
        other => stopped(script, other).unwrap_or_else(|| {
            let help = match other {
                EvalAltResult::ErrorArithmetic(..) => {
                    "numbers look like `8`, `0.5` and `1e-6`; a float has a larger range: `2.0` instead of `2`"
                }
                _ => {
                    "indices count from 0, and from the end with -1; `key in map` tells whether there is an entry"
                }
            };
            say(in_its_words(&other.to_string()), help)
        }),
    }
}

/// Returns the diagnostic of an error that no script can catch, because a limit is exceeded or the call is cancelled; `None` for
/// any other error.
fn stopped(script: &Script<'_>, error: &EvalAltResult) -> Option<Diagnostic> {
    let diagnostic = match error {
        EvalAltResult::ErrorTerminated(why, _) => thrown(why),
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
    // The engine does not always report a location. If it reports none, and the script has only one `loop` or `while`, this loop
    // is shown, because it is the likely cause.
    Some(diagnostic.at(script.only_loop()))
}

/// Returns the diagnostic of an error that one of our native functions or the script's own `throw` raised.
fn thrown(value: &Dynamic) -> Diagnostic {
    if let Some(error) = call_error(value) {
        return error.diagnostic;
    }
    let text = if value.is_variant() {
        describe(value)
    } else {
        value.to_string()
    };
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    Diagnostic::error(shown)
}

/// Returns the diagnostic of a value of the wrong type; `sign` is the first `&&` or `||` in its line, if there is one.
fn mismatch(expected: &str, found: &str, sign: Option<&str>) -> Diagnostic {
    let ((name, expected), (found_name, found)) = (type_named(expected), type_named(found));
    let help = match (name, found_name, sign) {
        ("bool", "tensor", Some(sign)) => {
            let one = &sign[..1];
            return say(
                format!("`{sign}` works on booleans, but one side is a tensor"),
                format!(
                    "the elementwise form is `{one}`, with brackets around comparisons: `(a > b) {one} (c > d)`"
                ),
            );
        }
        ("bool", "tensor", None) => {
            return say(
                "a tensor cannot be used as a condition",
                "the elementwise form is `where(c, a, b)`, `&`, `|` and `!`; to branch, compare a single value, as in \
                 `if x.mean(\"batch\") > 0.5`",
            );
        }
        ("bool", ..) => "compare it, as in `x > 0` or `x != ()`",
        ("i64", ..) => "`x.to_int()` makes an integer",
        ("f64", ..) => "`x.to_float()` makes a float",
        _ => "check where the value comes from",
    };
    say(format!("expected {expected}, found {found}"), help)
}

fn immutable() -> Diagnostic {
    say(
        "a batch or a tensor cannot be changed in place",
        "make a new one: `let r = where(c, a, batch.reward);`; to change the reward for all hooks, return it from `reward(batch, p)`",
    )
}

/// Returns the diagnostic of an invalid use of an index; `what` is the engine's text, such as `tensor [i64] = f64`.
fn indexing(what: &str) -> Diagnostic {
    let (object, index) = what.split_once(" [").unwrap_or((what, ""));
    let (name, object) = type_named(object);
    let help = match name {
        "tensor" | "batch" if index.contains('=') => return immutable(),
        "tensor" => {
            "`x[0]` is the first value; a part of a tensor is chosen with `where(c, x, 0)` or a selection, `x.mean(\"group\", chosen)`"
        }
        "batch" => "`batch.groups[0]` is the first group, and `batch[\"reward\"]` is a column",
        _ => "arrays, maps, strings and tensors can be indexed: `a[0]`, `m[\"key\"]`",
    };
    let index = type_named(index.split(']').next().unwrap_or("")).1;
    say(format!("{object} cannot be indexed by {index}"), help)
}

/// Returns the diagnostic of an invalid use of a property; `what` is the engine's text, such as `Unknown property 'size' - a
/// getter is not registered for type 'i64'`.
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
        _ => "maps and batches have properties, such as `p.k` and `batch.reward`; only properties of maps can be set".to_string(),
    };
    say(format!("{owner} has no property `{name}`"), help)
}
