//! Turns the script engine's errors into diagnostics: what happened in the field's words, where, and what to do.

mod functions;
mod parse;
mod runtime;
mod script;

pub(super) use functions::unknown_function;
pub(super) use runtime::tensor_property;
pub(crate) use script::Script;

use rhai::Dynamic;

use super::error::Problem;
use crate::diagnostic::Diagnostic;

/// The prefix of the engine's names for closures.
pub(crate) const CLOSURE: &str = "anon$";

const HABITS: &str = include_str!("habits.txt");

/// The row of a section of the habits that has this word.
fn habit(section: &str, word: &str) -> Option<&'static str> {
    let (_, rows) = HABITS.split_once(&format!("\n[{section}]\n"))?;
    let mut rows = rows.lines().take_while(|row| !row.is_empty());
    rows.find_map(|row| {
        let (words, text) = row.split_once(": ")?;
        words.split(' ').any(|known| known == word).then_some(text)
    })
}

/// The diagnostic of a row that has a message and a help.
fn habit_diagnostic(section: &str, word: &str) -> Option<Diagnostic> {
    let (message, help) = habit(section, word)?.split_once(" | ")?;
    Some(Diagnostic::error(message).with_help(help))
}

/// The help for a name of another language or library; `None` for any other name.
pub(crate) fn help_for_foreign(name: &str) -> Option<&'static str> {
    let sections = ["functions", "properties", "names", "keywords", "reserved"];
    sections
        .into_iter()
        .find_map(|section| habit(section, name))
}

fn problem(value: &Dynamic) -> Option<Problem> {
    value.read_lock::<Problem>().map(|problem| problem.clone())
}

/// An engine's message as the middle of a sentence.
fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().collect::<String>() + letters.as_str()
    })
}

/// The types of values: the name, what messages call it, and other names that the engine and its parser have for it.
const TYPES: [(&str, &str, &str); 15] = [
    ("tensor", "a tensor", ""),
    ("batch", "a batch", ""),
    ("key", "a key", ""),
    ("array", "an array", "Array, an array"),
    ("map", "a map", "Map, an object map"),
    ("string", "a string", "&str"),
    ("char", "a character", "a character"),
    // The parser calls an integer "a number".
    ("i64", "an integer", "INT, int, a number"),
    ("f64", "a float", "FLOAT, float, a floating-point number"),
    ("bool", "true or false", "a boolean, a boolean expression"),
    ("range", "a range", ""),
    ("iterable", "an array or a range", "an iterable value"),
    ("Fn", "a function", ""),
    ("()", "nothing, `()`", ""),
    ("error", "a caught error", ""),
];

/// A type's own name and what messages call it, by any name that the engine has for it.
pub(crate) fn type_named(name: &str) -> (&'static str, &'static str) {
    let name = name.trim();
    // Types that are not registered by a name have their path in Rust.
    let path = [
        ("String", "string"),
        ("Tensor", "tensor"),
        ("ScriptBatch", "batch"),
        ("Range", "range"),
        ("Problem", "error"),
    ];
    let path = path.into_iter().find(|(part, _)| name.contains(part));
    let name = path.map_or(name, |(_, name)| name);
    let mut types = TYPES.into_iter();
    types
        .find(|(own, _, others)| *own == name || others.split(", ").any(|other| other == name))
        .map_or(("", "a value of unknown type"), |(own, words, _)| {
            (own, words)
        })
}

/// What messages call a type.
pub(crate) fn type_in_words(name: &str) -> &'static str {
    type_named(name).1
}
