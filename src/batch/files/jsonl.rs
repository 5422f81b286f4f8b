//! JSONL, one response a line: reads it line by line into columns, and writes the lines back with the advantage put in.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use super::json::{Cursor, Type, fields, shorten, unescape};
use super::names::{Names, Role};
use super::raw::{Header, Line, Odd, Origin, Raw, RawColumn, Schema, Values, of_numbers};
use super::replace::Replacement;
use super::spread::Spread;
use super::{Progress, cannot_be_read, changed, words};
use crate::batch::GroupId;
use crate::batch::column::Ragged;
use crate::diagnostic::Diagnostic;

struct Lines {
    input: BufReader<File>,
    bytes: Vec<u8>,
    number: usize,
    /// The checksum of all bytes so far.
    sum: u32,
}

impl Lines {
    fn new(file: File) -> Self {
        Lines {
            input: BufReader::with_capacity(1 << 20, file),
            bytes: Vec::new(),
            number: 0,
            sum: 0,
        }
    }

    /// Moves to the next line, blank or not; its bytes, ending and all, are then in `bytes`.
    fn next(&mut self) -> io::Result<bool> {
        self.bytes.clear();
        let read = self.input.read_until(b'\n', &mut self.bytes)?;
        self.number += 1;
        self.sum = crc32c::crc32c_append(self.sum, &self.bytes);
        Ok(read > 0)
    }

    /// The line as a string, without a byte order mark; `None` where it is blank.
    fn text(&self) -> Result<Option<&str>, Diagnostic> {
        let text = std::str::from_utf8(&self.bytes).map_err(|error| {
            let (before, after) = self.bytes.split_at(error.valid_up_to());
            let byte = after.first().copied().unwrap_or_default();
            Diagnostic::error("")
                .found(format!("the byte 0x{byte:02x}, which is not UTF-8 there"))
                .expected("text in UTF-8")
                .on_line(self.number)
                .at_column(String::from_utf8_lossy(before).chars().count() + 1)
        })?;
        let text = match self.number {
            1 => text.strip_prefix('\u{feff}').unwrap_or(text),
            _ => text,
        };
        // JSON's white space.
        let is_blank = text.bytes().all(|byte| b" \t\r\n".contains(&byte));
        Ok((!is_blank).then_some(text))
    }
}

pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Raw, Diagnostic> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (total, file) = opened.map_err(|error| cannot_be_read(path, &error))?;
    progress.expect(total);
    let mut lines = Lines::new(file);
    let mut reader: Option<Reader> = None;
    while lines.next().map_err(|error| cannot_be_read(path, &error))? {
        progress.add(lines.bytes.len() as u64);
        let Some(text) = lines.text().map_err(|error| error.in_file(path))? else {
            continue;
        };
        let here = |error: Diagnostic| error.in_file(path).on_line(lines.number);
        let reader = match &mut reader {
            Some(reader) => reader,
            None => {
                let fields = fields(text).map_err(here)?;
                reader.insert(Reader {
                    names: schema(&fields, &Header::Lines)?,
                    ..Reader::default()
                })
            }
        };
        let mark = lines.bytes.len() - text.len();
        let mut line = reader.line(text).map_err(here)?;
        line.number = lines.number;
        line.room = line.room.start + mark..line.room.end + mark;
        reader.lines.push(line);
    }
    let Some(mut reader) = reader else {
        let what = "there is no response in the file";
        let expected = "one JSON object a line, one line a response";
        return Err(Diagnostic::error(what).expected(expected).in_file(path));
    };
    let responses = reader.lines.len();
    for column in &mut reader.columns {
        if column.odd.is_none() && (1..responses).contains(&column.filled) {
            column.end(0);
        }
    }
    Ok(Raw {
        path: path.to_path_buf(),
        header: Header::Lines,
        names: reader.names,
        columns: reader.columns,
        origin: Origin::Lines {
            lines: reader.lines,
            sum: lines.sum,
        },
    })
}

/// The columns so far.
#[derive(Default)]
struct Reader {
    names: Names,
    columns: Vec<RawColumn>,
    /// For each column, how many lines were begun when it was last met.
    met: Vec<usize>,
    by_key: HashMap<Box<str>, usize>,
    /// The strings that name groups, each held once: one may be a whole prompt.
    ids: HashSet<Arc<str>>,
    lines: Vec<Line>,
    /// The numbers of the array that is being read.
    array: Vec<f64>,
}

impl Reader {
    /// Adds a line; its number is still to be set.
    fn line(&mut self, text: &str) -> Result<Line, Diagnostic> {
        let response = self.lines.len();
        let mut room = None;
        let mut last = None;
        let mut is_spaced = false;
        let close = Cursor::new(text).object(|cursor, key| {
            let start = cursor.at;
            let index = self.column(&text[key.clone()]);
            if std::mem::replace(&mut self.met[index], response + 1) > response {
                let name = &self.columns[index].name;
                let what =
                    format!("the field `{name}` stands twice in this line; keep one of them");
                cursor.at = key.start;
                return Err(cursor.error(Diagnostic::error(what)));
            }
            self.value(index, response, cursor)?;
            if last.is_none() {
                is_spaced = text[key.end..start].ends_with(' ');
            }
            last = Some(cursor.at);
            if self.columns[index].name == "advantage" {
                room = Some(start..cursor.at);
            }
            Ok(())
        })?;
        // After the last value, in the style of the line: Python puts a space after a comma and a colon.
        let end = last.unwrap_or(close);
        let key = match (&room, last) {
            (Some(_), _) => "",
            (None, None) => "\"advantage\": ",
            (None, _) if is_spaced => ", \"advantage\": ",
            (None, _) => ",\"advantage\":",
        };
        Ok(Line {
            number: 0,
            room: room.unwrap_or(end..end),
            key,
        })
    }

    /// The column of a key as it stands between its quotes.
    fn column(&mut self, key: &str) -> usize {
        if let Some(&known) = self.by_key.get(key) {
            return known;
        }
        let name = unescape(key).unwrap_or(key.into());
        let index = self.by_key.get(&*name).copied().unwrap_or_else(|| {
            let readings = self.names.of(&name);
            let is = |role: Role| readings.iter().any(|reading| reading.role == role);
            let values = if is(Role::Group) {
                let (ids, are_strings) = (Vec::new(), false);
                Values::Ids { ids, are_strings }
            } else if is(Role::Completion) && self.names.count_words {
                let (counts, messages) = (Vec::new(), false);
                Values::Words { counts, messages }
            } else {
                Values::None
            };
            self.met.push(0);
            self.columns.push(RawColumn::new(name.to_string(), values));
            self.by_key.insert((*name).into(), self.columns.len() - 1);
            self.columns.len() - 1
        });
        self.by_key.insert(key.into(), index);
        index
    }

    /// Gives a response's value to its column.
    fn value(
        &mut self,
        index: usize,
        response: usize,
        cursor: &mut Cursor,
    ) -> Result<(), Diagnostic> {
        let column = &mut self.columns[index];
        let (start, value) = (cursor.at, cursor.value_type());
        self.array.clear();
        let (mut mixed, mut number) = (None, f64::NAN);
        match value {
            Type::Array if column.odd.is_none() => mixed = cursor.array(&mut self.array)?,
            Type::String | Type::Array | Type::Object => cursor.skip(0)?,
            Type::Null | Type::Bool | Type::Number => number = cursor.scalar()?,
        }
        if column.odd.is_some() {
            return Ok(());
        }
        let raw = cursor.since(start);
        if value == Type::Null {
            column.null.get_or_insert(response);
            return Ok(());
        }
        let is_numbers = value == Type::Array && mixed.is_none();
        let is_number = matches!(value, Type::Number | Type::Bool);
        let mut before = None;
        if matches!(column.values, Values::None) {
            if is_number {
                column.values = Values::Numbers(Vec::new());
            } else if is_numbers {
                column.values = Values::Arrays(Ragged::new(true));
            }
        }
        let is_taken = match &mut column.values {
            Values::Words { counts, messages } => {
                let words = match value {
                    Type::String => Some(words::of_string(between(raw))),
                    _ => words::of_messages(raw),
                };
                *messages |= value != Type::String;
                // A line has far fewer than 2^53 words.
                counts.extend(words.map(|words| words as f64));
                words.is_some()
            }
            Values::Ids { ids, are_strings } => {
                let (id, is_string) = (id(&mut self.ids, value, raw), value == Type::String);
                if id.is_some() && !ids.is_empty() && *are_strings != is_string {
                    before = Some(if is_string { "a number" } else { "a string" });
                }
                *are_strings = is_string;
                let is_taken = id.is_some() && before.is_none();
                ids.extend(id);
                is_taken
            }
            Values::Numbers(numbers) if is_number => {
                numbers.push(number);
                true
            }
            Values::Arrays(rows) if is_numbers => {
                rows.push(self.array.iter().copied());
                true
            }
            _ => false,
        };
        if is_taken {
            column.take(response);
            return Ok(());
        }
        let found = match (value, mixed) {
            (Type::String, _) => format!("the string {}", shorten(raw, 40)),
            (Type::Array, Some(mixed)) => mixed.to_string(),
            (Type::Array, None) => of_numbers(&self.array),
            (Type::Object, _) => "an object".to_string(),
            _ => raw.to_string(),
        };
        let found = match before {
            Some(before) => format!("{found} where the lines before have {before}"),
            None => found,
        };
        if column.filled == 0 {
            column.values = Values::Other(found.clone());
        }
        column.odd = Some(Odd {
            response,
            found,
            other: 0,
        });
        Ok(())
    }
}

/// The characters between the quotes of a string.
fn between(raw: &str) -> &str {
    &raw[1..raw.len() - 1]
}

/// A string or a whole number as a group's name. A string that comes again is held once; a number is exact however
/// large: one beyond 64 bits is a name like any string.
fn id(known: &mut HashSet<Arc<str>>, value: Type, raw: &str) -> Option<GroupId> {
    match value {
        Type::String => {
            let name = unescape(between(raw))?;
            let name = known.get(&*name).cloned().unwrap_or_else(|| {
                let name: Arc<str> = name.into();
                known.insert(name.clone());
                name
            });
            return Some(name.into());
        }
        Type::Number => {}
        _ => return None,
    }
    if let Ok(number) = raw.parse() {
        return Some(GroupId::Number(number));
    }
    let mut bytes = raw.bytes();
    if bytes.all(|byte| byte == b'-' || byte.is_ascii_digit()) {
        return Some(raw.into());
    }
    // pandas writes the whole numbers of a column with gaps as 7.0. Up to 2^53 they are still apart.
    let value: f64 = raw.parse().ok()?;
    let exact = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
    exact.then_some(GroupId::Number(value as i64))
}

/// Writes the lines of `input` to `out`, each with its advantage and otherwise to the byte as it is.
pub(super) fn write(
    input: &Path,
    origin: &Origin,
    spread: &Spread,
    out: &mut Replacement,
) -> Result<(), Diagnostic> {
    let Origin::Lines { lines, sum } = origin else {
        unreachable!("lines are written for a file that was read as lines");
    };
    let is_gone = |error: io::Error| changed(input, error);
    let mut copy = Lines::new(File::open(input).map_err(is_gone)?);
    let mut lines = lines.iter().enumerate().peekable();
    let mut value = Vec::new();
    while copy.next().map_err(is_gone)? {
        let bytes = &copy.bytes;
        let written = match lines.next_if(|(_, line)| line.number == copy.number) {
            None => out.write_all(bytes),
            Some((response, line)) => {
                let (Some(before), Some(after)) =
                    (bytes.get(..line.room.start), bytes.get(line.room.end..))
                else {
                    return Err(changed(input, "a line is shorter"));
                };
                value.clear();
                spread.json(response, &mut value);
                let parts = [before, line.key.as_bytes(), &value, after];
                parts.iter().try_for_each(|part| out.write_all(part))
            }
        };
        written.map_err(|error| out.error(&error))?;
    }
    if copy.sum != *sum || lines.next().is_some() {
        return Err(changed(input, "its bytes are others"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_exact_and_nothing_else_is_one() {
        let id = |raw: &str| id(&mut HashSet::new(), Cursor::new(raw).value_type(), raw);
        assert_eq!(id("9007199254740993"), Some(9007199254740993_i64.into()));
        assert_eq!(id("-3"), Some((-3).into()));
        assert_eq!(id("7.0"), Some(7.into()));
        let beyond = "18446744073709551617";
        assert_eq!(id(beyond), Some(beyond.into()));
        assert_eq!(id(r#""a\u00e9\"""#), Some("aé\"".into()));
        assert_eq!(id(r#""""#), Some("".into()));
        for wrong in [
            "0.5",
            "1e300",
            "true",
            "null",
            "[1]",
            "{}",
            "NaN",
            r#""\ud800""#,
        ] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }
}
