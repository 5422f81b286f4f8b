//! Parquet: rows as lines of JSON, lines as rows, and a copy of a file with more columns, of which the others stay as they are.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::json::{self, Type as Kind, write_number};
use super::replace::Replacement;
use super::{Progress, cannot_be_read};
use crate::diagnostic::Diagnostic;
use crate::panics::caught;
use crate::regular_file;

/// Bytes of lines that become one group of rows.
const GROUP: usize = 64 << 20;

/// The result of the crate, which panics at some damaged files.
pub(super) fn whole<T>(read: impl FnOnce() -> Result<T>) -> io::Result<T> {
    match caught(read) {
        Some(read) => read.map_err(io::Error::other),
        None => Err(io::Error::other("it is damaged")),
    }
}

pub(super) fn open(file: File) -> io::Result<SerializedFileReader<File>> {
    let file = whole(|| SerializedFileReader::new(file))?;
    let groups = file.metadata().row_groups().iter();
    for column in groups.flat_map(|group| group.columns()) {
        let packed = column.compression();
        if !matches!(
            packed,
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_)
        ) {
            // The crate takes no decoder but its own, and that of zstd is C.
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
    let mut line = String::new();
    write_row(row, &mut line);
    line
}

fn write_row(row: &Row, out: &mut String) {
    let fields = row.get_column_iter();
    let fields = fields.map(|(name, field)| (Some(name), field));
    write_items(["{", "}"], fields, out);
}

fn write_items<'r>(
    brackets: [&str; 2],
    items: impl Iterator<Item = (Option<&'r String>, &'r Field)>,
    out: &mut String,
) {
    out.push_str(brackets[0]);
    for (index, (name, item)) in items.enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        if let Some(name) = name {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}: ", Value::from(&**name));
        }
        write_field(item, out);
    }
    out.push_str(brackets[1]);
}

/// A value in JSON; NaN and infinities as Python writes them.
pub(super) fn write_field(field: &Field, out: &mut String) {
    let text = match field {
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
        Field::Group(row) => return write_row(row, out),
        Field::ListInternal(items) => {
            let items = items.elements().iter().map(|item| (None, item));
            return write_items(["[", "]"], items, out);
        }
        Field::MapInternal(map) => {
            let keys = map.entries().iter().map(|(key, _)| key.to_string());
            let keys: Vec<String> = keys.map(|key| key.trim_matches('"').to_string()).collect();
            let entries = keys.iter().map(Some).zip(map.entries());
            let entries = entries.map(|(key, (_, value))| (key, value));
            return write_items(["{", "}"], entries, out);
        }
        // Booleans and whole numbers.
        plain => plain.to_string(),
    };
    out.push_str(&text);
}

fn number(value: f64) -> String {
    let mut out = Vec::new();
    write_number(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

/// The type of the values of a column, as far as they tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item {
    /// Nothing but null.
    Null,
    Bool,
    Int,
    /// Integers of which some are not f64.
    Wide,
    Float,
    Text,
    /// Objects, nested arrays or values of several kinds, each as a string of its JSON.
    Json,
}

/// The type of a column: values, or lists of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) item: Item,
    pub(super) is_list: bool,
}

impl Item {
    fn of(raw: &str) -> Item {
        let is_digit = |byte: u8| byte == b'-' || byte.is_ascii_digit();
        match (json::type_of(raw), raw.parse::<i64>()) {
            (Kind::Null, _) => Item::Null,
            (Kind::Bool, _) => Item::Bool,
            (Kind::String, _) => Item::Text,
            (Kind::Number, Ok(value)) if value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS => {
                Item::Int
            }
            (Kind::Number, Ok(_)) => Item::Wide,
            (Kind::Number, Err(_)) if !raw.bytes().all(is_digit) => Item::Float,
            _ => Item::Json,
        }
    }

    /// The type that has room for both.
    fn with(self, other: Item) -> Item {
        match (self, other) {
            (Item::Null, item) | (item, Item::Null) => item,
            (Item::Float, Item::Int) | (Item::Int, Item::Float) => Item::Float,
            (Item::Wide, Item::Int) | (Item::Int, Item::Wide) => Item::Wide,
            (one, other) if one == other => one,
            _ => Item::Json,
        }
    }
}

impl Shape {
    /// The values of a column, none of which is a list.
    pub(super) const fn of_items(item: Item) -> Shape {
        let is_list = false;
        Shape { item, is_list }
    }

    /// The type that has room for one more value.
    fn with(self, raw: &str) -> Shape {
        let list = json::elements(raw).filter(|_| json::type_of(raw) == Kind::Array);
        let is_list = list.is_some();
        let items = list.unwrap_or(vec![raw]).into_iter().map(Item::of);
        let found = items.fold(Item::Null, Item::with);
        let item = match (self.item, json::type_of(raw)) {
            (Item::Null, _) if !self.is_list => found,
            (_, Kind::Null) => self.item,
            _ if self.is_list != is_list => Item::Json,
            (item, _) => item.with(found),
        };
        Shape {
            item,
            is_list: (self.is_list || is_list) && item != Item::Json,
        }
    }

    fn to_parquet(self, name: &str) -> Result<TypePtr> {
        let (physical, logical) = match self.item {
            Item::Bool => (Physical::BOOLEAN, None),
            Item::Int | Item::Wide => (Physical::INT64, None),
            Item::Float => (Physical::DOUBLE, None),
            _ => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let leaf = if self.is_list { "element" } else { name };
        let leaf = Type::primitive_type_builder(leaf, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        let leaf = Arc::new(leaf.build()?);
        if !self.is_list {
            return Ok(leaf);
        }
        let group = |name: &str, repetition, field, logical| {
            let group = Type::group_type_builder(name).with_repetition(repetition);
            let group = group.with_fields(vec![field]).with_logical_type(logical);
            Ok(Arc::new(group.build()?))
        };
        let list = group("list", Repetition::REPEATED, leaf, None)?;
        group(name, Repetition::OPTIONAL, list, Some(LogicalType::List))
    }
}

/// The values of a column that wait to be written, in JSON, with Dremel's levels.
struct Chunk {
    shape: Shape,
    values: Vec<String>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

impl Chunk {
    fn new(shape: Shape) -> Chunk {
        Chunk {
            shape,
            values: Vec::new(),
            defined: Vec::new(),
            repeated: Vec::new(),
        }
    }

    /// Adds the value of a row, for which the shape has room.
    fn push(&mut self, raw: &str) {
        let is_there = i16::from(raw != "null");
        if !self.shape.is_list {
            return self.push_item(raw, 0, is_there);
        }
        let items = json::elements(raw).unwrap_or_default();
        if items.is_empty() {
            self.push_item("null", 0, is_there);
        }
        for (index, item) in items.into_iter().enumerate() {
            self.push_item(item, i16::from(index > 0), 2 + i16::from(item != "null"));
        }
    }

    fn push_item(&mut self, raw: &str, repeated: i16, defined: i16) {
        self.defined.push(defined);
        self.repeated.push(repeated);
        self.values.extend((raw != "null").then(|| raw.to_string()));
    }

    /// Writes what waits as the next column.
    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, &mut Replacement>) -> Result<()> {
        let waiting = std::mem::replace(self, Chunk::new(self.shape));
        let levels = (Some(&waiting.defined[..]), Some(&waiting.repeated[..]));
        let values = waiting.values.iter();
        let text = |raw: &String| match self.shape.item {
            Item::Text => json::text(raw).as_bytes().to_vec().into(),
            _ => raw.as_bytes().to_vec().into(),
        };
        let Some(mut column) = group.next_column()? else {
            return Ok(());
        };
        match self.shape.item {
            Item::Bool => {
                let values: Vec<bool> = values.map(|raw| raw == "true").collect();
                column
                    .typed::<BoolType>()
                    .write_batch(&values, levels.0, levels.1)?
            }
            Item::Int | Item::Wide => {
                let values: Vec<i64> = values.map(|raw| raw.parse().unwrap_or_default()).collect();
                column
                    .typed::<Int64Type>()
                    .write_batch(&values, levels.0, levels.1)?
            }
            Item::Float => {
                let values: Vec<f64> = values.map(|raw| json::number(raw)).collect();
                column
                    .typed::<DoubleType>()
                    .write_batch(&values, levels.0, levels.1)?
            }
            _ => {
                let values: Vec<ByteArray> = values.map(text).collect();
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&values, levels.0, levels.1)?
            }
        };
        column.close()
    }
}

fn new_file<'a>(
    columns: &[(String, Shape)],
    kept: Vec<TypePtr>,
    out: &'a mut Replacement,
) -> Result<SerializedFileWriter<&'a mut Replacement>> {
    let mut types = kept;
    for (name, shape) in columns {
        types.push(shape.to_parquet(name)?);
    }
    let schema = Type::group_type_builder("schema")
        .with_fields(types)
        .build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))
}

/// Writes lines as parquet, and gives notes on what is in it otherwise than it was in the lines. They are read twice: a column has
/// one type, which its last value may change.
pub(super) fn write_lines(mut lines: File, out: &mut Replacement) -> io::Result<Vec<String>> {
    let mut columns: Vec<(String, Shape)> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    lines.rewind()?;
    for line in BufReader::new(&lines).split(b'\n') {
        for (name, raw) in fields(&line?)? {
            let column = *by_name.entry(name).or_insert_with_key(|name| {
                columns.push((name.clone(), Shape::of_items(Item::Null)));
                columns.len() - 1
            });
            columns[column].1 = columns[column].1.with(raw);
        }
    }
    if columns.is_empty() {
        return Err(io::Error::other("there are no lines to write"));
    }
    lines.rewind()?;
    let mut file = new_file(&columns, Vec::new(), out)?;
    let mut chunks: Vec<Chunk> = columns
        .iter()
        .map(|(_, shape)| Chunk::new(*shape))
        .collect();
    let mut lines = BufReader::new(lines).split(b'\n').peekable();
    let mut bytes = 0;
    while let Some(line) = lines.next() {
        let line = line?;
        let fields = fields(&line)?;
        let mut values = vec!["null"; chunks.len()];
        fields
            .iter()
            .for_each(|(name, raw)| values[by_name[name]] = raw);
        if !fields.is_empty() {
            chunks
                .iter_mut()
                .zip(values)
                .for_each(|(chunk, raw)| chunk.push(raw));
        }
        bytes += line.len();
        if bytes > GROUP || lines.peek().is_none() {
            let mut group = file.next_row_group()?;
            chunks
                .iter_mut()
                .try_for_each(|chunk| chunk.write(&mut group))?;
            group.close()?;
            bytes = 0;
        }
    }
    file.close()?;
    let mixed = columns.iter().filter(|(_, shape)| shape.item == Item::Json);
    let what = "has values of several kinds, or nested ones: it is written as strings, of JSON";
    Ok(mixed.map(|(name, _)| format!("`{name}` {what}")).collect())
}

fn fields(line: &[u8]) -> io::Result<Vec<(String, &str)>> {
    let line = std::str::from_utf8(line).map_err(io::Error::other)?;
    if line.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let fields = json::fields(line).map_err(|error| io::Error::other(error.to_string()))?;
    let name = |(key, raw)| (json::text(key).into_owned(), raw);
    Ok(fields.into_iter().map(name).collect())
}

/// Writes a copy of a file with values for some columns, which come last. The bytes of all others are copied as they are.
pub(super) fn write_copy(
    input: &Path,
    columns: &[(&str, Shape)],
    values: impl Fn(usize) -> Vec<Option<Vec<u8>>>,
    out: &mut Replacement,
) -> std::result::Result<(), Diagnostic> {
    let opened = regular_file::open(input).and_then(|file| Ok((file.try_clone()?, open(file)?)));
    let (bytes, file) = opened.map_err(|error| cannot_be_read(input, &error))?;
    let copied = whole(|| {
        let roots = file.metadata().file_metadata().schema().get_fields();
        let is_kept = |name: &str| columns.iter().all(|(new, _)| *new != name);
        let kept = roots.iter().filter(|root| is_kept(root.name()));
        let added = columns
            .iter()
            .map(|(name, shape)| (name.to_string(), *shape));
        let added: Vec<(String, Shape)> = added.collect();
        let mut new = new_file(&added, kept.cloned().collect(), &mut *out)?;
        let mut chunks: Vec<Chunk> = columns
            .iter()
            .map(|(_, shape)| Chunk::new(*shape))
            .collect();
        let mut row = 0;
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
            for _ in 0..old.num_rows() {
                for (chunk, value) in chunks.iter_mut().zip(values(row)) {
                    let value = value.unwrap_or_else(|| b"null".to_vec());
                    chunk.push(&String::from_utf8_lossy(&value));
                }
                row += 1;
            }
            chunks
                .iter_mut()
                .try_for_each(|chunk| chunk.write(&mut group))?;
            group.close()?;
        }
        new.close().map(drop)
    });
    copied.map_err(|error| out.error(&error))
}
