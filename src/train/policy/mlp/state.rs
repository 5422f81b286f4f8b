//! The MLP's parameters and optimizer as named arrays, for checkpoints.

use ndarray::ArrayD;

use super::network::{Network, Sizes};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::policy::{AdamW, Arrays};

const PARAMETERS: &str = "policy";
const FIRST: &str = "adamw.first";
const SECOND: &str = "adamw.second";
const UPDATES: &str = "adamw.updates";

/// The number of updates is stored as two digits of this base, each exact in f32.
const BASE: u64 = 1 << 24;

pub(super) fn parameters(network: &Network<f32>) -> Arrays {
    let mut arrays = Arrays::new();
    insert(&mut arrays, network.sizes, PARAMETERS, &network.values);
    arrays
}

pub(super) fn snapshot(network: &Network<f32>, optimizer: &AdamW) -> Arrays {
    let mut arrays = parameters(network);
    insert(&mut arrays, network.sizes, FIRST, &optimizer.first);
    insert(&mut arrays, network.sizes, SECOND, &optimizer.second);
    let digits = [optimizer.updates % BASE, optimizer.updates / BASE];
    let digits = digits.map(|digit| digit as f32);
    arrays.insert(UPDATES.into(), ndarray::arr1(&digits).into_dyn());
    arrays
}

/// The network and the optimizer of a snapshot; the optimizer's settings are those of `optimizer`.
pub(super) fn restored(
    sizes: Sizes,
    optimizer: &AdamW,
    arrays: &Arrays,
) -> Result<(Network<f32>, AdamW), Diagnostics> {
    let mut left = arrays.clone();
    let mut restored = optimizer.clone();
    let values = take(&mut left, sizes, PARAMETERS)?;
    restored.first = take(&mut left, sizes, FIRST)?;
    restored.second = take(&mut left, sizes, SECOND)?;
    let updates = take_array(&mut left, UPDATES, &[2])?;
    restored.updates = updates[[0]] as u64 + updates[[1]] as u64 * BASE;
    nothing(&left)?;
    Ok((Network { sizes, values }, restored))
}

/// The network of a state that has parameters alone.
pub(super) fn network(sizes: Sizes, arrays: &Arrays) -> Result<Network<f32>, Diagnostics> {
    let mut left = arrays.clone();
    let values = take(&mut left, sizes, PARAMETERS)?;
    nothing(&left)?;
    Ok(Network { sizes, values })
}

/// Cuts values into the tensors of a network.
fn insert(arrays: &mut Arrays, sizes: Sizes, group: &str, values: &[f32]) {
    let mut rest = values.iter().copied();
    for (tensor, shape) in sizes.tensors() {
        let array = ArrayD::from_shape_simple_fn(shape, || rest.next().unwrap_or_default());
        arrays.insert(format!("{group}.{tensor}"), array);
    }
}

fn take(left: &mut Arrays, sizes: Sizes, group: &str) -> Result<Vec<f32>, Diagnostics> {
    let mut values = Vec::with_capacity(sizes.count());
    for (tensor, shape) in sizes.tensors() {
        values.extend(take_array(left, &format!("{group}.{tensor}"), &shape)?);
    }
    Ok(values)
}

fn take_array(
    left: &mut Arrays,
    name: &str,
    expected: &[usize],
) -> Result<ArrayD<f32>, Diagnostics> {
    let Some(array) = left.remove(name) else {
        let message = format!("the state has no array {name:?}");
        return Err(Diagnostic::error(message).with_help(OTHER).into());
    };
    let shape = array.shape();
    if shape != expected {
        let message = format!("{name:?} has the shape {shape:?}; this policy's is {expected:?}");
        return Err(Diagnostic::error(message).into());
    }
    Ok(array)
}

/// Whether all arrays were taken.
fn nothing(left: &Arrays) -> Result<(), Diagnostics> {
    let Some(name) = left.keys().next() else {
        return Ok(());
    };
    let message = format!("the state has an array {name:?} which this policy does not have");
    Err(Diagnostic::error(message).with_help(OTHER).into())
}

const OTHER: &str = "is it of another policy?";
