//! Writes the lines of a JSONL file back, each with its advantage and otherwise to the byte as it is.

use std::io::Write;
use std::path::Path;

use super::json::Line;
use super::{Lines, is_blank};
use crate::batch::files::replace::Replacement;
use crate::batch::files::{ReadError, WriteError};
use crate::batch::{Computed, FloatBuffer, Layout, Level};

/// Writes the lines of `input` to `out`, each with its advantage and otherwise to the byte as it is.
pub(in crate::batch::files) fn write(
    input: &Path,
    numbers: &[usize],
    layout: &Layout,
    advantage: &Computed,
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
        .find(|field| field.name(text) == "advantage");
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
    [
        &text.as_bytes()[..start],
        key,
        value,
        &text.as_bytes()[end..],
    ]
}

/// The advantage of one response in JSON, or the token and the value that JSON has no number for.
fn value(
    out: &mut Vec<u8>,
    layout: &Layout,
    advantage: &Computed,
    response: usize,
) -> Result<(), (Option<usize>, f64)> {
    if advantage.level() == Level::Response {
        let value = advantage.at(response, 0);
        number(out, value);
        return if value.is_finite() {
            Ok(())
        } else {
            Err((None, value))
        };
    }
    let mut column = 0;
    out.push(b'[');
    let pad = |out: &mut Vec<u8>, columns: std::ops::Range<usize>| {
        columns.for_each(|_| out.extend_from_slice(b"0.0, "));
    };
    for (tokens, columns) in layout.stretches(response) {
        pad(out, column..columns.start);
        column = columns.end;
        for (token, column) in tokens.zip(columns) {
            match advantage.buffer() {
                FloatBuffer::F32(values) => number(out, values[token]),
                FloatBuffer::F64(values) => number(out, values[token]),
            }
            let value = advantage.at_token(response, token);
            if !value.is_finite() {
                return Err((Some(column), value));
            }
            out.extend_from_slice(b", ");
        }
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
