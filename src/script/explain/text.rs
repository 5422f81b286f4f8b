//! What can be seen in a script's text without the engine, which has no tree of a script that does not compile.

use std::sync::Arc;

use super::{Script, position};
use crate::diagnostic::Span;

/// A word of a script outside of comments and texts.
pub(super) struct Word<'a> {
    pub(super) word: &'a str,
    /// The line and the column, from 1.
    pub(super) line: usize,
    pub(super) column: usize,
    /// What follows on the same line, blanks left out.
    pub(super) rest: &'a str,
    /// What stands before on the same line.
    pub(super) before: &'a str,
}

/// The words of a text, in order. Comments that run over lines are not left out.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    text.lines().enumerate().flat_map(|(number, line)| {
        let mut found = Vec::new();
        let mut letters = line.char_indices().peekable();
        let mut column = 0;
        let mut quoted = None;
        while let Some((start, letter)) = letters.next() {
            column += 1;
            match quoted {
                Some(quote) => {
                    if letter == quote {
                        quoted = None;
                    }
                    continue;
                }
                None if letter == '"' || letter == '`' => {
                    quoted = Some(letter);
                    continue;
                }
                None if line[start..].starts_with("//") => break,
                None => {}
            }
            if !letter.is_alphabetic() && letter != '_' {
                continue;
            }
            let (mut end, first) = (start + letter.len_utf8(), column);
            while let Some(&(place, next)) = letters.peek() {
                if !next.is_alphanumeric() && next != '_' {
                    break;
                }
                end = place + next.len_utf8();
                column += 1;
                letters.next();
            }
            found.push(Word {
                word: &line[start..end],
                line: number + 1,
                column: first,
                rest: line[end..].trim_start(),
                before: line[..start].trim_end(),
            });
        }
        found
    })
}

/// The names that a text gives to variables, arguments and functions.
pub(super) fn names(text: &str) -> Vec<&str> {
    let declared = |word: &Word<'_>| {
        let after = |what: &str| {
            let before = word.before.strip_suffix(what);
            before.is_some_and(|b| !b.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        let argument =
            word.before.ends_with(['(', ',', '|']) && word.rest.starts_with([',', ')', '|']);
        after("let") || after("const") || after("for") || after("fn") || argument
    };
    let mut names: Vec<&str> = words(text).filter(declared).map(|word| word.word).collect();
    names.dedup();
    names
}

fn is_key(word: &Word<'_>) -> bool {
    word.rest.starts_with(':') && !word.rest.starts_with("::")
}

/// The keys of the maps in a text.
pub(super) fn keys(text: &str) -> Vec<&str> {
    words(text).filter(is_key).map(|word| word.word).collect()
}

/// The parameters that a text declares: keys whose values are maps.
pub(super) fn parameters(text: &str) -> Vec<&str> {
    let declares = |word: &Word<'_>| {
        let value = word.rest.strip_prefix(':').map(str::trim_start);
        value.is_some_and(|value| value.starts_with("#{"))
    };
    words(text).filter(declares).map(|word| word.word).collect()
}

impl Script<'_> {
    /// Where the script itself defines a function.
    pub(in super::super) fn definition(&self, function: &str) -> Option<Span> {
        let text = self.sources.get(self.name)?;
        let word = words(text).find(|word| word.word == function && word.before.ends_with("fn"))?;
        self.place(self.name, position(word.line, word.column))
    }

    /// Where the script itself first writes a name as the key of a map.
    pub(in super::super) fn key(&self, key: &str) -> Option<Span> {
        let text = self.sources.get(self.name)?;
        let word = words(text).find(|word| word.word == key && is_key(word))?;
        self.place(self.name, position(word.line, word.column))
    }

    /// Where the script itself first names a part of its state.
    pub(in super::super) fn part_of_state(&self, key: &str) -> Option<Span> {
        let text = self.sources.get(self.name)?;
        let is_part = |word: &Word<'_>| match key {
            "" => word.word == "this" && word.rest.starts_with('='),
            key => word.word == key && word.before.ends_with("this."),
        };
        let word = words(text).find(is_part)?;
        self.place(self.name, position(word.line, word.column))
    }

    /// Where an import is written, in the script or in one that it imports.
    pub(in super::super) fn import(&self, path: &str) -> Option<Span> {
        let written = format!("\"{path}\"");
        self.sources.iter().find_map(|(source, text)| {
            text.lines().enumerate().find_map(|(line, content)| {
                let is_import = content.trim_start().starts_with("import");
                let column = is_import.then(|| content.find(&written))??;
                let column = content[..column].chars().count() + 1;
                self.place(source, position(line + 1, column))
            })
        })
    }
    /// The only place in all sources where a word does what `is` asks; `None` where there is none or another.
    fn only(&self, is: impl Fn(&str, &Word<'_>) -> bool) -> Option<Span> {
        let mut found: Option<(&Arc<str>, usize, usize)> = None;
        for (source, text) in self.sources {
            for word in words(text).filter(|word| is(text, word)) {
                if found.is_some() {
                    return None;
                }
                found = Some((source, word.line, word.column));
            }
        }
        let (source, line, column) = found?;
        self.place(source, position(line, column))
    }

    /// The loop that may have no end, where there is one alone.
    pub(super) fn only_loop(&self) -> Option<Span> {
        self.only(|_, word| {
            (word.word == "loop" && word.rest.starts_with('{')) || word.word == "while"
        })
    }

    /// The call of a function, where there is one alone.
    pub(super) fn only_call(&self, function: &str) -> Option<Span> {
        self.only(|_, word| word.word == function && word.rest.starts_with('('))
    }

    /// The call of a function in itself, where there is one alone.
    pub(super) fn only_recursion(&self) -> Option<Span> {
        self.only(|text, word| {
            let around = text
                .lines()
                .take(word.line)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .find_map(|line| line.trim_start().strip_prefix("fn "));
            word.rest.starts_with('(')
                && word.before.trim() != "fn"
                && around.and_then(|header| header.split('(').next()) == Some(word.word)
        })
    }
}
