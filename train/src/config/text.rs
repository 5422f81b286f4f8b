//! A configuration as text: reading it with errors that say the line, setting single keys, and printing it with comments.

use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, Deserializer};

use super::{Bound, Config, keys};
use crate::error::{Result, io};
use advlab::diagnostic::Diagnostic;
use advlab::script::Host;
use advlab::suggest;

impl Config {
    /// Reads a TOML file; keys that it does not have keep their defaults.
    pub fn read(path: &Path) -> Result<Config> {
        let text = advlab::regular_file::read_to_string(path).map_err(io("read", path))?;
        Config::parse(path, &text).map_err(|mut error| {
            if path.extension().is_none_or(|ending| ending != "toml") {
                let help =
                    "a configuration is a TOML file: `advlab train --print-config` prints one";
                error.first_mut().help.get_or_insert(help.to_string());
            }
            error
        })
    }

    /// Reads a configuration from a string of TOML; `path` is its name in messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config> {
        let at = |problem: Diagnostic, byte: usize| {
            let line = 1 + text[..byte].matches('\n').count();
            problem.in_file(path).on_line(line)
        };
        let syntax = |error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
            let line = text[line..].lines().next().unwrap_or_default();
            let key = line.split_once('=').map_or("", |(key, _)| key.trim());
            let colon = if key.is_empty() { "" } else { ": " };
            let message = format!("{key}{colon}{}", in_words(error.message()));
            at(Diagnostic::error(message), start)
        };
        let table = DeTable::parse(text).map_err(syntax)?;
        let found = places(table.get_ref());
        let known: Vec<String> = keys().map(|(own, _)| own).collect();
        if let Some((name, byte)) = found.iter().find(|(name, _)| !known.contains(name)) {
            let problem = Diagnostic::error(format!("there is no key `{name}`"));
            return Err(at(problem.with_help(help_for(name, &known)), *byte).into());
        }
        let config = Config::deserialize(Deserializer::from(table)).map_err(syntax)?;
        let Some((key, problem)) = config.problem() else {
            return Ok(config);
        };
        Err(match found.iter().find(|(name, _)| *name == key) {
            Some((_, byte)) => at(problem, *byte).into(),
            None => problem.in_file(path).into(),
        })
    }

    /// The key that a short name means, such as `transformer.temperature` for `temperature`.
    pub fn key(name: &str) -> Option<String> {
        match name.split_once('.') {
            Some((table, _)) if is_open(table) => Some(name.to_string()),
            _ => settable().find(|own| own == name || last_part(own) == name),
        }
    }

    /// Sets a parameter of the recipe or a key of the configuration, as `--set` does: `k=8`, `lr=0.01`,
    /// `loss_params.clip_high=0.28`. A name that both use is written `recipe.steps` or `run.steps`. [`Config::check`] checks
    /// the combination of values.
    pub fn assign(&mut self, name: &str, text: &str) -> Result<()> {
        let (scope, bare) = match name.split_once('.') {
            Some(("recipe" | "params", bare)) => ("recipe", bare),
            Some(("run", bare)) => ("run", bare),
            Some(_) => ("run", name),
            None => ("", name),
        };
        let key = Config::key(bare).filter(|_| scope != "recipe");
        let parameters: Vec<String> = match Host::new().load(&self.recipe) {
            Ok(recipe) if scope != "run" => {
                let all = recipe.params().iter();
                all.map(|(parameter, _)| parameter.name.clone()).collect()
            }
            Err(error) if key.is_none() => return Err(error),
            _ => Vec::new(),
        };
        let wrong = |message: &str| Diagnostic::error(format!("{name}={text}: {message}"));
        let recipe = &self.recipe;
        match (parameters.iter().any(|own| own == bare), key) {
            (true, None) => self.set(bare, text),
            (false, Some(key)) => {
                let set = self.with_key(&key, text);
                *self = set.map_err(|error| wrong(&in_words(error.message())))?;
            }
            (true, Some(_)) => {
                let message =
                    format!("{recipe} has a parameter `{bare}`, and the run a key `{bare}`");
                let help = format!("write `recipe.{bare}={text}` or `run.{bare}={text}`");
                return Err(wrong(&message).with_help(help).into());
            }
            (false, None) => {
                let message = match scope {
                    "run" => format!("there is no key `{bare}`"),
                    _ => format!("{recipe} has no parameter `{bare}`, nor the run such a key"),
                };
                let known: Vec<String> = settable().chain(parameters).collect();
                return Err(wrong(&message).with_help(help_for(bare, &known)).into());
            }
        }
        Ok(())
    }

    fn with_key(&self, key: &str, text: &str) -> Result<Config, toml::de::Error> {
        let mut table = self.to_table();
        let (own, bare) = key.split_once('.').unwrap_or(("", key));
        let (place, key) = match table.get_mut(own).and_then(|own| own.as_table_mut()) {
            Some(own) => (own, bare),
            None => (&mut table, key),
        };
        // A text may look like a number: `out=2024`.
        let is_text = place.get(key).is_some_and(toml::Value::is_str);
        let value = if is_text { text.into() } else { parsed(text) };
        place.insert(key.to_string(), value);
        let mut config: Config = table.try_into()?;
        config.native = self.native;
        Ok(config)
    }

    /// Sets a parameter of the recipe.
    pub fn set(&mut self, name: &str, text: &str) {
        self.params.insert(name.to_string(), parsed(text));
    }

    /// The keys with their values, and the tables.
    pub fn to_table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("every key has a TOML type")
    }

    /// The configuration of a trainer's run: only the keys that describe it. [`Config::parse`] reads it back.
    pub(crate) fn to_recorded(&self) -> String {
        let mut table = self.to_table();
        table.retain(|key, _| ["task", "recipe", "params"].contains(&key));
        format!("# A trainer's run, as advlab recorded it\n{table}")
    }

    /// The configuration as TOML, each key below its comment; [`Config::parse`] reads it back.
    pub fn to_commented(&self) -> String {
        let mut text = "# A training run: advlab train THIS_FILE\n".to_string();
        let values = self.to_table();
        for (path, key) in keys() {
            // A key without a comment follows the key before it directly.
            text += if key.doc.is_empty() { "" } else { "\n" };
            text.extend(key.doc.iter().map(|line| format!("#{line}\n")));
            let value = match path.split_once('.') {
                Some((table, name)) => &values[table][name],
                None => &values[key.name],
            };
            text += &match (&key.bound, value.as_table()) {
                (Bound::Scalars, Some(params)) => format!("[{}]\n{params}", key.name),
                (_, Some(_)) => format!("[{}]\n", key.name),
                (_, None) => format!("{} = {value}\n", key.name),
            };
        }
        text
    }
}

/// Whether this is a table of a recipe's parameters.
fn is_open(table: &str) -> bool {
    keys().any(|(name, key)| name == table && matches!(key.bound, Bound::Scalars))
}

/// The keys that take a single value.
fn settable() -> impl Iterator<Item = String> {
    let own = keys().filter(|(_, key)| !matches!(key.bound, Bound::Scalars | Bound::Table(_)));
    own.map(|(own, _)| own)
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The keys of a file with their byte offsets; keys of a table as `table.key`, except in tables of parameters.
fn places(table: &DeTable<'_>) -> Vec<(String, usize)> {
    let mut places = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().to_string();
        let inner = value.get_ref().as_table().filter(|_| !is_open(&name));
        for (inner, _) in inner.into_iter().flatten() {
            places.push((format!("{name}.{}", inner.get_ref()), inner.span().start));
        }
        places.push((name, key.span().start));
    }
    places.sort_by_key(|(_, byte)| *byte);
    places
}

/// The help for an unknown name.
fn help_for(name: &str, known: &[String]) -> String {
    let mut known = known.iter().map(String::as_str);
    let all = known.clone();
    let of_other_table = known.find(|own| last_part(own) == last_part(name));
    match of_other_table.or_else(|| suggest::nearest(name, all)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`advlab train --print-config` prints all keys, `advlab doc RECIPE` a recipe's parameters, which are below `[params]`".to_string(),
    }
}

/// Parses a typed value: a whole number, a number, true, false or a text.
fn parsed(text: &str) -> toml::Value {
    let whole = text.parse::<i64>().map(toml::Value::from);
    let number = whole.or_else(|_| text.parse::<f64>().map(toml::Value::from));
    let value = number.or_else(|_| text.parse::<bool>().map(toml::Value::from));
    value.unwrap_or_else(|_| text.into())
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
        ("a sequence", "a list in brackets"),
    ];
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    words.iter().fold(message.to_string(), replace)
}
