//! Writes a batch to a safetensors file under our own names, so that it reads back as the same batch.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value};

use super::element::Element;
use super::safetensors;
use crate::batch::files::replace::Replacement;
use crate::batch::files::{ReadError, WriteError};
use crate::batch::{self, Batch, FloatBuffer, GroupId, Layout, Padded, TokenValues};

/// The key of the header that marks a file as one of ours, and the version of what is in it.
const MARK: (&str, &str) = ("advlab", "1");
const STEP: &str = "step";
const NAMES: &str = "group_names";

/// What a file of ours says beside its tensors.
#[derive(Debug, Default)]
pub(super) struct Saved {
    pub(super) step: u64,
    /// The names that the tensor `group` counts through, where a group has a text for a name.
    pub(super) group_names: Option<Vec<GroupId>>,
}

impl Saved {
    /// `None` where somebody else has written the file.
    pub(super) fn of(
        path: &Path,
        metadata: &Map<String, Value>,
    ) -> Result<Option<Saved>, ReadError> {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let damaged = |what: String| ReadError::Damaged {
            path: path.to_path_buf(),
            what,
        };
        match text(MARK.0) {
            None => return Ok(None),
            Some(version) if version == MARK.1 => {}
            Some(version) => {
                return Err(damaged(format!(
                    "it is a batch of version {version}, and this advlab knows version {}",
                    MARK.1
                )));
            }
        }
        let step = text(STEP).unwrap_or("0").parse();
        let step =
            step.map_err(|_| damaged(format!("its header's `{STEP}` is no number of a step")))?;
        let group_names = match text(NAMES) {
            None => None,
            Some(names) => {
                let names: Option<Vec<Value>> = serde_json::from_str(names).ok();
                let names = names.and_then(|names| names.into_iter().map(group_id).collect());
                let wrong = || {
                    damaged(format!(
                        "its header's `{NAMES}` are no list of texts and whole numbers"
                    ))
                };
                Some(names.ok_or_else(wrong)?)
            }
        };
        Ok(Some(Saved { step, group_names }))
    }
}

fn group_id(name: Value) -> Option<GroupId> {
    match name {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => number.as_i64().map(GroupId::Number),
        _ => None,
    }
}

/// One tensor of the file to be.
struct Entry<'a> {
    name: &'a str,
    element: Element,
    shape: Vec<usize>,
    column: Column<'a>,
}

enum Column<'a> {
    Groups,
    Mask,
    Responses(&'a [f64]),
    Tokens(&'a TokenValues),
}

impl Entry<'_> {
    fn bytes(&self) -> u64 {
        let size = self.element.size().unwrap_or(1) as u64;
        self.shape.iter().map(|&size| size as u64).product::<u64>() * size
    }
}

impl Batch {
    /// Writes all columns to a safetensors file, token columns padded to [B, T] with 0; [`read`](crate::batch::read) gives the
    /// same batch again: groups, tokens that count, values and step.
    ///
    /// # Errors
    /// [`WriteError`]; nothing half-written is left, and a file that was at `path` is as it was.
    pub fn write_safetensors(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        let mut file = Replacement::new(path.as_ref())?;
        match self.save(&mut file) {
            Ok(()) => file.finish(),
            Err(error) => Err(file.error(error)),
        }
    }

    fn save(&self, out: &mut impl Write) -> io::Result<()> {
        let layout: &Layout = self.layout();
        let rows = layout.responses();
        let named =
            (0..layout.groups()).any(|group| matches!(layout.group_id(group), GroupId::Text(_)));
        let mut metadata = Map::new();
        metadata.insert(MARK.0.to_string(), MARK.1.into());
        metadata.insert(STEP.to_string(), self.step().to_string().into());
        if named {
            let names = (0..layout.groups()).map(|group| match layout.group_id(group) {
                GroupId::Number(number) => Value::from(*number),
                GroupId::Text(text) => Value::from(&**text),
            });
            metadata.insert(
                NAMES.to_string(),
                Value::Array(names.collect()).to_string().into(),
            );
        }
        let entries = self.entries();
        let header = entries.iter().map(|entry| {
            (
                entry.name,
                &entry.element,
                entry.shape.clone(),
                entry.bytes(),
            )
        });
        out.write_all(&safetensors::header(&metadata, header))?;
        for entry in &entries {
            match entry.column {
                Column::Groups => {
                    for response in 0..rows {
                        let group = layout.group_of(response);
                        let id = match layout.group_id(group) {
                            GroupId::Number(number) if !named => *number,
                            // There are at most 2^32 groups.
                            _ => group as i64,
                        };
                        out.write_all(&id.to_le_bytes())?;
                    }
                }
                Column::Mask => {
                    let mut row = vec![0; layout.width()];
                    for response in 0..rows {
                        row.fill(0);
                        layout
                            .runs(response)
                            .iter()
                            .for_each(|run| row[run.columns()].fill(1));
                        out.write_all(&row)?;
                    }
                }
                Column::Responses(values) => {
                    values
                        .iter()
                        .try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
                }
                Column::Tokens(values) => tokens(out, layout, values)?,
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<Entry<'_>> {
        let layout = self.layout();
        let (rows, width) = (layout.responses(), layout.width());
        let mut entries = vec![Entry {
            name: "group",
            element: Element::I64,
            shape: vec![rows],
            column: Column::Groups,
        }];
        if !self.tokens.is_empty() || !self.follows_length() {
            entries.push(Entry {
                name: "mask",
                element: Element::Bool,
                shape: vec![rows, width],
                column: Column::Mask,
            });
        }
        entries.extend(self.responses.iter().map(|(name, values)| Entry {
            name,
            element: Element::F64,
            shape: vec![rows],
            column: Column::Responses(values),
        }));
        entries.extend(self.tokens.iter().map(|(name, values)| Entry {
            name,
            element: if values.is_f64() {
                Element::F64
            } else {
                Element::F32
            },
            shape: vec![rows, width],
            column: Column::Tokens(values),
        }));
        entries
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

fn tokens(out: &mut impl Write, layout: &Layout, values: &TokenValues) -> io::Result<()> {
    match values {
        TokenValues::F16(array) => padded(out, array, f32::to_le_bytes),
        TokenValues::Bf16(array) => padded(out, array, f32::to_le_bytes),
        TokenValues::F32(array) => padded(out, array, f32::to_le_bytes),
        TokenValues::F64(array) => padded(out, array, f64::to_le_bytes),
        TokenValues::Compact(FloatBuffer::F32(values)) => {
            compact(out, layout, values, f32::to_le_bytes)
        }
        TokenValues::Compact(FloatBuffer::F64(values)) => {
            compact(out, layout, values, f64::to_le_bytes)
        }
    }
}

fn padded<T: batch::Element, const SIZE: usize>(
    out: &mut impl Write,
    array: &Padded<T>,
    bytes: impl Fn(T::Wide) -> [u8; SIZE],
) -> io::Result<()> {
    let (rows, columns) = array.shape();
    let mut row = Vec::with_capacity(columns * SIZE);
    for response in 0..rows {
        row.clear();
        let values = array.values(response, 0..columns);
        row.extend(values.flat_map(|value| bytes(value.widen())));
        out.write_all(&row)?;
    }
    Ok(())
}

fn compact<T: Copy, const SIZE: usize>(
    out: &mut impl Write,
    layout: &Layout,
    values: &[T],
    bytes: impl Fn(T) -> [u8; SIZE],
) -> io::Result<()> {
    let mut row = vec![0; layout.width() * SIZE];
    for response in 0..layout.responses() {
        row.fill(0);
        let (cells, _) = row.as_chunks_mut();
        layout.scatter(response, cells, |token| bytes(values[token]));
        out.write_all(&row)?;
    }
    Ok(())
}
