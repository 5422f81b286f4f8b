//! Turns the script engine's errors into diagnostics: what happened in the field's words, where, and what to do.
//!
//! The sentences are rows of `mistakes.txt`; the code tells which row it is, and the names in it.

mod functions;
mod parse;
mod runtime;
mod script;
mod stopped;

pub(super) use functions::unknown_function;
pub(super) use runtime::{SEES, tensor_property};
pub(super) use script::{Script, names};

use std::fmt::Debug;

use rhai::Dynamic;

use super::error::Problem;
use crate::diagnostic::Diagnostic;

/// The prefix of the engine's names for closures.
pub(super) const CLOSURE: &str = "anon$";

const MISTAKES: &str = include_str!("mistakes.txt");

/// The row of a section that has this word.
fn find(section: &str, word: &str) -> Option<&'static str> {
    let (_, rows) = MISTAKES.split_once(&format!("\n[{section}]\n"))?;
    let mut rows = rows.lines().take_while(|row| !row.is_empty());
    rows.find_map(|row| {
        let (words, text) = row.split_once(": ")?;
        words.split(' ').any(|known| known == word).then_some(text)
    })
}

/// The help for a name of another language or library; `None` for any other.
pub fn help_for_foreign(name: &str) -> Option<&'static str> {
    let sections = ["functions", "properties", "names", "keywords", "reserved"];
    sections.into_iter().find_map(|section| find(section, name))
}

/// The text of a row with its names in it, for what has no message of its own.
pub(super) fn text(section: &str, word: &str, names: &[&str]) -> Option<String> {
    Some(filled(find(section, word)?, names))
}

/// A row with its names in it. Names are taken as they are: one may be `{2}` itself.
fn filled(row: &str, names: &[&str]) -> String {
    let mut parts = row.split('{');
    let mut text = parts.next().unwrap_or("").to_string();
    for part in parts {
        let name = part.split_once('}').and_then(|(index, rest)| {
            let index = index.parse::<usize>().ok()?.checked_sub(1)?;
            Some((*names.get(index)?, rest))
        });
        match name {
            Some((name, rest)) => text.extend([name, rest]),
            None => text.extend(["{", part]),
        }
    }
    text
}

/// The diagnostic of a row that has a sentence, and a help where there is one.
fn mistake(section: &str, word: &str, names: &[&str]) -> Option<Diagnostic> {
    let row = find(section, word)?;
    let (sentence, help) = row.split_once(" | ").unwrap_or((row, ""));
    let help = (!help.is_empty()).then(|| filled(help, names));
    Some(helped(Diagnostic::error(filled(sentence, names)), help))
}

/// As [`mistake`], of a row that is known to be there.
pub(super) fn said(section: &str, word: &str, names: &[&str]) -> Diagnostic {
    let row = mistake(section, word, names);
    row.unwrap_or_else(|| Diagnostic::error(format!("{word}: {}", names.join(", "))))
}

/// The diagnostic of an error of the engine's by the name of its variant, as of `FnDuplicatedParam("f", "x")`.
fn variant(error: &impl Debug) -> Option<Diagnostic> {
    let shown = format!("{error:?}");
    let name = shown.split(|c: char| !c.is_alphanumeric()).next()?;
    let names: Vec<&str> = shown.split('"').skip(1).step_by(2).collect();
    mistake("engine", name, &names)
}

/// The diagnostic with another help, where there is one.
fn helped(mut diagnostic: Diagnostic, help: Option<impl Into<String>>) -> Diagnostic {
    diagnostic.help = help.map(Into::into).or(diagnostic.help.take());
    diagnostic
}

fn problem(value: &Dynamic) -> Option<Problem> {
    value.read_lock::<Problem>().map(|problem| problem.clone())
}

/// A message of the engine's, as the middle of a sentence.
fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().collect::<String>() + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn names_are_taken_as_they_are() {
        let row = "`{1}` of {2}: `#{ {1}: ${...} }` {3}";
        let filled = filled(row, &["{2}", "{1} {"]);
        assert_eq!(filled, "`{2}` of {1} {: `#{ {2}: ${...} }` {3}");
    }
}
