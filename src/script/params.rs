//! Parameters: what a recipe's `params()` declares, and the values that a command or a config sets.

use std::fmt;

use rhai::{Array, Dynamic, ImmutableString, Map};
use serde::{Serialize, Serializer};

use super::bind::{describe, number};
use super::explain::said;
use super::state::written;
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// An integer.
    Whole(i64),
    /// A number.
    Number(f64),
    /// True or false.
    Truth(bool),
    /// A string; usually one of some choices.
    Text(String),
    /// Not set: `()` in scripts, `none` on the command line.
    Nothing,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Text(value) => f.write_str(value),
            Setting::Nothing => f.write_str("none"),
            other => f.write_str(&written(&other.to_dynamic())),
        }
    }
}

/// As JSON's own types, `null` for one that is not set; what JSON has no number for is a string, such as `"inf"`.
impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Setting::Whole(value) => serializer.serialize_i64(*value),
            Setting::Number(value) if value.is_finite() => serializer.serialize_f64(*value),
            Setting::Truth(value) => serializer.serialize_bool(*value),
            Setting::Nothing => serializer.serialize_unit(),
            Setting::Number(_) | Setting::Text(_) => serializer.collect_str(self),
        }
    }
}

impl Setting {
    pub(super) fn from_dynamic(value: &Dynamic) -> Option<Setting> {
        if let Some(text) = value.read_lock::<ImmutableString>() {
            return Some(Setting::Text(text.to_string()));
        }
        match (value.as_int(), value.as_float(), value.as_bool()) {
            (Ok(whole), ..) => Some(Setting::Whole(whole)),
            (_, Ok(number), _) => Some(Setting::Number(number)),
            (_, _, Ok(truth)) => Some(Setting::Truth(truth)),
            _ => value.is_unit().then_some(Setting::Nothing),
        }
    }

    pub(super) fn to_dynamic(&self) -> Dynamic {
        match self {
            Setting::Whole(value) => (*value).into(),
            Setting::Number(value) => (*value).into(),
            Setting::Truth(value) => (*value).into(),
            Setting::Text(value) => value.into(),
            Setting::Nothing => Dynamic::UNIT,
        }
    }
}

/// A parameter as a recipe declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name, as in `p.k`.
    pub name: String,
    /// The value where nobody sets it; its type is that of the parameter.
    pub default: Setting,
    /// The least value allowed.
    pub min: Option<f64>,
    /// The greatest value allowed.
    pub max: Option<f64>,
    /// The strings allowed; empty for any.
    pub choices: Vec<String>,
    /// Its purpose, in one line.
    pub doc: String,
}

impl Parameter {
    /// The values that the parameter takes, such as `an integer, at least 1`.
    pub fn takes(&self) -> String {
        let kind = match &self.default {
            Setting::Whole(_) => "an integer",
            Setting::Number(_) => "a number",
            Setting::Nothing => "a number or none",
            Setting::Truth(_) => "true or false",
            Setting::Text(_) if self.choices.is_empty() => "a string",
            Setting::Text(_) => return suggest::list(self.choices.iter().map(String::as_str)),
        };
        // The largest integer bounds nothing that anybody would set.
        match (self.min, self.max.filter(|max| *max < i64::MAX as f64)) {
            (Some(min), Some(max)) => format!("{kind} from {min} to {max}"),
            (Some(min), None) => format!("{kind}, at least {min}"),
            (None, Some(max)) => format!("{kind}, at most {max}"),
            (None, None) => kind.to_string(),
        }
    }

    fn parse(&self, text: &str) -> Result<Setting, Diagnostic> {
        let number = || text.parse().ok().filter(|value: &f64| !value.is_nan());
        let setting = match &self.default {
            Setting::Whole(_) => text.parse().ok().map(Setting::Whole),
            Setting::Truth(_) => text.parse().ok().map(Setting::Truth),
            Setting::Text(_) => None,
            Setting::Nothing if text == "none" => Some(Setting::Nothing),
            Setting::Number(_) | Setting::Nothing => number().map(Setting::Number),
        };
        self.check(setting.unwrap_or_else(|| Setting::Text(text.to_string())))
    }

    /// The value, of the parameter's type and within its bounds.
    fn check(&self, setting: Setting) -> Result<Setting, Diagnostic> {
        let is_within = |number: f64| {
            self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
        };
        let fits = match (&self.default, &setting) {
            // Exact up to 2^53: bounds are small numbers.
            (Setting::Whole(_), Setting::Whole(whole)) => is_within(*whole as f64),
            (Setting::Number(_) | Setting::Nothing, Setting::Whole(whole)) => {
                return self.check(Setting::Number(*whole as f64));
            }
            (Setting::Number(_) | Setting::Nothing, Setting::Number(number)) => is_within(*number),
            (Setting::Text(_), Setting::Text(text)) => {
                self.choices.is_empty() || self.choices.contains(text)
            }
            (Setting::Truth(_), Setting::Truth(_)) | (Setting::Nothing, Setting::Nothing) => true,
            _ => false,
        };
        if fits {
            Ok(setting)
        } else {
            Err(self.wrong(&setting))
        }
    }

    fn wrong(&self, found: &Setting) -> Diagnostic {
        let choices = self.choices.iter().map(String::as_str);
        let (shown, near) = match found {
            Setting::Text(text) => (format!("\"{text}\""), suggest::nearest(text, choices)),
            found => (found.to_string(), None),
        };
        let row = near.map_or("value", |_| "near-value");
        let names = [&self.name, &shown, &self.takes(), near.unwrap_or("")];
        said("params", row, &names)
    }
}

/// A recipe's parameters with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(Vec<(Parameter, Setting)>);

impl Parameters {
    /// Reads what `params()` returned; an error comes with the parameter that it is about.
    pub(super) fn declared(map: &Map) -> Result<Parameters, (String, Diagnostic)> {
        let declared = map.iter().map(|(name, value)| {
            let parameter = declare(name, value).map_err(|error| (name.to_string(), error))?;
            let default = parameter.default.clone();
            Ok((parameter, default))
        });
        declared.collect::<Result<_, _>>().map(Parameters)
    }

    /// The parameters with their values, in alphabetical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Parameter, &Setting)> {
        self.0.iter().map(|(parameter, value)| (parameter, value))
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        let mut all = self.iter();
        all.find_map(|(parameter, value)| (parameter.name == name).then_some(value))
    }

    /// Sets a parameter from a string, as in `--set k=8`.
    ///
    /// # Errors
    /// A [`Diagnostic`] that names the nearest parameter where there is none of that name, and what the parameter takes
    /// where the value does not fit.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), Diagnostic> {
        let (parameter, value) = self.find(name)?;
        *value = parameter.parse(text)?;
        Ok(())
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// As [`Parameters::set_text`].
    pub fn set(&mut self, name: &str, setting: Setting) -> Result<(), Diagnostic> {
        let (parameter, value) = self.find(name)?;
        *value = parameter.check(setting)?;
        Ok(())
    }

    pub(super) fn set_dynamic(&mut self, name: &str, value: &Dynamic) -> Result<(), Diagnostic> {
        let cannot = || said("params", "kind", &[name, &describe(value)]);
        self.set(name, Setting::from_dynamic(value).ok_or_else(cannot)?)
    }

    fn find(&mut self, name: &str) -> Result<&mut (Parameter, Setting), Diagnostic> {
        let index = self.iter().position(|(known, _)| known.name == name);
        if let Some(index) = index {
            return Ok(&mut self.0[index]);
        }
        let names = self.iter().map(|(parameter, _)| parameter.name.as_str());
        let row = if self.0.is_empty() { "none" } else { "unknown" };
        let instead = suggest::did_you_mean(name, names);
        Err(said("params", row, &[name, &instead]))
    }

    /// The map that hooks get as `p`.
    pub(super) fn to_map(&self) -> Map {
        let entries = self.iter();
        let entries =
            entries.map(|(known, value)| (known.name.as_str().into(), value.to_dynamic()));
        entries.collect()
    }
}

impl fmt::Display for Parameters {
    /// The settings in a line: `k=2 std=sample`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.iter();
        let settings = settings.map(|(parameter, value)| format!("{}={value}", parameter.name));
        f.write_str(&settings.collect::<Vec<_>>().join(" "))
    }
}

const KEYS: [&str; 5] = ["value", "min", "max", "choices", "doc"];

fn declare(name: &str, value: &Dynamic) -> Result<Parameter, Diagnostic> {
    let fail = |row, what: &str, found: &str| said("params", row, &[name, what, found]);
    let Some(map) = value.read_lock::<Map>() else {
        return Err(fail("map", &value.to_string(), &describe(value)));
    };
    if let Some(key) = map.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(fail("key", key, &suggest::did_you_mean(key, KEYS)));
    }
    let default = map.get("value").ok_or_else(|| fail("no-value", "", ""))?;
    let default =
        Setting::from_dynamic(default).ok_or_else(|| fail("no-default", &describe(default), ""))?;
    let bound = |key: &str| match map.get(key) {
        None => Ok(None),
        Some(bound) => number(bound)
            .map(Some)
            .ok_or_else(|| fail("bound", key, &describe(bound))),
    };
    let string = |value: &Dynamic| Some(value.read_lock::<ImmutableString>()?.to_string());
    let strings = |value: &Dynamic| {
        let array = value.read_lock::<Array>()?;
        array.iter().map(string).collect::<Option<Vec<String>>>()
    };
    let choices = map.get("choices").map_or(Some(Vec::new()), strings);
    let doc = map.get("doc").map_or(Some(String::new()), string);
    let (min, max) = (bound("min")?, bound("max")?);
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(fail("between", &min.to_string(), &max.to_string()));
    }
    let parameter = Parameter {
        name: name.to_string(),
        default: default.clone(),
        min,
        max,
        choices: choices.ok_or_else(|| fail("choices", "", ""))?,
        doc: doc.ok_or_else(|| fail("doc", "", ""))?,
    };
    parameter
        .check(default)
        .map_err(|error| fail("default", &error.message, ""))?;
    Ok(parameter)
}
