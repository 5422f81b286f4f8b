//! What safetensors and npz have in common: named tensors with a type and a shape, whose bytes come piece by piece.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::element::Element;
use crate::batch::files::ReadError;

/// Bytes that are held of a tensor beside its numbers while it is read.
const PIECE: usize = 256 << 10;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::batch::files) struct Tensor {
    pub(super) name: String,
    pub(super) element: Element,
    pub(super) shape: Vec<usize>,
    pub(super) big_endian: bool,
    /// Columns first, as Fortran has it.
    pub(super) fortran: bool,
    /// Where it is: its first byte in a safetensors file, its place in an npz archive.
    pub(super) at: u64,
    /// At most so many bytes can come, whatever the shape says.
    pub(super) most: u64,
}

impl Tensor {
    /// Number of elements, and their bytes; `None` where these are no number, or more than there can be.
    pub(super) fn extent(&self) -> Option<(usize, usize)> {
        let elements = self
            .shape
            .iter()
            .try_fold(1usize, |all, &size| all.checked_mul(size))?;
        let bytes = elements.checked_mul(self.element.size()?)?;
        (bytes as u64 <= self.most).then_some((elements, bytes))
    }

    /// Type and shape in words, such as `f32 [128, 1024]`.
    pub(super) fn describe(&self) -> String {
        format!("{} {}", self.element.name(), shape(&self.shape))
    }
}

/// A shape in words.
pub(super) fn shape(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

/// A file of tensors that can be read one after another.
pub(super) trait Archive {
    /// The tensor's bytes from their first one.
    fn open(&mut self, tensor: &Tensor) -> Result<Box<dyn Read + '_>, ReadError>;
}

/// Reads tensors, checks them, and tells how far it is.
pub(super) struct Reader<'a> {
    path: PathBuf,
    archive: Box<dyn Archive + 'a>,
    progress: Option<&'a dyn Fn(u64, u64)>,
    done: u64,
    total: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        path: &Path,
        archive: impl Archive + 'a,
        total: u64,
        progress: Option<&'a dyn Fn(u64, u64)>,
    ) -> Self {
        Reader {
            path: path.to_path_buf(),
            archive: Box::new(archive),
            progress,
            done: 0,
            total,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Says that all is read, whatever was passed over.
    pub(super) fn finish(&self) {
        if let Some(progress) = self.progress {
            progress(self.total, self.total);
        }
    }

    /// Gives a tensor's bytes, little-endian, in pieces of whole elements.
    pub(super) fn pieces(
        &mut self,
        tensor: &Tensor,
        mut take: impl FnMut(&[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let (Some((_, bytes)), Some(size)) = (tensor.extent(), tensor.element.size()) else {
            return Err(self.short(tensor, "as many bytes as the file has for it"));
        };
        let Reader {
            path,
            archive,
            progress,
            done,
            total,
        } = self;
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Tensor {
                path: path.clone(),
                tensor: tensor.name.clone(),
                found: "cut off".to_string(),
                expected: format!("{bytes} bytes for {}", tensor.describe()),
            },
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
                ReadError::Damaged {
                    path: path.clone(),
                    what: format!("tensor `{}` is damaged: {error}", tensor.name),
                }
            }
            _ => ReadError::Io {
                path: path.clone(),
                source: error,
            },
        };
        let mut input = archive.open(tensor)?;
        let mut piece = vec![0; (PIECE / size).max(1).saturating_mul(size).min(bytes)];
        let mut left = bytes;
        while left > 0 {
            let length = piece.len().min(left);
            let piece = &mut piece[..length];
            input.read_exact(piece).map_err(cut)?;
            if tensor.big_endian {
                let unit = if matches!(tensor.element, Element::Text(_)) {
                    4
                } else {
                    size
                };
                piece.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
            }
            take(piece)?;
            left -= length;
            *done += length as u64;
            if let Some(progress) = progress {
                progress((*done).min(*total), *total);
            }
        }
        // An archive checks its sum when the end is read; and there should be an end.
        match input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ReadError::Tensor {
                path: path.clone(),
                tensor: tensor.name.clone(),
                found: format!("longer than {bytes} bytes"),
                expected: format!("as many as {} has", tensor.describe()),
            }),
            Err(error) => Err(cut(error)),
        }
    }

    /// Memory for a tensor's numbers.
    fn room<T>(&self, tensor: &Tensor) -> Result<Vec<T>, ReadError> {
        let mut numbers = Vec::new();
        let elements = tensor.extent().map_or(0, |(elements, _)| elements);
        match numbers.try_reserve_exact(elements) {
            Ok(()) => Ok(numbers),
            Err(_) => Err(self.short(tensor, "what the memory holds")),
        }
    }

    fn short(&self, tensor: &Tensor, expected: &str) -> ReadError {
        ReadError::Tensor {
            path: self.path.clone(),
            tensor: tensor.name.clone(),
            found: tensor.describe(),
            expected: expected.to_string(),
        }
    }

    pub(super) fn f64(&mut self, tensor: &Tensor) -> Result<Vec<f64>, ReadError> {
        let mut numbers = self.room(tensor)?;
        self.pieces(tensor, |bytes| {
            tensor.element.push_f64(bytes, &mut numbers);
            Ok(())
        })?;
        Ok(numbers)
    }

    pub(super) fn f32(&mut self, tensor: &Tensor) -> Result<Vec<f32>, ReadError> {
        let mut numbers = self.room(tensor)?;
        self.pieces(tensor, |bytes| {
            tensor.element.push_f32(bytes, &mut numbers);
            Ok(())
        })?;
        Ok(numbers)
    }

    /// Texts that numpy holds as characters of four bytes, filled up with zeros.
    pub(super) fn texts(&mut self, tensor: &Tensor) -> Result<Vec<String>, ReadError> {
        let mut texts = Vec::new();
        let size = tensor.element.size().unwrap_or(4);
        self.pieces(tensor, |bytes| {
            texts.extend(bytes.chunks_exact(size).map(|text| {
                let letters = text.chunks_exact(4).map(|letter| {
                    let code = letter
                        .iter()
                        .rev()
                        .fold(0, |code, &byte| code << 8 | u32::from(byte));
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
                });
                letters
                    .collect::<String>()
                    .trim_end_matches('\0')
                    .to_string()
            }));
            Ok(())
        })?;
        Ok(texts)
    }
}
