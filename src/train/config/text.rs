//! A configuration as text: reading it with errors that say the line, and printing it with its comments.

use std::path::Path;

use toml::de::DeTable;

use super::{Config, ConfigError, KEYS};
use crate::suggest;

impl Config {
    /// Reads a TOML file; keys that it does not have keep their defaults.
    ///
    /// # Errors
    /// [`ConfigError`] with the file, the line and the key, and the nearest key for an unknown one.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Io {
            path: path.to_path_buf(),
            source,
        })?;
        Config::parse(path, &text)
    }

    /// Reads a configuration from its text; `path` is what messages call it.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let syntax = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| line(text, span.start));
            let key = text
                .lines()
                .nth(line - 1)
                .and_then(|line| line.split_once('='));
            let key = key.map_or(String::new(), |(key, _)| format!("{}: ", key.trim()));
            ConfigError::Syntax {
                path: path.to_path_buf(),
                line,
                message: format!("{key}{}", in_words(error.message())),
            }
        };
        let table = DeTable::parse(text).map_err(syntax)?;
        let names = || KEYS.iter().map(|(name, _)| *name);
        let place = |key: &str| {
            let keys = table.get_ref().keys();
            let found = keys.into_iter().find(|found| found.get_ref() == key);
            found.map(|found| line(text, found.span().start))
        };
        let unknown = table.get_ref().keys().find(|key| {
            let key: &str = key.get_ref();
            !names().any(|name| name == key)
        });
        if let Some(key) = unknown {
            return Err(ConfigError::Unknown {
                path: path.to_path_buf(),
                line: line(text, key.span().start),
                key: key.get_ref().to_string(),
                hint: match suggest::nearest(key.get_ref(), names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "`advlab train --print-config` prints them all".to_string(),
                },
            });
        }
        let config: Config = toml::from_str(text).map_err(syntax)?;
        match config.check() {
            Err(ConfigError::Value {
                key,
                found,
                expected,
                ..
            }) => Err(ConfigError::Value {
                place: match place(key) {
                    Some(line) => format!("{}:{line}: ", path.display()),
                    None => format!("{}: ", path.display()),
                },
                key,
                found,
                expected,
            }),
            checked => checked.map(|()| config),
        }
    }

    /// The configuration as TOML, each key below its comment: what [`Config::parse`] reads back.
    pub fn to_commented(&self) -> String {
        let plain = match toml::Table::try_from(self) {
            Ok(table) => table,
            Err(error) => unreachable!("every key has a TOML type: {error}"),
        };
        let mut text = String::from("# A training run: advlab train THIS_FILE\n");
        for (name, comment) in KEYS {
            text.push('\n');
            for line in *comment {
                text.push_str(&format!("#{line}\n"));
            }
            match &plain[*name] {
                toml::Value::Table(table) => text.push_str(&format!("[{name}]\n{table}")),
                value => text.push_str(&format!("{name} = {value}\n")),
            }
        }
        text
    }
}

/// The line of a byte, from 1.
fn line(text: &str, byte: usize) -> usize {
    1 + text[..byte].matches('\n').count()
}

/// The parser's message in TOML's words instead of Rust's.
fn in_words(message: &str) -> String {
    let words = [
        ("\n", ": "),
        ("usize", "a whole number, at least 0"),
        ("u64", "a whole number, at least 0"),
        ("f64", "a number"),
        ("a boolean", "true or false"),
        ("a string", "a text in quotes"),
    ];
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    words.iter().fold(message.to_string(), replace)
}
