//! The decoder: from tokens to the vectors that the head reads.

use tch::Tensor;

use super::config::ModelConfig;
use super::layers::{Turns, attention, mlp, rms_norm};
use super::weights::Weights;
use crate::torch::Result;

/// The hidden states `[rows, tokens, hidden]` of `tokens`, int64 `[rows, tokens]`, after the last norm. Rows are padded at
/// their end: what stands there reaches nothing before it.
pub(super) fn hidden_states(
    config: &ModelConfig,
    weights: &Weights,
    tokens: &Tensor,
) -> Result<Tensor> {
    let (_, length) = tokens.size2()?;
    let turns = Turns::new(config, length, tokens.device())?;
    let mut x = Tensor::f_embedding(&weights.embedding.tensor, tokens, -1, false, false)?;
    for layer in &weights.layers {
        let normed = rms_norm(&x, &layer.input_norm.tensor, config.norm_eps)?;
        x = x.f_add(&attention(config, layer, &turns, &normed)?)?;
        let normed = rms_norm(&x, &layer.mlp_norm.tensor, config.norm_eps)?;
        x = x.f_add(&mlp(layer, &normed)?)?;
    }
    rms_norm(&x, &weights.norm.tensor, config.norm_eps)
}
