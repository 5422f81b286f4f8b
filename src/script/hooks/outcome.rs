//! What hooks give: an advantage or a loss, with all that came up on the way.

use std::time::Duration;

use crate::batch::{Batch, Computed};
use crate::script::batch_type::MapGroups;
use crate::script::recipe::Hook;

/// The advantage of a batch, with all that came up on the way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome<A = Computed> {
    /// The reward, where the recipe replaced it: at response or token level.
    pub reward: Option<Computed>,
    /// How much each response counts in a loss, at response level: what the `weight` hook gave, or the column `weight`.
    pub weight: Option<Computed>,
    /// The advantage, at response or token level; that level alone where [`Recipe::advantage_into`] wrote it.
    pub advantage: A,
    /// The loss, where the advantage is the equivalent of one: -M dloss/dlogp, M being the number of tokens.
    pub loss: Option<f64>,
    /// Which responses are right, where anything says so: `batch.correct`, as scripts see it.
    pub correct: Option<Computed>,
    /// The numbers of `metric`; with the hook, as in `reward/clipped`, where two hooks have one of a name.
    pub metrics: Vec<(String, f64)>,
    /// The printed lines.
    pub prints: Vec<String>,
    /// Columns that were read otherwise than their names say, in words.
    pub notes: Vec<String>,
    /// The calls of `map_groups`, each place once.
    pub map_groups: Vec<MapGroups>,
    /// How long the hooks took.
    pub time: Duration,
    /// The most bytes that tensors held at once.
    pub peak_bytes: usize,
    /// How long kernels took in place of built-ins' scripts, where they computed it or a part of it.
    pub native: Option<Duration>,
}

impl Outcome {
    /// How much a response's advantage counts: its weight; 1 where the advantage is the equivalent of a loss, which has
    /// the weight already.
    pub(crate) fn counts(&self, response: usize) -> f64 {
        let weight = self.weight.as_ref().filter(|_| self.loss.is_none());
        weight.map_or(1.0, |weight| weight.at(response, 0))
    }
}

/// A loss with its gradient.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss<G = Computed> {
    /// The loss.
    pub value: f64,
    /// dloss/dlogp, at token level; `()` where [`Recipe::loss_into`] wrote it.
    pub gradient: G,
    /// The numbers of `metric`.
    pub metrics: Vec<(String, f64)>,
    /// The printed lines.
    pub prints: Vec<String>,
    /// Columns that were read otherwise than their names say, in words.
    pub notes: Vec<String>,
    /// The calls of `map_groups`, each place once.
    pub map_groups: Vec<MapGroups>,
    /// How long it took.
    pub time: Duration,
    /// How long a kernel took in place of a built-in's script, where one computed it or a part of it.
    pub native: Option<Duration>,
}

impl<A> Outcome<A> {
    /// The batch as a loss is to see it: with the weights as its column `weight`.
    pub fn weighted(&self, batch: &Batch) -> Batch {
        match &self.weight {
            Some(weight) => batch.clone().with("weight", weight),
            None => batch.clone(),
        }
    }

    /// Adds the reports and the time of a loss that saw this advantage; metrics that both have get their hooks, as in
    /// `loss/clipped`.
    pub fn add_reports<G>(&mut self, mut loss: Loss<G>) {
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
