//! JSONL, one response a line: reads it line by line into columns, and writes the lines back with the advantage put in.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use super::json::{Cursor, Fault, Scalar, shorten, unescape};
use super::names::{Names, Role};
use super::raw::{
    Arrays, Field, FieldKind, Header, Line, Odd, Origin, Raw, RawColumn, Schema, Values,
};
use super::replace::Replacement;
use super::spread::Spread;
use super::{Progress, cannot_be_read, changed, words};
use crate::batch::GroupId;
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
        // What JSON takes for white space.
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
        let here = |Fault { at, diagnostic }: Fault| {
            let column = text.char_indices().take_while(|(start, _)| *start < at);
            let diagnostic = diagnostic.in_file(path).on_line(lines.number);
            diagnostic.at_column(column.count() + 1)
        };
        let reader = match &mut reader {
            Some(reader) => reader,
            None => {
                let fields = fields(text).map_err(here)?;
                reader.insert(Reader::new(schema(fields, Header::Lines)?))
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
        if column.is_whole() && column.filled < responses {
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

/// The fields of the first line.
fn fields(text: &str) -> Result<Vec<Field>, Fault> {
    let mut fields = Vec::new();
    Cursor::new(text).object(|cursor, key| {
        let raw = &text[key];
        fields.push(Field {
            name: unescape(raw).unwrap_or(raw.into()).into_owned(),
            kind: match cursor.peek() {
                Some(b'n') => FieldKind::Null,
                Some(b't' | b'f') => FieldKind::Bool,
                Some(b'"') => FieldKind::String,
                Some(b'[' | b'{') => FieldKind::Compound,
                _ => FieldKind::Number,
            },
        });
        cursor.skip(0).map(drop)
    })?;
    Ok(fields)
}

/// The use of a field's strings.
#[derive(Clone, Copy, PartialEq)]
enum Strings {
    Skipped,
    /// They name groups.
    Ids,
    /// Their words are counted.
    Words,
}

/// The columns so far.
struct Reader {
    names: Names,
    columns: Vec<RawColumn>,
    strings: Vec<Strings>,
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
    fn new(names: Names) -> Self {
        Reader {
            names,
            columns: Vec::new(),
            strings: Vec::new(),
            met: Vec::new(),
            by_key: HashMap::new(),
            ids: HashSet::new(),
            lines: Vec::new(),
            array: Vec::new(),
        }
    }

    /// Adds a line; its number is still to be set.
    fn line(&mut self, text: &str) -> Result<Line, Fault> {
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
                let diagnostic = Diagnostic::error(what);
                return Err(Fault {
                    at: key.start,
                    diagnostic,
                });
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
        let index = match self.by_key.get(&*name) {
            Some(&known) => known,
            None => {
                let readings = self.names.of(&name);
                let is = |role: Role| readings.iter().any(|reading| reading.role == role);
                self.strings.push(if is(Role::Group) {
                    Strings::Ids
                } else if is(Role::Completion) && self.names.count_words {
                    Strings::Words
                } else {
                    Strings::Skipped
                });
                self.met.push(0);
                self.columns
                    .push(RawColumn::new(name.to_string(), Values::None));
                self.by_key.insert(name.into(), self.columns.len() - 1);
                self.columns.len() - 1
            }
        };
        self.by_key.insert(key.into(), index);
        index
    }

    /// Gives a response's value to its column.
    fn value(&mut self, index: usize, response: usize, cursor: &mut Cursor) -> Result<(), Fault> {
        let column = &mut self.columns[index];
        if column.odd.is_some() {
            return cursor.skip(0).map(drop);
        }
        let start = cursor.at;
        self.array.clear();
        let value = Value::read(cursor, &mut self.array)?;
        let raw = cursor.since(start);
        let item = match (self.strings[index], value) {
            (_, Value::Null) => {
                column.null.get_or_insert(response);
                return Ok(());
            }
            (Strings::Words, Value::String) => Item::Words(words::of_string(between(raw)), false),
            (Strings::Words, _) => match words::of_messages(raw) {
                Some(words) => Item::Words(words, true),
                None => Item::Other,
            },
            (Strings::Ids, Value::String) => match unescape(between(raw)) {
                Some(id) => Item::Id(id_of(&mut self.ids, &id), true),
                None => Item::Other,
            },
            (Strings::Ids, Value::Number(value)) => {
                whole(raw, value).map_or(Item::Other, |id| Item::Id(id, false))
            }
            (Strings::Skipped, Value::Number(value)) => Item::Number(value),
            (Strings::Skipped, Value::Bool(value)) => Item::Number(f64::from(u8::from(value))),
            (Strings::Skipped, Value::Array(None)) => Item::Array(&self.array),
            _ => Item::Other,
        };
        let found = || match value {
            Value::String => format!("the string {}", shorten(raw, 40)),
            Value::Array(None) if self.array.is_empty() => "an empty array".to_string(),
            Value::Array(None) => format!("an array of {} numbers", self.array.len()),
            Value::Array(Some(other)) => other.to_string(),
            Value::Object => "an object".to_string(),
            Value::Null | Value::Bool(_) | Value::Number(_) => raw.to_string(),
        };
        let is_first = matches!(column.values, Values::None);
        let found = match item {
            Item::Other => found(),
            _ if !column.reach(response) => return Ok(()),
            item => match item.add_to(&mut column.values) {
                Ok(()) => {
                    column.filled += 1;
                    return Ok(());
                }
                Err(Some(other)) => format!("{} where the lines before have {other}", found()),
                Err(None) => found(),
            },
        };
        if is_first {
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

#[derive(Clone, Copy)]
enum Value {
    Null,
    Bool(bool),
    Number(f64),
    String,
    /// An array, and what is in it where that is not numbers.
    Array(Option<&'static str>),
    Object,
}

impl Value {
    /// Reads the value at the cursor, the numbers of an array into `array`.
    fn read(cursor: &mut Cursor, array: &mut Vec<f64>) -> Result<Value, Fault> {
        Ok(match cursor.peek() {
            Some(b'"') => {
                cursor.string()?;
                Value::String
            }
            Some(b'{') => {
                cursor.skip(0)?;
                Value::Object
            }
            Some(b'[') => Value::Array(cursor.array(array)?),
            _ => match cursor.scalar()? {
                Scalar::Null => Value::Null,
                Scalar::Bool(value) => Value::Bool(value),
                Scalar::Number(value) => Value::Number(value),
            },
        })
    }
}

/// The part of a value that a column may take.
enum Item<'a> {
    Number(f64),
    /// An id, and whether it is a string in the file.
    Id(GroupId, bool),
    Words(usize, bool),
    Array(&'a [f64]),
    Other,
}

impl Item<'_> {
    /// Adds the item to values of its kind, or says what they are instead, if that is to be said.
    fn add_to(self, values: &mut Values) -> Result<(), Option<&'static str>> {
        if matches!(values, Values::None) {
            *values = match self {
                Item::Number(_) => Values::Numbers(Vec::new()),
                Item::Id(_, is_string) => Values::Ids {
                    ids: Vec::new(),
                    are_strings: is_string,
                },
                Item::Words(..) => Values::Words {
                    counts: Vec::new(),
                    messages: false,
                },
                Item::Array(_) => Values::Arrays(Arrays::new()),
                Item::Other => return Err(None),
            };
        }
        match (values, self) {
            (Values::Numbers(values), Item::Number(value)) => values.push(value),
            (Values::Ids { ids, are_strings }, Item::Id(id, is_string)) => {
                if *are_strings != is_string {
                    return Err(Some(if *are_strings { "a string" } else { "a number" }));
                }
                ids.push(id);
            }
            (Values::Words { counts, messages }, Item::Words(words, is_chat)) => {
                *messages |= is_chat;
                // A line has far fewer than 2^53 words.
                counts.push(words as f64);
            }
            (Values::Arrays(arrays), Item::Array(array)) => {
                arrays.push(array);
            }
            _ => return Err(None),
        }
        Ok(())
    }
}

/// The characters between the quotes of a string.
fn between(raw: &str) -> &str {
    &raw[1..raw.len() - 1]
}

/// A string as a group's name; one that comes again is held once.
fn id_of(ids: &mut HashSet<Arc<str>>, id: &str) -> GroupId {
    if let Some(known) = ids.get(id) {
        return GroupId::Text(known.clone());
    }
    let id: Arc<str> = id.into();
    ids.insert(id.clone());
    GroupId::Text(id)
}

/// A whole number, exact however large: one beyond 64 bits is a name like any string.
fn whole(raw: &str, value: f64) -> Option<GroupId> {
    if let Ok(number) = raw.parse() {
        return Some(GroupId::Number(number));
    }
    if raw
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_digit())
    {
        return Some(raw.into());
    }
    // pandas writes the whole numbers of a column with gaps as 7.0. Up to 2^53 they are still apart.
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
        let id = |raw: &str| match raw.strip_prefix('"') {
            Some(_) => unescape(between(raw)).map(|id| id_of(&mut HashSet::new(), &id)),
            None => match Cursor::new(raw).scalar() {
                Ok(Scalar::Number(value)) => whole(raw, value),
                _ => None,
            },
        };
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
