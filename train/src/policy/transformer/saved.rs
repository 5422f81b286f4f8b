//! A safetensors file, written a block of rows at a time: a model is not in the host's memory a second time.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use tch::{Kind, Tensor, no_grad_guard};

use crate::torch::TorchError;
use advlab::batch::Replacement;
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// Bytes that are written at a time, where a row has fewer.
const BLOCK: usize = 1 << 24;

/// Replaces the file at `path` by one with these tensors, in this order. Where it fails, the file that was there stays.
pub(super) fn write(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    tensors: &[(String, Tensor)],
) -> Result<(), Diagnostics> {
    let _guard = no_grad_guard();
    let mut file = Replacement::new(path)?;
    put(&mut file, &header(metadata, tensors)?)?;
    let mut bytes = Vec::new();
    for (_, tensor) in tensors {
        for block in blocks(tensor).map_err(TorchError::from)? {
            let block = block.map_err(TorchError::from)?;
            let count = block.numel();
            bytes.resize(count * block.kind().elt_size_in_bytes(), 0);
            let copied = block.f_copy_data_u8(&mut bytes, count);
            copied.map_err(TorchError::from)?;
            put(&mut file, &bytes)?;
        }
    }
    file.finish()
}

fn put(file: &mut Replacement, bytes: &[u8]) -> Result<(), Diagnostics> {
    let written = file.write_all(bytes);
    written.map_err(|error| file.error(&error).into())
}

/// The bytes before the tensors: their length, the entries in the order of the tensors, and spaces up to a multiple of 8.
fn header(
    metadata: &BTreeMap<String, String>,
    tensors: &[(String, Tensor)],
) -> Result<Vec<u8>, Diagnostics> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_string(), json!(metadata));
    let mut end = 0;
    for (name, tensor) in tensors {
        let kind = tensor.f_kind().map_err(TorchError::from)?;
        let dtype = match kind {
            Kind::Float => "F32",
            Kind::BFloat16 => "BF16",
            other => return Err(Diagnostic::error(format!("no file has {other:?} here")).into()),
        };
        let start = end;
        end += tensor.numel() * kind.elt_size_in_bytes();
        let entry = json!({ "dtype": dtype, "shape": tensor.size(), "data_offsets": [start, end] });
        entries.insert(name.clone(), entry);
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let length = (text.len() as u64).to_le_bytes();
    Ok([&length[..], &text].concat())
}

/// Some rows of a tensor at a time.
fn blocks(
    tensor: &Tensor,
) -> Result<impl Iterator<Item = Result<Tensor, tch::TchError>>, tch::TchError> {
    let rows = tensor.size()[0];
    let bytes = tensor.numel() * tensor.f_kind()?.elt_size_in_bytes();
    let at_once = (BLOCK / (bytes / rows.max(1) as usize).max(1)).max(1) as i64;
    let starts = (0..rows).step_by(at_once as usize);
    Ok(starts.map(move |start| tensor.f_narrow(0, start, at_once.min(rows - start))))
}
