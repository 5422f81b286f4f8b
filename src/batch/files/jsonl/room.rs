//! Where the value of a field goes in a line.

use std::io::{self, Write};
use std::ops::Range;

use crate::batch::files::json::{Cursor, unescape};
use crate::diagnostic::Diagnostic;

/// The bytes that make room for a value: those of the field's own where it is there (of several the last one's, which is the
/// one that readers of JSON take), else none, behind the last field.
#[derive(Debug, Default)]
pub(in crate::batch::files) struct Room {
    bytes: Range<usize>,
    /// Whether the key is there.
    is_there: bool,
    /// Whether the line has a space after a colon, as Python puts it; `None` where it has no field.
    is_spaced: Option<bool>,
}

impl Room {
    /// Finds the room for a field.
    pub(super) fn of(line: &str, name: &str) -> Result<Room, Diagnostic> {
        let mut room = Room::default();
        let close = Cursor::new(line).object(|cursor, key| {
            let (start, key_end) = (cursor.at, key.end);
            cursor.skip(0)?;
            let is_own = unescape(&line[key]).is_some_and(|key| key == name);
            room.pass(line, is_own, key_end, start..cursor.at);
            Ok(())
        })?;
        Ok(room.close(close))
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

    /// Writes the line with the value in it, and behind that the new fields `more`, all in the line's own style.
    pub(in crate::batch::files) fn fill(
        &self,
        line: &[u8],
        (name, value): (&str, &[u8]),
        more: &[(&str, Vec<u8>)],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let space = if self.is_spaced == Some(false) {
            ""
        } else {
            " "
        };
        out.write_all(&line[..self.bytes.start])?;
        match self.is_spaced {
            _ if self.is_there => {}
            None => write!(out, "\"{name}\": ")?,
            Some(_) => write!(out, ",{space}\"{name}\":{space}")?,
        }
        out.write_all(value)?;
        for (name, value) in more {
            write!(out, ",{space}\"{name}\":{space}")?;
            out.write_all(value)?;
        }
        out.write_all(&line[self.bytes.end..])
    }
}
