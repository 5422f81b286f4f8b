//! safetensors: the header's tensors, checked against the file, and a copy of a file with one tensor more. The crate
//! names the types; the list of tensors is read here, since the crate refuses a file for a type that it does not know,
//! keeps one of two tensors of the same name, and names no tensor whose location does not fit.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use safetensors::Dtype;
use serde::Deserialize;
use serde_json::{Value, json};

use super::json::fields;
use super::raw::{Origin, Raw, Schema};
use super::replace::Replacement;
use super::tensor::{Info, Kind, Source, number, shape};
use super::written::Written;
use super::{Progress, cannot_be_read, changed, damaged, read_tensors, saved};
use crate::diagnostic::Diagnostic;
use crate::regular_file;

/// The most that the format allows for its header.
const HEADER: u64 = 100_000_000;

/// The header's free strings.
pub(super) type Metadata = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Header {
    #[serde(default, rename = "__metadata__")]
    metadata: Metadata,
    #[serde(flatten)]
    tensors: BTreeMap<String, Value>,
}

/// One tensor as the header has it.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The file, its tensors in their order, and the header's strings.
fn open(path: &Path) -> Result<(File, Vec<Info>, Metadata), Diagnostic> {
    let no_read = |error: io::Error| cannot_be_read(path, &error);
    let damaged = |what: String| damaged(path, what);
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
    let header: Header = serde_json::from_str(&text)
        .map_err(|error| damaged(format!("its header is wrong: {error}")))?;
    let mut names = HashSet::new();
    for (name, _) in fields(&text).into_iter().flatten() {
        if let Some(twice) = names.replace(name) {
            return Err(damaged(format!(
                "its header tells of `{twice}` twice, and which of the two counts nobody can say; write the file again"
            )));
        }
    }
    let data = 8 + size;
    let info = |(name, entry): (String, Value)| {
        let info = check(&name, entry, data);
        info.map_err(|what| damaged(format!("its header says of tensor `{name}`: {what}")))
    };
    let tensors = header.tensors.into_iter().map(info);
    let mut tensors: Vec<Info> = tensors.collect::<Result<_, _>>()?;
    tensors.sort_by_key(|tensor| (tensor.at, tensor.most));
    let mut end = data;
    for Info { name, at, most, .. } in &tensors {
        if *at != end {
            return Err(damaged(format!(
                "its header puts tensor `{name}` at byte {}, where {} is the end of the one before",
                at - data,
                end - data
            )));
        }
        // `check` has seen that this does not overflow.
        end += most;
    }
    if end != length {
        return Err(damaged(format!(
            "its header tells of {} bytes of tensors, and {} are there; it is cut off or was written over",
            end - data,
            length - data
        )));
    }
    Ok((file, tensors, header.metadata))
}

/// One entry of the header; `data` is where the tensors begin.
fn check(name: &str, entry: Value, data: u64) -> Result<Info, String> {
    let entry: Entry = serde_json::from_value(entry).map_err(|error| error.to_string())?;
    let (start, end) = entry.data_offsets;
    let Some(bytes) = end.checked_sub(start) else {
        return Err(format!(
            "it ends at byte {end}, before its start at {start}"
        ));
    };
    let dtype = number(&entry.dtype);
    let mut sizes = entry.shape.iter().copied();
    let elements = sizes.try_fold(1usize, usize::checked_mul);
    let bits = |dtype: Dtype| elements?.checked_mul(dtype.bitsize());
    if dtype.is_some_and(|dtype| bits(dtype).is_none_or(|bits| Some(bits) != bytes.checked_mul(8)))
    {
        let shape = shape(&entry.shape);
        return Err(format!(
            "{} {shape} does not fit its {bytes} bytes",
            entry.dtype
        ));
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
pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Raw, Diagnostic> {
    let (file, tensors, metadata) = open(path)?;
    let header = saved::header(path, &metadata)?;
    let source = Source::File(Arc::new(file));
    read_tensors(path, header, tensors, source, schema, progress)
}

/// Writes a file: the header, and the tensors without a gap.
pub(super) fn write_file(
    out: &mut dyn Write,
    metadata: &Metadata,
    tensors: &[Written],
) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".to_string(), json!(metadata));
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
pub(super) fn write(
    input: &Path,
    origin: &Origin,
    more: Vec<Written>,
    out: &mut Replacement,
) -> Result<(), Diagnostic> {
    let (file, there, metadata) = open(input).map_err(|error| changed(input, error))?;
    if !origin.is(&there) {
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
    let kept = there.iter().filter(is_kept).map(|tensor| Written {
        name: &tensor.name,
        kind: tensor.kind.clone(),
        shape: tensor.shape.clone(),
        bytes: tensor.most,
        write: Box::new(move |out: &mut dyn Write| copy(tensor, out)),
    });
    let mut tensors: Vec<Written> = kept.collect();
    tensors.extend(more);
    let written = write_file(out, &metadata, &tensors);
    written.map_err(|error| out.error(&error))
}
