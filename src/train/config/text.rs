//! A configuration as text: reading it with errors that say the line, and printing it with its comments.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, Deserializer};

use super::{Config, DEFAULTS};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::suggest;
use crate::train::error::io;

/// Names of other trainers for our keys.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("batch_size", "rollout_batch_size"),
    ("eval_steps", "eval_every"),
    ("learning_rate", "lr"),
    ("max_steps", "steps"),
    ("n", "group_size"),
    ("num_epochs", "epochs"),
    ("num_generations", "group_size"),
    ("output_dir", "out"),
    ("ppo_epochs", "epochs"),
    ("save_steps", "checkpoint_every"),
    ("test_freq", "eval_every"),
    ("train_batch_size", "rollout_batch_size"),
];

/// Keys of earlier versions, for a KL that was added to whatever loss there was. A run that was recorded without it is
/// read as before.
const KL_KEYS: [&str; 2] = ["kl_beta", "kl"];

impl Config {
    /// Reads a TOML file; keys that it does not have keep their defaults.
    ///
    /// # Errors
    /// [`Diagnostics`] with the file, the line and the key, and the nearest key for an unknown one.
    pub fn read(path: &Path) -> Result<Config, Diagnostics> {
        let text = std::fs::read_to_string(path).map_err(io("read", path))?;
        Config::parse(path, &text)
    }

    /// Reads a configuration from a string of TOML; `path` is its name in messages.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Config, Diagnostics> {
        let at = |problem: Diagnostic, byte: usize| problem.in_file(path).on_line(line(text, byte));
        let syntax = |error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text.lines().nth(line(text, start) - 1);
            let key = line.and_then(|line| line.split_once('='));
            let key = key.map_or(String::new(), |(key, _)| format!("{}: ", key.trim()));
            let message = format!("{key}{}", in_words(error.message()));
            at(Diagnostic::error(message), start)
        };
        let mut table = DeTable::parse(text).map_err(syntax)?;
        let without_kl = table.get_ref().get("kl_beta").is_some_and(|beta| {
            let beta = beta.get_ref().as_float();
            beta.is_some_and(|beta| beta.as_str().parse() == Ok(0.0))
        });
        if without_kl {
            for key in KL_KEYS {
                table.get_mut().remove(key);
            }
        }
        let found = table.get_ref().keys();
        let starts = found.map(|key| (key.get_ref().to_string(), key.span().start));
        let starts: BTreeMap<String, usize> = starts.collect();
        let at_key = |key: &str, problem: Diagnostic| match starts.get(key) {
            Some(&start) => at(problem, start),
            None => problem.in_file(path),
        };
        let is_known = |name: &String| keys().any(|known| known == name);
        if let Some(name) = starts.keys().find(|name| !is_known(name)) {
            let problem = Diagnostic::error(format!("there is no key `{name}`"));
            return Err(at_key(name, problem.with_help(instead_of(name))).into());
        }
        let defaults = DeTable::parse(DEFAULTS).map_err(syntax)?.into_inner();
        for (key, value) in defaults {
            table.get_mut().entry(key).or_insert(value);
        }
        let config = Config::deserialize(Deserializer::from(table)).map_err(syntax)?;
        let problem = config.problem().map(|(key, problem)| at_key(key, problem));
        problem.map_or(Ok(config), |problem| Err(problem.into()))
    }

    /// The configuration as TOML, each key below its comment; [`Config::parse`] reads it back.
    pub fn to_commented(&self) -> String {
        let plain = match toml::Table::try_from(self) {
            Ok(table) => table,
            Err(error) => unreachable!("every key has a TOML type: {error}"),
        };
        let with_value = |line: &'static str| match key(line).map(|key| (key, &plain[key])) {
            Some((_, toml::Value::Table(table))) => format!("{line}\n{table}"),
            Some((key, value)) => format!("{key} = {value}\n"),
            None => format!("{line}\n"),
        };
        DEFAULTS.lines().map(with_value).collect()
    }
}

/// The key that a line of the default configuration sets, or begins the table of.
fn key(line: &'static str) -> Option<&'static str> {
    let table = line.strip_prefix('[').and_then(|key| key.strip_suffix(']'));
    table
        .or_else(|| Some(line.split_once(" = ")?.0))
        .filter(|key| !key.starts_with('#'))
}

fn keys() -> impl Iterator<Item = &'static str> {
    DEFAULTS.lines().filter_map(key)
}

/// The help for a key that does not exist.
fn instead_of(name: &str) -> String {
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
    let near = other
        .map(|(_, ours)| *ours)
        .or_else(|| suggest::nearest(name, keys()));
    match near {
        _ if KL_KEYS.contains(&name) => {
            "a KL is a part of the loss recipe: `kl_beta` and `kl` below `[loss_params]`".to_string()
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => "`advlab train --print-config` prints all keys; the recipe's own parameters are below `[params]`".to_string(),
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
        ("a string", "a string in quotes"),
    ];
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    words.iter().fold(message.to_string(), replace)
}
