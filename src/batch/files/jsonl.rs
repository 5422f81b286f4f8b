//! JSONL, one response a line: reads it line by line, and writes the lines back with the advantage put in.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use super::json::{Fault, Line};
use super::replace::Replacement;
use super::rows::Rows;
use super::{Advantage, Parts, ReadError, ReadOptions, WriteError};
use crate::batch::{Floats, Layout};

/// How often the caller hears how far the reading is.
const PROGRESS_BYTES: u64 = 4 << 20;

/// The lines of a file that are not blank.
struct Lines<'a> {
    path: &'a Path,
    input: BufReader<File>,
    bytes: Vec<u8>,
    number: usize,
    done: u64,
    total: u64,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path) -> Result<Self, ReadError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (total, file) = opened.map_err(|source| ReadError::Io {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Lines {
            path,
            input: BufReader::with_capacity(1 << 20, file),
            bytes: Vec::new(),
            number: 0,
            done: 0,
            total,
        })
    }

    /// Moves to the next line, blank or not; its bytes, ending and all, are then in `bytes`.
    fn next(&mut self) -> Result<bool, ReadError> {
        self.bytes.clear();
        let read = self.input.read_until(b'\n', &mut self.bytes);
        let read = read.map_err(|source| ReadError::Io {
            path: self.path.to_path_buf(),
            source,
        })?;
        self.number += 1;
        self.done += read as u64;
        Ok(read > 0)
    }

    /// The line as text, without a byte order mark.
    fn text(&self) -> Result<&str, ReadError> {
        let text = std::str::from_utf8(&self.bytes).map_err(|error| {
            let (before, after) = self.bytes.split_at(error.valid_up_to());
            ReadError::Json {
                path: self.path.to_path_buf(),
                line: self.number,
                column: String::from_utf8_lossy(before).chars().count() + 1,
                found: match after.first() {
                    Some(byte) => format!("the byte 0x{byte:02x}, which is not UTF-8 there"),
                    None => "half a character".to_string(),
                },
                expected: "text in UTF-8",
            }
        })?;
        Ok(match self.number {
            1 => text.strip_prefix('\u{feff}').unwrap_or(text),
            _ => text,
        })
    }

    fn error(&self, text: &str, fault: Fault) -> ReadError {
        ReadError::Json {
            path: self.path.to_path_buf(),
            line: self.number,
            column: column(text, fault.at),
            found: fault.found,
            expected: fault.expected,
        }
    }
}

/// The character at a byte of a line, from 1.
pub(super) fn column(text: &str, at: usize) -> usize {
    text.char_indices()
        .take_while(|(start, _)| *start < at)
        .count()
        + 1
}

/// Whether there is only what JSON takes for white space.
fn is_blank(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// Reads a whole file.
pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Parts, ReadError> {
    let mut lines = Lines::open(path)?;
    let mut line = Line::default();
    let mut rows: Option<Rows> = None;
    let mut told = 0;
    while lines.next()? {
        let text = lines.text()?;
        if is_blank(text) {
            continue;
        }
        line.scan(text).map_err(|fault| lines.error(text, fault))?;
        let rows = match &mut rows {
            Some(rows) => rows,
            None => rows.insert(Rows::new(path, options, text, &line)?),
        };
        rows.add(lines.number, text, &line)?;
        if let Some(progress) = options.progress
            && lines.done - told >= PROGRESS_BYTES
        {
            told = lines.done;
            progress(lines.done, lines.total);
        }
    }
    if let Some(progress) = options.progress {
        progress(lines.done, lines.total);
    }
    match rows {
        Some(rows) => rows.finish(),
        None => Err(ReadError::Empty {
            path: path.to_path_buf(),
        }),
    }
}

/// Writes the lines of `input` to `out`, each with its advantage and otherwise to the byte as it is.
pub(super) fn write(
    input: &Path,
    numbers: &[usize],
    layout: &Layout,
    advantage: Advantage,
    out: &Path,
) -> Result<(), WriteError> {
    let gone = |error: ReadError| WriteError::gone(input, error);
    let mut lines = Lines::open(input).map_err(gone)?;
    let mut file = Replacement::new(out)?;
    let mut line = Line::default();
    let mut insert = Vec::new();
    let mut response = 0;
    while lines.next().map_err(gone)? {
        let text = lines.text().map_err(gone)?;
        if is_blank(text) {
            file.write_all(&lines.bytes).map_err(|e| file.error(e))?;
            continue;
        }
        if numbers.get(response) != Some(&lines.number) {
            let what = format!("line {} is new", lines.number);
            return Err(WriteError::changed(input, what));
        }
        line.scan(text)
            .map_err(|fault| gone(lines.error(text, fault)))?;
        insert.clear();
        value(&mut insert, layout, advantage, response).map_err(|(token, found)| {
            WriteError::NotFinite {
                path: out.to_path_buf(),
                line: lines.number,
                place: token
                    .map(|token| format!(", token {token},"))
                    .unwrap_or_default(),
                found,
            }
        })?;
        let mark = lines.bytes.len() - text.len();
        let parts = splice(text, &line, &insert);
        let write = file
            .write_all(&lines.bytes[..mark])
            .and_then(|()| parts.iter().try_for_each(|part| file.write_all(part)));
        write.map_err(|error| file.error(error))?;
        response += 1;
    }
    if response != numbers.len() {
        let what = format!("it had {} responses, and has {response}", numbers.len());
        return Err(WriteError::changed(input, what));
    }
    file.finish()
}

/// The line with `value` as its field `advantage`: in place of the one that is there, or after the last field.
fn splice<'a>(text: &'a str, line: &Line, value: &'a [u8]) -> [&'a [u8]; 4] {
    let there = line
        .fields
        .iter()
        .find(|field| &text[field.key.clone()] == "advantage");
    let (start, end, key): (_, _, &[u8]) = match there {
        Some(field) => (field.place.start, field.place.end, b""),
        None => {
            // After the last value, in the style of the line: Python puts a space after a comma and a colon.
            let end = line.fields.last().map_or(line.close, |last| last.place.end);
            let spaced = line
                .fields
                .first()
                .is_some_and(|first| text[first.key.end..first.place.start].ends_with(' '));
            let key: &[u8] = match (line.fields.is_empty(), spaced) {
                (true, _) => b"\"advantage\": ",
                (false, true) => b", \"advantage\": ",
                (false, false) => b",\"advantage\":",
            };
            (end, end, key)
        }
    };
    [text[..start].as_bytes(), key, value, text[end..].as_bytes()]
}

/// The advantage of one response in JSON, or the token and the value that JSON has no number for.
fn value(
    out: &mut Vec<u8>,
    layout: &Layout,
    advantage: Advantage,
    response: usize,
) -> Result<(), (Option<usize>, f64)> {
    let values = match advantage {
        Advantage::Response(values) => {
            number(out, values[response]);
            return match values[response].is_finite() {
                true => Ok(()),
                false => Err((None, values[response])),
            };
        }
        Advantage::Token(values) => values,
    };
    let mut next = layout.tokens_of(response).start;
    let mut column = 0;
    out.push(b'[');
    let pad = |out: &mut Vec<u8>, columns: std::ops::Range<usize>| {
        columns.for_each(|_| out.extend_from_slice(b"0.0, "));
    };
    for run in layout.runs(response) {
        pad(out, column..run.columns().start);
        for place in run.columns() {
            match values {
                Floats::F32(values) => number(out, values[next]),
                Floats::F64(values) => number(out, values[next]),
            }
            let value = values.get(next);
            if !value.is_finite() {
                return Err((Some(place), value));
            }
            out.extend_from_slice(b", ");
            next += 1;
        }
        column = run.columns().end;
    }
    pad(out, column..layout.row_length(response));
    if out.ends_with(b", ") {
        out.truncate(out.len() - 2);
    }
    out.push(b']');
    Ok(())
}

/// The shortest number that reads back as the same one.
fn number<T: serde::Serialize>(out: &mut Vec<u8>, value: T) {
    // Writing a float to memory cannot fail.
    let _ = serde_json::to_writer(out, &value);
}
