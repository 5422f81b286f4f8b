//! JSONL, one response a line: reads blocks of lines into columns, in parallel, and writes the lines back with the
//! advantage put in.

mod columns;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crc32c::crc32c_append;
use rayon::prelude::*;

use self::columns::Columns;
use super::lines::{self, LONGEST, Sink};
use super::names::Names;
use super::raw::{Header, Origin, Raw, Schema};
use super::replace::{Replacement, cannot_be_written};
use super::spread::Spread;
use super::{Progress, cannot_be_read, changed};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Bytes that are read, parsed and added to the columns together, for each thread.
const BLOCK: usize = 1 << 20;

/// Bytes of a block that one thread parses at a time.
const PART: usize = 128 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of a file, block by block.
struct Blocks<F> {
    file: F,
    /// The beginning of the next block's first line.
    rest: Vec<u8>,
    /// The checksum of all bytes so far.
    sum: u32,
}

impl<F: Read> Blocks<F> {
    /// The next block of whole lines; it is empty at the end of the file.
    fn next(&mut self) -> io::Result<Vec<u8>> {
        let size = BLOCK * rayon::current_num_threads();
        let mut block = Vec::with_capacity(size + self.rest.len());
        block.append(&mut self.rest);
        loop {
            let before = block.len();
            let read = self
                .file
                .by_ref()
                .take(size as u64)
                .read_to_end(&mut block)?;
            self.sum = crc32c_append(self.sum, &block[before..]);
            let end = block[before..].iter().rposition(|&byte| byte == b'\n');
            match end {
                _ if read == 0 => return Ok(block),
                Some(end) => {
                    self.rest = block.split_off(before + end + 1);
                    return Ok(block);
                }
                None if block.len() as u64 > LONGEST => {
                    return Err(io::Error::other(format!(
                        "a line has more than {LONGEST} bytes"
                    )));
                }
                // A long line goes on.
                None => {}
            }
        }
    }
}

/// Lines that follow each other in a block, read into columns of their own; `None` where one of them is wrong.
struct Part {
    lines: Range<usize>,
    columns: Option<Columns>,
}

impl Part {
    /// Parses the lines of a block in parallel, in parts of at least so many bytes.
    fn all(block: &[u8], least: usize, names: &Arc<Names>) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut end = 0;
        while end < block.len() {
            let start = end;
            end = block.len().min(start + least);
            end += line_end(&block[end..]);
            parts.push(start..end);
        }
        let parts = parts.into_par_iter().map(|lines| {
            let bytes = &block[lines.clone()];
            let mut columns = Columns::new(names.clone());
            let is_right = columns.read(bytes).is_ok();
            Part {
                columns: is_right.then_some(columns),
                lines,
            }
        });
        parts.collect()
    }
}

/// The bytes of a line, its ending among them.
fn line_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    match rest.skip_until(b'\n') {
        Ok(length) => length,
        Err(_) => unreachable!("memory can be read"),
    }
}

/// All columns of a file, and the parts of the last block, which are still to be added.
struct Reading {
    columns: Columns,
    block: Vec<u8>,
    parts: Vec<Part>,
}

impl Reading {
    /// Adds the parsed block to the columns. A part that is wrong, or in which a column is no longer of one kind, is read
    /// once more, line by line as all would be by one thread: it has the errors and the remarks that the file has.
    fn add(&mut self) -> Result<(), Diagnostic> {
        for part in self.parts.drain(..) {
            let bytes = &self.block[part.lines];
            match part.columns {
                Some(columns) if self.columns.goes_on_in(&columns) => self.columns.append(columns),
                _ => self.columns.read(bytes)?,
            }
        }
        Ok(())
    }
}

/// Reads a file. While one block is parsed, the one before is added to the columns and the next one is read.
pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Raw, Diagnostic> {
    let opened = lines::open(path, progress);
    let lines = opened.map_err(|error| cannot_be_read(path, &error))?;
    read_lines(path, lines, schema)
}

fn read_lines(path: &Path, file: impl Read + Send, schema: Schema) -> Result<Raw, Diagnostic> {
    let no_read = |error: io::Error| cannot_be_read(path, &error);
    let here = |error: Diagnostic| error.in_file(path);
    let mut blocks = Blocks {
        file,
        rest: Vec::new(),
        sum: 0,
    };
    let mut block = blocks.next().map_err(no_read)?;
    let mark = match block.starts_with(BYTE_ORDER_MARK) {
        true => block.drain(..BYTE_ORDER_MARK.len()).len(),
        false => 0,
    };
    let mut reading = Reading {
        columns: Columns::default(),
        block: Vec::new(),
        parts: Vec::new(),
    };
    let fields = loop {
        if block.is_empty() {
            let what = "there is no response in the file";
            let expected = "one JSON object a line, one line a response";
            return Err(here(Diagnostic::error(what).expected(expected)));
        }
        if let Some(fields) = reading.columns.first_fields(&block).map_err(here)? {
            break fields;
        }
        // Blank lines are numbered too.
        reading.columns.read(&block).map_err(here)?;
        block = blocks.next().map_err(no_read)?;
    };
    let names = Arc::new(schema(&fields, &Header::Lines)?);
    reading.columns.names = names.clone();
    let mut failed = None;
    while !block.is_empty() {
        let ((added, parts), next) = rayon::join(
            || rayon::join(|| reading.add(), || Part::all(&block, PART, &names)),
            || blocks.next(),
        );
        added.map_err(here)?;
        reading.parts = parts;
        // What is wrong in the lines so far comes before a failure to read on.
        let next = next.unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        });
        reading.block = std::mem::replace(&mut block, next);
    }
    reading.add().map_err(here)?;
    if let Some(error) = failed {
        return Err(no_read(error));
    }
    drop(names);
    let mut columns = reading.columns.finish();
    if let Some(line) = columns.lines.first_mut().filter(|line| line.number == 1) {
        line.room = line.room.start + mark..line.room.end + mark;
    }
    Ok(Raw {
        path: path.to_path_buf(),
        header: Header::Lines,
        names: Arc::unwrap_or_clone(columns.names),
        columns: columns.columns,
        origin: Origin::Lines {
            lines: columns.lines,
            sum: blocks.sum,
        },
    })
}

/// Lines of a file in parallel, block by block: what `of_line` makes of each one with its number, and of blank ones nothing,
/// comes in order to `take`, which says whether to go on.
pub(super) fn map_lines<R: Send>(
    path: &Path,
    progress: &Progress,
    of_line: impl Fn(usize, &str) -> Result<R, Diagnostic> + Sync,
    mut take: impl FnMut(&str, Option<R>) -> Result<bool, Diagnostics>,
) -> Result<(), Diagnostics> {
    let no_read = |error: io::Error| cannot_be_read(path, &error);
    let file = lines::open(path, progress).map_err(no_read)?;
    let (rest, sum) = (Vec::new(), 0);
    let mut blocks = Blocks { file, rest, sum };
    let mut number = 0;
    let mut block = blocks.next().map_err(no_read)?;
    while !block.is_empty() {
        let all: Vec<&[u8]> = columns::lines(&block).collect();
        let (made, next) = rayon::join(
            || {
                let texts = all.par_iter().enumerate().map(|(index, line)| {
                    let here = |error: Diagnostic| error.on_line(number + index + 1).in_file(path);
                    let text = columns::text(line).map_err(here)?;
                    let text = text.map(|text| text.trim_start_matches('\u{feff}'));
                    let made = text
                        .map(|text| of_line(number + index + 1, text))
                        .transpose();
                    Ok((text, made.map_err(here)?))
                });
                texts.collect::<Vec<Result<_, Diagnostic>>>()
            },
            || blocks.next(),
        );
        for (made, line) in made.into_iter().zip(&all) {
            let (text, made) = made?;
            let text = text.or_else(|| std::str::from_utf8(line).ok());
            if !take(text.unwrap_or_default(), made)? {
                return Ok(());
            }
        }
        number += all.len();
        block = next.map_err(no_read)?;
    }
    Ok(())
}

/// Writes the lines of `input` to `out`, each with its advantage, what else there is behind it, and otherwise to the byte as it
/// is.
pub(super) fn write(
    input: &Path,
    origin: &Origin,
    spreads: &[Spread],
    place: &Path,
    file: &mut Replacement,
) -> Result<(), Diagnostic> {
    let Origin::Lines { lines, sum } = origin else {
        unreachable!("lines are written for a file that was read as lines");
    };
    let is_gone = |error: io::Error| changed(input, error);
    let progress = Progress::default();
    let copy = lines::open(input, &progress).map_err(is_gone)?;
    let mut copy = BufReader::with_capacity(BLOCK, copy);
    let failed = |error: io::Error| cannot_be_written(place, &error);
    let mut out = Sink::new(place, file).map_err(failed)?;
    let mut lines = lines.iter().enumerate().peekable();
    let (mut bytes, mut value) = (Vec::new(), Vec::new());
    let mut found = 0;
    for number in 1.. {
        bytes.clear();
        if copy.read_until(b'\n', &mut bytes).map_err(is_gone)? == 0 {
            break;
        }
        found = crc32c_append(found, &bytes);
        let written = match lines.next_if(|(_, line)| line.number == number) {
            None => out.write_all(&bytes),
            Some((response, line)) => {
                let (Some(before), Some(after)) =
                    (bytes.get(..line.room.start), bytes.get(line.room.end..))
                else {
                    return Err(changed(input, "a line is shorter"));
                };
                value.clear();
                for (at, spread) in spreads.iter().enumerate() {
                    if at > 0 {
                        value.extend(format!(", \"{}\": ", spread.name).as_bytes());
                    }
                    spread.json(response, &mut value);
                }
                let parts = [before, line.key.as_bytes(), &value, after];
                parts.iter().try_for_each(|part| out.write_all(part))
            }
        };
        written.map_err(failed)?;
    }
    if found != *sum || lines.next().is_some() {
        return Err(changed(input, "its bytes are others"));
    }
    out.finish().map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The fields of a line are these or none: values of all kinds, most of them alike.
    const FIELDS: [(&str, [&str; 5]); 6] = [
        ("group", ["1", "1", "2", "\"a\"", "null"]),
        ("reward", ["0.5", "1", "true", "null", "\"x\""]),
        ("old_logp", ["[1, 2]", "[]", "[3]", "null", "[\"x\"]"]),
        ("completion", ["\"a b\"", "\"\"", "\"c\"", "[]", "null"]),
        ("note", ["null", "null", "null", "1", "[1]"]),
        ("text", ["\"a\"", "\"b\"", "\"c\"", "{}", "2"]),
    ];

    fn line(odd: bool) -> impl Strategy<Value = String> {
        let kinds: usize = if odd { 6 } else { 3 };
        let fields = FIELDS.map(|(name, values)| {
            (0..kinds).prop_map(move |kind| {
                let value = values.get(kind)?;
                Some(format!("\"{name}\":{value}"))
            })
        });
        fields.prop_map(|fields| {
            let fields: Vec<String> = fields.into_iter().flatten().collect();
            format!("{{{}}}\n", fields.join(","))
        })
    }

    /// Gives some lines, then fails.
    struct Torn<'a>(&'a [u8]);

    impl Read for Torn<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("the disk is gone")),
                read => Ok(read),
            }
        }
    }

    #[test]
    fn a_wrong_line_is_told_before_a_failure_to_read_on() {
        // More than a block, so that the failure comes after the lines.
        let right = "{\"group\":1,\"reward\":0.5}\n";
        let lines = right.repeat((BLOCK * rayon::current_num_threads()) / right.len() + 2);
        let schema = |_: &[(String, super::super::json::Type)], _: &Header| Ok(Names::default());
        let told = |lines: &str| {
            let file = Torn(lines.as_bytes());
            let raw = read_lines(Path::new("x.jsonl"), file, &schema);
            format!("{:?}", raw.map(drop).expect_err("it is torn"))
        };
        assert!(told(&lines).contains("the disk is gone"));
        let wrong = lines.replacen("0.5", "0.5.5", 1);
        assert!(!told(&wrong).contains("the disk is gone"));
    }

    proptest! {
        #[test]
        fn parts_give_the_columns_and_the_errors_of_the_lines_one_by_one(
            lines in prop::collection::vec(prop_oneof![
                8 => line(false), 2 => line(true), 1 => Just("\n".to_string()), 1 => Just("{\"group\":}\n".to_string())
            ], 1..12),
            least in 1usize..200,
        ) {
            let block = lines.concat().into_bytes();
            let mut names = Names::default();
            names.count_words = true;
            let names = Arc::new(names);
            let mut all = Columns::new(names.clone());
            let expected = all.read(&block);
            let parts = Part::all(&block, least, &names);
            let columns = Columns::new(names);
            let mut reading = Reading { columns, block, parts };
            prop_assert_eq!(format!("{:?}", reading.add()), format!("{expected:?}"));
            if expected.is_ok() {
                let found = reading.columns.finish();
                let expected = all.finish();
                prop_assert_eq!(format!("{:?}", found.lines), format!("{:?}", expected.lines));
                prop_assert_eq!(format!("{:?}", found.columns), format!("{:?}", expected.columns));
            }
        }
    }
}
