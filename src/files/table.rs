//! The columns of a file as its reader finds them, before their meaning is known.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::cell::{self, Cell, JsonType};
use super::keep::{Keep, of_other_kind};
use super::messages::TextKind;
use super::place::{Place, Result};
use super::schema::{Reading, Role, Schema};
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

    /// Completes each column at the end.
    pub(super) fn finish(mut self) -> Table {
        for column in &mut self.columns {
            column.finish(self.responses);
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
    /// The values, without those of the responses in `gaps`.
    pub(super) data: ColumnData,
    /// The first value that is not null: its response, its type and its description.
    pub(super) first: (usize, JsonType, String),
    /// The first response without a value of the column's type, and a description of its value: a value of another type, `null`,
    /// or `missing`.
    pub(super) odd: Option<(usize, String)>,
    /// The index after the last response that has the field, even if the field is null.
    pub(super) end: usize,
    /// The responses in which the field is null or missing, if this counts as a value.
    pub(super) gaps: Vec<Range<usize>>,
}

/// The largest ratio of responses to values in an unknown column, because each line of a file can have a new unknown field.
const SPARSE: usize = 16;

impl FileColumn {
    pub(super) fn of_tensor(tensor: FileTensor, schema: &Schema) -> FileColumn {
        FileColumn {
            first: (0, JsonType::Array, tensor.describe()),
            data: ColumnData::Tensor(tensor.clone()),
            ..FileColumn::new(&tensor.name, schema)
        }
    }

    pub(super) fn new(field: &str, schema: &Schema) -> FileColumn {
        FileColumn {
            reading: Reading::new(schema.own(field), field),
            keep: Keep::of(field, schema),
            data: ColumnData::Null,
            first: (0, JsonType::Null, String::new()),
            odd: None,
            end: 0,
            gaps: Vec::new(),
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
        matches!(self.data, ColumnData::Texts(..)) && self.odd.is_none()
    }

    /// Returns the first response without a value, and the number of these responses, if null and a missing field count as
    /// values.
    pub(super) fn blank(&self) -> Option<(usize, usize)> {
        let count = self.gaps.iter().map(Range::len).sum();
        Some((self.gaps.first()?.start, count))
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
        self.skip(self.end..response);
        self.end = response + 1;
        if is_null && self.keep.nulls {
            self.skip(response..self.end);
        } else if self.odd.is_none() || matches!(self.data, ColumnData::Null) {
            let given = if is_null {
                Err("null".to_string())
            } else {
                self.give(response, cell)
            };
            let odd = given.err().map(|found| (response, found));
            self.odd = self.odd.take().or(odd);
        }
    }

    /// Records that `responses`, which come after all responses recorded so far, have no value.
    fn skip(&mut self, responses: Range<usize>) {
        if responses.is_empty() {
            return;
        }
        let (start, missing) = (responses.start, "missing".to_string());
        match self.gaps.last_mut() {
            _ if !self.keep.nulls => drop(self.odd.get_or_insert((start, missing))),
            Some(last) if last.end == start => last.end = responses.end,
            _ => self.gaps.push(responses),
        }
    }

    /// Appends the values of the next responses, the first of which is `start`. Returns false if these values have another type,
    /// so that the caller must push them one by one.
    pub(super) fn append(&mut self, more: FileColumn, start: usize) -> bool {
        // A nested field has a column in each part, even if no line of the part has the field.
        if more.end == 0 {
            return true;
        }
        self.skip(self.end..start);
        self.end = start;
        match (&mut self.data, more.data) {
            (_, ColumnData::Null) => {}
            (data @ ColumnData::Null, new) => {
                let (at, kind, first) = more.first;
                self.first = (at + start, kind, first);
                *data = new;
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
        for gap in more.gaps {
            self.skip(gap.start + start..gap.end + start);
        }
        let odd = more.odd.map(|(at, found)| (at + start, found));
        self.odd = self.odd.take().or(odd);
        self.end = start + more.end;
        true
    }

    /// Completes the column of a file with this many responses: fills its gaps, or records the first response without a value.
    fn finish(&mut self, responses: usize) {
        self.skip(self.end..responses);
        let Some((start, count)) = self.blank() else {
            return;
        };
        // A column of rewards with only nulls has no rewards; a field that no response has is missing.
        if self.keep.scores && self.end > 0 && matches!(self.data, ColumnData::Null) {
            self.data = ColumnData::Numbers(Vec::new());
        }
        let is_sparse = self.keep.unknown && responses / SPARSE > responses - count + SPARSE;
        match &mut self.data {
            ColumnData::Numbers(numbers) if !is_sparse => fill(numbers, &self.gaps, f64::NAN),
            ColumnData::Texts(texts, counts) if self.keep.kind != TextKind::Any => {
                if self.keep.values {
                    fill(texts, &self.gaps, "".into());
                }
                if self.keep.counts {
                    fill(counts, &self.gaps, 0.0);
                }
            }
            ColumnData::Other if !is_sparse => {}
            _ if self.odd.as_ref().is_some_and(|(at, _)| *at < start) => {}
            _ => self.odd = Some((start, "null or missing".to_string())),
        }
    }

    /// Adds a value; the error describes the value if the column holds another type. The first value decides the type.
    fn give(&mut self, response: usize, cell: &Cell) -> Result<(), String> {
        let (keep, kind) = (&self.keep, cell.kind());
        // A reference `true` is the word, with which an answer is compared, not the number 1.
        let is_word = kind == JsonType::Bool && keep.kind == TextKind::Reference;
        let is_number = matches!(kind, JsonType::Bool | JsonType::Number) && !is_word;
        let is_text = || keep.read(cell).is_ok();
        if let ColumnData::Null = self.data {
            let may_be_list = kind == JsonType::Array && !keep.ids && keep.kind == TextKind::Any;
            self.first = (response, kind, cell.describe());
            self.data = if may_be_list && Lists::new().add(cell, false).is_ok() {
                ColumnData::Lists(Lists::new())
            } else if is_number && keep.ids {
                ColumnData::Ids(Vec::new())
            } else if is_number && !matches!(keep.kind, TextKind::Completion(_)) {
                ColumnData::Numbers(Vec::new())
            } else if is_text() {
                ColumnData::Texts(Vec::new(), Vec::new())
            } else {
                ColumnData::Other
            };
        }
        match &mut self.data {
            ColumnData::Numbers(numbers) if is_number => numbers.push(cell.number()),
            ColumnData::Lists(lists) if kind == JsonType::Array => lists.add(cell, keep.values)?,
            ColumnData::Texts(texts, counts) => keep.text(cell, texts, counts)?,
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

/// Inserts a value for each response in the gaps.
fn fill<T: Clone>(values: &mut Vec<T>, gaps: &[Range<usize>], blank: T) {
    let mut given = std::mem::take(values).into_iter();
    for gap in gaps {
        values.extend(given.by_ref().take(gap.start - values.len()));
        values.resize(gap.end, blank.clone());
    }
    values.extend(given);
}
