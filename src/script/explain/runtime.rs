//! Messages for an error that came up while a script ran.

use rhai::{Dynamic, EvalAltResult};

use super::functions;
use super::habits::{habit, is_column, lower_first, type_in_words, type_named};
use super::script::Script;
use crate::diagnostic::{Diagnostic, ProblemKind, Span};
use crate::figures::counted;
use crate::script::bounds::{ARRAY_ELEMENTS, MAP_ENTRIES, OPERATIONS, Overfull, TEXT_BYTES};
use crate::script::error::{CallError, call_error};
use crate::script::mistake::Mistake;
use crate::script::syntax::{TokenKind, declared_names, declared_parameters, map_keys};
use crate::suggest;
use crate::tensor::{Level, Stopped, TensorError, TensorErrorKind};

/// The most characters of a thrown value that a message shows.
const SHOWN: usize = 200;

/// The diagnostic of an error; `place` is where the engine says that it happened.
pub(super) fn failed(
    script: &Script<'_>,
    error: &EvalAltResult,
    place: Option<&Span>,
) -> Diagnostic {
    match error {
        EvalAltResult::ErrorRuntime(value, _) => thrown(value),
        EvalAltResult::ErrorFunctionNotFound(signature, _) => {
            functions::unknown_function(script, signature)
        }
        EvalAltResult::ErrorVariableNotFound(name, _) => no_variable(script, name, place),
        EvalAltResult::ErrorPropertyNotFound(name, _) => no_key(script, name, place),
        EvalAltResult::ErrorMismatchDataType(expected, found, _)
        | EvalAltResult::ErrorMismatchOutputType(expected, found, _) => {
            let line = place.map_or(&[][..], |place| script.line(place));
            let mut signs = line.iter().map(|token| token.text);
            mismatch(
                expected,
                found,
                signs.find(|sign| ["&&", "||"].contains(sign)),
            )
        }
        // An import whose path is computed is met only when the script runs.
        EvalAltResult::ErrorModuleNotFound(path, _) => Mistake::LateImport { path }.into(),
        EvalAltResult::ErrorIndexingType(what, _) => indexing(what),
        EvalAltResult::ErrorIndexNotFound(index, _) => {
            let key = &index.to_string();
            Mistake::NoEntry { key }.into()
        }
        EvalAltResult::ErrorArrayBounds(length, index, _) => {
            out_of_range("the array", *length, *index)
        }
        EvalAltResult::ErrorStringBounds(length, index, _) => {
            out_of_range("the string", *length, *index)
        }
        EvalAltResult::ErrorDotExpr(what, _) => property(what),
        EvalAltResult::ErrorArithmetic(what, _) => arithmetic(what),
        EvalAltResult::ErrorForbiddenVariable(name, _) => Mistake::ForbiddenName { name }.into(),
        EvalAltResult::ErrorAssignmentToConstant(name, _) => Mistake::Constant { name }.into(),
        EvalAltResult::ErrorFor(_) => Mistake::NotIterable.into(),
        EvalAltResult::ErrorUnboundThis(_) => Mistake::NoThis.into(),
        EvalAltResult::ErrorDataRace(..) => Mistake::VariableInUse.into(),
        other => stopped(script, other).unwrap_or_else(|| {
            let text = other.to_string();
            // The engine's messages end in the position, which the caret shows.
            let text = text.split(" (line ").next().unwrap_or(&text);
            Diagnostic::error(lower_first(text))
        }),
    }
}

/// The diagnostic of an end that no script can catch: time, memory, depth; `None` for any other error.
fn stopped(script: &Script<'_>, error: &EvalAltResult) -> Option<Diagnostic> {
    let diagnostic = match error {
        EvalAltResult::ErrorTerminated(why, _) => terminated(why),
        EvalAltResult::ErrorTooManyOperations(_) => {
            let millions = &(OPERATIONS / 1_000_000).to_string();
            Mistake::TooManyOperations { millions }.into()
        }
        EvalAltResult::ErrorStackOverflow(_) => return Some(Mistake::TooManyCalls.into()),
        EvalAltResult::ErrorDataTooLarge(what, _) => {
            let (what, bound) = match what.to_lowercase() {
                what if what.contains("string") => ("a string", format!("{TEXT_BYTES} bytes")),
                what if what.contains("map") => ("a map", format!("{MAP_ENTRIES} entries")),
                _ => ("an array", format!("{ARRAY_ELEMENTS} elements")),
            };
            let bound = &bound;
            Mistake::ValueTooLarge { what, bound }.into()
        }
        EvalAltResult::ErrorTooManyVariables(_) | EvalAltResult::ErrorTooManyModules(_) => {
            Mistake::TooManyVariables.into()
        }
        _ => return None,
    };
    // The engine does not always say where; a loop that may have no end is what to look at.
    Some(diagnostic.at(script.only_loop()))
}

fn terminated(why: &Dynamic) -> Diagnostic {
    if let Some(overfull) = why.read_lock::<Overfull>() {
        return overfull.diagnostic();
    }
    let by_tensor = call_error(why).and_then(|error| error.tensor);
    let stopped = match by_tensor.map(|error| error.kind) {
        Some(TensorErrorKind::Stopped(stopped)) => stopped,
        _ => match why.read_lock::<Stopped>() {
            Some(stopped) => *stopped,
            None => return Diagnostic::error("stopped"),
        },
    };
    let diagnostic = Diagnostic::error(stopped.to_string());
    match stopped {
        Stopped::Deadline(_) => diagnostic.with_help(
            "is there an endless loop, or one over many responses that a tensor operation could \
             replace?",
        ),
        Stopped::Memory { .. } | Stopped::Graph { .. } => {
            diagnostic.with_help("does a loop keep making tensors from tensors?")
        }
        Stopped::Cancelled => diagnostic,
    }
}

/// The diagnostic of a variable that a function does not see, with the kind that tells it from others.
fn unseen_variable(name: &str) -> Diagnostic {
    let help = "a function sees only its parameters and its own variables: pass what it needs as \
                an argument, or make it a parameter of the recipe, `p.name`";
    let unseen = Diagnostic::from(Mistake::NoVariable { name, help });
    unseen.of_kind(ProblemKind::UnseenVariable(name.to_string()))
}

pub(super) fn no_variable(script: &Script<'_>, name: &str, place: Option<&Span>) -> Diagnostic {
    let Some(place) = place else {
        return unseen_variable(name);
    };
    let (site, line) = (script.site(place), script.line(place));
    let next = site.text(1);
    let texts: Vec<&str> = line.iter().map(|token| token.text).collect();
    if next == "=>" {
        return Mistake::ArrowFunction { name }.into();
    } else if next.starts_with('"') {
        return Mistake::FormatString.into();
    } else if next == ":" {
        return Mistake::BlockForMap { key: name }.into();
    } else if texts.contains(&"[") && texts.windows(3).any(|three| three == ["for", name, "in"]) {
        return Mistake::Comprehension.into();
    } else if let Some(help) = habit("keywords", name) {
        return Mistake::NotInLanguage { word: name, help }.into();
    }
    match variable_help(script, name, place) {
        Some(help) => Mistake::NoVariable { name, help: &help }.into(),
        None => unseen_variable(name),
    }
}

/// What is meant by a name that is no variable, most likely.
fn variable_help(script: &Script<'_>, name: &str, place: &Span) -> Option<String> {
    let (site, line) = (script.site(place), script.line(place));
    let code = site.code;
    let begins_statement = line.first().is_some_and(|first| first.text == name)
        || ["{", "}", ";"].contains(&site.text(-1));
    let is_argument = ["batch", "p"].contains(&name);
    let mut parameters = script.parameters.iter().map(String::as_str);
    let mut pairs = code.windows(2);
    Some(if let Some(foreign) = habit("names", name) {
        foreign.to_string()
    } else if !is_argument && name.parse::<Level>().is_ok() {
        format!("a level is written in quotes: `x.mean(\"{name}\")`")
    } else if site.text(1) == "=" && begins_statement {
        format!("a new variable is declared with `let`: `let {name} = ...;`")
    } else if parameters.any(|known| known == name) || declared_parameters(code).contains(&name) {
        format!("the parameter is `p.{name}`")
    } else if is_argument && line.first().is_some_and(|first| first.column == 1) {
        "a formula belongs in a hook: `fn advantage(batch, p) { ... }`".to_string()
    } else if is_argument {
        format!(
            "hooks get it as an argument; pass it on to other functions, as in `baseline({name})`"
        )
    } else if pairs.any(|pair| pair[0].text == "const" && pair[1].text == name) {
        format!(
            "a function sees the constants of its script that are written out, as in `const \
             {name} = 4;`: write the value, or make it a parameter of the recipe, `p.{}`",
            name.to_lowercase()
        )
    } else if is_column(name) {
        format!("the column is `batch.{name}`")
    } else if let Some(recipe) = functions::recipe(name) {
        recipe
    } else {
        // Any letter is near any other.
        let known = declared_names(code).into_iter();
        let known = known.filter(|known| *known != name && name.len() > 1);
        format!("did you mean `{}`?", suggest::nearest(name, known)?)
    })
}

/// The diagnostic of a map without a key: the parameters, the state, or another map.
fn no_key(script: &Script<'_>, key: &str, place: Option<&Span>) -> Diagnostic {
    let site = place.map(|place| script.site(place));
    let code = site.map_or(&[][..], |site| site.code);
    // The name before the dot: `p` of `p.k`.
    let receiver = site.and_then(|site| match site.before() {
        [.., receiver, dot] if dot.text == "." && receiver.kind != TokenKind::Symbol => {
            Some(receiver.text)
        }
        _ => None,
    });
    let map = match receiver {
        Some("this") => "the state".to_string(),
        Some(receiver) => format!("`{receiver}`"),
        None => "this map".to_string(),
    };
    let imported = place.filter(|place| place.source != *script.name);
    let known = script.parameters.iter().map(String::as_str);
    let keys = known.chain(map_keys(code)).filter(|known| *known != key);
    let help = match (suggest::nearest(key, keys), receiver, imported) {
        (Some(near), _, None) => format!("did you mean `{near}`?"),
        (_, Some("this"), _) => {
            format!("`init(p)` makes it: `fn init(p) {{ #{{ {key}: 0.0 }} }}`")
        }
        (_, Some("p"), Some(place)) => {
            let recipe = place.source.rsplit(['/', '\\']).next().unwrap_or("");
            let recipe = recipe.strip_suffix(".rhai").unwrap_or(recipe);
            let all = declared_parameters(code);
            let given: Vec<String> = all.iter().map(|name| format!("{name}: ...")).collect();
            format!(
                "`{recipe}` has the parameters {}: pass them, as in `#{{ {} }}`, or declare them \
                 too with `fn params() {{ {recipe}::params() }}`",
                suggest::list(all),
                given.join(", ")
            )
        }
        _ => "`\"key\" in map` tells whether a map has a key".to_string(),
    };
    let (map, help) = (&map, &help);
    Mistake::NoKey { map, key, help }.into()
}

/// The error of a native function of ours, or of the script's own `throw`.
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
    match &error.kind {
        TensorErrorKind::Argument(_) if !error.op.starts_with(char::is_alphabetic) => {
            let operator = error.op;
            Some(format!(
                "`{operator}` works on tensors and numbers; `parse_float(string)` makes a number \
                 of a string"
            ))
        }
        TensorErrorKind::Argument(_) => functions::signature(error.op),
        TensorErrorKind::Value { .. } if error.op.contains("binomial") => Some(
            "k can be as large as the smallest group, `batch.reward.count(\"group\").min(\"batch\")`; \
             1 less where each response itself is left out"
                .to_string(),
        ),
        _ => None,
    }
}

/// The diagnostic of a value of the wrong type; `sign` is that of the `&&` or `||` in its line.
fn mismatch(expected: &str, found: &str, sign: Option<&str>) -> Diagnostic {
    let ((name, expected), (found_name, found)) = (type_named(expected), type_named(found));
    let help = match name {
        "bool" if found_name == "tensor" => {
            return match sign {
                Some(sign) => Mistake::LogicOfTensors { sign: &sign[..1] }.into(),
                None => Mistake::TensorCondition.into(),
            };
        }
        "bool" => "compare it, as in `x > 0` or `x != ()`",
        "i64" => "`x.to_int()` makes an integer",
        "f64" => "`x.to_float()` makes a float",
        _ => &format!("give it {expected}"),
    };
    let wrong = Mistake::WrongType {
        expected,
        found,
        help,
    };
    wrong.into()
}

pub(super) fn no_module(name: &str) -> Diagnostic {
    Mistake::NoModule { name }.or_help(habit("names", name))
}

fn out_of_range(what: &str, length: usize, index: i64) -> Diagnostic {
    let has = match length {
        0 => "is empty".to_string(),
        length => format!("has {}", counted(length, "element")),
    };
    let (index, has) = (&index.to_string(), &has);
    Mistake::OutOfRange { index, what, has }.into()
}

/// Of the engine's `tensor [i64] = f64`.
fn indexing(what: &str) -> Diagnostic {
    let (object, index) = what.split_once(" [").unwrap_or((what, ""));
    let is_set = index.contains('=');
    let index = type_in_words(index.split(']').next().unwrap_or(""));
    let (name, object) = type_named(object);
    match (name, is_set) {
        ("tensor" | "batch", true) => Mistake::Immutable,
        ("tensor", false) => Mistake::IndexedTensor { index },
        ("batch", false) => Mistake::IndexedBatch { index },
        _ => Mistake::NotIndexable { object, index },
    }
    .into()
}

/// Of the engine's `Unknown property 'size' - a getter is not registered for type 'i64'`.
fn property(what: &str) -> Diagnostic {
    let mut quoted = what.split('\'').skip(1).step_by(2);
    let (name, owner) = (quoted.next().unwrap_or(""), quoted.next().unwrap_or(""));
    let (owner_name, owner) = type_named(owner);
    let is_set = what.contains("writable") || what.contains("setter");
    match owner_name {
        "batch" | "tensor" if is_set => Mistake::Immutable,
        "tensor" => return tensor_property(name),
        _ if is_set => Mistake::NotSettable { name, owner },
        _ => Mistake::PropertyOf { name, owner },
    }
    .into()
}

fn tensor_property(name: &str) -> Diagnostic {
    let help = habit("properties", name).map(str::to_string);
    Mistake::TensorProperty { name }.or_help(help.or_else(|| functions::signature(name)))
}

/// Of the engine's `Division by zero: 1 / 0`.
fn arithmetic(what: &str) -> Diagnostic {
    let (kind, operation) = what.split_once(": ").unwrap_or((what, ""));
    let kind = kind.to_lowercase();
    if kind.contains("zero") {
        Mistake::DividedByZero { operation }.into()
    } else if kind.contains("flow") {
        Mistake::IntegerOverflow { operation }.into()
    } else if kind.contains("parsing") {
        let text = what.split('\'').nth(1).unwrap_or("this");
        Mistake::ParsedNoNumber { text }.into()
    } else {
        Diagnostic::error(lower_first(what)).with_help("check the operands")
    }
}
