//! Where the values of fields go in a line.

use std::io::{self, Write};
use std::ops::Range;

use crate::batch::files::json::{Cursor, unescape};
use crate::diagnostic::Diagnostic;

/// The places in a line for the values of some fields: a field's own value where it is there (of several the last one's, which
/// is the one that readers of JSON take), else behind the last field.
#[derive(Debug, Default)]
pub(in crate::batch::files) struct Room {
    /// The fields that are there, by their index, each with its value's bytes.
    there: Vec<(usize, Range<usize>)>,
    /// The end of the last field.
    end: usize,
    /// Whether the line has a space after a colon, as Python puts it; `None` where it has no field.
    is_spaced: Option<bool>,
}

impl Room {
    /// Finds the room for fields.
    pub(super) fn of(line: &str, names: &[&str]) -> Result<Room, Diagnostic> {
        let mut room = Room::default();
        let close = Cursor::new(line).object(|cursor, key| {
            let (start, key_end) = (cursor.at, key.end);
            cursor.skip(0)?;
            let key = unescape(&line[key]);
            let own = names.iter().position(|name| key.as_deref() == Some(*name));
            room.pass(line, own, key_end, start..cursor.at);
            Ok(())
        })?;
        Ok(room.close(close))
    }

    /// Goes on to a field of the line: which one it is, where its key ends and where its value stands.
    pub(in crate::batch::files) fn pass(
        &mut self,
        line: &str,
        own: Option<usize>,
        key_end: usize,
        value: Range<usize>,
    ) {
        self.is_spaced
            .get_or_insert_with(|| line[key_end..value.start].ends_with(' '));
        self.end = value.end;
        if let Some(own) = own {
            self.there.retain(|(index, _)| *index != own);
            self.there.push((own, value));
        }
    }

    /// All fields of the line were passed, and this is where it closes.
    pub(in crate::batch::files) fn close(mut self, at: usize) -> Self {
        if self.is_spaced.is_none() {
            self.end = at;
        }
        self
    }

    /// Writes the line with the fields' values in it, new ones in the line's own style.
    pub(in crate::batch::files) fn fill(
        &self,
        line: &[u8],
        values: &[(&str, Vec<u8>)],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut at = 0;
        // They stand in the order of the line.
        for (index, place) in &self.there {
            out.write_all(&line[at..place.start])?;
            out.write_all(&values[*index].1)?;
            at = place.end;
        }
        out.write_all(&line[at..self.end])?;
        let space = match self.is_spaced {
            Some(false) => "",
            _ => " ",
        };
        let mut comma = self.is_spaced.map_or("", |_| ",");
        for (index, (name, value)) in values.iter().enumerate() {
            if self.there.iter().any(|(there, _)| *there == index) {
                continue;
            }
            let before = if comma.is_empty() { "" } else { space };
            write!(out, "{comma}{before}\"{name}\":{space}")?;
            out.write_all(value)?;
            comma = ",";
        }
        out.write_all(&line[self.end..])
    }
}
