//! Reads a parquet file as a table, column by column; `parquet.rs` has the rest of the format: types, lines of JSON, writing. Lists
//! of numbers are read by typed readers, which is many times faster; values of all other types by rows (`parquet::in_json`).

use std::io::Error;
use std::path::Path;
use std::sync::Arc;

use ::parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::DataType;
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::reader::RowIter;
use ::parquet::schema::types::{ColumnDescriptor, Type, TypePtr};
use serde_json::Value;

use super::json::{self, array_of};
use super::messages::TextKind;
use super::names::{FileKind, Schema};
use super::open::checksum_of_end;
use super::origin::FileOrigin;
use super::parquet::{self, line, open, whole};
use super::table::{ColumnData, FileColumn, Lists, Table};
use crate::diagnostic::Diagnostic;
use crate::parallel::each_with;
use crate::regular_file::{self, cannot_be_read};

type File = SerializedFileReader<std::fs::File>;

/// Reads a parquet file, a part of its columns on each thread.
pub(super) fn read(path: &Path, schema: Schema) -> Result<Table, Diagnostic> {
    let failed = |error: std::io::Error| cannot_be_read(path, &error);
    let file = || regular_file::open(path).and_then(open);
    let sum = checksum_of_end(path).map_err(failed)?;
    let first = file().map_err(failed)?;
    let metadata = first.metadata().file_metadata();
    let rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
    let roots = metadata.schema().get_fields();
    let fields = whole(|| first.get_row_iter(None)?.next().transpose()).map_err(failed)?;
    let Some(fields) = fields else {
        let error = Diagnostic::error("there is no response in the file").in_file(path);
        return Err(error.expected("one row per response"));
    };
    let names = Arc::new(schema(&json::types(&line(&fields))?, FileKind::Lines)?);
    let own = roots.iter().map(|root| (root, root.name()));
    let nested = names.nested.iter().filter_map(|path| {
        let is_above = |root: &&TypePtr| path.starts_with(&format!("{}.", root.name()));
        Some((roots.iter().find(is_above)?, path.as_str()))
    });
    let wanted: Vec<(&TypePtr, &str)> = own.chain(nested).collect();
    let part = wanted.len().div_ceil(rayon::current_num_threads());
    let columns = each_with(wanted.len(), part, &file, &|file, at| {
        let (root, mut column) = (wanted[at].0, FileColumn::new(wanted[at].1, &names));
        let file = file
            .as_ref()
            .map_err(|error| Error::new(error.kind(), error.to_string()))?;
        whole(|| read_column(file, root, &mut column))?;
        Ok(column)
    });
    let columns: std::io::Result<Vec<FileColumn>> = columns.into_iter().collect();
    let origin = FileOrigin {
        path: path.to_path_buf(),
        blank: Some(Vec::new()),
        sum,
    };
    let columns = columns.map_err(failed)?;
    Ok(Table::of_lines(names, columns, rows, origin))
}

fn read_column(file: &File, root: &TypePtr, column: &mut FileColumn) -> Result<()> {
    let schema = file.metadata().file_metadata().schema_descr();
    let mut leaves = 0..schema.num_columns();
    let leaf = leaves.find(|&leaf| schema.get_column_root(leaf).name() == root.name());
    let is_own = column.name == root.name();
    let is_plain = !column.keep.ids && column.keep.kind == TextKind::Any && is_own;
    // An empty struct has no leaf.
    let listed = leaf.filter(|&leaf| is_list_of_numbers(root, &schema.column(leaf)));
    if let Some(leaf) = listed.filter(|_| is_plain) {
        return read_lists(file, leaf, column);
    }
    let groups = file.metadata().row_groups().iter();
    let nulls = |group: &RowGroupMetaData| group.column(leaf?).statistics()?.null_count_opt();
    let is_text = root.is_primitive() && root.get_physical_type() == Physical::BYTE_ARRAY;
    let is_needed = column.keep.texts || !is_plain;
    if is_text && !is_needed && groups.clone().all(|group| nulls(group) == Some(0)) {
        let rows = groups.map(|group| usize::try_from(group.num_rows()).unwrap_or(0));
        column.data = ColumnData::Texts(Vec::new(), Vec::new());
        column.first = "a string".to_string();
        column.filled = rows.sum();
        return Ok(());
    }
    // A projection bears the name that the writer gave to the whole.
    let name = file.metadata().file_metadata().schema().name();
    let schema = Type::group_type_builder(name).with_fields(vec![root.clone()]);
    let key = Value::from(root.name()).to_string();
    let rows: RowIter = file.get_row_iter(Some(schema.build()?))?;
    for (response, row) in rows.enumerate() {
        if let Some((_, field)) = row?.get_column_iter().next() {
            let raw = parquet::in_json(field);
            let fields = [(&*key, &*raw)];
            if let Some(raw) = json::value_at(&fields, &column.name) {
                column.push(response, raw);
            }
        }
    }
    Ok(())
}

/// Whether a column is a list of numbers, in the layout of all but old files: a group of a repeated group of one leaf.
fn is_list_of_numbers(root: &Type, leaf: &ColumnDescriptor) -> bool {
    let info = root.get_basic_info();
    let is_list = info.logical_type_ref() == Some(&LogicalType::List)
        || info.converted_type() == ConvertedType::LIST;
    let has_one = |group: &Type| group.is_group() && group.get_fields().len() == 1;
    let is_deep = has_one(root)
        && has_one(&root.get_fields()[0])
        && leaf.path().parts().len() == 3
        && leaf.max_rep_level() == 1
        && leaf.self_type().get_basic_info().repetition() != Repetition::REPEATED;
    let is_number = leaf.converted_type() == ConvertedType::NONE
        && !matches!(
            leaf.physical_type(),
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY | Physical::INT96
        );
    is_list && is_deep && is_number
}

fn read_lists(file: &File, leaf: usize, column: &mut FileColumn) -> Result<()> {
    // The levels of definition of an item, and of a value, if items may be null.
    let descriptor = file.metadata().file_metadata().schema_descr().column(leaf);
    let value = descriptor.max_def_level();
    let levels = (
        value - i16::from(descriptor.self_type().is_optional()),
        value,
    );
    let (mut lists, mut row_count) = (Lists::new(), 0);
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let push = |row: Option<&[f64]>| {
            match row {
                Some(row) => lists.add_row(row, column.keep.arrays),
                None => drop(column.odd.get_or_insert((row_count, "null".to_string()))),
            }
            row_count += 1;
        };
        use ColumnReader as Reader;
        match group.get_column_reader(leaf)? {
            Reader::BoolColumnReader(from) => each(from, rows, levels, |&x| x.into(), push),
            Reader::Int32ColumnReader(from) => each(from, rows, levels, |&x| x.into(), push),
            // Exact up to 2^53, like any number in a line.
            Reader::Int64ColumnReader(from) => each(from, rows, levels, |&x| x as f64, push),
            Reader::FloatColumnReader(from) => each(from, rows, levels, |&x| x.into(), push),
            Reader::DoubleColumnReader(from) => each(from, rows, levels, |&x| x, push),
            _ => Err(ParquetError::NYI("such a list".to_string())),
        }?;
    }
    column.filled = row_count;
    if lists.starts.len() > 1 {
        column.first = array_of(lists.length(0));
        column.data = ColumnData::Lists(lists);
    }
    Ok(())
}

/// Passes each row of a leaf to a function, with NaN for null.
fn each<T: DataType>(
    mut from: ColumnReaderImpl<T>,
    rows: usize,
    (item, value): (i16, i16),
    number: impl Fn(&T::T) -> f64,
    mut push: impl FnMut(Option<&[f64]>),
) -> Result<()> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let levels = (Some(&mut defined), Some(&mut repeated));
        match from
            .read_records(rows - read, levels.0, levels.1, &mut values)?
            .0
        {
            0 => return Err(ParquetError::EOF("a column has too few rows".to_string())),
            records => read += records,
        }
    }
    let mut values = values.iter().map(number);
    let (mut at, mut row) = (0, Vec::new());
    while at < defined.len() {
        let is_null = defined[at] + 1 < item;
        row.clear();
        loop {
            if defined[at] >= item {
                let number = (defined[at] == value).then(|| values.next()).flatten();
                row.push(number.unwrap_or(f64::NAN));
            }
            at += 1;
            if repeated.get(at).is_none_or(|&level| level == 0) {
                break;
            }
        }
        push((!is_null).then_some(&row[..]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ::parquet::data_type::{DoubleType, Int64Type};
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;

    use crate::files::{Mapping, ReadOptions, read};

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
