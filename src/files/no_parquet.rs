//! Stands in for `parquet.rs` in a build without the feature `parquet`: each file is an error that says how to build it.

use std::fs::File;
use std::io;
use std::iter::Empty;
use std::path::Path;

use super::Progress;
use super::names::Schema;
use super::new_columns::NewColumn;
use super::table::Table;
use crate::diagnostic::Diagnostic;
use crate::replace::Replacement;

#[derive(Clone, Copy, Debug)]
pub(super) enum ValueType {
    Bool,
    Int,
    Float,
}

pub(super) type Shape = (ValueType, bool);

pub(super) enum AddedValues<'a> {
    Numbers(#[expect(dead_code)] &'a NewColumn<'a>),
}

impl AddedValues<'_> {
    pub(super) fn of_json(_: Shape, _: Vec<Option<Vec<u8>>>) -> Self {
        unreachable!("the file has been refused")
    }

    pub(super) fn is_empty(&self) -> bool {
        false
    }
}

pub(super) fn read(path: &Path, _: Schema) -> Result<Table, Diagnostic> {
    Err(Diagnostic::not_built("parquet").in_file(path))
}

pub(super) fn lines(_: File, _: &Progress) -> io::Result<Empty<io::Result<String>>> {
    Err(io::Error::other(Diagnostic::not_built("parquet")))
}

pub(super) fn write_copy(
    input: &Path,
    _: &[(&str, AddedValues)],
    _: &mut Replacement,
) -> Result<(), Diagnostic> {
    Err(Diagnostic::not_built("parquet").in_file(input))
}
