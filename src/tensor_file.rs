//! Tensors in safetensors files: this module reads and checks a file's header, reads numbers, and writes new files and copies
//! with additional tensors.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use zerocopy::{FromBytes, IntoBytes};

use crate::batch::large::in_large_pages;
use crate::batch::{Buffer, Numeric};
use crate::diagnostic::Diagnostic;
use crate::parallel::by_parts;
use crate::regular_file::{self, cannot_be_read};
use crate::replace::Replacement;
use crate::tensor::Precision;

type Result<T> = std::result::Result<T, Diagnostic>;

// Numbers are read and written byte for byte, and the format is little-endian, so the machine has to be little-endian, too.
const _: () = assert!(cfg!(target_endian = "little"));

/// The maximum number of bytes that the format allows for the header.
const HEADER: u64 = 100_000_000;

/// The number of values that a thread converts at a time.
const PART: usize = 1 << 14;

/// The strings in the header of a file, by their keys.
pub type Strings = BTreeMap<String, String>;

/// A file's header. The type of the crate `safetensors` is not used, because its random order of tensors would make the choice of
/// the error random.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    strings: Option<Strings>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

/// A tensor of a file: its type, shape and location.
#[derive(Clone, Debug)]
pub struct FileTensor {
    /// The tensor's name in the file.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The size in each dimension.
    pub shape: Vec<usize>,
    /// The position of the tensor's first byte in the file.
    at: u64,
    /// The number of the tensor's bytes. The header has been checked: the type and the shape need exactly this many bytes, and
    /// the file has them.
    length: usize,
    file: Arc<(PathBuf, File)>,
}

/// Runs `$body` with `$T` as the type of a tensor's numbers, or `$other` if the elements have a type that is not listed here.
/// Booleans have the type u8.
macro_rules! each_number {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        $crate::tensor_file::each_number!(@ $dtype, $T, $body, $other, BOOL u8, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32,
            I32 i32, U64 u64, I64 i64, F16 half::f16, BF16 half::bf16, F32 f32, F64 f64)
    };
    (@ $dtype:expr, $T:ident, $body:expr, $other:expr, $($name:ident $number:ty),+) => {
        match $dtype {
            $(safetensors::Dtype::$name => {
                type $T = $number;
                $body
            })+
            _ => $other,
        }
    };
}
pub(crate) use each_number;

/// Reads bytes of a file, in parallel on Unix, where any thread can read at any offset.
fn fill(file: &File, start: u64, bytes: &mut [u8]) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileExt;
        // The size of a huge page, so that two threads write to the same page only at a border of their parts.
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

/// The content of a safetensors file's header.
pub struct OpenTensors {
    /// The tensors, in the order of their bytes.
    pub tensors: Vec<FileTensor>,
    /// The strings in the header.
    pub strings: Strings,
    /// A checksum of the tensors' names, types, shapes and positions.
    pub(crate) sum: u32,
}

/// Opens a safetensors file.
///
/// # Errors
/// The file cannot be read, its header is invalid, or the file is shorter or longer than the header says.
pub fn open_safetensors(path: &Path) -> Result<OpenTensors> {
    let read = || -> io::Result<(File, u64, Option<u64>, String)> {
        let mut file = regular_file::open(path)?;
        let (length, mut size, mut text) = (file.metadata()?.len(), [0; 8], String::new());
        let size = file
            .read_exact(&mut size)
            .map(|()| u64::from_le_bytes(size));
        let size = size
            .ok()
            .filter(|&size| size <= length.saturating_sub(8).min(HEADER));
        let header = (&file).take(size.unwrap_or_default());
        { header }.read_to_string(&mut text)?;
        Ok((file, length, size, text))
    };
    let (file, length, size, text) = read().map_err(|error| cannot_be_read(path, &error))?;
    let damaged = |what: String| Diagnostic::error(what).in_file(path);
    let Some(size) = size else {
        let what = "it is cut off within its header, or is not a safetensors file";
        return Err(damaged(what.to_string()));
    };
    let wrong = |error: String| damaged(format!("its header is invalid: {error}"));
    let header: Header = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut infos: Vec<(String, TensorInfo)> = header.tensors.into_iter().collect();
    infos.sort_by_key(|(_, info)| info.data_offsets);
    // The crate `safetensors` checks that shapes and offsets agree.
    let checked = Metadata::new(None, infos.clone()).map_err(|error| wrong(error.to_string()))?;
    let (told, found) = (checked.data_len() as u64, length - 8 - size);
    if told != found {
        return Err(damaged(format!(
            "its header describes {told} bytes of tensors, but the file has {found}: it is cut off, or was overwritten"
        )));
    }
    let file = Arc::new((path.to_path_buf(), file));
    let tensors = infos.into_iter().map(|(name, info)| FileTensor {
        name,
        dtype: info.dtype,
        shape: info.shape,
        at: 8 + size + info.data_offsets.0 as u64,
        length: info.data_offsets.1 - info.data_offsets.0,
        file: file.clone(),
    });
    let tensors: Vec<FileTensor> = tensors.collect();
    Ok(OpenTensors {
        sum: checksum(&tensors),
        tensors,
        strings: header.strings.unwrap_or_default(),
    })
}

impl FileTensor {
    /// Returns whether the elements can be read as numbers. Booleans can; complex numbers and floats of 4, 6 and 8 bits cannot.
    pub fn is_number(&self) -> bool {
        each_number!(self.dtype, T => size_of::<T>() > 0, else false)
    }

    /// Returns the type and the shape in words, such as `f32 [128, 1024]`.
    pub fn describe(&self) -> String {
        let dtype = self.dtype.to_string().to_lowercase();
        format!("{dtype} {:?}", self.shape)
    }

    /// Returns the numbers as f32, row by row.
    ///
    /// # Errors
    /// The numbers cannot be read.
    pub fn f32s(&self) -> Result<Buffer<f32>> {
        self.numbers()
    }

    /// Returns the error for a tensor of a wrong type or shape.
    pub(crate) fn wrong(&self, expected: impl Into<String>) -> Diagnostic {
        let error = Diagnostic::error("")
            .found(self.describe())
            .expected(expected);
        error.in_file(&self.file.0).in_field(&self.name)
    }

    /// Returns `count` of the tensor's rows as a tensor, from the row `start` on.
    pub(crate) fn rows(&self, start: usize, count: usize) -> FileTensor {
        let (row, mut rows) = (self.row_bytes(), self.clone());
        rows.shape[0] = count;
        rows.at += (start * row) as u64;
        rows.length = count * row;
        rows
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.length / self.shape[0].max(1)
    }

    /// Returns the numbers, row by row, in the type `T`, which must be the type in the file; booleans become 0 or 1.
    pub(crate) fn load<T: FromBytes + IntoBytes + Copy + Send + Sync>(&self) -> Result<Buffer<T>> {
        let values = T::new_vec_zeroed(self.length / size_of::<T>());
        let mut values = values.map_err(|_| self.wrong("a tensor that fits into the memory"))?;
        let bytes = values.as_mut_bytes();
        in_large_pages(bytes);
        fill(&self.file.1, self.at, bytes).map_err(|error| {
            let (name, what) = (&self.name, self.describe());
            let what = format!("tensor `{name}` ({what}) is damaged: {error}");
            Diagnostic::error(what).in_file(&self.file.0)
        })?;
        if self.dtype == Dtype::BOOL {
            let bytes = bytes.iter_mut();
            bytes.for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(values.into())
    }

    /// Returns the numbers, row by row, converted to f32 or f64; the conversion to f64 is exact except for integers beyond 2^53.
    /// Numbers that have this type in the file are not converted.
    pub(crate) fn numbers<N: Precision + FromBytes + IntoBytes>(&self) -> Result<Buffer<N>> {
        let own = [Dtype::F32, Dtype::F64][usize::from(size_of::<N>() == 8)];
        if self.dtype == own {
            return self.load();
        }
        each_number!(self.dtype, T => {
            let values: Buffer<T> = self.load()?;
            let mut numbers = vec![N::default(); values.len()];
            in_large_pages(&mut numbers);
            by_parts(&mut numbers, PART, &|start, part| {
                for (number, value) in part.iter_mut().zip(&values[start..]) {
                    *number = N::narrow(value.number());
                }
            });
            Ok(numbers.into())
        }, else Err(self.wrong("numbers")))
    }
}

/// Returns a checksum of the names, types, shapes and positions of a file's tensors.
fn checksum(tensors: &[FileTensor]) -> u32 {
    let facts = tensors.iter().map(|tensor| {
        let place = (tensor.at, tensor.length);
        format!("{:?} {} {place:?}", tensor.name, tensor.describe())
    });
    crc32c::crc32c(facts.collect::<String>().as_bytes())
}

/// Returns the first bytes of a safetensors file: the header for tensors with the given names, types and shapes. The tensors'
/// bytes follow the header without a gap.
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
    // The tensors then start at a multiple of 8 bytes, which readers that map the file into memory require.
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header[..]].concat()
}

type WriteBytes<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

/// A tensor to write: a name, a type and a shape, and a function that writes its elements.
pub(crate) struct NewTensor<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) write: WriteBytes<'a>,
}

/// Writes a file: the header, followed by the tensors without gaps.
pub(crate) fn write_file(
    out: &mut dyn Write,
    strings: &Strings,
    tensors: &[NewTensor],
) -> io::Result<()> {
    let metadata = (!strings.is_empty()).then(|| json!(strings));
    let described = tensors
        .iter()
        .map(|tensor| (&*tensor.name, tensor.dtype, &*tensor.shape));
    out.write_all(&safetensors_header(metadata, described))?;
    tensors.iter().try_for_each(|tensor| (tensor.write)(out))
}

/// Writes a copy of a file with new tensors, which come last; a new tensor replaces a tensor of the same name.
pub(crate) fn write_copy(
    there: &OpenTensors,
    more: Vec<NewTensor>,
    out: &mut Replacement,
) -> Result<()> {
    let copy = |tensor: &FileTensor, out: &mut dyn Write| {
        let (mut file, length) = (&tensor.file.1, tensor.length as u64);
        file.seek(SeekFrom::Start(tensor.at))?;
        match io::copy(&mut file.take(length), out)? {
            copied if copied == length => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let is_kept = |tensor: &&FileTensor| more.iter().all(|new| new.name != tensor.name);
    let kept = there
        .tensors
        .iter()
        .filter(is_kept)
        .map(|tensor| NewTensor {
            name: tensor.name.as_str().into(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            write: Box::new(move |out: &mut dyn Write| copy(tensor, out)),
        });
    let mut tensors: Vec<NewTensor> = kept.collect();
    tensors.extend(more);
    write_file(out, &there.strings, &tensors).map_err(|error| out.error(&error))
}
