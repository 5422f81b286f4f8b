//! Files of rollouts: what reads, what is refused, what is noted, and that what is written reads back the same.

mod dumps;
mod meant;
mod odd;
mod padded;
mod properties;
mod rollouts;
mod wrong;

use std::collections::BTreeSet;
use std::path::Path;

use advlab::batch::{Batch, Computed, FloatBuffer, Level};
use advlab::files::{self, Dtype, Mapping, ReadOptions, Rollouts};
use half::bf16;
use safetensors::tensor::{Dtype as Type, TensorView};

fn try_read(
    path: impl AsRef<Path>,
    map: &[Mapping],
    dtype: Option<Dtype>,
) -> Result<Rollouts, String> {
    let options = ReadOptions {
        map,
        dtype,
        ..ReadOptions::default()
    };
    files::read(path, &options).map_err(|error| error.to_string())
}

fn read(path: impl AsRef<Path>) -> Rollouts {
    read_as(path, &[])
}

fn read_as(path: impl AsRef<Path>, map: &[Mapping]) -> Rollouts {
    try_read(path, map, None).unwrap_or_else(|error| panic!("{error}"))
}

fn read_in(path: impl AsRef<Path>, dtype: Dtype) -> Rollouts {
    try_read(path, &[], Some(dtype)).unwrap_or_else(|error| panic!("{error}"))
}

/// Reads only the arrays and texts of these columns.
fn read_only(path: &Path, columns: &[&str]) -> Result<Rollouts, String> {
    let columns: BTreeSet<String> = columns.iter().map(|name| name.to_string()).collect();
    let options = ReadOptions {
        columns: Some(&columns),
        ..ReadOptions::default()
    };
    files::read(path, &options).map_err(|error| error.to_string())
}

fn refused(path: impl AsRef<Path>) -> String {
    try_read(path, &[], None).unwrap_err()
}

fn mapping(ours: &str, theirs: &str) -> Mapping {
    Mapping {
        ours: ours.to_string(),
        theirs: theirs.to_string(),
    }
}

fn notes(rollouts: &Rollouts) -> Vec<String> {
    rollouts.notes.iter().map(ToString::to_string).collect()
}

fn columns(batch: &Batch) -> Vec<&str> {
    batch.columns().collect()
}

fn tokens(batch: &Batch, name: &str) -> Vec<f64> {
    let (layout, column) = (batch.layout(), batch.token_column(name).unwrap());
    let responses = 0..layout.responses();
    responses
        .flat_map(|response| column.of_response(layout, response))
        .collect()
}

fn per_response(rollouts: &Rollouts, values: &[f64]) -> Computed {
    let mut layout = rollouts.batch.layout().clone();
    if layout.responses() != values.len() {
        // That of another batch.
        let other = Batch::builder().groups(0..values.len() as i64).build();
        layout = other.expect("a batch of groups").layout().clone();
    }
    Computed::new(layout, Level::Response, values.to_vec())
}

/// An advantage of one number for each token that counts.
fn per_token(rollouts: &Rollouts, values: &FloatBuffer) -> Computed {
    let layout = rollouts.batch.layout().clone();
    Computed::new(layout, Level::Token, values.clone())
}

/// The bytes of numbers of a type; zeros if there are fewer numbers than elements.
fn bytes(dtype: Type, elements: usize, numbers: &[&str]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for number in numbers {
        let float = || number.parse::<f64>().unwrap();
        match dtype {
            Type::F64 => bytes.extend(float().to_le_bytes()),
            Type::F32 => bytes.extend((float() as f32).to_le_bytes()),
            Type::BF16 => bytes.extend(bf16::from_f64(float()).to_le_bytes()),
            Type::I64 => bytes.extend(number.parse::<i64>().unwrap().to_le_bytes()),
            _ => bytes.push(number.parse().unwrap()),
        }
    }
    bytes.resize(elements * dtype.bitsize() / 8, 0);
    bytes
}

/// A safetensors file of tensors as in `index I64 2; rewards F32 2 0.5 nan`: name, type, shape with commas (`-` for none), numbers.
fn packed(tensors: &str) -> Vec<u8> {
    let tensors = tensors.split(';').map(|tensor| {
        let words: Vec<&str> = tensor.split_whitespace().collect();
        let dtype: Type = serde_json::from_value(words[1].into()).unwrap();
        let sizes = words[2].split(',').filter(|size| *size != "-");
        let shape: Vec<usize> = sizes.map(|size| size.parse().unwrap()).collect();
        let bytes = bytes(dtype, shape.iter().product(), &words[3..]);
        (words[0].to_string(), dtype, shape, bytes)
    });
    let tensors: Vec<_> = tensors.collect();
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// The type, shape and bytes of a tensor in a file.
fn tensor(path: &Path, name: &str) -> (Type, Vec<usize>, Vec<u8>) {
    let file = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&file).unwrap();
    let view = file.tensor(name).unwrap();
    (view.dtype(), view.shape().to_vec(), view.data().to_vec())
}
