//! The policy: it samples responses, gives their log-probs and follows the gradient of a loss in them.

mod adamw;
mod mlp;
mod responses;

use std::collections::BTreeMap;

use ndarray::ArrayD;
use thiserror::Error;

pub use adamw::{AdamW, AdamWConfig};
pub use mlp::{Mlp, Reference};
pub use responses::{Responses, Scores};

/// Responses together with what the policy that sampled them says of their tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The responses; those of prompt p are p * group_size .. (p + 1) * group_size.
    pub responses: Responses,
    /// Log-prob and entropy of each token.
    pub scores: Scores,
}

/// Arrays by their names; what a checkpoint stores.
pub type Arrays = BTreeMap<String, ArrayD<f32>>;

/// Why an update was left out.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum NonFinite {
    /// The gradient has a NaN or an infinity, or a value that f32 cannot square.
    #[error("the gradient's norm is {norm}")]
    Gradient {
        /// The norm (L2, all parameters together).
        norm: f64,
    },
    /// It would have made parameters that are NaN or infinite.
    #[error("an update would make parameters of the policy infinite or NaN, and was left out")]
    Parameters,
}
