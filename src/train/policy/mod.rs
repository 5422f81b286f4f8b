//! Policies: a policy samples responses, gives their log-probs and follows the gradient of a loss in them.

mod adamw;
mod mlp;
mod responses;

use std::collections::BTreeMap;

use thiserror::Error;

pub use adamw::{AdamW, AdamWConfig};
pub use mlp::Mlp;
pub use responses::{Responses, Scores};

use super::random::Key;
use super::task::Prompt;
use crate::diagnostic::Diagnostics;

/// Responses together with what the policy that sampled them says of their tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The responses; those of prompt p are p * group_size .. (p + 1) * group_size.
    pub responses: Responses,
    /// Log-prob and entropy of each token.
    pub scores: Scores,
}

/// Something that gives log-probs: a policy, or a reference policy that stays as it is.
pub trait Scorer: Send + Sync {
    /// Log-prob (nats, at temperature 1) of each response token given its prompt and the tokens before it, and the
    /// entropy (nats) of the distribution that it was drawn from.
    ///
    /// The same parameters, prompts and responses give the same bits, whatever else is in the batch, whether the tokens
    /// were just sampled or are scored again, and for any number of threads.
    ///
    /// # Errors
    /// [`Diagnostics`] where the prompts or responses are not of the task's sizes.
    fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, Diagnostics>;

    /// The parameters alone, from which [`Policy::frozen_from`] makes the same scorer again.
    fn parameters(&self) -> Arrays;
}

/// A policy that can be trained. All methods give the same bits for any number of threads.
pub trait Policy: Scorer {
    /// `group_size` responses to each prompt, each until its stop token or the task's longest response; the tokens are
    /// drawn at temperature 1, those of response i of the batch with stream i of the key.
    ///
    /// # Errors
    /// [`Diagnostics`] where a prompt is not of the task's sizes.
    fn sample(
        &self,
        prompts: &[Prompt],
        group_size: usize,
        key: Key,
    ) -> Result<Samples, Diagnostics>;

    /// Adds the gradient of a loss to what [`Policy::update`] will follow: `dloss_dlogp` is the derivative of the loss
    /// by the log-prob of each token, `[responses.tokens().len()]`, at the present parameters.
    ///
    /// # Errors
    /// [`Diagnostics`] where the sizes do not fit; the gradient is then as it was.
    fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), Diagnostics>;

    /// One step of the optimizer along the accumulated gradient, scaled down to `max_grad_norm` (L2, all parameters
    /// together) where it is longer; then the gradient is zero again. Gives the norm before scaling.
    ///
    /// # Errors
    /// [`NonFinite`]; the parameters and the optimizer stay as they were, the gradient is dropped.
    fn update(&mut self, max_grad_norm: Option<f64>) -> Result<f64, NonFinite>;

    /// All that training needs to go on to the same numbers: parameters and the optimizer's state, but no gradient that
    /// is still being accumulated.
    fn snapshot(&self) -> Arrays;

    /// Goes back to a snapshot of a policy of the same sizes; a gradient that is being accumulated is dropped.
    ///
    /// # Errors
    /// [`Diagnostics`] where it has other arrays than this policy's; the policy is then as it was.
    fn restore(&mut self, state: &Arrays) -> Result<(), Diagnostics>;

    /// The policy as it is now, as a reference; cheap, as nothing is copied until the policy changes.
    fn frozen(&self) -> Box<dyn Scorer>;

    /// A reference of this policy's sizes with the parameters of [`Scorer::parameters`].
    ///
    /// # Errors
    /// As [`Policy::restore`].
    fn frozen_from(&self, parameters: &Arrays) -> Result<Box<dyn Scorer>, Diagnostics>;
}

/// Arrays by their names; what a checkpoint stores.
pub type Arrays = BTreeMap<String, NamedArray>;

/// One of some [`Arrays`].
#[derive(Clone, Debug, PartialEq)]
pub struct NamedArray {
    /// Sizes, whose product is the number of values.
    pub shape: Vec<usize>,
    /// Values, row by row, bit for bit.
    pub values: Vec<f32>,
}

/// Why an update was left out.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum NonFinite {
    /// The gradient has a NaN or an infinity, or a value that f32 cannot square.
    #[error("the gradient's norm is {norm}; the parameters were left as they are")]
    Gradient {
        /// The norm (L2, all parameters together).
        norm: f64,
    },
    /// It would have made parameters that are NaN or infinite.
    #[error("an update would make parameters of the policy infinite or NaN, and was left out")]
    Parameters,
}
