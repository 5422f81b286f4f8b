//! Padded files, safetensors and npz: named tensors [B] and [B, T], read into a batch and written back with one more.

mod columns;
mod element;
mod groups;
mod mask;
mod npy;
mod npz;
mod safetensors;
mod save;
mod spread;
mod tensors;
mod tokens;

use std::path::Path;

use self::npz::Npz;
pub(super) use self::npz::write as write_npz;
use self::safetensors::Safetensors;
pub(super) use self::safetensors::write as write_safetensors;
use self::save::Saved;
pub(super) use self::spread::Spread;
use self::tensors::Reader;
pub(super) use self::tensors::Tensor;
use super::{Parts, ReadError, ReadOptions};

/// Reads a safetensors file, whoever wrote it.
pub(super) fn read_safetensors(path: &Path, options: &ReadOptions) -> Result<Parts, ReadError> {
    let file = Safetensors::open(path)?;
    let tensors = file.tensors.clone();
    let saved = Saved::of(path, &file.metadata)?;
    let total = file.length;
    let reader = Reader::new(path, file, total, options.progress);
    columns::read(reader, tensors, saved, options)
}

/// Reads an npz archive.
pub(super) fn read_npz(path: &Path, options: &ReadOptions) -> Result<Parts, ReadError> {
    let file = Npz::open(path)?;
    let tensors = file.tensors.clone();
    let total = file.length;
    let reader = Reader::new(path, file, total, options.progress);
    columns::read(reader, tensors, None, options)
}
