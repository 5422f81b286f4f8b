//! The decoder: from tokens to the vectors that the head reads.

use std::ops::Range;

use tch::Tensor;

use super::config::ModelConfig;
use super::layers::{Heads, Turns, mlp, rms_norm};
use super::micro_batch::Inputs;
use super::weights::Weights;
use crate::torch::Result;

/// A forward pass over `tokens`, int64 `[rows, tokens]`.
pub(super) struct Decoder<'a> {
    pub config: &'a ModelConfig,
    pub weights: &'a Weights,
    pub tokens: &'a Tensor,
    pub turns: Turns,
    /// Which of all rows' tokens, as one row, are asked for: int64 `[places]`; without it all are. The last layer does no
    /// more than they need.
    pub places: Option<&'a Tensor>,
}

impl<'a> Decoder<'a> {
    /// Over a micro-batch, to what gives its targets.
    pub(super) fn over(
        config: &'a ModelConfig,
        weights: &'a Weights,
        inputs: &'a Inputs,
    ) -> Result<Self> {
        let dtype = weights.embedding.tensor.f_kind()?;
        Ok(Decoder {
            config,
            weights,
            tokens: &inputs.tokens,
            turns: Turns::new(config, &inputs.positions, dtype)?,
            places: Some(&inputs.places),
        })
    }

    /// The hidden states `[places, hidden]` after the last norm; `attend` is a layer's attention.
    pub(super) fn states(
        &self,
        attend: impl FnMut(usize, Heads) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.pass(0..self.weights.layers.len(), None, attend)
    }

    /// Part of the way: through these layers, from what came out of those before, with the embedding before the first layer
    /// and the norm after the last.
    pub(super) fn pass(
        &self,
        layers: Range<usize>,
        input: Option<&Tensor>,
        mut attend: impl FnMut(usize, Heads) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut x = match input {
            Some(input) => input.shallow_clone(),
            None => {
                let embedding = &self.weights.embedding.tensor;
                Tensor::f_embedding(embedding, self.tokens, -1, false, false)?
            }
        };
        for index in layers.clone() {
            x = self.layer(index, &x, |heads| attend(index, heads))?;
        }
        if layers.end < self.weights.layers.len() {
            return Ok(x);
        }
        let x = x.f_view([-1, self.config.hidden])?;
        rms_norm(&x, &self.weights.norm.tensor, self.config.norm_eps)
    }

    /// `x` is `[rows, tokens, hidden]`, and so is what comes out, but `[places, hidden]` of the last layer.
    fn layer(
        &self,
        index: usize,
        x: &Tensor,
        attend: impl FnOnce(Heads) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (layer, eps) = (&self.weights.layers[index], self.config.norm_eps);
        let (rows, length, _) = x.size3()?;
        let normed = rms_norm(x, &layer.input_norm.tensor, eps)?;
        let seen = attend(Heads::new(self.config, layer, &self.turns, &normed)?)?;
        let mut seen = seen.f_transpose(1, 2)?.f_reshape([rows, length, -1])?;
        let mut x = x.shallow_clone();
        let is_last = index + 1 == self.weights.layers.len();
        if let Some(places) = self.places.filter(|_| is_last) {
            seen = seen.f_flatten(0, 1)?.f_index_select(0, places)?;
            x = x.f_flatten(0, 1)?.f_index_select(0, places)?;
        }
        x = x.f_add(&seen.f_linear(&layer.output.tensor, None::<Tensor>)?)?;
        let normed = rms_norm(&x, &layer.mlp_norm.tensor, eps)?;
        Ok(x.f_add(&mlp(layer, &normed)?)?)
    }
}
