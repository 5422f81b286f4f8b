//! What the author of a script may mean: the habits of other languages, and types in plain words.

use crate::batch::known;
use crate::diagnostic::Diagnostic;

/// The prefix of the engine's names for closures.
pub(crate) const CLOSURE: &str = "anon$";

const HABITS: &str = include_str!("habits.txt");

/// The row of a section of the habits that has this word.
pub(super) fn habit(section: &str, word: &str) -> Option<&'static str> {
    let (_, rows) = HABITS.split_once(&format!("\n[{section}]\n"))?;
    let mut rows = rows.lines().take_while(|row| !row.is_empty());
    rows.find_map(|row| {
        let (words, text) = row.split_once(": ")?;
        words.split(' ').any(|known| known == word).then_some(text)
    })
}

/// The diagnostic of a row that has a message and a help.
pub(super) fn habit_diagnostic(section: &str, word: &str) -> Option<Diagnostic> {
    let (message, help) = habit(section, word)?.split_once(" | ")?;
    Some(Diagnostic::error(message).with_help(help))
}

/// The help for a name of another language or library; `None` for any other name.
pub fn help_for_foreign(name: &str) -> Option<&'static str> {
    let sections = ["functions", "properties", "names", "keywords", "reserved"];
    sections
        .into_iter()
        .find_map(|section| habit(section, name))
}

/// An engine's message as the middle of a sentence.
pub(super) fn lower_first(text: &str) -> String {
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
        ("CallError", "error"),
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

/// Whether it is a column that scripts often use, for whoever forgets the `batch.`.
pub(super) fn is_column(name: &str) -> bool {
    known::column(name).is_some() || ["advantage", "groups", "step"].contains(&name)
}
