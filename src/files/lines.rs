//! Lines of JSON, one response each: read block by block in parallel, and copied with values added.

use std::io::{self, BufRead, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32c::crc32c_append;
use rayon::prelude::*;

use super::format::is_parquet;
use super::json::{self, Places, Type};
use super::names::{FileKind, Names, Schema};
use super::open::{self, LONGEST_LINE, Lines, Sink};
use super::parquet::{self, Shape};
use super::replace::{Replacement, cannot_be_written};
use super::table::{Rows, Table};
use super::{Progress, cannot_be_read, changed};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Bytes per thread that are read, parsed and taken together.
const BLOCK: usize = 1 << 20;

/// Bytes of a block that one thread parses at a time.
const PART: usize = 128 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file of lines, some megabytes at a time: while one block is parsed, the one before is taken and the next one is read.
pub(super) struct Blocks<F> {
    path: PathBuf,
    file: F,
    /// The next block, which is empty at the end of the file.
    block: Vec<u8>,
    /// The beginning of the first line of the block after it.
    rest: Vec<u8>,
    /// The checksum of all bytes so far.
    sum: u32,
    /// The byte order mark, which is in no block.
    mark: &'static [u8],
    /// The blank lines before the first block.
    pub(super) passed: usize,
}

impl<'a> Blocks<Lines<'a>> {
    pub(super) fn open(path: &Path, progress: &'a Progress) -> Result<Self, Diagnostic> {
        let opened = open::lines(path, progress);
        Blocks::new(path, opened.map_err(|error| cannot_be_read(path, &error))?)
    }
}

impl<F: Read + Send> Blocks<F> {
    fn new(path: &Path, file: F) -> Result<Self, Diagnostic> {
        let mut blocks = Blocks {
            path: path.to_path_buf(),
            file,
            block: Vec::new(),
            rest: Vec::new(),
            sum: 0,
            mark: b"",
            passed: 0,
        };
        blocks.block = blocks.next()?;
        if blocks.block.starts_with(BYTE_ORDER_MARK) {
            blocks.mark = BYTE_ORDER_MARK;
            blocks.block.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(blocks)
    }

    fn next(&mut self) -> Result<Vec<u8>, Diagnostic> {
        let size = BLOCK * rayon::current_num_threads();
        let mut block = Vec::with_capacity(size + self.rest.len());
        block.append(&mut self.rest);
        loop {
            let before = block.len();
            let file = self.file.by_ref();
            let read = file.take(size as u64).read_to_end(&mut block);
            let read = read.map_err(|error| cannot_be_read(&self.path, &error))?;
            self.sum = crc32c_append(self.sum, &block[before..]);
            let end = block[before..].iter().rposition(|&byte| byte == b'\n');
            match end {
                _ if read == 0 => return Ok(block),
                Some(end) => {
                    self.rest = block.split_off(before + end + 1);
                    return Ok(block);
                }
                None if block.len() as u64 > LONGEST_LINE => {
                    let what = format!("a line has more than {LONGEST_LINE} bytes");
                    return Err(cannot_be_read(&self.path, &io::Error::other(what)));
                }
                // A long line goes on.
                None => {}
            }
        }
    }

    /// A checksum of the file, of which all lines have been read.
    fn checksum(&self) -> io::Result<u32> {
        match is_parquet(&self.path) {
            true => open::checksum_of_end(&self.path),
            false => Ok(self.sum),
        }
    }

    /// Goes to the first block with a response, and gives the fields of that with the types of their values.
    pub(super) fn begin(&mut self) -> Result<Vec<(String, Type)>, Diagnostic> {
        while !self.block.is_empty() {
            for (line, number) in lines(&self.block).zip(self.passed + 1..) {
                let here = |error: Diagnostic| error.on_line(number).in_file(&self.path);
                if let Some(text) = text(line).map_err(here)? {
                    return json::types(text).map_err(here);
                }
            }
            self.passed += lines(&self.block).count();
            self.block = self.next()?;
        }
        let error = Diagnostic::error("there is no response in the file");
        let error = error.expected("one JSON object a line, one line a response");
        Err(error.in_file(&self.path))
    }

    /// Goes through all blocks: `parse` makes something of each, and `take` gets that in order.
    pub(super) fn each<P: Send>(
        &mut self,
        parse: impl Fn(&[u8]) -> P + Sync,
        mut take: impl FnMut(&[u8], P) -> Result<(), Diagnostic> + Send,
    ) -> Result<(), Diagnostic> {
        let mut block = std::mem::take(&mut self.block);
        let mut parsed: Option<(Vec<u8>, P)> = None;
        let mut failed = Ok(());
        while !block.is_empty() {
            let before = parsed.take();
            let take = || before.map_or(Ok(()), |(block, made)| take(&block, made));
            let ((taken, made), next) =
                rayon::join(|| rayon::join(take, || parse(&block)), || self.next());
            taken?;
            // What is wrong in the lines so far comes before a failure to read on.
            let next = next.unwrap_or_else(|error| {
                failed = Err(error);
                Vec::new()
            });
            parsed = Some((std::mem::replace(&mut block, next), made));
        }
        parsed.map_or(Ok(()), |(block, made)| take(&block, made))?;
        failed
    }

    /// Copies the lines to a file, if it is given, with values for some fields: see [`Blocks::copy`]. The columns of a copy of a
    /// parquet file stay as they are. If a checksum is given, it is that of the lines.
    pub(super) fn copy_to<P: Send>(
        &mut self,
        output: Option<&Path>,
        checksum: Option<u32>,
        fields: &[(&str, Shape)],
        parse: impl Fn(&[(&str, &str)]) -> Result<P, Diagnostic> + Sync,
        mut values: impl FnMut(usize, P) -> Result<Vec<Option<Vec<u8>>>, Diagnostic> + Send,
        wrong: impl Fn(usize, Diagnostic) -> Diagnostic + Sync,
    ) -> Result<(), Diagnostics> {
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let Some(output) = output else {
            return Ok(self.copy(None, &names, parse, values, wrong)?);
        };
        let mut file = Replacement::new(output)?;
        if is_parquet(&self.path) && is_parquet(output) {
            let mut rows = Vec::new();
            let keep = |line, made| {
                rows.push(values(line, made)?);
                Ok(Vec::new())
            };
            self.copy(None, &names, parse, keep, wrong)?;
            parquet::write_copy(&self.path, fields, |row| rows[row].clone(), &mut file)?;
        } else {
            let failed = |error: io::Error| cannot_be_written(output, &error);
            let mut sink = Sink::new(output, &mut file).map_err(failed)?;
            self.copy(Some((output, &mut sink)), &names, parse, values, wrong)?;
            sink.finish().map_err(failed)?;
        }
        if checksum.is_some_and(|checksum| !self.checksum().is_ok_and(|found| found == checksum)) {
            return Err(changed(&self.path, "its bytes are others").into());
        }
        file.finish()
    }

    /// Copies the lines to `out`, if there is one, each with values for the fields `names`, and otherwise byte for byte. `parse`
    /// makes something of each line that is not blank, in parallel; `values` gives its values, in order; `wrong` makes the error
    /// for a line by its number.
    fn copy<P: Send>(
        &mut self,
        mut out: Option<(&Path, &mut Sink)>,
        names: &[&str],
        parse: impl Fn(&[(&str, &str)]) -> Result<P, Diagnostic> + Sync,
        mut values: impl FnMut(usize, P) -> Result<Vec<Option<Vec<u8>>>, Diagnostic> + Send,
        wrong: impl Fn(usize, Diagnostic) -> Diagnostic + Sync,
    ) -> Result<(), Diagnostic> {
        if let Some((place, out)) = &mut out {
            let written = out.write_all(self.mark);
            written.map_err(|error| cannot_be_written(place, &error))?;
        }
        let mut number = self.passed;
        let parse = |line: &[u8]| -> Result<Option<(P, Places)>, Diagnostic> {
            let Some(text) = text(line)? else {
                return Ok(None);
            };
            let fields = json::fields(text)?;
            Ok(Some((parse(&fields)?, Places::new(text, &fields, names))))
        };
        self.each(
            |block| {
                let lines: Vec<&[u8]> = lines(block).collect();
                lines.into_par_iter().map(parse).collect::<Vec<_>>()
            },
            |block, parsed| {
                for (line, parsed) in lines(block).zip(parsed) {
                    number += 1;
                    let places = match parsed.map_err(|error| wrong(number, error))? {
                        Some((made, places)) => Some((values(number, made)?, places)),
                        None => None,
                    };
                    let Some((place, out)) = &mut out else {
                        continue;
                    };
                    let written = match places {
                        Some((values, places)) => places.write(line, names, &values, *out),
                        None => out.write_all(line),
                    };
                    written.map_err(|error| cannot_be_written(place, &error))?;
                }
                Ok(())
            },
        )
    }
}

impl Rows {
    /// Adds the lines of a block, one after another.
    fn read(&mut self, block: &[u8]) -> Result<(), Diagnostic> {
        for line in lines(block) {
            let number = self.responses + self.blank.len() + 1;
            let here = |error: Diagnostic| error.on_line(number);
            match text(line).map_err(here)? {
                Some(text) => self.line(text).map_err(here)?,
                None => self.blank.push(self.responses),
            }
        }
        Ok(())
    }

    /// The lines of a block in parts of at least so many bytes, parsed in parallel into rows of their own; `None` for a part in
    /// which a line is wrong.
    fn parts(names: &Arc<Names>, block: &[u8], least: usize) -> Vec<(Range<usize>, Option<Rows>)> {
        let (mut parts, mut start) = (Vec::new(), 0);
        while start < block.len() {
            let end = block.len().min(start + least);
            let end = end + line_end(&block[end..]);
            parts.push(start..end);
            start = end;
        }
        let parts = parts.into_par_iter().map(|part| {
            let mut rows = Rows::new(names.clone());
            let read = rows.read(&block[part.clone()]);
            (part, read.is_ok().then_some(rows))
        });
        parts.collect()
    }

    /// Adds a parsed block. A part that is wrong, or in which a column is no longer of one kind, is read once more line by line,
    /// for the errors and notes that a single thread would give.
    fn add(
        &mut self,
        block: &[u8],
        parts: Vec<(Range<usize>, Option<Rows>)>,
    ) -> Result<(), Diagnostic> {
        for (part, rows) in parts {
            match rows {
                Some(rows) if self.goes_on_in(&rows) => self.append(rows),
                _ => self.read(&block[part])?,
            }
        }
        Ok(())
    }
}

/// Reads a file or a folder of lines.
pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Table, Diagnostic> {
    read_blocks(Blocks::open(path, progress)?, schema)
}

fn read_blocks(mut blocks: Blocks<impl Read + Send>, schema: Schema) -> Result<Table, Diagnostic> {
    let names = Arc::new(schema(&blocks.begin()?, FileKind::Lines)?);
    let mut rows = Rows::new(names.clone());
    rows.blank = vec![0; blocks.passed];
    let path = blocks.path.clone();
    blocks.each(
        |block| Rows::parts(&names, block, PART),
        |block, parts| {
            let added = rows.add(block, parts);
            added.map_err(|error| error.in_file(&path))
        },
    )?;
    let checksum = blocks.checksum();
    let checksum = checksum.map_err(|error| cannot_be_read(&path, &error))?;
    Ok(rows.finish(path, checksum))
}

/// The bytes of a line, its ending among them.
fn line_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    // Memory can always be read.
    rest.skip_until(b'\n').unwrap_or(bytes.len())
}

/// Lines with their endings.
fn lines(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (line, rest) = bytes.split_at(line_end(bytes));
        bytes = rest;
        (!line.is_empty()).then_some(line)
    })
}

/// A line as a string; `None` if it is blank.
fn text(line: &[u8]) -> Result<Option<&str>, Diagnostic> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let (before, after) = line.split_at(error.valid_up_to());
        let byte = after.first().copied().unwrap_or_default();
        Diagnostic::error("")
            .found(format!("the byte 0x{byte:02x}, which is not UTF-8 there"))
            .expected("text in UTF-8")
            .at_column(String::from_utf8_lossy(before).chars().count() + 1)
    })?;
    let is_blank = text.bytes().all(|byte| b" \t\r\n".contains(&byte));
    Ok((!is_blank).then_some(text))
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
        let told = |lines: &str| {
            let blocks = Blocks::new(Path::new("x.jsonl"), Torn(lines.as_bytes()));
            let table = read_blocks(blocks.unwrap(), &|_, _| Ok(Names::default()));
            format!("{:?}", table.map(drop).expect_err("it is torn"))
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
            let names = Arc::new(Names { count_words: true, ..Names::default() });
            let mut expected = Rows::new(names.clone());
            let read = expected.read(&block);
            let mut found = Rows::new(names);
            let added = found.add(&block, Rows::parts(&found.names.clone(), &block, least));
            prop_assert_eq!(format!("{added:?}"), format!("{read:?}"));
            if read.is_ok() {
                let all = |rows: Rows| {
                    let table = rows.finish(PathBuf::new(), 0);
                    format!("{:?} {:?}", table.columns, table.origin)
                };
                prop_assert_eq!(all(found), all(expected));
            }
        }
    }
}
