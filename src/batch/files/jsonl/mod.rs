//! JSONL, one response a line: reads it line by line, and writes the lines back with the advantage put in.

mod completion;
mod cursor;
mod dumps;
mod finish;
mod groups;
mod json;
mod rows;
mod shape;
mod slot;
mod write;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use self::json::{Fault, Line};
use self::rows::Rows;
pub(super) use self::write::write;
use super::{Parts, ReadError, ReadOptions};

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
fn column(text: &str, at: usize) -> usize {
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
