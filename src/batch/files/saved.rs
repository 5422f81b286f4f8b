//! Writes a batch under our own names, so that it reads back as the same batch: safetensors, npz, lines of JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use ::safetensors::Dtype;
use serde_json::Value;

use super::damaged;
use super::lines::Value as Line;
use super::npz;
use super::raw::Header;
use super::replace::Replacement;
use super::safetensors::{self, Metadata};
use super::spread::write_rows;
use super::written::Written;
use crate::batch::{Batch, FloatBuffer, GroupId, Layout};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The key of the header that marks a file as one of ours, and the version of what is in it.
const MARK: (&str, &str) = ("advlab", "1");
const STEP: &str = "step";
const NAMES: &str = "group_names";
const TEXTS: &str = "texts";

/// The most bytes of texts in a header, for which the format has 100 million; more are left out.
pub(super) const MOST_TEXT: usize = 80_000_000;

/// The step and the groups' names in the header of a file of ours; [`Header::Tensors`] for somebody else's file.
pub(super) fn header(path: &Path, metadata: &Metadata) -> Result<Header, Diagnostic> {
    let Some(version) = metadata.get(MARK.0) else {
        return Ok(Header::Tensors);
    };
    let read = || -> Result<Header, String> {
        if version != MARK.1 {
            let known = MARK.1;
            return Err(format!(
                "it is a batch of version {version}, and this advlab knows version {known}"
            ));
        }
        let step = metadata.get(STEP).map_or("0", String::as_str).parse();
        let step = step.map_err(|_| format!("its header's `{STEP}` is no number of a step"))?;
        let names = metadata.get(NAMES).map(|names| -> Option<Arc<[GroupId]>> {
            let names: Vec<Value> = serde_json::from_str(names).ok()?;
            names.into_iter().map(group_id).collect()
        });
        let wrong = || format!("its header's `{NAMES}` are no list of strings and whole numbers");
        let texts = metadata.get(TEXTS).map_or("{}", String::as_str);
        let texts = serde_json::from_str(texts)
            .map_err(|_| format!("its header's `{TEXTS}` are no lists of strings by name"))?;
        Ok(Header::Saved {
            step,
            texts,
            group_names: names.map(|names| names.ok_or_else(wrong)).transpose()?,
        })
    };
    read().map_err(|what| damaged(path, what))
}

fn group_id(name: Value) -> Option<GroupId> {
    match name {
        Value::String(name) => Some(name.into()),
        name => name.as_i64().map(GroupId::Number),
    }
}

impl Batch {
    /// Writes all columns to a safetensors file, token columns padded to [B, T] with 0, texts in its header;
    /// [`read`](crate::batch::read) gives the same batch again: groups, tokens that count, values and step.
    ///
    /// # Errors
    /// The file and why it cannot be written; nothing half-written is left, and a file that was at `path` is as it was.
    pub fn write_safetensors(&self, path: impl AsRef<Path>) -> Result<(), Diagnostics> {
        let mut out = Replacement::new(path.as_ref())?;
        self.save(&mut out).map_err(|error| out.error(&error))?;
        out.finish()
    }

    pub(super) fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        let layout: &Layout = self.layout();
        let ids = (0..layout.groups()).map(|group| layout.group_id(group));
        let are_named = ids.clone().any(|id| matches!(id, GroupId::String(_)));
        let mut metadata = Metadata::new();
        metadata.insert(MARK.0.to_string(), MARK.1.to_string());
        metadata.insert(STEP.to_string(), self.step().to_string());
        if are_named {
            let names = ids.map(|id| match id {
                GroupId::Number(number) => Value::from(*number),
                GroupId::String(name) => Value::from(&**name),
            });
            metadata.insert(NAMES.to_string(), Value::Array(names.collect()).to_string());
        }
        let texts = self.texts().map(|(name, texts)| {
            let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
            (name, texts)
        });
        let texts: BTreeMap<&str, Vec<&str>> = texts.collect();
        let texts = serde_json::to_string(&texts)?;
        if !self.texts.is_empty() && texts.len() <= MOST_TEXT {
            metadata.insert(TEXTS.to_string(), texts);
        }
        let groups = (0..layout.responses()).map(|response| {
            let group = layout.group_of(response);
            match layout.group_id(group) {
                GroupId::Number(number) if !are_named => *number,
                // There are at most 2^32 groups.
                _ => group as i64,
            }
        });
        let groups: Vec<i64> = groups.collect();
        let mut tensors = vec![Written::of("group", Dtype::I64, groups)];
        tensors.extend(self.tensors());
        safetensors::write_file(out, &metadata, &tensors)
    }

    /// Writes all columns to an npz archive, names of groups and texts as strings.
    pub(super) fn save_npz(&self, out: &mut Replacement) -> Result<(), Diagnostic> {
        let layout: &Layout = self.layout();
        let ids = (0..layout.responses()).map(|response| {
            let group = layout.group_of(response);
            layout.group_id(group)
        });
        let numbers = ids.clone().map(|id| match id {
            GroupId::Number(number) => Some(*number),
            GroupId::String(_) => None,
        });
        let numbers: Option<Vec<i64>> = numbers.collect();
        let names: Vec<String> = ids.map(|id| id.name().to_string()).collect();
        let groups = match numbers {
            Some(numbers) => Written::of("group", Dtype::I64, numbers),
            None => Written::strings("group", names.iter().map(String::as_str)),
        };
        let step = self.step();
        let write = move |out: &mut dyn Write| out.write_all(&step.to_le_bytes());
        let mut arrays = vec![groups, Written::new("step", Dtype::U64, vec![], write)];
        let texts = self.texts();
        arrays.extend(texts.map(|(name, texts)| {
            let texts = texts.iter().map(|text| &**text);
            Written::strings(name, texts)
        }));
        arrays.extend(self.tensors());
        npz::write_file(out, &arrays)
    }

    /// All columns as tensors, and the mask where they do not say how long the responses are.
    pub(super) fn tensors(&self) -> Vec<Written<'_>> {
        let layout: &Layout = self.layout();
        let (rows, width) = (layout.responses(), layout.width());
        let mut tensors: Vec<Written> = Vec::new();
        if !self.tokens.is_empty() || !self.follows_length() {
            let write = move |out: &mut dyn Write| write_rows(out, layout, width, |_, _| true);
            tensors.push(Written::new("mask", Dtype::BOOL, vec![rows, width], write));
        }
        let columns = self.response_columns();
        tensors.extend(columns.map(|(name, values)| Written::of(name, Dtype::F64, &**values)));
        for (name, values) in self.token_columns() {
            let dtype = if values.is_f64() {
                Dtype::F64
            } else {
                Dtype::F32
            };
            let write = move |out: &mut dyn Write| {
                let all: Vec<usize> = (0..rows).collect();
                match values.select(layout, &all) {
                    FloatBuffer::F32(values) => write_rows(out, layout, width, |_, at| values[at]),
                    FloatBuffer::F64(values) => write_rows(out, layout, width, |_, at| values[at]),
                }
            };
            tensors.push(Written::new(name, dtype, vec![rows, width], write));
        }
        tensors
    }

    /// Writes one line of JSON a response.
    pub(super) fn write_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        let layout: &Layout = self.layout();
        let all: Vec<usize> = (0..layout.responses()).collect();
        let columns = self.token_columns();
        let columns: Vec<(&str, FloatBuffer)> = columns
            .map(|(name, values)| (name, values.select(layout, &all)))
            .collect();
        let has_gaps =
            |&response: &usize| layout.tokens_of(response).len() < layout.row_length(response);
        let is_masked = match columns.is_empty() {
            true => !self.follows_length(),
            false => all.iter().any(has_gaps),
        };
        for response in all {
            let group = layout.group_id(layout.group_of(response));
            let group = match group {
                GroupId::Number(number) => Line::Int(*number),
                GroupId::String(name) => Line::Text(name.to_string()),
            };
            let mut fields = vec![("group".to_string(), group)];
            let mut add = |name: &str, value| fields.push((name.to_string(), value));
            if self.step() > 0 {
                // A step is below 2^53.
                add("step", Line::Int(self.step() as i64));
            }
            for (name, texts) in self.texts() {
                add(name, Line::Text(texts[response].to_string()));
            }
            for (name, values) in self.response_columns() {
                add(name, Line::Float(values[response]));
            }
            let row = |value: &dyn Fn(usize) -> f64| {
                let mut row = vec![0.0; layout.row_length(response)];
                layout.scatter(response, &mut row, value);
                Line::List(row.into_iter().map(Line::Float).collect())
            };
            if is_masked {
                add("mask", row(&|_| 1.0));
            }
            for (name, values) in &columns {
                add(name, row(&|at| values.get(at)));
            }
            writeln!(out, "{}", Line::Fields(fields))?;
        }
        Ok(())
    }

    /// Whether the column `length` says all about the tokens: a mask of them could be many times the batch.
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
