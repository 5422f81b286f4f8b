//! safetensors: the header's tensors, checked against the file, and a copy of a file with one tensor more.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::element::Element;
use super::spread::{self, Spread};
use super::tensors::{Archive, Tensor, shape};
use crate::batch::files::replace::Replacement;
use crate::batch::files::{ReadError, WriteError};

/// The most that the format allows for its header.
const HEADER: u64 = 100_000_000;

/// A file whose header has been read.
pub(super) struct Safetensors {
    path: PathBuf,
    file: File,
    pub(super) tensors: Vec<Tensor>,
    /// The header's free texts.
    pub(super) metadata: Map<String, Value>,
    pub(super) length: u64,
}

impl Safetensors {
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_path_buf(),
            source,
        };
        let damaged = |what: String| ReadError::Damaged {
            path: path.to_path_buf(),
            what,
        };
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut size = [0; 8];
        if length == 0 {
            return Err(damaged("the file is empty".to_string()));
        }
        if length < 8 {
            return Err(damaged(format!(
                "it has {length} bytes; a safetensors file begins with 8 that say how long its header is"
            )));
        }
        file.read_exact(&mut size).map_err(io)?;
        let size = u64::from_le_bytes(size);
        if size > length - 8 || size > HEADER {
            return Err(damaged(format!(
                "its first 8 bytes say that the header has {size} bytes, and {} follow; it is cut off, or no safetensors file",
                length - 8
            )));
        }
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header).map_err(io)?;
        let Entries(header) = serde_json::from_slice(&header)
            .map_err(|error| damaged(format!("its header is not an object in JSON: {error}")))?;
        let data = 8 + size;
        let mut tensors = Vec::new();
        let mut metadata = Map::new();
        let mut names = HashSet::new();
        if let Some((twice, _)) = header.iter().find(|(name, _)| !names.insert(name)) {
            return Err(damaged(format!(
                "its header tells of `{twice}` twice, and which of the two counts nobody can say; write the file again"
            )));
        }
        for (name, value) in header {
            match (name.as_str(), value) {
                ("__metadata__", Value::Object(texts)) => metadata = texts,
                (_, value) => tensors.push(tensor(&name, &value, data).map_err(|what| {
                    damaged(format!("its header says of tensor `{name}`: {what}"))
                })?),
            }
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
            // `tensor` has checked that this does not overflow.
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
            metadata,
            length,
        })
    }

    /// Copies the bytes of a tensor as they are.
    pub(super) fn copy(&mut self, tensor: &Tensor, out: &mut impl Write) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(tensor.at))?;
        let copied = io::copy(&mut (&self.file).take(tensor.most), out)?;
        match copied == tensor.most {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Archive for Safetensors {
    fn open(&mut self, tensor: &Tensor) -> Result<Box<dyn Read + '_>, ReadError> {
        let sought = self.file.seek(SeekFrom::Start(tensor.at));
        sought.map_err(|source| ReadError::Io {
            path: self.path.clone(),
            source,
        })?;
        Ok(Box::new((&self.file).take(tensor.most)))
    }
}

/// The header's entries as they stand: a map would keep one of two with the same name, and say nothing.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        input.deserialize_map(Each)
    }
}

/// One entry of the header; `most` is its number of bytes.
fn tensor(name: &str, value: &Value, data: u64) -> Result<Tensor, String> {
    let Value::Object(entry) = value else {
        return Err("no object with `dtype`, `shape` and `data_offsets`".to_string());
    };
    let numbers = |key: &str| -> Result<Vec<u64>, String> {
        let list = entry.get(key).and_then(Value::as_array);
        list.and_then(|list| list.iter().map(Value::as_u64).collect())
            .ok_or_else(|| format!("`{key}` is no list of whole numbers"))
    };
    let sizes = numbers("shape")?;
    let offsets = numbers("data_offsets")?;
    let &[start, end] = offsets.as_slice() else {
        return Err(
            "`data_offsets` are not two numbers, the first byte and the one after the last"
                .to_string(),
        );
    };
    let Some(bytes) = end.checked_sub(start) else {
        return Err(format!(
            "it ends at byte {end}, before its start at {start}"
        ));
    };
    let dtype = entry
        .get("dtype")
        .and_then(Value::as_str)
        .ok_or("`dtype` is no text")?;
    let sizes = sizes
        .iter()
        .map(|&size| usize::try_from(size))
        .collect::<Result<Vec<_>, _>>();
    let sizes = sizes.map_err(|_| "its shape is too large for this machine".to_string())?;
    let tensor = Tensor {
        name: name.to_string(),
        element: element(dtype),
        shape: sizes,
        big_endian: false,
        fortran: false,
        at: data
            .checked_add(start)
            .filter(|at| at.checked_add(bytes).is_some())
            .ok_or("its place is beyond any file")?,
        most: bytes,
    };
    match (tensor.element.size(), tensor.extent()) {
        (Some(_), Some((_, needed))) if needed as u64 == bytes => Ok(tensor),
        (Some(_), _) => Err(format!(
            "{dtype} {} does not fit its {bytes} bytes",
            shape(&tensor.shape)
        )),
        (None, _) => Ok(tensor),
    }
}

/// The format's names of types.
const DTYPES: [(Element, &str); 13] = [
    (Element::Bool, "BOOL"),
    (Element::U8, "U8"),
    (Element::I8, "I8"),
    (Element::U16, "U16"),
    (Element::I16, "I16"),
    (Element::U32, "U32"),
    (Element::I32, "I32"),
    (Element::U64, "U64"),
    (Element::I64, "I64"),
    (Element::F16, "F16"),
    (Element::BF16, "BF16"),
    (Element::F32, "F32"),
    (Element::F64, "F64"),
];

fn element(dtype: &str) -> Element {
    let known = DTYPES.iter().find(|(_, name)| *name == dtype);
    known.map_or_else(
        || Element::Other(dtype.to_string()),
        |(element, _)| element.clone(),
    )
}

/// The bytes before the tensors, which follow without a gap in the order given: name, type, shape and bytes of each.
pub(super) fn header<'a>(
    metadata: &Map<String, Value>,
    tensors: impl Iterator<Item = (&'a str, &'a Element, Vec<usize>, u64)>,
) -> Vec<u8> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".to_string(), Value::Object(metadata.clone()));
    }
    let mut start = 0;
    for (name, element, shape, bytes) in tensors {
        let dtype = match element {
            Element::Other(name) => name,
            known => DTYPES
                .iter()
                .find(|(element, _)| element == known)
                .map_or("", |(_, name)| *name),
        };
        let entry = serde_json::json!({
            "dtype": dtype, "shape": shape, "data_offsets": [start, start + bytes],
        });
        header.insert(name.to_string(), entry);
        start += bytes;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    // Tensors then start at a multiple of 8 in the file, as readers that map it into memory want.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    bytes
}

/// Writes a copy of `input` with the advantage as its last tensor; `then` are the tensors that were read.
pub(in crate::batch::files) fn write(
    input: &Path,
    then: &[Tensor],
    advantage: &Spread,
    out: &Path,
) -> Result<(), WriteError> {
    let mut source = Safetensors::open(input).map_err(|error| WriteError::gone(input, error))?;
    if source.tensors != then {
        return Err(WriteError::changed(input, "its tensors are others"));
    }
    let mut file = Replacement::new(out)?;
    let kept: Vec<&Tensor> = then
        .iter()
        .filter(|tensor| tensor.name != spread::NAME)
        .collect();
    let entries = kept.iter().map(|tensor| {
        (
            tensor.name.as_str(),
            &tensor.element,
            tensor.shape.clone(),
            tensor.most,
        )
    });
    let last = (
        spread::NAME,
        advantage.element(),
        advantage.shape(),
        advantage.bytes(),
    );
    let header = header(&source.metadata, entries.chain([last]));
    let mut write = || {
        file.write_all(&header)?;
        kept.iter()
            .try_for_each(|tensor| source.copy(tensor, &mut file))?;
        advantage.write(&mut file)
    };
    match write() {
        Ok(()) => file.finish(),
        Err(error) => Err(file.error(error)),
    }
}
