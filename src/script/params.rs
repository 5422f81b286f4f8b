//! Parameters: what a recipe's `params()` declares, and the values that a command or a config sets.

use std::fmt;

use rhai::{Array, Dynamic, ImmutableString, Map};
use serde::{Serialize, Serializer};

use super::bind::{describe, number, written};
use super::mistake::Mistake;
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// A parameter's value. In JSON, it has JSON's own type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// An integer.
    Whole(i64),
    /// A number.
    #[serde(serialize_with = "number_or_text")]
    Number(f64),
    /// True or false.
    Truth(bool),
    /// A string; usually one of some choices.
    Text(String),
    /// Some values of one kind, such as the names of columns: an array in scripts, `a,b` on the command line.
    List(Vec<Setting>),
    /// Not set: `()` in scripts, `none` on the command line.
    Nothing,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Text(value) => f.write_str(value),
            Setting::Nothing => f.write_str("none"),
            Setting::List(values) => {
                let values: Vec<String> = values.iter().map(Setting::to_string).collect();
                f.write_str(&values.join(","))
            }
            other => f.write_str(&written(&other.to_dynamic())),
        }
    }
}

/// A number that JSON does not have is a string, such as `"inf"`.
fn number_or_text<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match number.is_finite() {
        true => serializer.serialize_f64(*number),
        false => serializer.collect_str(&Setting::Number(*number)),
    }
}

impl Setting {
    pub(crate) fn from_dynamic(value: &Dynamic) -> Option<Setting> {
        if let Some(text) = value.read_lock::<ImmutableString>() {
            return Some(Setting::Text(text.to_string()));
        }
        if let Some(array) = value.read_lock::<Array>() {
            let values = array.iter().map(Setting::from_dynamic);
            let values: Vec<Setting> = values.collect::<Option<_>>()?;
            let is_one = |value: &Setting| !matches!(value, Setting::List(_) | Setting::Nothing);
            return values.iter().all(is_one).then_some(Setting::List(values));
        }
        match (value.as_int(), value.as_float(), value.as_bool()) {
            (Ok(whole), ..) => Some(Setting::Whole(whole)),
            (_, Ok(number), _) => Some(Setting::Number(number)),
            (_, _, Ok(truth)) => Some(Setting::Truth(truth)),
            _ => value.is_unit().then_some(Setting::Nothing),
        }
    }

    pub(crate) fn to_dynamic(&self) -> Dynamic {
        match self {
            Setting::Whole(value) => (*value).into(),
            Setting::Number(value) => (*value).into(),
            Setting::Truth(value) => (*value).into(),
            Setting::Text(value) => value.into(),
            Setting::Nothing => Dynamic::UNIT,
            Setting::List(values) => values
                .iter()
                .map(Setting::to_dynamic)
                .collect::<Array>()
                .into(),
        }
    }
}

/// A parameter as a recipe declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name, as in `p.k`.
    pub name: String,
    /// The default value; its type is that of the parameter.
    pub default: Setting,
    /// The least value allowed.
    pub min: Option<f64>,
    /// The greatest value allowed.
    pub max: Option<f64>,
    /// Whether numbers must be integers although the default is not set: its bounds are integers.
    pub is_whole: bool,
    /// The strings allowed; empty for any.
    pub choices: Vec<String>,
    /// Its purpose, in one line.
    pub doc: String,
}

impl Parameter {
    /// The values that the parameter takes, such as `an integer, at least 1`.
    pub fn takes(&self) -> String {
        let of_list = match &self.default {
            Setting::List(values) => Some(values.first()),
            _ => None,
        };
        let kind = match of_list.unwrap_or(Some(&self.default)) {
            _ if !self.choices.is_empty() => {
                let choices = suggest::list(self.choices.iter().map(String::as_str));
                return match of_list {
                    Some(_) => format!("a list of {choices}"),
                    None => choices,
                };
            }
            Some(Setting::Whole(_)) => "an integer",
            Some(Setting::Number(_)) => "a number",
            Some(Setting::Nothing) if self.is_whole => "an integer or none",
            Some(Setting::Nothing) => "a number or none",
            Some(Setting::Truth(_)) => "true or false",
            Some(Setting::Text(_)) => "a string",
            Some(Setting::List(_)) | None => "a value",
        };
        let kind = match of_list {
            Some(_) => format!("a list as in `a,b`, each {kind}"),
            None => kind.to_string(),
        };
        // The largest integer is no bound in practice.
        match (self.min, self.max.filter(|max| *max < i64::MAX as f64)) {
            (Some(min), Some(max)) => format!("{kind} from {min} to {max}"),
            (Some(min), None) => format!("{kind}, at least {min}"),
            (None, Some(max)) => format!("{kind}, at most {max}"),
            (None, None) => kind,
        }
    }

    /// The value, of the parameter's type and within its bounds.
    fn check(&self, found: Setting) -> Result<Setting, Diagnostic> {
        if let Some(setting) = self.fit(Some(&self.default), &found) {
            return Ok(setting);
        }
        let choices = self.choices.iter().map(String::as_str);
        let is_whole = matches!(self.default, Setting::Whole(_));
        let (shown, near) = match found {
            Setting::Text(text) if is_whole && text.parse::<f64>().is_ok() => (text, None),
            Setting::Text(text) => (format!("\"{text}\""), suggest::nearest(&text, choices)),
            found => (found.to_string(), None),
        };
        let (name, found, takes) = (&*self.name, &*shown, &*self.takes());
        Err(match near {
            None => Mistake::WrongValue { name, found, takes }.into(),
            Some(near) => Mistake::NearValue {
                name,
                found,
                near,
                takes,
            }
            .into(),
        })
    }

    /// The value as the type of `kind`, or of any, if it has it and is within the bounds.
    fn fit(&self, kind: Option<&Setting>, setting: &Setting) -> Option<Setting> {
        let is_within = |number: f64| {
            self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
        };
        let fits = match (kind, setting) {
            (Some(Setting::List(kinds)), Setting::List(values)) => {
                let values = values.iter().map(|value| self.fit(kinds.first(), value));
                return values.collect::<Option<_>>().map(Setting::List);
            }
            // Exact up to 2^53: bounds are small numbers.
            (Some(Setting::Whole(_)) | None, Setting::Whole(whole)) => is_within(*whole as f64),
            (Some(Setting::Nothing), Setting::Whole(whole)) if self.is_whole => {
                is_within(*whole as f64)
            }
            (Some(Setting::Number(_) | Setting::Nothing), Setting::Whole(whole)) => {
                return self.fit(kind, &Setting::Number(*whole as f64));
            }
            (Some(Setting::Nothing), Setting::Number(_)) if self.is_whole => false,
            (Some(Setting::Number(_) | Setting::Nothing) | None, Setting::Number(number)) => {
                is_within(*number)
            }
            (Some(Setting::Text(_)) | None, Setting::Text(text)) => {
                self.choices.is_empty() || self.choices.contains(text)
            }
            (Some(Setting::Truth(_)) | None, Setting::Truth(_)) => true,
            (Some(Setting::Nothing), Setting::Nothing) => true,
            _ => false,
        };
        fits.then(|| setting.clone())
    }
}

/// Reads a text as the type of `kind`, or of any; if it is no such value, it is a string.
fn read(kind: Option<&Setting>, text: &str) -> Setting {
    // `inf` is one; digits beyond the largest number are a slip.
    let is_meant = |value: &f64| !value.is_nan() && (value.is_finite() || text.contains("inf"));
    let number = || text.parse().ok().filter(is_meant);
    let whole = || text.parse().ok().map(Setting::Whole);
    let setting = match kind {
        Some(Setting::Whole(_)) => whole(),
        Some(Setting::Truth(_)) => text.parse().ok().map(Setting::Truth),
        Some(Setting::Text(_)) => None,
        Some(Setting::Nothing) if text == "none" => Some(Setting::Nothing),
        Some(Setting::Nothing) | None => whole().or_else(|| number().map(Setting::Number)),
        Some(Setting::Number(_)) => number().map(Setting::Number),
        Some(Setting::List(kinds)) => {
            let item = |part: &str| read(kinds.first(), part);
            // In JSON, a comma may stand inside of a string.
            if let Ok(items) = serde_json::from_str::<Vec<serde_json::Value>>(text) {
                let text = |value: &serde_json::Value| match value.as_str() {
                    Some(text) => item(text),
                    None => item(&value.to_string()),
                };
                return Setting::List(items.iter().map(text).collect());
            }
            let bare = text.trim().trim_start_matches('[').trim_end_matches(']');
            let parts = bare.split(',').map(|part| part.trim().trim_matches('"'));
            let parts = parts.filter(|part| !part.is_empty());
            Some(Setting::List(parts.map(item).collect()))
        }
    };
    setting.unwrap_or_else(|| Setting::Text(text.to_string()))
}

/// A recipe's parameters with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(Vec<(Parameter, Setting)>);

impl Parameters {
    /// Reads the result of `params()`; an error comes with the name of its parameter.
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
    /// A [`Diagnostic`] that names the nearest parameter if there is none of that name, and the accepted values if the
    /// value does not fit.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), Diagnostic> {
        let (parameter, value) = self.find(name)?;
        *value = parameter.check(read(Some(&parameter.default), text))?;
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

    pub(crate) fn set_dynamic(&mut self, name: &str, value: &Dynamic) -> Result<(), Diagnostic> {
        let cannot = || {
            let found = &describe(value);
            Diagnostic::from(Mistake::NotASetting { name, found })
        };
        self.set(name, Setting::from_dynamic(value).ok_or_else(cannot)?)
    }

    fn find(&mut self, name: &str) -> Result<&mut (Parameter, Setting), Diagnostic> {
        let index = self.iter().position(|(known, _)| known.name == name);
        if let Some(index) = index {
            return Ok(&mut self.0[index]);
        }
        let names = self.iter().map(|(parameter, _)| parameter.name.as_str());
        if self.0.is_empty() {
            return Err(Mistake::NoSettings { name }.into());
        }
        let near = &suggest::did_you_mean(name, names);
        Err(Mistake::NoSetting { name, near }.into())
    }

    /// The map that hooks get as `p`.
    pub(crate) fn to_map(&self) -> Map {
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
    let fail = |why: &str| Diagnostic::from(Mistake::Declaration { name, why });
    let short =
        || Setting::from_dynamic(value).map(|_| Map::from([("value".into(), value.clone())]));
    // `eps: 1e-6` is short for `eps: #{ value: 1e-6 }`.
    let Some(map) = value
        .read_lock::<Map>()
        .map(|map| map.clone())
        .or_else(short)
    else {
        return Err(fail(&format!(
            "must be its default, or a map with it, `#{{ value: 4, doc: \"...\" }}`; this is {}",
            describe(value)
        )));
    };
    if let Some(key) = map.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let near = suggest::did_you_mean(key, KEYS);
        return Err(fail(&format!("there is no key `{key}`: {near}")));
    }
    let default = map
        .get("value")
        .ok_or_else(|| fail("needs a `value`, which is its default"))?;
    let default = Setting::from_dynamic(default)
        .ok_or_else(|| fail(&format!("`value` cannot be {}", describe(default))))?;
    let bound = |key: &str| match map.get(key) {
        None => Ok(None),
        Some(bound) => number(bound).map(Some).ok_or_else(|| {
            let found = describe(bound);
            fail(&format!("`{key}` must be a number, this is {found}"))
        }),
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
        let why = format!("`min` is {min} and `max` is {max}: no value is between");
        return Err(fail(&why));
    }
    let mut bounds = ["min", "max"].into_iter().filter_map(|key| map.get(key));
    let parameter = Parameter {
        name: name.to_string(),
        default: default.clone(),
        min,
        max,
        is_whole: bounds.next().is_some_and(Dynamic::is_int),
        choices: choices.ok_or_else(|| fail("`choices` must be an array of strings"))?,
        doc: doc.ok_or_else(|| fail("`doc` must be a string"))?,
    };
    parameter
        .check(default)
        .map_err(|error| fail(&format!("its own default does not fit: {}", error.message)))?;
    Ok(parameter)
}
