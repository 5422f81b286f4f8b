//! Parameters: the declarations in a recipe's `params()`, and the values that a command or a configuration sets.

use std::fmt;

use rhai::{Array, Dynamic, Map};
use serde::{Serialize, Serializer};

use super::value::{describe, number, text, written};
use crate::diagnostic::Diagnostic;
use crate::number_text::in_json;
use crate::suggest;

/// A parameter's value. It is serialized as the JSON value of the corresponding type; a number that is not finite becomes a
/// string.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// An integer.
    Integer(i64),
    /// A number.
    #[serde(serialize_with = "number_or_text")]
    Number(f64),
    /// True or false.
    Bool(bool),
    /// A string, which is often limited to some choices.
    Text(String),
    /// A list of values, such as the names of columns, written as an array in scripts and as `a,b` on the command line. Unless
    /// the default is empty, all values have the type of its first value.
    List(Vec<ParamValue>),
    /// The value of a parameter that is not set: `()` in scripts, `none` on the command line.
    Unset,
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamValue::Text(value) => f.write_str(value),
            ParamValue::Unset => f.write_str("none"),
            ParamValue::List(values) => {
                let values: Vec<String> = values.iter().map(ParamValue::to_string).collect();
                f.write_str(&values.join(","))
            }
            other => f.write_str(&written(&other.to_dynamic())),
        }
    }
}

/// Serializes a number. A number that JSON cannot represent becomes a string, such as `"inf"`.
fn number_or_text<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    in_json(*number).serialize(serializer)
}

impl ParamValue {
    pub(crate) fn from_dynamic(value: &Dynamic) -> Option<ParamValue> {
        if let Some(text) = text(value) {
            return Some(ParamValue::Text(text.to_string()));
        }
        if let Some(array) = value.read_lock::<Array>() {
            let values: Vec<ParamValue> = array
                .iter()
                .map(ParamValue::from_dynamic)
                .collect::<Option<_>>()?;
            let is_one =
                |value: &ParamValue| !matches!(value, ParamValue::List(_) | ParamValue::Unset);
            return values
                .iter()
                .all(is_one)
                .then_some(ParamValue::List(values));
        }
        match (value.as_int(), value.as_float(), value.as_bool()) {
            (Ok(whole), ..) => Some(ParamValue::Integer(whole)),
            (_, Ok(number), _) => Some(ParamValue::Number(number)),
            (_, _, Ok(truth)) => Some(ParamValue::Bool(truth)),
            _ => value.is_unit().then_some(ParamValue::Unset),
        }
    }

    pub(crate) fn to_dynamic(&self) -> Dynamic {
        match self {
            ParamValue::Integer(value) => (*value).into(),
            ParamValue::Number(value) => (*value).into(),
            ParamValue::Bool(value) => (*value).into(),
            ParamValue::Text(value) => value.into(),
            ParamValue::Unset => Dynamic::UNIT,
            ParamValue::List(values) => {
                let values: Array = values.iter().map(ParamValue::to_dynamic).collect();
                values.into()
            }
        }
    }
}

/// A parameter as a recipe declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// The name, as in `p.k`.
    pub name: String,
    /// The default value; its type is the parameter's type.
    pub default: ParamValue,
    /// The minimum, if there is one.
    pub min: Option<f64>,
    /// The maximum, if there is one.
    pub max: Option<f64>,
    /// Whether the first bound that is given is an integer: if so, a parameter that is not set by default takes only integers.
    pub is_whole: bool,
    /// The allowed strings; empty if any string is allowed.
    pub choices: Vec<String>,
    /// The purpose of the parameter, in one line.
    pub doc: String,
}

impl ParamSpec {
    /// Describes the values that the parameter takes, such as `an integer, at least 1`.
    pub fn takes(&self) -> String {
        let (list, kind) = match &self.default {
            ParamValue::List(values) => ("a list of ", values.first()),
            one => ("", Some(one)),
        };
        if !self.choices.is_empty() {
            let choices = suggest::list(self.choices.iter().map(String::as_str));
            return format!("{list}{choices}");
        }
        let list = list.replace("of ", "as in `a,b`, each ");
        let kind = match kind {
            Some(ParamValue::Integer(_)) => "an integer",
            Some(ParamValue::Number(_)) => "a number",
            Some(ParamValue::Unset) if self.is_whole => "none or an integer",
            Some(ParamValue::Unset) => "none or a number",
            Some(ParamValue::Bool(_)) => "true or false",
            Some(ParamValue::Text(_)) => "a string",
            Some(ParamValue::List(_)) | None => "a value",
        };
        // An upper bound of the largest integer or more is not shown, because it is no limit in practice.
        let bounds = match (self.min, self.max.filter(|max| *max < i64::MAX as f64)) {
            (Some(min), Some(max)) => format!(" from {min} to {max}"),
            (Some(min), None) => format!(", at least {min}"),
            (None, Some(max)) => format!(", at most {max}"),
            (None, None) => String::new(),
        };
        format!("{list}{kind}{bounds}")
    }

    /// Converts a value to the parameter's type. The error for a value of another type, or outside the bounds, says which values
    /// the parameter takes.
    fn check(&self, found: ParamValue) -> Result<ParamValue, Diagnostic> {
        self.fit(Some(&self.default), found.clone()).ok_or_else(|| {
            let (name, takes) = (&self.name, self.takes());
            let choices = self.choices.iter().map(String::as_str);
            let (shown, near) = match &found {
                ParamValue::Text(text) => (format!("\"{text}\""), suggest::nearest(text, choices)),
                other => (other.to_string(), None),
            };
            let takes = match near {
                Some(near) => format!("did you mean `{near}`? It takes {takes}"),
                None => format!("it takes {takes}"),
            };
            Diagnostic::error(format!("`{name}` is {shown}: {takes}"))
        })
    }

    /// Converts a value to the type of `kind` (any type if `None`). Returns `None` if the value does not fit.
    fn fit(&self, kind: Option<&ParamValue>, setting: ParamValue) -> Option<ParamValue> {
        use ParamValue::{Bool, Integer, List, Number, Text, Unset};
        let is_within = |number: f64| {
            self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
        };
        match (kind, setting) {
            (Some(List(kinds)), List(values)) => {
                let values = values
                    .into_iter()
                    .map(|value| self.fit(kinds.first(), value));
                values.collect::<Option<_>>().map(List)
            }
            (Some(Unset), Unset) => Some(Unset),
            (Some(Unset), setting) if self.is_whole => self.fit(Some(&Integer(0)), setting),
            (Some(Unset), setting) => self.fit(Some(&Number(0.0)), setting),
            // The conversion is exact up to 2^53, which suffices because parameters are small.
            (Some(Number(_)), Integer(whole)) => self.fit(kind, Number(whole as f64)),
            (Some(Integer(_)) | None, Integer(whole)) => {
                is_within(whole as f64).then_some(Integer(whole))
            }
            (Some(Number(_)) | None, Number(number)) => is_within(number).then_some(Number(number)),
            (Some(Text(_)) | None, Text(text)) => {
                let is_choice = self.choices.is_empty() || self.choices.contains(&text);
                is_choice.then_some(Text(text))
            }
            (Some(Bool(_)) | None, Bool(truth)) => Some(Bool(truth)),
            _ => None,
        }
    }
}

/// Parses a text as a value of the type of `kind` (as a number if `None`); a text that does not parse becomes a string.
pub(super) fn read(kind: Option<&ParamValue>, text: &str) -> ParamValue {
    // `inf` is a number, but digits that exceed the largest number are a mistake, because they would silently become infinity.
    let is_meant = |value: &f64| !value.is_nan() && (value.is_finite() || text.contains("inf"));
    let number = || text.parse().ok().filter(is_meant).map(ParamValue::Number);
    let read = match kind {
        Some(ParamValue::Text(_)) => None,
        Some(ParamValue::Bool(_)) => text.parse().ok().map(ParamValue::Bool),
        Some(ParamValue::Unset) if text == "none" => Some(ParamValue::Unset),
        Some(ParamValue::List(kinds)) => {
            let items = items(text)
                .into_iter()
                .map(|item| read(kinds.first(), &item));
            Some(ParamValue::List(items.collect()))
        }
        _ => text.parse().ok().map(ParamValue::Integer).or_else(number),
    };
    read.unwrap_or_else(|| ParamValue::Text(text.to_string()))
}

/// Splits a list, written as `a,b` or as JSON, in which a string may contain a comma.
fn items(text: &str) -> Vec<String> {
    if let Ok(items) = serde_json::from_str::<Vec<serde_json::Value>>(text) {
        let text = |item: &serde_json::Value| match item.as_str() {
            Some(text) => text.to_string(),
            None => item.to_string(),
        };
        return items.iter().map(text).collect();
    }
    let bare = text.trim().trim_start_matches('[').trim_end_matches(']');
    let parts = bare
        .split(',')
        .map(|part| part.trim().trim_matches('"'))
        .filter(|part| !part.is_empty());
    parts.map(str::to_string).collect()
}

/// A recipe's parameters with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(Vec<(ParamSpec, ParamValue)>);

impl Params {
    /// Reads the result of `params()`. An error consists of the name of a parameter and the problem with that parameter.
    pub(super) fn declared(map: &Map) -> Result<Params, (String, String)> {
        let declared = map.iter().map(|(name, value)| {
            let parameter = declare(name, value).map_err(|why| (name.to_string(), why))?;
            let default = parameter.default.clone();
            Ok((parameter, default))
        });
        declared.collect::<Result<_, _>>().map(Params)
    }

    /// Returns the parameters with their values, in alphabetical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ParamSpec, &ParamValue)> {
        self.0.iter().map(|(parameter, value)| (parameter, value))
    }

    /// Returns the value of a parameter.
    pub fn get(&self, name: &str) -> Option<&ParamValue> {
        self.find(name).map(|(_, value)| value)
    }

    pub(crate) fn find(&self, name: &str) -> Option<(&ParamSpec, &ParamValue)> {
        self.iter().find(|(parameter, _)| parameter.name == name)
    }

    /// Sets a parameter to the result of `value`, which gets the parameter's default because it shows the parameter's type.
    ///
    /// # Errors
    /// A [`Diagnostic`]. If there is no parameter of that name, it names the most similar parameter, or lists up to 16 parameters
    /// if none is similar; if the value does not fit, it says which values fit.
    pub(super) fn set(
        &mut self,
        name: &str,
        value: impl FnOnce(&ParamValue) -> ParamValue,
    ) -> Result<(), Diagnostic> {
        let Some(index) = self.0.iter().position(|(known, _)| known.name == name) else {
            let names = self.iter().map(|(parameter, _)| parameter.name.as_str());
            let near = suggest::did_you_mean(name, names);
            let message = format!("the recipe has no parameter `{name}`: {near}");
            return Err(Diagnostic::error(message));
        };
        let (parameter, setting) = &mut self.0[index];
        *setting = parameter.check(value(&parameter.default))?;
        Ok(())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.iter().map(|(parameter, _)| parameter.name.clone());
        names.collect()
    }

    /// Makes the map that hooks get as `p`.
    pub(crate) fn to_map(&self) -> Map {
        let entries = self
            .iter()
            .map(|(known, value)| (known.name.as_str().into(), value.to_dynamic()));
        entries.collect()
    }
}

impl fmt::Display for Params {
    /// Writes the settings in one line: `k=2 std=sample`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self
            .iter()
            .map(|(parameter, value)| format!("{}={value}", parameter.name));
        f.write_str(&settings.collect::<Vec<_>>().join(" "))
    }
}

pub(super) const KEYS: [&str; 5] = ["value", "min", "max", "choices", "doc"];

fn declare(name: &str, value: &Dynamic) -> Result<ParamSpec, String> {
    // `eps: 1e-6` is short for `eps: #{ value: 1e-6 }`.
    let map = match value.read_lock::<Map>() {
        Some(map) => map.clone(),
        None if ParamValue::from_dynamic(value).is_some() => {
            [("value".into(), value.clone())].into()
        }
        None => {
            let found = describe(value);
            return Err(format!(
                "must be a default, or a map with the default as `value`, as in `#{{ value: 4, doc: \"...\" }}`, but this is {found}"
            ));
        }
    };
    if let Some(key) = map.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let near = suggest::did_you_mean(key, KEYS);
        return Err(format!("there is no key `{key}`: {near}"));
    }
    let default = map
        .get("value")
        .ok_or("needs a `value`, which is its default")?;
    let default = ParamValue::from_dynamic(default)
        .ok_or_else(|| format!("`value` cannot be {}", describe(default)))?;
    let bound = |key: &str| {
        let wrong = |found| format!("`{key}` must be a number, but this is {}", describe(found));
        let bound = map
            .get(key)
            .map(|bound| number(bound).ok_or_else(|| wrong(bound)));
        bound.transpose()
    };
    let string = |value: &Dynamic| Some(text(value)?.to_string());
    let strings = |value: &Dynamic| {
        let array = value.read_lock::<Array>()?;
        array.iter().map(string).collect::<Option<Vec<String>>>()
    };
    let choices = map.get("choices").map_or(Some(Vec::new()), strings);
    let doc = map.get("doc").map_or(Some(String::new()), string);
    let mut bounds = ["min", "max"].into_iter().filter_map(|key| map.get(key));
    let parameter = ParamSpec {
        name: name.to_string(),
        default: default.clone(),
        min: bound("min")?,
        max: bound("max")?,
        is_whole: bounds.next().is_some_and(Dynamic::is_int),
        choices: choices.ok_or("`choices` must be an array of strings")?,
        doc: doc.ok_or("`doc` must be a string")?,
    };
    let unfit = |error: Diagnostic| format!("its own default does not fit: {}", error.message);
    parameter.check(default).map_err(unfit)?;
    Ok(parameter)
}
