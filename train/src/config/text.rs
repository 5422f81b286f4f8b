//! A configuration as text: reading it with errors that say the line, and printing it with its comments.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer};

use super::{Config, DEFAULTS};
use crate::error::io;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::{Host, Recipe};
use advlab::suggest;

/// Where the names of keys and of parameters are found.
const NAMES: &str = "`advlab train --print-config` prints all keys, `advlab doc RECIPE` a recipe's parameters, which are below `[params]`";

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
        let starts = starts(table.get_ref());
        let at_key = |key: &str, problem: Diagnostic| match starts.get(key) {
            Some(&start) => at(problem, start),
            None => problem.in_file(path),
        };
        let is_known = |name: &String| lines().any(|line| line.is(name));
        if let Some(name) = starts.keys().find(|name| !is_known(name)) {
            let problem = Diagnostic::error(format!("there is no key `{name}`"));
            return Err(at_key(name, problem.with_help(instead_of(name))).into());
        }
        let defaults = DeTable::parse(DEFAULTS).map_err(syntax)?.into_inner();
        complete(table.get_mut(), defaults);
        let config = Config::deserialize(Deserializer::from(table)).map_err(syntax)?;
        let problem = config.problem().map(|(key, problem)| at_key(key, problem));
        problem.map_or(Ok(config), |problem| Err(problem.into()))
    }

    /// The key of that name, `transformer.temperature` for one of a table.
    pub fn key(name: &str) -> Option<String> {
        let is_it = |line: &DefaultLine| line.key == Some(name);
        let table = lines().find(is_it)?.table;
        Some(table.map_or(name.to_string(), |table| format!("{table}.{name}")))
    }

    /// Sets a parameter of the recipe or a key of the configuration, as `--set` does: `k=8`, `lr=0.01`,
    /// `loss_params.clip_high=0.28`. A name that both have is `recipe.steps` or `run.steps`. [`Config::check`] says whether
    /// the values go together.
    ///
    /// # Errors
    /// Where neither has the name, or both have it, or the key takes another kind of value; where the recipe cannot be
    /// loaded and the name is not a key.
    pub fn assign(&mut self, name: &str, text: &str) -> Result<(), Diagnostics> {
        let wrong = |message: String| Diagnostic::error(format!("{name}={text}: {message}"));
        let (bare, of_recipe, of_run) = match name.split_once('.') {
            Some(("recipe" | "params", bare)) => (bare, true, false),
            Some(("run", bare)) => (bare, false, true),
            Some(_) => (name, false, true),
            None => (name, true, true),
        };
        let key = Config::key(bare).or_else(|| bare.contains('.').then(|| bare.to_string()));
        let key = key.filter(|_| of_run);
        let parameters = match Host::new().load(&self.recipe) {
            Ok(recipe) if of_recipe => names_of(&recipe),
            Err(error) if key.is_none() => return Err(error),
            _ => Vec::new(),
        };
        let is_parameter = parameters.iter().any(|own| own == bare);
        let recipe = &self.recipe;
        let key = match (key, is_parameter) {
            (Some(_), true) => {
                let message =
                    format!("{recipe} has a parameter `{bare}`, and the run a key `{bare}`");
                let help = format!("write `recipe.{bare}={text}` or `run.{bare}={text}`");
                return Err(wrong(message).with_help(help).into());
            }
            (None, true) => {
                self.set(bare, text);
                return Ok(());
            }
            (None, false) => {
                let message = match (of_recipe, of_run) {
                    (true, true) => {
                        format!("{recipe} has no parameter `{bare}`, and the run no key `{bare}`")
                    }
                    (true, false) => format!("{recipe} has no parameter `{bare}`"),
                    _ => format!("there is no key `{bare}`"),
                };
                let near = |kind: &str, known: &[String]| {
                    let near = suggest::nearest(bare, known.iter().map(String::as_str));
                    near.map(|near| format!("the {kind} `{near}`"))
                };
                let is_table = |key: &String| lines().any(|line| line.is_header && line.is(key));
                let keys = keys().filter(|key| of_run && !is_table(key));
                let keys: Vec<String> = keys.collect();
                let near = [
                    near("run's key", &keys),
                    near("recipe's parameter", &parameters),
                ];
                let near: Vec<String> = near.into_iter().flatten().collect();
                let help = match near.is_empty() {
                    true => NAMES.to_string(),
                    false => format!("did you mean {}?", near.join(" or ")),
                };
                return Err(wrong(message).with_help(help).into());
            }
            (Some(key), false) => key,
        };
        let mut table = self.to_table();
        let (place, bare) = match key.split_once('.') {
            Some((own, bare)) => (table.get_mut(own).and_then(|own| own.as_table_mut()), bare),
            None => (Some(&mut table), &*key),
        };
        if let Some(place) = place {
            place.insert(bare.to_string(), parsed(text));
        }
        let is_open = key.starts_with("params.") || key.starts_with("loss_params.");
        if !is_open && !lines().any(|line| line.is(&key)) {
            let problem = wrong(format!("there is no key `{key}`"));
            return Err(problem.with_help(instead_of(&key)).into());
        }
        let config: Config = table
            .try_into()
            .map_err(|error: toml::de::Error| wrong(in_words(error.message())))?;
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

    pub fn to_table(&self) -> toml::Table {
        match toml::Table::try_from(self) {
            Ok(table) => table,
            Err(error) => unreachable!("every key has a TOML type: {error}"),
        }
    }

    /// Of a trainer's run: the keys that say something of it. [`Config::parse`] reads it back.
    pub(crate) fn to_recorded(&self) -> String {
        let mut table = self.to_table();
        table.retain(|key, _| ["task", "recipe", "params"].contains(&key));
        format!("# A trainer's run, as advlab recorded it\n{table}")
    }

    /// The configuration as TOML, each key below its comment; [`Config::parse`] reads it back.
    pub fn to_commented(&self) -> String {
        let plain = self.to_table();
        let printed = |line: DefaultLine| match (line.table, line.key) {
            (Some(table), Some(key)) => format!("{key} = {}\n", plain[table][key]),
            (None, Some(key)) => format!("{key} = {}\n", plain[key]),
            (Some(table), None) if line.is_header => {
                let open = plain[table].as_table().cloned().unwrap_or_default();
                let open = open
                    .into_iter()
                    .filter(|(key, _)| !is_documented(table, key));
                format!("{}\n{}", line.text, open.collect::<toml::Table>())
            }
            _ => format!("{}\n", line.text),
        };
        lines().map(printed).collect()
    }
}

/// A line of the default configuration.
#[derive(Clone, Copy)]
struct DefaultLine {
    text: &'static str,
    /// The table that it is in, or begins.
    table: Option<&'static str>,
    is_header: bool,
    /// The key that it sets.
    key: Option<&'static str>,
}

impl DefaultLine {
    /// Whether it sets the key, `table.key` in a table, or begins the table of that name.
    fn is(&self, name: &str) -> bool {
        match (self.table, self.key) {
            (None, Some(key)) => key == name,
            (Some(table), Some(key)) => name.split_once('.') == Some((table, key)),
            (Some(table), None) => self.is_header && table == name,
            (None, None) => false,
        }
    }
}

fn lines() -> impl Iterator<Item = DefaultLine> {
    DEFAULTS.lines().scan(None, |table, text| {
        let header = text.strip_prefix('[').and_then(|key| key.strip_suffix(']'));
        *table = header.or(*table);
        let key = text.split_once(" = ").map(|(key, _)| key);
        Some(DefaultLine {
            text,
            table: *table,
            is_header: header.is_some(),
            key: key.filter(|key| !key.starts_with('#')),
        })
    })
}

/// Whether the default configuration has the key in that table; the keys of others are the recipe's.
fn is_documented(table: &str, key: &str) -> bool {
    lines().any(|line| line.table == Some(table) && line.key == Some(key))
}

/// The table that has such a key.
fn table_of(name: &str) -> Option<&'static str> {
    lines()
        .find(|line| line.key == Some(name) && line.table.is_some())?
        .table
}

/// Where keys begin, bytes; those in tables of ours as `table.key`.
fn starts(table: &DeTable<'_>) -> BTreeMap<String, usize> {
    let mut starts = BTreeMap::new();
    for (key, value) in table {
        let name = key.get_ref().to_string();
        let is_ours = lines().any(|line| line.table == Some(&name) && line.key.is_some());
        for (inner, _) in value.get_ref().as_table().into_iter().flatten() {
            if is_ours {
                starts.insert(format!("{name}.{}", inner.get_ref()), inner.span().start);
            }
        }
        starts.insert(name, key.span().start);
    }
    starts
}

/// Adds what a table lacks, in its tables too.
fn complete<'a>(table: &mut DeTable<'a>, defaults: DeTable<'a>) {
    for (key, default) in defaults {
        match (table.get_mut(&key).map(|value| value.get_mut()), default) {
            (Some(DeValue::Table(own)), default) => {
                if let DeValue::Table(defaults) = default.into_inner() {
                    complete(own, defaults);
                }
            }
            (Some(_), _) => {}
            (None, default) => {
                table.insert(key, default);
            }
        }
    }
}

/// All keys, `table.key` for one of a table, and the tables.
fn keys() -> impl Iterator<Item = String> {
    lines().filter_map(|line| match (line.table, line.key) {
        (Some(table), Some(key)) => Some(format!("{table}.{key}")),
        (table, key) => key.or(table).map(str::to_string),
    })
}

/// The names of a recipe's parameters.
fn names_of(recipe: &Recipe) -> Vec<String> {
    let all = recipe.params().iter();
    all.map(|(parameter, _)| parameter.name.clone()).collect()
}

/// The help for a key that does not exist.
fn instead_of(name: &str) -> String {
    let bare = name.rsplit('.').next().unwrap_or(name);
    if let Some(table) = table_of(bare) {
        return format!("it is a key of `[{table}]`: `{table}.{bare}`");
    }
    if bare != name && keys().any(|key| key == bare) {
        return format!("`{bare}` stands above all tables");
    }
    let keys: Vec<String> = keys().collect();
    match suggest::nearest(name, keys.iter().map(String::as_str)) {
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
