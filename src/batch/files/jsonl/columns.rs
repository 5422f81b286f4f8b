//! The columns of a file of lines, as line after line gives its values to them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::mem::discriminant;
use std::sync::Arc;

use super::line_end;

use crate::batch::GroupId;
use crate::batch::column::Ragged;
use crate::batch::files::json::{Cursor, Type, fields, shorten, unescape};
use crate::batch::files::names::{Names, Role};
use crate::batch::files::raw::{Line, Odd, RawColumn, Values, of_numbers};
use crate::batch::files::words::{self, Tokenize};
use crate::diagnostic::Diagnostic;

/// The columns of the lines so far.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) names: Arc<Names>,
    pub(super) columns: Vec<RawColumn>,
    /// For each column, how many lines were begun when it was last met.
    met: Vec<usize>,
    /// For each column, its key as it first stood between its quotes.
    keys: Vec<Box<str>>,
    by_key: HashMap<Box<str>, usize>,
    /// The column that most lines have next.
    next: usize,
    /// The strings that name groups, each held once: one may be a whole prompt.
    ids: HashSet<Arc<str>>,
    /// The lines with a response.
    pub(super) lines: Vec<Line>,
    /// How many lines there are, blank ones among them.
    number: usize,
    /// The numbers of the array that is being read.
    array: Vec<f64>,
}

impl Columns {
    pub(super) fn new(names: Arc<Names>) -> Self {
        Columns {
            names,
            ..Columns::default()
        }
    }

    /// The fields of the first response, if there is any in more lines.
    pub(super) fn first_fields(
        &self,
        bytes: &[u8],
    ) -> Result<Option<Vec<(String, Type)>>, Diagnostic> {
        for (line, number) in lines(bytes).zip(self.number + 1..) {
            let here = |error: Diagnostic| error.on_line(number);
            if let Some(text) = text(line).map_err(here)? {
                return fields(text).map(Some).map_err(here);
            }
        }
        Ok(None)
    }

    /// Adds more lines, one after another.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), Diagnostic> {
        for line in lines(bytes) {
            self.number += 1;
            let number = self.number;
            let here = |error: Diagnostic| error.on_line(number);
            if let Some(text) = text(line).map_err(here)? {
                let line = self.line(text, number).map_err(here)?;
                self.lines.push(line);
            }
        }
        Ok(())
    }

    /// Whether columns of the lines that follow can be added as they are: each has a value of the same kind in every line,
    /// or its values no longer matter.
    pub(super) fn goes_on_in(&self, more: &Columns) -> bool {
        let (before, added) = (self.lines.len(), more.lines.len());
        more.columns.iter().all(|column| {
            let known = self.by_key.get(&*column.name);
            known.is_some_and(|&known| {
                let known = &self.columns[known];
                let are_null = known.filled == 0 && column.filled == 0;
                let are_full = known.filled == before && column.filled == added;
                known.odd.is_some()
                    || column.odd.is_none()
                        && (are_null || are_full && known.values.are_as(&column.values))
            })
        })
    }

    /// Adds the columns of the lines that follow.
    pub(super) fn append(&mut self, more: Columns) {
        for column in more.columns {
            let known = &mut self.columns[self.by_key[&*column.name]];
            if known.odd.is_none() {
                known.is_unusual |= column.is_unusual;
                known.filled += column.filled;
                known.values.append(column.values, &mut self.ids);
                match (&mut known.texts, column.texts) {
                    (Some(texts), Some(more)) => texts.extend(more),
                    (texts, _) => *texts = None,
                }
            }
        }
        let number = self.number;
        self.lines.extend(more.lines.into_iter().map(|line| Line {
            number: number + line.number,
            ..line
        }));
        self.number += more.number;
    }

    /// All columns, now that no more lines follow: one whose last values are missing is odd.
    pub(super) fn finish(mut self) -> Self {
        let responses = self.lines.len();
        for column in &mut self.columns {
            if column.odd.is_none() && (1..responses).contains(&column.filled) {
                column.end(0);
            }
        }
        self
    }

    fn line(&mut self, text: &str, number: usize) -> Result<Line, Diagnostic> {
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
            number,
            room: room.unwrap_or(end..end),
            key,
        })
    }

    /// The column of a key as it stands between its quotes. Most lines have the same fields in the same order.
    fn column(&mut self, key: &str) -> usize {
        let index = match self.keys.get(self.next) {
            Some(next) if **next == *key => self.next,
            _ => match self.by_key.get(key) {
                Some(&known) => known,
                None => self.add_key(key),
            },
        };
        self.next = (index + 1) % self.columns.len();
        index
    }

    fn add_key(&mut self, key: &str) -> usize {
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
            self.keys.push(key.into());
            let mut column = RawColumn::new(name.to_string(), values);
            if let [reading] = &readings[..] {
                column.unread = (!self.names.wants(reading)).then(|| reading.usual());
            }
            let mut readings = readings.iter();
            let is_text = readings.any(|reading| self.names.wants_text(reading));
            column.texts = is_text.then(Vec::new);
            column.is_summand = self.names.rewards.contains(&column.name);
            self.columns.push(column);
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
        let (start, kind) = (cursor.at, cursor.value_type());
        self.array.clear();
        let (mut mixed, mut number) = (None, f64::NAN);
        match kind {
            Type::Array if column.odd.is_none() => mixed = cursor.array(&mut self.array)?,
            Type::String | Type::Array | Type::Object => cursor.skip(0)?,
            Type::Null | Type::Bool | Type::Number => number = cursor.scalar()?,
        }
        if column.odd.is_some() {
            return Ok(());
        }
        if kind == Type::Null && !column.is_summand {
            column.null.get_or_insert(response);
            return Ok(());
        }
        let value = Value {
            kind,
            raw: cursor.since(start),
            number,
            numbers: &self.array,
            mixed,
        };
        let tokenizer = self.names.tokenizer.as_deref();
        match value.give_to(column, &mut self.ids, tokenizer) {
            Ok(()) => column.take(response),
            Err(found) => {
                if column.filled == 0 {
                    column.values = Values::Other(found.clone());
                }
                column.odd = Some(Odd {
                    response,
                    found,
                    other: 0,
                });
            }
        }
        Ok(())
    }
}

/// One value of a line.
struct Value<'a> {
    kind: Type,
    raw: &'a str,
    /// Of a number or a boolean.
    number: f64,
    /// Of an array of nothing but numbers.
    numbers: &'a [f64],
    /// What an array is that has something else in it.
    mixed: Option<&'static str>,
}

impl Value<'_> {
    /// Adds it to its column, or says what it is where that holds something else.
    fn give_to(
        &self,
        column: &mut RawColumn,
        known: &mut HashSet<Arc<str>>,
        tokenizer: Option<&dyn Tokenize>,
    ) -> Result<(), String> {
        if matches!(column.values, Values::None) {
            column.values = self.first(column.texts.is_some());
        }
        match &mut column.values {
            Values::Words { counts, messages } => {
                let words = match (self.kind, tokenizer) {
                    (Type::String, None) => Some(words::of_string(between(self.raw))),
                    (Type::String, Some(tokenizer)) => {
                        let text = unescape(between(self.raw));
                        text.map(|text| tokenizer.count(&text)).transpose()?
                    }
                    _ => words::of_messages(self.raw, tokenizer)?,
                };
                // A line has far fewer than 2^53 words.
                counts.push(words.ok_or_else(|| self.describe())? as f64);
                *messages |= self.kind != Type::String;
            }
            Values::Ids { ids, are_strings } => {
                let id = self.id(known).ok_or_else(|| self.describe())?;
                let is_string = matches!(self.kind, Type::String | Type::Array);
                if !ids.is_empty() && *are_strings != is_string {
                    let before = if is_string { "a number" } else { "a string" };
                    let found = self.describe();
                    return Err(format!("{found} where the lines before have {before}"));
                }
                *are_strings = is_string;
                ids.push(id);
            }
            Values::Numbers(numbers) if self.is_number() => numbers.push(self.number),
            Values::Arrays(rows) if self.is_numbers() => match column.unread {
                None => rows.push(self.numbers.iter().copied()),
                Some((low, high)) => {
                    let usual = f64::from(low)..=f64::from(high);
                    column.is_unusual |= !self.numbers.iter().all(|value| usual.contains(value));
                    rows.push_length(self.numbers.len());
                }
            },
            Values::Strings(_) if self.kind == Type::String => {}
            // The messages of a chat.
            Values::Strings(_) if column.texts.is_some() && self.mixed.is_some() => {}
            _ => return Err(self.describe()),
        }
        if let Some(texts) = &mut column.texts {
            match (self.text(), texts.last()) {
                (None, _) => column.texts = None,
                // A prompt comes once for each of its responses.
                (Some(text), Some(last)) if **last == *text => texts.push(last.clone()),
                (Some(text), _) => texts.push(text.into()),
            }
        }
        Ok(())
    }

    /// The values of a column of which this is the first.
    fn first(&self, is_text: bool) -> Values {
        match self.kind {
            Type::Number | Type::Bool | Type::Null => Values::Numbers(Vec::new()),
            Type::Array if self.mixed.is_none() => Values::Arrays(Ragged::new(true)),
            Type::String => Values::Strings(self.describe()),
            Type::Array if is_text && words::text_of_messages(self.raw).is_some() => {
                Values::Strings(self.describe())
            }
            _ => Values::None,
        }
    }

    fn is_number(&self) -> bool {
        // Null is a number where it gets here.
        matches!(self.kind, Type::Number | Type::Bool | Type::Null)
    }

    fn is_numbers(&self) -> bool {
        self.kind == Type::Array && self.mixed.is_none()
    }

    /// A string, or the messages of a chat.
    fn text(&self) -> Option<Cow<'_, str>> {
        match self.kind {
            // Half of a surrogate pair stays the escape that it is.
            Type::String => {
                let raw = between(self.raw);
                Some(unescape(raw).unwrap_or(raw.into()))
            }
            Type::Array => words::text_of_messages(self.raw).map(Cow::Owned),
            _ => None,
        }
    }

    /// A string, a chat or a whole number as a group's name. A string that comes again is held once; a number is exact
    /// however large: one beyond 64 bits is a name like any string.
    fn id(&self, known: &mut HashSet<Arc<str>>) -> Option<GroupId> {
        match self.kind {
            Type::String => {
                return Some(held(known, unescape(between(self.raw))?).into());
            }
            Type::Array => return Some(held(known, self.text()?).into()),
            Type::Number => {}
            _ => return None,
        }
        if let Ok(number) = self.raw.parse() {
            return Some(GroupId::Number(number));
        }
        let mut bytes = self.raw.bytes();
        if bytes.all(|byte| byte == b'-' || byte.is_ascii_digit()) {
            return Some(self.raw.into());
        }
        // pandas writes the whole numbers of a column with gaps as 7.0. Up to 2^53 they are still apart.
        let exact = self.number.fract() == 0.0 && self.number.abs() <= 9_007_199_254_740_992.0;
        exact.then_some(GroupId::Number(self.number as i64))
    }

    /// It in words.
    fn describe(&self) -> String {
        match (self.kind, self.mixed) {
            (Type::String, _) => format!("the string {}", shorten(self.raw, 40)),
            (Type::Array, Some(mixed)) => mixed.to_string(),
            (Type::Array, None) => of_numbers(self.numbers.len()),
            (Type::Object, _) => "an object".to_string(),
            _ => self.raw.to_string(),
        }
    }
}

impl Values {
    /// Whether both are of one kind.
    fn are_as(&self, more: &Values) -> bool {
        match (self, more) {
            (
                Values::Ids { are_strings, .. },
                Values::Ids {
                    are_strings: more, ..
                },
            ) => are_strings == more,
            _ => discriminant(self) == discriminant(more),
        }
    }

    /// Adds the values of more responses, which are of the same kind.
    fn append(&mut self, more: Values, known: &mut HashSet<Arc<str>>) {
        match (self, more) {
            (Values::Numbers(numbers), Values::Numbers(more)) => numbers.extend(more),
            (Values::Arrays(rows), Values::Arrays(more)) => rows.append(&more),
            (Values::Ids { ids, .. }, Values::Ids { ids: more, .. }) => {
                ids.extend(more.into_iter().map(|id| match id {
                    GroupId::String(name) => held(known, name).into(),
                    number => number,
                }));
            }
            (
                Values::Words { counts, messages },
                Values::Words {
                    counts: more,
                    messages: are,
                },
            ) => {
                counts.extend(more);
                *messages |= are;
            }
            _ => {}
        }
    }
}

/// Lines with their endings.
pub(super) fn lines(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (line, rest) = bytes.split_at(line_end(bytes));
        bytes = rest;
        (!line.is_empty()).then_some(line)
    })
}

/// A line as a string; `None` where it is blank.
pub(super) fn text(line: &[u8]) -> Result<Option<&str>, Diagnostic> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let (before, after) = line.split_at(error.valid_up_to());
        let byte = after.first().copied().unwrap_or_default();
        Diagnostic::error("")
            .found(format!("the byte 0x{byte:02x}, which is not UTF-8 there"))
            .expected("text in UTF-8")
            .at_column(String::from_utf8_lossy(before).chars().count() + 1)
    })?;
    // JSON's white space.
    let is_blank = text.bytes().all(|byte| b" \t\r\n".contains(&byte));
    Ok((!is_blank).then_some(text))
}

/// The characters between the quotes of a string.
fn between(raw: &str) -> &str {
    &raw[1..raw.len() - 1]
}

/// A name, in the one place where it is held.
fn held<N: AsRef<str> + Into<Arc<str>>>(known: &mut HashSet<Arc<str>>, name: N) -> Arc<str> {
    known.get(name.as_ref()).cloned().unwrap_or_else(|| {
        let name: Arc<str> = name.into();
        known.insert(name.clone());
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_exact_and_nothing_else_is_one() {
        let id = |raw: &str| {
            let mut cursor = Cursor::new(raw);
            let value = Value {
                kind: cursor.value_type(),
                raw,
                number: cursor.scalar().unwrap_or(f64::NAN),
                numbers: &[],
                mixed: None,
            };
            value.id(&mut HashSet::new())
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
