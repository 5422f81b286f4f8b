//! Named float32 tensors in safetensors files: the state of a policy, and the weights of a model.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};
use zerocopy::IntoBytes;

use crate::error::{Result, damaged, io};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Replacement;
use advlab::regular_file;

/// The longest header that the format allows, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// Replaces the file at `path` by one with tensors of these names and shapes. Each tensor becomes numbers as it is written.
pub(super) fn write<T>(
    path: &Path,
    metadata: Value,
    tensors: &[(String, Vec<usize>, T)],
    values: impl Fn(&T) -> Result<Cow<'_, [f32]>>,
) -> Result<()> {
    let mut header = Map::new();
    header.insert("__metadata__".to_string(), metadata);
    let mut end = 0;
    for (name, shape, _) in tensors {
        let start = end;
        end += size_of::<f32>() * shape.iter().product::<usize>();
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        header.insert(name.clone(), entry);
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = Replacement::new(path)?;
    let mut put = |bytes: &[u8]| {
        let written = file.write_all(bytes);
        written.map_err(|error| Diagnostics::from(file.error(&error)))
    };
    put(&(header.len() as u64).to_le_bytes())?;
    put(&header)?;
    for (.., tensor) in tensors {
        put(values(tensor)?.as_bytes())?;
    }
    file.finish()
}

/// An open safetensors file. Tensors are read one at a time.
pub(super) struct TensorFile {
    pub path: PathBuf,
    file: File,
    header: Metadata,
    /// The offset of the tensors in bytes.
    data: u64,
}

impl TensorFile {
    pub fn open(path: &Path) -> Result<TensorFile> {
        let mut file = regular_file::open(path).map_err(io("read", path))?;
        let length = file.metadata().map_err(io("read", path))?.len();
        let cut_off = || damaged(path, "it is cut off, or no safetensors file");
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(|_| cut_off())?;
        let size = u64::from_le_bytes(size);
        if size > LONGEST_HEADER.min(length) {
            return Err(cut_off());
        }
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header).map_err(|_| cut_off())?;
        let header: Metadata = serde_json::from_slice(&header)
            .map_err(|error| damaged(path, format!("its header is wrong: {error}")))?;
        let data = 8 + size;
        if data + header.data_len() as u64 != length {
            return Err(cut_off());
        }
        Ok(TensorFile {
            path: path.to_path_buf(),
            file,
            header,
            data,
        })
    }

    #[cfg(feature = "torch")]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        Some(self.header.metadata().as_ref()?.get(key)?)
    }

    #[cfg(feature = "torch")]
    pub fn has(&self, name: &str) -> bool {
        self.header.info(name).is_some()
    }

    /// The values of a tensor, which must have this shape and be finite.
    pub fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let wrong =
            |problem: Diagnostic| Diagnostics::from(problem.in_file(&self.path).in_field(name));
        let Some(info) = self.header.info(name) else {
            let problem = Diagnostic::error("there is no tensor of this name");
            return Err(wrong(problem.with_help("the file is of another model")));
        };
        if info.shape != shape {
            let problem = Diagnostic::error("the tensor's shape is not the model's");
            let problem = problem.found(format!("{:?}", info.shape));
            return Err(wrong(problem.expected(format!("{shape:?}"))));
        }
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.data + start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(io("read", &self.path))?;
        let values: Vec<f32> = match info.dtype {
            Dtype::F32 => numbers(&bytes, f32::from_le_bytes),
            Dtype::BF16 => numbers(&bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            Dtype::F16 => numbers(&bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
            other => {
                let problem = Diagnostic::error(format!("the tensor's dtype is {other:?}"));
                return Err(wrong(problem.expected("F32, BF16 or F16")));
            }
        };
        if values.iter().all(|value| value.is_finite()) {
            return Ok(values);
        }
        let message = "the tensor has a NaN or an infinity";
        Err(wrong(Diagnostic::error(message)))
    }
}

fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (chunks, _) = bytes.as_chunks();
    chunks.iter().map(|bytes| number(*bytes)).collect()
}
