//! Values that were read from a file and are not in a column yet, and numbers in JSON. Numbers are parsed without `serde_json`,
//! because this is faster.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::json::text;
use crate::batch::GroupId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JsonType {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A value of one response.
#[cfg_attr(not(feature = "parquet"), expect(dead_code))]
pub(super) enum Cell<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(&'a str),
    Numbers(&'a [f64]),
    /// A value as JSON text: any value of a JSONL line, or a nested value of a parquet file.
    Json(Cow<'a, str>),
}

impl Cell<'_> {
    pub(super) fn kind(&self) -> JsonType {
        match self {
            Cell::Null => JsonType::Null,
            Cell::Bool(_) => JsonType::Bool,
            Cell::Int(_) | Cell::Number(_) => JsonType::Number,
            Cell::Text(_) => JsonType::String,
            Cell::Numbers(_) => JsonType::Array,
            Cell::Json(raw) => type_of(raw),
        }
    }

    /// Returns a value as a number: a boolean as 0 or 1, and null as NaN, because pandas writes null for NaN.
    pub(super) fn number(&self) -> f64 {
        match self {
            Cell::Bool(value) => f64::from(u8::from(*value)),
            // The conversion is exact up to 2^53, as for any number in JSONL.
            Cell::Int(value) => *value as f64,
            Cell::Number(value) => *value,
            Cell::Json(raw) => number(raw),
            Cell::Null | Cell::Text(_) | Cell::Numbers(_) => f64::NAN,
        }
    }

    /// Returns an integer as the name of a group, without rounding, however large it is; `None` for any other value.
    pub(super) fn id(&self) -> Option<GroupId> {
        let of_float = |value: f64| is_exact(value).then_some((value as i64).into());
        match self {
            Cell::Int(value) => Some(GroupId::Number(*value)),
            // If a column of integers has missing values, pandas writes 7 as 7.0.
            Cell::Number(value) => of_float(*value),
            Cell::Json(raw) if type_of(raw) != JsonType::Number => None,
            Cell::Json(raw) => match raw.parse() {
                Ok(number) => Some(GroupId::Number(number)),
                // The digits of an integer that exceeds i64 are its name.
                Err(_) if raw.bytes().all(|byte| b"-0123456789".contains(&byte)) => {
                    Some((&**raw).into())
                }
                Err(_) => of_float(number(raw)),
            },
            _ => None,
        }
    }

    /// Returns the number of a step that is written as a string, such as `12` in the tables that TRL logs, or `step_12`.
    pub(super) fn number_in_text(&self) -> Option<f64> {
        if self.kind() != JsonType::String {
            return None;
        }
        let is_word = |one: char| one.is_alphabetic() || "_- ".contains(one);
        let json = self.json();
        let text = text(&json);
        text.trim().trim_start_matches(is_word).parse().ok()
    }

    /// Returns the value as JSON.
    pub(super) fn json(&self) -> Cow<'_, str> {
        match self {
            Cell::Null => "null".into(),
            Cell::Bool(value) => value.to_string().into(),
            Cell::Int(value) => value.to_string().into(),
            Cell::Number(value) => written(|out| write_number(out, *value)),
            Cell::Numbers(values) => written(|out| write_array(out, values)),
            Cell::Text(text) => serde_json::Value::from(*text).to_string().into(),
            Cell::Json(raw) => raw.as_ref().into(),
        }
    }

    /// Describes the value in words.
    pub(super) fn describe(&self) -> String {
        describe(&self.json())
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Cow<'static, str> {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8_lossy(&out).into_owned().into()
}

/// Returns the type of a JSON value, which its first character determines.
pub(super) fn type_of(raw: &str) -> JsonType {
    match raw.as_bytes().first() {
        Some(b'n') => JsonType::Null,
        Some(b't' | b'f') => JsonType::Bool,
        Some(b'"') => JsonType::String,
        Some(b'[') => JsonType::Array,
        Some(b'{') => JsonType::Object,
        _ => JsonType::Number,
    }
}

/// Returns a value as a number: a boolean as 0 or 1, and null as NaN, because pandas writes null for NaN.
pub(super) fn number(raw: &str) -> f64 {
    match type_of(raw) {
        JsonType::Bool => f64::from(u8::from(raw == "true")),
        JsonType::Number => fast_float2::parse(raw).unwrap_or(f64::NAN),
        _ => f64::NAN,
    }
}

/// Appends the values of an array to `numbers`, converted as by [`number`]. A string or a nested value is an error.
pub(super) fn numbers(raw: &str, numbers: &mut Vec<f64>) -> Result<(), &'static str> {
    let mut rest = &raw.as_bytes()[1..];
    loop {
        rest = rest.trim_ascii_start();
        let (value, length) = match rest.first() {
            None | Some(b']') => return Ok(()),
            Some(b'"') => return Err("an array with strings in it"),
            Some(b'{') => return Err("an array of objects"),
            Some(b'[') => return Err("an array of arrays"),
            Some(b't') => (1.0, 4),
            Some(b'f') => (0.0, 5),
            Some(b'n') => (f64::NAN, 4),
            Some(_) => fast_float2::parse_partial(rest).unwrap_or((f64::NAN, 1)),
        };
        numbers.push(value);
        rest = &rest[length..];
        loop {
            match rest.split_first() {
                Some((b',', next)) => {
                    rest = next;
                    break;
                }
                None | Some((b']', _)) => return Ok(()),
                Some((_, next)) => rest = next,
            }
        }
    }
}

/// Returns the number of values in an array without parsing them. It fails for the same arrays as [`numbers`].
pub(super) fn count(raw: &str) -> Result<usize, &'static str> {
    let between = &raw.as_bytes()[1..raw.len() - 1];
    // The loop has no branches and so is fast; this matters because most bytes of a file belong to arrays.
    let (commas, others) = between.iter().fold((0, 0), |(commas, others), byte| {
        let is_other = matches!(byte, b'"' | b'{' | b'[');
        (
            commas + usize::from(*byte == b','),
            others + usize::from(is_other),
        )
    });
    if others > 0 {
        numbers(raw, &mut Vec::new())?;
    }
    let is_empty = commas == 0 && between.trim_ascii().is_empty();
    Ok(if is_empty { 0 } else { commas + 1 })
}

/// Returns whether a number is an integer of at most 2^53 in magnitude, up to which f64 represents every integer.
fn is_exact(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0
}

/// Returns at most `most` characters of a text, followed by dots if the text is longer.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// Describes a value in words.
pub(super) fn describe(raw: &str) -> String {
    match type_of(raw) {
        JsonType::String => format!("the string {}", shorten(raw, 40)),
        JsonType::Object => "an object".to_string(),
        JsonType::Array => match count(raw) {
            Err(other) => other.to_string(),
            Ok(0) => "an empty array".to_string(),
            Ok(1) => "an array of 1 number".to_string(),
            Ok(count) => format!("an array of {count} numbers"),
        },
        _ => raw.to_string(),
    }
}

/// Writes the shortest text that is read back as the same number. NaN and infinities are written as in Python.
pub(super) fn write_number<T: Serialize + Into<f64> + Copy>(out: &mut Vec<u8>, value: T) {
    match value.into() {
        // Writing a float to memory cannot fail.
        wide if wide.is_finite() => drop(serde_json::to_writer(out, &value)),
        wide if wide.is_nan() => out.extend_from_slice(b"NaN"),
        wide if wide > 0.0 => out.extend_from_slice(b"Infinity"),
        _ => out.extend_from_slice(b"-Infinity"),
    }
}

pub(super) fn write_array<T: Serialize + Into<f64> + Copy>(out: &mut Vec<u8>, values: &[T]) {
    out.push(b'[');
    for (index, value) in values.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b", " } else { b"" });
        write_number(out, *value);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_exact_and_nothing_else_is_one() {
        let beyond = "18446744073709551617";
        let id = |raw: &'static str| Cell::Json(raw.into()).id();
        for (raw, expected) in [
            ("9007199254740993", 9007199254740993_i64.into()),
            ("-3", (-3).into()),
            ("7.0", 7.into()),
            (beyond, beyond.into()),
        ] {
            assert_eq!(id(raw), Some(expected), "{raw}");
        }
        for wrong in ["0.5", "1e300", "true", "NaN"] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
        assert_eq!(Cell::Number(7.0).id(), Some(7.into()));
        assert_eq!(Cell::Number(0.5).id(), None);
    }

    #[test]
    fn arrays_of_numbers_are_rounded_to_the_nearest() {
        for (raw, expected) in [
            ("[]", "[]"),
            ("[ 1 , true,false ,-0.0]", "[1.0, 1.0, 0.0, -0.0]"),
            (
                "[1E+2,2.2250738585072012e-308]",
                "[100.0, 2.2250738585072014e-308]",
            ),
            ("[9007199254740993, 1e999]", "[9007199254740992.0, inf]"),
            (
                "[0.1234567890123456,-Infinity]",
                "[0.1234567890123456, -inf]",
            ),
            ("[null, NaN]", "[NaN, NaN]"),
            ("[1, \"a\"]", "an array with strings in it"),
            ("[{}]", "an array of objects"),
            ("[[1]]", "an array of arrays"),
        ] {
            let mut found = Vec::new();
            let read = numbers(raw, &mut found);
            let found = read.map_or_else(str::to_string, |()| format!("{found:?}"));
            assert_eq!(found, expected, "{raw}");
        }
    }
}
