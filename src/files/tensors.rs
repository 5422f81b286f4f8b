//! Tensors of padded files, whatever the format: their types and shapes, how their bytes become numbers in memory, and how numbers
//! become bytes.

use std::fmt;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use ndarray::{ArrayView2, ShapeBuilder};
use rayon::prelude::*;
use safetensors::Dtype as Number;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::json::Type;
use super::names::{FileKind, Schema};
use super::table::{Column, Origin, Saved, Table};
use super::{Dtype, Progress};
use crate::batch::layout::Tokens;
use crate::batch::{Buffer, Element, GroupId, Layout, Numeric, Padded, TokenValues};
use crate::diagnostic::Diagnostic;

// Numbers are read where they lie, and files hold them with the lowest byte first.
const _: () = assert!(cfg!(target_endian = "little"));

/// Bytes of a mask that are read and laid out while the cache holds them.
const BLOCK: usize = 256 << 10;

/// The type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number(Number),
    /// Strings of up to so many characters of four bytes, as numpy keeps them.
    String(usize),
    /// Something that no column is made of, in words.
    Other(String),
}

/// A type by its name in safetensors, such as `F32`.
pub(super) fn number_type(name: &str) -> Option<Number> {
    serde_json::from_value(name.into()).ok()
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number(number) => f.write_str(&number.to_string().to_lowercase()),
            Kind::String(_) => f.write_str("strings"),
            Kind::Other(name) => f.write_str(name),
        }
    }
}

/// The type, shape and location of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) shape: Vec<usize>,
    pub(super) big_endian: bool,
    /// Columns first, as in Fortran.
    pub(super) fortran: bool,
    /// Its first byte in a safetensors file, its index in an npz archive.
    pub(super) at: u64,
    /// A bound for its bytes, whatever the shape claims.
    pub(super) most: u64,
}

/// A file that tensors are read from.
pub(super) trait Source: fmt::Debug + Send + Sync {
    /// Whether a part can be read by itself; otherwise a tensor is read whole.
    fn has_parts(&self) -> bool;

    /// Reads bytes of a tensor from an offset on.
    fn fill(
        &self,
        tensor: &Info,
        offset: usize,
        bytes: &mut [u8],
        told: &(dyn Fn(u64) + Sync),
    ) -> io::Result<()>;
}

/// A tensor that can be read.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    info: Info,
    path: PathBuf,
    source: Arc<dyn Source>,
}

impl Deref for Tensor {
    type Target = Info;

    fn deref(&self) -> &Info {
        &self.info
    }
}

/// A file of tensors, each of which is read when it is used.
pub(super) fn table(
    path: &Path,
    source: Arc<dyn Source>,
    tensors: Vec<Info>,
    saved: Option<Saved>,
    schema: Schema,
    progress: &Progress,
) -> Result<Table, Diagnostic> {
    progress.expect(tensors.iter().map(|tensor| tensor.most).sum());
    let fields = tensors
        .iter()
        .map(|tensor| (tensor.name.clone(), Type::Array));
    let kind = match saved {
        Some(_) => FileKind::Saved,
        None => FileKind::Tensors,
    };
    let names = schema(&fields.collect::<Vec<_>>(), kind)?;
    let columns = tensors.iter().map(|info| {
        Column::of_tensor(Tensor {
            info: info.clone(),
            path: path.to_path_buf(),
            source: source.clone(),
        })
    });
    Ok(Table {
        path: path.to_path_buf(),
        names: Arc::new(names),
        columns: columns.collect(),
        origin: Origin::Tensors(tensors),
        saved,
    })
}

/// Runs `$body` with `$T` the type of a tensor's numbers.
macro_rules! each_number {
    ($kind:expr, $T:ident => $body:expr, else $other:expr) => {
        each_number!(@ $kind, $T, $body, $other, BOOL u8, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64,
            I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64)
    };
    (@ $kind:expr, $T:ident, $body:expr, $other:expr, $($name:ident $number:ty),+) => {
        match $kind {
            $(Kind::Number(Number::$name) => {
                type $T = $number;
                $body
            })+
            _ => $other,
        }
    };
}

impl Info {
    /// Bytes of one element; `None` if that is not known, or is nothing.
    fn size(&self) -> Option<usize> {
        match &self.kind {
            Kind::String(letters) => letters.checked_mul(4).filter(|&size| size > 0),
            kind => each_number!(kind, T => Some(size_of::<T>()), else None),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        !self.are_strings() && self.size().is_some()
    }

    pub(super) fn are_strings(&self) -> bool {
        matches!(self.kind, Kind::String(_))
    }

    pub(super) fn is_f64(&self) -> bool {
        self.kind == Kind::Number(Number::F64)
    }

    /// Type and shape in words, such as `f32 [128, 1024]`.
    pub(super) fn describe(&self) -> String {
        format!("{} {:?}", self.kind, self.shape)
    }
}

impl Tensor {
    fn wrong(&self, found: String, expected: String) -> Diagnostic {
        let error = Diagnostic::error("").found(found).expected(expected);
        error.in_file(&self.path).in_field(&self.name)
    }

    /// How many numbers there are. A header may claim more bytes than the file has: no memory is taken for those.
    fn count<T>(&self) -> Result<usize, Diagnostic> {
        let mut sizes = self.shape.iter().copied();
        let elements = sizes.try_fold(1usize, usize::checked_mul);
        let bytes = elements.and_then(|elements| elements.checked_mul(self.size()?));
        match bytes.filter(|&bytes| bytes as u64 <= self.most) {
            Some(bytes) => Ok(bytes / size_of::<T>()),
            None => {
                let expected = format!("at most the {} bytes that the file has for it", self.most);
                Err(self.wrong(self.describe(), expected))
            }
        }
    }

    fn zeros<T: FromBytes>(&self, count: usize) -> Result<Vec<T>, Diagnostic> {
        let no_memory = |_| self.wrong(self.describe(), "what the memory holds".to_string());
        T::new_vec_zeroed(count).map_err(no_memory)
    }

    /// The numbers in the order of the file.
    fn load<T: FromBytes + IntoBytes + Send + Sync>(
        &self,
        progress: &Progress,
    ) -> Result<Buffer<T>, Diagnostic> {
        let mut values: Vec<T> = self.zeros(self.count::<T>()?)?;
        self.fill(0, values.as_mut_bytes(), progress)?;
        Ok(values.into())
    }

    /// Reads the tensor's bytes from an offset on.
    fn fill(&self, offset: usize, bytes: &mut [u8], progress: &Progress) -> Result<(), Diagnostic> {
        let length = bytes.len();
        let filled = self
            .source
            .fill(self, offset, bytes, &|piece| progress.add(piece));
        filled.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let expected = format!("{length} bytes for {}", self.describe());
                self.wrong("fewer bytes: it is cut off".to_string(), expected)
            }
            io::ErrorKind::FileTooLarge => {
                let expected = format!("as many as {} has", self.describe());
                self.wrong(format!("more than {length} bytes"), expected)
            }
            _ => Diagnostic::error(format!("tensor `{}` is damaged: {error}", self.name))
                .in_file(&self.path),
        })?;
        if self.kind == Kind::Number(Number::BOOL) {
            let bytes = bytes.iter_mut();
            bytes.for_each(|byte| *byte = u8::from(*byte != 0));
        } else if self.big_endian {
            let size = if self.are_strings() {
                4
            } else {
                self.size().unwrap_or(1)
            };
            bytes.par_chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    /// The numbers in the order of the file, widened; exact except for integers beyond 2^53.
    pub(super) fn numbers(&self, progress: &Progress) -> Result<Vec<f64>, Diagnostic> {
        each_number!(self.kind, T => {
            let values: Buffer<T> = self.load(progress)?;
            Ok(values.par_iter().map(|&value| value.number()).collect())
        }, else Ok(Vec::new()))
    }

    /// Whole numbers as names of groups, exactly, or the index and value of one that is not whole.
    pub(super) fn ids(
        &self,
        progress: &Progress,
    ) -> Result<Result<Vec<GroupId>, (usize, f64)>, Diagnostic> {
        fn exact<T: Copy + Into<GroupId>>(values: &[T]) -> Vec<GroupId> {
            values.iter().map(|&id| id.into()).collect()
        }
        match self.kind {
            Kind::Number(Number::U64) => return Ok(Ok(exact(&self.load::<u64>(progress)?))),
            Kind::Number(Number::I64) => return Ok(Ok(exact(&self.load::<i64>(progress)?))),
            _ => {}
        }
        // Beyond 2^53 a float no longer tells neighbours apart.
        let is_whole = |value: f64| value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
        let values = self.numbers(progress)?.into_iter().enumerate();
        let ids = values.map(|(index, value)| match is_whole(value) {
            true => Ok(GroupId::Number(value as i64)),
            false => Err((index, value)),
        });
        Ok(ids.collect())
    }

    /// Strings that numpy holds as characters of four bytes, filled up with zeros.
    pub(super) fn strings(&self, progress: &Progress) -> Result<Vec<String>, Diagnostic> {
        let Kind::String(letters) = self.kind else {
            return Ok(Vec::new());
        };
        let codes: Buffer<u32> = self.load(progress)?;
        let text = |codes: &[u32]| -> String {
            let letter = |&code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            let padded: String = codes.iter().map(letter).collect();
            padded.trim_end_matches('\0').to_string()
        };
        Ok(codes.chunks_exact(letters.max(1)).map(text).collect())
    }

    /// A tensor [B, T] as a token column: in the file's own precision, unless another one is asked for.
    pub(super) fn tokens(
        &self,
        dtype: Option<Dtype>,
        progress: &Progress,
    ) -> Result<TokenValues, Diagnostic> {
        let (is_f32, is_f64) = (dtype == Some(Dtype::F32), dtype == Some(Dtype::F64));
        Ok(match self.kind {
            Kind::Number(Number::F64) if !is_f32 => self.padded::<f64>(self.load(progress)?),
            Kind::Number(Number::F32) if !is_f64 => self.padded::<f32>(self.load(progress)?),
            Kind::Number(Number::F16) if !is_f64 => self.padded::<f16>(self.load(progress)?),
            Kind::Number(Number::BF16) if !is_f64 => self.padded::<bf16>(self.load(progress)?),
            _ => {
                let values = self.numbers(progress)?;
                // Integers beyond 2^24, such as hashes, are not f32.
                let is_exact = |&value: &f64| f64::from(value as f32) == value;
                if is_f32 || !is_f64 && values.iter().all(is_exact) {
                    let narrow: Vec<f32> = values.par_iter().map(|&value| value as f32).collect();
                    self.padded::<f32>(narrow.into())
                } else {
                    self.padded::<f64>(values.into())
                }
            }
        })
    }

    fn padded<T: Element>(&self, values: Buffer<T>) -> TokenValues {
        // The caller has seen that there are two sizes, and a size of something in memory is below 2^63.
        let (rows, width) = (self.shape[0], self.shape[1]);
        let strides = match self.fortran {
            true => (1, rows as isize),
            false => (width as isize, 1),
        };
        match Padded::with_strides(values, 0, (rows, width), strides) {
            Some(padded) => padded.into(),
            None => unreachable!("`load` gives as many numbers as the shape has"),
        }
    }

    /// A tensor [B, T] as a mask, or the response, the column and the value of what is neither 0 nor 1. It is laid out
    /// block by block while it is read, so that all of it is never in memory.
    pub(super) fn mask(
        &self,
        progress: &Progress,
    ) -> Result<Result<Tokens, (usize, usize, f64)>, Diagnostic> {
        let (rows, width) = (self.shape[0], self.shape[1]);
        each_number!(self.kind, T => {
            self.count::<T>()?;
            let row_bytes = width * size_of::<T>();
            let block = match self.source.has_parts() && !self.fortran {
                true => BLOCK.div_ceil(row_bytes.max(1)),
                false => rows.max(1),
            };
            let laid_out = |memory: &mut Option<Vec<T>>, first: usize| {
                let count = block.min(rows - first);
                if memory.is_none() {
                    *memory = Some(self.zeros(block.min(rows) * width)?);
                }
                let values = memory.as_mut().map_or(&mut [][..], |values| &mut values[..count * width]);
                self.fill(first * row_bytes, values.as_mut_bytes(), progress)?;
                match ArrayView2::from_shape((count, width).set_f(self.fortran), values) {
                    Ok(mask) => Ok::<_, Diagnostic>(Tokens::of_mask(mask)
                        .map_err(|(row, column, value)| (first + row, column, value))),
                    Err(_) => unreachable!("a block has as many numbers as its rows"),
                }
            };
            let blocks = (0..rows.div_ceil(block)).into_par_iter();
            let blocks = blocks.map_init(|| None, |memory, at| laid_out(memory, at * block));
            // Of several errors the first in the file is told.
            let blocks: Vec<_> = blocks.collect();
            let mut tokens = Tokens::new(Some(width));
            for block in blocks {
                match block? {
                    Ok(block) => tokens.append(&block),
                    Err(wrong) => return Ok(Err(wrong)),
                }
            }
            Ok(Ok(tokens))
        }, else Err(self.wrong(self.describe(), "numbers or booleans".to_string())))
    }
}

type WriteBytes<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

/// A tensor to be written: a name, a type and a shape, and what writes its elements.
pub(super) struct NewTensor<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Kind,
    pub(super) shape: Vec<usize>,
    /// How many bytes `write` gives.
    pub(super) bytes: u64,
    pub(super) write: WriteBytes<'a>,
}

impl<'a> NewTensor<'a> {
    /// A tensor of numbers.
    pub(super) fn new(
        name: &'a str,
        dtype: Number,
        shape: Vec<usize>,
        write: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        let elements: u64 = shape.iter().map(|&size| size as u64).product();
        NewTensor {
            name,
            kind: Kind::Number(dtype),
            shape,
            bytes: elements * dtype.bitsize() as u64 / 8,
            write: Box::new(write),
        }
    }

    /// Numbers [B] that are in memory.
    pub(super) fn of<T: IntoBytes + Immutable>(
        name: &'a str,
        dtype: Number,
        values: impl AsRef<[T]> + 'a,
    ) -> Self {
        let shape = vec![values.as_ref().len()];
        NewTensor::new(name, dtype, shape, move |out| {
            out.write_all(values.as_ref().as_bytes())
        })
    }

    /// Strings [B] as numpy keeps them: four bytes a character, filled up with zeros.
    pub(super) fn strings<'t>(
        name: &'a str,
        texts: impl ExactSizeIterator<Item = &'t str> + Clone + 'a,
    ) -> Self {
        let longest = texts.clone().map(|text| text.chars().count()).max();
        let (width, count) = (longest.unwrap_or(0).max(1), texts.len());
        let write = move |out: &mut dyn Write| {
            texts.clone().try_for_each(|text| {
                let mut letters: Vec<u32> = text.chars().map(u32::from).collect();
                letters.resize(width, 0);
                out.write_all(letters.as_bytes())
            })
        };
        NewTensor {
            name,
            kind: Kind::String(width),
            shape: vec![count],
            bytes: (4 * width * count) as u64,
            write: Box::new(write),
        }
    }
}

/// Writes [B, T] with a value for each token that counts, by its response and its index, and 0 elsewhere.
pub(super) fn write_rows<T: Copy + Default + IntoBytes + Immutable>(
    out: &mut dyn Write,
    layout: &Layout,
    width: usize,
    value: impl Fn(usize, usize) -> T,
) -> io::Result<()> {
    let mut row = vec![T::default(); width];
    for response in 0..layout.responses() {
        row.fill(T::default());
        layout.scatter(response, &mut row, |token| value(response, token));
        out.write_all(row.as_bytes())?;
    }
    Ok(())
}
