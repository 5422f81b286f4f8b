//! The columns of a file as its reader gives them, before their meaning is found.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::json::{self, Type};
use super::names::{FileKind, Names, Role, Schema};
use super::tensors::{Info, Store, Tensor};
use super::words::{self, Tokenize};
use crate::batch::GroupId;
use crate::diagnostic::Diagnostic;

/// A file as its reader gives it.
pub(super) struct Table {
    pub(super) names: Arc<Names>,
    pub(super) columns: Vec<Column>,
    pub(super) origin: Arc<Origin>,
    /// The header of a batch that advlab saved as safetensors.
    pub(super) saved: Option<Saved>,
}

/// The header of a batch of ours.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) step: u64,
    /// The names of groups that are strings: the tensor `group` has their indices.
    pub(super) group_names: Option<Vec<GroupId>>,
    pub(super) texts: BTreeMap<String, Vec<String>>,
}

/// The file, the place of each response in it, and what a copy of the file must find there again.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// A line per response. For each blank line, the index of the response after it; and a checksum of the file.
    Lines {
        blank: Vec<usize>,
        sum: u32,
    },
    Tensors(Vec<Info>),
}

impl Origin {
    pub(super) fn has_lines(&self) -> bool {
        matches!(self.content, Content::Lines { .. })
    }

    /// The line of a response, from 1, if the file has lines.
    pub(super) fn line(&self, response: usize) -> Option<usize> {
        match &self.content {
            Content::Lines { blank, .. } => {
                Some(response + 1 + blank.partition_point(|&after| after <= response))
            }
            Content::Tensors(_) => None,
        }
    }

    /// A response in words, such as `line 3` or `response 2`.
    pub(super) fn name_of(&self, response: usize) -> String {
        match self.line(response) {
            Some(line) => format!("line {line}"),
            None => format!("response {response}"),
        }
    }

    /// An error in the file, at the line of a response if there is one.
    pub(super) fn error(&self, response: Option<usize>, error: Diagnostic) -> Diagnostic {
        let error = error.in_file(&self.path);
        match response.and_then(|response| self.line(response)) {
            Some(line) => error.on_line(line),
            None => error,
        }
    }

    /// The error for a value in a column of the file, at a response and at one of its tokens.
    pub(super) fn wrong(
        &self,
        column: &str,
        at: (Option<usize>, Option<usize>),
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Diagnostic {
        let mut found: String = found.into();
        let response = at.0.filter(|_| !self.has_lines());
        let response = response.map(|at| format!("response {at}"));
        let token = at.1.map(|at| format!("token {at}"));
        let place: Vec<String> = response.into_iter().chain(token).collect();
        if !place.is_empty() {
            found = format!("{found} at {}", place.join(", "));
        }
        let error = Diagnostic::error("").found(found).expected(expected);
        self.error(at.0, error.in_field(column))
    }
}

/// Arrays of numbers, one per response.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// The start of each array, and the end of the last one.
    pub(super) starts: Vec<usize>,
    pub(super) values: Vec<f64>,
}

impl Default for Lists {
    fn default() -> Self {
        Lists {
            starts: vec![0],
            values: Vec::new(),
        }
    }
}

impl Lists {
    fn push(&mut self, raw: &str) -> Result<(), &'static str> {
        let before = self.values.len();
        let read = json::numbers(raw, &mut self.values);
        match read {
            Ok(()) => self.starts.push(self.values.len()),
            Err(_) => self.values.truncate(before),
        }
        read
    }

    fn append(&mut self, other: &Lists) {
        let before = self.values.len();
        self.values.extend_from_slice(&other.values);
        let starts = other.starts[1..].iter();
        self.starts.extend(starts.map(|start| before + start));
    }

    pub(super) fn length(&self, response: usize) -> usize {
        self.starts[response + 1] - self.starts[response]
    }

    pub(super) fn row(&self, response: usize) -> &[f64] {
        &self.values[self.starts[response]..self.starts[response + 1]]
    }
}

/// The values of a column, all of one kind.
#[derive(Clone, Debug, Default)]
pub(super) enum Data {
    /// Nothing but null.
    #[default]
    Null,
    /// A number per response, 0 and 1 for booleans.
    Numbers(Vec<f64>),
    /// The names of groups, and whether they are texts. A number beyond i64 is a name of its digits.
    Ids(Vec<GroupId>, bool),
    /// The number of words, or of tokens, per completion.
    Counts(Vec<f64>),
    /// A string or a chat per response.
    Texts,
    Lists(Lists),
    /// An array of the whole batch.
    Tensor(Tensor),
    /// Something that no column is made of.
    Other,
}

/// A response without a value, or with one of another kind than those before.
#[derive(Debug)]
pub(super) struct Odd {
    pub(super) response: usize,
    /// The value in words; `null` or `missing` if there is none.
    pub(super) found: String,
}

/// One field of the lines, or one tensor.
#[derive(Debug, Default)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) data: Data,
    /// The strings, or the messages of chats as text, if they are held.
    pub(super) texts: Vec<Arc<str>>,
    pub(super) holds_texts: bool,
    /// The first value in words.
    pub(super) first: String,
    /// Whether it is one of several rewards that are added: null is one that a function does not give.
    is_summand: bool,
    is_skipped: bool,
    tokenizer: Option<Arc<dyn Tokenize>>,
    /// How many responses were begun when it was last met.
    pub(super) met: usize,
    /// How many responses have a value, from the first on.
    pub(super) filled: usize,
    /// The first response that has null.
    pub(super) null: Option<usize>,
    /// The first value that keeps the column from being whole.
    pub(super) odd: Option<Odd>,
}

/// A number as the name of a group. It is exact, however large.
fn id_of_number(raw: &str) -> Option<GroupId> {
    if let Ok(number) = raw.parse() {
        return Some(GroupId::Number(number));
    }
    let is_digit = |byte: u8| byte == b'-' || byte.is_ascii_digit();
    if raw.bytes().all(is_digit) {
        return Some(raw.into());
    }
    // pandas writes the whole numbers of a column with gaps as 7.0.
    let value = json::number(raw);
    (json::type_of(raw) == Type::Number && json::is_exact(value)).then_some((value as i64).into())
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

impl Column {
    pub(super) fn of_tensor(tensor: Tensor) -> Column {
        Column {
            name: tensor.name.clone(),
            first: tensor.describe(),
            data: Data::Tensor(tensor),
            ..Column::default()
        }
    }

    /// A column of lines, as its names say that it is to be read.
    pub(super) fn new(name: &str, names: &Names) -> Column {
        let readings = names.of(name);
        let is = |role: Role| readings.iter().any(|reading| reading.role == role);
        let data = match () {
            () if is(Role::Group) => Data::Ids(Vec::new(), false),
            () if is(Role::Completion) && names.count_words => Data::Counts(Vec::new()),
            () => Data::Null,
        };
        let holds_texts = readings.iter().any(|reading| names.holds_text(reading));
        Column {
            name: name.to_string(),
            data,
            tokenizer: names.tokenizer.clone(),
            holds_texts,
            is_summand: names.rewards.iter().any(|reward| reward == name),
            is_skipped: names.only.as_ref().is_some_and(|only| only != name),
            ..Column::default()
        }
    }

    /// Whether there is a text for every response.
    pub(super) fn is_text(&self) -> bool {
        let are_texts = match &self.data {
            Data::Texts | Data::Counts(_) | Data::Ids(_, true) => self.filled > 0,
            Data::Tensor(tensor) => tensor.are_strings() && tensor.shape.len() == 1,
            _ => false,
        };
        are_texts && self.odd.is_none()
    }

    /// Adds the value of a response, as it is written in JSON.
    pub(super) fn push(&mut self, response: usize, raw: &str) {
        if self.is_skipped || self.odd.is_some() {
            return;
        }
        if raw == "null" && !self.is_summand {
            self.null.get_or_insert(response);
            return;
        }
        if self.filled == 0 {
            self.first = describe(raw);
        }
        let given = self.give(raw);
        self.given(response, given);
    }

    /// Adds an array of numbers, or null.
    pub(super) fn push_list(&mut self, response: usize, row: Option<&[f64]>) {
        let Some(row) = row else {
            self.null.get_or_insert(response);
            return;
        };
        if self.odd.is_some() {
            return;
        }
        if self.filled == 0 {
            self.first = of_numbers(row.len());
        }
        if matches!(self.data, Data::Null) {
            self.data = Data::Lists(Lists::default());
        }
        let given = match &mut self.data {
            Data::Lists(lists) => {
                lists.values.extend_from_slice(row);
                lists.starts.push(lists.values.len());
                Ok(())
            }
            _ => Err(of_numbers(row.len())),
        };
        self.given(response, given);
    }

    fn given(&mut self, response: usize, given: Result<(), String>) {
        match given {
            Ok(()) if self.filled < response => self.end(),
            Ok(()) => self.filled += 1,
            Err(found) => self.odd = Some(Odd { response, found }),
        }
    }

    /// Adds a value, or says what it is if the column holds something else.
    fn give(&mut self, raw: &str) -> Result<(), String> {
        let kind = json::type_of(raw);
        if matches!(self.data, Data::Null) {
            self.data = match kind {
                Type::Null | Type::Bool | Type::Number => Data::Numbers(Vec::new()),
                Type::Array if json::numbers(raw, &mut Vec::new()).is_ok() => {
                    Data::Lists(Lists::default())
                }
                _ if text(raw).is_some() => Data::Texts,
                _ => Data::Other,
            };
        }
        let text_here = match (&self.data, kind) {
            (Data::Texts, Type::String) if !self.holds_texts => return Ok(()),
            (Data::Texts | Data::Counts(_) | Data::Ids(..), _) => text(raw),
            _ => None,
        };
        match (&mut self.data, kind, &text_here) {
            (Data::Numbers(numbers), Type::Null | Type::Bool | Type::Number, _) => {
                numbers.push(json::number(raw));
            }
            (Data::Lists(lists), Type::Array, _) => {
                lists.push(raw)?;
            }
            (Data::Counts(counts), _, Some(text)) => {
                let tokenizer = self.tokenizer.as_deref();
                let count = match kind {
                    Type::Array => words::count_chat(raw, tokenizer)?,
                    _ => Some(words::count(text, tokenizer)?),
                };
                // A text has far fewer than 2^53 words.
                counts.push(count.ok_or_else(|| describe(raw))? as f64);
            }
            (Data::Ids(ids, are_texts), _, text) => {
                let id = match (text, ids.last()) {
                    // A prompt comes once for each of its responses, and may be long.
                    (Some(text), Some(GroupId::String(last))) if **last == **text => {
                        last.clone().into()
                    }
                    (Some(text), _) => GroupId::from(&**text),
                    (None, _) => id_of_number(raw).ok_or_else(|| describe(raw))?,
                };
                if !ids.is_empty() && *are_texts != text.is_some() {
                    let (found, before) = (
                        describe(raw),
                        if *are_texts { "a string" } else { "a number" },
                    );
                    return Err(format!("{found} where the lines before have {before}"));
                }
                *are_texts = text.is_some();
                ids.push(id);
                return Ok(());
            }
            (Data::Texts, _, Some(_)) => {}
            _ => return Err(describe(raw)),
        }
        if let Some(text) = text_here.filter(|_| self.holds_texts) {
            // A prompt comes once for each of its responses.
            let last = self.texts.last().filter(|last| ***last == *text).cloned();
            self.texts.push(last.unwrap_or_else(|| text.into()));
        }
        Ok(())
    }

    /// No value follows: the first response without one is odd.
    pub(super) fn end(&mut self) {
        let is_null = self.null == Some(self.filled);
        self.odd = Some(Odd {
            response: self.filled,
            found: if is_null { "null" } else { "missing" }.to_string(),
        });
    }

    /// Adds the values of the `more` responses that follow the first `before`.
    fn append(&mut self, before: usize, more: Column) {
        self.null = self.null.or(more.null.map(|null| before + null));
        if self.odd.is_some() || more.filled == 0 && more.odd.is_none() {
            return;
        }
        let is_first = self.filled == 0 && before == 0;
        if self.filled < before {
            return self.end();
        }
        let are_same = is_first
            || match (&self.data, &more.data) {
                (Data::Ids(_, known), Data::Ids(_, more)) => known == more,
                (known, more) => discriminant(known) == discriminant(more),
            };
        if more.filled > 0 && !are_same {
            let found = more.first;
            self.odd = Some(Odd {
                response: before,
                found,
            });
            return;
        }
        self.filled += more.filled;
        self.odd = more.odd.map(|odd| Odd {
            response: before + odd.response,
            ..odd
        });
        self.texts.extend(more.texts);
        if is_first {
            self.first = more.first;
        }
        match (&mut self.data, more.data) {
            (Data::Numbers(numbers), Data::Numbers(more))
            | (Data::Counts(numbers), Data::Counts(more)) => numbers.extend(more),
            (Data::Lists(lists), Data::Lists(more)) => lists.append(&more),
            (Data::Ids(ids, are_texts), Data::Ids(more, are_more)) => {
                *are_texts = are_more;
                ids.extend(more);
            }
            (data, more) => *data = more,
        }
    }
}

/// Columns to which line after line gives its values.
#[derive(Default)]
pub(super) struct Rows {
    names: Arc<Names>,
    columns: Vec<Column>,
    pub(super) responses: usize,
    /// For each blank line, the index of the response after it.
    pub(super) blank: Vec<usize>,
    by_name: HashMap<String, usize>,
    /// The column that most lines have next.
    next: usize,
}

impl Rows {
    pub(super) fn new(names: Arc<Names>) -> Rows {
        Rows {
            names,
            ..Rows::default()
        }
    }

    /// Adds a response, which is a line.
    pub(super) fn line(&mut self, line: &str) -> Result<(), Diagnostic> {
        let response = self.responses;
        for (key, raw) in json::fields(line)? {
            let column = self.column(key);
            if std::mem::replace(&mut self.columns[column].met, response + 1) > response {
                let name = &self.columns[column].name;
                let what =
                    format!("the field `{name}` stands twice in this line; keep one of them");
                let before = line[..json::place(line, key).start].chars().count();
                return Err(Diagnostic::error(what).at_column(before + 2));
            }
            self.columns[column].push(response, raw);
        }
        self.responses += 1;
        Ok(())
    }

    /// The column of a key in its quotes. Most lines have the same fields in the same order.
    fn column(&mut self, key: &str) -> usize {
        let is_plain = !key.contains('\\');
        let next = self.columns.get(self.next).filter(|_| is_plain);
        if next.is_none_or(|next| next.name != key[1..key.len() - 1]) {
            self.next = self.named(&json::text(key));
        }
        let column = self.next;
        self.next = (column + 1) % self.columns.len();
        column
    }

    fn named(&mut self, name: &str) -> usize {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        self.by_name.insert(name.to_string(), self.columns.len());
        self.columns.push(Column::new(name, &self.names));
        self.columns.len() - 1
    }

    /// Adds the lines that follow.
    pub(super) fn append(&mut self, more: Rows) {
        let before = self.responses;
        for column in more.columns {
            let known = self.named(&column.name);
            self.columns[known].append(before, column);
        }
        self.blank
            .extend(more.blank.iter().map(|after| before + after));
        self.responses += more.responses;
    }

    pub(super) fn finish(self, path: PathBuf, sum: u32) -> Table {
        let blank = self.blank;
        let content = Content::Lines { blank, sum };
        let origin = Origin { path, content };
        Table::of_lines(self.names, self.columns, self.responses, origin)
    }
}

impl Table {
    /// Columns of which all values have been given.
    pub(super) fn of_lines(
        names: Arc<Names>,
        mut columns: Vec<Column>,
        responses: usize,
        origin: Origin,
    ) -> Table {
        for column in &mut columns {
            if column.odd.is_none() && (1..responses).contains(&column.filled) {
                column.end();
            }
        }
        Table {
            names,
            columns,
            origin: Arc::new(origin),
            saved: None,
        }
    }

    /// Tensors, each of which is read when it is used.
    pub(super) fn of_tensors(
        path: &Path,
        store: Store,
        tensors: Vec<Info>,
        saved: Option<Saved>,
        schema: Schema,
    ) -> Result<Table, Diagnostic> {
        let fields = tensors
            .iter()
            .map(|tensor| (tensor.name.clone(), Type::Array));
        let kind = if saved.is_some() {
            FileKind::Saved
        } else {
            FileKind::Tensors
        };
        let names = schema(&fields.collect::<Vec<_>>(), kind)?;
        let store = Arc::new(store);
        let columns = tensors
            .iter()
            .map(|info| Column::of_tensor(Tensor::new(path, &store, info)));
        let columns = columns.collect();
        let origin = Origin {
            path: path.to_path_buf(),
            content: Content::Tensors(tensors),
        };
        Ok(Table {
            names: Arc::new(names),
            columns,
            origin: Arc::new(origin),
            saved,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_exact_and_nothing_else_is_one() {
        let beyond = "18446744073709551617";
        for (raw, expected) in [
            ("9007199254740993", 9007199254740993_i64.into()),
            ("-3", (-3).into()),
            ("7.0", 7.into()),
            (beyond, beyond.into()),
        ] {
            assert_eq!(id_of_number(raw), Some(expected), "{raw}");
        }
        for wrong in ["0.5", "1e300", "true", "NaN"] {
            assert_eq!(id_of_number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_are_counted_with_the_blank_ones_before_them() {
        // Blank lines 1 and 2, responses 0 to 2, blank 6 and 7, response 3, blank 9, response 4.
        let blank = vec![0, 0, 3, 3, 4];
        let origin = Origin {
            path: PathBuf::new(),
            content: Content::Lines { blank, sum: 0 },
        };
        let lines = (0..5).map(|response| origin.line(response).unwrap());
        assert_eq!(lines.collect::<Vec<_>>(), [3, 4, 5, 8, 10]);
    }
}
