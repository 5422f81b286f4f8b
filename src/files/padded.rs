//! Padded files: tensors [B] and [B, T] in safetensors. Reads a file as a table, adds tensors to a copy, and saves a batch under
//! advlab's names, so that reading it gives the same batch.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use ndarray::ArrayView2;
use safetensors::Dtype;
use serde::de::DeserializeOwned;
use serde_json::Value;
use zerocopy::IntoBytes;

use super::added::NewColumn;
use super::cell::{Cell, JsonType};
use super::keep::Keep;
use super::options::ReadOptions;
use super::place::{Place, Result, changed};
use super::schema::{FileKind, Schema};
use super::table::{ColumnData, FileColumn, Table};
use crate::batch::column_names::saved_name;
use crate::batch::layout::Tokens;
use crate::batch::{Batch, Buffer, Column, GroupId, Layout};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::replace::Replacement;
use crate::tensor_file::{
    FileTensor, NewTensor, Strings, each_number, open_safetensors, write_copy, write_file,
};

/// The key in the header that marks files of advlab, and the version of their format.
const MARK: (&str, &str) = ("advlab", "1");
const STEP: &str = "step";
const NAMES: &str = "group_names";
const TEXTS: &str = "texts";
const MASK: &str = "mask";

/// The maximum number of bytes of texts in a header, which the format limits to 100 million. Longer texts are not saved.
const MOST_TEXT: usize = 80_000_000;

/// Reads a file as a table; the numbers of its tensors are loaded only when needed.
pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Table> {
    let file = open_safetensors(path)?;
    let place = Place {
        path: path.to_path_buf(),
        blank: None,
        sum: file.sum,
    };
    let wrong = |what: String| place.error(None, Diagnostic::error(what));
    let saved = header(&file.strings).map_err(wrong)?;
    let kind = [FileKind::Tensors, FileKind::Saved][usize::from(saved.is_some())];
    let names = file.tensors.iter().map(|tensor| tensor.name.clone());
    let fields = names.map(|name| (name, JsonType::Array)).collect();
    let schema = Schema::new(path, options, &fields, kind)?;
    let step = saved.as_ref().map(|saved| saved.step);
    let saved = saved.unwrap_or_default();
    let names = saved.group_names.as_deref();
    let columns = file.tensors.into_iter().map(|tensor| {
        let mut column = FileColumn::of_tensor(tensor, &schema);
        if let (true, ColumnData::Tensor(tensor)) = (column.keep.ids, &column.data) {
            column.data = ColumnData::Ids(groups(tensor, names, &place)?);
        }
        Ok(column)
    });
    let mut columns: Vec<FileColumn> = columns.collect::<Result<_>>()?;
    columns.extend(saved.texts.into_iter().map(|(name, texts)| FileColumn {
        data: ColumnData::Texts(texts.into_iter().map(Arc::from).collect(), Vec::new()),
        keep: Keep {
            values: true,
            ..Keep::default()
        },
        ..FileColumn::new(&saved_name(&name), &schema)
    }));
    let mut table = Table::new(Arc::new(schema), place);
    (table.columns, table.step) = (columns, step);
    Ok(table)
}

/// Returns each response's group, from a tensor of whole numbers. If `names` is given, these numbers are indices into `names`.
fn groups(tensor: &FileTensor, names: Option<&[GroupId]>, place: &Place) -> Result<Vec<GroupId>> {
    let wrong = |response, found| {
        let expected = "whole numbers [B], one for each response";
        place.wrong(&tensor.name, (response, None), found, expected)
    };
    if !matches!(tensor.shape[..], [_] | [_, 1]) || !tensor.is_number() {
        return Err(wrong(None, tensor.describe()));
    }
    let ids: Vec<GroupId> = match tensor.dtype {
        Dtype::U64 => tensor.load::<u64>()?.iter().map(|&id| id.into()).collect(),
        Dtype::I64 => tensor.load::<i64>()?.iter().map(|&id| id.into()).collect(),
        _ => {
            let values = tensor.numbers::<f64>()?;
            let id = |(at, &value): (usize, &f64)| {
                let id = Cell::Number(value).id();
                id.ok_or_else(|| wrong(Some(at), value.to_string()))
            };
            values.iter().enumerate().map(id).collect::<Result<_>>()?
        }
    };
    let Some(names) = names else {
        return Ok(ids);
    };
    let name = |id: &GroupId| match id {
        GroupId::Number(number) => names.get(usize::try_from(*number).ok()?).cloned(),
        GroupId::String(_) => None,
    };
    let beyond = || format!("a number beyond the {} names in the header", names.len());
    let named: Option<Vec<GroupId>> = ids.iter().map(name).collect();
    named.ok_or_else(|| wrong(None, beyond()))
}

/// Writes a copy of a file that was read, with added tensors.
pub(super) fn add(
    place: &Place,
    added: &[NewColumn],
    layout: &Layout,
    out: &Path,
) -> Result<(), Diagnostics> {
    let there = open_safetensors(&place.path).map_err(|error| changed(&place.path, error))?;
    place.check(there.sum)?;
    let mut file = Replacement::new(out)?;
    let tensor = |column| NewColumn::tensor(column, layout.responses(), layout.width());
    write_copy(&there, added.iter().map(tensor).collect(), &mut file)?;
    file.finish()
}

/// Returns whether a type has numbers that f32 cannot represent exactly, such as large integers.
pub(super) fn is_wide(dtype: Dtype) -> bool {
    use Dtype::{F64, I32, I64, U32, U64};
    matches!(dtype, F64 | I32 | U32 | I64 | U64)
}

/// Returns a tensor [B, T] as a mask. The inner error has the response, column and value of an entry that is neither 0 nor 1.
/// Only a block of rows is in memory at a time, because a mask may take 8 bytes per token.
pub(super) fn mask(tensor: &FileTensor) -> Result<Result<Tokens, (usize, usize, f64)>> {
    const BLOCK: usize = 16 << 20;
    let (rows, width) = (tensor.shape[0], tensor.shape[1]);
    let at_once = (BLOCK / tensor.row_bytes().max(1)).max(1);
    let mut tokens = Tokens::new(0);
    each_number!(tensor.dtype, T => {
        for first in (0..rows).step_by(at_once) {
            let block = tensor.rows(first, at_once.min(rows - first));
            let values: Buffer<T> = block.load()?;
            let Ok(mask) = ArrayView2::from_shape((block.shape[0], width), &values) else {
                unreachable!("there are as many numbers as the shape requires");
            };
            match Tokens::of_mask(mask) {
                Ok(more) => tokens.append(&more),
                Err((row, column, value)) => return Ok(Err((first + row, column, value))),
            }
        }
        Ok(Ok(tokens))
    }, else Err(tensor.wrong("numbers or booleans")))
}

#[derive(Default)]
struct SavedHeader {
    step: u64,
    /// The names of the groups, to which the tensor `group` refers by index; `None` if all names are numbers.
    group_names: Option<Vec<GroupId>>,
    texts: BTreeMap<String, Vec<String>>,
}

/// Returns the content of the header that advlab writes; `None` for a trainer's file.
fn header(strings: &Strings) -> Result<Option<SavedHeader>, String> {
    let Some(version) = strings.get(MARK.0) else {
        return Ok(None);
    };
    if version != MARK.1 {
        return Err(format!(
            "it is a batch of version {version}, and this advlab reads only version {}",
            MARK.1
        ));
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

impl Batch {
    /// Writes all columns to a safetensors file: token columns padded with 0 to [B, T], and texts in the header.
    /// [`read`](crate::files::read) gives the same batch again: its groups, the tokens that count, all values and the step. If
    /// the texts take more than 80 MB in total, none of them is saved.
    ///
    /// # Errors
    /// The error names the file and the reason why it cannot be written. No incomplete file is left, and an existing file at
    /// `path` stays unchanged.
    pub fn write_safetensors(&self, path: impl AsRef<Path>) -> Result<(), Diagnostics> {
        let mut out = Replacement::new(path.as_ref())?;
        let saved = self.save(&mut out);
        saved.map_err(|error| out.error(&error))?;
        out.finish()
    }

    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        let layout: &Layout = self.layout();
        let mut strings = Strings::new();
        let mut add = |key: &str, text: String| drop(strings.insert(key.to_string(), text));
        add(MARK.0, MARK.1.to_string());
        add(STEP, self.step().to_string());
        let name = |group| match layout.group_id(group) {
            GroupId::Number(number) => Value::from(*number),
            GroupId::String(name) => Value::from(&**name),
        };
        let names: Vec<Value> = (0..layout.groups()).map(name).collect();
        let are_numbers = names.iter().all(Value::is_number);
        let group = |response| {
            let group = layout.group_of(response);
            // The conversion is exact, because there are at most 2^32 groups.
            let number = names[group].as_i64().filter(|_| are_numbers);
            number.unwrap_or(group as i64)
        };
        let groups: Vec<i64> = (0..layout.responses()).map(group).collect();
        if !are_numbers {
            add(NAMES, Value::from(names).to_string());
        }
        let texts = self.texts().map(|(name, texts)| {
            let texts = texts.iter().map(|text| &**text);
            (name, texts.collect())
        });
        let texts = serde_json::to_string(&texts.collect::<BTreeMap<&str, Vec<&str>>>())?;
        if texts.len() <= MOST_TEXT && texts != "{}" {
            add(TEXTS, texts);
        }
        let columns = self.new_columns();
        let tensors = columns.iter().map(|column| NewTensor {
            name: saved_name(column.name),
            ..column.tensor(layout.responses(), layout.width())
        });
        let groups = NewTensor {
            name: "group".into(),
            dtype: Dtype::I64,
            shape: vec![groups.len()],
            write: Box::new(move |out: &mut dyn Write| out.write_all(groups.as_bytes())),
        };
        let tensors: Vec<NewTensor> = [groups].into_iter().chain(tensors).collect();
        write_file(out, &strings, &tensors)
    }

    /// Returns the columns of numbers, and the mask unless there are no token columns and `length` determines the mask.
    fn new_columns(&self) -> Vec<NewColumn<'_>> {
        let layout: &Layout = self.layout();
        let column = |name, values, has_tokens: bool, dtype| NewColumn {
            name,
            values,
            tokens: has_tokens.then_some(layout),
            whole: None,
            dtype,
        };
        let responses = self.response_columns().map(|(name, values)| {
            column(name, Column::Response(values.clone()), false, Dtype::F64)
        });
        let needs_mask = self.token_columns().next().is_some() || !self.follows_length();
        let mask = needs_mask.then(|| {
            let ones = Column::Response(vec![1.0; layout.responses()].into());
            column(MASK, ones, true, Dtype::BOOL)
        });
        let tokens = self.token_columns().map(|(name, values)| {
            let dtype = [Dtype::F32, Dtype::F64][usize::from(values.is_f64())];
            column(name, Column::Token(values.clone()), true, dtype)
        });
        responses.chain(mask).chain(tokens).collect()
    }

    /// Returns whether the column `length` determines which tokens count. If so, the mask, which could be many times as large as
    /// the rest of the batch, can be omitted.
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
