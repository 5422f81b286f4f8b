//! npz: the arrays of a zip archive, compressed or not, and a copy of an archive with one array more. The crate `zip`
//! reads the arrays' bytes and checks their sums; see `npy` for their headers.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use zerocopy::IntoBytes;
use zip::result::{ZipError, ZipResult};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Npy};
use super::raw::{Header, Origin, Raw, Schema};
use super::replace::Replacement;
use super::spread::Spread;
use super::tensor::{Info, Source};
use super::{Progress, cannot_be_read, changed, damaged, read_tensors};
use crate::batch::{Batch, GroupId};
use crate::diagnostic::Diagnostic;

/// Deflate makes of one byte at most so many: what a header may claim of a compressed array.
const DEFLATE: u64 = 1032;

/// Bytes that are unpacked between two reports to the caller.
const PIECE: usize = 4 << 20;

type Zip = ZipArchive<BufReader<File>>;

fn open_zip(path: &Path) -> Result<Zip, Diagnostic> {
    let file = File::open(path).map_err(|error| cannot_be_read(path, &error))?;
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
    let mut file = File::open(path)?;
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

/// Writes a batch under our own names: its columns, and strings as numpy keeps them.
pub(super) fn save(batch: &Batch, out: &mut Replacement) -> Result<(), Diagnostic> {
    let layout = batch.layout();
    let mut archive = ZipWriter::new(&mut *out);
    let mut write = || -> ZipResult<()> {
        let ids: Vec<&GroupId> = (0..layout.responses())
            .map(|response| layout.group_id(layout.group_of(response)))
            .collect();
        let numbers = ids.iter().map(|id| match id {
            GroupId::Number(number) => Some(*number),
            GroupId::String(_) => None,
        });
        match numbers.collect::<Option<Vec<i64>>>() {
            Some(numbers) => {
                start(
                    &mut archive,
                    "group",
                    "<i8",
                    &[numbers.len()],
                    8 * numbers.len() as u64,
                )?;
                archive.write_all(numbers.as_bytes())?;
            }
            None => {
                let names: Vec<String> = ids.iter().map(|id| id.name().to_string()).collect();
                strings(&mut archive, "group", names.iter().map(String::as_str))?;
            }
        }
        start(&mut archive, "step", "<u8", &[], 8)?;
        archive.write_all(&batch.step().to_le_bytes())?;
        for (name, texts) in batch.texts() {
            strings(&mut archive, name, texts.iter().map(|text| &**text))?;
        }
        for (name, dtype, shape, bytes, write) in batch.tensors() {
            let code = match dtype.as_str() {
                "BOOL" => "|b1",
                "F32" => "<f4",
                _ => "<f8",
            };
            start(&mut archive, name, code, &shape, bytes)?;
            let mut rows = BufWriter::with_capacity(256 << 10, &mut archive);
            write(&mut rows)?;
            rows.flush()?;
        }
        Ok(())
    };
    let written = write().and_then(|()| archive.finish().map(|_| ()));
    written.map_err(|error| failed(error, out))
}

/// Begins an array, with its header. Strings are mostly the zeros that fill them up, and alone worth compressing.
fn start<W: Write + Seek>(
    archive: &mut ZipWriter<W>,
    name: &str,
    code: &str,
    shape: &[usize],
    bytes: u64,
) -> ZipResult<()> {
    let method = match code.starts_with("<U") {
        true => CompressionMethod::Deflated,
        false => CompressionMethod::Stored,
    };
    let options = SimpleFileOptions::default()
        .compression_method(method)
        .large_file(bytes >= u64::from(u32::MAX));
    archive.start_file(format!("{name}.npy"), options)?;
    Ok(archive.write_all(&npy::header(code, shape))?)
}

fn strings<'a, W: Write + Seek>(
    archive: &mut ZipWriter<W>,
    name: &str,
    texts: impl Iterator<Item = &'a str> + Clone,
) -> ZipResult<()> {
    let longest = texts.clone().map(|text| text.chars().count()).max();
    let width = longest.unwrap_or(0).max(1);
    let count = texts.clone().count();
    start(
        archive,
        name,
        &format!("<U{width}"),
        &[count],
        (4 * width * count) as u64,
    )?;
    for text in texts {
        let mut letters: Vec<u32> = text.chars().map(u32::from).collect();
        letters.resize(width, 0);
        archive.write_all(letters.as_bytes())?;
    }
    Ok(())
}

fn failed(error: ZipError, out: &Replacement) -> Diagnostic {
    match error {
        ZipError::Io(error) => out.error(&error),
        error => out.error(&io::Error::other(error)),
    }
}

/// Writes a copy of `input` with the advantage, and what else there is, as its last arrays.
pub(super) fn write(
    input: &Path,
    origin: &Origin,
    spreads: &[Spread],
    out: &mut Replacement,
) -> Result<(), Diagnostic> {
    let (mut zip, tensors) = open(input).map_err(|error| changed(input, error))?;
    if !origin.is(&tensors) {
        return Err(changed(input, "its arrays are others"));
    }
    let is_new = |name: &str| {
        let mut spreads = spreads.iter();
        spreads.any(|spread| name.strip_suffix(".npy") == Some(spread.name))
    };
    let mut archive = ZipWriter::new(&mut *out);
    let mut write = || -> ZipResult<()> {
        for at in 0..zip.len() {
            let entry = zip.by_index_raw(at)?;
            if !is_new(entry.name()) {
                archive.raw_copy_file(entry)?;
            }
        }
        for spread in spreads {
            let code = if spread.is_f64 { "<f8" } else { "<f4" };
            let (shape, bytes) = (spread.shape(), spread.bytes());
            start(&mut archive, spread.name, code, &shape, bytes)?;
            // The archive adds each piece to its sum, so rows of a few tokens are better put together first.
            let mut rows = BufWriter::with_capacity(256 << 10, &mut archive);
            spread.write(&mut rows)?;
            rows.flush()?;
        }
        Ok(())
    };
    let written = write().and_then(|()| archive.finish().map(|_| ()));
    written.map_err(|error| failed(error, out))
}
