//! Scans one line of JSONL into the fields of its object, with the place of each in the line.
//!
//! A JSON library would do but for four things: Python writes `NaN` and `Infinity` bare, a file is written back with
//! the bytes of its numbers and texts untouched, a key that stands twice is an error here, and the long arrays of a
//! rollout go straight into one buffer.

use std::borrow::Cow;
use std::ops::Range;

use super::cursor::Cursor;
use crate::batch::files::error::shorten;

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    /// A text; the bytes between its quotes, escapes and all, are `Field::place` without the quotes.
    Text,
    /// An array of numbers, booleans and nulls (as NaN): a range of `Line::numbers`.
    Numbers(Range<usize>),
    /// Something that no column is made of, in words.
    Other(&'static str),
}

impl Value {
    /// The value in words, for messages.
    pub(super) fn describe(&self, text: &str) -> String {
        match self {
            Value::Null => "null".to_string(),
            Value::Bool(value) => value.to_string(),
            Value::Number(_) => text.to_string(),
            Value::Text => format!("the text {}", shorten(text, 40)),
            Value::Numbers(range) if range.is_empty() => "an empty array".to_string(),
            Value::Numbers(range) => format!("an array of {} numbers", range.len()),
            Value::Other(words) => (*words).to_string(),
        }
    }
}

/// One field of the object.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The key's bytes between its quotes, escapes and all.
    pub(super) key: Range<usize>,
    pub(super) value: Value,
    /// The value's bytes.
    pub(super) place: Range<usize>,
}

impl Field {
    /// The key, its escapes decoded. Half a surrogate pair is no text, and such a key stays as it stands.
    pub(super) fn name<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let raw = &text[self.key.clone()];
        if !raw.contains('\\') {
            return Cow::Borrowed(raw);
        }
        let quoted = &text[self.key.start - 1..self.key.end + 1];
        match serde_json::from_str(quoted) {
            Ok(name) => Cow::Owned(name),
            Err(_) => Cow::Borrowed(raw),
        }
    }
}

/// Why a line is not an object in JSON.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The byte where it shows.
    pub(super) at: usize,
    pub(super) found: String,
    pub(super) expected: &'static str,
}

/// One line's fields, in their order. The buffers are used again for the next line.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) fields: Vec<Field>,
    /// The numbers of all arrays, one after another.
    pub(super) numbers: Vec<f64>,
    /// The byte of the brace that closes the object.
    pub(super) close: usize,
}

impl Line {
    /// Reads a line, which is one object with white space around it.
    pub(super) fn scan(&mut self, text: &str) -> Result<(), Fault> {
        self.fields.clear();
        self.numbers.clear();
        let mut cursor = Cursor::new(text);
        cursor.space();
        if cursor.peek() != Some(b'{') {
            return Err(cursor.fault("an object in braces, one response a line"));
        }
        cursor.at += 1;
        cursor.space();
        if cursor.peek().is_none() {
            return Err(cursor
                .fault("the whole object in one line (`jq -c . FILE` writes one object a line)"));
        }
        if cursor.peek() == Some(b'}') {
            self.close = cursor.at;
            cursor.at += 1;
        } else {
            self.members(&mut cursor)?;
        }
        cursor.space();
        match cursor.peek() {
            None => Ok(()),
            Some(_) => Err(cursor.fault("the end of the line: one object a line")),
        }
    }

    fn members(&mut self, cursor: &mut Cursor) -> Result<(), Fault> {
        loop {
            cursor.space();
            if cursor.peek() != Some(b'"') {
                return Err(cursor.fault("a field's name in double quotes"));
            }
            let key = cursor.text()?;
            cursor.space();
            cursor.take(b':', "a colon after the field's name")?;
            cursor.space();
            let start = cursor.at;
            let value = self.value(cursor)?;
            self.fields.push(Field {
                key,
                value,
                place: start..cursor.at,
            });
            cursor.space();
            match cursor.peek() {
                Some(b',') => cursor.at += 1,
                Some(b'}') => {
                    self.close = cursor.at;
                    cursor.at += 1;
                    return Ok(());
                }
                _ => return Err(cursor.fault("a comma, or the brace that closes the object")),
            }
        }
    }

    fn value(&mut self, cursor: &mut Cursor) -> Result<Value, Fault> {
        match cursor.peek() {
            Some(b'"') => {
                cursor.text()?;
                Ok(Value::Text)
            }
            Some(b'{') => {
                cursor.skip(0)?;
                Ok(Value::Other("an object"))
            }
            Some(b'[') => self.array(cursor),
            _ => cursor.scalar(),
        }
    }

    fn array(&mut self, cursor: &mut Cursor) -> Result<Value, Fault> {
        let start = self.numbers.len();
        let mut stranger = None;
        cursor.at += 1;
        cursor.space();
        if cursor.peek() == Some(b']') {
            cursor.at += 1;
            return Ok(Value::Numbers(start..start));
        }
        loop {
            cursor.space();
            match cursor.peek() {
                Some(b'"' | b'{' | b'[') => {
                    stranger = Some(match cursor.skip(1)? {
                        b'"' => "an array with texts in it",
                        b'{' => "an array of objects",
                        _ => "an array of arrays",
                    });
                }
                _ => self.numbers.push(match cursor.scalar()? {
                    Value::Number(value) => value,
                    Value::Bool(value) => f64::from(u8::from(value)),
                    // pandas writes NaN as null.
                    _ => f64::NAN,
                }),
            }
            cursor.space();
            match cursor.peek() {
                Some(b',') => cursor.at += 1,
                Some(b']') => {
                    cursor.at += 1;
                    break;
                }
                _ => return Err(cursor.fault("a comma, or the bracket that closes the array")),
            }
        }
        match stranger {
            None => Ok(Value::Numbers(start..self.numbers.len())),
            Some(words) => {
                self.numbers.truncate(start);
                Ok(Value::Other(words))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Result<Line, Fault> {
        let mut line = Line::default();
        line.scan(text).map(|()| line)
    }

    #[test]
    fn a_line_gives_its_fields_with_their_places() {
        let text = r#" {"a": 1.50, "b":[1,NaN,null,true,-Infinity],"c":{"d":["}"]},"e\n":"x\"y", "f":[]} "#;
        let line = scan(text).unwrap();
        let keys: Vec<&str> = line.fields.iter().map(|f| &text[f.key.clone()]).collect();
        assert_eq!(keys, ["a", "b", "c", "e\\n", "f"]);
        assert_eq!(&text[line.fields[0].place.clone()], "1.50");
        assert_eq!(line.fields[1].value, Value::Numbers(0..5));
        assert_eq!(line.numbers[0], 1.0);
        assert!(line.numbers[1].is_nan() && line.numbers[2].is_nan());
        assert_eq!(line.numbers[3..], [1.0, f64::NEG_INFINITY]);
        assert_eq!(line.fields[2].value, Value::Other("an object"));
        assert_eq!(line.fields[4].value, Value::Numbers(5..5));
        assert_eq!(&text[line.close..], "} ");
    }

    #[test]
    fn numbers_are_json_s_and_rounded_to_the_nearest() {
        for (text, value) in [
            ("0", 0.0),
            ("-0.0", -0.0),
            ("10", 10.0),
            ("0.1", 0.1),
            ("2.2250738585072012e-308", f64::MIN_POSITIVE),
            ("9007199254740993", 9007199254740992.0),
            ("1E+2", 100.0),
        ] {
            let line = scan(&format!("{{\"a\":{text}}}")).unwrap();
            assert_eq!(line.fields[0].value, Value::Number(value), "{text}");
        }
        for wrong in ["01", "-", "1.", ".5", "1e", "+1", "nan", "-01", "0x1"] {
            assert!(scan(&format!("{{\"a\":{wrong}}}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_json_is_placed() {
        for (text, at, expected) in [
            ("[1]", 0, "an object in braces, one response a line"),
            (
                "{\"a\":1",
                6,
                "a comma, or the brace that closes the object",
            ),
            ("{\"a\":[1,", 8, "a value"),
            ("{\"a\":\"x", 7, "the quote that closes the text"),
            ("{\"a\":1} {}", 8, "the end of the line: one object a line"),
            ("{a:1}", 1, "a field's name in double quotes"),
            (
                "{\"a\":\"\\q\"}",
                7,
                "an escape that JSON knows (such as \\n or \\u00e9)",
            ),
        ] {
            let fault = scan(text).unwrap_err();
            assert_eq!((fault.at, fault.expected), (at, expected), "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(scan(&deep).is_err());
    }
}
