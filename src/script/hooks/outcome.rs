//! What hooks give: an advantage or a loss, with all that came up on the way.

use std::time::Duration;

use ndarray::ArrayViewMut2;

use crate::batch::{Batch, Computed, Level};
use crate::script::batch_type::MapGroups;
use crate::script::recipe::Hook;

/// The caller's array [B, T] that a result may be written into.
pub(super) type Array<'a, 'b> = Option<&'a mut ArrayViewMut2<'b, f32>>;

/// A result: its values, or the level of what was written into the caller's array.
#[derive(Debug)]
pub(crate) enum Placed {
    Values(Computed),
    Written(Level),
}

impl Placed {
    pub(super) fn level(&self) -> Level {
        match self {
            Placed::Values(values) => values.level(),
            Placed::Written(level) => *level,
        }
    }

    /// Writes values into the array after all, where there is one.
    pub(super) fn into_array(self, array: Array<'_, '_>) -> Option<Placed> {
        let (Placed::Values(values), Some(array)) = (&self, array) else {
            return Some(self);
        };
        values.write_into(array).ok()?;
        Some(Placed::Written(values.level()))
    }
}

impl From<Placed> for Computed {
    fn from(placed: Placed) -> Computed {
        match placed {
            Placed::Values(values) => values,
            Placed::Written(_) => unreachable!("without an array, nothing is written into one"),
        }
    }
}

impl From<Placed> for Level {
    fn from(placed: Placed) -> Level {
        placed.level()
    }
}

impl From<Placed> for () {
    fn from(_: Placed) {}
}

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
    /// How long the kernel took, if one computed it in place of a built-in's script.
    pub native: Option<Duration>,
}

impl Outcome {
    /// How much a response's advantage counts: its weight; 1 where the advantage is the equivalent of a loss, which has
    /// the weight already.
    pub fn counts(&self, response: usize) -> f64 {
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
    /// How long the kernel took, if one computed it in place of a built-in's script.
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
