//! The columns of a file as its reader finds them, before their meaning is known.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::cell::{self, Cell, JsonType};
use super::messages::{self, TextKind};
use super::place::{Place, Result};
use super::schema::{Keep, Reading, Role, Schema};
use super::words;
use crate::batch::GroupId;
use crate::batch::layout::Tokens;
use crate::tensor_file::FileTensor;

/// The columns of a file, and the names under which its fields are read.
#[derive(Default)]
pub(super) struct Table {
    pub(super) schema: Arc<Schema>,
    pub(super) place: Place,
    pub(super) columns: Vec<FileColumn>,
    /// The number of rows, or of lines that are not blank; 0 in a file of tensors.
    pub(super) responses: usize,
    /// The step of a batch that advlab saved.
    pub(super) step: Option<u64>,
    by_name: HashMap<String, usize>,
    /// The index of the column that is expected next in a line.
    next: usize,
}

impl Table {
    pub(super) fn new(schema: Arc<Schema>, place: Place) -> Table {
        Table {
            schema,
            place,
            ..Table::default()
        }
    }

    /// Returns the column of a field, and adds the column if it is new. The column that is expected next is tried first, because
    /// most lines have the same fields in the same order.
    pub(super) fn column(&mut self, name: &str) -> &mut FileColumn {
        let next = self.columns.get(self.next);
        let found = if next.is_some_and(|next| next.name() == name) {
            self.next
        } else {
            *self.by_name.entry(name.to_string()).or_insert_with(|| {
                self.columns.push(FileColumn::new(name, &self.schema));
                self.columns.len() - 1
            })
        };
        self.next = (found + 1) % self.columns.len();
        &mut self.columns[found]
    }

    /// Completes each column at the end: fields missing in the last responses become null or are recorded as missing.
    pub(super) fn finish(mut self) -> Table {
        for column in &mut self.columns {
            if column.keep.scores && column.first == "null" {
                column.open(&Cell::Null);
            }
            column.fill(self.responses);
            column.is_open(self.responses);
        }
        self
    }
}

/// The arrays of numbers of all responses, concatenated. If the numbers are not needed, only the arrays' lengths are kept.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// The start of each array, and the end of the last array.
    pub(super) starts: Vec<usize>,
    pub(super) values: Vec<f64>,
}

impl Lists {
    pub(super) fn new() -> Self {
        Lists {
            starts: vec![0],
            values: Vec::new(),
        }
    }

    pub(super) fn length(&self, response: usize) -> usize {
        self.starts[response + 1] - self.starts[response]
    }

    pub(super) fn row(&self, response: usize) -> &[f64] {
        &self.values[self.starts[response]..self.starts[response + 1]]
    }

    fn count(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Adds an array; the error describes the array if it holds anything but numbers.
    fn add(&mut self, cell: &Cell, is_kept: bool) -> Result<(), &'static str> {
        let before = self.values.len();
        let length = match cell {
            Cell::Numbers(row) => {
                let kept = if is_kept { row } else { &[][..] };
                self.values.extend_from_slice(kept);
                Ok(row.len())
            }
            cell if is_kept => {
                cell::numbers(&cell.json(), &mut self.values).map(|()| self.values.len() - before)
            }
            cell => cell::count(&cell.json()),
        };
        match length {
            Ok(length) => self.starts.push(self.count() + length),
            Err(_) => self.values.truncate(before),
        }
        length.map(drop)
    }

    fn append(&mut self, more: &Lists) {
        let end = self.count();
        self.starts
            .extend(more.starts[1..].iter().map(|start| end + start));
        self.values.extend_from_slice(&more.values);
    }
}

/// The values of a column, all of the same type.
#[derive(Clone, Debug, Default)]
pub(super) enum ColumnData {
    /// The column has only nulls so far.
    #[default]
    Null,
    /// A number per response; a boolean is 0 or 1.
    Numbers(Vec<f64>),
    /// Names of groups: strings or integers. An integer beyond i64 becomes the string of its digits.
    Ids(Vec<GroupId>),
    /// The texts (strings or chats) if texts are kept, and the number of words or tokens in each text if these are counted.
    Texts(Vec<Arc<str>>, Vec<f64>),
    Lists(Lists),
    /// A tensor with the values of all responses.
    Tensor(FileTensor),
    /// Values that cannot form a column.
    Other,
}

impl ColumnData {
    /// Returns the names of groups.
    pub(super) fn ids(self) -> Vec<GroupId> {
        match self {
            ColumnData::Ids(ids) => ids,
            ColumnData::Texts(texts, _) => texts.into_iter().map(GroupId::from).collect(),
            _ => Vec::new(),
        }
    }
}

/// One field of the lines, or one tensor.
#[derive(Clone, Debug)]
pub(super) struct FileColumn {
    /// The field or tensor, and the name under which it is read. For each other name, `resolve` copies the column.
    pub(super) reading: Reading,
    pub(super) keep: Keep,
    pub(super) data: ColumnData,
    /// A description of the first value.
    pub(super) first: String,
    /// The number of responses before the first response without a value of the column's type.
    pub(super) filled: usize,
    /// The first response without such a value, and a description of its value: a value of another type, `null`, or `missing`.
    pub(super) odd: Option<(usize, String)>,
    /// The index after the last response that has the field, even if the field is null.
    pub(super) end: usize,
    /// The first response without a value, and the number of these responses, if null and a missing field count as values.
    pub(super) blank: Option<(usize, usize)>,
}

/// The largest ratio of responses to values in an unknown column, because each line of a file can have a new unknown field.
const SPARSE: usize = 16;

impl FileColumn {
    pub(super) fn of_tensor(tensor: FileTensor, schema: &Schema) -> FileColumn {
        FileColumn {
            first: tensor.describe(),
            filled: 1,
            data: ColumnData::Tensor(tensor.clone()),
            ..FileColumn::new(&tensor.name, schema)
        }
    }

    pub(super) fn new(field: &str, schema: &Schema) -> FileColumn {
        FileColumn {
            reading: Reading::new(schema.own(field), field, false),
            keep: schema.keep(field),
            data: ColumnData::Null,
            first: String::new(),
            filled: 0,
            odd: None,
            end: 0,
            blank: None,
        }
    }

    /// Returns the name of the field or tensor in the file.
    pub(super) fn name(&self) -> &str {
        &self.reading.theirs
    }

    /// Returns whether the column has a known role, or the user asked for it. If there is no mask, the first known column of
    /// arrays gives the number of tokens of each response.
    pub(super) fn is_known(&self) -> bool {
        self.reading.role != Role::Any || self.reading.asked
    }

    /// Returns the number of values that a response has in a column of token values.
    pub(super) fn length(&self, response: usize) -> usize {
        match &self.data {
            ColumnData::Lists(lists) => lists.length(response),
            ColumnData::Tensor(tensor) => tensor.shape[1],
            _ => 0,
        }
    }

    /// Returns the first response with more or fewer values than tokens.
    pub(super) fn differs(&self, tokens: &Tokens) -> Option<usize> {
        let mut responses = 0..tokens.responses();
        responses.find(|&at| self.length(at) != tokens.row_length(at))
    }

    /// Returns whether there is a text for every response.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.data, ColumnData::Texts(..)) && self.filled > 0 && self.odd.is_none()
    }

    /// Returns the numbers of a column with one number per response.
    pub(super) fn numbers(self) -> Result<Vec<f64>> {
        let of_id = |id: &GroupId| match id {
            // The conversion is exact up to 2^53, as for any number in a line.
            GroupId::Number(number) => *number as f64,
            GroupId::String(digits) => cell::number(digits),
        };
        Ok(match self.data {
            ColumnData::Numbers(numbers) => numbers,
            ColumnData::Tensor(tensor) => tensor.numbers()?.to_vec(),
            ColumnData::Ids(ids) => ids.iter().map(of_id).collect(),
            _ => Vec::new(),
        })
    }

    /// Returns how many numbers of the column's arrays are in memory.
    pub(super) fn size(&self) -> u64 {
        match &self.data {
            ColumnData::Lists(lists) => lists.values.len() as u64,
            _ => 0,
        }
    }

    /// Adds the value of a response. After a response without a valid value, later values only give an untyped column its type.
    pub(super) fn push(&mut self, response: usize, cell: &Cell) {
        let number = self.keep.digits.then(|| cell.number_in_text()).flatten();
        let number = number.map(Cell::Number);
        let cell = number.as_ref().unwrap_or(cell);
        let is_null = cell.kind() == JsonType::Null;
        if is_null && self.keep.nulls {
            // The other values decide the column's type; `fill` adds this null.
            if self.first.is_empty() {
                self.first.push_str("null");
            }
            return;
        }
        if self.keep.nulls {
            self.open(cell);
            self.fill(response);
        }
        if !self.is_open(response) {
            return;
        }
        let given = if is_null {
            Err("null".to_string())
        } else {
            self.give(cell)
        };
        match given {
            Ok(()) => self.filled += 1,
            Err(found) => drop(self.odd.get_or_insert((response, found))),
        }
    }

    /// Adds nulls for the responses before this one that lack the field, if nulls count as values.
    fn fill(&mut self, response: usize) {
        if !self.keep.nulls || self.filled >= response || self.odd.is_some() {
            return;
        }
        let is_unknown = !self.is_known() && !self.keep.scores && self.keep.kind == TextKind::Any;
        if is_unknown && response / SPARSE > self.filled + SPARSE {
            return;
        }
        match &mut self.data {
            ColumnData::Numbers(numbers) => numbers.resize(response, f64::NAN),
            ColumnData::Texts(texts, counts) if self.keep.kind != TextKind::Any => {
                let size = |is_kept| if is_kept { response } else { 0 };
                texts.resize(size(self.keep.values), "".into());
                counts.resize(size(self.keep.counts), 0.0);
            }
            ColumnData::Other => {}
            _ => return,
        }
        self.blank.get_or_insert((self.filled, 0)).1 += response - self.filled;
        self.filled = response;
    }

    /// Returns whether values from this response on are still needed. Also records the first missing value before the response.
    fn is_open(&mut self, response: usize) -> bool {
        let is_open = self.odd.is_none() || matches!(self.data, ColumnData::Null);
        if is_open && self.filled < response {
            let what = ["missing", "null or missing"][usize::from(self.keep.nulls)];
            self.odd.get_or_insert((self.filled, what.to_string()));
        }
        is_open
    }

    /// Appends the values of the next responses, the first of which is `start`. Returns false if these values have another type,
    /// so that the caller must push them one by one.
    pub(super) fn append(&mut self, more: FileColumn, start: usize) -> bool {
        let is_null = matches!(more.data, ColumnData::Null);
        if self.keep.nulls && is_null {
            // `fill` adds these nulls, as in `push`.
            self.first.push_str(if self.first.is_empty() {
                &more.first
            } else {
                ""
            });
            return true;
        }
        if self.keep.nulls && matches!(self.data, ColumnData::Null) && start > 0 {
            return false;
        }
        if !is_null {
            self.fill(start);
        }
        if !self.is_open(start) {
            return true;
        }
        match (&mut self.data, more.data) {
            (_, ColumnData::Null) => {}
            (data @ ColumnData::Null, new) => {
                *data = new;
                self.first = more.first;
            }
            _ if self.odd.is_some() => {}
            (ColumnData::Numbers(numbers), ColumnData::Numbers(new)) => numbers.extend(new),
            (ColumnData::Ids(ids), ColumnData::Ids(new)) => ids.extend(new),
            (ColumnData::Lists(lists), ColumnData::Lists(new)) => lists.append(&new),
            (ColumnData::Texts(texts, counts), ColumnData::Texts(new, more)) => {
                texts.extend(new);
                counts.extend(more);
            }
            _ => return false,
        }
        self.filled += more.filled;
        if let Some((first, count)) = more.blank {
            self.blank.get_or_insert((start + first, 0)).1 += count;
        }
        let odd = more.odd.map(|(at, found)| (at + start, found));
        self.odd = self.odd.take().or(odd);
        true
    }

    /// Gives a column without a type the type of its first value.
    fn open(&mut self, cell: &Cell) {
        let kind = cell.kind();
        let is_number = matches!(kind, JsonType::Null | JsonType::Bool | JsonType::Number);
        let keep = &self.keep;
        if let ColumnData::Null = self.data {
            let is_array = kind == JsonType::Array && !keep.ids && keep.kind == TextKind::Any;
            self.first = cell.describe();
            self.data = match () {
                () if is_array && Lists::new().add(cell, false).is_ok() => {
                    ColumnData::Lists(Lists::new())
                }
                () if is_number && keep.ids => ColumnData::Ids(Vec::new()),
                () if is_number && keep.kind != TextKind::Completion => {
                    ColumnData::Numbers(Vec::new())
                }
                () if keep.read(cell).is_ok() => ColumnData::Texts(Vec::new(), Vec::new()),
                () => ColumnData::Other,
            };
        }
    }

    /// Adds a value; the error describes the value if the column holds another type.
    fn give(&mut self, cell: &Cell) -> Result<(), String> {
        self.open(cell);
        let kind = cell.kind();
        let is_number = matches!(kind, JsonType::Null | JsonType::Bool | JsonType::Number);
        let keep = &self.keep;
        let is_text = || keep.read(cell).is_ok();
        match &mut self.data {
            ColumnData::Numbers(numbers) if is_number => numbers.push(cell.number()),
            ColumnData::Lists(lists) if kind == JsonType::Array => {
                lists.add(cell, keep.values)?;
            }
            ColumnData::Texts(texts, counts) => return keep.text(cell, texts, counts),
            ColumnData::Ids(ids) => match cell.id() {
                Some(id) => ids.push(id),
                None if is_text() => return Err(of_other_kind(cell, "number")),
                None => return Err(cell.describe()),
            },
            _ => return Err(cell.describe()),
        }
        Ok(())
    }
}

impl Keep {
    /// Returns the text of a value; the error describes a value that has no text.
    fn read<'a>(&self, cell: &'a Cell) -> Result<Cow<'a, str>, String> {
        if let (Cell::Text(text), TextKind::Any) = (cell, self.kind) {
            return Ok(Cow::Borrowed(text));
        }
        match cell.json() {
            Cow::Borrowed(raw) => self.kind.read(raw),
            Cow::Owned(raw) => self.kind.read(&raw).map(|text| text.into_owned().into()),
        }
    }

    /// Adds a string or a chat: the text, the number of its words or tokens, both or neither, as this `Keep` selects.
    fn text(
        &self,
        cell: &Cell,
        texts: &mut Vec<Arc<str>>,
        counts: &mut Vec<f64>,
    ) -> Result<(), String> {
        let is_string = cell.kind() == JsonType::String;
        let may_be_chat = || match cell {
            Cell::Json(raw) => messages::may_be_chat(&raw[1..]),
            Cell::Text(text) => messages::may_be_chat(text),
            _ => false,
        };
        if is_string && !self.values && !(self.kind == TextKind::Completion && may_be_chat()) {
            // The words are counted without decoding the text, because decoding would take half of the time of reading the file.
            let words = match (&self.tokenizer, cell) {
                (None, Cell::Json(raw)) if self.counts => words::count_in_json(raw),
                (None, Cell::Text(text)) if self.counts => words::count(text, None).ok(),
                _ => None,
            };
            counts.extend(words.map(|words| words as f64));
            if words.is_some() || !self.counts {
                return Ok(());
            }
        }
        if let Cell::Json(raw) = cell
            && self.ids
            && is_string
            && raw.contains('\\')
            && serde_json::from_str::<String>(raw).is_err()
        {
            // The name is refused, because different names with half of a surrogate pair would become equal.
            let found = cell.describe();
            return Err(format!("{found}, which contains half of a surrogate pair"));
        }
        let raw;
        let text = if self.counts {
            raw = cell.json();
            let said = messages::said(&raw)?;
            let tokens = said
                .iter()
                .map(|text| words::count(text, self.tokenizer.as_deref()));
            // The conversion is exact, because a text has far fewer than 2^53 words.
            counts.push(tokens.sum::<Result<usize, String>>()? as f64);
            messages::answer(said)
        } else {
            let wrong = |found| match self.ids && cell.id().is_some() {
                true => of_other_kind(cell, "string"),
                false => found,
            };
            self.read(cell).map_err(wrong)?
        };
        if self.values {
            // A text that repeats the previous text shares its memory, because a prompt occurs once for each of its responses.
            let last = texts.last().filter(|last| ***last == *text).cloned();
            texts.push(last.unwrap_or_else(|| text.into()));
        }
        Ok(())
    }
}

fn of_other_kind(cell: &Cell, kind: &str) -> String {
    format!("{}, but the earlier lines have a {kind}", cell.describe())
}
