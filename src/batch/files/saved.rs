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
use crate::batch::column::each_layout;
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

type Written<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

impl Batch {
    /// Writes all columns to a safetensors file, token columns padded to [B, T] with 0;
    /// [`read`](crate::batch::read) gives the same batch again: groups, tokens that count, values and step.
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
        let ids = || (0..layout.groups()).map(|group| layout.group_id(group));
        let are_named = ids().any(|id| matches!(id, GroupId::String(_)));
        let mut metadata = Metadata::new();
        metadata.insert(MARK.0.to_string(), MARK.1.to_string());
        metadata.insert(STEP.to_string(), self.step().to_string());
        if are_named {
            let names = ids().map(|id| match id {
                GroupId::Number(number) => Value::from(*number),
                GroupId::String(name) => Value::from(&**name),
            });
            metadata.insert(NAMES.to_string(), Value::Array(names.collect()).to_string());
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
        let (of_responses, of_tokens) = (
            &[layout.responses()][..],
            [layout.responses(), layout.width()],
        );
        let mut columns: Vec<(&str, Dtype, &[usize], Box<Written>)> = Vec::new();
        columns.push((
            "group",
            Dtype::I64,
            of_responses,
            Box::new(|out| out.write_all(groups.as_bytes())),
        ));
        if !self.tokens.is_empty() || !self.follows_length() {
            columns.push((
                "mask",
                Dtype::BOOL,
                &of_tokens,
                Box::new(|out| scatter(out, layout, |_| true)),
            ));
        }
        for (name, values) in self.response_columns() {
            columns.push((
                name,
                Dtype::F64,
                of_responses,
                Box::new(|out| out.write_all(values.as_bytes())),
            ));
        }
        for (name, values) in self.token_columns() {
            let dtype = if values.is_f64() {
                Dtype::F64
            } else {
                Dtype::F32
            };
            columns.push((
                name,
                dtype,
                &of_tokens,
                Box::new(move |out| match values {
                    TokenValues::Compact(FloatBuffer::F32(values)) => {
                        scatter(out, layout, |token| values[token])
                    }
                    TokenValues::Compact(FloatBuffer::F64(values)) => {
                        scatter(out, layout, |token| values[token])
                    }
                    values => {
                        each_layout!(values, array => padded(out, layout, array), _ => Ok(()))
                    }
                }),
            ));
        }
        let header = columns.iter().map(|(name, dtype, shape, _)| {
            let elements: u64 = shape.iter().map(|&size| size as u64).product();
            let bytes = elements * dtype.bitsize() as u64 / 8;
            (*name, dtype.to_string(), shape.to_vec(), bytes)
        });
        out.write_all(&file::header(&metadata, header))?;
        columns.iter().try_for_each(|(.., write)| write(out))
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

/// Writes [B, T] as it is in memory, but for 0 where no token counts.
fn padded<T>(out: &mut dyn Write, layout: &Layout, array: &Padded<T>) -> io::Result<()>
where
    T: Element<Wide: Default + IntoBytes + Immutable>,
{
    let mut row = vec![T::Wide::default(); layout.width()];
    for response in 0..layout.responses() {
        row.fill(T::Wide::default());
        for run in layout.runs(response) {
            let values = array.values(response, run.columns()).map(Element::widen);
            row[run.columns()]
                .iter_mut()
                .zip(values)
                .for_each(|(to, value)| *to = value);
        }
        out.write_all(row.as_bytes())?;
    }
    Ok(())
}

/// Writes [B, T] with a value for each token that counts, and 0 elsewhere.
fn scatter<T: Copy + Default + IntoBytes + Immutable>(
    out: &mut dyn Write,
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
