//! Where the value of a field goes in a line.

use std::io::{self, Write};
use std::ops::Range;

/// The bytes that make room for a value: those of the field's own where it is there, else none, behind the last one.
#[derive(Clone, Debug)]
pub(in crate::batch::files) struct Room {
    bytes: Range<usize>,
    style: Style,
}

/// What comes before the value, in the style of the line: Python puts a space after a comma and a colon.
#[derive(Clone, Copy, Debug)]
enum Style {
    /// The key is there.
    There,
    /// There is no other field.
    First,
    Spaced,
    Tight,
}

impl Room {
    pub(in crate::batch::files) fn new() -> Self {
        Room {
            bytes: 0..0,
            style: Style::First,
        }
    }

    /// Goes on to a field of the line: whether it is the one, where its key ends and where its value stands.
    pub(in crate::batch::files) fn pass(
        &mut self,
        line: &str,
        is_own: bool,
        key_end: usize,
        value: Range<usize>,
    ) {
        let is_spaced = || line[key_end..value.start].ends_with(' ');
        (self.style, self.bytes) = match self.style {
            Style::There => return,
            _ if is_own => (Style::There, value),
            Style::First if is_spaced() => (Style::Spaced, value.end..value.end),
            Style::First => (Style::Tight, value.end..value.end),
            style => (style, value.end..value.end),
        };
    }

    /// All fields of the line were passed, and this is where it closes.
    pub(in crate::batch::files) fn close(mut self, at: usize) -> Self {
        if matches!(self.style, Style::First) {
            self.bytes = at..at;
        }
        self
    }

    /// The line has more bytes before its first character.
    pub(super) fn shift(&mut self, bytes: usize) {
        self.bytes = self.bytes.start + bytes..self.bytes.end + bytes;
    }

    /// Writes the line with the value in it; `None` where the line is too short.
    pub(in crate::batch::files) fn fill(
        &self,
        line: &[u8],
        name: &str,
        value: &[u8],
        out: &mut impl Write,
    ) -> Option<io::Result<()>> {
        let key = match self.style {
            Style::There => String::new(),
            Style::First => format!("\"{name}\": "),
            Style::Spaced => format!(", \"{name}\": "),
            Style::Tight => format!(",\"{name}\":"),
        };
        let before = line.get(..self.bytes.start)?;
        let parts = [before, key.as_bytes(), value, line.get(self.bytes.end..)?];
        Some(parts.iter().try_for_each(|part| out.write_all(part)))
    }
}
