//! A file of lines block by block: while one is parsed, the one before is taken and the next one is read.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use crc32c::crc32c_append;

use crate::batch::files::json::{Type, fields};
use crate::batch::files::lines::{self, LONGEST, Lines};
use crate::batch::files::{Progress, cannot_be_read};
use crate::diagnostic::Diagnostic;

/// Bytes that are read, parsed and taken together, for each thread.
pub(super) const BLOCK: usize = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whole lines, some megabytes of them at a time.
pub(in crate::batch::files) struct Blocks<F> {
    pub(super) path: PathBuf,
    file: F,
    /// The block that is next.
    block: Vec<u8>,
    /// The beginning of the first line of the one after.
    rest: Vec<u8>,
    /// The checksum of all bytes so far.
    pub(super) sum: u32,
    /// The mark at the beginning, which is in no block, if there is one.
    pub(in crate::batch::files) mark: &'static [u8],
    /// The blank lines before the first block.
    pub(in crate::batch::files) passed: usize,
}

impl<'a> Blocks<Lines<'a>> {
    pub(in crate::batch::files) fn open(
        path: &Path,
        progress: &'a Progress,
    ) -> Result<Self, Diagnostic> {
        let opened = lines::open(path, progress);
        let file = opened.map_err(|error| cannot_be_read(path, &error))?;
        Ok(Blocks::new(path, file))
    }
}

impl<F: Read + Send> Blocks<F> {
    pub(super) fn new(path: &Path, file: F) -> Self {
        Blocks {
            path: path.to_path_buf(),
            file,
            block: Vec::new(),
            rest: Vec::new(),
            sum: 0,
            mark: b"",
            passed: 0,
        }
    }

    /// The next block; it is empty at the end of the file.
    fn next(&mut self) -> io::Result<Vec<u8>> {
        let size = BLOCK * rayon::current_num_threads();
        let mut block = Vec::with_capacity(size + self.rest.len());
        block.append(&mut self.rest);
        loop {
            let before = block.len();
            let file = self.file.by_ref();
            let read = file.take(size as u64).read_to_end(&mut block)?;
            self.sum = crc32c_append(self.sum, &block[before..]);
            let end = block[before..].iter().rposition(|&byte| byte == b'\n');
            match end {
                _ if read == 0 => return Ok(block),
                Some(end) => {
                    self.rest = block.split_off(before + end + 1);
                    return Ok(block);
                }
                None if block.len() as u64 > LONGEST => {
                    let what = format!("a line has more than {LONGEST} bytes");
                    return Err(io::Error::other(what));
                }
                // A long line goes on.
                None => {}
            }
        }
    }

    fn next_or_why(&mut self) -> Result<Vec<u8>, Diagnostic> {
        self.next()
            .map_err(|error| cannot_be_read(&self.path, &error))
    }

    /// Goes to the first block.
    pub(super) fn start(&mut self) -> Result<(), Diagnostic> {
        self.block = self.next_or_why()?;
        if self.block.starts_with(BYTE_ORDER_MARK) {
            self.mark = BYTE_ORDER_MARK;
            self.block.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(())
    }

    /// Goes to the first block with a response, whose fields it gives with the types of their values.
    pub(in crate::batch::files) fn begin(&mut self) -> Result<Vec<(String, Type)>, Diagnostic> {
        self.start()?;
        while !self.block.is_empty() {
            for (line, number) in lines(&self.block).zip(self.passed + 1..) {
                let here = |error: Diagnostic| error.on_line(number).in_file(&self.path);
                if let Some(text) = text(line).map_err(here)? {
                    return fields(text).map_err(here);
                }
            }
            // Blank lines are numbered too.
            self.passed += lines(&self.block).count();
            self.block = self.next_or_why()?;
        }
        let error = Diagnostic::error("there is no response in the file");
        let error = error.expected("one JSON object a line, one line a response");
        Err(error.in_file(&self.path))
    }

    /// Goes through all blocks: `parse` makes something of each, and `take` gets that in order.
    pub(in crate::batch::files) fn each<P: Send>(
        &mut self,
        parse: impl Fn(&[u8]) -> P + Sync,
        mut take: impl FnMut(&[u8], P) -> Result<(), Diagnostic> + Send,
    ) -> Result<(), Diagnostic> {
        let mut block = std::mem::take(&mut self.block);
        let mut parsed: Option<(Vec<u8>, P)> = None;
        let mut failed = None;
        while !block.is_empty() {
            let before = parsed.take();
            let ((taken, made), next) = rayon::join(
                || {
                    let take = || before.map_or(Ok(()), |(block, made)| take(&block, made));
                    rayon::join(take, || parse(&block))
                },
                || self.next_or_why(),
            );
            taken?;
            // What is wrong in the lines so far comes before a failure to read on.
            let next = next.unwrap_or_else(|error| {
                failed = Some(error);
                Vec::new()
            });
            parsed = Some((std::mem::replace(&mut block, next), made));
        }
        if let Some((block, made)) = parsed {
            take(&block, made)?;
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The bytes of a line, its ending among them.
pub(super) fn line_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    match rest.skip_until(b'\n') {
        Ok(length) => length,
        Err(_) => unreachable!("memory can be read"),
    }
}

/// Lines with their endings.
pub(in crate::batch::files) fn lines(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (line, rest) = bytes.split_at(line_end(bytes));
        bytes = rest;
        (!line.is_empty()).then_some(line)
    })
}

/// A line as a string; `None` where it is blank.
pub(in crate::batch::files) fn text(line: &[u8]) -> Result<Option<&str>, Diagnostic> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let (before, after) = line.split_at(error.valid_up_to());
        let byte = after.first().copied().unwrap_or_default();
        Diagnostic::error("")
            .found(format!("the byte 0x{byte:02x}, which is not UTF-8 there"))
            .expected("text in UTF-8")
            .at_column(String::from_utf8_lossy(before).chars().count() + 1)
    })?;
    // JSON's white space.
    let is_blank = text.bytes().all(|byte| b" \t\r\n".contains(&byte));
    Ok((!is_blank).then_some(text))
}
