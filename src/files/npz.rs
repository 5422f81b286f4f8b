//! npz: reads the arrays of a zip archive, compressed or not, and copies an archive with more arrays. We parse the arrays'
//! headers ourselves: crates allocate as much as a header claims, and crates that support numpy's strings or half floats parse
//! all Python literals.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;

use safetensors::Dtype;
use serde::Deserialize;
use zip::result::{ZipError, ZipResult};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::json::shorten;
use super::replace::Replacement;
use super::room::{ROW, Room};
use super::tensors::{ArrayFile, ElementType, FileTensor, NewTensor};
use super::{Result, cannot_be_read};
use crate::diagnostic::Diagnostic;
use crate::regular_file;

/// The largest compression ratio of Deflate.
const DEFLATE: u64 = 1032;

const MAGIC: &[u8] = b"\x93NUMPY";

/// A bound for a header: numpy's own are at most a few hundred bytes, and it refuses more than 10000 by default.
const LONGEST_HEADER: usize = 64 << 10;

type Zip = ZipArchive<BufReader<File>>;

/// Unpacks an array.
pub(super) fn fill(tensor: &FileTensor, bytes: &mut [u8]) -> io::Result<()> {
    let zip = open_zip(&tensor.store.path);
    let mut zip = zip.map_err(|error| io::Error::other(error.to_string()))?;
    let mut entry = zip.by_index(tensor.at as usize).map_err(io::Error::other)?;
    let (header, _) = read_header(&mut entry).map_err(io::Error::other)?;
    if header.shape != tensor.shape {
        return Err(io::Error::other("the file changed while it was read"));
    }
    entry.read_exact(bytes)?;
    // The end, at which the sum is checked, follows.
    match entry.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other(format!(
            "it has more than {} bytes",
            bytes.len()
        ))),
    }
}

fn open_zip(path: &Path) -> Result<Zip> {
    let file = regular_file::open(path).map_err(|error| cannot_be_read(path, &error))?;
    ZipArchive::new(BufReader::with_capacity(256 << 10, file)).map_err(|error| {
        let what = "it is cut off, or no zip archive of arrays as `numpy.savez` makes";
        Diagnostic::error(format!("{what}: {error}")).in_file(path)
    })
}

/// The arrays of an archive.
pub(super) fn open(path: &Path) -> Result<Vec<FileTensor>> {
    let mut zip = open_zip(path)?;
    let damaged = |what: String| Diagnostic::error(what).in_file(path);
    let (path, file) = (path.to_path_buf(), None);
    let store = Arc::new(ArrayFile { path, file });
    let mut tensors = Vec::new();
    for at in 0..zip.len() {
        let mut entry = zip.by_index(at).map_err(|error| {
            damaged(format!("entry {at} of the archive cannot be read: {error}"))
        })?;
        let Some(name) = entry.name().strip_suffix(".npy").map(str::to_string) else {
            continue;
        };
        let header = read_header(&mut entry);
        let (header, length) = header.map_err(|what| damaged(format!("array `{name}`: {what}")))?;
        let packed = entry.compressed_size();
        let most = match entry.compression() {
            CompressionMethod::Stored => packed,
            _ => entry.size().min(packed.saturating_mul(DEFLATE)),
        };
        let code = header.descr.as_str();
        tensors.push(FileTensor {
            name,
            kind: code.map_or_else(|| ElementType::Other("a structured type".to_string()), kind),
            shape: header.shape,
            big_endian: code.is_some_and(|code| code.starts_with('>')),
            fortran: header.fortran_order,
            at: at as u64,
            most: most.saturating_sub(length),
            store: store.clone(),
        });
    }
    let rows = |one: &FileTensor| {
        one.shape
            .first()
            .map_or(0, |&rows| one.most.min(rows as u64))
    };
    let bytes = tensors.iter().map(|one| one.most + ROW * rows(one)).sum();
    let fits = Room::now().check(bytes, "its arrays take");
    fits.map_err(|error| cannot_be_read(&store.path, &error))?;
    Ok(tensors)
}

/// Writes an archive: the entries of another one, if it is given, except those that a new array replaces, and the new arrays.
pub(super) fn write(
    input: Option<&Path>,
    arrays: &[NewTensor],
    out: &mut Replacement,
) -> Result<()> {
    let zip = input.map(open_zip).transpose()?;
    // Dropped after an error, the archive would try to write its end, and print that it cannot.
    let mut archive = ManuallyDrop::new(ZipWriter::new(&mut *out));
    let add = || -> ZipResult<()> {
        if let Some(mut zip) = zip {
            for at in 0..zip.len() {
                let entry = zip.by_index_raw(at)?;
                let name = entry.name().strip_suffix(".npy");
                if arrays.iter().all(|array| name != Some(&*array.name)) {
                    archive.raw_copy_file(entry)?;
                }
            }
        }
        for array in arrays {
            // Strings are mostly zeros, and are the only ones worth compressing.
            let method = match array.kind {
                ElementType::String(_) => CompressionMethod::Deflated,
                _ => CompressionMethod::Stored,
            };
            let elements: usize = array.shape.iter().product();
            let bytes = elements * array.kind.size().unwrap_or_default();
            let options = SimpleFileOptions::default()
                .compression_method(method)
                .large_file(bytes as u64 >= u64::from(u32::MAX));
            archive.start_file(format!("{}.npy", array.name), options)?;
            archive.write_all(&header(&array.kind, &array.shape))?;
            // The archive adds each piece to its sum: rows of a few tokens are better put together first.
            let mut rows = BufWriter::with_capacity(256 << 10, &mut *archive);
            (array.write)(&mut rows)?;
            rows.flush()?;
        }
        Ok(archive.flush()?)
    };
    let written = add().and_then(|()| ManuallyDrop::into_inner(archive).finish().map(drop));
    written.map_err(|error| match error {
        ZipError::Io(error) => out.error(&error),
        error => out.error(&io::Error::other(error)),
    })
}

/// The parts of an array's header, a Python literal.
#[derive(Debug, Deserialize)]
struct Header {
    descr: serde_json::Value,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Reads the header of an array and its length in bytes, or describes what is wrong with it.
fn read_header(input: &mut impl Read) -> Result<(Header, u64), String> {
    let cut = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "it is cut off in its header".to_string(),
        _ => error.to_string(),
    };
    let mut start = [0; 8];
    input.read_exact(&mut start).map_err(cut)?;
    if !start.starts_with(MAGIC) {
        return Err("it is no npy array".to_string());
    }
    let mut length = [0; 4];
    let size = if start[6] == 1 { 2 } else { 4 };
    input.read_exact(&mut length[..size]).map_err(cut)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST_HEADER {
        return Err(format!(
            "its header claims {length} bytes, where numpy writes a few hundred"
        ));
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text).map_err(cut)?;
    let literal = String::from_utf8(text).map_err(|_| "its header is no text".to_string())?;
    let header = serde_json::from_str(&json(&literal)).map_err(|error| {
        let literal = shorten(literal.trim_end(), 120);
        format!("its header cannot be read ({error}): {literal}")
    })?;
    Ok((header, (8 + size + length) as u64))
}

/// A Python literal in JSON.
fn json(literal: &str) -> String {
    let literal = literal.replace(['\'', '"'], "\"").replace('(', "[");
    let literal = literal.replace(')', "]").replace(", }", "}");
    let literal = literal.replace(",]", "]").replace(",}", "}");
    literal.replace("False", "false").replace("True", "true")
}

/// The header of an array in row order.
fn header(kind: &ElementType, shape: &[usize]) -> Vec<u8> {
    let code = match kind {
        ElementType::Number(Dtype::BOOL) => "|b1".to_string(),
        ElementType::String(letters) => format!("<U{letters}"),
        kind => {
            let name = kind.to_string();
            let bits: usize = name[1..].parse().unwrap_or_default();
            format!("<{}{}", &name[..1], bits / 8)
        }
    };
    let sizes: Vec<String> = shape.iter().map(|size| format!("{size},")).collect();
    let mut text = format!(
        "{{'descr': '{code}', 'fortran_order': False, 'shape': ({}), }}",
        sizes.join(" ")
    );
    // The numbers start at a multiple of 64, as in numpy's own files.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 11;
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    text.push('\n');
    let length = (text.len() as u16).to_le_bytes();
    [MAGIC, &[1, 0], &length, text.as_bytes()].concat()
}

/// A type by numpy's name for it, such as `<f4`.
fn kind(code: &str) -> ElementType {
    let name = code.trim_start_matches(['<', '>', '|', '=']);
    let size = |letter: char| name.strip_prefix(letter)?.parse::<usize>().ok();
    let of_bits = |letter: char| {
        let bits = size(letter.to_ascii_lowercase())?.checked_mul(8)?;
        serde_json::from_value(format!("{letter}{bits}").into()).ok()
    };
    let known = match name {
        "b1" | "?" => Some(Dtype::BOOL),
        _ => ['U', 'I', 'F'].into_iter().find_map(of_bits),
    };
    if let Some(number) = known {
        return ElementType::Number(number);
    }
    let other = || match name {
        "O" => "Python objects".to_string(),
        _ => format!("numpy type `{code}`"),
    };
    size('U').map_or_else(|| ElementType::Other(other()), ElementType::String)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Header, u64), String> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        read_header(&mut bytes.as_slice())
    }

    #[test]
    fn headers_are_read_and_written() {
        let text = "{'descr': '>f4', 'fortran_order': True, 'shape': (3, 4), }";
        let (found, _) = read(text).unwrap();
        assert_eq!(
            kind(found.descr.as_str().unwrap()),
            ElementType::Number(Dtype::F32)
        );
        assert!(found.fortran_order);
        assert_eq!(found.shape, [3, 4]);
        for shape in [&[][..], &[5], &[5, 0]] {
            let bytes = header(&ElementType::Number(Dtype::F64), shape);
            assert_eq!(bytes.len() % 64, 0);
            let (read, length) = read_header(&mut bytes.as_slice()).unwrap();
            assert_eq!((&*read.shape, length), (shape, bytes.len() as u64));
        }
        assert_eq!(kind("<U7"), ElementType::String(7));
        let bare = "{'descr': '<f4', 'shape': (2,)}";
        assert!(read(bare).unwrap_err().contains("fortran_order"));
        assert!(read(&bare.replace("(2,)", "(-2,)")).is_err());
        let lying = [&b"\x93NUMPY\x02\x00"[..], &u32::MAX.to_le_bytes()].concat();
        let said = read_header(&mut lying.as_slice()).unwrap_err();
        assert!(said.contains("claims"));
    }
}
