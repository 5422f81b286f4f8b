//! Tensors of padded files in any format: their types and shapes, how their bytes become numbers in memory, and how numbers
//! become bytes.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use ::safetensors::Dtype as Number;
use half::{bf16, f16};
use ndarray::ArrayView2;
use zerocopy::{FromBytes, IntoBytes};

use super::json::is_exact;
use super::{Result, npz, safetensors};
use crate::batch::large::in_large_pages;
use crate::batch::layout::Tokens;
use crate::batch::{Buffer, GroupId, Numeric};
use crate::diagnostic::Diagnostic;
use crate::parallel::by_parts;
use crate::tensor::Precision;

// Numbers are read in place, and files store them with the lowest byte first.
const _: () = assert!(cfg!(target_endian = "little"));

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ElementType {
    Number(Number),
    /// Strings of up to so many characters of four bytes, as numpy keeps them.
    String(usize),
    /// A description of an element type that no column can have.
    Other(String),
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementType::Number(number) => f.write_str(&number.to_string().to_lowercase()),
            ElementType::String(_) => f.write_str("strings"),
            ElementType::Other(name) => f.write_str(name),
        }
    }
}

/// A tensor of a file: its type, shape and location.
#[derive(Clone, Debug)]
pub struct FileTensor {
    /// Its name in the file.
    pub name: String,
    /// Its size in each dimension.
    pub shape: Vec<usize>,
    pub(super) kind: ElementType,
    pub(super) big_endian: bool,
    /// Columns first, as in Fortran.
    pub(super) fortran: bool,
    /// Its first byte in a safetensors file, its index in an npz archive.
    pub(super) at: u64,
    /// An upper bound for the tensor's bytes, independent of the claimed shape.
    pub(super) most: u64,
    pub(super) store: Arc<ArrayFile>,
}

#[derive(Debug)]
pub(super) struct ArrayFile {
    pub(super) path: PathBuf,
    /// A safetensors file. An npz archive is opened again for each array: they are unpacked in parallel.
    pub(super) file: Option<File>,
}

/// Runs `$body` with `$T` the type of a tensor's numbers.
macro_rules! each_number {
    ($kind:expr, $T:ident => $body:expr, else $other:expr) => {
        each_number!(@ $kind, $T, $body, $other, BOOL u8, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64,
            I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64)
    };
    (@ $kind:expr, $T:ident, $body:expr, $other:expr, $($name:ident $number:ty),+) => {
        match $kind {
            $(ElementType::Number(Number::$name) => {
                type $T = $number;
                $body
            })+
            _ => $other,
        }
    };
}

impl ElementType {
    /// Bytes of one element; `None` if that is not known, or is nothing.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            ElementType::String(letters) => letters.checked_mul(4).filter(|&size| size > 0),
            kind => each_number!(kind, T => Some(size_of::<T>()), else None),
        }
    }
}

impl FileTensor {
    /// The type of its numbers, if safetensors has a name for it.
    pub fn dtype(&self) -> Option<Number> {
        match self.kind {
            ElementType::Number(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// The numbers as f32, row by row.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn f32s(&self) -> Result<Buffer<f32>> {
        match self.is_number() {
            true => self.numbers(),
            false => Err(self.wrong("numbers")),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        !self.are_strings() && self.kind.size().is_some()
    }

    pub(super) fn are_strings(&self) -> bool {
        matches!(self.kind, ElementType::String(_))
    }

    pub(super) fn is_f64(&self) -> bool {
        self.kind == ElementType::Number(Number::F64)
    }

    /// Whether numbers are not exact as f32: large integers, such as hashes, are not.
    pub(super) fn is_wide(&self) -> bool {
        use Number::{F64, I32, I64, U32, U64};
        matches!(self.kind, ElementType::Number(F64 | I32 | U32 | I64 | U64))
    }

    /// Type and shape in words, such as `f32 [128, 1024]`.
    pub(super) fn describe(&self) -> String {
        format!("{} {:?}", self.kind, self.shape)
    }

    fn wrong(&self, expected: impl Into<String>) -> Diagnostic {
        let error = Diagnostic::error("")
            .found(self.describe())
            .expected(expected);
        error.in_file(&self.store.path).in_field(&self.name)
    }

    /// The number of bytes. A header may claim more than the file has, so no memory is allocated before this check.
    pub(super) fn bytes(&self) -> Result<usize> {
        let mut sizes = self.shape.iter().copied();
        let elements = sizes.try_fold(1usize, usize::checked_mul);
        let bytes = elements.and_then(|elements| elements.checked_mul(self.kind.size()?));
        let bytes = bytes.filter(|&bytes| bytes as u64 <= self.most);
        bytes.ok_or_else(|| {
            self.wrong(format!(
                "at most the {} bytes that the file has for it",
                self.most
            ))
        })
    }

    /// The numbers, row by row.
    pub(super) fn load<T: FromBytes + IntoBytes + Copy + Send + Sync>(&self) -> Result<Buffer<T>> {
        let values = T::new_vec_zeroed(self.bytes()? / size_of::<T>());
        let mut values = values.map_err(|_| self.wrong("what the memory holds"))?;
        let bytes = values.as_mut_bytes();
        in_large_pages(bytes);
        let filled = match &self.store.file {
            Some(file) => safetensors::fill(file, self.at, bytes),
            None => npz::fill(self, bytes),
        };
        filled.map_err(|error| {
            let (name, what) = (&self.name, self.describe());
            let what = format!("tensor `{name}` ({what}) is damaged: {error}");
            Diagnostic::error(what).in_file(&self.store.path)
        })?;
        if self.kind == ElementType::Number(Number::BOOL) {
            let bytes = bytes.iter_mut();
            bytes.for_each(|byte| *byte = u8::from(*byte != 0));
        } else if self.big_endian {
            by_parts(bytes, PART * size_of::<T>(), &|_, part| {
                let elements = part.chunks_exact_mut(size_of::<T>());
                elements.for_each(<[u8]>::reverse);
            });
        }
        if let ([rows, width], true) = (&self.shape[..], self.fortran) {
            let by_row = (0..values.len()).map(|at| values[at % width * rows + at / width]);
            values = by_row.collect();
        }
        Ok(values.into())
    }

    /// The numbers, row by row, widened or narrowed; exact as f64 except for integers beyond 2^53. Those that are of the type in
    /// the file are not copied.
    pub(super) fn numbers<N: Precision + FromBytes + IntoBytes>(&self) -> Result<Buffer<N>> {
        let own = [Number::F32, Number::F64][usize::from(size_of::<N>() == 8)];
        if self.kind == ElementType::Number(own) {
            return self.load();
        }
        each_number!(self.kind, T => {
            let values: Buffer<T> = self.load()?;
            let mut numbers = vec![N::default(); values.len()];
            in_large_pages(&mut numbers);
            by_parts(&mut numbers, PART, &|start, part| {
                for (number, value) in part.iter_mut().zip(&values[start..]) {
                    *number = N::narrow(value.number());
                }
            });
            Ok(numbers.into())
        }, else Ok(Vec::<N>::new().into()))
    }

    /// Whole numbers as names of groups, exactly; or the index and value of a number that is not whole.
    pub(super) fn ids(&self) -> Result<Result<Vec<GroupId>, (usize, f64)>> {
        fn exact<T: Copy + Into<GroupId>>(values: Buffer<T>) -> Vec<GroupId> {
            values.iter().map(|&id| id.into()).collect()
        }
        match self.kind {
            ElementType::Number(Number::U64) => return Ok(Ok(exact::<u64>(self.load()?))),
            ElementType::Number(Number::I64) => return Ok(Ok(exact::<i64>(self.load()?))),
            _ => {}
        }
        let values = self.numbers::<f64>()?;
        let ids = values.iter().enumerate();
        let ids = ids.map(|(index, &value)| match is_exact(value) {
            true => Ok(GroupId::Number(value as i64)),
            false => Err((index, value)),
        });
        Ok(ids.collect())
    }

    /// Strings that numpy holds as characters of four bytes, filled up with zeros.
    pub(super) fn strings(&self) -> Result<Vec<Arc<str>>> {
        let ElementType::String(letters) = self.kind else {
            return Ok(Vec::new());
        };
        let codes: Buffer<u32> = self.load()?;
        let text = |codes: &[u32]| -> Arc<str> {
            let letter = |&code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            let padded: String = codes.iter().map(letter).collect();
            padded.trim_end_matches('\0').into()
        };
        Ok(codes.chunks_exact(letters.max(1)).map(text).collect())
    }

    /// A tensor [B, T] as a mask; or the response, the column and the value of an entry that is neither 0 nor 1. Only some rows
    /// are in memory at a time, because a mask may have 8 bytes per token.
    pub(super) fn mask(&self) -> Result<Result<Tokens, (usize, usize, f64)>> {
        const BLOCK: usize = 16 << 20;
        let (rows, width, bytes) = (self.shape[0], self.shape[1], self.bytes()?);
        let row = bytes / rows.max(1);
        // An archive is read from its first row on.
        let is_whole = self.store.file.is_none() || self.fortran;
        let at_once = if is_whole { rows } else { BLOCK / row.max(1) }.max(1);
        let mut tokens = Tokens::new(0);
        each_number!(self.kind, T => {
            for first in (0..rows).step_by(at_once) {
                let mut block = self.clone();
                block.shape[0] = at_once.min(rows - first);
                block.at += (first * row) as u64;
                let values: Buffer<T> = block.load()?;
                let Ok(mask) = ArrayView2::from_shape((block.shape[0], width), &values) else {
                    unreachable!("there are as many numbers as the shape has");
                };
                match Tokens::of_mask(mask) {
                    Ok(more) => tokens.append(&more),
                    Err((row, column, value)) => return Ok(Err((first + row, column, value))),
                }
            }
            Ok(Ok(tokens))
        }, else Err(self.wrong("numbers or booleans")))
    }
}

/// A checksum of what a file says of its tensors.
pub(super) fn checksum(tensors: &[FileTensor]) -> u32 {
    let facts = tensors.iter().map(|tensor| {
        let place = (tensor.at, tensor.most, tensor.big_endian, tensor.fortran);
        format!("{:?} {} {place:?}", tensor.name, tensor.describe())
    });
    crc32c::crc32c(facts.collect::<String>().as_bytes())
}

/// How many numbers a thread converts at a time.
const PART: usize = 1 << 14;

type WriteBytes<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

/// A tensor to write: a name, a type and a shape, and a function that writes its elements.
pub(super) struct NewTensor<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) kind: ElementType,
    pub(super) shape: Vec<usize>,
    pub(super) write: WriteBytes<'a>,
}

impl<'a> NewTensor<'a> {
    pub(super) fn new(
        name: &'a str,
        dtype: Number,
        shape: Vec<usize>,
        write: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        NewTensor {
            name: name.into(),
            kind: ElementType::Number(dtype),
            shape,
            write: Box::new(write),
        }
    }

    /// Whole numbers [B].
    pub(super) fn of(name: &'a str, values: Vec<i64>) -> Self {
        let shape = vec![values.len()];
        NewTensor::new(name, Number::I64, shape, move |out| {
            out.write_all(values.as_bytes())
        })
    }

    /// Strings [B] as numpy keeps them: four bytes a character, filled up with zeros.
    pub(super) fn strings(name: &'a str, texts: &'a [impl AsRef<str>]) -> Self {
        let lengths = texts.iter().map(|text| text.as_ref().chars().count());
        let width = lengths.max().unwrap_or(0).max(1);
        let write = move |out: &mut dyn Write| {
            texts.iter().enumerate().try_for_each(|(response, text)| {
                let letters = text.as_ref().chars();
                let mut letters: Vec<u32> = letters.map(u32::from).collect();
                if letters.last() == Some(&0) {
                    return Err(io::Error::other(format!(
                        "`{name}` of response {response} ends with the character U+0000, which numpy drops"
                    )));
                }
                letters.resize(width, 0);
                out.write_all(letters.as_bytes())
            })
        };
        NewTensor {
            name: name.into(),
            kind: ElementType::String(width),
            shape: vec![texts.len()],
            write: Box::new(write),
        }
    }
}
