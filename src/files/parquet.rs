//! Parquet: reads rows as lines of JSON, and copies a file with columns added, the others unchanged.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use safetensors::Dtype;
use serde_json::Value;

use super::Progress;
use super::json::write_number;
use super::new_columns::NewColumn;
pub(super) use super::parquet_columns::read;
use super::room::{ROW, Room};
use crate::diagnostic::Diagnostic;
use crate::panics::caught;
use crate::regular_file::{self, cannot_be_read};
use crate::replace::Replacement;

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

/// The type of a column that is added to lines.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueType {
    Bool,
    Int,
    Float,
}

/// The type of a column's values, and whether they are lists.
pub(super) type Shape = (ValueType, bool);

/// The values of a column to add.
pub(super) enum AddedValues<'a> {
    Bools(Vec<Option<bool>>),
    Counts(Vec<Option<i64>>),
    Numbers(&'a NewColumn<'a>),
}

type RowGroup<'a, 'w> = SerializedRowGroupWriter<'a, &'w mut Replacement>;

impl AddedValues<'_> {
    /// Values that were computed line by line.
    pub(super) fn of_json((value, _): Shape, rows: Vec<Option<Vec<u8>>>) -> Self {
        let texts = rows
            .iter()
            .map(|row| std::str::from_utf8(row.as_ref()?).ok());
        match value {
            ValueType::Bool => AddedValues::Bools(texts.map(|text| text?.parse().ok()).collect()),
            _ => AddedValues::Counts(texts.map(|text| text?.parse().ok()).collect()),
        }
    }

    /// Whether no row has a value.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            AddedValues::Bools(rows) => rows.iter().all(Option::is_none),
            AddedValues::Counts(rows) => rows.iter().all(Option::is_none),
            AddedValues::Numbers(_) => false,
        }
    }

    fn is_list(&self) -> bool {
        matches!(self, AddedValues::Numbers(column) if column.per_token)
    }

    fn physical(&self) -> Physical {
        match self {
            AddedValues::Bools(_) => Physical::BOOLEAN,
            AddedValues::Counts(_) => Physical::INT64,
            AddedValues::Numbers(column) if column.per_token && column.dtype == Dtype::F32 => {
                Physical::FLOAT
            }
            AddedValues::Numbers(_) => Physical::DOUBLE,
        }
    }

    fn to_parquet(&self, name: &str) -> Result<TypePtr> {
        let leaf = if self.is_list() { "element" } else { name };
        let leaf = Type::primitive_type_builder(leaf, self.physical())
            .with_repetition(Repetition::OPTIONAL);
        let leaf = Arc::new(leaf.build()?);
        if !self.is_list() {
            return Ok(leaf);
        }
        let group = |name: &str, repetition, field, logical| {
            let group = Type::group_type_builder(name).with_repetition(repetition);
            let group = group.with_fields(vec![field]).with_logical_type(logical);
            Ok(Arc::new(group.build()?))
        };
        let list = group("list", Repetition::REPEATED, leaf, None)?;
        let logical = Some(LogicalType::List);
        group(name, Repetition::OPTIONAL, list, logical)
    }

    /// Writes the values of some rows as the next column.
    fn write(&self, rows: Range<usize>, group: &mut RowGroup) -> Result<()> {
        let Some(mut writer) = group.next_column()? else {
            return Ok(());
        };
        let into = &mut writer;
        match self {
            AddedValues::Bools(all) => put::<BoolType, _>(into, &all[rows]),
            AddedValues::Counts(all) => put::<Int64Type, _>(into, &all[rows]),
            AddedValues::Numbers(column) if !column.per_token => {
                let values = rows.map(|row| Some(column.row(row, 1)[0]));
                put::<DoubleType, _>(into, &values.collect::<Vec<_>>())
            }
            AddedValues::Numbers(column) if column.dtype == Dtype::F32 => {
                lists::<FloatType>(into, column, rows, |value| value as f32)
            }
            AddedValues::Numbers(column) => lists::<DoubleType>(into, column, rows, |value| value),
        }?;
        writer.close()
    }
}

/// Writes a value for each row, or null.
fn put<T: DataType<T = V>, V: Copy>(
    into: &mut SerializedColumnWriter,
    rows: &[Option<V>],
) -> Result<usize> {
    let values: Vec<V> = rows.iter().flatten().copied().collect();
    let defined: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
    into.typed::<T>().write_batch(&values, Some(&defined), None)
}

/// Writes a list of numbers for each row.
fn lists<T: DataType>(
    into: &mut SerializedColumnWriter,
    column: &NewColumn,
    rows: Range<usize>,
    value: fn(f64) -> T::T,
) -> Result<usize> {
    // Dremel's levels: an empty list has an entry of its own, without a value.
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let numbers = column.row(row, column.layout.row_length(row));
        let entries = numbers.len().max(1);
        defined.extend(std::iter::repeat_n(
            if numbers.is_empty() { 1 } else { 3 },
            entries,
        ));
        repeated.push(0);
        repeated.extend(std::iter::repeat_n(1, entries - 1));
        values.extend(numbers.iter().map(|number| value(*number)));
    }
    into.typed::<T>()
        .write_batch(&values, Some(&defined), Some(&repeated))
}

/// Writes a copy of a file with some columns added or replaced, which come last. The bytes of all others are copied.
pub(super) fn write_copy(
    input: &Path,
    columns: &[(&str, AddedValues)],
    out: &mut Replacement,
) -> std::result::Result<(), Diagnostic> {
    let opened = regular_file::open(input).and_then(|file| Ok((file.try_clone()?, open(file)?)));
    let (bytes, file) = opened.map_err(|error| cannot_be_read(input, &error))?;
    let copied = whole(|| {
        let roots = file.metadata().file_metadata().schema().get_fields();
        let is_kept = |name: &str| columns.iter().all(|(new, _)| *new != name);
        let kept = roots.iter().filter(|root| is_kept(root.name()));
        let added = columns.iter().map(|(name, values)| values.to_parquet(name));
        let types = kept.cloned().map(Ok).chain(added);
        let schema = Type::group_type_builder("schema").with_fields(types.collect::<Result<_>>()?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let schema = Arc::new(schema.build()?);
        let mut new = SerializedFileWriter::new(&mut *out, schema, Arc::new(properties.build()))?;
        let mut start = 0;
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
            let end = start + usize::try_from(old.num_rows()).unwrap_or(0);
            for (_, values) in columns {
                values.write(start..end, &mut group)?;
            }
            group.close()?;
            start = end;
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
