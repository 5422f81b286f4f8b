//! One line of JSON as a value: what a column of parquet can be made of.

use std::fmt::{self, Display, Formatter};
use std::io;

use serde_json::json;

use crate::batch::files::json::{Cursor, Type, unescape};

/// A value. Python writes NaN and infinities, so it is none of serde_json's.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::batch::files) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A whole number beyond 64 bits.
    Digits(String),
    List(Vec<Value>),
    Fields(Vec<(String, Value)>),
}

impl Value {
    /// Reads a line.
    pub(super) fn of_line(line: &str) -> io::Result<Vec<(String, Value)>> {
        let mut fields = Vec::new();
        let read = Cursor::new(line).object(|cursor, key| {
            let start = cursor.at;
            cursor.skip(0)?;
            fields.push((text(&line[key]), Value::of(&line[start..cursor.at])));
            Ok(())
        });
        read.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(fields)
    }

    /// The value of JSON that has been read before, and is right.
    fn of(raw: &str) -> Value {
        let mut cursor = Cursor::new(raw);
        match cursor.value_type() {
            Type::Null => Value::Null,
            Type::Bool => Value::Bool(raw == "true"),
            Type::String => Value::Text(text(&raw[1..raw.len() - 1])),
            Type::Number => number(raw, &mut cursor),
            Type::Array => {
                let mut items = Vec::new();
                // It has been read before.
                let _ = cursor.elements(|start, end| items.push(Value::of(&raw[start..end])));
                Value::List(items)
            }
            Type::Object => Value::Fields(Value::of_line(raw).unwrap_or_default()),
        }
    }
}

/// It in JSON; NaN and infinities as Python writes them.
impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let between = |index: usize| if index > 0 { ", " } else { "" };
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) if value.is_finite() => write!(f, "{}", json!(value)),
            Value::Float(f64::INFINITY) => f.write_str("Infinity"),
            Value::Float(f64::NEG_INFINITY) => f.write_str("-Infinity"),
            Value::Float(_) => f.write_str("NaN"),
            Value::Text(text) => write!(f, "{}", json!(text)),
            Value::Digits(digits) => f.write_str(digits),
            Value::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", between(index))?;
                }
                f.write_str("]")
            }
            Value::Fields(fields) => {
                f.write_str("{")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{}: {value}", between(index), json!(name))?;
                }
                f.write_str("}")
            }
        }
    }
}

fn number(raw: &str, cursor: &mut Cursor) -> Value {
    if let Ok(whole) = raw.parse() {
        return Value::Int(whole);
    }
    let is_digit = |byte: u8| byte == b'-' || byte.is_ascii_digit();
    if raw.bytes().all(is_digit) {
        return Value::Digits(raw.to_string());
    }
    Value::Float(cursor.scalar().unwrap_or(f64::NAN))
}

/// A string by the characters between its quotes; half of a surrogate pair stays the escape that it is.
fn text(raw: &str) -> String {
    unescape(raw).unwrap_or(raw.into()).into_owned()
}
