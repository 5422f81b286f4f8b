//! The MLP's parameters and optimizer as named arrays, for checkpoints.

use std::collections::BTreeMap;

use super::network::{Network, Sizes};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::policy::{AdamW, Arrays, NamedArray};

const PARAMETERS: &str = "policy";
const FIRST: &str = "adamw.first";
const SECOND: &str = "adamw.second";
const UPDATES: &str = "adamw.updates";

/// The number of updates is stored as two digits of this base, each exact in f32.
const BASE: u64 = 1 << 24;

pub(super) fn parameters(network: &Network<f32>) -> Arrays {
    named(&network.sizes, PARAMETERS, &network.values).collect()
}

pub(super) fn snapshot(network: &Network<f32>, optimizer: &AdamW) -> Arrays {
    let mut arrays = parameters(network);
    arrays.extend(named(&network.sizes, FIRST, &optimizer.first));
    arrays.extend(named(&network.sizes, SECOND, &optimizer.second));
    let digits = [optimizer.updates % BASE, optimizer.updates / BASE];
    let values = digits.map(|digit| digit as f32).to_vec();
    let shape = vec![2];
    arrays.insert(UPDATES.into(), NamedArray { shape, values });
    arrays
}

/// The network and the optimizer of a snapshot; the optimizer's settings are those of `optimizer`.
pub(super) fn restored(
    sizes: Sizes,
    optimizer: &AdamW,
    arrays: &Arrays,
) -> Result<(Network<f32>, AdamW), Diagnostics> {
    let mut left = Left::of(arrays);
    let mut restored = optimizer.clone();
    let values = left.tensors(&sizes, PARAMETERS)?;
    restored.first = left.tensors(&sizes, FIRST)?;
    restored.second = left.tensors(&sizes, SECOND)?;
    let updates = left.array(UPDATES, &[2])?;
    restored.updates = updates[0] as u64 + updates[1] as u64 * BASE;
    left.nothing()?;
    Ok((Network { sizes, values }, restored))
}

/// The network of a state that has parameters alone.
pub(super) fn network(sizes: Sizes, arrays: &Arrays) -> Result<Network<f32>, Diagnostics> {
    let mut left = Left::of(arrays);
    let values = left.tensors(&sizes, PARAMETERS)?;
    left.nothing()?;
    Ok(Network { sizes, values })
}

/// Cuts values into the tensors of a network.
fn named(sizes: &Sizes, group: &str, values: &[f32]) -> impl Iterator<Item = (String, NamedArray)> {
    let mut rest = values;
    sizes.tensors().into_iter().map(move |(tensor, shape)| {
        let (values, behind) = rest.split_at(shape.iter().product());
        rest = behind;
        let values = values.to_vec();
        (format!("{group}.{tensor}"), NamedArray { shape, values })
    })
}

/// The arrays that have not been taken yet.
struct Left<'a>(BTreeMap<&'a str, &'a NamedArray>);

impl<'a> Left<'a> {
    fn of(arrays: &'a Arrays) -> Self {
        let arrays = arrays.iter();
        Left(arrays.map(|(name, array)| (&**name, array)).collect())
    }

    fn array(&mut self, name: &str, expected: &[usize]) -> Result<&'a [f32], Diagnostics> {
        let Some(NamedArray { shape, values }) = self.0.remove(name) else {
            let message = format!("the state has no array {name:?}");
            return Err(Diagnostic::error(message).with_help(OTHER).into());
        };
        if shape != expected || values.len() != expected.iter().product::<usize>() {
            let message = format!(
                "{name:?} has the shape {shape:?} with {} values; this policy's is {expected:?}",
                values.len()
            );
            return Err(Diagnostic::error(message).into());
        }
        Ok(values)
    }

    fn tensors(&mut self, sizes: &Sizes, group: &str) -> Result<Vec<f32>, Diagnostics> {
        let mut all = Vec::with_capacity(sizes.count());
        for (tensor, shape) in sizes.tensors() {
            all.extend_from_slice(self.array(&format!("{group}.{tensor}"), &shape)?);
        }
        Ok(all)
    }

    fn nothing(self) -> Result<(), Diagnostics> {
        match self.0.keys().next() {
            Some(name) => Err(Diagnostic::error(format!(
                "the state has an array {name:?} which this policy does not have"
            ))
            .with_help(OTHER)
            .into()),
            None => Ok(()),
        }
    }
}

const OTHER: &str = "is it of another policy?";
