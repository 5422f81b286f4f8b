//! safetensors: the header's tensors, checked against the file, and a copy of a file with more tensors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use ::safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::replace::Replacement;
use super::tensors::{ArrayFile, ElementType, FileTensor, NewTensor};
use super::{Result, cannot_be_read};
use crate::diagnostic::Diagnostic;
use crate::regular_file;

/// The most that the format allows for its header.
const HEADER: u64 = 100_000_000;

pub(super) type Strings = BTreeMap<String, String>;

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
        use rayon::prelude::*;
        use std::os::unix::fs::FileExt;
        // The size of a huge page, so that two threads do not touch the same page first.
        const PART: usize = 2 << 20;
        let parts = bytes.par_chunks_mut(PART).enumerate();
        parts.try_for_each(|(part, bytes)| file.read_exact_at(bytes, start + (part * PART) as u64))
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

/// The tensors of a file in their order, and the header's strings.
pub(super) fn open(path: &Path) -> Result<(Vec<FileTensor>, Strings)> {
    let no_read = |error: io::Error| cannot_be_read(path, &error);
    let damaged = |what: String| Diagnostic::error(what).in_file(path);
    let mut file = regular_file::open(path).map_err(no_read)?;
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
    Metadata::new(None, infos.clone()).map_err(|error| wrong(error.to_string()))?;
    let store = ArrayFile {
        path: path.to_path_buf(),
        file: Some(file),
    };
    let store = Arc::new(store);
    let (data, mut end, mut tensors) = (8 + size, 8 + size, Vec::new());
    for (name, info) in infos {
        let (first, last) = info.data_offsets;
        end = data.saturating_add(last as u64);
        tensors.push(FileTensor {
            kind: ElementType::Number(info.dtype),
            shape: info.shape,
            big_endian: false,
            fortran: false,
            at: data.saturating_add(first as u64),
            most: (last - first) as u64,
            name,
            store: store.clone(),
        });
    }
    if end != length {
        return Err(damaged(format!(
            "its header tells of {} bytes of tensors, and {} are there; it is cut off or was written over",
            end - data,
            length - data
        )));
    }
    Ok((tensors, header.strings.unwrap_or_default()))
}

/// Writes a file: the header, and the tensors without a gap.
pub(super) fn write_file(
    out: &mut dyn Write,
    strings: &Strings,
    tensors: &[NewTensor],
) -> io::Result<()> {
    let mut header = Map::new();
    if !strings.is_empty() {
        header.insert("__metadata__".to_string(), json!(strings));
    }
    let mut start = 0;
    for tensor in tensors {
        let (dtype, end) = (tensor.kind.to_string().to_uppercase(), start + tensor.bytes);
        let entry = json!({"dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end]});
        header.insert(tensor.name.to_string(), entry);
        start = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    // Tensors then start at a multiple of 8 in the file, as readers that map it into memory want.
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
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
        bytes: tensor.most,
        write: Box::new(move |out: &mut dyn Write| copy(tensor, out)),
    });
    let mut tensors: Vec<NewTensor> = kept.collect();
    tensors.extend(more);
    write_file(out, strings, &tensors).map_err(|error| out.error(&error))
}
