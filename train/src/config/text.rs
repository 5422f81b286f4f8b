//! A configuration as text: reading it with errors that say the line, and printing it with its comments.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::{Config, Key, TABLES};
use crate::error::io;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::Host;
use advlab::suggest;

/// Where the names of keys and of parameters are found.
const NAMES: &str = "`advlab train --print-config` prints all keys, `advlab doc RECIPE` a recipe's parameters, which are below `[params]`";

/// Keys that earlier runs have in their folders, and that mean nothing now.
const RETIRED: [(&str, &str); 2] = [
    ("transformer", "dtype"),
    ("transformer", "gradient_checkpointing"),
];

impl Config {
    /// Reads a TOML file; keys that it does not have keep their defaults.
    ///
    /// # Errors
    /// [`Diagnostics`] with the file, the line and the key, and the nearest key for an unknown one.
    pub fn read(path: &Path) -> Result<Config, Diagnostics> {
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
        for (place, key) in RETIRED {
            if let Some(DeValue::Table(own)) = table.get_mut().get_mut(place).map(Spanned::get_mut)
            {
                own.remove(key);
            }
        }
        let starts = starts(table.get_ref());
        let at_key = |key: &str, problem: Diagnostic| match starts.get(key) {
            Some(&start) => at(problem, start),
            None => problem.in_file(path),
        };
        let names = names();
        if let Some(name) = starts.keys().find(|name| !names.contains(name)) {
            let problem = Diagnostic::error(format!("there is no key `{name}`"));
            return Err(at_key(name, problem.with_help(instead_of(name))).into());
        }
        let config = Config::deserialize(Deserializer::from(table)).map_err(syntax)?;
        let problem = config.problem().map(|(key, problem)| at_key(key, problem));
        problem.map_or(Ok(config), |problem| Err(problem.into()))
    }

    /// The key of that name, `transformer.temperature` for one of a table.
    pub fn key(name: &str) -> Option<String> {
        if has(Config::KEYS, name) && !is_table(name) {
            return Some(name.to_string());
        }
        Some(format!("{}.{name}", table_of(name)?))
    }

    /// Sets a parameter of the recipe or a key of the configuration, as `--set` does: `k=8`, `lr=0.01`,
    /// `loss_params.clip_high=0.28`. A name that both have is `recipe.steps` or `run.steps`. [`Config::check`] says whether
    /// the values go together.
    ///
    /// # Errors
    /// If neither has the name, or both have it, or the key takes another kind of value; if the recipe cannot be loaded and the
    /// name is not a key.
    pub fn assign(&mut self, name: &str, text: &str) -> Result<(), Diagnostics> {
        let (bare, of_recipe, of_run) = match name.split_once('.') {
            Some(("recipe" | "params", bare)) => (bare, true, false),
            Some(("run", bare)) => (bare, false, true),
            Some(_) => (name, false, true),
            None => (name, true, true),
        };
        let key = Config::key(bare).or_else(|| bare.contains('.').then(|| bare.to_string()));
        let key = key.filter(|_| of_run);
        let parameters: Vec<String> = match Host::new().load(&self.recipe) {
            Ok(recipe) if of_recipe => {
                let all = recipe.params().iter();
                all.map(|(parameter, _)| parameter.name.clone()).collect()
            }
            Err(error) if key.is_none() => return Err(error),
            _ => Vec::new(),
        };
        let wrong = |message: &str| Diagnostic::error(format!("{name}={text}: {message}"));
        let recipe = &self.recipe;
        match (key, parameters.iter().any(|own| own == bare)) {
            (Some(_), true) => {
                let message =
                    format!("{recipe} has a parameter `{bare}`, and the run a key `{bare}`");
                let help = format!("write `recipe.{bare}={text}` or `run.{bare}={text}`");
                Err(wrong(&message).with_help(help).into())
            }
            (None, true) => {
                self.set(bare, text);
                Ok(())
            }
            (Some(key), false) => self.set_key(&key, text, wrong),
            (None, false) => {
                let message = match (of_recipe, of_run) {
                    (true, true) => {
                        format!("{recipe} has no parameter `{bare}`, and the run no key `{bare}`")
                    }
                    (true, false) => format!("{recipe} has no parameter `{bare}`"),
                    _ => format!("there is no key `{bare}`"),
                };
                let mut keys = names();
                keys.retain(|key| of_run && !is_table(key));
                let near = [("run's key", keys), ("recipe's parameter", parameters)];
                let near = near.iter().filter_map(|(kind, known)| {
                    let near = suggest::nearest(bare, known.iter().map(String::as_str))?;
                    Some(format!("the {kind} `{near}`"))
                });
                let near: Vec<String> = near.collect();
                let help = match near.is_empty() {
                    true => NAMES.to_string(),
                    false => format!("did you mean {}?", near.join(" or ")),
                };
                Err(wrong(&message).with_help(help).into())
            }
        }
    }

    fn set_key(
        &mut self,
        key: &str,
        text: &str,
        wrong: impl Fn(&str) -> Diagnostic,
    ) -> Result<(), Diagnostics> {
        let is_open = key.starts_with("params.") || key.starts_with("loss_params.");
        if !is_open && !names().iter().any(|own| own == key) {
            let problem = wrong(&format!("there is no key `{key}`"));
            return Err(problem.with_help(instead_of(key)).into());
        }
        let mut table = self.to_table();
        let (place, bare) = match key.split_once('.') {
            Some((own, bare)) => (table.get_mut(own).and_then(|own| own.as_table_mut()), bare),
            None => (Some(&mut table), key),
        };
        if let Some(place) = place {
            place.insert(bare.to_string(), parsed(text));
        }
        let config: Config = table
            .try_into()
            .map_err(|error: toml::de::Error| wrong(&in_words(error.message())))?;
        *self = Config {
            native: self.native,
            ..config
        };
        Ok(())
    }

    /// Sets a parameter of the recipe.
    pub fn set(&mut self, name: &str, text: &str) {
        self.params.insert(name.to_string(), parsed(text));
    }

    /// The keys with their values, and the tables.
    pub fn to_table(&self) -> toml::Table {
        match toml::Table::try_from(self) {
            Ok(table) => table,
            Err(error) => unreachable!("every key has a TOML type: {error}"),
        }
    }

    /// The configuration of a trainer's run: the keys that say something of it. [`Config::parse`] reads it back.
    pub(crate) fn to_recorded(&self) -> String {
        let mut table = self.to_table();
        table.retain(|key, _| ["task", "recipe", "params"].contains(&key));
        format!("# A trainer's run, as advlab recorded it\n{table}")
    }

    /// The configuration as TOML, each key below its comment; [`Config::parse`] reads it back.
    pub fn to_commented(&self) -> String {
        let comment = |key: &Key| {
            let lines: String = key.doc.iter().map(|line| format!("#{line}\n")).collect();
            let gap = if lines.is_empty() { "" } else { "\n" };
            format!("{gap}{lines}")
        };
        let mut text = "# A training run: advlab train THIS_FILE\n".to_string();
        let plain = self.to_table();
        for key in Config::KEYS {
            text += &comment(key);
            let Some(table) = plain[key.name].as_table() else {
                text += &format!("{} = {}\n", key.name, plain[key.name]);
                continue;
            };
            text += &format!("[{}]\n", key.name);
            match TABLES.iter().find(|(name, _)| *name == key.name) {
                Some((_, keys)) => {
                    for key in *keys {
                        text += &format!("{}{} = {}\n", comment(key), key.name, table[key.name]);
                    }
                }
                None => text += &table.to_string(),
            }
        }
        text
    }
}

fn has(keys: &[Key], name: &str) -> bool {
    keys.iter().any(|key| key.name == name)
}

fn is_table(name: &str) -> bool {
    ["params", "loss_params"].contains(&name) || TABLES.iter().any(|(own, _)| *own == name)
}

/// The table that has such a key.
fn table_of(name: &str) -> Option<&'static str> {
    let (table, _) = TABLES.iter().find(|(_, keys)| has(keys, name))?;
    Some(table)
}

/// All keys, `table.key` for one of a table, and the tables.
fn names() -> Vec<String> {
    let own = Config::KEYS.iter().map(|key| key.name.to_string());
    let of_tables = TABLES
        .iter()
        .flat_map(|(table, keys)| keys.iter().map(move |key| format!("{table}.{}", key.name)));
    own.chain(of_tables).collect()
}

/// Where keys begin, bytes; those of [`TABLES`] as `table.key`.
fn starts(table: &DeTable<'_>) -> BTreeMap<String, usize> {
    let mut starts = BTreeMap::new();
    for (key, value) in table {
        let name = key.get_ref().to_string();
        if TABLES.iter().any(|(table, _)| *table == name) {
            for (inner, _) in value.get_ref().as_table().into_iter().flatten() {
                starts.insert(format!("{name}.{}", inner.get_ref()), inner.span().start);
            }
        }
        starts.insert(name, key.span().start);
    }
    starts
}

/// The help for a key that does not exist.
fn instead_of(name: &str) -> String {
    let bare = name.rsplit('.').next().unwrap_or(name);
    if let Some(table) = table_of(bare) {
        return format!("it is a key of `[{table}]`: `{table}.{bare}`");
    }
    if bare != name && has(Config::KEYS, bare) {
        return format!("`{bare}` stands above all tables");
    }
    let names = names();
    match suggest::nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => NAMES.to_string(),
    }
}

/// A value as it is typed: a whole number, a number, true, false or a text.
fn parsed(text: &str) -> toml::Value {
    let whole = text.parse::<i64>().map(toml::Value::from).ok();
    let number = || text.parse::<f64>().map(toml::Value::from).ok();
    let truth = || text.parse::<bool>().map(toml::Value::from).ok();
    let value = whole.or_else(number).or_else(truth);
    value.unwrap_or_else(|| text.into())
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
        ("a sequence", "a list in brackets"),
    ];
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    words.iter().fold(message.to_string(), replace)
}
