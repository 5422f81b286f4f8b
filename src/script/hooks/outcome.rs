//! What the hooks gave: an advantage, or a loss with its gradient.

use std::time::Duration;

use crate::batch::Computed;

/// What a recipe made of a batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The reward, where the recipe replaced it: at response or token level.
    pub reward: Option<Computed>,
    /// The advantage, at response or token level.
    pub advantage: Computed,
    /// The loss, where the advantage is the equivalent of one: -M dloss/dlogp, M being the number of tokens.
    pub loss: Option<f64>,
    /// Which responses are right, where anything says so: `batch.correct`, as scripts see it.
    pub correct: Option<Computed>,
    /// What the script reported with `metric`.
    pub metrics: Vec<(String, f64)>,
    /// What the script printed.
    pub prints: Vec<String>,
    /// What was read otherwise than its name says, in words.
    pub notes: Vec<String>,
    /// How long the hooks took.
    pub time: Duration,
    /// The most bytes that tensors held at once.
    pub peak_bytes: usize,
}

/// A loss with its gradient.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The loss.
    pub value: f64,
    /// dloss/dlogp, at token level.
    pub gradient: Computed,
    /// What the script reported with `metric`.
    pub metrics: Vec<(String, f64)>,
    /// What the script printed.
    pub prints: Vec<String>,
    /// What was read otherwise than its name says, in words.
    pub notes: Vec<String>,
    /// How long it took.
    pub time: Duration,
}
