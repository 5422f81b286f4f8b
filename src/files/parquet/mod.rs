//! Parquet files: this module reads a file column by column as a table, or row by row as JSON lines.

mod copy;
mod lists;
mod rows;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use parquet::basic::{Compression, Type as Physical};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

pub(super) use self::copy::add;
use self::lists::{is_list_of_numbers, read_lists};
use self::rows::{cell_of, line};
use super::blocks::Blocks;
use super::cell::{Cell, JsonType};
use super::json;
use super::jsonl;
use super::keep::Keep;
use super::messages::TextKind;
use super::options::ReadOptions;
use super::place::Place;
use super::room::{ROW, Room};
use super::schema::{FileKind, Schema};
use super::table::{ColumnData, FileColumn, Table};
use super::text::{self, Lines, Report};
use super::unfold;
use crate::diagnostic::Diagnostic;
use crate::panics::caught;
use crate::parallel::each_with;
use crate::regular_file::{self, cannot_be_read};

type Reader = SerializedFileReader<File>;

/// Calls a function of the crate `parquet`. A panic becomes an error, because some damaged files make the crate panic.
fn whole<T>(read: impl FnOnce() -> Result<T>) -> io::Result<T> {
    match caught(read) {
        Some(read) => read.map_err(io::Error::other),
        None => Err(io::Error::other("it is damaged")),
    }
}

/// Opens a file, and checks that advlab can decompress all its columns.
fn open(file: File) -> io::Result<Reader> {
    let file = whole(|| SerializedFileReader::new(file))?;
    let groups = file.metadata().row_groups().iter();
    let mut codecs = groups.flat_map(|group| group.columns().iter().map(|one| one.compression()));
    let is_known = |codec: &Compression| {
        use Compression::{GZIP, SNAPPY, UNCOMPRESSED};
        matches!(codec, UNCOMPRESSED | SNAPPY | GZIP(_))
    };
    let Some(codec) = codecs.find(|codec| !is_known(codec)) else {
        return Ok(file);
    };
    // zstd is not supported, because the crate accepts only its own decoders, and its zstd decoder is written in C.
    let name = format!("{codec:?}").to_lowercase();
    let name = name.split('(').next().unwrap_or_default();
    Err(io::Error::other(format!(
        "it is compressed with {name}, which advlab cannot read: write the file with `snappy` or `gzip`"
    )))
}

/// Returns whether one of the first rows of a file holds several responses, as those of OpenR1-Math do.
fn holds_several(file: &Reader) -> Result<bool> {
    let roots = file.metadata().file_metadata().schema().get_fields();
    let is_likely = |root: &TypePtr| ["completions", "generations"].contains(&root.name());
    let rows = if roots.iter().any(is_likely) { 16 } else { 0 };
    let mut rows = file.get_row_iter(None)?.take(rows);
    rows.try_fold(false, |any, row| {
        Ok(any || unfold::holds_several(&line(&row?)))
    })
}

/// Returns the lines of a file, or of all files of a folder in turn; each row of a parquet file becomes a line of JSON.
pub(super) fn lines<'a>(path: &Path, report: Report<'a>) -> io::Result<Lines<'a>> {
    text::lines(path, report, |file, mut count| {
        let file = regular_file::open(file)?;
        let length = file.metadata()?.len();
        let file = open(file)?;
        let rows = whole_number(file.metadata().file_metadata().num_rows()).max(1);
        let mut all = RowIter::from_file_into(Box::new(file));
        Ok(text::of_each(std::iter::from_fn(move || {
            let row = whole(|| all.next().transpose()).transpose();
            count(if row.is_some() { length / rows } else { 0 });
            Some(row?.map(|row| line(&row) + "\n"))
        })))
    })
}

/// Returns a checksum of the end of a file, where parquet stores the positions and the statistics of all columns.
fn checksum_of_end(path: &Path) -> io::Result<u32> {
    let mut file = regular_file::open(path)?;
    let (mut end, length) = (Vec::new(), file.metadata()?.len());
    file.seek(SeekFrom::Start(length.saturating_sub(1 << 16)))?;
    file.read_to_end(&mut end)?;
    Ok(crc32c::crc32c(&end))
}

/// Reads a file as a table. Each thread reads a part of the columns.
pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Table, Diagnostic> {
    let failed = |error: io::Error| cannot_be_read(path, &error);
    let file = || regular_file::open(path).and_then(open);
    let sum = checksum_of_end(path).map_err(failed)?;
    let first = file().map_err(failed)?;
    if whole(|| holds_several(&first)).map_err(failed)? {
        return jsonl::read(
            Blocks::new(path, lines(path, options.progress), None)?,
            options,
        );
    }
    let metadata = first.metadata().file_metadata();
    let rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
    if rows == 0 {
        let error = Diagnostic::error("there is no response in the file").in_file(path);
        return Err(error.expected("one row per response"));
    }
    let roots = metadata.schema().get_fields();
    let mut fields = IndexMap::new();
    for root in roots {
        let kind = whole(|| first_type(&first, root)).map_err(failed)?;
        fields.insert(root.name().to_string(), kind);
    }
    let schema = Schema::new(path, options, &fields, FileKind::Lines)?;
    let own = roots.iter().map(|root| (root, root.name()));
    let nested = schema.nested.iter().filter_map(|path| {
        let is_above = |root: &&TypePtr| json::is_inside(path, root.name());
        Some((roots.iter().find(is_above)?, path.as_str()))
    });
    let wanted: Vec<(&TypePtr, FileColumn)> = own
        .chain(nested)
        .map(|(root, name)| (root, FileColumn::new(name, &schema)))
        .collect();
    let responses = rows_of(&first).saturating_mul(ROW);
    let bytes = wanted.iter().fold(responses, |sum, (root, column)| {
        sum.saturating_add(bytes_of(&first, root, &column.keep))
    });
    let fits = Room::now().check(bytes, "its values take");
    fits.map_err(failed)?;
    let part = wanted.len().div_ceil(rayon::current_num_threads());
    let columns = each_with(wanted.len(), part, &file, &|file, at| {
        let (root, mut column) = wanted[at].clone();
        let file = file
            .as_ref()
            .map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        whole(|| read_column(file, root, &mut column))?;
        Ok(column)
    });
    let columns: io::Result<Vec<FileColumn>> = columns.into_iter().collect();
    let place = Place {
        path: path.to_path_buf(),
        blank: Some(Vec::new()),
        sum,
    };
    let mut table = Table::new(Arc::new(schema), place);
    (table.columns, table.responses) = (columns.map_err(failed)?, rows);
    Ok(table.finish())
}

/// Returns the leaf of a column if a typed reader can read the column as lists of numbers; `None` for any other column.
fn list_of(file: &Reader, root: &TypePtr, keep: &Keep) -> Option<usize> {
    let schema = file.metadata().file_metadata().schema_descr();
    let leaf = leaf_of(file, root)?;
    let is_list = is_list_of_numbers(root, &schema.column(leaf));
    (is_list && !keep.ids && keep.kind == TextKind::Any).then_some(leaf)
}

/// Returns the first leaf of a column; an empty struct has no leaf.
fn leaf_of(file: &Reader, root: &TypePtr) -> Option<usize> {
    let schema = file.metadata().file_metadata().schema_descr();
    let mut leaves = 0..schema.num_columns();
    leaves.find(|&leaf| schema.get_column_root(leaf).name() == root.name())
}

/// Returns the number of rows according to the file's metadata: the sum over the row groups or the total that the footer gives,
/// whichever is larger.
fn rows_of(file: &Reader) -> u64 {
    let metadata = file.metadata();
    let groups = metadata.row_groups().iter();
    let rows = groups.map(|group| whole_number(group.num_rows()));
    let all = rows.fold(0, u64::saturating_add);
    all.max(whole_number(metadata.file_metadata().num_rows()))
}

/// Returns a number from the metadata, or 0 instead of a negative number, which a damaged file may claim.
fn whole_number(claim: i64) -> u64 {
    u64::try_from(claim).unwrap_or(0)
}

/// Returns the number of bytes of memory that a column takes, according to the file's metadata: for all numbers in its lists, or
/// for one value per row. If the numbers in the lists are not needed, at most those of one row group are in memory.
fn bytes_of(file: &Reader, root: &TypePtr, keep: &Keep) -> u64 {
    let rows = rows_of(file);
    let groups = file.metadata().row_groups().iter();
    let Some(leaf) = list_of(file, root, keep) else {
        let is_held = !is_text(root) || keep.values || keep.counts;
        return u64::from(is_held) * rows.saturating_mul(ROW / 4);
    };
    let values = groups.map(|group| whole_number(group.column(leaf).num_values()));
    let values = if keep.values {
        values.fold(0, u64::saturating_add)
    } else {
        values.max().unwrap_or(0)
    };
    values.saturating_add(rows).saturating_mul(ROW / 4)
}

fn is_text(root: &Type) -> bool {
    root.is_primitive() && root.get_physical_type() == Physical::BYTE_ARRAY
}

/// Returns the type of a column's first value that is not null.
fn first_type(file: &Reader, root: &TypePtr) -> Result<JsonType> {
    for row in rows_of_column(file, root)? {
        match row?.get_column_iter().next() {
            None | Some((_, Field::Null)) => {}
            Some((_, field)) => return Ok(cell_of(field).kind()),
        }
    }
    Ok(JsonType::Null)
}

/// Returns the rows of a file with one column alone.
fn rows_of_column<'f>(file: &'f Reader, root: &TypePtr) -> Result<RowIter<'f>> {
    // The projected schema must have the same name as the schema in the file.
    let name = file.metadata().file_metadata().schema().name();
    let schema = Type::group_type_builder(name).with_fields(vec![root.clone()]);
    file.get_row_iter(Some(schema.build()?))
}

fn read_column(file: &Reader, root: &TypePtr, column: &mut FileColumn) -> Result<()> {
    let is_own = column.name() == root.name();
    if let Some(leaf) = list_of(file, root, &column.keep).filter(|_| is_own) {
        return read_lists(file, leaf, column);
    }
    let leaf = leaf_of(file, root);
    let groups = file.metadata().row_groups().iter();
    let nulls = |group: &RowGroupMetaData| group.column(leaf?).statistics()?.null_count_opt();
    let keep = &column.keep;
    let is_needed = keep.values || keep.counts || !is_own;
    if is_text(root) && !is_needed && groups.clone().all(|group| nulls(group) == Some(0)) {
        let rows = groups.map(|group| usize::try_from(group.num_rows()).unwrap_or(0));
        column.data = ColumnData::Texts(Vec::new(), Vec::new());
        column.first = (0, JsonType::String, "a string".to_string());
        column.end = rows.sum();
        return Ok(());
    }
    for (response, row) in rows_of_column(file, root)?.enumerate() {
        let row = row?;
        match row.get_column_iter().next() {
            Some((_, field)) if is_own => column.push(response, &cell_of(field)),
            Some((name, field)) => {
                let (key, raw) = (Value::from(name.as_str()).to_string(), cell_of(field));
                let raw = raw.json();
                let found = json::value_at(&[(&key, &raw)], column.name());
                let found = found.map_err(|error| ParquetError::General(error.to_string()));
                if let Some(raw) = found? {
                    column.push(response, &Cell::Json(raw.into()));
                }
            }
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::files::{Mapping, ReadOptions, read};

    /// Columns that are not needed take little memory, however wide the file is.
    #[test]
    fn a_column_takes_what_is_read_of_it() {
        let schema = "message schema { required binary text (UTF8);
            optional group list (LIST) { repeated group list { optional double element; } } }";
        let schema = parse_message_type(schema).unwrap().into();
        let file = tempfile::tempfile().unwrap();
        let to = file.try_clone().unwrap();
        let mut writer = SerializedFileWriter::new(to, schema, Default::default()).unwrap();
        // The first row group has two rows of three numbers, and the second has one row of one number.
        for (rows, numbers, repeated) in [(2, 6, &[0i16, 1, 1, 0, 1, 1][..]), (1, 1, &[0])] {
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let texts = vec![ByteArray::from("a"); rows];
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&texts, None, None).unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let (values, defined) = (vec![0.5; numbers], vec![3; numbers]);
            let typed = column.typed::<DoubleType>();
            let levels = (Some(&defined[..]), Some(repeated));
            typed.write_batch(&values, levels.0, levels.1).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        writer.close().unwrap();
        let file = open(file).unwrap();
        let roots = file.metadata().file_metadata().schema().get_fields();
        let read = Keep {
            values: true,
            ..Keep::default()
        };
        for (root, keep, values) in [
            (0, &read, 3),
            (0, &Keep::default(), 0),
            (1, &read, 7 + 3),
            (1, &Keep::default(), 6 + 3),
        ] {
            let bytes = bytes_of(&file, &roots[root], keep);
            assert_eq!(bytes, values * ROW / 4, "{root}");
        }
    }

    #[test]
    fn a_field_of_a_struct_is_read_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("struct.parquet");
        let schema = "message schema { required int64 uid;
            optional group rewards { required double correct; required double style; } }";
        let schema = parse_message_type(schema).unwrap().into();
        let file = std::fs::File::create(&path).unwrap();
        let mut file = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut uid = group.next_column().unwrap().unwrap();
        uid.typed::<Int64Type>()
            .write_batch(&[7, 7], None, None)
            .unwrap();
        uid.close().unwrap();
        for values in [[1.0, 0.0], [0.5, 0.25]] {
            let mut column = group.next_column().unwrap().unwrap();
            let typed = column.typed::<DoubleType>();
            typed.write_batch(&values, Some(&[1, 1]), None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        file.close().unwrap();
        let map = [("reward", "rewards.correct"), ("style", "rewards.style")];
        let map = map.map(|(ours, theirs)| Mapping {
            ours: ours.to_string(),
            theirs: theirs.to_string(),
        });
        let options = ReadOptions {
            map: &map,
            ..ReadOptions::default()
        };
        let batch = read(&path, &options).unwrap().batch;
        assert_eq!(batch.response_column("reward").unwrap(), [1.0, 0.0]);
        assert_eq!(batch.response_column("style").unwrap(), [0.5, 0.25]);
    }
}
