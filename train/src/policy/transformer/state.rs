//! What of a transformer is kept: its weights and its optimizer, in a file or in memory, and a copy that stays.

use std::collections::BTreeMap;
use std::path::Path;

use tch::{Tensor, no_grad_guard};

use super::Transformer;
use super::files::Tensors;
use super::optimizer::{self, Optimizer};
use super::saved;
use super::weights::{Parameter, Source, Weights};
use crate::error::damaged;
use crate::torch::{Result, TorchError};
use advlab::diagnostic::Diagnostics;

/// The number of updates so far, in a file's metadata.
const UPDATES: &str = "updates";
/// What stands before a weight's name, for the moving averages of its gradient and of the square.
const FIRST: &str = "adamw.first.";
const SECOND: &str = "adamw.second.";

/// Weights and optimizer as they were, on the model's device.
pub struct Snapshot {
    weights: Vec<Tensor>,
    optimizer: Optimizer,
}

impl Transformer {
    /// Writes the weights, and the optimizer once there were updates, to one safetensors file; a [`Transformer::frozen`]
    /// one has weights alone. The file that was there stays until all is written. What was accumulated is not in it, and
    /// no checksum: a run's checkpoint has one of each file.
    ///
    /// # Errors
    /// [`Diagnostics`] where it cannot be written.
    pub fn save(&self, path: &Path) -> std::result::Result<(), Diagnostics> {
        let updates = self.optimizer.updates.to_string();
        let metadata = [(UPDATES, updates.as_str()), ("format", "pt")];
        let metadata = metadata.map(|(key, value)| (key.to_string(), value.to_string()));
        saved::write(path, &BTreeMap::from(metadata), &self.stored()?)
    }

    /// Weights and optimizer of a file that [`Transformer::save`] wrote, for a model of these sizes: it goes on to the same
    /// numbers. After an error the model is to be restored from another file, or dropped.
    ///
    /// # Errors
    /// [`Diagnostics`] where it cannot be read, is cut off, or is of another model; and where memory does not suffice.
    pub fn restore(&mut self, path: &Path) -> std::result::Result<(), Diagnostics> {
        let file = Tensors::saved(path)?;
        let updates = file.metadata(UPDATES).and_then(|text| text.parse().ok());
        let Some(updates) = updates else {
            return Err(damaged(path, "it is not the state of a transformer"));
        };
        let _guard = no_grad_guard();
        self.gradient.clear();
        // The old one goes before the new one comes.
        self.optimizer = Optimizer::default();
        if updates > 0 {
            let parameters: Vec<&Tensor> = self.weights.parameters().map(|p| &p.tensor).collect();
            self.optimizer = Optimizer::begin(updates, &parameters)?;
        }
        for (name, mut tensor) in self.stored()? {
            let stored = file.read(&name, &tensor.size())?;
            tensor.f_copy_(&stored).map_err(TorchError::from)?;
        }
        for (parameter, master) in self.weights.parameters().zip(&self.optimizer.masters) {
            let rounded = parameter.tensor.shallow_clone().f_copy_(master);
            rounded.map_err(TorchError::from)?;
        }
        Ok(())
    }

    /// A copy of the weights, which keeps its numbers while this one is trained: a reference.
    ///
    /// # Errors
    /// [`Diagnostics`] where memory does not suffice.
    pub fn frozen(&self) -> std::result::Result<Transformer, Diagnostics> {
        let all: BTreeMap<_, _> = self.weights.split()?.into_iter().collect();
        let weights = Weights::load(&self.config, &all, self.compute)?;
        let config = self.config.clone();
        Ok(Transformer::with(config, weights, self.compute))
    }

    /// Weights and optimizer, to come back to.
    ///
    /// # Errors
    /// [`Diagnostics`] where memory does not suffice.
    pub fn snapshot(&self) -> std::result::Result<Snapshot, Diagnostics> {
        let _guard = no_grad_guard();
        let weights = self
            .weights
            .parameters()
            .map(|p| optimizer::copy(&p.tensor));
        Ok(Snapshot {
            weights: weights.collect::<Result<_>>()?,
            optimizer: self.optimizer.copied()?,
        })
    }

    /// Back to a snapshot of this model.
    ///
    /// # Errors
    /// [`Diagnostics`] where memory does not suffice.
    pub fn go_back(&mut self, to: Snapshot) -> std::result::Result<(), Diagnostics> {
        let _guard = no_grad_guard();
        self.gradient.clear();
        for (parameter, kept) in self.weights.parameters().zip(&to.weights) {
            let copied = parameter.tensor.shallow_clone().f_copy_(kept);
            copied.map_err(TorchError::from)?;
        }
        self.optimizer = to.optimizer;
        Ok(())
    }

    /// All that a file has, by name: views, so that writing to them changes the model.
    fn stored(&self) -> Result<Vec<(String, Tensor)>> {
        let Optimizer {
            averages, masters, ..
        } = &self.optimizer;
        let mut stored = Vec::new();
        let mut add = |prefix: &str, parameter: &Parameter, tensor: &Tensor| -> Result<()> {
            let parts = parameter.split(tensor)?.into_iter();
            stored.extend(parts.map(|(name, part)| (format!("{prefix}{name}"), part)));
            Ok(())
        };
        for (index, parameter) in self.weights.parameters().enumerate() {
            add(
                "",
                parameter,
                masters.get(index).unwrap_or(&parameter.tensor),
            )?;
        }
        for (parameter, (first, second)) in self.weights.parameters().zip(averages) {
            add(FIRST, parameter, first)?;
            add(SECOND, parameter, second)?;
        }
        Ok(stored)
    }
}
