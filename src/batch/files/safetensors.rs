//! safetensors: the header's tensors, checked against the file, and a copy of a file with one tensor more. The crate
//! reads and writes the entries; the list of them is read here, since the crate keeps one of two tensors of the same
//! name and says nothing, and names no tensor whose location does not fit.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::Dtype;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::raw::{Origin, Raw, Schema};
use super::replace::Replacement;
use super::spread::{self, Spread};
use super::tensor::{Archive, Info, Kind, read_at, shape};
use super::{Progress, cannot_be_read, changed, damaged, read_tensors, saved};
use crate::diagnostic::Diagnostic;

/// The most that the format allows for its header.
const HEADER: u64 = 100_000_000;

/// The header's free strings.
pub(super) type Metadata = BTreeMap<String, String>;

/// A file whose header has been read.
struct Safetensors {
    path: PathBuf,
    file: File,
    tensors: Vec<Info>,
    metadata: Metadata,
}

/// One tensor as the header has it. The crate's own entry refuses a type that it does not know.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The header's entries as they stand.
#[derive(Default)]
struct Entries {
    tensors: Vec<(String, Entry)>,
    metadata: Metadata,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Entries::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        entries.metadata = map.next_value()?;
                        continue;
                    }
                    let entry = map.next_value();
                    let entry = entry
                        .map_err(|error| A::Error::custom(format!("tensor `{name}`: {error}")))?;
                    entries.tensors.push((name, entry));
                }
                Ok(entries)
            }
        }
        input.deserialize_map(Each)
    }
}

impl Safetensors {
    fn open(path: &Path) -> Result<Self, Diagnostic> {
        let no_read = |error: io::Error| cannot_be_read(path, &error);
        let damaged = |what: String| damaged(path, what);
        let mut file = File::open(path).map_err(no_read)?;
        let length = file.metadata().map_err(no_read)?.len();
        if length == 0 {
            return Err(damaged("the file is empty".to_string()));
        }
        if length < 8 {
            return Err(damaged(format!(
                "it has {length} bytes; a safetensors file begins with 8 that say how long its header is"
            )));
        }
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(no_read)?;
        let size = u64::from_le_bytes(size);
        if size > length - 8 || size > HEADER {
            return Err(damaged(format!(
                "its first 8 bytes say that the header has {size} bytes, and {} follow; it is cut off, or no safetensors file",
                length - 8
            )));
        }
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header).map_err(no_read)?;
        let header: Entries = serde_json::from_slice(&header)
            .map_err(|error| damaged(format!("its header is wrong: {error}")))?;
        let mut names = HashSet::new();
        if let Some((twice, _)) = header.tensors.iter().find(|(name, _)| !names.insert(name)) {
            return Err(damaged(format!(
                "its header tells of `{twice}` twice, and which of the two counts nobody can say; write the file again"
            )));
        }
        let data = 8 + size;
        let mut tensors = Vec::new();
        for (name, info) in header.tensors {
            let info = check(&name, info, data);
            tensors.push(
                info.map_err(|what| {
                    damaged(format!("its header says of tensor `{name}`: {what}"))
                })?,
            );
        }
        tensors.sort_by_key(|tensor| (tensor.at, tensor.most));
        let mut end = data;
        for tensor in &tensors {
            if tensor.at != end {
                return Err(damaged(format!(
                    "its header puts tensor `{}` at byte {}, where {} is the end of the one before",
                    tensor.name,
                    tensor.at - data,
                    end - data
                )));
            }
            // `check` has seen that this does not overflow.
            end += tensor.most;
        }
        if end != length {
            return Err(damaged(format!(
                "its header tells of {} bytes of tensors, and {} are there; it is cut off or was written over",
                end - data,
                length - data
            )));
        }
        Ok(Safetensors {
            path: path.to_path_buf(),
            file,
            tensors,
            metadata: header.metadata,
        })
    }
}

/// One entry of the header; `data` is where the tensors begin.
fn check(name: &str, entry: Entry, data: u64) -> Result<Info, String> {
    let (start, end) = entry.data_offsets;
    let Some(bytes) = end.checked_sub(start) else {
        return Err(format!(
            "it ends at byte {end}, before its start at {start}"
        ));
    };
    let dtype: Option<Dtype> = serde_json::from_value(entry.dtype.as_str().into()).ok();
    let mut sizes = entry.shape.iter().copied();
    let elements = sizes.try_fold(1usize, usize::checked_mul);
    let fits = |dtype: Dtype| {
        let bits = elements.and_then(|elements| elements.checked_mul(dtype.bitsize()));
        bits.is_some() && bits == bytes.checked_mul(8)
    };
    if dtype.is_some_and(|dtype| !fits(dtype)) {
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
        at: at.ok_or("its place is beyond any file")?,
        most: bytes as u64,
    })
}

impl Archive for Safetensors {
    fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&self, tensor: &Info, bytes: &mut [u8], told: &dyn Fn(u64)) -> io::Result<()> {
        read_at(&self.file, tensor.at, bytes, told)
    }
}

/// Reads the header; the tensors are read when they are used.
pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Raw, Diagnostic> {
    let file = Safetensors::open(path)?;
    let header = saved::header(path, &file.metadata)?;
    read_tensors(
        header,
        file.tensors.clone(),
        Arc::new(file),
        schema,
        progress,
    )
}

/// The bytes before the tensors, which follow without a gap in the order given: name, type, shape and bytes of each.
pub(super) fn header<'a>(
    metadata: &Metadata,
    tensors: impl Iterator<Item = (&'a str, String, Vec<usize>, u64)>,
) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".to_string(), serde_json::json!(metadata));
    }
    let mut start = 0;
    for (name, dtype, shape, bytes) in tensors {
        let end = start + bytes;
        let entry =
            serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        header.insert(name.to_string(), entry);
        start = end;
    }
    let mut text = serde_json::Value::Object(header).to_string().into_bytes();
    // Tensors then start at a multiple of 8 in the file, as readers that map it into memory want.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    bytes
}

/// Writes a copy of `input` with the advantage as its last tensor.
pub(super) fn write(
    input: &Path,
    origin: &Origin,
    spread: &Spread,
    out: &mut Replacement,
) -> Result<(), Diagnostic> {
    let Safetensors {
        mut file,
        tensors,
        metadata,
        ..
    } = Safetensors::open(input).map_err(|error| changed(input, error))?;
    if !origin.is(&tensors) {
        return Err(changed(input, "its tensors are others"));
    }
    let kept = || tensors.iter().filter(|tensor| tensor.name != spread::NAME);
    let entries = kept().map(|tensor| {
        let dtype = match &tensor.kind {
            Kind::Other(name) => name.clone(),
            kind => kind.to_string().to_uppercase(),
        };
        (
            tensor.name.as_str(),
            dtype,
            tensor.shape.clone(),
            tensor.most,
        )
    });
    let dtype = if spread.is_f64 { "F64" } else { "F32" };
    let last = (
        spread::NAME,
        dtype.to_string(),
        spread.shape(),
        spread.bytes(),
    );
    let header = header(&metadata, entries.chain([last]));
    let mut write = || {
        out.write_all(&header)?;
        for tensor in kept() {
            file.seek(SeekFrom::Start(tensor.at))?;
            let copied = io::copy(&mut (&file).take(tensor.most), out)?;
            if copied != tensor.most {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        spread.write(out)
    };
    write().map_err(|error| out.error(&error))
}
