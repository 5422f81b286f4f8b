//! Writes a batch to a safetensors file under our own names, so that it reads back as the same batch.

use std::io::{self, Write};
use std::path::Path;

use safetensors::Dtype;
use serde_json::Value;
use zerocopy::{Immutable, IntoBytes};

use super::damaged;
use super::raw::Header;
use super::replace::Replacement;
use super::safetensors::{self as file, Metadata};
use crate::batch::{Batch, Element, FloatBuffer, GroupId, Layout, Padded, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The key of the header that marks a file as one of ours, and the version of what is in it.
const MARK: (&str, &str) = ("advlab", "1");
const STEP: &str = "step";
const NAMES: &str = "group_names";

/// The step and the groups' names in the header of a file of ours; [`Header::Tensors`] for somebody else's file.
pub(super) fn header(path: &Path, metadata: &Metadata) -> Result<Header, Diagnostic> {
    match metadata.get(MARK.0).map(String::as_str) {
        None => return Ok(Header::Tensors),
        Some(version) if version == MARK.1 => {}
        Some(version) => {
            let what = format!(
                "it is a batch of version {version}, and this advlab knows version {}",
                MARK.1
            );
            return Err(damaged(path, what));
        }
    }
    let step = metadata.get(STEP).map_or("0", String::as_str).parse();
    let step = step.map_err(|_| {
        damaged(
            path,
            format!("its header's `{STEP}` is no number of a step"),
        )
    })?;
    let group_names = metadata.get(NAMES).map(|names| {
        let names: Option<Vec<Value>> = serde_json::from_str(names).ok();
        let names = names.and_then(|names| names.into_iter().map(group_id).collect());
        names.ok_or_else(|| {
            let what = format!("its header's `{NAMES}` are no list of strings and whole numbers");
            damaged(path, what)
        })
    });
    Ok(Header::Saved {
        step,
        group_names: group_names.transpose()?,
    })
}

fn group_id(name: Value) -> Option<GroupId> {
    match name {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => number.as_i64().map(GroupId::Number),
        _ => None,
    }
}

/// One tensor of the file to be.
enum Column<'a> {
    Groups,
    Mask,
    Responses(&'a [f64]),
    Tokens(&'a TokenValues),
}

impl Column<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Column::Groups => Dtype::I64,
            Column::Mask => Dtype::BOOL,
            Column::Tokens(values) if !values.is_f64() => Dtype::F32,
            Column::Responses(_) | Column::Tokens(_) => Dtype::F64,
        }
    }
}

impl Batch {
    /// Writes all columns to a safetensors file, token columns padded to [B, T] with 0; [`read`](crate::batch::read) gives the
    /// same batch again: groups, tokens that count, values and step.
    ///
    /// # Errors
    /// The file and why it cannot be written; nothing half-written is left, and a file that was at `path` is as it was.
    pub fn write_safetensors(&self, path: impl AsRef<Path>) -> Result<(), Diagnostics> {
        let mut out = Replacement::new(path.as_ref())?;
        self.save(&mut out).map_err(|error| out.error(&error))?;
        out.finish()
    }

    fn save(&self, out: &mut impl Write) -> io::Result<()> {
        let layout: &Layout = self.layout();
        let (rows, width) = (layout.responses(), layout.width());
        let names = || (0..layout.groups()).map(|group| layout.group_id(group));
        let are_named = names().any(|name| matches!(name, GroupId::Text(_)));
        let mut metadata = Metadata::new();
        metadata.insert(MARK.0.to_string(), MARK.1.to_string());
        metadata.insert(STEP.to_string(), self.step().to_string());
        if are_named {
            let names = names().map(|name| match name {
                GroupId::Number(number) => Value::from(*number),
                GroupId::Text(text) => Value::from(&**text),
            });
            metadata.insert(NAMES.to_string(), Value::Array(names.collect()).to_string());
        }
        let columns = self.columns_to_save();
        let header = columns.iter().map(|(name, column)| {
            let shape = match column {
                Column::Groups | Column::Responses(_) => vec![rows],
                Column::Mask | Column::Tokens(_) => vec![rows, width],
            };
            let dtype = column.dtype();
            let elements: u64 = shape.iter().map(|&size| size as u64).product();
            (
                *name,
                dtype.to_string(),
                shape,
                elements * dtype.bitsize() as u64 / 8,
            )
        });
        out.write_all(&file::header(&metadata, header))?;
        for (_, column) in &columns {
            match column {
                Column::Groups => {
                    let ids = (0..rows).map(|response| {
                        let group = layout.group_of(response);
                        match layout.group_id(group) {
                            GroupId::Number(number) if !are_named => *number,
                            // There are at most 2^32 groups.
                            _ => group as i64,
                        }
                    });
                    out.write_all(ids.collect::<Vec<i64>>().as_bytes())?;
                }
                Column::Mask => scatter(out, layout, |_| true)?,
                Column::Responses(values) => out.write_all(values.as_bytes())?,
                Column::Tokens(values) => match values {
                    TokenValues::F16(array) => padded(out, array)?,
                    TokenValues::Bf16(array) => padded(out, array)?,
                    TokenValues::F32(array) => padded(out, array)?,
                    TokenValues::F64(array) => padded(out, array)?,
                    TokenValues::Compact(FloatBuffer::F32(values)) => {
                        scatter(out, layout, |token| values[token])?;
                    }
                    TokenValues::Compact(FloatBuffer::F64(values)) => {
                        scatter(out, layout, |token| values[token])?;
                    }
                },
            }
        }
        Ok(())
    }

    fn columns_to_save(&self) -> Vec<(&str, Column<'_>)> {
        let mut columns = vec![("group", Column::Groups)];
        if !self.tokens.is_empty() || !self.follows_length() {
            columns.push(("mask", Column::Mask));
        }
        let responses = self.response_columns();
        columns.extend(responses.map(|(name, values)| (name, Column::Responses(values))));
        let tokens = self.token_columns();
        columns.extend(tokens.map(|(name, values)| (name, Column::Tokens(values))));
        columns
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

fn padded<T>(out: &mut impl Write, array: &Padded<T>) -> io::Result<()>
where
    T: Element<Wide: IntoBytes + Immutable>,
{
    let (rows, columns) = array.shape();
    let mut row = Vec::with_capacity(columns);
    for response in 0..rows {
        row.clear();
        row.extend(array.values(response, 0..columns).map(Element::widen));
        out.write_all(row.as_bytes())?;
    }
    Ok(())
}

/// Writes [B, T] with a value for each token that counts, and 0 elsewhere.
fn scatter<T: Copy + Default + IntoBytes + Immutable>(
    out: &mut impl Write,
    layout: &Layout,
    value: impl Fn(usize) -> T,
) -> io::Result<()> {
    let mut row = vec![T::default(); layout.width()];
    for response in 0..layout.responses() {
        row.fill(T::default());
        layout.scatter(response, &mut row, &value);
        out.write_all(row.as_bytes())?;
    }
    Ok(())
}
