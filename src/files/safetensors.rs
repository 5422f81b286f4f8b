//! safetensors: the header's tensors, checked against the file, and a copy of a file with more tensors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use ::safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::replace::Replacement;
use super::tensors::{ArrayFile, ElementType, FileTensor, NewTensor};
use super::{Result, cannot_be_read};
use crate::diagnostic::Diagnostic;
#[cfg(unix)]
use crate::parallel::by_parts;

/// The most that the format allows for its header.
const HEADER: u64 = 100_000_000;

/// The strings in the header of a file, by their keys.
pub type Strings = BTreeMap<String, String>;

/// A file's header. The crate's own has tensors in any order, and so would errors.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    strings: Option<Strings>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

/// Reads bytes of a file, in parallel if the system reads at an offset.
pub(super) fn fill(file: &File, start: u64, bytes: &mut [u8]) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileExt;
        // The size of a huge page, so that two threads do not touch the same page first.
        const PART: usize = 2 << 20;
        let read = |at: usize, bytes: &mut [u8]| file.read_exact_at(bytes, start + at as u64);
        by_parts(bytes, PART, &read).into_iter().collect()
    }
    #[cfg(not(unix))]
    {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock();
        let mut file = file;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)
    }
}

/// The tensors of a safetensors file in the order of their bytes, and the strings in its header. `path` is the file's in errors.
///
/// # Errors
/// The file cannot be read, is cut off, or its header is wrong.
pub fn open_safetensors(path: &Path, mut file: File) -> Result<(Vec<FileTensor>, Strings)> {
    let no_read = |error: io::Error| cannot_be_read(path, &error);
    let damaged = |what: String| Diagnostic::error(what).in_file(path);
    let length = file.metadata().map_err(no_read)?.len();
    let mut size = [0; 8];
    let size = file
        .read_exact(&mut size)
        .map(|()| u64::from_le_bytes(size));
    let size = size.ok().filter(|&size| size <= (length - 8).min(HEADER));
    let Some(size) = size else {
        let what = "it is cut off in its header, or no safetensors file";
        return Err(damaged(what.to_string()));
    };
    let mut text = String::new();
    (&file)
        .take(size)
        .read_to_string(&mut text)
        .map_err(no_read)?;
    let wrong = |error: String| damaged(format!("its header is wrong: {error}"));
    let header: Header = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut infos: Vec<(String, TensorInfo)> = header.tensors.into_iter().collect();
    infos.sort_by_key(|(_, info)| info.data_offsets);
    // The crate checks that shapes and offsets agree.
    let checked = Metadata::new(None, infos.clone()).map_err(|error| wrong(error.to_string()))?;
    let (told, found) = (checked.data_len() as u64, length - 8 - size);
    if told != found {
        return Err(damaged(format!(
            "its header tells of {told} bytes of tensors, and {found} are there; it is cut off or was written over"
        )));
    }
    let store = Arc::new(ArrayFile {
        path: path.to_path_buf(),
        file: Some(file),
    });
    let tensors = infos.into_iter().map(|(name, info)| FileTensor {
        kind: ElementType::Number(info.dtype),
        shape: info.shape,
        big_endian: false,
        fortran: false,
        at: 8 + size + info.data_offsets.0 as u64,
        most: (info.data_offsets.1 - info.data_offsets.0) as u64,
        name,
        store: store.clone(),
    });
    Ok((tensors.collect(), header.strings.unwrap_or_default()))
}

/// The first bytes of a safetensors file: the header for tensors of these names, types and shapes. The
/// tensors' bytes follow it without a gap.
pub fn safetensors_header<'a>(
    metadata: Option<Value>,
    tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])>,
) -> Vec<u8> {
    let mut header = Map::new();
    header.extend(metadata.map(|metadata| ("__metadata__".to_string(), metadata)));
    let mut start = 0;
    for (name, dtype, shape) in tensors {
        let end = start + shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let info = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        header.insert(name.to_string(), info);
        start = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    // Tensors then start at a multiple of 8 in the file, as readers that map it into memory want.
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header[..]].concat()
}

/// Writes a file: the header, and the tensors without a gap.
pub(super) fn write_file(
    out: &mut dyn Write,
    strings: &Strings,
    tensors: &[NewTensor],
) -> io::Result<()> {
    let metadata = (!strings.is_empty()).then(|| json!(strings));
    let described = tensors.iter().map(|tensor| match tensor.kind {
        ElementType::Number(dtype) => (&*tensor.name, dtype, &*tensor.shape),
        _ => unreachable!("texts are in the header"),
    });
    out.write_all(&safetensors_header(metadata, described))?;
    tensors.iter().try_for_each(|tensor| (tensor.write)(out))
}

/// Writes a copy of a file with added tensors, which come last.
pub(super) fn write_copy(
    there: &[FileTensor],
    strings: &Strings,
    more: Vec<NewTensor>,
    out: &mut Replacement,
) -> Result<()> {
    let copy = |tensor: &FileTensor, out: &mut dyn Write| {
        let mut file = tensor.store.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.seek(SeekFrom::Start(tensor.at))?;
        match io::copy(&mut file.take(tensor.most), out)? {
            copied if copied == tensor.most => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let is_kept = |tensor: &&FileTensor| more.iter().all(|new| new.name != tensor.name);
    let kept = there.iter().filter(is_kept).map(|tensor| NewTensor {
        name: tensor.name.as_str().into(),
        kind: tensor.kind.clone(),
        shape: tensor.shape.clone(),
        write: Box::new(move |out: &mut dyn Write| copy(tensor, out)),
    });
    let mut tensors: Vec<NewTensor> = kept.collect();
    tensors.extend(more);
    write_file(out, strings, &tensors).map_err(|error| out.error(&error))
}
