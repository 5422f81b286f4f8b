//! Parquet: reads rows as lines of JSON, writes lines as rows, and copies a file with columns added, the others unchanged.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::json::{self, JsonType, write_number};
use super::lines::Values;
pub(super) use super::parquet_columns::read;
use super::replace::Replacement;
use super::room::{ROW, Room};
use super::{Progress, cannot_be_read};
use crate::diagnostic::Diagnostic;
use crate::panics::caught;
use crate::regular_file;

/// Bytes of lines that form one row group.
const GROUP: usize = 64 << 20;

/// The result of the crate's function; an error if the crate panics, as it does on some damaged files.
pub(super) fn whole<T>(read: impl FnOnce() -> Result<T>) -> io::Result<T> {
    match caught(read) {
        Some(read) => read.map_err(io::Error::other),
        None => Err(io::Error::other("it is damaged")),
    }
}

pub(super) fn open(file: File) -> io::Result<SerializedFileReader<File>> {
    let file = whole(|| SerializedFileReader::new(file))?;
    let groups = file.metadata().row_groups().iter();
    let columns = groups.flat_map(|group| group.columns());
    let claims = columns.clone().map(|column| column.num_values());
    let claims = claims.chain([file.metadata().file_metadata().num_rows()]);
    let values = claims.fold(0, |sum: u64, claim| sum.saturating_add(claim.max(0) as u64));
    Room::now().check(values.saturating_mul(ROW / 4), "its values take")?;
    for column in columns {
        let packed = column.compression();
        if !matches!(
            packed,
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_)
        ) {
            // The crate accepts no other decoder than its own, and its decoder of zstd is in C.
            let name = format!("{packed:?}").to_lowercase();
            let what = format!(
                "its columns are packed by {}: write them with `snappy` or `gzip`",
                name.split('(').next().unwrap_or_default()
            );
            return Err(io::Error::other(what));
        }
    }
    Ok(file)
}

/// The rows of a file as lines of JSON.
pub(super) fn lines<'a>(
    file: File,
    progress: &'a Progress,
) -> io::Result<impl Iterator<Item = io::Result<String>> + Send + use<'a>> {
    let length = file.metadata()?.len();
    let file = open(file)?;
    let rows = u64::try_from(file.metadata().file_metadata().num_rows());
    let bytes = length / rows.unwrap_or(1).max(1);
    let mut rows = RowIter::from_file_into(Box::new(file));
    Ok(std::iter::from_fn(move || {
        let row = whole(|| rows.next().transpose()).transpose()?;
        progress.add(bytes);
        Some(row.map(|row| line(&row) + "\n"))
    }))
}

/// A row as an object in JSON.
pub(super) fn line(row: &Row) -> String {
    object(row.get_column_iter().map(|(name, field)| (&**name, field)))
}

fn object<'r>(fields: impl Iterator<Item = (&'r str, &'r Field)>) -> String {
    let fields = fields.map(|(name, field)| format!("{}: {}", Value::from(name), in_json(field)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}

/// A value in JSON; NaN and infinities as Python writes them.
pub(super) fn in_json(field: &Field) -> String {
    match field {
        Field::Null => "null".to_string(),
        Field::Date(value) | Field::TimeMillis(value) => value.to_string(),
        Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => value.to_string(),
        // Widened, they are the same numbers.
        Field::Float16(value) => number(f64::from(*value)),
        Field::Float(value) => number(f64::from(*value)),
        Field::Double(value) => number(*value),
        Field::Decimal(_) => Value::from(field.to_string()).to_string(),
        Field::Str(text) => Value::from(&**text).to_string(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Value::from(text).to_string(),
            Err(_) => Value::from(bytes.data()).to_string(),
        },
        Field::Group(row) => line(row),
        Field::ListInternal(items) => {
            let items = items.elements().iter().map(in_json);
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        Field::MapInternal(map) => {
            let keys = map.entries().iter().map(|(key, _)| key.to_string());
            let keys: Vec<String> = keys.collect();
            // Shown, a text has quotes around it; others are its own.
            let bare = |key: &str| Some(key.strip_prefix('"')?.strip_suffix('"')?.len());
            let keys = keys
                .iter()
                .map(|key| bare(key).map_or(&**key, |length| &key[1..=length]));
            object(keys.zip(map.entries().iter().map(|(_, value)| value)))
        }
        // Booleans and whole numbers.
        plain => plain.to_string(),
    }
}

fn number(value: f64) -> String {
    let mut out = Vec::new();
    write_number(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

/// The type of a column's values, as far as they have determined it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum ValueType {
    /// Nothing but null.
    #[default]
    Null,
    Bool,
    Int,
    /// Integers, some of which are not exact as f64.
    Wide,
    Float,
    Text,
    /// Objects, nested arrays or values of several kinds, each as a string of its JSON.
    Json,
}

/// The shape of a column: the type of its values, and whether they are lists.
pub(super) type Shape = (ValueType, bool);

type RowGroup<'a, 'w> = SerializedRowGroupWriter<'a, &'w mut Replacement>;

impl ValueType {
    fn of(raw: &str) -> ValueType {
        let is_digit = |byte: u8| byte == b'-' || byte.is_ascii_digit();
        match (json::type_of(raw), raw.parse::<i64>()) {
            (JsonType::Null, _) => ValueType::Null,
            (JsonType::Bool, _) => ValueType::Bool,
            (JsonType::String, _) => ValueType::Text,
            (JsonType::Number, Ok(value)) if value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS => {
                ValueType::Int
            }
            (JsonType::Number, Ok(_)) => ValueType::Wide,
            (JsonType::Number, Err(_)) if !raw.bytes().all(is_digit) => ValueType::Float,
            _ => ValueType::Json,
        }
    }

    /// The narrowest type that holds both.
    fn with(self, other: ValueType) -> ValueType {
        match (self, other) {
            (ValueType::Null, item) | (item, ValueType::Null) => item,
            (ValueType::Float, ValueType::Int) | (ValueType::Int, ValueType::Float) => {
                ValueType::Float
            }
            (ValueType::Wide, ValueType::Int) | (ValueType::Int, ValueType::Wide) => {
                ValueType::Wide
            }
            (one, other) if one == other => one,
            _ => ValueType::Json,
        }
    }
}

/// A column that is written: its type, and the values that wait, in JSON.
#[derive(Default)]
struct Leaf {
    name: String,
    shape: Shape,
    rows: Vec<String>,
}

impl Leaf {
    /// Widens the type to include one more value.
    fn widen(&mut self, raw: &str) {
        let kind = json::type_of(raw);
        let list = match kind {
            JsonType::Array => json::elements(raw),
            _ => None,
        };
        let is_list = list.is_some();
        let items = list.unwrap_or(vec![raw]).into_iter().map(ValueType::of);
        let found = items.fold(ValueType::Null, ValueType::with);
        let (item, is_list) = match self.shape {
            (ValueType::Null, false) => (found, is_list),
            shape if kind == JsonType::Null => shape,
            (item, was_list) if was_list == is_list => (item.with(found), is_list),
            _ => (ValueType::Json, false),
        };
        self.shape = (item, is_list && item != ValueType::Json);
    }

    fn to_parquet(&self) -> Result<TypePtr> {
        let (item, is_list) = self.shape;
        let (physical, logical) = match item {
            ValueType::Bool => (Physical::BOOLEAN, None),
            ValueType::Int | ValueType::Wide => (Physical::INT64, None),
            ValueType::Float => (Physical::DOUBLE, None),
            _ => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let name = if is_list { "element" } else { &self.name };
        let leaf = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        let leaf = Arc::new(leaf.build()?);
        if !is_list {
            return Ok(leaf);
        }
        let group = |name: &str, repetition, field, logical| {
            let group = Type::group_type_builder(name).with_repetition(repetition);
            let group = group.with_fields(vec![field]).with_logical_type(logical);
            Ok(Arc::new(group.build()?))
        };
        let list = group("list", Repetition::REPEATED, leaf, None)?;
        let logical = Some(LogicalType::List);
        group(&self.name, Repetition::OPTIONAL, list, logical)
    }

    /// Writes the collected values, which must fit the type, as the next column.
    fn write(&mut self, group: &mut RowGroup) -> Result<()> {
        let (rows, (item, is_list)) = (std::mem::take(&mut self.rows), self.shape);
        // Dremel's levels.
        let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let items = match is_list {
                true => json::elements(row).unwrap_or_default(),
                false => vec![&**row],
            };
            let above = if is_list { 2 } else { 0 };
            if items.is_empty() {
                defined.push(i16::from(row != "null"));
                repeated.push(0);
            }
            for (index, item) in items.into_iter().enumerate() {
                defined.push(above + i16::from(item != "null"));
                repeated.push(i16::from(index > 0));
                values.extend((item != "null").then_some(item));
            }
        }
        let Some(mut column) = group.next_column()? else {
            return Ok(());
        };
        let text = |raw: &str| match item {
            ValueType::Text => json::text(raw).as_bytes().to_vec().into(),
            _ => raw.as_bytes().to_vec().into(),
        };
        let (into, levels) = (&mut column, (&defined[..], &repeated[..]));
        match item {
            ValueType::Bool => put::<BoolType>(into, &values, levels, |raw| raw == "true"),
            ValueType::Int | ValueType::Wide => {
                let whole = |raw: &str| raw.parse().unwrap_or_default();
                put::<Int64Type>(into, &values, levels, whole)
            }
            ValueType::Float => put::<DoubleType>(into, &values, levels, json::number),
            _ => put::<ByteArrayType>(into, &values, levels, text),
        }?;
        column.close()
    }
}

fn put<T: DataType>(
    column: &mut SerializedColumnWriter,
    values: &[&str],
    (defined, repeated): (&[i16], &[i16]),
    value: impl Fn(&str) -> T::T,
) -> Result<usize> {
    let values: Vec<T::T> = values.iter().map(|raw| value(raw)).collect();
    let column = column.typed::<T>();
    column.write_batch(&values, Some(defined), Some(repeated))
}

fn new_file<'a>(
    mut types: Vec<TypePtr>,
    leaves: &[Leaf],
    out: &'a mut Replacement,
) -> Result<SerializedFileWriter<&'a mut Replacement>> {
    for leaf in leaves {
        types.push(leaf.to_parquet()?);
    }
    let schema = Type::group_type_builder("schema").with_fields(types);
    let schema = Arc::new(schema.build()?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    SerializedFileWriter::new(out, schema, Arc::new(properties.build()))
}

/// Writes lines as parquet, and returns notes on what differs from the lines. It reads the lines twice, because a column has
/// one type and the last value may change it.
pub(super) fn write_lines(mut lines: File, out: &mut Replacement) -> io::Result<Vec<String>> {
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    each_line(&mut lines, |fields, _| {
        for (name, raw) in fields {
            let leaf = *by_name.entry(name).or_insert_with_key(|name| {
                let name = name.clone();
                leaves.push(Leaf {
                    name,
                    ..Leaf::default()
                });
                leaves.len() - 1
            });
            leaves[leaf].widen(raw);
        }
        Ok(())
    })?;
    if leaves.is_empty() {
        return Err(io::Error::other("there are no lines to write"));
    }
    let mut file = new_file(Vec::new(), &leaves, out)?;
    let mut write = |leaves: &mut [Leaf]| -> Result<()> {
        let mut group = file.next_row_group()?;
        leaves
            .iter_mut()
            .try_for_each(|leaf| leaf.write(&mut group))?;
        group.close().map(drop)
    };
    let mut waiting = 0;
    each_line(&mut lines, |fields, bytes| {
        let mut values = vec!["null"; leaves.len()];
        for (name, raw) in &fields {
            values[by_name[name]] = raw;
        }
        for (leaf, raw) in leaves.iter_mut().zip(values) {
            leaf.rows.push(raw.to_string());
        }
        waiting += bytes;
        if waiting > GROUP {
            write(&mut leaves)?;
            waiting = 0;
        }
        Ok(())
    })?;
    if waiting > 0 {
        write(&mut leaves)?;
    }
    file.close()?;
    let mixed = leaves.iter().filter(|leaf| leaf.shape.0 == ValueType::Json);
    let what = "has values of several kinds, or nested ones: it is written as strings, of JSON";
    Ok(mixed
        .map(|leaf| format!("`{}` {what}", leaf.name))
        .collect())
}

/// Passes the fields and the bytes of each line of a file to a function.
fn each_line(
    file: &mut File,
    mut take: impl FnMut(Vec<(String, &str)>, usize) -> io::Result<()>,
) -> io::Result<()> {
    file.rewind()?;
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        let text = std::str::from_utf8(&line).map_err(io::Error::other)?;
        if text.trim_ascii().is_empty() {
            continue;
        }
        let fields = json::fields(text).map_err(|error| io::Error::other(error.to_string()))?;
        let fields = fields.into_iter();
        let fields = fields.map(|(key, raw)| (json::text(key).into_owned(), raw));
        take(fields.collect(), line.len())?;
    }
    Ok(())
}

/// Writes a copy of a file with some columns added or replaced, which come last, by the values of each row. The bytes of all
/// others are copied.
pub(super) fn write_copy(
    input: &Path,
    columns: &[(&str, Shape)],
    rows: impl IntoIterator<Item = Values>,
    out: &mut Replacement,
) -> std::result::Result<(), Diagnostic> {
    let opened = regular_file::open(input).and_then(|file| Ok((file.try_clone()?, open(file)?)));
    let (bytes, file) = opened.map_err(|error| cannot_be_read(input, &error))?;
    let leaves = columns.iter().map(|&(name, shape)| Leaf {
        name: name.to_string(),
        shape,
        rows: Vec::new(),
    });
    let mut leaves: Vec<Leaf> = leaves.collect();
    let copied = whole(|| {
        let roots = file.metadata().file_metadata().schema().get_fields();
        let is_kept = |name: &str| columns.iter().all(|(new, _)| *new != name);
        let kept = roots.iter().filter(|root| is_kept(root.name()));
        let mut new = new_file(kept.cloned().collect(), &leaves, &mut *out)?;
        let mut rows = rows.into_iter();
        for old in file.metadata().row_groups() {
            let mut group = new.next_row_group()?;
            for column in old.columns() {
                if is_kept(&column.column_path().parts()[0]) {
                    let close = ColumnCloseResult {
                        bytes_written: u64::try_from(column.compressed_size()).unwrap_or(0),
                        rows_written: u64::try_from(old.num_rows()).unwrap_or(0),
                        metadata: column.clone(),
                        bloom_filter: None,
                        column_index: None,
                        offset_index: None,
                    };
                    group.append_column(&bytes, close)?;
                }
            }
            let count = usize::try_from(old.num_rows()).unwrap_or(0);
            for values in rows.by_ref().take(count) {
                for (leaf, value) in leaves.iter_mut().zip(values) {
                    let value = value.unwrap_or_else(|| b"null".to_vec());
                    leaf.rows.push(String::from_utf8_lossy(&value).into_owned());
                }
            }
            leaves
                .iter_mut()
                .try_for_each(|leaf| leaf.write(&mut group))?;
            group.close()?;
        }
        new.close().map(drop)
    });
    copied.map_err(|error| out.error(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn the_keys_of_a_map_keep_their_quotes() {
        let schema = "message m { required group m (MAP) { repeated group key_value { \
             required binary key (UTF8); required int64 value; } } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = tempfile::tempfile().unwrap();
        let to = file.try_clone().unwrap();
        let mut writer = SerializedFileWriter::new(to, schema, Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let levels = (Some(&[1i16, 1, 1][..]), Some(&[0i16, 1, 1][..]));
        let keys = ["\"a\"", "b", "\""].map(ByteArray::from);
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<ByteArrayType>();
        typed.write_batch(&keys, levels.0, levels.1).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<Int64Type>();
        typed.write_batch(&[1, 2, 3], levels.0, levels.1).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let row = reader.get_row_iter(None).unwrap().next().unwrap();
        let expected = r#"{"m": {"\"a\"": 1, "b": 2, "\"": 3}}"#;
        assert_eq!(line(&row.unwrap()), expected);
    }
}
