//! The columns of a file as a reader gives them, before their meaning is found.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::Arc;

use super::json::{self, Type};
use super::names::{Names, Role};
use super::tensors::{Info, Tensor};
use super::words::{self, Tokenize};
use crate::batch::{GroupId, Ragged};
use crate::diagnostic::Diagnostic;

/// A file as its reader gives it.
pub(super) struct Table {
    pub(super) path: PathBuf,
    pub(super) names: Arc<Names>,
    pub(super) columns: Vec<Column>,
    pub(super) origin: Origin,
    /// What else is known of a batch that advlab saved as safetensors.
    pub(super) saved: Option<Saved>,
}

/// What the header of a batch of ours holds.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) step: u64,
    /// The names of groups that are strings: the tensor `group` has their indices.
    pub(super) group_names: Option<Vec<GroupId>>,
    pub(super) texts: BTreeMap<String, Vec<String>>,
}

/// The location of each response in a file, and what a copy of the file must find there again.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A line per response. For each blank line, the index of the response after it; and a checksum of the file.
    Lines { blank: Vec<usize>, sum: u32 },
    /// The tensors of the file.
    Tensors(Vec<Info>),
}

impl Origin {
    /// The line of a response, from 1, if the file has lines.
    pub(super) fn line(&self, response: usize) -> Option<usize> {
        match self {
            Origin::Lines { blank, .. } => {
                Some(response + 1 + blank.partition_point(|&after| after <= response))
            }
            Origin::Tensors(_) => None,
        }
    }

    /// A response in words, such as `line 3` or `response 2`.
    pub(super) fn name_of(&self, response: usize) -> String {
        match self.line(response) {
            Some(line) => format!("line {line}"),
            None => format!("response {response}"),
        }
    }
}

/// The values of a column, all of one kind.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// Nothing but null.
    Null,
    /// A number per response, 0 and 1 for booleans.
    Numbers(Vec<f64>),
    /// The names of groups, and whether they are texts: strings and chats. A number beyond i64 is a name of its digits.
    Ids(Vec<GroupId>, bool),
    /// The number of words, or of tokens, per completion.
    Words(Vec<f64>),
    /// A string or a chat per response, held in [`Column::texts`]; the first in words.
    Texts(String),
    /// An array of numbers per response.
    Lists(Ragged),
    /// An array of the whole batch, read when it is used.
    Tensor(Tensor),
    /// Something that no column is made of: the first response's value in words.
    Other(String),
}

/// One field of the lines, or one tensor.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) data: Data,
    /// The strings, or the messages of chats as text, if the batch holds them.
    pub(super) texts: Option<Vec<Arc<str>>>,
    /// Whether it is one of several rewards that are added: null is one that a function does not give.
    is_summand: bool,
    /// Whether only the lengths of arrays are held.
    pub(super) is_unread: bool,
    /// How many responses have a value, from the first on.
    pub(super) filled: usize,
    /// The first response that has null.
    pub(super) null: Option<usize>,
    /// The first value that keeps the column from being whole.
    pub(super) odd: Option<Odd>,
}

/// A response whose value is missing, or of another kind than those before.
#[derive(Debug)]
pub(super) struct Odd {
    pub(super) response: usize,
    /// The value in words; `missing` or `null` if there is none.
    pub(super) found: String,
    /// A response that has a value.
    pub(super) other: usize,
}

/// What all columns of some lines share while these are read.
#[derive(Default)]
struct Shared {
    /// The names of groups, each held once: one may be a whole prompt.
    ids: HashSet<Arc<str>>,
    /// The numbers of the array that is being read.
    numbers: Vec<f64>,
    tokenizer: Option<Arc<dyn Tokenize>>,
}

impl Shared {
    fn held(&mut self, name: &str) -> GroupId {
        if let Some(known) = self.ids.get(name) {
            return known.clone().into();
        }
        let name: Arc<str> = name.into();
        self.ids.insert(name.clone());
        name.into()
    }

    /// A value as the name of a group. A number is exact, however large.
    fn id(&mut self, raw: &str) -> Option<GroupId> {
        if json::type_of(raw) != Type::Number {
            return text(raw).map(|text| self.held(&text));
        }
        if let Ok(number) = raw.parse() {
            return Some(GroupId::Number(number));
        }
        if raw
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_digit())
        {
            return Some(raw.into());
        }
        // pandas writes the whole numbers of a column with gaps as 7.0. Beyond 2^53 neighbours are no longer apart.
        let value = json::number(raw);
        let is_exact = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
        is_exact.then_some(GroupId::Number(value as i64))
    }
}

/// A string, or the messages of a chat.
fn text(raw: &str) -> Option<Cow<'_, str>> {
    match json::type_of(raw) {
        Type::String => Some(json::text(raw)),
        Type::Array => words::text_of_chat(raw).map(Cow::Owned),
        _ => None,
    }
}

/// A value in words.
fn describe(raw: &str) -> String {
    match json::type_of(raw) {
        Type::String => format!("the string {}", json::shorten(raw, 40)),
        Type::Object => "an object".to_string(),
        Type::Array => {
            let mut numbers = Vec::new();
            let read = json::numbers(raw, &mut numbers);
            read.map_or_else(str::to_string, |()| of_numbers(numbers.len()))
        }
        _ => raw.to_string(),
    }
}

/// An array in words.
fn of_numbers(count: usize) -> String {
    match count {
        0 => "an empty array".to_string(),
        count => format!("an array of {count} numbers"),
    }
}

/// A number in words: a very large or small one by its exponent.
pub(super) fn in_words(value: f64) -> String {
    let text = format!("{value:?}");
    text.strip_suffix(".0").unwrap_or(&text).to_string()
}

impl Data {
    /// An empty column of the kind of its first value.
    fn of_kind(first: &str, is_text: bool) -> Data {
        match json::type_of(first) {
            Type::Null | Type::Bool | Type::Number => Data::Numbers(Vec::new()),
            Type::String => Data::Texts(describe(first)),
            Type::Array if json::numbers(first, &mut Vec::new()).is_ok() => {
                Data::Lists(Ragged::new(true))
            }
            Type::Array if is_text && text(first).is_some() => Data::Texts(describe(first)),
            _ => Data::Other(describe(first)),
        }
    }

    /// Adds the values of more responses, which are of the same kind.
    fn append(&mut self, more: Data, shared: &mut Shared) {
        match (self, more) {
            (Data::Numbers(numbers), Data::Numbers(more))
            | (Data::Words(numbers), Data::Words(more)) => numbers.extend(more),
            (Data::Lists(rows), Data::Lists(more)) => rows.append(&more),
            (Data::Ids(ids, _), Data::Ids(more, _)) => {
                ids.extend(more.into_iter().map(|id| match id {
                    GroupId::String(name) => shared.held(&name),
                    number => number,
                }));
            }
            _ => {}
        }
    }
}

impl Column {
    pub(super) fn of_tensor(tensor: Tensor) -> Column {
        Column::empty(&tensor.name.clone(), Data::Tensor(tensor))
    }

    fn empty(name: &str, data: Data) -> Column {
        Column {
            name: name.to_string(),
            data,
            texts: None,
            is_summand: false,
            is_unread: false,
            filled: 0,
            null: None,
            odd: None,
        }
    }

    /// A column of lines, as its names say that it is to be read.
    fn new(name: &str, names: &Names) -> Column {
        let readings = names.of(name);
        let is = |role: Role| readings.iter().any(|reading| reading.role == role);
        let data = if is(Role::Group) {
            Data::Ids(Vec::new(), false)
        } else if is(Role::Completion) && names.count_words {
            Data::Words(Vec::new())
        } else {
            Data::Null
        };
        let is_text = readings.iter().any(|reading| names.wants_text(reading));
        Column {
            texts: is_text.then(Vec::new),
            is_summand: names.rewards.iter().any(|reward| reward == name),
            is_unread: !readings.iter().any(|reading| names.wants(reading)),
            ..Column::empty(name, data)
        }
    }

    /// Whether there is a text for every response.
    pub(super) fn is_text(&self) -> bool {
        self.odd.is_none() && self.filled > 0 && self.texts.is_some()
    }

    /// Adds the value of a response, as it is written.
    fn push(&mut self, response: usize, raw: &str, shared: &mut Shared) {
        if self.odd.is_some() {
            return;
        }
        if raw == "null" && !self.is_summand {
            self.null.get_or_insert(response);
            return;
        }
        match self.give(raw, shared) {
            Ok(()) if self.filled < response => self.end(response),
            Ok(()) => self.filled += 1,
            Err(found) => {
                let other = 0;
                self.odd = Some(Odd {
                    response,
                    found,
                    other,
                });
            }
        }
    }

    /// Adds a value, or says what it is if the column holds something else.
    fn give(&mut self, raw: &str, shared: &mut Shared) -> Result<(), String> {
        if matches!(self.data, Data::Null) {
            self.data = Data::of_kind(raw, self.texts.is_some());
        }
        let kind = json::type_of(raw);
        let text_here = self.texts.as_ref().and_then(|_| text(raw));
        match (&mut self.data, kind) {
            (Data::Words(counts), _) => {
                let tokenizer = shared.tokenizer.as_deref();
                let count = match &text_here {
                    Some(text) if kind == Type::String => Some(words::count(text, tokenizer)?),
                    _ => words::count_in(raw, tokenizer)?,
                };
                // A text has far fewer than 2^53 words.
                counts.push(count.ok_or_else(|| describe(raw))? as f64);
            }
            (Data::Ids(ids, are_texts), _) => {
                let id = shared.id(raw).ok_or_else(|| describe(raw))?;
                let is_text = kind != Type::Number;
                if !ids.is_empty() && *are_texts != is_text {
                    let before = if is_text { "a number" } else { "a string" };
                    let found = describe(raw);
                    return Err(format!("{found} where the lines before have {before}"));
                }
                *are_texts = is_text;
                ids.push(id);
            }
            (Data::Numbers(numbers), Type::Number | Type::Bool | Type::Null) => {
                numbers.push(json::number(raw));
            }
            (Data::Lists(rows), Type::Array) => {
                shared.numbers.clear();
                json::numbers(raw, &mut shared.numbers)?;
                match self.is_unread {
                    true => rows.push_length(shared.numbers.len()),
                    false => rows.push(shared.numbers.iter().copied()),
                }
            }
            (Data::Texts(_), Type::String) => {}
            (Data::Texts(_), Type::Array) if self.texts.is_some() => {}
            _ => return Err(describe(raw)),
        }
        if let Some(texts) = &mut self.texts {
            match (text_here, texts.last()) {
                (None, _) => self.texts = None,
                // A prompt comes once for each of its responses.
                (Some(text), Some(last)) if **last == *text => texts.push(last.clone()),
                (Some(text), _) => texts.push(text.into()),
            }
        }
        Ok(())
    }

    /// The first response without a value is odd; `other` has one.
    fn end(&mut self, other: usize) {
        let is_null = self.null == Some(self.filled);
        self.odd = Some(Odd {
            response: self.filled,
            found: if is_null { "null" } else { "missing" }.to_string(),
            other,
        });
    }

    /// The first response's value in words.
    pub(super) fn describe_first(&self) -> String {
        match &self.data {
            Data::Null => "null".to_string(),
            Data::Numbers(values) => in_words(values[0]),
            Data::Ids(ids, _) => match &ids[0] {
                GroupId::Number(number) => number.to_string(),
                text => format!("the string {text}"),
            },
            Data::Words(_) => "a string".to_string(),
            Data::Lists(rows) => of_numbers(rows.length(0)),
            Data::Tensor(tensor) => tensor.describe(),
            Data::Texts(words) | Data::Other(words) => words.clone(),
        }
    }
}

/// Columns to which response after response gives its values.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) names: Arc<Names>,
    pub(super) columns: Vec<Column>,
    pub(super) responses: usize,
    /// For each blank line, the index of the response after it.
    pub(super) blank: Vec<usize>,
    /// For each column, how many responses were begun when it was last met.
    met: Vec<usize>,
    /// For each column, its key in quotes as it was first written.
    keys: Vec<Box<str>>,
    by_key: HashMap<Box<str>, usize>,
    /// The column that most lines have next.
    next: usize,
    shared: Shared,
}

impl Rows {
    pub(super) fn new(names: Arc<Names>) -> Rows {
        let tokenizer = names.tokenizer.clone();
        let shared = Shared {
            tokenizer,
            ..Shared::default()
        };
        Rows {
            names,
            shared,
            ..Rows::default()
        }
    }

    /// Adds a response, which is a line.
    pub(super) fn line(&mut self, line: &str) -> Result<(), Diagnostic> {
        let response = self.responses;
        for (key, raw) in json::fields(line)? {
            let index = self.column(key);
            if std::mem::replace(&mut self.met[index], response + 1) > response {
                let name = &self.columns[index].name;
                let what =
                    format!("the field `{name}` stands twice in this line; keep one of them");
                let before = line[..json::place(line, key).start].chars().count();
                return Err(Diagnostic::error(what).at_column(before + 2));
            }
            self.columns[index].push(response, raw, &mut self.shared);
        }
        self.responses += 1;
        Ok(())
    }

    /// The column of a key in its quotes. Most lines have the same fields in the same order.
    fn column(&mut self, key: &str) -> usize {
        let index = match self.keys.get(self.next) {
            Some(next) if **next == *key => self.next,
            _ => match self.by_key.get(key) {
                Some(&known) => known,
                None => self.add_column(key),
            },
        };
        self.next = (index + 1) % self.columns.len();
        index
    }

    fn add_column(&mut self, key: &str) -> usize {
        let name = json::text(key);
        let plain = serde_json::Value::from(&*name).to_string();
        let index = self.by_key.get(&*plain).copied().unwrap_or_else(|| {
            self.met.push(0);
            self.keys.push(key.into());
            self.columns.push(Column::new(&name, &self.names));
            self.columns.len() - 1
        });
        self.by_key.insert(plain.into(), index);
        self.by_key.insert(key.into(), index);
        index
    }

    /// Whether the columns of the lines that follow can be added as they are: each has a value of the same kind in every line,
    /// or its values no longer matter.
    pub(super) fn goes_on_in(&self, more: &Rows) -> bool {
        let (before, added) = (self.responses, more.responses);
        more.columns.iter().zip(&more.keys).all(|(column, key)| {
            let known = self.by_key.get(key).map(|&known| &self.columns[known]);
            known.is_some_and(|known| {
                let are_null = known.filled == 0 && column.filled == 0;
                let are_full = known.filled == before && column.filled == added;
                let is_same = are_null
                    || are_full
                        && match (&known.data, &column.data) {
                            (Data::Ids(_, known), Data::Ids(_, more)) => known == more,
                            (known, more) => discriminant(known) == discriminant(more),
                        };
                known.odd.is_some() || column.odd.is_none() && is_same
            })
        })
    }

    /// Adds the columns of the lines that follow.
    pub(super) fn append(&mut self, more: Rows) {
        for (column, key) in more.columns.into_iter().zip(more.keys) {
            let known = &mut self.columns[self.by_key[&key]];
            if known.odd.is_none() {
                known.filled += column.filled;
                known.data.append(column.data, &mut self.shared);
                match (&mut known.texts, column.texts) {
                    (Some(texts), Some(more)) => texts.extend(more),
                    (texts, _) => *texts = None,
                }
            }
        }
        let blank = more.blank.iter();
        self.blank.extend(blank.map(|after| self.responses + after));
        self.responses += more.responses;
    }

    /// The table, now that no more responses follow: a column whose last values are missing is odd.
    pub(super) fn finish(mut self, path: PathBuf, sum: u32) -> Table {
        for column in &mut self.columns {
            if column.odd.is_none() && (1..self.responses).contains(&column.filled) {
                column.end(0);
            }
        }
        Table {
            path,
            names: self.names,
            columns: self.columns,
            origin: Origin::Lines {
                blank: self.blank,
                sum,
            },
            saved: None,
        }
    }
}

impl Table {
    /// An error in the file, at the line of a response if there is one.
    pub(super) fn error(&self, response: Option<usize>, error: Diagnostic) -> Diagnostic {
        let error = error.in_file(&self.path);
        match response.and_then(|response| self.origin.line(response)) {
            Some(line) => error.on_line(line),
            None => error,
        }
    }

    /// The error for what is found in a column of the file, at a response and at one of its tokens.
    pub(super) fn wrong(
        &self,
        column: &str,
        response: Option<usize>,
        token: Option<usize>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Diagnostic {
        let line = response.and_then(|response| self.origin.line(response));
        let at = [
            response
                .filter(|_| line.is_none())
                .map(|at| format!("response {at}")),
            token.map(|at| format!("token {at}")),
        ];
        let at: Vec<String> = at.into_iter().flatten().collect();
        let mut found: String = found.into();
        if !at.is_empty() {
            found = format!("{found} at {}", at.join(", "));
        }
        let error = Diagnostic::error("").found(found).expected(expected);
        self.error(response, error.in_field(column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_exact_and_nothing_else_is_one() {
        let id = |raw: &str| Shared::default().id(raw);
        let beyond = "18446744073709551617";
        for (raw, expected) in [
            ("9007199254740993", 9007199254740993_i64.into()),
            ("-3", (-3).into()),
            ("7.0", 7.into()),
            (beyond, beyond.into()),
            (r#""a\u00e9\"""#, "aé\"".into()),
            (r#""""#, "".into()),
        ] {
            assert_eq!(id(raw), Some(expected), "{raw}");
        }
        for wrong in ["0.5", "1e300", "true", "null", "[1]", "{}", "NaN"] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_are_counted_with_the_blank_ones_before_them() {
        // Blank lines 1 and 2, responses 0 to 2, blank 6 and 7, response 3, blank 9, response 4.
        let blank = vec![0, 0, 3, 3, 4];
        let origin = Origin::Lines { blank, sum: 0 };
        let lines = (0..5).map(|response| origin.line(response).unwrap());
        assert_eq!(lines.collect::<Vec<_>>(), [3, 4, 5, 8, 10]);
    }
}
