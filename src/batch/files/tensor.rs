//! A tensor of a padded file, whatever the file: its type and shape, and how its bytes become numbers in memory.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use half::{bf16, f16};
use ndarray::{ArrayView2, ShapeBuilder};
use rayon::prelude::*;
use safetensors::Dtype as Number;
use zerocopy::IntoBytes;

use super::{Dtype, Progress, damaged, npz};
use crate::batch::layout::Tokens;
use crate::batch::zeros::Plain;
use crate::batch::{Buffer, Element, GroupId, Numeric, Padded, TokenValues, Zeros};
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
pub(super) fn number(name: &str) -> Option<Number> {
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
    /// Columns first, as Fortran has it.
    pub(super) fortran: bool,
    /// Its first byte in a safetensors file, its index in an npz archive.
    pub(super) at: u64,
    /// At most so many bytes can come, whatever the shape says.
    pub(super) most: u64,
}

/// What a tensor's bytes are read from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A file that holds them as they are: any part can be read.
    File(Arc<File>),
    /// An npz archive, which is unpacked from an array's first byte to its last.
    Archive,
}

#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) info: Info,
    pub(super) path: PathBuf,
    pub(super) source: Source,
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
    /// Bytes of one element; `None` where that is not known, or is nothing.
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
        let kind = &self.kind;
        format!("{kind} {}", shape(&self.shape))
    }
}

/// A shape in words.
pub(super) fn shape(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

impl Tensor {
    fn wrong(&self, found: String, expected: String) -> Diagnostic {
        let error = Diagnostic::error("").found(found).expected(expected);
        error.in_file(&self.path).in_field(&self.info.name)
    }

    /// How many numbers there are. A header may claim more bytes than the file has: no memory is taken for those.
    fn count<T>(&self) -> Result<usize, Diagnostic> {
        let info = &self.info;
        let sizes = info.shape.iter();
        let elements = sizes.copied().try_fold(1usize, usize::checked_mul);
        let bytes = elements.and_then(|elements| elements.checked_mul(info.size()?));
        match bytes.filter(|&bytes| bytes as u64 <= info.most) {
            Some(bytes) => Ok(bytes / size_of::<T>()),
            None => {
                let expected = format!("at most the {} bytes that the file has for it", info.most);
                Err(self.wrong(info.describe(), expected))
            }
        }
    }

    fn no_memory(&self) -> Diagnostic {
        self.wrong(self.info.describe(), "what the memory holds".to_string())
    }

    /// The numbers in file order.
    fn load<T: Plain>(&self, progress: &Progress) -> Result<Buffer<T>, Diagnostic> {
        let mut values: Zeros<T> = Zeros::new(self.count::<T>()?).map_err(|_| self.no_memory())?;
        self.fill(0, values.as_mut_bytes(), progress)?;
        Ok(values.into())
    }

    /// Reads the tensor's bytes from an offset on; an archive has no other offset than 0, and gives all of them.
    fn fill(&self, offset: usize, bytes: &mut [u8], progress: &Progress) -> Result<(), Diagnostic> {
        let info = &self.info;
        let length = bytes.len();
        let told = |piece| progress.add(piece);
        let filled = match &self.source {
            Source::File(file) => read_at(file, info.at + offset as u64, bytes, &told),
            Source::Archive => npz::fill(&self.path, info, bytes, &told),
        };
        filled.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let expected = format!("{length} bytes for {}", self.info.describe());
                self.wrong("fewer bytes: it is cut off".to_string(), expected)
            }
            io::ErrorKind::FileTooLarge => {
                let expected = format!("as many as {} has", self.info.describe());
                self.wrong(format!("more than {length} bytes"), expected)
            }
            _ => {
                let what = format!("tensor `{}` is damaged: {error}", info.name);
                damaged(&self.path, what)
            }
        })?;
        if info.kind == Kind::Number(Number::BOOL) {
            bytes
                .iter_mut()
                .for_each(|byte| *byte = u8::from(*byte != 0));
        }
        if info.big_endian {
            let size = match info.kind {
                Kind::String(_) => 4,
                _ => info.size().unwrap_or(1),
            };
            bytes.par_chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    /// The numbers in the order of the file, widened; exact but for integers beyond 2^53.
    pub(super) fn numbers(&self, progress: &Progress) -> Result<Vec<f64>, Diagnostic> {
        each_number!(self.info.kind, T => {
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
        match self.info.kind {
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
        let Kind::String(letters) = self.info.kind else {
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
        Ok(match self.info.kind {
            Kind::Number(Number::F64) if !is_f32 => self.padded::<f64>(self.load(progress)?),
            Kind::Number(Number::F32) if !is_f64 => self.padded::<f32>(self.load(progress)?),
            Kind::Number(Number::F16) if !is_f64 => self.padded::<f16>(self.load(progress)?),
            Kind::Number(Number::BF16) if !is_f64 => self.padded::<bf16>(self.load(progress)?),
            _ => {
                let values = self.numbers(progress)?;
                // Integers beyond 2^24, such as hashes, are no f32.
                let are_f32 = || {
                    let mut values = values.iter();
                    values.all(|&value| f64::from(value as f32) == value)
                };
                if is_f32 || !is_f64 && are_f32() {
                    let narrow: Vec<f32> = values.par_iter().map(|&value| value as f32).collect();
                    self.padded::<f32>(narrow.into())
                } else {
                    self.padded::<f64>(values.into())
                }
            }
        })
    }

    /// [B, T]. The caller has seen that there are two sizes.
    fn shape(&self) -> (usize, usize) {
        (self.info.shape[0], self.info.shape[1])
    }

    fn padded<T: Element>(&self, values: Buffer<T>) -> TokenValues {
        let (rows, width) = self.shape();
        // A size of something in memory is below 2^63.
        let strides = match self.info.fortran {
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
        let (rows, width) = self.shape();
        each_number!(self.info.kind, T => {
            self.count::<T>()?;
            let row_bytes = width * size_of::<T>();
            let block = match self.source {
                Source::File(_) if !self.info.fortran => BLOCK.div_ceil(row_bytes.max(1)),
                _ => rows.max(1),
            };
            let blocks = (0..rows.div_ceil(block)).into_par_iter();
            let memory = || Zeros::<T>::new(block.min(rows) * width);
            let blocks = blocks.map_init(memory, |memory, at| {
                let first = at * block;
                let count = block.min(rows - first);
                let memory = memory.as_mut().map_err(|_| self.no_memory())?;
                let values = &mut memory[..count * width];
                self.fill(first * row_bytes, values.as_mut_bytes(), progress)?;
                let order = (count, width).set_f(self.info.fortran);
                match ArrayView2::from_shape(order, values) {
                    Ok(mask) => Ok::<_, Diagnostic>(Tokens::of_mask(mask)
                        .map_err(|(row, column, value)| (first + row, column, value))),
                    Err(_) => unreachable!("a block has as many numbers as its rows"),
                }
            });
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
        }, else Err(self.wrong(self.info.describe(), "numbers or booleans".to_string())))
    }
}

/// Reads a part of a file, in parallel where the system reads at an offset.
fn read_at(
    file: &File,
    offset: u64,
    bytes: &mut [u8],
    told: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileExt;
        // A huge page: no two threads begin the same one.
        const PART: usize = 2 << 20;
        let parts = bytes.par_chunks_mut(PART).enumerate();
        parts.try_for_each(|(part, bytes)| {
            file.read_exact_at(bytes, offset + (part * PART) as u64)?;
            told(bytes.len() as u64);
            Ok(())
        })
    }
    #[cfg(not(unix))]
    {
        use std::io::{Read, Seek};
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock();
        let mut file = file;
        file.seek(io::SeekFrom::Start(offset))?;
        file.read_exact(bytes)?;
        told(bytes.len() as u64);
        Ok(())
    }
}
