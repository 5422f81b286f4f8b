//! Scans one line of JSONL into the fields of its object, with the place of each in the line.
//!
//! A JSON library would do but for four things: Python writes `NaN` and `Infinity` bare, a file is written back with
//! the bytes of its numbers and texts untouched, a key that stands twice is an error here, and the long arrays of a
//! rollout go straight into one buffer.

use std::ops::Range;

use crate::batch::files::error::shorten;

/// How deep objects and arrays may stand in each other: the scan recurses once a level.
const DEPTH: usize = 128;

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
    /// The key's bytes between its quotes.
    pub(super) key: Range<usize>,
    pub(super) value: Value,
    /// The value's bytes.
    pub(super) place: Range<usize>,
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
        let mut cursor = Cursor {
            text,
            bytes: text.as_bytes(),
            at: 0,
        };
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

struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.fault(expected))
    }

    fn fault(&self, expected: &'static str) -> Fault {
        let found = match self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
        {
            None => "the end of the line".to_string(),
            Some('[') => "an array".to_string(),
            Some('"') => "a text".to_string(),
            Some(letter) if letter.is_alphanumeric() => {
                let word = self.text[self.at..]
                    .split(|c: char| !c.is_alphanumeric() && c != '.' && c != '_')
                    .next()
                    .unwrap_or_default();
                format!("`{}`", shorten(word, 24))
            }
            Some(letter) if letter.is_control() => format!("`{}`", letter.escape_debug()),
            Some(letter) => format!("`{letter}`"),
        };
        Fault {
            at: self.at,
            found,
            expected,
        }
    }

    /// Passes over a text; the range is what stands between its quotes.
    fn text(&mut self) -> Result<Range<usize>, Fault> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start..self.at - 1);
                }
                Some(b'\\') => self.escape()?,
                Some(0..=0x1f) => return Err(self.fault("no control character in a text")),
                Some(_) => self.at += 1,
                None => return Err(self.fault("the quote that closes the text")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        self.at += 1;
        let length = match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 1,
            Some(b'u') => 5,
            _ => return Err(self.fault("an escape that JSON knows (such as \\n or \\u00e9)")),
        };
        for _ in 1..length {
            self.at += 1;
            if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                return Err(self.fault("four hexadecimal digits after \\u"));
            }
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Result<Value, Fault> {
        let rest = &self.bytes[self.at..];
        for (word, value) in [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
            ("NaN", Value::Number(f64::NAN)),
            ("Infinity", Value::Number(f64::INFINITY)),
            ("-Infinity", Value::Number(f64::NEG_INFINITY)),
        ] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.number().map(Value::Number)
    }

    fn number(&mut self) -> Result<f64, Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        match self.digits() {
            0 => {
                self.at = start;
                return Err(self.fault("a value"));
            }
            2.. if leading_zero => {
                self.at = start;
                return Err(self.fault("a number without leading zeros"));
            }
            _ => {}
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.fault("a digit after the decimal point"));
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.fault("a digit in the exponent"));
            }
        }
        // The standard library's parser takes all of JSON's numbers, and rounds correctly.
        self.text[start..self.at]
            .parse()
            .map_err(|_| self.fault("a number"))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    /// Passes over any value, and says what it began with.
    fn skip(&mut self, depth: usize) -> Result<u8, Fault> {
        let Some(first) = self.peek() else {
            return Err(self.fault("a value"));
        };
        let (close, expected) = match first {
            b'"' => {
                self.text()?;
                return Ok(first);
            }
            b'{' => (b'}', "a comma, or the brace that closes the object"),
            b'[' => (b']', "a comma, or the bracket that closes the array"),
            _ => {
                self.scalar()?;
                return Ok(first);
            }
        };
        if depth == DEPTH {
            return Err(self.fault("at most 128 objects and arrays in each other"));
        }
        self.at += 1;
        self.space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(first);
        }
        loop {
            self.space();
            if first == b'{' {
                if self.peek() != Some(b'"') {
                    return Err(self.fault("a field's name in double quotes"));
                }
                self.text()?;
                self.space();
                self.take(b':', "a colon after the field's name")?;
                self.space();
            }
            self.skip(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(first);
                }
                _ => return Err(self.fault(expected)),
            }
        }
    }
}

/// The number of words, separated by white space, in a text as it stands between its quotes.
pub(super) fn words(raw: &str) -> usize {
    let mut count = 0;
    let mut inside = false;
    let mut letters = raw.chars();
    while let Some(letter) = letters.next() {
        let space = match letter {
            '\\' => match letters.next() {
                Some('n' | 't' | 'r' | 'f') => true,
                Some('u') => {
                    let code = letters.by_ref().take(4).fold(0, |code, digit| {
                        code * 16 + digit.to_digit(16).unwrap_or_default()
                    });
                    char::from_u32(code).is_some_and(char::is_whitespace)
                }
                _ => false,
            },
            letter => letter.is_whitespace(),
        };
        count += usize::from(inside && space);
        inside = !space;
    }
    count + usize::from(inside)
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

    #[test]
    fn words_are_counted_through_escapes() {
        assert_eq!(words(r"one two\nthree\u0020four  five\u00e9 "), 5);
        assert_eq!(words(r"\n"), 0);
        assert_eq!(words(""), 0);
        assert_eq!(words(r"a\\nb"), 1, "a backslash, then an n");
        assert_eq!(
            words(r"a\ud800b"),
            1,
            "half a surrogate pair is no white space"
        );
    }
}
