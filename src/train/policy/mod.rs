//! What is trained: a policy samples responses, gives their log-probs and follows the gradient of a loss in them.

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

/// How the tokens of a response are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// Drawn from the policy at temperature 1; response i of the batch uses stream i of the key.
    Sample(Key),
    /// The most probable token; of equals the first.
    Greedy,
}

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
    /// [`PolicyError`] where the prompts or responses are not of the task's sizes.
    fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, PolicyError>;

    /// The parameters alone, from which [`Policy::frozen_from`] makes the same scorer again.
    fn parameters(&self) -> State;
}

/// A policy that can be trained. All methods give the same bits for any number of threads.
pub trait Policy: Scorer {
    /// `group_size` responses to each prompt, each until its stop token or the task's longest response.
    ///
    /// # Errors
    /// [`PolicyError::PromptFeatures`] where a prompt is not of the task's sizes.
    fn sample(
        &self,
        prompts: &[Prompt],
        group_size: usize,
        decoding: Decoding,
    ) -> Result<Samples, PolicyError>;

    /// Adds the gradient of a loss to what [`Policy::update`] will follow: `dloss_dlogp` is the derivative of the loss
    /// by the log-prob of each token, `[responses.tokens().len()]`, at the present parameters.
    ///
    /// # Errors
    /// [`PolicyError`] where the sizes do not fit; the gradient is then as it was.
    fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), PolicyError>;

    /// One step of the optimizer along the accumulated gradient, scaled down to `max_grad_norm` (L2, all parameters
    /// together) where it is longer; then the gradient is zero again. Gives the norm before scaling.
    ///
    /// # Errors
    /// [`PolicyError::NonFiniteGradient`] or [`PolicyError::NonFiniteParameters`]; the parameters and the optimizer stay as
    /// they were, the gradient is dropped.
    fn update(&mut self, max_grad_norm: Option<f64>) -> Result<f64, PolicyError>;

    /// All that training needs to go on to the same numbers: parameters and the optimizer's state, but no gradient that
    /// is still being accumulated.
    fn snapshot(&self) -> State;

    /// Goes back to a snapshot of a policy of the same sizes; a gradient that is being accumulated is dropped.
    ///
    /// # Errors
    /// [`PolicyError::StateMissing`], [`PolicyError::StateShape`] or [`PolicyError::StateUnknown`]; the policy is then
    /// as it was.
    fn restore(&mut self, state: &State) -> Result<(), PolicyError>;

    /// The policy as it is now, as a reference; cheap, as nothing is copied until the policy changes.
    fn frozen(&self) -> Box<dyn Scorer>;

    /// A reference of this policy's sizes with the parameters of [`Scorer::parameters`].
    ///
    /// # Errors
    /// As [`Policy::restore`].
    fn frozen_from(&self, parameters: &State) -> Result<Box<dyn Scorer>, PolicyError>;
}

/// Named arrays; what a checkpoint stores.
pub type State = BTreeMap<String, NamedArray>;

/// One array of a [`State`], row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedArray {
    /// Its sizes; their product is the number of values.
    pub shape: Vec<usize>,
    /// Its values, bit for bit.
    pub values: Vec<f32>,
}

/// Why a policy cannot do what it is asked for.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PolicyError {
    /// A prompt has another number of features than the task.
    #[error("prompt {prompt} has {found} features; this policy reads {expected}")]
    PromptFeatures {
        /// The prompt's place in the batch.
        prompt: usize,
        /// How many it has.
        found: usize,
        /// How many the policy reads.
        expected: usize,
    },
    /// A response belongs to a prompt that is not in the batch.
    #[error("response {response} belongs to prompt {prompt}; the batch has {prompts} prompts")]
    ResponsePrompt {
        /// The response's place in the batch.
        response: usize,
        /// The prompt that it names.
        prompt: usize,
        /// How many prompts there are.
        prompts: usize,
    },
    /// A response has a token that the task does not have.
    #[error("response {response} has the token {token}; the vocabulary has {vocabulary} tokens")]
    ResponseToken {
        /// The response's place in the batch.
        response: usize,
        /// The token.
        token: u32,
        /// How many tokens there are.
        vocabulary: usize,
    },
    /// A response is longer than the task allows.
    #[error("response {response} has {found} tokens; the longest has {max}")]
    ResponseLength {
        /// The response's place in the batch.
        response: usize,
        /// How many tokens it has.
        found: usize,
        /// The most that it can have.
        max: usize,
    },
    /// There is not one derivative for each token.
    #[error("dloss/dlogp has {found} values; the responses have {expected} tokens")]
    GradientLength {
        /// How many derivatives were given.
        found: usize,
        /// How many tokens there are.
        expected: usize,
    },
    /// The gradient has a NaN or an infinity, or its norm is one.
    #[error("the gradient's norm is {norm}; the parameters were left as they are")]
    NonFiniteGradient {
        /// The norm.
        norm: f64,
    },
    /// The update would have made parameters that are NaN or infinite.
    #[error(
        "an update would make parameters of the policy infinite or NaN, and was left out; is `lr` too large?"
    )]
    NonFiniteParameters,
    /// A state lacks an array.
    #[error("the state has no array {name:?}; is it of another policy?")]
    StateMissing {
        /// The array's name.
        name: String,
    },
    /// An array of a state is not as large as the policy's.
    #[error("{name:?} has the shape {found:?} with {values} values; this policy's is {expected:?}")]
    StateShape {
        /// The array's name.
        name: String,
        /// The state's shape.
        found: Vec<usize>,
        /// How many values the state has for it.
        values: usize,
        /// The policy's shape.
        expected: Vec<usize>,
    },
    /// A state has an array that the policy does not have.
    #[error("the state has an array {name:?} which this policy does not have")]
    StateUnknown {
        /// The array's name.
        name: String,
    },
}
