//! Parquet: its rows as lines of JSON, and lines as its rows. Columns keep their types: numbers whole or not, truth values,
//! strings, lists and structures of these.

mod write;

use std::fs::File;
use std::io::{self, Read, Write as _};

use parquet::basic::Compression;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, Row};

pub(in crate::batch::files) use self::write::ToParquet;
use super::Lines;
use super::rows::Value;
use crate::batch::files::Progress;
use crate::panics::caught;

/// The rows of a file as lines.
struct Rows<'a> {
    file: SerializedFileReader<File>,
    /// The next group of rows, and the rows of the one before.
    next: usize,
    rows: Option<ReaderIter>,
    line: Vec<u8>,
    at: usize,
    progress: &'a Progress<'a>,
}

pub(super) fn open<'a>(file: File, progress: &'a Progress) -> io::Result<Lines<'a>> {
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
    Ok(Box::new(Rows {
        file,
        next: 0,
        rows: None,
        line: Vec::new(),
        at: 0,
        progress,
    }))
}

/// What the crate makes of a file; it panics at some that are damaged.
fn whole<T>(read: impl FnOnce() -> parquet::errors::Result<T>) -> io::Result<T> {
    match caught(read) {
        Some(read) => read.map_err(io::Error::other),
        None => Err(io::Error::other("it is damaged")),
    }
}

impl Rows<'_> {
    fn row(&mut self) -> io::Result<Option<Row>> {
        loop {
            if let Some(rows) = &mut self.rows
                && let Some(row) = whole(|| rows.next().transpose())?
            {
                return Ok(Some(row));
            }
            let metadata = self.file.metadata();
            if self.next == metadata.num_row_groups() {
                return Ok(None);
            }
            let schema = metadata.file_metadata().schema_descr_ptr();
            self.rows = Some(whole(|| {
                let group = self.file.get_row_group(self.next)?;
                TreeBuilder::new().as_iter(schema, &*group)
            })?);
            let bytes = self.file.metadata().row_group(self.next).compressed_size();
            self.progress.add(bytes.max(0) as u64);
            self.next += 1;
        }
    }
}

impl Read for Rows<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.line.len() {
            self.line.clear();
            self.at = 0;
            let Some(row) = self.row()? else {
                return Ok(0);
            };
            writeln!(self.line, "{}", of_row(&row))?;
        }
        let read = (&self.line[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}

fn of_row(row: &Row) -> Value {
    let fields = row.get_column_iter();
    Value::Fields(
        fields
            .map(|(name, field)| (name.clone(), of(field)))
            .collect(),
    )
}

fn of(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => Value::Bool(*value),
        Field::Byte(value) => Value::Int((*value).into()),
        Field::Short(value) => Value::Int((*value).into()),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => {
            Value::Int((*value).into())
        }
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => Value::Int(*value),
        Field::UByte(value) => Value::Int((*value).into()),
        Field::UShort(value) => Value::Int((*value).into()),
        Field::UInt(value) => Value::Int((*value).into()),
        Field::ULong(value) => Value::Digits(value.to_string()),
        // Widened, they are the same numbers.
        Field::Float16(value) => Value::Float((*value).into()),
        Field::Float(value) => Value::Float((*value).into()),
        Field::Double(value) => Value::Float(*value),
        Field::Decimal(_) => Value::Text(field.to_string()),
        Field::Str(text) => Value::Text(text.clone()),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Value::Text(text.to_string()),
            Err(_) => {
                let bytes = bytes.data().iter();
                Value::List(bytes.map(|&byte| Value::Int(byte.into())).collect())
            }
        },
        Field::Group(row) => of_row(row),
        Field::ListInternal(items) => Value::List(items.elements().iter().map(of).collect()),
        Field::MapInternal(map) => {
            let pairs = map.entries().iter();
            let pairs = pairs.map(|(key, value)| Value::List(vec![of(key), of(value)]));
            Value::List(pairs.collect())
        }
    }
}
