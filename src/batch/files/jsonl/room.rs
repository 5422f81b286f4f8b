//! Where the value of a field goes in a line.

use std::io::{self, Write};
use std::ops::Range;

/// The bytes that make room for a value: those of the field's own where it is there (of several the last one's, which is the
/// one that readers of JSON take), else none, behind the last field.
#[derive(Clone, Debug)]
pub(in crate::batch::files) struct Room {
    bytes: Range<usize>,
    /// Whether the key is there.
    is_there: bool,
    /// Whether the line has a space after a colon, as Python puts it; `None` where it has no field.
    is_spaced: Option<bool>,
}

impl Room {
    pub(in crate::batch::files) fn new() -> Self {
        Room {
            bytes: 0..0,
            is_there: false,
            is_spaced: None,
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
        self.is_spaced
            .get_or_insert_with(|| line[key_end..value.start].ends_with(' '));
        if is_own {
            (self.is_there, self.bytes) = (true, value);
        } else if !self.is_there {
            self.bytes = value.end..value.end;
        }
    }

    /// All fields of the line were passed, and this is where it closes.
    pub(in crate::batch::files) fn close(mut self, at: usize) -> Self {
        if self.is_spaced.is_none() {
            self.bytes = at..at;
        }
        self
    }

    /// The line has more bytes before its first character.
    pub(super) fn shift(&mut self, bytes: usize) {
        self.bytes = self.bytes.start + bytes..self.bytes.end + bytes;
    }

    /// Writes the line with the value in it, and behind that the new fields `more`, all in the line's own style; `None` where
    /// the line is too short.
    pub(in crate::batch::files) fn fill(
        &self,
        line: &[u8],
        name: &str,
        value: &[u8],
        more: &[(&str, String)],
        out: &mut impl Write,
    ) -> Option<io::Result<()>> {
        let space = if self.is_spaced == Some(false) {
            ""
        } else {
            " "
        };
        let key = match self.is_spaced {
            _ if self.is_there => String::new(),
            None => format!("\"{name}\": "),
            Some(_) => format!(",{space}\"{name}\":{space}"),
        };
        let more = more
            .iter()
            .map(|(name, value)| format!(",{space}\"{name}\":{space}{value}"));
        let more: String = more.collect();
        let (before, after) = (line.get(..self.bytes.start)?, line.get(self.bytes.end..)?);
        let parts = [before, key.as_bytes(), value, more.as_bytes(), after];
        Some(parts.iter().try_for_each(|part| out.write_all(part)))
    }
}
