//! safetensors: the header's tensors, checked against the file, and a copy of a file with more tensors. The list of tensors is read
//! here: the crate refuses a file for one unknown type, keeps one of two tensors of a name, and names no tensor whose location does
//! not fit.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::json;
use super::names::Schema;
use super::replace::Replacement;
use super::table::{Origin, Table};
use super::tensors::{self, Info, Kind, NewTensor, Source, number_type};
use super::{Progress, cannot_be_read, changed, saved};
use crate::diagnostic::Diagnostic;
use crate::regular_file;

/// The most that the format allows for its header.
const HEADER: u64 = 100_000_000;

/// The header's free strings.
pub(super) type Metadata = BTreeMap<String, String>;

/// The key of the header's free strings.
const METADATA: &str = "__metadata__";

/// One tensor as the header has it.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

impl Source for File {
    fn has_parts(&self) -> bool {
        true
    }

    /// In parallel if the system reads at an offset.
    fn fill(
        &self,
        tensor: &Info,
        offset: usize,
        bytes: &mut [u8],
        told: &(dyn Fn(u64) + Sync),
    ) -> io::Result<()> {
        let start = tensor.at + offset as u64;
        #[cfg(unix)]
        {
            use rayon::prelude::*;
            use std::os::unix::fs::FileExt;
            // A huge page: no two threads begin the same one.
            const PART: usize = 2 << 20;
            let parts = bytes.par_chunks_mut(PART).enumerate();
            parts.try_for_each(|(part, bytes)| {
                self.read_exact_at(bytes, start + (part * PART) as u64)?;
                told(bytes.len() as u64);
                Ok(())
            })
        }
        #[cfg(not(unix))]
        {
            static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
            let _turn = TURN.lock();
            let mut file = self;
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(bytes)?;
            told(bytes.len() as u64);
            Ok(())
        }
    }
}

/// The file, its tensors in their order, and the header's strings.
fn open(path: &Path) -> Result<(File, Vec<Info>, Metadata), Diagnostic> {
    let no_read = |error: io::Error| cannot_be_read(path, &error);
    let damaged = |what: String| Diagnostic::error(what).in_file(path);
    let mut file = regular_file::open(path).map_err(no_read)?;
    let length = file.metadata().map_err(no_read)?.len();
    let Some(rest) = length.checked_sub(8) else {
        return Err(damaged(format!(
            "it has {length} bytes; a safetensors file begins with 8 that say how long its header is"
        )));
    };
    let mut size = [0; 8];
    file.read_exact(&mut size).map_err(no_read)?;
    let size = u64::from_le_bytes(size);
    if size > rest.min(HEADER) {
        return Err(damaged(format!(
            "its first 8 bytes say that the header has {size} bytes, and {rest} follow; it is cut off, or no safetensors file"
        )));
    }
    let mut text = String::new();
    let read = (&file).take(size).read_to_string(&mut text);
    read.map_err(no_read)?;
    let (tensors, metadata) = read_header(&text, 8 + size).map_err(damaged)?;
    let mut end = 8 + size;
    for Info { name, at, most, .. } in &tensors {
        if *at != end {
            return Err(damaged(format!(
                "its header puts tensor `{name}` at byte {}, where {} is the end of the one before",
                at - (8 + size),
                end - (8 + size)
            )));
        }
        // `tensor` has seen that this does not overflow.
        end += most;
    }
    if end != length {
        return Err(damaged(format!(
            "its header tells of {} bytes of tensors, and {} are there; it is cut off or was written over",
            end - (8 + size),
            rest - size
        )));
    }
    Ok((file, tensors, metadata))
}

/// The tensors of a header in the order of their bytes, which begin at `data`, and its strings.
fn read_header(text: &str, data: u64) -> Result<(Vec<Info>, Metadata), String> {
    let wrong = |what: &dyn fmt::Display| format!("its header is wrong: {what}");
    let fields = json::fields(text).map_err(|_| wrong(&"it is not one object in JSON"))?;
    let (mut tensors, mut metadata, mut names) = (Vec::new(), Metadata::new(), HashSet::new());
    for (key, raw) in fields {
        let name = json::text(key);
        if name == METADATA {
            metadata = serde_json::from_str(raw).map_err(|error| wrong(&error))?;
        } else {
            let tensor = tensor(&name, raw, data);
            tensors.push(
                tensor.map_err(|what| format!("its header says of tensor `{name}`: {what}"))?,
            );
        }
        if let Some(twice) = names.replace(name) {
            return Err(format!(
                "its header tells of `{twice}` twice, and which of the two counts nobody can say; write the file again"
            ));
        }
    }
    tensors.sort_by_key(|tensor: &Info| (tensor.at, tensor.most));
    Ok((tensors, metadata))
}

/// One entry of the header.
fn tensor(name: &str, raw: &str, data: u64) -> Result<Info, String> {
    let entry: Value = serde_json::from_str(raw).map_err(|error| error.to_string())?;
    let entry: Entry = serde_json::from_value(entry).map_err(|error| error.to_string())?;
    let (start, end) = entry.data_offsets;
    let Some(bytes) = end.checked_sub(start) else {
        return Err(format!(
            "it ends at byte {end}, before its start at {start}"
        ));
    };
    let dtype = number_type(&entry.dtype);
    if let Some(dtype) = dtype {
        let mut sizes = entry.shape.iter().copied();
        let elements = sizes.try_fold(1usize, usize::checked_mul);
        let bits = elements.and_then(|elements| elements.checked_mul(dtype.bitsize()));
        if bits.is_none() || bits != bytes.checked_mul(8) {
            let (name, shape) = (&entry.dtype, &entry.shape);
            return Err(format!("{name} {shape:?} does not fit its {bytes} bytes"));
        }
    }
    let at = data.checked_add(start as u64);
    let at = at.filter(|at| at.checked_add(bytes as u64).is_some());
    Ok(Info {
        name: name.to_string(),
        kind: dtype.map_or(Kind::Other(entry.dtype), Kind::Number),
        shape: entry.shape,
        big_endian: false,
        fortran: false,
        at: at.ok_or("its bytes are beyond any file")?,
        most: bytes as u64,
    })
}

/// Reads the header; the tensors are read when they are used.
pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Table, Diagnostic> {
    let (file, tensors, metadata) = open(path)?;
    let saved = saved::header(&metadata);
    let saved = saved.map_err(|what| Diagnostic::error(what).in_file(path))?;
    tensors::table(path, Arc::new(file), tensors, saved, schema, progress)
}

/// Writes a file: the header, and the tensors without a gap.
pub(super) fn write_file(
    out: &mut dyn Write,
    metadata: &Metadata,
    tensors: &[NewTensor],
) -> io::Result<()> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert(METADATA.to_string(), json!(metadata));
    }
    let mut start = 0;
    for tensor in tensors {
        let dtype = match &tensor.kind {
            Kind::Other(name) => name.clone(),
            kind => kind.to_string().to_uppercase(),
        };
        let (shape, end) = (&tensor.shape, start + tensor.bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
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

/// Writes a copy of `input` with more tensors, which come last.
pub(super) fn write_copy(
    input: &Path,
    origin: &Origin,
    more: Vec<NewTensor>,
    out: &mut Replacement,
) -> Result<(), Diagnostic> {
    let (file, there, metadata) = open(input).map_err(|error| changed(input, error))?;
    if !matches!(origin, Origin::Tensors(then) if *then == there) {
        return Err(changed(input, "its tensors are others"));
    }
    let copy = |tensor: &Info, out: &mut dyn Write| {
        let mut file = &file;
        file.seek(SeekFrom::Start(tensor.at))?;
        match io::copy(&mut file.take(tensor.most), out)? {
            copied if copied == tensor.most => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let is_kept = |tensor: &&Info| more.iter().all(|new| new.name != tensor.name);
    let kept = there.iter().filter(is_kept).map(|tensor| NewTensor {
        name: &tensor.name,
        kind: tensor.kind.clone(),
        shape: tensor.shape.clone(),
        bytes: tensor.most,
        write: Box::new(move |out: &mut dyn Write| copy(tensor, out)),
    });
    let mut tensors: Vec<NewTensor> = kept.collect();
    tensors.extend(more);
    let written = write_file(out, &metadata, &tensors);
    written.map_err(|error| out.error(&error))
}
