//! The decoder: from tokens to the vectors that the head reads.

use tch::{Kind, Tensor};

use super::config::ModelConfig;
use super::layers::{Heads, Turns, mlp, rms_norm};
use super::weights::Weights;
use crate::torch::Result;

/// The hidden states `[rows, tokens, hidden]` of `tokens`, int64 `[rows, tokens]`, after the last norm. `attend` is a
/// layer's attention; positions as [`Turns::new`] has them.
pub(super) fn hidden_states(
    config: &ModelConfig,
    weights: &Weights,
    tokens: &Tensor,
    positions: &Tensor,
    mut attend: impl FnMut(usize, Heads) -> Result<Tensor>,
) -> Result<Tensor> {
    let (rows, length) = tokens.size2()?;
    let turns = Turns::new(config, positions, weights.embedding.tensor.f_kind()?)?;
    let mut x = Tensor::f_embedding(&weights.embedding.tensor, tokens, -1, false, false)?;
    for (index, layer) in weights.layers.iter().enumerate() {
        let normed = rms_norm(&x, &layer.input_norm.tensor, config.norm_eps)?;
        let seen = attend(index, Heads::new(config, layer, &turns, &normed)?)?;
        let seen = seen.f_transpose(1, 2)?.f_reshape([rows, length, -1])?;
        x = x.f_add(&seen.f_linear(&layer.output.tensor, None::<Tensor>)?)?;
        let normed = rms_norm(&x, &layer.mlp_norm.tensor, config.norm_eps)?;
        x = x.f_add(&mlp(layer, &normed)?)?;
    }
    rms_norm(&x, &weights.norm.tensor, config.norm_eps)
}

/// [`hidden_states`] of whole rows, padded at their end: what stands there reaches nothing before it.
pub(super) fn causal_states(
    config: &ModelConfig,
    weights: &Weights,
    tokens: &Tensor,
) -> Result<Tensor> {
    let (_, length) = tokens.size2()?;
    let positions = Tensor::f_arange(length, (Kind::Int64, tokens.device()))?;
    let attend = |_, heads: Heads| heads.attend(None);
    hidden_states(config, weights, tokens, &positions, attend)
}
