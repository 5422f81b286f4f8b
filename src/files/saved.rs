//! Writes a batch under our own names, so that it reads back as the same batch: safetensors, npz, lines of JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use ::safetensors::Dtype;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::names::{ADVANTAGES, Role, role};
use super::new_columns::NewColumn;
use super::replace::Replacement;
use super::safetensors::{self, Strings};
use super::tensors::NewTensor;
use super::{Result, npz};
use crate::batch::{Batch, Column, GroupId, Layout, Level, column_names};
use crate::diagnostic::Diagnostics;

/// The key in the header that marks our own files, and the version of their format.
const MARK: (&str, &str) = ("advlab", "1");
const STEP: &str = "step";
const NAMES: &str = "group_names";
const TEXTS: &str = "texts";

/// What stands before a column's name that would mean something else in a saved file, or begins with it.
const OWN: char = '=';

/// The most bytes of texts in a header, for which the format has 100 million; more are left out.
const MOST_TEXT: usize = 80_000_000;

#[derive(Debug)]
pub(super) struct SavedHeader {
    pub(super) step: u64,
    /// The names of groups that are strings: the tensor `group` has their indices.
    pub(super) group_names: Option<Vec<GroupId>>,
    pub(super) texts: BTreeMap<String, Vec<String>>,
}

/// The content of our own header; `None` for a trainer's file.
pub(super) fn header(strings: &Strings) -> Result<Option<SavedHeader>, String> {
    match (strings.get(MARK.0), MARK.1) {
        (None, _) => return Ok(None),
        (Some(version), known) if version != known => {
            return Err(format!(
                "it is a batch of version {version}, and this advlab knows version {known}"
            ));
        }
        _ => {}
    }
    fn of<T: DeserializeOwned + Default>(strings: &Strings, key: &str) -> Option<T> {
        let text = strings.get(key).map(|text| serde_json::from_str(text).ok());
        text.unwrap_or_else(|| Some(T::default()))
    }
    let id = |name: Value| match name {
        Value::String(name) => Some(GroupId::from(name)),
        name => name.as_i64().map(GroupId::Number),
    };
    let read = || {
        let names: Option<Vec<Value>> = of(strings, NAMES)?;
        let names = names.map(|names| names.into_iter().map(id).collect::<Option<_>>());
        Some(SavedHeader {
            step: of(strings, STEP)?,
            group_names: names.map_or(Some(None), |names| names.map(Some))?,
            texts: of(strings, TEXTS)?,
        })
    };
    let wrong = || format!("its header's `{STEP}`, `{NAMES}` or `{TEXTS}` is damaged");
    read().map(Some).ok_or_else(wrong)
}

/// The name of a column's tensor in a saved file.
fn saved_name(column: &str) -> Cow<'_, str> {
    match [ADVANTAGES, "__metadata__"].contains(&column) || column.starts_with(OWN) {
        true => format!("{OWN}{column}").into(),
        false => column.into(),
    }
}

/// The column of a tensor in a saved file.
pub(super) fn column_of(tensor: &str) -> &str {
    match tensor {
        // In a copy of the file, it was added last.
        ADVANTAGES => "advantage",
        _ => tensor.strip_prefix(OWN).unwrap_or(tensor),
    }
}

impl Batch {
    /// Writes all columns to a safetensors file, token columns padded to [B, T] with 0, texts in its header;
    /// [`read`](crate::files::read) gives the same batch again: groups, tokens that count, values and step.
    ///
    /// # Errors
    /// The file and why it cannot be written; nothing half-written is left, and an existing file at `path` stays unchanged.
    pub fn write_safetensors(&self, path: impl AsRef<Path>) -> Result<(), Diagnostics> {
        let mut out = Replacement::new(path.as_ref())?;
        let saved = self.save(&mut out);
        saved.map_err(|error| out.error(&error))?;
        out.finish()
    }

    /// Writes a safetensors file, and returns notes on what is left out.
    pub(super) fn save(&self, out: &mut dyn Write) -> io::Result<Vec<String>> {
        let layout: &Layout = self.layout();
        let mut strings = Strings::new();
        let mut add = |key: &str, text: String| drop(strings.insert(key.to_string(), text));
        add(MARK.0, MARK.1.to_string());
        add(STEP, self.step().to_string());
        let groups = self.group_numbers().unwrap_or_else(|| {
            let names = (0..layout.groups()).map(|group| match layout.group_id(group) {
                GroupId::Number(number) => Value::from(*number),
                GroupId::String(name) => Value::from(&**name),
            });
            add(NAMES, names.collect::<Value>().to_string());
            // There are at most 2^32 groups.
            let groups = (0..layout.responses()).map(|response| layout.group_of(response) as i64);
            groups.collect()
        });
        let texts = self.texts().map(|(name, texts)| {
            let texts = texts.iter().map(|text| &**text);
            (name, texts.collect())
        });
        let texts = serde_json::to_string(&texts.collect::<BTreeMap<&str, Vec<&str>>>())?;
        let has_room = texts.len() <= MOST_TEXT;
        if has_room && texts != "{}" {
            add(TEXTS, texts);
        }
        let columns = self.new_columns(&[]);
        let tensors = columns.iter().map(|column| NewTensor {
            name: saved_name(column.name),
            ..column.tensor()
        });
        let groups = NewTensor::of("group", groups);
        let tensors: Vec<NewTensor> = [groups].into_iter().chain(tensors).collect();
        safetensors::write_file(out, &strings, &tensors)?;
        let what = "the texts are left out: the header of safetensors has no room for this many";
        Ok(Vec::from_iter((!has_room).then(|| what.to_string())))
    }

    /// Writes all columns to an npz archive, names of groups and texts as strings. Returns notes on what is left out.
    pub(super) fn save_npz(&self, out: &mut Replacement) -> Result<Vec<String>> {
        let layout: &Layout = self.layout();
        let names = (0..layout.groups()).map(|group| layout.group_id(group).name());
        let names: Vec<Cow<str>> = names.collect();
        let ids = (0..layout.responses()).map(|at| &names[layout.group_of(at)]);
        let ids: Vec<&Cow<str>> = ids.collect();
        let groups = match self.group_numbers() {
            Some(numbers) => NewTensor::of("group", numbers),
            None => NewTensor::strings("group", &ids),
        };
        let stray = self.stray();
        let columns = self.new_columns(&stray).into_iter();
        let (misread, columns): (Vec<_>, Vec<_>) = columns.partition(|one| self.is_misread(one));
        let (texts, hidden): (Vec<_>, Vec<_>) = self
            .texts()
            .partition(|(name, _)| column_names::ours(name).is_none());
        let hidden = hidden.into_iter().map(|(name, _)| name);
        let misread: Vec<&str> = hidden.chain(misread.iter().map(|one| one.name)).collect();
        let step = self.step();
        let write = move |out: &mut dyn Write| out.write_all(&step.to_le_bytes());
        let mut arrays = vec![groups, NewTensor::new("step", Dtype::U64, vec![], write)];
        let texts = texts.into_iter();
        arrays.extend(texts.map(|(name, texts)| NewTensor::strings(name, texts)));
        arrays.extend(columns.iter().map(NewColumn::tensor));
        npz::write(None, &arrays, out)?;
        let why = "in npz files, trainers use these names for other columns";
        Ok([left_out(&misread, why), left_out(&stray, STRAY)].concat())
    }

    /// Writes a line per response, and returns notes on what is left out.
    pub(super) fn write_lines(&self, out: &mut dyn Write) -> io::Result<Vec<String>> {
        let layout: &Layout = self.layout();
        let stray = self.stray();
        let mut columns = self.new_columns(&stray);
        let has_gaps =
            |response: usize| layout.tokens_of(response).len() < layout.row_length(response);
        let has_arrays = columns
            .iter()
            .any(|column| column.per_token && column.name != MASK);
        if has_arrays && !(0..layout.responses()).any(has_gaps) {
            columns.retain(|column| column.name != MASK);
        }
        columns
            .iter_mut()
            .for_each(|column| column.dtype = Dtype::F64);
        let groups = self.groups_in_json();
        for response in 0..layout.responses() {
            let mut line = Vec::new();
            write!(line, "{{\"group\": {}", groups[layout.group_of(response)])?;
            if self.step() > 0 {
                write!(line, ", \"step\": {}", self.step())?;
            }
            for (name, texts) in self.texts() {
                let text = Value::from(&*texts[response]);
                write!(line, ", {}: {text}", Value::from(name))?;
            }
            for column in &columns {
                write!(line, ", {}: ", Value::from(column.name))?;
                line.extend(column.json(response));
            }
            line.extend_from_slice(b"}\n");
            out.write_all(&line)?;
        }
        Ok(left_out(&stray, STRAY))
    }

    /// The columns of numbers but some, and the mask if they do not say how long the responses are.
    fn new_columns(&self, left_out: &[&str]) -> Vec<NewColumn<'_>> {
        let layout: &Layout = self.layout();
        let column = |name, values, per_token, dtype| NewColumn {
            name,
            layout,
            values,
            per_token,
            dtype,
        };
        let mut columns = Vec::new();
        let responses = self.response_columns().map(|(name, values)| {
            column(name, Column::Response(values.clone()), false, Dtype::F64)
        });
        columns.extend(responses);
        if self.token_columns().next().is_some() || !self.follows_length() {
            let ones = Column::Response(vec![1.0; layout.responses()].into());
            columns.push(column(MASK, ones, true, Dtype::BOOL));
        }
        columns.extend(self.token_columns().map(|(name, values)| {
            let dtype = if values.is_f64() {
                Dtype::F64
            } else {
                Dtype::F32
            };
            column(name, Column::Token(values.clone()), true, dtype)
        }));
        columns.retain(|column| !left_out.contains(&column.name));
        columns
    }

    /// Whether a reader of npz would take a column for another one, because a trainer uses its name.
    fn is_misread(&self, column: &NewColumn) -> bool {
        column_names::ours(column.name).is_some_and(|ours| {
            let level = [Level::Response, Level::Token][usize::from(column.per_token)];
            let is_other = column_names::column(ours).is_some_and(|known| known.level != level);
            [MASK, "group"].contains(&ours) || self.has(ours) || is_other
        })
    }

    /// The token columns that a reader refuses in any file but a saved batch.
    fn stray(&self) -> Vec<&str> {
        let layout = self.layout();
        let columns = self.token_columns().filter(|(name, values)| {
            let mut responses = 0..layout.responses();
            role(column_names::ours(name).unwrap_or(name)) == Role::Token
                && responses.any(|at| values.of_response(layout, at).any(|x| !x.is_finite()))
        });
        columns.map(|(name, _)| name).collect()
    }

    /// The group of each response, if all groups are numbers.
    fn group_numbers(&self) -> Option<Vec<i64>> {
        let layout = self.layout();
        let numbers =
            (0..layout.responses()).map(|at| match layout.group_id(layout.group_of(at)) {
                GroupId::Number(number) => Some(*number),
                GroupId::String(_) => None,
            });
        numbers.collect()
    }

    /// The names of the groups in JSON, all of one type: numbers if all are numbers, however large.
    fn groups_in_json(&self) -> Vec<String> {
        let layout = self.layout();
        let ids = (0..layout.groups()).map(|group| layout.group_id(group));
        let are_numbers = ids.clone().all(|id| match id {
            GroupId::Number(_) => true,
            GroupId::String(name) => super::table::is_beyond(name),
        });
        let names = ids.map(|id| match are_numbers {
            true => id.name().to_string(),
            false => Value::from(id.name()).to_string(),
        });
        names.collect()
    }

    /// Whether the column `length` determines the tokens: a mask of them could be many times as large as the batch.
    fn follows_length(&self) -> bool {
        let layout = self.layout();
        let lengths = self.response_column("length");
        (0..layout.responses()).all(|response| {
            let length = lengths.map_or(0, |lengths| lengths[response] as usize);
            match layout.runs(response) {
                [] => length == 0,
                [run] => run.columns() == (0..length),
                _ => false,
            }
        })
    }
}

const MASK: &str = "mask";

const STRAY: &str =
    "only a saved batch (.safetensors) may have NaN or infinity where the mask is 1";

/// A note on columns that are left out.
fn left_out(columns: &[&str], why: &str) -> Vec<String> {
    let note = || format!("left out: `{}`; {why}", columns.join("`, `"));
    Vec::from_iter((!columns.is_empty()).then(note))
}
