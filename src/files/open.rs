//! The bytes of lines, whatever file holds them: text as it is or compressed, the rows of a parquet file, or all files of a
//! folder; and the other way round.

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
use super::replace::Replacement;
use super::trainers::{Rows, unfold_of};
use super::{Progress, changed, parquet};
use crate::diagnostic::Diagnostic;
use crate::regular_file;

/// The bytes that a line may have: a bound for what a compressed file unpacks to.
pub(super) const LONGEST_LINE: u64 = 1 << 30;

/// Bytes that are compressed into one frame of Zstandard.
const FRAME: usize = 4 << 20;

/// Bytes that are lines.
pub(super) type Lines<'a> = Box<dyn Read + Send + 'a>;

/// Readers one after another, of which one at a time is open.
struct Chained<'a, I> {
    parts: I,
    part: Lines<'a>,
    /// Whether what was read ends with the end of a line.
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

/// Opens the lines of a file, or of all files of a folder one after another; `progress` is told of the bytes on disk.
pub(super) fn lines<'a>(path: &Path, progress: &'a Progress) -> io::Result<Lines<'a>> {
    let files = match path.is_dir() {
        true => files_of_lines(path)?,
        false => vec![path.to_path_buf()],
    };
    let mut total = 0;
    for file in &files {
        total += fs::metadata(file)?.len();
    }
    progress.expect(total);
    if let [file] = &files[..] {
        return open_file(file, progress);
    }
    let open = |file: PathBuf| open_file(&file, progress);
    Ok(Chained::lines(files.into_iter().map(open)))
}

/// A checksum of the end of a file. A parquet file tells there of its columns, their places and statistics.
pub(super) fn checksum_of_end(path: &Path) -> io::Result<u32> {
    let mut file = regular_file::open(path)?;
    let (mut end, length) = (Vec::new(), file.metadata()?.len());
    file.seek(SeekFrom::Start(length.saturating_sub(1 << 16)))?;
    file.read_to_end(&mut end)?;
    Ok(crc32c::crc32c(&end))
}

/// Refuses a parquet file whose end has another checksum than when it was read.
pub(super) fn check_end(path: &Path, checksum: u32) -> Result<(), Diagnostic> {
    match checksum_of_end(path).is_ok_and(|found| found == checksum) {
        true => Ok(()),
        false => Err(changed(path, "its columns are others")),
    }
}

fn open_file<'a>(path: &Path, progress: &'a Progress) -> io::Result<Lines<'a>> {
    let file = regular_file::open(path)?;
    if has_ending(path, "parquet") {
        return Ok(Chained::lines(parquet::lines(file, progress)?.map(reader)));
    }
    let file = Counted { file, progress };
    match () {
        () if has_ending(path, "gz") => unfolded(MultiGzDecoder::new(file)),
        () if has_ending(path, "zst") => unfolded(FromZstd {
            source: BufReader::new(file),
            decoder: FrameDecoder::new(),
            is_open: false,
        }),
        () => unfolded(file),
    }
}

/// Text as lines with one response each: as it is, unless the first line is one of a trainer that writes several responses a
/// line, or in numbers of its own.
fn unfolded<'a>(text: impl Read + Send + 'a) -> io::Result<Lines<'a>> {
    let mut text = BufReader::with_capacity(1 << 20, text);
    let (mut first, mut start) = (Vec::new(), 0);
    // Blank lines stay: they are numbered too.
    while first[start..].trim_ascii().is_empty() && (first.len() as u64) < LONGEST_LINE {
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
    let mut next = move || -> io::Result<Option<String>> {
        loop {
            if let Some(row) = rows.next() {
                return Ok(Some(row + "\n"));
            }
            let mut line = String::new();
            if (&mut lines).take(LONGEST_LINE).read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match unfold(&line) {
                Some(unfolded) => rows = unfolded,
                // Its reader says what is wrong with it.
                None => return Ok(Some(line)),
            }
        }
    };
    let rows = std::iter::from_fn(move || next().transpose());
    Ok(Chained::lines(rows.map(reader)))
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

/// Writes lines to a file in the form that its name says.
pub(super) enum Sink<'a> {
    Plain(&'a mut Replacement),
    Gzip(GzEncoder<&'a mut Replacement>),
    /// The bytes of the next frame.
    Zstd(&'a mut Replacement, Vec<u8>),
    /// A file for the lines until all are there.
    Parquet(&'a mut Replacement, BufWriter<File>),
}

impl<'a> Sink<'a> {
    pub(super) fn new(path: &Path, out: &'a mut Replacement) -> io::Result<Self> {
        Ok(match () {
            () if has_ending(path, "gz") => Sink::Gzip(GzEncoder::new(out, Compression::fast())),
            () if has_ending(path, "zst") => Sink::Zstd(out, Vec::new()),
            () if has_ending(path, "parquet") => {
                Sink::Parquet(out, BufWriter::new(tempfile::tempfile()?))
            }
            () => Sink::Plain(out),
        })
    }

    /// Writes what is still to be written, and gives notes on what was changed.
    pub(super) fn finish(mut self) -> io::Result<Vec<String>> {
        self.flush()?;
        match self {
            Sink::Gzip(out) => drop(out.finish()?),
            Sink::Parquet(out, lines) => return parquet::write_lines(lines.into_inner()?, out),
            Sink::Plain(_) | Sink::Zstd(..) => {}
        }
        Ok(Vec::new())
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(out) => return out.write(bytes),
            Sink::Gzip(out) => return out.write(bytes),
            Sink::Parquet(_, lines) => return lines.write(bytes),
            Sink::Zstd(_, frame) => {
                frame.extend_from_slice(bytes);
                if frame.len() >= FRAME {
                    self.flush()?;
                }
            }
        }
        Ok(bytes.len())
    }

    /// Ends a frame of Zstandard.
    fn flush(&mut self) -> io::Result<()> {
        if let Sink::Zstd(out, frame) = self {
            let packed = compress_to_vec(frame.as_slice(), CompressionLevel::Fastest);
            frame.clear();
            out.write_all(&packed)?;
        }
        Ok(())
    }
}

/// Unpacks Zstandard frame after frame, and checks their sums. The crate's own reader takes one frame only.
struct FromZstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_open: bool,
}

impl<R: BufRead> Read for FromZstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let FromZstd {
            source, decoder, ..
        } = self;
        while !into.is_empty() {
            if !self.is_open {
                if source.fill_buf()?.is_empty() {
                    break;
                }
                match decoder.init(&mut *source) {
                    Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                        let mut skipped = source.take(length.into());
                        if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        continue;
                    }
                    opened => opened.map_err(io::Error::other)?,
                }
                self.is_open = true;
            }
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = decoder.decode_blocks(&mut *source, one);
                decoded.map_err(io::Error::other)?;
            }
            match decoder.read(into)? {
                0 => self.is_open = false,
                read => return Ok(read),
            }
            let sum = decoder.get_checksum_from_data();
            if sum.is_some() && sum != decoder.get_calculated_checksum() {
                return Err(io::Error::other("its checksum is another: it is damaged"));
            }
        }
        Ok(0)
    }
}
