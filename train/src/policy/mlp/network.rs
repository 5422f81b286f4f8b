//! The parameters of the MLP and where each tensor lies among them; its state as named arrays, and as files.

use std::fs;
use std::path::Path;

use ndarray::{ArrayView2, ArrayViewMut2, NdFloat};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors, serialize};

use crate::error::{damaged, io};
use crate::policy::{AdamW, Arrays};
use crate::task::TaskShape;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::random::RandomStream;

const PARAMETERS: &str = "policy";
const FIRST: &str = "adamw.first";
const SECOND: &str = "adamw.second";
const UPDATES: &str = "adamw.updates";

/// The number of updates is stored as two digits of this base, each exact in f32.
const BASE: u64 = 1 << 24;

/// The precision of a network: f32 in training, f64 where its gradient is checked.
pub(super) trait Real: NdFloat + Into<f64> + Default {
    fn rounded(value: f64) -> Self;
}

impl Real for f32 {
    fn rounded(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn rounded(value: f64) -> Self {
        value
    }
}

/// The sizes of a network. Its inputs are the prompt's features, then for each position of the response the move made
/// there, one-hot, then the present position, one-hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub task: TaskShape,
    pub hidden: usize,
}

impl Sizes {
    fn inputs(&self) -> usize {
        self.position_row(self.task.max_response_tokens)
    }

    /// The input that says: `token` is at `position`.
    pub fn token_row(&self, position: usize, token: u32) -> usize {
        self.task.prompt_features + position * self.task.vocabulary + token as usize
    }

    /// The input that says: the next token is that at `position`.
    pub fn position_row(&self, position: usize) -> usize {
        self.token_row(self.task.max_response_tokens, 0) + position
    }

    /// Name and shape of each tensor in the order in which they are stored. Weights are [inputs, outputs], so that an
    /// input that is 1 adds one contiguous row.
    pub fn tensors(&self) -> [(&'static str, Vec<usize>); 6] {
        let (hidden, vocabulary) = (self.hidden, self.task.vocabulary);
        [
            ("layer1.weight", vec![self.inputs(), hidden]),
            ("layer1.bias", vec![hidden]),
            ("layer2.weight", vec![hidden, hidden]),
            ("layer2.bias", vec![hidden]),
            ("layer3.weight", vec![hidden, vocabulary]),
            ("layer3.bias", vec![vocabulary]),
        ]
    }

    fn counts(&self) -> [usize; 6] {
        self.tensors().map(|(_, shape)| shape.iter().product())
    }

    pub fn count(&self) -> usize {
        self.counts().iter().sum()
    }
}

/// Parameters, or the gradient by them: all tensors one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Network<F> {
    pub sizes: Sizes,
    pub values: Vec<F>,
}

impl<F: Real> Network<F> {
    pub fn zeros(sizes: Sizes) -> Self {
        Self {
            sizes,
            values: vec![F::zero(); sizes.count()],
        }
    }

    /// PyTorch's default for linear layers: weights and biases uniform in +-1/sqrt(inputs of the layer).
    pub fn initial(sizes: Sizes, stream: &mut RandomStream) -> Self {
        let inputs = [sizes.inputs(), sizes.hidden, sizes.hidden];
        let counts = sizes.counts().into_iter().enumerate();
        let bounds = counts.flat_map(|(index, count)| {
            let bound = 1.0 / (inputs[index / 2] as f64).sqrt();
            std::iter::repeat_n(bound, count)
        });
        let values = bounds
            .map(|bound| F::rounded(bound * (2.0 * stream.uniform() - 1.0)))
            .collect();
        Self { sizes, values }
    }

    /// The tensors in the order of [`Sizes::tensors`].
    pub fn tensors(&self) -> [&[F]; 6] {
        let mut rest = &self.values[..];
        let counts = self.sizes.counts();
        counts.map(|count| rest.split_off(..count).unwrap_or_default())
    }

    pub fn tensors_mut(&mut self) -> [&mut [F]; 6] {
        let mut rest = &mut self.values[..];
        let counts = self.sizes.counts();
        counts.map(|count| rest.split_off_mut(..count).unwrap_or_default())
    }
}

/// Values as a matrix, row by row.
pub(super) fn rows<F>(values: &[F], columns: usize) -> ArrayView2<'_, F> {
    ArrayView2::from_shape((values.len() / columns, columns), values)
        .expect("the number of values is a multiple of the number of columns")
}

pub(super) fn rows_mut<F>(values: &mut [F], columns: usize) -> ArrayViewMut2<'_, F> {
    ArrayViewMut2::from_shape((values.len() / columns, columns), values)
        .expect("the number of values is a multiple of the number of columns")
}

#[inline]
pub(super) fn add_scaled<F: Real>(sum: &mut [F], scale: F, row: &[F]) {
    for (sum, &x) in sum.iter_mut().zip(row) {
        *sum += scale * x;
    }
}

#[inline]
pub(super) fn add<F: Real>(sum: &mut [F], row: &[F]) {
    for (sum, &x) in sum.iter_mut().zip(row) {
        *sum += x;
    }
}

/// The parameters by the names of their tensors, and with `optimizer` its state: what a checkpoint keeps.
pub(super) fn snapshot(network: &Network<f32>, optimizer: Option<&AdamW>) -> Arrays {
    let mut groups = vec![(PARAMETERS, &network.values)];
    let mut arrays = Arrays::new();
    if let Some(optimizer) = optimizer {
        groups.extend([(FIRST, &optimizer.first), (SECOND, &optimizer.second)]);
        let digits = [optimizer.updates % BASE, optimizer.updates / BASE];
        let digits = digits.map(|digit| digit as f32);
        arrays.insert(UPDATES.to_string(), digits.to_vec());
    }
    for (group, values) in groups {
        let mut rest = &values[..];
        for (tensor, shape) in network.sizes.tensors() {
            let (own, behind) = rest.split_at(shape.iter().product());
            arrays.insert(format!("{group}.{tensor}"), own.to_vec());
            rest = behind;
        }
    }
    arrays
}

/// Takes over a snapshot of a network, and of an optimizer, of the same sizes; after an error both are as they were.
pub(super) fn restore(
    network: &mut Network<f32>,
    optimizer: Option<&mut AdamW>,
    arrays: &Arrays,
) -> Result<(), Diagnostics> {
    const OTHER: &str = "is it of another policy?";
    let wrong = |message: String| Err(Diagnostic::error(message).with_help(OTHER).into());
    let own = snapshot(network, optimizer.as_deref());
    for (name, own) in &own {
        match arrays.get(name) {
            None => return wrong(format!("the state has no array {name:?}")),
            Some(array) if array.len() != own.len() => {
                let (found, own) = (array.len(), own.len());
                return wrong(format!(
                    "{name:?} has {found} values; this policy's has {own}"
                ));
            }
            Some(_) => {}
        }
    }
    if let Some(name) = arrays.keys().find(|name| !own.contains_key(*name)) {
        return wrong(format!(
            "the state has an array {name:?} which this policy does not have"
        ));
    }
    let tensors = network.sizes.tensors();
    let values = |group: &str| -> Vec<f32> {
        let names = tensors
            .iter()
            .map(|(tensor, _)| format!("{group}.{tensor}"));
        names.flat_map(|name| arrays[&name].clone()).collect()
    };
    network.values = values(PARAMETERS);
    if let Some(optimizer) = optimizer {
        (optimizer.first, optimizer.second) = (values(FIRST), values(SECOND));
        let updates = &arrays[UPDATES];
        optimizer.updates = updates[0] as u64 + updates[1] as u64 * BASE;
    }
    Ok(())
}

/// Writes a snapshot to a safetensors file.
pub(super) fn write(path: &Path, sizes: Sizes, arrays: &Arrays) -> Result<(), Diagnostics> {
    let wrong = |error: SafeTensorError| damaged(path, error.to_string());
    let bytes = |values: &Vec<f32>| {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let bytes: Vec<Vec<u8>> = arrays.values().map(bytes).collect();
    let views = arrays.iter().zip(&bytes).map(|((name, values), bytes)| {
        let mut tensors = sizes.tensors().into_iter();
        let shape = tensors.find(|(tensor, _)| name.ends_with(tensor));
        let shape = shape.map_or(vec![values.len()], |(_, shape)| shape);
        Ok((name, TensorView::new(Dtype::F32, shape, bytes)?))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>().map_err(wrong)?;
    let file = serialize(views, None).map_err(wrong)?;
    fs::write(path, file).map_err(io("write", path))
}

/// The snapshot of a safetensors file.
pub(super) fn read(path: &Path) -> Result<Arrays, Diagnostics> {
    let bytes = advlab::regular_file::read(path).map_err(io("read", path))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|error| damaged(path, error.to_string()))?;
    let values = |bytes: &[u8]| -> Vec<f32> {
        let values = bytes.as_chunks().0.iter();
        values.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let arrays = file.iter();
    Ok(arrays
        .map(|(name, view)| (name.to_string(), values(view.data())))
        .collect())
}
