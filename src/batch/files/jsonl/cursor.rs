//! Walks over the bytes of one line of JSON, and says where and why it is none.

use std::ops::Range;

use super::json::{Fault, Value};
use crate::batch::files::error::shorten;

/// How deep objects and arrays may stand in each other: the scan recurses once a level.
const DEPTH: usize = 128;

/// A place in a line; each method moves it over what it reads.
pub(super) struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Cursor {
            text,
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    pub(super) fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.fault(expected))
    }

    pub(super) fn fault(&self, expected: &'static str) -> Fault {
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
    pub(super) fn text(&mut self) -> Result<Range<usize>, Fault> {
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

    pub(super) fn scalar(&mut self) -> Result<Value, Fault> {
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
    pub(super) fn skip(&mut self, depth: usize) -> Result<u8, Fault> {
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
