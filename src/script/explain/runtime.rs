//! Messages for an error that came up while the script ran.

use rhai::{Dynamic, EvalAltResult};

use super::script::{keys, names, parameters};
use super::{Script, find, functions, helped, lower_first, mistake, problem, said, text, variant};
use crate::batch::known;
use crate::diagnostic::{Diagnostic, Span};
use crate::figures::counted;
use crate::script::syntax::{TokenKind, ValueKind};
use crate::suggest;
use crate::tensor::{Level, TensorError, TensorErrorKind};

/// The most characters of a value that a message shows.
const SHOWN: usize = 200;

/// The help for an unknown name that is near no known one.
pub(in super::super) const SEES: &str = "a function sees only its parameters and its own variables: pass what it needs as an argument, or make it a parameter of the recipe, `p.name`";

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
        EvalAltResult::ErrorMismatchDataType(wanted, found, _)
        | EvalAltResult::ErrorMismatchOutputType(wanted, found, _) => mismatch(wanted, found),
        // One whose path is no literal is met only when the script runs.
        EvalAltResult::ErrorModuleNotFound(path, _) => said("value", "import_here", &[path]),
        EvalAltResult::ErrorIndexingType(what, _) => indexing(what),
        EvalAltResult::ErrorIndexNotFound(index, _) => {
            said("value", "no-entry", &[&index.to_string()])
        }
        EvalAltResult::ErrorArrayBounds(length, index, _) => beyond("the array", *length, *index),
        EvalAltResult::ErrorStringBounds(length, index, _) => beyond("the string", *length, *index),
        EvalAltResult::ErrorDotExpr(what, _) => property(what),
        EvalAltResult::ErrorArithmetic(what, _) => arithmetic(what),
        other => variant(other).unwrap_or_else(|| {
            let text = other.to_string();
            // The engine's messages end in the position, which stands at the caret.
            let text = text.split(" (line ").next().unwrap_or(&text);
            Diagnostic::error(lower_first(text))
        }),
    }
}

pub(super) fn no_variable(script: &Script<'_>, name: &str, place: Option<&Span>) -> Diagnostic {
    let said = |row, and: &str| said("variable", row, &[name, and]);
    let Some(place) = place else {
        return said("other", SEES);
    };
    let (site, line) = (script.site(place), script.line(place));
    let (code, next) = (site.code, site.text(1));
    let texts: Vec<&str> = line.iter().map(|token| token.text).collect();
    let is_in_loop = texts.windows(3).any(|three| three == ["for", name, "in"]);
    let begins_statement = texts.first() == Some(&name) || ["{", "}", ";"].contains(&site.text(-1));
    let is_argument = ["batch", "p"].contains(&name);
    let is_outside = line.first().is_some_and(|first| first.column == 1);
    let mut declared = script.parameters.iter().map(String::as_str);
    let is_parameter = declared.any(|known| known == name) || parameters(code).contains(&name);
    let mut pairs = code.windows(2).map(|two| [two[0].text, two[1].text]);
    let constant = name.to_lowercase();
    let (keyword, elsewhere) = (find("keywords", name), find("names", name));
    let recipe = functions::of_recipe(name);
    // Any letter is near any other.
    let known = names(code).into_iter();
    let near = suggest::nearest(name, known.filter(|known| *known != name && name.len() > 1));
    let rows = [
        (next == "=>", "arrow", ""),
        (next.starts_with('"'), "format", ""),
        (next == ":", "block", ""),
        (is_in_loop && texts.contains(&"["), "comprehension", ""),
        (keyword.is_some(), "keyword", keyword.unwrap_or("")),
        (elsewhere.is_some(), "other", elsewhere.unwrap_or("")),
        (!is_argument && name.parse::<Level>().is_ok(), "level", ""),
        (next == "=" && begins_statement, "new", ""),
        (is_parameter, "parameter", ""),
        (is_argument && is_outside, "outside", ""),
        (is_argument, "argument", ""),
        (
            pairs.any(|pair| pair == ["const", name]),
            "constant",
            &constant,
        ),
        (is_column(name), "column", ""),
        (recipe.is_some(), "other", recipe.as_deref().unwrap_or("")),
        (near.is_some(), "near", near.unwrap_or("")),
    ];
    let row = rows.into_iter().find(|(holds, ..)| *holds);
    row.map_or_else(|| said("other", SEES), |(_, row, and)| said(row, and))
}

/// The columns that scripts ask for most, for whoever forgets the `batch.`.
pub(super) fn is_column(name: &str) -> bool {
    known::column(name).is_some() || ["advantage", "groups", "step"].contains(&name)
}

/// A map without the key that is asked of it: the parameters, the state, or another.
fn no_key(script: &Script<'_>, name: &str, place: Option<&Span>) -> Diagnostic {
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
    let keys = known.chain(keys(code)).filter(|key| *key != name);
    match (suggest::nearest(name, keys), receiver, imported) {
        (Some(near), _, None) => said("key", "near", &[&map, name, near]),
        (_, Some("this"), _) => said("key", "state", &[&map, name]),
        (_, Some("p"), Some(place)) => {
            let recipe = place.source.rsplit(['/', '\\']).next().unwrap_or("");
            let recipe = recipe.strip_suffix(".rhai").unwrap_or(recipe);
            let all = parameters(code);
            let given: Vec<String> = all.iter().map(|name| format!("{name}: ...")).collect();
            let (all, given) = (suggest::list(all), given.join(", "));
            said("key", "imported", &[&map, name, recipe, &all, &given])
        }
        _ => said("key", "other", &[&map, name]),
    }
}

/// The error of a native function of ours, or of the script's own `throw`.
fn thrown(value: &Dynamic) -> Diagnostic {
    let Some(problem) = problem(value) else {
        let text = value.to_string();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        return Diagnostic::error(shown);
    };
    let help = problem.help.or_else(|| by_tensor(&*problem.tensor?));
    helped(Diagnostic::error(problem.message), help)
}

/// The help for an error of an operation; `None` where its message says enough.
fn by_tensor(error: &TensorError) -> Option<String> {
    let row = match &error.kind {
        TensorErrorKind::Argument(why) if why.contains("this is nothing") => "nothing",
        TensorErrorKind::Argument(_) if !error.op.starts_with(char::is_alphabetic) => "operator",
        TensorErrorKind::Argument(_) => return functions::signature(error.op),
        TensorErrorKind::Value { .. } if error.op.contains("binomial") => "binomial",
        _ => return None,
    };
    text("tensor", row, &[error.op])
}

fn mismatch(wanted: &str, found: &str) -> Diagnostic {
    let (wanted, found) = (ValueKind::of_type(wanted), ValueKind::of_type(found));
    let row = match wanted {
        ValueKind::Boolean if found.is_tensor() => return said("value", "tensor-condition", &[]),
        ValueKind::Boolean => "boolean",
        ValueKind::Integer => "integer",
        ValueKind::Number => "number",
        _ => "other",
    };
    said("value", row, &[wanted.described(), found.described()])
}

pub(super) fn no_import(name: &str) -> Diagnostic {
    helped(said("value", "import", &[name]), find("names", name))
}

fn beyond(what: &str, length: usize, index: i64) -> Diagnostic {
    let has = match length {
        0 => "is empty".to_string(),
        length => format!("has {}", counted(length, "element")),
    };
    said("value", "beyond", &[&index.to_string(), what, &has])
}

/// Of the engine's `tensor [i64] = f64`.
fn indexing(what: &str) -> Diagnostic {
    let (object, index) = what.split_once(" [").unwrap_or((what, ""));
    let is_set = index.contains('=');
    let index = ValueKind::of_type(index.split(']').next().unwrap_or("")).described();
    let object = ValueKind::of_type(object);
    let row = match (object, is_set) {
        (ValueKind::Tensor | ValueKind::Batch, true) => "set-tensor",
        (ValueKind::Tensor, false) => "index-tensor",
        (ValueKind::Batch, false) => "index-batch",
        _ => "index",
    };
    said("value", row, &[object.described(), index])
}

/// Of the engine's `Unknown property 'size' - a getter is not registered for type 'i64'`.
fn property(what: &str) -> Diagnostic {
    let mut quoted = what.split('\'').skip(1).step_by(2);
    let (name, of) = (quoted.next().unwrap_or(""), quoted.next().unwrap_or(""));
    let object = ValueKind::of_type(of);
    let is_set = what.contains("writable") || what.contains("setter");
    let row = match object {
        ValueKind::Batch | ValueKind::Tensor if is_set => "set-tensor",
        ValueKind::Tensor => return tensor_property(name),
        _ if is_set => "set",
        _ => "property",
    };
    said("value", row, &[name, object.described()])
}

pub(in crate::script) fn tensor_property(name: &str) -> Diagnostic {
    let help = find("properties", name).map(str::to_string);
    let help = help.or_else(|| functions::signature(name));
    helped(said("value", "tensor-property", &[name]), help)
}

/// Of the engine's `Division by zero: 1 / 0`.
fn arithmetic(what: &str) -> Diagnostic {
    let (kind, sum) = what.split_once(": ").unwrap_or((what, ""));
    let kind = kind.to_lowercase();
    let rows = ["zero", "overflow", "underflow", "parsing"];
    let text = what.split('\'').nth(1).unwrap_or("this");
    let row = rows.into_iter().find(|row| kind.contains(row));
    let row = row.and_then(|row| mistake("arithmetic", row, &[sum, text]));
    row.unwrap_or_else(|| Diagnostic::error(lower_first(what)).with_help("check the operands"))
}
