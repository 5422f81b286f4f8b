//! npz: the arrays of a zip archive, compressed or not, and a copy of an archive with one array more. The crate `zip`
//! reads the arrays' bytes and checks their sums; see `npy` for their headers.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use zip::result::{ZipError, ZipResult};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Npy};
use super::raw::{Header, Origin, Raw, Schema};
use super::replace::Replacement;
use super::tensor::{Info, Kind, Source};
use super::written::Written;
use super::{Progress, cannot_be_read, changed, damaged, read_tensors};
use crate::diagnostic::Diagnostic;
use crate::regular_file;

/// Deflate makes of one byte at most so many: what a header may claim of a compressed array.
const DEFLATE: u64 = 1032;

/// Bytes that are unpacked between two reports to the caller.
const PIECE: usize = 4 << 20;

type Zip = ZipArchive<BufReader<File>>;

fn open_zip(path: &Path) -> Result<Zip, Diagnostic> {
    let file = regular_file::open(path).map_err(|error| cannot_be_read(path, &error))?;
    ZipArchive::new(BufReader::with_capacity(256 << 10, file)).map_err(|error| {
        let what = "it is cut off, or no zip archive of arrays as `numpy.savez` makes";
        damaged(path, format!("{what}: {error}"))
    })
}

fn open(path: &Path) -> Result<(Zip, Vec<Info>), Diagnostic> {
    let mut zip = open_zip(path)?;
    let damaged = |what: String| damaged(path, what);
    if entries(path, &zip).is_ok_and(|entries| entries != zip.len()) {
        return Err(damaged(
            "two entries of the archive have one name, and which of the two counts nobody can say; write the file again".to_string()
        ));
    }
    let mut tensors = Vec::new();
    for at in 0..zip.len() {
        let mut entry = zip.by_index(at).map_err(|error| {
            damaged(format!("entry {at} of the archive cannot be read: {error}"))
        })?;
        let Some(name) = entry.name().strip_suffix(".npy").map(str::to_string) else {
            continue;
        };
        let npy =
            Npy::read(&mut entry).map_err(|what| damaged(format!("array `{name}`: {what}")))?;
        let packed = entry.compressed_size();
        let most = match entry.compression() {
            CompressionMethod::Stored => packed,
            _ => entry.size().min(packed.saturating_mul(DEFLATE)),
        };
        tensors.push(Info {
            name,
            kind: npy.kind,
            shape: npy.shape,
            big_endian: npy.big_endian,
            fortran: npy.fortran,
            at: at as u64,
            most: most.saturating_sub(npy.size),
        });
    }
    Ok((zip, tensors))
}

/// How many entries the end of an archive tells of: of those with one name, what opens it keeps the last, and says
/// nothing.
fn entries(path: &Path, zip: &Zip) -> io::Result<usize> {
    let mut file = regular_file::open(path)?;
    // The number is 10 bytes into the last 22 before the comment.
    file.seek(SeekFrom::End(-12 - zip.comment().len() as i64))?;
    let mut entries = [0; 2];
    file.read_exact(&mut entries)?;
    match u16::from_le_bytes(entries) {
        // So many, or more.
        u16::MAX => Ok(zip.len()),
        entries => Ok(entries.into()),
    }
}

/// Opens the archive again, since arrays are unpacked beside each other.
pub(super) fn fill(
    path: &Path,
    tensor: &Info,
    bytes: &mut [u8],
    told: &dyn Fn(u64),
) -> io::Result<()> {
    let mut zip = open_zip(path).map_err(|error| io::Error::other(error.to_string()))?;
    let name = format!("{}.npy", tensor.name);
    let mut entry = zip.by_name(&name).map_err(io::Error::other)?;
    if Npy::read(&mut entry).map_err(io::Error::other)?.shape != tensor.shape {
        return Err(io::Error::other("the file changed while it was read"));
    }
    for piece in bytes.chunks_mut(PIECE) {
        entry.read_exact(piece)?;
        told(piece.len() as u64);
    }
    // The sum is checked when the end is read; and there should be an end.
    match entry.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Reads the arrays' headers; the arrays are read when they are used.
pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Raw, Diagnostic> {
    let (_, tensors) = open(path)?;
    let header = Header::Tensors;
    read_tensors(path, header, tensors, Source::Archive, schema, progress)
}

/// Writes arrays behind those that are there. Strings are mostly the zeros that fill them up, and alone worth compressing.
fn add<W: Write + Seek>(archive: &mut ZipWriter<W>, arrays: &[Written]) -> ZipResult<()> {
    for array in arrays {
        let (name, code) = (array.name, npy::code(&array.kind));
        let method = match array.kind {
            Kind::String(_) => CompressionMethod::Deflated,
            _ => CompressionMethod::Stored,
        };
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .large_file(array.bytes >= u64::from(u32::MAX));
        archive.start_file(format!("{name}.npy"), options)?;
        archive.write_all(&npy::header(&code, &array.shape))?;
        // The archive adds each piece to its sum, so rows of a few tokens are better put together first.
        let mut rows = BufWriter::with_capacity(256 << 10, &mut *archive);
        (array.write)(&mut rows)?;
        rows.flush()?;
    }
    Ok(())
}

/// Writes an archive.
pub(super) fn write_file(out: &mut Replacement, arrays: &[Written]) -> Result<(), Diagnostic> {
    finished(out, |archive| add(archive, arrays))
}

/// Writes an archive to its end.
fn finished(
    out: &mut Replacement,
    write: impl FnOnce(&mut ZipWriter<OneError>) -> ZipResult<()>,
) -> Result<(), Diagnostic> {
    let mut archive = ZipWriter::new(OneError {
        out,
        at: 0,
        end: 0,
        has_failed: false,
    });
    let written = write(&mut archive).and_then(|()| archive.finish().map(drop));
    written.map_err(|error| match error {
        ZipError::Io(error) => out.error(&error),
        error => out.error(&io::Error::other(error)),
    })
}

/// Fails once, then takes all and drops it: an archive that could not be written tries again when it is dropped, and
/// prints that it cannot.
struct OneError<'a> {
    out: &'a mut Replacement,
    at: u64,
    end: u64,
    has_failed: bool,
}

impl Write for OneError<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.has_failed {
            true => bytes.len(),
            false => {
                let written = self.out.write(bytes);
                written.inspect_err(|_| self.has_failed = true)?
            }
        };
        self.at += written as u64;
        self.end = self.end.max(self.at);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for OneError<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.end.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        if !self.has_failed {
            let sought = self.out.seek(SeekFrom::Start(self.at));
            sought.inspect_err(|_| self.has_failed = true)?;
        }
        Ok(self.at)
    }
}

/// Writes a copy of `input` with more arrays, which come last.
pub(super) fn write(
    input: &Path,
    origin: &Origin,
    more: &[Written],
    out: &mut Replacement,
) -> Result<(), Diagnostic> {
    let (mut zip, tensors) = open(input).map_err(|error| changed(input, error))?;
    if !origin.is(&tensors) {
        return Err(changed(input, "its arrays are others"));
    }
    let is_new = |name: &str| {
        let name = name.strip_suffix(".npy");
        more.iter().any(|array| name == Some(array.name))
    };
    finished(out, |archive| {
        for at in 0..zip.len() {
            let entry = zip.by_index_raw(at)?;
            if !is_new(entry.name()) {
                archive.raw_copy_file(entry)?;
            }
        }
        add(archive, more)
    })
}
