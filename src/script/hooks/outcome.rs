//! The results of hooks: an advantage or a loss, with the hooks' reports.

use std::time::Duration;

use crate::batch::{Batch, Computed};
use crate::script::call::MapGroups;
use crate::script::hook::Hook;

/// The advantage of a batch, with the hooks' reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The reward, if the recipe replaced it: at response or token level.
    pub reward: Option<Computed>,
    /// How much each response counts in a loss, at response level: from the `weight` hook, or the column `weight`.
    pub weight: Option<Computed>,
    /// The advantage, at response or token level.
    pub advantage: Computed,
    /// The loss, if the advantage is derived from one as -M dloss/dlogp, with M the number of tokens.
    pub loss: Option<f64>,
    /// Which responses are right, if the batch says so: `batch.correct`, as scripts see it.
    pub correct: Option<Computed>,
    /// The numbers of `metric`; prefixed with the hook, as in `reward/clipped`, if two hooks report the same name.
    pub metrics: Vec<(String, f64)>,
    /// The printed lines.
    pub prints: Vec<String>,
    /// Columns that were not read as their names say, in words.
    pub notes: Vec<String>,
    /// The calls of `map_groups`, each place once.
    pub map_groups: Vec<MapGroups>,
    /// The time of the hooks.
    pub time: Duration,
    /// The most bytes that tensors held at once.
    pub peak_bytes: usize,
    /// The time of the kernel, if one computed it in place of a built-in's script.
    pub native: Option<Duration>,
}

/// A loss with its gradient.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The loss.
    pub value: f64,
    /// dloss/dlogp, at token level.
    pub gradient: Computed,
    /// The numbers of `metric`.
    pub metrics: Vec<(String, f64)>,
    /// The printed lines.
    pub prints: Vec<String>,
    /// Columns that were not read as their names say, in words.
    pub notes: Vec<String>,
    /// The calls of `map_groups`, each place once.
    pub map_groups: Vec<MapGroups>,
    /// The time of the hooks.
    pub time: Duration,
    /// The time of the kernel, if one computed it in place of a built-in's script.
    pub native: Option<Duration>,
}

impl Outcome {
    /// An advantage, or in its place the gradient of a loss, without anything else.
    pub(crate) fn of(advantage: Computed) -> Outcome {
        Outcome {
            advantage,
            reward: None,
            weight: None,
            loss: None,
            correct: None,
            metrics: Vec::new(),
            prints: Vec::new(),
            notes: Vec::new(),
            map_groups: Vec::new(),
            time: Duration::ZERO,
            peak_bytes: 0,
            native: None,
        }
    }

    /// The loss whose gradient stands in the place of the advantage.
    pub(super) fn into_loss(self) -> Loss {
        Loss {
            value: self.loss.unwrap_or_default(),
            gradient: self.advantage,
            metrics: self.metrics,
            prints: self.prints,
            notes: self.notes,
            map_groups: self.map_groups,
            time: self.time,
            native: self.native,
        }
    }

    /// How much a response's advantage counts: its weight; or 1 if the advantage is derived from a loss, which already
    /// contains the weight.
    pub fn counts(&self, response: usize) -> f64 {
        let weight = self.weight.as_ref().filter(|_| self.loss.is_none());
        weight.map_or(1.0, |weight| weight.at(response, 0))
    }

    /// The batch as a loss is to see it: with the weights as its column `weight`.
    pub fn weighted(&self, batch: &Batch) -> Batch {
        match &self.weight {
            Some(weight) => batch.clone().with("weight", weight),
            None => batch.clone(),
        }
    }

    /// Adds the reports and the time of a loss that saw this advantage; metrics that both have get their hooks, as in
    /// `loss/clipped`.
    pub fn add_reports(&mut self, mut loss: Loss) {
        for (name, _) in &mut loss.metrics {
            if let Some((same, _)) = self.metrics.iter_mut().find(|(own, _)| own == name) {
                *same = format!("{}/{name}", Hook::Advantage.name());
                *name = format!("{}/{name}", Hook::Loss.name());
            }
        }
        self.metrics.append(&mut loss.metrics);
        self.prints.append(&mut loss.prints);
        self.notes.append(&mut loss.notes);
        self.map_groups.append(&mut loss.map_groups);
        self.time += loss.time;
        let native = self.native.into_iter().chain(loss.native);
        self.native = native.reduce(|a, b| a + b);
    }
}
