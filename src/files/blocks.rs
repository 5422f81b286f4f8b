//! Files of lines are read in blocks, and the lines of a block are processed in parallel.

use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crc32c::crc32c_append;
use indexmap::IndexMap;

use super::cell::{self, JsonType};
use super::json::{self, BYTE_ORDER_MARK};
use super::place::{Place, Result};
use super::room::{ROW, Room};
use super::text::{self, LONGEST_LINE, Lines};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parallel::each;
use crate::regular_file::cannot_be_read;
use crate::replace::{Replacement, cannot_be_written};

/// The number of bytes per thread in a block. A block is read, parsed and processed as a whole.
pub(super) const BLOCK: usize = 1 << 20;

/// The number of bytes that one thread parses at a time.
const PART: usize = 128 << 10;

/// The number of lines that decide how fields are read even if they are longer than a part. There are fewer if they are longer than
/// [`BLOCK`], because each of these lines is parsed twice.
const FIRST: usize = 64;

/// A file of lines, read some megabytes at a time: while one block is parsed, the previous block is processed and the next block
/// is read.
pub(super) struct Blocks<'a> {
    pub(super) path: PathBuf,
    file: Lines<'a>,
    /// The next block, which is empty at the end of the file.
    block: Vec<u8>,
    /// The part of the block after `block` that was already read: the beginning of its first line.
    rest: Vec<u8>,
    /// The checksum of all bytes read so far.
    pub(super) sum: u32,
    /// The number of blank lines before the block that has the first response.
    pub(super) passed: usize,
}

/// The new values of a line as JSON, one for each field. `None` means that the field's value stays unchanged.
pub(super) type Values = Vec<Option<Vec<u8>>>;

impl<'a> Blocks<'a> {
    /// Unfolds and splits lines. `completion` is the field that the user names as the completion.
    pub(super) fn new(
        path: &Path,
        file: io::Result<Lines<'a>>,
        completion: Option<&str>,
    ) -> Result<Self> {
        let file = file.and_then(|file| text::unfolded(file, completion));
        let file = file.map_err(|error| cannot_be_read(path, &error))?;
        let mut blocks = Blocks {
            path: path.to_path_buf(),
            file,
            block: Vec::new(),
            rest: Vec::new(),
            sum: 0,
            passed: 0,
        };
        blocks.block = blocks.next()?;
        Ok(blocks)
    }

    fn next(&mut self) -> Result<Vec<u8>> {
        let size = BLOCK * rayon::current_num_threads();
        let mut block = Vec::with_capacity(size + self.rest.len());
        block.append(&mut self.rest);
        loop {
            let before = block.len();
            let read = (&mut self.file).take(size as u64).read_to_end(&mut block);
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
                // The line is longer than the block and continues.
                None => {}
            }
        }
    }

    /// Advances to the first block with a response, and returns the fields of the first lines with their types, because the first
    /// response may lack a field that the others have.
    pub(super) fn begin(&mut self) -> Result<IndexMap<String, JsonType>> {
        let room = Room::now();
        while !self.block.is_empty() {
            if lines(&self.block).take(FIRST).count() < FIRST {
                // Lines may be as long as a block, and the last line may lack its end.
                let next = self.next()?;
                self.block.extend(next);
            }
            let (mut seen, mut read, mut count) = (IndexMap::new(), 0, 0);
            for (line, number) in lines(&self.block).zip(self.passed + 1..) {
                let added =
                    text(line).and_then(|text| text.map_or(Ok(0), |text| see(&mut seen, text)));
                match added {
                    Err(error) if seen.is_empty() => {
                        return Err(error.on_line(number).in_file(&self.path));
                    }
                    // An error in a later line is reported when that line is read.
                    Err(_) => break,
                    Ok(bytes) => (read, count) = (read + bytes, count + usize::from(bytes > 0)),
                }
                if read >= PART && count >= FIRST || read >= BLOCK && count > 1 {
                    break;
                }
            }
            if read > 0 {
                return Ok(seen);
            }
            self.passed += lines(&self.block).count();
            let fits = room.check(ROW * self.passed as u64, "its lines take");
            fits.map_err(|error| cannot_be_read(&self.path, &error))?;
            self.block = self.next()?;
        }
        let error = Diagnostic::error("there is no response in the file");
        let error = error.expected("one JSON object per line, one line per response");
        Err(error.in_file(&self.path))
    }

    /// Returns whether a line of the next block has a field or a path; a path that lacks an index counts, so that its error is told.
    #[cfg(feature = "answers")]
    pub(super) fn has(&self, path: &str) -> bool {
        let texts = lines(&self.block).filter_map(|line| text(line).ok()?);
        let mut fields = texts.filter_map(|text| json::fields(text).ok());
        fields.any(|fields| !matches!(json::value_at(&fields, path), Ok(None)))
    }

    /// Processes all blocks: `parse` converts each part, which is a few lines, in parallel; `take` gets each part and its result,
    /// in order.
    pub(super) fn each<P: Send>(
        &mut self,
        parse: impl Fn(&[u8]) -> P + Sync,
        mut take: impl FnMut(&[u8], P) -> Result<()> + Send,
    ) -> Result<()> {
        let parse = |block: &[u8]| -> Vec<(Range<usize>, P)> {
            let parts = parts(block);
            let parsed = each(parts.len(), 1, &|at| parse(&block[parts[at].clone()]));
            parts.into_iter().zip(parsed).collect()
        };
        let mut take = |(block, parsed): (Vec<u8>, Vec<(Range<usize>, P)>)| {
            let mut parsed = parsed.into_iter();
            parsed.try_for_each(|(part, made)| take(&block[part], made))
        };
        let mut block = std::mem::take(&mut self.block);
        let (mut parsed, mut failed) = (None, Ok(()));
        while !block.is_empty() {
            let before = parsed.take();
            let take = || before.map_or(Ok(()), &mut take);
            let ((taken, made), next) =
                rayon::join(|| rayon::join(take, || parse(&block)), || self.next());
            taken?;
            // Errors in the lines that have been read are reported before the I/O error.
            let next = next.unwrap_or_else(|error| {
                failed = Err(error);
                Vec::new()
            });
            parsed = Some((std::mem::replace(&mut block, next), made));
        }
        parsed.map_or(Ok(()), take)?;
        failed
    }

    /// Processes all lines: `parse` converts each line that is not blank, in parallel; `take` gets the number of each line, its
    /// bytes and its result, in order.
    pub(super) fn each_line<P: Send>(
        &mut self,
        parse: impl Fn(&str) -> Result<P> + Sync,
        mut take: impl FnMut(usize, &[u8], Option<P>) -> Result<()> + Send,
    ) -> Result<()> {
        let (path, mut number) = (self.path.clone(), self.passed);
        let parse = |part: &[u8]| -> Vec<Result<Option<P>>> {
            let parsed = lines(part).map(|line| text(line)?.map(&parse).transpose());
            parsed.collect()
        };
        self.each(parse, |part, parsed| {
            for (line, parsed) in lines(part).zip(parsed) {
                number += 1;
                let here = |error: Diagnostic| error.on_line(number).in_file(&path);
                take(number, line, parsed.map_err(here)?)?;
            }
            Ok(())
        })
    }

    /// Copies the lines to a file with new values for some fields, and otherwise byte for byte. `parse` runs in parallel on each
    /// line that is not blank; `values` then gets each line's number and parsed data, in order, and returns the line's new
    /// values. If `place` is given, the file must not have changed since it was read.
    pub(super) fn copy<P: Send>(
        &mut self,
        output: &Path,
        names: &[&str],
        parse: impl Fn(&[(&str, &str)]) -> Result<P> + Sync,
        mut values: impl FnMut(usize, P) -> Result<Values> + Send,
        place: Option<&Place>,
    ) -> Result<(), Diagnostics> {
        let parse = |line: &str| {
            let fields = json::fields(line)?;
            Ok((parse(&fields)?, json::places(line, &fields, names)))
        };
        let mut file = Replacement::new(output)?;
        text::write_lines(output, &mut file, |out| {
            let failed = |error: io::Error| cannot_be_written(output, &error);
            self.each_line(parse, |number, line, made| {
                let Some((made, places)) = made else {
                    return out.write_all(line).map_err(failed);
                };
                let values = values(number, made)?;
                json::write_values(out, line, &places, names, &values).map_err(failed)
            })
        })?;
        place.map_or(Ok(()), |place| place.check(self.sum))?;
        file.finish()
    }
}

/// Adds the fields of a line with their types, and returns the length of the line in bytes. A field that the earlier lines lack is
/// added after the field before it in the line, because the order of TRL's fields says which are rewards.
fn see(fields: &mut IndexMap<String, JsonType>, line: &str) -> Result<usize> {
    let mut next = 0;
    for (key, raw) in json::fields(line)? {
        let key = json::text(key);
        let known = fields.get_index_of(&*key);
        let at = known.unwrap_or_else(|| {
            fields.shift_insert(next, key.into_owned(), JsonType::Null);
            next
        });
        if fields[at] == JsonType::Null {
            fields[at] = cell::type_of(raw);
        }
        next = at + 1;
    }
    Ok(line.len())
}

/// Splits a block into parts of complete lines, of about 128 kB each.
fn parts(block: &[u8]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < block.len() {
        let least = (start + PART).min(block.len());
        let end = least + line_end(&block[least..]);
        parts.push(start..end);
        start = end;
    }
    parts
}

/// Returns the length of the first line in bytes, including its line ending.
fn line_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    // Reading from memory cannot fail.
    rest.skip_until(b'\n').unwrap_or(bytes.len())
}

pub(super) fn lines(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (line, rest) = bytes.split_at(line_end(bytes));
        bytes = rest;
        (!line.is_empty()).then_some(line)
    })
}

/// Returns a line as a string; `None` if the line is blank.
pub(super) fn text(line: &[u8]) -> Result<Option<&str>> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let (before, after) = line.split_at(error.valid_up_to());
        let byte = after.first().copied().unwrap_or_default();
        let before = String::from_utf8_lossy(before);
        Diagnostic::error("")
            .found(format!("the byte 0x{byte:02x}, which is not valid UTF-8"))
            .expected("text in UTF-8")
            .at_column(before.trim_start_matches(BYTE_ORDER_MARK).chars().count() + 1)
    })?;
    let after_mark = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let is_blank = after_mark.bytes().all(|byte| b" \t\r\n".contains(&byte));
    Ok((!is_blank).then_some(text))
}
