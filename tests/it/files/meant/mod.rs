//! What is read is what was meant: which text is the answer and which the reference, which fields are rewards, and which rows form
//! a group. Each row of a table is a value as trainers, servers and data sets write it.

mod fields;
mod groups;
mod late;
mod references;
mod texts;

use std::fs;
use std::path::{Path, PathBuf};

use super::{mapping, notes, read_as, read_only, try_read};
use crate::parquet_rows;
use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::files::{self, Compared, Mapping, ReadOptions, Unscored, verify_lines};
use advlab_answers::Verdict;
use serde_json::{Map, Value};

/// The rows of a table, whose cells are separated by ` | `. A line that begins with `# ` is a comment.
fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let lines = table.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines.map(|line| {
        let cells: Vec<&str> = line.splitn(N, " | ").map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{line}"))
    })
}

/// A text with its names replaced by the texts for which they stand according to a table.
fn in_full(text: &str, names: &str) -> String {
    let named = |text: String, [name, meant]: [&str; 2]| text.replace(name, meant);
    rows(names).fold(text.to_string(), named)
}

/// A file in a folder of its own.
fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// A file of lines, each of which is an object with some fields.
fn file_of(fields: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let lines = fields.iter().map(|fields| format!("{{{fields}}}\n"));
    file("a.jsonl", &lines.collect::<String>())
}

/// The mapping that `column=field` stands for; none for a text without `=`.
fn map_of(text: &str) -> Vec<Mapping> {
    let pair = text.split_once('=');
    pair.iter()
        .map(|(ours, theirs)| mapping(ours, theirs))
        .collect()
}

/// What `verify` says of lines: a letter for each (right, wrong, no answer, undecided, - for no reference), and what it compared; or
/// the error without the path.
fn letters(path: &Path, asked: [Option<&str>; 2]) -> Result<(String, Compared), String> {
    let mut letters = String::new();
    let mut told = |_, verified: files::Verified| {
        letters.push(match verified.verdict {
            Some(Verdict::Equal) => 'r',
            Some(Verdict::Different) => 'w',
            Some(Verdict::NoAnswer) => 'n',
            Some(Verdict::Undecided) => 'u',
            None => '-',
        });
    };
    let compared = verify_lines(path, asked, None, &|_, _| {}, None, &mut told);
    let wrong = |error: Diagnostics| {
        let error = error.to_string();
        error.replace(&format!("{}, ", path.display()), "")
    };
    Ok((letters, compared.map_err(wrong)?))
}

/// The letters and the notes, or the error.
fn verified(path: &Path, asked: [Option<&str>; 2]) -> String {
    let told = letters(path, asked).map(|(letters, compared)| {
        let notes = compared.notes.iter();
        notes.fold(letters, |all, note| format!("{all}; {note}"))
    });
    told.unwrap_or_else(|error| error)
}

/// The column `verified`, as a recipe reads it.
fn verified_in(batch: &Batch) -> Vec<f64> {
    let host = advlab::script::Host::new();
    let recipe = host.compile("r", "fn advantage(batch, p) { batch.verified }");
    let recipe = recipe.unwrap();
    let outcome = recipe.advantage(batch, &mut recipe.init().unwrap());
    outcome.unwrap().advantage.by_response()
}

/// The batch that is read if responses without a reward are left out, or scored as 0.
fn read_unscored(path: &Path, unscored: Unscored, map: &[Mapping]) -> Batch {
    let options = ReadOptions {
        map,
        unscored,
        ..ReadOptions::default()
    };
    let read = files::read(path, &options);
    read.unwrap_or_else(|error| panic!("{error}")).batch
}

/// Numbers, separated by spaces.
fn joined<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(" ")
}

fn column(batch: &Batch, name: &str) -> Vec<f64> {
    batch.response_column(name).unwrap_or_default().to_vec()
}

/// The same file as parquet, in which objects and arrays of other things than numbers are strings of JSON.
fn parquet(path: &Path) -> PathBuf {
    let rows = fs::read_to_string(path).unwrap();
    let rows = rows.lines().map(|line| {
        let mut row: Map<String, Value> = serde_json::from_str(line).unwrap();
        for value in row.values_mut() {
            let numbers = value.as_array().filter(|list| !list.is_empty());
            let is_list = numbers.is_some_and(|list| list.iter().all(Value::is_number));
            if value.is_object() || value.is_array() && !is_list {
                *value = Value::String(value.to_string());
            }
        }
        Value::Object(row).to_string()
    });
    let out = path.with_extension("parquet");
    parquet_rows::write(&out, &rows.collect::<Vec<_>>().join("\n")).unwrap();
    out
}
