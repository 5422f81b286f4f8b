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

/// The network and the optimizer of a snapshot, in place of some of the same sizes and settings.
pub(super) fn restored(
    network: &Network<f32>,
    optimizer: &AdamW,
    arrays: &Arrays,
) -> Result<(Network<f32>, AdamW), Diagnostics> {
    check(&snapshot(network, optimizer), arrays)?;
    let mut optimizer = optimizer.clone();
    optimizer.first = values(arrays, FIRST, network.sizes);
    optimizer.second = values(arrays, SECOND, network.sizes);
    let updates = &arrays[UPDATES];
    optimizer.updates = updates[[0]] as u64 + updates[[1]] as u64 * BASE;
    Ok((with_parameters(network, arrays), optimizer))
}

/// The network of a state that has parameters alone, in place of one of the same sizes.
pub(super) fn network(
    network: &Network<f32>,
    arrays: &Arrays,
) -> Result<Network<f32>, Diagnostics> {
    check(&parameters(network), arrays)?;
    Ok(with_parameters(network, arrays))
}

fn with_parameters(network: &Network<f32>, arrays: &Arrays) -> Network<f32> {
    let sizes = network.sizes;
    let values = values(arrays, PARAMETERS, sizes);
    Network { sizes, values }
}

/// Cuts values into the tensors of a network.
fn insert(arrays: &mut Arrays, sizes: Sizes, group: &str, values: &[f32]) {
    let mut rest = values.iter().copied();
    for (tensor, shape) in sizes.tensors() {
        let array = ArrayD::from_shape_simple_fn(shape, || rest.next().unwrap_or_default());
        arrays.insert(format!("{group}.{tensor}"), array);
    }
}

fn values(arrays: &Arrays, group: &str, sizes: Sizes) -> Vec<f32> {
    let tensors = sizes.tensors().into_iter();
    let tensors = tensors.flat_map(|(tensor, _)| &arrays[&format!("{group}.{tensor}")]);
    tensors.copied().collect()
}

/// Whether arrays have the names and shapes of this policy's own.
fn check(own: &Arrays, arrays: &Arrays) -> Result<(), Diagnostics> {
    const OTHER: &str = "is it of another policy?";
    for (name, own) in own {
        let Some(array) = arrays.get(name) else {
            let message = format!("the state has no array {name:?}");
            return Err(Diagnostic::error(message).with_help(OTHER).into());
        };
        let (shape, own) = (array.shape(), own.shape());
        if shape != own {
            let message = format!("{name:?} has the shape {shape:?}; this policy's is {own:?}");
            return Err(Diagnostic::error(message).into());
        }
    }
    if let Some(name) = arrays.keys().find(|name| !own.contains_key(*name)) {
        let message = format!("the state has an array {name:?} which this policy does not have");
        return Err(Diagnostic::error(message).with_help(OTHER).into());
    }
    Ok(())
}
