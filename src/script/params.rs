//! Parameters: what a recipe's `params()` declares, and the values that a command or a config sets.

use std::fmt;

use rhai::{Dynamic, ImmutableString, Map};
use serde::Serialize;

use super::bind::describe;
use crate::suggest;

/// A parameter's value; in JSON a number, a boolean, a string or null.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// True or false.
    Truth(bool),
    /// A text; usually one of some choices.
    Text(String),
    /// Not set: `()` in scripts, `none` on the command line.
    Nothing,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Whole(value) => write!(f, "{value}"),
            Setting::Number(value) => write!(f, "{value:?}"),
            Setting::Truth(value) => write!(f, "{value}"),
            Setting::Text(value) => f.write_str(value),
            Setting::Nothing => f.write_str("none"),
        }
    }
}

impl Setting {
    fn from_dynamic(value: &Dynamic) -> Option<Setting> {
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
            Setting::Whole(value) => Dynamic::from_int(*value),
            Setting::Number(value) => Dynamic::from_float(*value),
            Setting::Truth(value) => Dynamic::from_bool(*value),
            Setting::Text(value) => value.clone().into(),
            Setting::Nothing => Dynamic::UNIT,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            // Exact up to 2^53: bounds are small numbers.
            Setting::Whole(value) => Some(*value as f64),
            Setting::Number(value) => Some(*value),
            _ => None,
        }
    }
}

/// A parameter as a recipe declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, as in `p.k`.
    pub name: String,
    /// Its value where nobody sets it; its type is that of the parameter.
    pub default: Setting,
    /// The least value allowed.
    pub min: Option<f64>,
    /// The greatest value allowed.
    pub max: Option<f64>,
    /// The texts allowed; empty for any.
    pub choices: Vec<String>,
    /// What it is for, in one line.
    pub doc: String,
}

/// A parameter that was set to what it cannot be, or that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParameterError(pub(super) String);

impl Parameter {
    /// What the parameter takes, such as `a whole number, at least 1`.
    pub fn takes(&self) -> String {
        let mut text = match &self.default {
            Setting::Whole(_) => "a whole number".to_string(),
            Setting::Number(_) => "a number".to_string(),
            Setting::Nothing => "a number or none".to_string(),
            Setting::Truth(_) => "true or false".to_string(),
            Setting::Text(_) if self.choices.is_empty() => "a text".to_string(),
            Setting::Text(_) => suggest::list(self.choices.iter().map(String::as_str)),
        };
        match (self.min, self.max) {
            (Some(min), Some(max)) => text.push_str(&format!(" from {min} to {max}")),
            (Some(min), None) => text.push_str(&format!(", at least {min}")),
            (None, Some(max)) => text.push_str(&format!(", at most {max}")),
            (None, None) => {}
        }
        text
    }

    /// The value that a text stands for, as in `--set k=8`.
    fn parse(&self, text: &str) -> Result<Setting, ParameterError> {
        let wrong = || {
            ParameterError(format!(
                "`{}` is \"{text}\": it takes {}",
                self.name,
                self.takes()
            ))
        };
        let number = || text.parse::<f64>().ok().filter(|value| !value.is_nan());
        let setting = match &self.default {
            Setting::Whole(_) => Setting::Whole(text.parse().map_err(|_| wrong())?),
            Setting::Number(_) => Setting::Number(number().ok_or_else(wrong)?),
            Setting::Nothing if text == "none" => Setting::Nothing,
            Setting::Nothing => Setting::Number(number().ok_or_else(wrong)?),
            Setting::Truth(_) => Setting::Truth(text.parse().map_err(|_| wrong())?),
            Setting::Text(_) => Setting::Text(text.to_string()),
        };
        self.check(setting)
    }

    /// The value, of the parameter's type and within its bounds.
    fn check(&self, setting: Setting) -> Result<Setting, ParameterError> {
        let wrong = |found: &Setting| {
            let found = match found {
                Setting::Text(text) => format!("\"{text}\""),
                other => other.to_string(),
            };
            let takes = self.takes();
            ParameterError(format!("`{}` is {found}: it takes {takes}", self.name))
        };
        let setting = match (&self.default, setting) {
            (Setting::Number(_) | Setting::Nothing, Setting::Whole(whole)) => {
                Setting::Number(whole as f64)
            }
            (_, setting) => setting,
        };
        let fits = match (&self.default, &setting) {
            (Setting::Whole(_), Setting::Whole(_))
            | (Setting::Number(_), Setting::Number(_))
            | (Setting::Nothing, Setting::Number(_) | Setting::Nothing)
            | (Setting::Truth(_), Setting::Truth(_)) => true,
            (Setting::Text(_), Setting::Text(text)) => {
                self.choices.is_empty() || self.choices.contains(text)
            }
            _ => false,
        };
        let within = setting.number().is_none_or(|number| {
            self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
        });
        if fits && within {
            return Ok(setting);
        }
        match (
            &setting,
            suggest::nearest(
                &setting.to_string(),
                self.choices.iter().map(String::as_str),
            ),
        ) {
            (Setting::Text(text), Some(near)) => Err(ParameterError(format!(
                "`{}` is \"{text}\": did you mean `{near}`? It takes {}",
                self.name,
                self.takes()
            ))),
            _ => Err(wrong(&setting)),
        }
    }
}

/// A recipe's parameters with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    declared: Vec<Parameter>,
    values: Vec<Setting>,
}

impl Parameters {
    /// Reads what `params()` returned; an error comes with the parameter that it is about.
    pub(super) fn declared(map: &Map) -> Result<Parameters, (String, ParameterError)> {
        let declared = map
            .iter()
            .map(|(name, value)| declare(name, value).map_err(|error| (name.to_string(), error)))
            .collect::<Result<Vec<_>, _>>()?;
        let values = declared
            .iter()
            .map(|parameter| parameter.default.clone())
            .collect();
        Ok(Parameters { declared, values })
    }

    /// The parameters with their values, in alphabetical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Parameter, &Setting)> {
        self.declared.iter().zip(&self.values)
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.iter()
            .find(|(parameter, _)| parameter.name == name)
            .map(|(_, value)| value)
    }

    /// Sets a parameter from a text, as in `--set k=8`.
    ///
    /// # Errors
    /// [`ParameterError`] names the nearest parameter where there is none of that name, and what it takes where the
    /// value does not fit.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), ParameterError> {
        let place = self.place(name)?;
        self.values[place] = self.declared[place].parse(text)?;
        Ok(())
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// As [`Parameters::set_text`].
    pub fn set(&mut self, name: &str, setting: Setting) -> Result<(), ParameterError> {
        let place = self.place(name)?;
        self.values[place] = self.declared[place].check(setting)?;
        Ok(())
    }

    /// Sets a parameter to a script's value.
    pub(super) fn set_dynamic(
        &mut self,
        name: &str,
        value: &Dynamic,
    ) -> Result<(), ParameterError> {
        let setting = Setting::from_dynamic(value)
            .ok_or_else(|| ParameterError(format!("`{name}` cannot be {}", describe(value))))?;
        self.set(name, setting)
    }

    fn place(&self, name: &str) -> Result<usize, ParameterError> {
        let names = || {
            self.declared
                .iter()
                .map(|parameter| parameter.name.as_str())
        };
        names()
            .position(|known| known == name)
            .ok_or_else(|| match self.declared.len() {
                0 => ParameterError(format!(
                    "the recipe has no parameter `{name}`: it has none at all"
                )),
                _ => ParameterError(format!(
                    "the recipe has no parameter `{name}`: {}",
                    suggest::did_you_mean(name, names())
                )),
            })
    }

    /// The map that hooks get as `p`.
    pub(super) fn to_map(&self) -> Map {
        self.iter()
            .map(|(parameter, value)| (parameter.name.as_str().into(), value.to_dynamic()))
            .collect()
    }
}

const KEYS: [&str; 5] = ["value", "min", "max", "choices", "doc"];

fn declare(name: &str, value: &Dynamic) -> Result<Parameter, ParameterError> {
    let fail = |what: String| ParameterError(format!("parameter `{name}`: {what}"));
    let Some(map) = value.read_lock::<Map>() else {
        return Err(fail(format!(
            "must be a map such as `#{{ value: {value}, doc: \"...\" }}`, this is {}",
            describe(value)
        )));
    };
    if let Some(key) = map.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(fail(format!(
            "there is no key `{key}`: {}",
            suggest::did_you_mean(key, KEYS)
        )));
    }
    let Some(default) = map.get("value") else {
        return Err(fail("needs a `value`, which is its default".to_string()));
    };
    let default = Setting::from_dynamic(default)
        .ok_or_else(|| fail(format!("`value` cannot be {}", describe(default))))?;
    let bound = |key: &str| match map
        .get(key)
        .map(|bound| (bound, super::bind::number(bound)))
    {
        None => Ok(None),
        Some((_, Some(number))) => Ok(Some(number)),
        Some((bound, None)) => Err(fail(format!(
            "`{key}` must be a number, this is {}",
            describe(bound)
        ))),
    };
    let text = |value: &Dynamic| {
        value
            .read_lock::<ImmutableString>()
            .map(|text| text.to_string())
    };
    let choices = match map.get("choices") {
        None => Vec::new(),
        Some(choices) => choices
            .read_lock::<rhai::Array>()
            .and_then(|choices| choices.iter().map(text).collect::<Option<Vec<String>>>())
            .ok_or_else(|| fail("`choices` must be an array of texts".to_string()))?,
    };
    let doc = match map.get("doc") {
        None => String::new(),
        Some(doc) => text(doc).ok_or_else(|| fail("`doc` must be a text".to_string()))?,
    };
    let (min, max) = (bound("min")?, bound("max")?);
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(fail(format!(
            "`min` is {min} and `max` is {max}: no value is between"
        )));
    }
    let parameter = Parameter {
        name: name.to_string(),
        default: default.clone(),
        min,
        max,
        choices,
        doc,
    };
    parameter
        .check(default)
        .map_err(|error| fail(format!("its own default does not fit: {error}")))?;
    Ok(parameter)
}
