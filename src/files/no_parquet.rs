//! Stands in for `parquet.rs` in a build without the feature `parquet`: each file is an error that says how to build it.

use std::fs::File;
use std::io;
use std::iter::Empty;
use std::path::Path;

use super::Progress;
use super::lines::Values;
use super::names::Schema;
use super::replace::Replacement;
use super::table::Table;
use crate::diagnostic::Diagnostic;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ValueType {
    Bool,
    Int,
    Float,
}

pub(super) type Shape = (ValueType, bool);

fn error() -> io::Error {
    io::Error::other(Diagnostic::not_built("parquet"))
}

pub(super) fn read(path: &Path, _: Schema) -> Result<Table, Diagnostic> {
    Err(Diagnostic::not_built("parquet").in_file(path))
}

pub(super) fn lines(_: File, _: &Progress) -> io::Result<Empty<io::Result<String>>> {
    Err(error())
}

pub(super) fn write_lines(_: File, _: &mut Replacement) -> io::Result<Vec<String>> {
    Err(error())
}

pub(super) fn write_copy(
    input: &Path,
    _: &[(&str, Shape)],
    _: impl IntoIterator<Item = Values>,
    _: &mut Replacement,
) -> Result<(), Diagnostic> {
    Err(Diagnostic::not_built("parquet").in_file(input))
}
