//! Named arrays as a safetensors file.

use std::fs;
use std::path::Path;

use ndarray::ArrayD;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors, serialize};

use crate::error::{damaged, io};
use crate::policy::Arrays;
use advlab::diagnostic::Diagnostics;

pub(super) fn write(path: &Path, arrays: &Arrays) -> Result<(), Diagnostics> {
    let wrong = |error: SafeTensorError| damaged(path, error.to_string());
    let bytes = |array: &ArrayD<f32>| array.iter().flat_map(|value| value.to_le_bytes()).collect();
    let bytes: Vec<Vec<u8>> = arrays.values().map(bytes).collect();
    let views = arrays.iter().zip(&bytes).map(|((name, array), bytes)| {
        let view = TensorView::new(Dtype::F32, array.shape().to_vec(), bytes)?;
        Ok((name, view))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>().map_err(wrong)?;
    let file = serialize(views, None).map_err(wrong)?;
    fs::write(path, file).map_err(io("write", path))
}

pub(super) fn read(path: &Path) -> Result<Arrays, Diagnostics> {
    let bytes = advlab::regular_file::read(path).map_err(io("read", path))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|error| damaged(path, error.to_string()))?;
    let arrays = file.iter().map(|(name, view)| {
        let values = view.data().as_chunks().0.iter();
        let values = values.map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let array = ArrayD::from_shape_vec(view.shape(), values);
        let array = array.map_err(|error| damaged(path, format!("{name}: {error}")))?;
        Ok((name.to_string(), array))
    });
    arrays.collect()
}
