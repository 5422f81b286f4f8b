//! The MLP's parameters and optimizer as named arrays, for checkpoints.

use super::network::{Network, Sizes};
use crate::train::policy::{AdamW, NamedArray, PolicyError, State};

const PARAMETERS: &str = "policy";
const FIRST: &str = "adamw.first";
const SECOND: &str = "adamw.second";
const UPDATES: &str = "adamw.updates";

/// The number of updates is stored as two digits of this base, each exact in f32.
const BASE: u64 = 1 << 24;

pub(super) fn parameters(network: &Network<f32>) -> State {
    named(&network.sizes, PARAMETERS, &network.values).collect()
}

pub(super) fn snapshot(network: &Network<f32>, optimizer: &AdamW) -> State {
    let sizes = &network.sizes;
    let mut state = parameters(network);
    state.extend(named(sizes, FIRST, &optimizer.first));
    state.extend(named(sizes, SECOND, &optimizer.second));
    let digits = [optimizer.updates % BASE, optimizer.updates / BASE];
    let updates = NamedArray {
        shape: vec![2],
        values: digits.map(|digit| digit as f32).to_vec(),
    };
    state.insert(UPDATES.into(), updates);
    state
}

/// The network and the optimizer of a snapshot; the optimizer's settings are those of `optimizer`.
pub(super) fn restored(
    sizes: Sizes,
    optimizer: &AdamW,
    state: &State,
) -> Result<(Network<f32>, AdamW), PolicyError> {
    check_names(&sizes, &[PARAMETERS, FIRST, SECOND], state)?;
    let mut restored = optimizer.clone();
    restored.first = values(&sizes, FIRST, state)?;
    restored.second = values(&sizes, SECOND, state)?;
    let updates = array(UPDATES.into(), vec![2], state)?;
    restored.updates = updates[0] as u64 + updates[1] as u64 * BASE;
    let values = values(&sizes, PARAMETERS, state)?;
    Ok((Network { sizes, values }, restored))
}

/// The network of a state that has parameters alone.
pub(super) fn network(sizes: Sizes, state: &State) -> Result<Network<f32>, PolicyError> {
    check_names(&sizes, &[PARAMETERS], state)?;
    let values = values(&sizes, PARAMETERS, state)?;
    Ok(Network { sizes, values })
}

fn name(group: &str, tensor: &str) -> String {
    format!("{group}.{tensor}")
}

/// Cuts values into the tensors of a network.
fn named(sizes: &Sizes, group: &str, values: &[f32]) -> impl Iterator<Item = (String, NamedArray)> {
    let mut rest = values;
    sizes.tensors().into_iter().map(move |(tensor, shape)| {
        let (values, behind) = rest.split_at(shape.iter().product());
        rest = behind;
        let values = values.to_vec();
        (name(group, tensor), NamedArray { shape, values })
    })
}

/// Puts the tensors of a network together.
fn values(sizes: &Sizes, group: &str, state: &State) -> Result<Vec<f32>, PolicyError> {
    let mut all = Vec::with_capacity(sizes.count());
    for (tensor, shape) in sizes.tensors() {
        all.extend_from_slice(array(name(group, tensor), shape, state)?);
    }
    Ok(all)
}

fn array(name: String, expected: Vec<usize>, state: &State) -> Result<&[f32], PolicyError> {
    match state.get(&name) {
        None => Err(PolicyError::StateMissing { name }),
        Some(array)
            if array.shape != expected
                || array.values.len() != expected.iter().product::<usize>() =>
        {
            Err(PolicyError::StateShape {
                name,
                found: array.shape.clone(),
                values: array.values.len(),
                expected,
            })
        }
        Some(array) => Ok(&array.values),
    }
}

/// Whether a state has no array beside those of these groups.
fn check_names(sizes: &Sizes, groups: &[&str], state: &State) -> Result<(), PolicyError> {
    let known: Vec<String> = groups
        .iter()
        .flat_map(|group| sizes.tensors().map(|(tensor, _)| name(group, tensor)))
        .chain((groups.len() > 1).then(|| UPDATES.to_owned()))
        .collect();
    match state.keys().find(|name| !known.contains(name)) {
        Some(name) => Err(PolicyError::StateUnknown { name: name.clone() }),
        None => Ok(()),
    }
}
