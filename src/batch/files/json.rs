//! Scans the JSON of one line. It is our own for what tests show that crates lose: Python writes `NaN` and `Infinity`
//! bare, ids may have more digits than 64 bits hold, completions that were cut off hold half a surrogate pair, and a
//! person is told the character that is wrong, what stands there and what should.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;

use super::eight::{before, below_space, digits, eight, equal};
use crate::diagnostic::Diagnostic;

/// How deep objects and arrays may be nested: the scan recurses once a level.
const DEPTH: usize = 128;

/// The powers of ten that 15 digits need, each exact.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

const ARRAY: &str = "a comma, or the bracket that closes the array";

/// The type of a value, as its first character tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Type {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A position in a line; each method moves it over what it reads. Errors have their column.
pub(super) struct Cursor<'a> {
    text: &'a str,
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Cursor { text, at: 0 }
    }

    /// The string from a byte to the cursor.
    pub(super) fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The type of the value at the cursor.
    pub(super) fn value_type(&self) -> Type {
        match self.peek() {
            Some(b'n') => Type::Null,
            Some(b't' | b'f') => Type::Bool,
            Some(b'"') => Type::String,
            Some(b'[') => Type::Array,
            Some(b'{') => Type::Object,
            _ => Type::Number,
        }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// An error at the cursor.
    pub(super) fn error(&self, error: Diagnostic) -> Diagnostic {
        let letters = self.text.char_indices();
        error.at_column(letters.take_while(|(start, _)| *start < self.at).count() + 1)
    }

    fn fault(&self, expected: &str) -> Diagnostic {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = match rest.chars().next() {
            None | Some('\n') => "the end of the line".to_string(),
            Some('\r') if rest.trim().is_empty() => "the end of the line".to_string(),
            Some('[') => "an array".to_string(),
            Some('"') => "a string".to_string(),
            Some(letter) if letter.is_alphanumeric() => {
                let is_in_word = |c: char| c.is_alphanumeric() || c == '.' || c == '_';
                let word: String = rest.chars().take_while(|&c| is_in_word(c)).collect();
                format!("`{}`", shorten(&word, 24))
            }
            Some(letter) if letter.is_control() => format!("`{}`", letter.escape_debug()),
            Some(letter) => format!("`{letter}`"),
        };
        self.error(Diagnostic::error("").found(found).expected(expected))
    }

    /// Reads a line, which is one object with white space around it. `member` gets the key of each field, between its
    /// quotes, with the cursor at the value, and moves it past that. The result is the byte of the closing brace.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Range<usize>) -> Result<(), Diagnostic>,
    ) -> Result<usize, Diagnostic> {
        self.space();
        if self.peek() != Some(b'{') {
            return Err(self.fault("an object in braces, one response a line"));
        }
        if self.text[self.at + 1..].trim().is_empty() {
            self.at = self.text.len();
            return Err(self
                .fault("the whole object in one line (`jq -c . FILE` writes one object a line)"));
        }
        self.members(&mut member)?;
        let close = self.at - 1;
        self.space();
        if self.peek().is_some() {
            return Err(self.fault("the end of the line: one object a line"));
        }
        Ok(close)
    }

    fn members(
        &mut self,
        member: &mut impl FnMut(&mut Self, Range<usize>) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let expected = "a comma, or the brace that closes the object";
        self.items(b'}', expected, |cursor| {
            if cursor.peek() != Some(b'"') {
                return Err(cursor.fault("a field's name in double quotes"));
            }
            let key = cursor.string()?;
            cursor.space();
            if cursor.peek() != Some(b':') {
                return Err(cursor.fault("a colon after the field's name"));
            }
            cursor.at += 1;
            cursor.space();
            member(cursor, key)
        })
    }

    /// Reads what stands between two brackets, item by item.
    fn items(
        &mut self,
        close: u8,
        expected: &str,
        mut item: impl FnMut(&mut Self) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        self.at += 1;
        self.space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            item(self)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.fault(expected)),
            }
        }
    }

    /// Passes over an array; `element` is told where each of its values starts and ends.
    pub(super) fn elements(
        &mut self,
        mut element: impl FnMut(usize, usize),
    ) -> Result<(), Diagnostic> {
        self.items(b']', ARRAY, |cursor| {
            let start = cursor.at;
            cursor.skip(1)?;
            element(start, cursor.at);
            Ok(())
        })
    }

    /// Adds an array of numbers, booleans and nulls (as NaN, which pandas writes as null) to `numbers`. Where something
    /// else is in it, no number is added and the result says what the array is.
    pub(super) fn array(
        &mut self,
        numbers: &mut Vec<f64>,
    ) -> Result<Option<&'static str>, Diagnostic> {
        let start = numbers.len();
        let mut other = None;
        self.items(b']', ARRAY, |cursor| {
            other = match cursor.value_type() {
                Type::String => Some("an array with strings in it"),
                Type::Object => Some("an array of objects"),
                Type::Array => Some("an array of arrays"),
                _ => {
                    numbers.push(cursor.scalar()?);
                    return Ok(());
                }
            };
            cursor.skip(1)
        })?;
        if other.is_some() {
            numbers.truncate(start);
        }
        Ok(other)
    }

    /// Passes over a string; the range is what stands between its quotes.
    pub(super) fn string(&mut self) -> Result<Range<usize>, Diagnostic> {
        self.at += 1;
        let start = self.at;
        loop {
            // The zeros behind the end of the line are control characters too.
            let word = eight(&self.text.as_bytes()[self.at..]);
            let special = equal(word, b'"') | equal(word, b'\\') | below_space(word);
            self.at += before(special);
            if special == 0 {
                continue;
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start..self.at - 1);
                }
                Some(b'\\') => self.escape()?,
                Some(_) if !self.text[self.at..].trim_ascii().is_empty() => {
                    return Err(self.fault("no control character in a string"));
                }
                _ => {
                    return Err(
                        self.fault("the quote that closes the string (is the file cut off?)")
                    );
                }
            }
        }
    }

    fn escape(&mut self) -> Result<(), Diagnostic> {
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

    /// Reads a number, or leaves the cursor where none stands as JSON has it.
    fn number(&mut self) -> Option<f64> {
        let bytes = &self.text.as_bytes()[self.at..];
        let digits = |from: usize| digits(bytes.get(from..).unwrap_or_default());
        let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
        let start = usize::from(is(0, b"-"));
        let whole = digits(start);
        if whole == 0 || whole > 1 && is(start, b"0") {
            return None;
        }
        let (mut end, mut places) = (start + whole, 0);
        if is(end, b".") {
            places = digits(end + 1);
            if places == 0 {
                return None;
            }
            end += 1 + places;
        }
        let has_exponent = is(end, b"eE");
        if has_exponent {
            end += 1 + usize::from(is(end + 1, b"+-"));
            let exponent = digits(end);
            if exponent == 0 {
                return None;
            }
            end += exponent;
        }
        if is(end, b"+-.eE") {
            return None;
        }
        let value = if !has_exponent && whole + places <= 15 {
            // Of up to 15 digits both are exact, and their quotient is rounded once.
            let digits = bytes[start..end].iter().filter(|&&byte| byte != b'.');
            let digits = digits.fold(0, |number, byte| 10 * number + u64::from(byte - b'0'));
            let value = digits as f64 / POWERS[places];
            if start == 1 { -value } else { value }
        } else {
            self.text[self.at..self.at + end].parse().ok()?
        };
        self.at += end;
        Some(value)
    }

    /// Reads a value that is neither a string nor made of others as a number: 0 and 1 for booleans, NaN for null, as which
    /// pandas writes it.
    pub(super) fn scalar(&mut self) -> Result<f64, Diagnostic> {
        if let Some(number) = self.number() {
            return Ok(number);
        }
        let rest = &self.text[self.at..];
        let words = [
            ("true", 1.0),
            ("false", 0.0),
            ("null", f64::NAN),
            ("NaN", f64::NAN),
            ("Infinity", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ];
        if let Some((word, value)) = words.iter().find(|(word, _)| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(*value);
        }
        let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let number = &rest[..rest.bytes().take_while(|byte| is_number(byte)).count()];
        let expected = match number.strip_prefix('-').unwrap_or(number).as_bytes() {
            [b'0', b'0'..=b'9', ..] => "a number without leading zeros",
            [b'0'..=b'9', .., b'.'] => "a digit after the decimal point",
            [b'0'..=b'9', ..] if number.contains(".e") || number.contains(".E") => {
                "a digit after the decimal point"
            }
            [b'0'..=b'9', ..] => "a number",
            _ => "a value",
        };
        Err(self.fault(expected))
    }

    /// Passes over any value, `depth` levels deep.
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), Diagnostic> {
        match self.value_type() {
            Type::String => self.string().map(drop),
            Type::Array | Type::Object if depth == DEPTH => {
                Err(self.fault("at most 128 objects and arrays in each other"))
            }
            Type::Object => self.members(&mut |cursor, _| cursor.skip(depth + 1)),
            Type::Array => self.items(b']', ARRAY, |cursor| cursor.skip(depth + 1)),
            _ => self.scalar().map(drop),
        }
    }
}

/// The fields of an object, and the types of their values.
pub(super) fn fields(text: &str) -> Result<Vec<(String, Type)>, Diagnostic> {
    let mut fields = Vec::new();
    Cursor::new(text).object(|cursor, key| {
        let name = unescape(&text[key.clone()]).unwrap_or(text[key].into());
        fields.push((name.into_owned(), cursor.value_type()));
        cursor.skip(0)
    })?;
    Ok(fields)
}

/// The string with the raw characters `raw` between its quotes; `None` where an escape is half of a surrogate pair.
pub(super) fn unescape(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.contains('\\') {
        return Some(Cow::Borrowed(raw));
    }
    serde_json::from_str(&format!("\"{raw}\""))
        .ok()
        .map(Cow::Owned)
}

/// At most `most` characters of a string, with dots where more were there.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of a line, in words.
    fn scan(text: &str) -> Result<Vec<String>, Diagnostic> {
        let mut fields = Vec::new();
        Cursor::new(text).object(|cursor, key| {
            let (start, mut numbers) = (cursor.at, Vec::new());
            let value = match cursor.value_type() {
                Type::Array => match cursor.array(&mut numbers)? {
                    None => format!("{numbers:?}"),
                    Some(other) => other.to_string(),
                },
                _ => {
                    cursor.skip(0)?;
                    cursor.since(start).to_string()
                }
            };
            fields.push(format!("{}={value}", unescape(&text[key]).unwrap()));
            Ok(())
        })?;
        Ok(fields)
    }

    #[test]
    fn a_line_gives_its_fields() {
        let text = r#" {"a": 1.50, "b":[1,NaN,null,true,-Infinity],"c":{"d":["}"]},"e\n":"x\"y", "f":[], "g":[1,["x"]]} "#;
        assert_eq!(
            scan(text).unwrap(),
            [
                "a=1.50",
                "b=[1.0, NaN, NaN, 1.0, -inf]",
                r#"c={"d":["}"]}"#,
                "e\n=\"x\\\"y\"",
                "f=[]",
                "g=an array of arrays",
            ]
        );
        assert!(unescape("\\ud800").is_none());
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
            ("-12.345", -12.345),
            ("123456789.012345", 123456789.012345),
            ("0.1234567890123456", 0.1234567890123456),
        ] {
            let found = Cursor::new(text).scalar().unwrap();
            assert_eq!(found.to_bits(), value.to_bits(), "{text}");
        }
        for wrong in [
            "01", "-", "1.", ".5", "1e", "+1", "nan", "-01", "0x1", "1.e2", "1e+", "1.2.3", "1-2",
        ] {
            assert!(scan(&format!("{{\"a\":{wrong}}}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_byte_that_is_no_json_is_found() {
        for (text, at, expected) in [
            ("[1]", 0, "an object in braces, one response a line"),
            (
                "{\"a\":1",
                6,
                "a comma, or the brace that closes the object",
            ),
            ("{\"a\":[1,", 8, "a value"),
            (
                "{\"a\":\"x\r\n",
                7,
                "the quote that closes the string (is the file cut off?)",
            ),
            ("{\"a\":1} {}", 8, "the end of the line: one object a line"),
            ("{a:1}", 1, "a field's name in double quotes"),
            (
                "{\"a\":\"\\q\"}",
                7,
                "an escape that JSON knows (such as \\n or \\u00e9)",
            ),
        ] {
            let error = scan(text).unwrap_err();
            assert_eq!(error.expected.as_deref(), Some(expected), "{text}");
            assert_eq!(error.file.column, Some(at + 1), "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(scan(&deep).is_err());
    }
}
