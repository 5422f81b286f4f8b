//! Reads values of scripts as numbers and tensors, describes them in messages, and writes them in the notation of scripts.

use rhai::{Array, Dynamic, ImmutableString, Map};

use super::error::CallError;
use crate::tensor::{Level, Tensor, TensorError};

/// Returns the value if it is a plain number; true and false are 1 and 0, like the results of comparisons.
pub(crate) fn number(value: &Dynamic) -> Option<f64> {
    match (value.as_float(), value.as_int(), value.as_bool()) {
        (Ok(number), ..) => Some(number),
        // The conversion is exact up to 2^53, as wherever a script mixes integers and floats.
        (_, Ok(whole), _) => Some(whole as f64),
        (.., Ok(truth)) => Some(f64::from(u8::from(truth))),
        _ => None,
    }
}

/// Returns the value as a tensor, if it is a tensor or a number.
pub(crate) fn as_tensor(value: &Dynamic) -> Option<Tensor> {
    match value.read_lock::<Tensor>() {
        Some(tensor) => Some(tensor.clone()),
        None => number(value).map(Tensor::number),
    }
}

/// Returns the text of a value that is a string.
pub(crate) fn text(value: &Dynamic) -> Option<ImmutableString> {
    Some(value.read_lock::<ImmutableString>()?.clone())
}

/// Returns the level with a name. The error for an unknown name says that `function` was called with it.
pub(crate) fn level_of(function: &'static str, name: &str) -> Result<Level, CallError> {
    name.parse::<Level>().map_err(|unknown| {
        let mut error = CallError::from(TensorError::level(function, &unknown));
        error.diagnostic.fixes = unknown.fixes.clone();
        error
    })
}

/// Describes a value for a message: "a string (\"gruop\")", "a group tensor".
pub(crate) fn describe(value: &Dynamic) -> String {
    if let Some(text) = text(value) {
        let start: String = text.chars().take(40).collect();
        return format!("a string (\"{start}\")");
    }
    if let Some(tensor) = value.read_lock::<Tensor>() {
        return format!("a {} tensor", tensor.level());
    }
    match value.type_name() {
        "i64" | "f64" => format!("a number ({value})"),
        "bool" => value.to_string(),
        "char" => format!("a character ('{value}')"),
        name => type_named(name).1.to_string(),
    }
}

/// The maximum number of values that the string of a tensor or a key shows.
const SHOWN: usize = 8;

/// Makes the string of a tensor or a key: its first values in brackets, and the number of further values.
pub(super) fn in_brackets(name: &str, all: usize, values: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = values.take(SHOWN).collect();
    if all > SHOWN {
        shown.push(format!("... {} more", all - SHOWN));
    }
    format!("{name} [{}]", shown.join(", "))
}

/// Returns a type's short name and its name in messages, given any name that the engine or its parser uses for the type.
pub(crate) fn type_named(name: &str) -> (&'static str, &'static str) {
    // A type that is not registered under a name is named by its path in Rust.
    let name = name.trim();
    let last = name.rsplit("::").next().unwrap_or(name);
    match last.trim_end_matches('>') {
        "tensor" | "Tensor" => ("tensor", "a tensor"),
        "batch" | "ScriptBatch" => ("batch", "a batch"),
        "key" | "Key" => ("key", "a key"),
        "array" | "Array" | "an array" => ("array", "an array"),
        "map" | "Map" | "an object map" => ("map", "a map"),
        "string" | "&str" | "String" | "ImmutableString" => ("string", "a string"),
        "char" | "a character" => ("char", "a character"),
        // The parser calls an integer "a number".
        "i64" | "INT" | "int" | "a number" => ("i64", "an integer"),
        "f64" | "FLOAT" | "float" | "a floating-point number" => ("f64", "a float"),
        "bool" | "a boolean" | "a boolean expression" => ("bool", "true or false"),
        "iterable" | "an iterable value" => ("iterable", "an array or a range"),
        "Fn" => ("Fn", "a function"),
        "()" => ("()", "nothing, `()`"),
        "error" | "CallError" => ("error", "a caught error"),
        _ if name.contains("String") => ("string", "a string"),
        _ if name.contains("Range") || name == "range" => ("range", "a range"),
        "?" => ("", "something"),
        _ => ("", "a value of unknown type"),
    }
}

/// Writes a value of a type that a state can hold, in the notation of scripts.
pub(crate) fn written(value: &Dynamic) -> String {
    if let Some(map) = value.read_lock::<Map>() {
        let entries = map
            .iter()
            .map(|(key, value)| format!("{key}: {}", written(value)));
        return match entries.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "#{}".to_string(),
            entries => format!("#{{ {entries} }}"),
        };
    }
    if let Some(array) = value.read_lock::<Array>() {
        let values: Vec<String> = array.iter().map(written).collect();
        return format!("[{}]", values.join(", "));
    }
    match (text(value), value.as_float()) {
        (Some(text), _) => format!("{:?}", text.as_str()),
        (_, Ok(number)) => format!("{number:?}"),
        _ if value.is_unit() => "()".to_string(),
        _ => value.to_string(),
    }
}
