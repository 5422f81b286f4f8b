//! npz: the arrays of a zip archive, compressed or not, and a copy of an archive with one array more.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use zip::result::{ZipError, ZipResult};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::element::Element;
use super::npy::{self, Npy};
use super::spread::{self, Spread};
use super::tensors::{Archive, Tensor};
use crate::batch::files::replace::Replacement;
use crate::batch::files::{ReadError, WriteError};

/// Deflate makes of one byte at most so many: what a header may claim of a compressed array.
const DEFLATE: u64 = 1032;

/// An archive whose arrays' headers have been read.
pub(super) struct Npz {
    path: PathBuf,
    pub(super) zip: ZipArchive<BufReader<File>>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) length: u64,
}

impl Npz {
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|source| ReadError::Io {
            path: path.to_path_buf(),
            source,
        })?;
        let damaged = |what: String| ReadError::Damaged {
            path: path.to_path_buf(),
            what,
        };
        if length == 0 {
            return Err(damaged("the file is empty".to_string()));
        }
        let mut zip =
            ZipArchive::new(BufReader::with_capacity(256 << 10, file)).map_err(|error| {
                damaged(format!(
                    "it is cut off, or no zip archive of arrays as `numpy.savez` makes: {error}"
                ))
            })?;
        if let Some(twice) = twice(path, zip.central_directory_start()) {
            return Err(damaged(format!(
                "the archive has two entries `{twice}`, and which of the two counts nobody can say; write the file again"
            )));
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
            tensors.push(Tensor {
                name,
                element: npy.element,
                shape: npy.shape,
                big_endian: npy.big_endian,
                fortran: npy.fortran,
                at: at as u64,
                most: most.saturating_sub(npy.size),
            });
        }
        Ok(Npz {
            path: path.to_path_buf(),
            zip,
            tensors,
            length,
        })
    }
}

/// A name that two entries of an archive have: what opens it keeps the last of them, and says nothing. `start` is where
/// the directory at the end of the archive begins.
fn twice(path: &Path, start: u64) -> Option<String> {
    let mut file = BufReader::new(File::open(path).ok()?);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut names = HashSet::new();
    let mut header = [0; 46];
    // The directory has been read once: where it ends, something else begins.
    while file.read_exact(&mut header).is_ok() && header.starts_with(b"PK\x01\x02") {
        let length = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let mut name = vec![0; usize::from(length(28))];
        file.read_exact(&mut name).ok()?;
        let after = i64::from(length(30)) + i64::from(length(32));
        file.seek_relative(after).ok()?;
        let text = String::from_utf8_lossy(&name).into_owned();
        if !names.insert(name) {
            return Some(text);
        }
    }
    None
}

impl Archive for Npz {
    fn open(&mut self, tensor: &Tensor) -> Result<Box<dyn Read + '_>, ReadError> {
        let path = &self.path;
        let damaged = |what: String| ReadError::Damaged {
            path: path.clone(),
            what: format!("array `{}`: {what}", tensor.name),
        };
        let entry = self.zip.by_index(tensor.at as usize);
        let mut entry = entry.map_err(|error| damaged(error.to_string()))?;
        Npy::read(&mut entry).map_err(damaged)?;
        Ok(Box::new(entry))
    }
}

/// Writes a copy of `input` with the advantage as its last array; `then` are the arrays that were read.
pub(in crate::batch::files) fn write(
    input: &Path,
    then: &[Tensor],
    advantage: &Spread,
    out: &Path,
) -> Result<(), WriteError> {
    let mut source = Npz::open(input).map_err(|error| WriteError::gone(input, error))?;
    if source.tensors != then {
        return Err(WriteError::changed(input, "its arrays are others"));
    }
    let name = format!("{}.npy", spread::NAME);
    let mut file = Replacement::new(out)?;
    let mut archive = ZipWriter::new(&mut file);
    let mut write = || -> ZipResult<()> {
        for at in 0..source.zip.len() {
            let entry = source.zip.by_index_raw(at)?;
            if entry.name() != name {
                archive.raw_copy_file(entry)?;
            }
        }
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(advantage.bytes() >= u64::from(u32::MAX));
        archive.start_file(&name, options)?;
        let code = if *advantage.element() == Element::F64 {
            "<f8"
        } else {
            "<f4"
        };
        archive.write_all(&npy::header(code, &advantage.shape()))?;
        // The archive adds each piece to its sum, so rows of a few tokens are better put together first.
        let mut rows = BufWriter::with_capacity(256 << 10, &mut archive);
        advantage.write(&mut rows)?;
        rows.flush()?;
        drop(rows);
        Ok(())
    };
    let written = write().and_then(|()| archive.finish().map(|_| ()));
    match written {
        Ok(()) => file.finish(),
        Err(ZipError::Io(error)) => Err(file.error(error)),
        Err(error) => Err(file.error(io::Error::other(error))),
    }
}
