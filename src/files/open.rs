//! The bytes of lines from any source: text, compressed or not, the rows of a parquet file, or all files of a
//! folder; and the same for writing.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::format::{files_of_lines, has_ending};
use super::json::BYTE_ORDER_MARK;
use super::room::{Bounded, Room};
use super::trainers::{Rows, unfold_of};
use super::{Progress, Result, parquet};
use crate::regular_file;
use crate::replace::{Replacement, cannot_be_written};

/// The longest allowed line, in bytes: a bound on the memory that a compressed file can unpack to.
pub(super) const LONGEST_LINE: u64 = 1 << 30;

/// Bytes of blank lines before the first line: of more, none is a trainer's.
const BLANK: usize = 1 << 20;

/// Bytes that are compressed into one frame of Zstandard.
const FRAME: usize = 4 << 20;

/// Bytes that are lines.
pub(super) type Lines<'a> = Box<dyn Read + Send + 'a>;

/// Readers one after another; only one at a time is open.
struct Chained<'a, I> {
    parts: I,
    part: Lines<'a>,
    /// Whether the last byte read ended a line.
    is_ended: bool,
}

impl<'a, I: Iterator<Item = io::Result<Lines<'a>>> + Send + 'a> Chained<'a, I> {
    fn lines(parts: I) -> Lines<'a> {
        Box::new(Chained {
            parts,
            part: Box::new(io::empty()),
            is_ended: true,
        })
    }
}

impl<'a, I: Iterator<Item = io::Result<Lines<'a>>>> Read for Chained<'a, I> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() {
            match self.part.read(into)? {
                // The last line of a file may lack its end.
                0 if !self.is_ended => self.part = Box::new(&b"\n"[..]),
                0 => match self.parts.next() {
                    Some(part) => self.part = part?,
                    None => break,
                },
                read => {
                    self.is_ended = into[read - 1] == b'\n';
                    return Ok(read);
                }
            }
        }
        Ok(0)
    }
}

/// A line as a reader.
fn reader<'a>(line: io::Result<String>) -> io::Result<Lines<'a>> {
    Ok(Box::new(io::Cursor::new(line?)))
}

/// Opens the lines of a file, or of all files of a folder in turn; `progress` gets the bytes read from disk.
pub(super) fn lines<'a>(path: &Path, progress: &'a Progress) -> io::Result<Lines<'a>> {
    let files = match path.is_dir() {
        true => files_of_lines(path)?,
        false => vec![path.to_path_buf()],
    };
    let sizes = files.iter().map(|file| Ok(fs::metadata(file)?.len()));
    progress.expect(sizes.sum::<io::Result<u64>>()?);
    if let [file] = &files[..] {
        return open_file(file, progress);
    }
    let open = |file: PathBuf| open_file(&file, progress);
    Ok(Chained::lines(files.into_iter().map(open)))
}

/// A checksum of the end of a file. A parquet file keeps its columns, their places and their statistics there.
pub(super) fn checksum_of_end(path: &Path) -> io::Result<u32> {
    let mut file = regular_file::open(path)?;
    let (mut end, length) = (Vec::new(), file.metadata()?.len());
    file.seek(SeekFrom::Start(length.saturating_sub(1 << 16)))?;
    file.read_to_end(&mut end)?;
    Ok(crc32c::crc32c(&end))
}

fn open_file<'a>(path: &Path, progress: &'a Progress) -> io::Result<Lines<'a>> {
    let file = regular_file::open(path)?;
    if has_ending(path, "parquet") {
        return Ok(Chained::lines(parquet::lines(file, progress)?.map(reader)));
    }
    let file = Counted { file, progress };
    match () {
        () if has_ending(path, "gz") => {
            unfolded(Bounded(MultiGzDecoder::new(file), Room::now(), 0))
        }
        () if has_ending(path, "zst") => {
            let (source, decoder) = (BufReader::new(file), FrameDecoder::new());
            unfolded(Bounded(FromZstd { source, decoder }, Room::now(), 0))
        }
        () => unfolded(file),
    }
}

/// Text as lines with one response each: unchanged, unless the first line is from a trainer that writes several responses per
/// line, or its own numbers.
fn unfolded<'a>(text: impl Read + Send + 'a) -> io::Result<Lines<'a>> {
    let mut text = BufReader::with_capacity(1 << 20, text);
    let (mut first, mut start) = (Vec::new(), 0);
    // Blank lines are kept, because line numbers count them.
    while first[start..].trim_ascii().is_empty() && first.len() < BLANK {
        start = first.len();
        let line = (&mut text).take(LONGEST_LINE);
        if { line }.read_until(b'\n', &mut first)? == 0 {
            break;
        }
    }
    let unfold = std::str::from_utf8(&first[start..])
        .ok()
        .and_then(unfold_of);
    let mut lines = io::Cursor::new(first).chain(text);
    let Some(unfold) = unfold else {
        return Ok(Box::new(lines));
    };
    let mut rows: Rows = Box::new(std::iter::empty());
    let next = move || loop {
        if let Some(row) = rows.next() {
            return Some(Ok(row + "\n"));
        }
        let mut line = String::new();
        match (&mut lines).take(LONGEST_LINE).read_line(&mut line) {
            Ok(0) => return None,
            Ok(_) => match unfold(line.trim_start_matches(BYTE_ORDER_MARK)) {
                Some(unfolded) => rows = unfolded,
                // The reader of the line reports the error.
                None => return Some(Ok(line)),
            },
            Err(error) => return Some(Err(error)),
        }
    };
    Ok(Chained::lines(std::iter::from_fn(next).map(reader)))
}

/// A file that reports its bytes as they are read.
struct Counted<'a> {
    file: File,
    progress: &'a Progress<'a>,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}

/// Writes lines to a file, compressed if its name says so.
pub(super) fn write_lines(
    path: &Path,
    out: &mut Replacement,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<()>,
) -> Result<()> {
    let failed = |error: io::Error| cannot_be_written(path, &error);
    match () {
        () if has_ending(path, "gz") => {
            let mut packed = GzEncoder::new(out, Compression::fast());
            write(&mut packed)?;
            packed.finish().map_err(failed)?;
        }
        () if has_ending(path, "zst") => {
            let mut frames = BufWriter::with_capacity(FRAME, ToZstd(out));
            write(&mut frames)?;
            frames.flush().map_err(failed)?;
        }
        () => write(out)?,
    }
    Ok(())
}

/// Compresses all bytes of one write into one frame.
struct ToZstd<'a>(&'a mut Replacement);

impl Write for ToZstd<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let packed = compress_to_vec(bytes, CompressionLevel::Fastest);
        self.0.write_all(&packed)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks Zstandard frame by frame, and checks the checksums. The crate's own reader reads only one frame.
struct FromZstd<R> {
    source: R,
    decoder: FrameDecoder,
}

impl<R: BufRead> Read for FromZstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let FromZstd { source, decoder } = self;
        while !into.is_empty() {
            match decoder.read(into)? {
                // There is no frame yet, it has ended, or it needs its next block.
                0 => {}
                read => return Ok(read),
            }
            if !decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = decoder.decode_blocks(&mut *source, one);
                decoded.map_err(io::Error::other)?;
                continue;
            }
            let sum = decoder.get_checksum_from_data();
            if sum.is_some() && sum != decoder.get_calculated_checksum() {
                return Err(io::Error::other("its checksum is another: it is damaged"));
            }
            if source.fill_buf()?.is_empty() {
                break;
            }
            match decoder.init(&mut *source) {
                Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                    let mut skipped = source.take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                opened => opened.map_err(io::Error::other)?,
            }
        }
        Ok(0)
    }
}
