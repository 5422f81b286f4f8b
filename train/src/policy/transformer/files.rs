//! The files of a model's folder: JSON, and tensors by name from one safetensors file or several.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tch::{Kind, Tensor};

use super::config::DTYPES;
use super::weights::Source;
use crate::error;
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// The most that the format allows for a header, bytes.
const HEADER: u64 = 100_000_000;

/// A JSON file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Diagnostics> {
    let text = advlab::regular_file::read_to_string(path).map_err(error::io("read", path))?;
    serde_json::from_str(&text).map_err(|error| error::damaged(path, error.to_string()))
}

/// One safetensors file, open.
struct Shard {
    path: PathBuf,
    file: File,
    /// Where the tensors begin, bytes.
    data: u64,
    tensors: Metadata,
}

/// The tensors of a folder, by name.
pub(super) struct Tensors {
    shards: Vec<Shard>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Tensors {
    /// Of `model.safetensors`, or of the files that `model.safetensors.index.json` names.
    pub(super) fn open(folder: &Path) -> Result<Self, Diagnostics> {
        let index = folder.join("model.safetensors.index.json");
        let mut files = vec!["model.safetensors".to_string()];
        if index.exists() {
            files = read_json::<Index>(&index)?
                .weight_map
                .into_values()
                .collect();
            files.sort();
            files.dedup();
        }
        let shards = files.iter().map(|file| {
            let path = folder.join(file);
            if !path.exists() {
                let message = format!("the weights are missing: there is no {}", path.display());
                let help = "a model's folder has `model.safetensors`, or all the files that its index names; `save_pretrained` of transformers writes them, also from older kinds";
                return Err(Diagnostic::error(message).with_help(help).into());
            }
            Shard::open(path)
        });
        let shards = shards.collect::<Result<_, Diagnostics>>()?;
        Ok(Tensors { shards })
    }

    /// Of one file.
    pub(super) fn saved(path: &Path) -> Result<Self, Diagnostics> {
        let shards = vec![Shard::open(path.to_path_buf())?];
        Ok(Tensors { shards })
    }

    /// What the metadata says of a key.
    pub(super) fn metadata(&self, key: &str) -> Option<&str> {
        let mut all = self.shards.iter();
        all.find_map(|shard| Some(shard.tensors.metadata().as_ref()?.get(key)?.as_str()))
    }
}

impl Source for Tensors {
    /// # Errors
    /// [`Diagnostics`] where it is missing, of another shape or kind, or has a NaN or an infinity.
    fn read(&self, name: &str, shape: &[i64]) -> Result<Tensor, Diagnostics> {
        let mut shards = self.shards.iter();
        let found = shards.find_map(|shard| Some((shard, shard.tensors.info(name)?)));
        let Some((shard, info)) = found else {
            let paths = self.shards.iter().map(|shard| &shard.path);
            let files: Vec<_> = paths.map(|path| path.display().to_string()).collect();
            let message = format!("there is no tensor `{name}` in {}", files.join(", "));
            let help = "config.json is that of another model, or the file is of another kind of checkpoint";
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        shard.read(name, info, shape)
    }
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self, Diagnostics> {
        let no_read = || error::io("read", &path);
        let mut file = advlab::regular_file::open(&path).map_err(no_read())?;
        let length = file.metadata().map_err(no_read())?.len();
        let mut size = [0; 8];
        let rest = length.checked_sub(8).ok_or_else(|| {
            error::damaged(
                &path,
                format!("it has {length} bytes; it is cut off, or no safetensors file"),
            )
        })?;
        file.read_exact(&mut size).map_err(no_read())?;
        let size = u64::from_le_bytes(size);
        if size > rest.min(HEADER) {
            let message = format!(
                "its header should have {size} bytes, and {rest} follow; it is cut off, or no safetensors file"
            );
            return Err(error::damaged(&path, message));
        }
        let mut header = Vec::new();
        (&file)
            .take(size)
            .read_to_end(&mut header)
            .map_err(no_read())?;
        let tensors = header_of(&header).map_err(|problem| problem.in_file(&path))?;
        let (found, expected) = (rest - size, tensors.data_len() as u64);
        if found != expected {
            let message = format!(
                "its tensors should have {expected} bytes, and {found} are there; it is cut off"
            );
            return Err(error::damaged(&path, message));
        }
        Ok(Shard {
            path,
            file,
            data: 8 + size,
            tensors,
        })
    }

    fn read(&self, name: &str, info: &TensorInfo, shape: &[i64]) -> Result<Tensor, Diagnostics> {
        let wrong =
            |problem: Diagnostic| Diagnostics::from(problem.in_file(&self.path).in_field(name));
        let found: Vec<i64> = info.shape.iter().map(|&size| size as i64).collect();
        if found != shape {
            let problem = Diagnostic::error("the shape is not what config.json says");
            let problem = problem
                .found(format!("{found:?}"))
                .expected(format!("{shape:?}"));
            return Err(wrong(problem));
        }
        let kind = match info.dtype {
            Dtype::F32 => Kind::Float,
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            other => {
                let problem = Diagnostic::error(format!("the weights' dtype is {other:?}"));
                return Err(wrong(problem.expected(DTYPES.join(", "))));
            }
        };
        let (start, end) = info.data_offsets;
        let mut bytes = crate::torch::room(end - start)?;
        bytes.resize(end - start, 0);
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(self.data + start as u64));
        let read = read.and_then(|_| file.read_exact(&mut bytes));
        read.map_err(error::io("read", &self.path))?;
        let tensor = || -> crate::torch::Result<(Tensor, bool)> {
            let tensor = Tensor::f_from_data_size(&bytes, &found, kind)?.f_to_kind(Kind::Float)?;
            let is_finite = tensor.f_isfinite()?.f_all()?.f_int64_value(&[])? == 1;
            Ok((tensor, is_finite))
        };
        match tensor()? {
            (tensor, true) => Ok(tensor),
            (_, false) => Err(wrong(Diagnostic::error(
                "the weights have a NaN or an infinity",
            ))),
        }
    }
}

/// A header's tensors, where they lie one behind the other. One of an unknown kind makes the crate refuse the whole header,
/// so it is looked for where that happens.
fn header_of(header: &[u8]) -> Result<Metadata, Diagnostic> {
    serde_json::from_slice(header).map_err(|error| {
        let entries: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap_or_default();
        let unknown = entries.iter().find_map(|(name, entry)| {
            let dtype = entry.get("dtype")?;
            let is_known = serde_json::from_value::<Dtype>(dtype.clone()).is_ok();
            (!is_known).then_some((name, dtype))
        });
        match unknown {
            Some((name, dtype)) => Diagnostic::error(format!("the weights' dtype is {dtype}"))
                .in_field(name)
                .expected(DTYPES.join(", ")),
            None => Diagnostic::error(format!("its header is wrong: {error}")),
        }
    })
}
