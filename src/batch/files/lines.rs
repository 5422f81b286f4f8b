//! The lines of JSON that a file holds, however it holds them: text as it is or compressed, the rows of a parquet file, or
//! all files of a folder together.

mod compressed;
mod parquet;
mod rows;
mod unfold;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::vec;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use self::compressed::{FromZstd, ToZstd};
use self::parquet::ToParquet;
pub(super) use self::rows::Value;
use super::Progress;
use super::format::Format;
use super::replace::Replacement;
use crate::regular_file;

/// The bytes that a line may have: what unpacks into one without an end takes no more memory.
pub(super) const LONGEST: u64 = 1 << 30;

/// What gives the lines.
pub(super) type Lines<'a> = Box<dyn Read + Send + 'a>;

/// Opens the lines of a file, or of all files of a folder one after another; `progress` is told of the bytes on disk.
pub(super) fn open<'a>(path: &Path, progress: &'a Progress) -> io::Result<Lines<'a>> {
    let files = if path.is_dir() {
        files(path)?
    } else {
        vec![path.to_path_buf()]
    };
    let mut total = 0;
    for file in &files {
        total += fs::metadata(file)?.len();
    }
    progress.expect(total);
    if let [file] = &files[..] {
        return open_file(file, progress);
    }
    Ok(Box::new(Together {
        files: files.into_iter(),
        progress,
        lines: Box::new(io::empty()),
        is_ended: true,
    }))
}

/// The lines of files one after another, of which one at a time is open.
struct Together<'a> {
    files: vec::IntoIter<PathBuf>,
    progress: &'a Progress<'a>,
    lines: Lines<'a>,
    /// Whether what was read ends with the end of a line.
    is_ended: bool,
}

impl Read for Together<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() {
            match self.lines.read(into)? {
                0 if self.files.as_slice().is_empty() => break,
                0 if !self.is_ended => {
                    // The last line of a file may lack its end.
                    self.lines = Box::new(&b"\n"[..]);
                }
                0 => {
                    if let Some(file) = self.files.next() {
                        self.lines = open_file(&file, self.progress)?;
                    }
                }
                read => {
                    self.is_ended = into[read - 1] == b'\n';
                    return Ok(read);
                }
            }
        }
        Ok(0)
    }
}

/// The files of lines in a folder, and in the folders in it, as their names count; each once, whatever links lead to it.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(folder, &mut HashSet::new(), &mut found)?;
    Ok(found)
}

fn collect(folder: &Path, seen: &mut HashSet<PathBuf>, found: &mut Vec<PathBuf>) -> io::Result<()> {
    seen.insert(folder.canonicalize()?);
    // prime-rl keeps what its trainer used beside all that there was.
    let used = folder.join("train/effective");
    let folder = if used.is_dir() { &used } else { folder };
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)? {
        entries.push(entry?.path());
    }
    entries.sort_by_cached_key(|entry| super::steps::order(entry));
    for entry in entries {
        // SkyRL's figures of all its evaluations.
        let is_summary = entry.ends_with("aggregated_results.jsonl");
        let is_folder = entry.is_dir();
        let is_lines = matches!(Format::of(&entry), Ok(Format::Lines)) && !is_summary;
        if !(is_folder || is_lines) {
            continue;
        }
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", entry.display()));
        if seen.insert(entry.canonicalize().map_err(named)?) {
            match is_folder {
                true => collect(&entry, seen, found)?,
                false => found.push(entry),
            }
        }
    }
    Ok(())
}

fn open_file<'a>(path: &Path, progress: &'a Progress) -> io::Result<Lines<'a>> {
    let file = regular_file::open(path)?;
    if has_ending(path, "parquet") {
        return parquet::open(file, progress);
    }
    let file = Counted { file, progress };
    match () {
        () if has_ending(path, "gz") => unfold::open(MultiGzDecoder::new(file)),
        () if has_ending(path, "zst") => unfold::open(FromZstd::new(BufReader::new(file))),
        () => unfold::open(file),
    }
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

/// A file whose bytes are told of as they are read.
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

/// What takes lines to a file, in the form that its name says.
pub(super) enum Sink<'a> {
    Plain(&'a mut Replacement),
    Gzip(GzEncoder<&'a mut Replacement>),
    Zstd(ToZstd<&'a mut Replacement>),
    Parquet(ToParquet<&'a mut Replacement>),
}

impl<'a> Sink<'a> {
    pub(super) fn new(path: &Path, out: &'a mut Replacement) -> io::Result<Self> {
        Ok(match () {
            () if has_ending(path, "gz") => Sink::Gzip(GzEncoder::new(out, Compression::fast())),
            () if has_ending(path, "zst") => Sink::Zstd(ToZstd::new(out)),
            () if has_ending(path, "parquet") => Sink::Parquet(ToParquet::new(out)?),
            () => Sink::Plain(out),
        })
    }

    /// Writes what is still to be written.
    pub(super) fn finish(self) -> io::Result<Vec<String>> {
        match self {
            Sink::Plain(_) => {}
            Sink::Gzip(out) => drop(out.finish()?),
            Sink::Zstd(mut out) => out.flush()?,
            Sink::Parquet(out) => return out.finish(),
        }
        Ok(Vec::new())
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(out) => out.write(bytes),
            Sink::Gzip(out) => out.write(bytes),
            Sink::Zstd(out) => out.write(bytes),
            Sink::Parquet(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
