//! Writes a batch under our own names, so that it reads back as the same batch: safetensors, npz, lines of JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use ::safetensors::Dtype;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::json::{write_array, write_number};
use super::replace::Replacement;
use super::safetensors::{self, Strings};
use super::tensors::{NewTensor, write_rows};
use super::{Result, npz};
use crate::batch::{Batch, FloatBuffer, GroupId, Layout, Level, column_names};
use crate::diagnostic::Diagnostics;

/// The key in the header that marks our own files, and the version of their format.
const MARK: (&str, &str) = ("advlab", "1");
const STEP: &str = "step";
const NAMES: &str = "group_names";
const TEXTS: &str = "texts";

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
    fn of<T: DeserializeOwned>(strings: &Strings, key: &str, other: &'static str) -> Option<T> {
        serde_json::from_str(strings.get(key).map_or(other, String::as_str)).ok()
    }
    let id = |name: Value| match name {
        Value::String(name) => Some(GroupId::from(name)),
        name => name.as_i64().map(GroupId::Number),
    };
    let read = || {
        let names: Option<Vec<Value>> = of(strings, NAMES, "null")?;
        let names = names.map(|names| names.into_iter().map(id).collect::<Option<_>>());
        Some(SavedHeader {
            step: of(strings, STEP, "0")?,
            group_names: names.map_or(Some(None), |names| names.map(Some))?,
            texts: of(strings, TEXTS, "{}")?,
        })
    };
    let wrong = || format!("its header's `{STEP}`, `{NAMES}` or `{TEXTS}` is damaged");
    read().map(Some).ok_or_else(wrong)
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

    /// Writes a safetensors file; it is an error if the header has no room for the texts.
    pub(super) fn save(&self, out: &mut dyn Write) -> io::Result<Option<String>> {
        let layout: &Layout = self.layout();
        let mut strings = Strings::new();
        let mut add = |key: &str, text: String| drop(strings.insert(key.to_string(), text));
        add(MARK.0, MARK.1.to_string());
        add(STEP, self.step().to_string());
        let groups = self.group_numbers().unwrap_or_else(|| {
            let ids = (0..layout.groups()).map(|group| group_name(layout.group_id(group)));
            add(NAMES, ids.collect::<Value>().to_string());
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
        let mut tensors = vec![NewTensor::of("group", Dtype::I64, groups)];
        tensors.extend(self.tensors());
        safetensors::write_file(out, &strings, &tensors)?;
        let what = "the texts are left out: the header of safetensors has no room for this many";
        Ok((!has_room).then(|| what.to_string()))
    }

    /// Writes all columns to an npz archive, names of groups and texts as strings. Returns a note if texts are left out.
    pub(super) fn save_npz(&self, out: &mut Replacement) -> Result<Option<String>> {
        let layout: &Layout = self.layout();
        let ids = (0..layout.responses()).map(|at| layout.group_id(layout.group_of(at)));
        let names: Vec<String> = ids.map(|id| id.name().to_string()).collect();
        let groups = match self.group_numbers() {
            Some(numbers) => NewTensor::of("group", Dtype::I64, numbers),
            None => NewTensor::strings("group", names.iter().map(String::as_str)),
        };
        let step = self.step();
        let write = move |out: &mut dyn Write| out.write_all(&step.to_le_bytes());
        let mut arrays = vec![groups, NewTensor::new("step", Dtype::U64, vec![], write)];
        let texts = self.texts().map(|(name, _)| (name, None));
        let responses = self.response_columns();
        let responses = responses.map(|(name, _)| (name, Some(Level::Response)));
        let tokens = self
            .token_columns()
            .map(|(name, _)| (name, Some(Level::Token)));
        let all = texts.chain(responses).chain(tokens);
        let misread = all.filter(|(name, level)| self.is_misread(name, *level));
        let left_out: Vec<&str> = misread.map(|(name, _)| name).collect();
        let texts = self.texts();
        arrays.extend(texts.map(|(name, texts)| {
            let texts = texts.iter().map(|text| &**text);
            NewTensor::strings(name, texts)
        }));
        arrays.extend(self.tensors());
        arrays.retain(|array| !left_out.contains(&array.name));
        npz::write(None, &arrays, out)?;
        let names = left_out.join("`, `");
        Ok((!names.is_empty()).then(|| {
            format!("left out: `{names}`; in npz files, trainers use these names for other columns")
        }))
    }

    /// Whether a reader of npz would take a column for another one, because a trainer uses its name. Texts have no level.
    fn is_misread(&self, name: &str, level: Option<Level>) -> bool {
        column_names::ours(name).is_some_and(|ours| {
            let known = column_names::column(ours).map(|known| known.level);
            let is_layout = ["mask", "group"].contains(&ours);
            is_layout || level.is_none() || self.has(ours) || known.is_some() && known != level
        })
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

    /// All columns as tensors, and the mask if they do not say how long the responses are.
    fn tensors(&self) -> Vec<NewTensor<'_>> {
        let layout: &Layout = self.layout();
        let (rows, width) = (layout.responses(), layout.width());
        let mut tensors: Vec<NewTensor> = Vec::new();
        let shape = || vec![rows, width];
        if self.token_columns().next().is_some() || !self.follows_length() {
            let write = move |out: &mut dyn Write| write_rows(out, layout, width, |_, _| true);
            tensors.push(NewTensor::new("mask", Dtype::BOOL, shape(), write));
        }
        let columns = self.response_columns();
        tensors.extend(columns.map(|(name, values)| NewTensor::of(name, Dtype::F64, &**values)));
        for (name, values) in self.token_columns() {
            let dtype = if values.is_f64() {
                Dtype::F64
            } else {
                Dtype::F32
            };
            let write = move |out: &mut dyn Write| match values.compact(layout) {
                FloatBuffer::F32(values) => write_rows(out, layout, width, |_, at| values[at]),
                FloatBuffer::F64(values) => write_rows(out, layout, width, |_, at| values[at]),
            };
            tensors.push(NewTensor::new(name, dtype, shape(), write));
        }
        tensors
    }

    pub(super) fn write_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        let layout: &Layout = self.layout();
        let all: Vec<usize> = (0..layout.responses()).collect();
        let columns = self.token_columns();
        let columns: Vec<(&str, FloatBuffer)> = columns
            .map(|(name, values)| (name, values.compact(layout)))
            .collect();
        let has_gaps =
            |&response: &usize| layout.tokens_of(response).len() < layout.row_length(response);
        let is_masked = match columns.is_empty() {
            true => !self.follows_length(),
            false => all.iter().any(has_gaps),
        };
        for response in all {
            let mut line = Vec::new();
            let group = group_name(layout.group_id(layout.group_of(response)));
            write!(line, "{{\"group\": {group}")?;
            if self.step() > 0 {
                write!(line, ", \"step\": {}", self.step())?;
            }
            for (name, texts) in self.texts() {
                let text = Value::from(&*texts[response]);
                write!(line, ", {}: {text}", Value::from(name))?;
            }
            for (name, values) in self.response_columns() {
                write!(line, ", {}: ", Value::from(name))?;
                write_number(&mut line, values[response]);
            }
            let mut add = |name: &str, value: &dyn Fn(usize) -> f64| {
                let mut row = vec![0.0; layout.row_length(response)];
                layout.scatter(response, &mut row[..], value);
                write!(line, ", {}: ", Value::from(name))?;
                write_array(&mut line, &row);
                io::Result::Ok(())
            };
            if is_masked {
                add("mask", &|_| 1.0)?;
            }
            for (name, values) in &columns {
                add(name, &|at| values.get(at))?;
            }
            line.extend_from_slice(b"}\n");
            out.write_all(&line)?;
        }
        Ok(())
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

fn group_name(id: &GroupId) -> Value {
    match id {
        GroupId::Number(number) => Value::from(*number),
        GroupId::String(name) => Value::from(&**name),
    }
}
