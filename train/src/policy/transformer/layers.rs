//! What a decoder's layers are made of. `x` is `[rows, tokens, hidden]`.

use tch::{Kind, Tensor};

use super::config::{ModelConfig, Rope};
use super::weights::Layer;
use crate::torch::{Result, floats};

/// Each vector of the last dimension over its root mean square (arXiv 1910.07467), computed in float32.
pub(super) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let wide = x.f_to_kind(Kind::Float)?;
    let mean = wide
        .f_square()?
        .f_mean_dim([-1i64].as_slice(), true, Kind::Float)?;
    let normed = wide.f_mul(&mean.f_add_scalar(eps)?.f_rsqrt()?)?;
    Ok(weight.f_mul(&normed.f_to_kind(x.f_kind()?)?)?)
}

/// Cosine and sine of each position's angles; both halves of a head turn by the same angles.
pub(super) struct Turns {
    /// The positions' shape, and `head_dim` behind it.
    cos: Tensor,
    sin: Tensor,
}

impl Turns {
    /// Of positions, int64: `[tokens]`, or `[rows, 1, tokens]` where rows have their own. Computed in float32.
    pub(super) fn new(config: &ModelConfig, positions: &Tensor, dtype: Kind) -> Result<Self> {
        let frequencies = frequencies(&config.rope, config.head_dim);
        let frequencies = floats(&frequencies, positions.device())?;
        let positions = positions.f_to_kind(Kind::Float)?.f_unsqueeze(-1)?;
        let angles = positions.f_mul(&frequencies)?;
        let angles = Tensor::f_cat(&[&angles, &angles], -1)?;
        Ok(Turns {
            cos: angles.f_cos()?.f_to_kind(dtype)?,
            sin: angles.f_sin()?.f_to_kind(dtype)?,
        })
    }

    /// Turns the pairs (i, i + head_dim / 2) of each head; `x` is `[rows, heads, tokens, head_dim]`.
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let halves = x.f_chunk(2, -1)?;
        let turned = Tensor::f_cat(&[&halves[1].f_neg()?, &halves[0]], -1)?;
        Ok(x.f_mul(&self.cos)?.f_add(&turned.f_mul(&self.sin)?)?)
    }
}

/// Radians a token, `[head_dim / 2]`: 1 / theta^(2i / head_dim), the slow ones slower where there is a scaling.
fn frequencies(rope: &Rope, head_dim: i64) -> Vec<f32> {
    let plain = (0..head_dim / 2).map(|i| {
        // In float32, as the models were trained.
        let exponent = (2 * i) as f32 / head_dim as f32;
        1.0 / (rope.theta as f32).powf(exponent)
    });
    let Some(scaling) = rope.scaling else {
        return plain.collect();
    };
    let scaled = plain.map(|frequency| {
        let fast = f64::from(frequency);
        let slow = fast / scaling.factor;
        // How often it turns round within the first context.
        let turns = scaling.original_context * fast / std::f64::consts::TAU;
        let (low, high) = (scaling.low_frequency, scaling.high_frequency);
        let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (share * fast + (1.0 - share) * slow) as f32
    });
    scaled.collect()
}

/// What attention reads: queries `[rows, heads, tokens, head_dim]`, keys and values `[rows, kv_heads, columns, head_dim]`.
pub(super) struct Heads {
    pub queries: Tensor,
    pub keys: Tensor,
    pub values: Tensor,
}

impl Heads {
    /// Those of the tokens of `x`, turned by their positions.
    pub(super) fn new(
        config: &ModelConfig,
        layer: &Layer,
        turns: &Turns,
        x: &Tensor,
    ) -> Result<Self> {
        let (rows, tokens, _) = x.size3()?;
        let &ModelConfig {
            heads,
            kv_heads,
            head_dim,
            ..
        } = config;
        let bias = layer.qkv_bias.as_ref().map(|bias| &bias.tensor);
        let qkv = x.f_linear(&layer.qkv.tensor, bias)?;
        let widths = [heads, kv_heads, kv_heads].map(|heads| heads * head_dim);
        let parts = qkv.f_split_with_sizes(widths, -1)?;
        let by_head = |part: usize, heads| parts[part].f_view([rows, tokens, heads, head_dim]);
        let (mut queries, mut keys) = (by_head(0, heads)?, by_head(1, kv_heads)?);
        if let Some((of_queries, of_keys)) = &layer.head_norms {
            queries = rms_norm(&queries, &of_queries.tensor, config.norm_eps)?;
            keys = rms_norm(&keys, &of_keys.tensor, config.norm_eps)?;
        }
        Ok(Heads {
            queries: turns.apply(&queries.f_transpose(1, 2)?)?,
            keys: turns.apply(&keys.f_transpose(1, 2)?)?,
            values: by_head(2, kv_heads)?.f_transpose(1, 2)?,
        })
    }

    /// Grouped-query attention (arXiv 2305.13245), `[rows, heads, tokens, head_dim]`. A query sees the keys where `mask` is
    /// true; without a mask, the token's own and those before it.
    pub(super) fn attend(&self, mask: Option<&Tensor>) -> Result<Tensor> {
        let is_grouped = self.queries.size()[1] != self.keys.size()[1];
        Ok(Tensor::f_scaled_dot_product_attention(
            &self.queries,
            &self.keys,
            &self.values,
            mask,
            0.0,
            mask.is_none(),
            None,
            is_grouped,
        )?)
    }
}

/// SwiGLU (arXiv 2002.05202).
pub(super) fn mlp(layer: &Layer, x: &Tensor) -> Result<Tensor> {
    let both = x.f_linear(&layer.gate_up.tensor, None::<Tensor>)?;
    let halves = both.f_chunk(2, -1)?;
    let inner = halves[0].f_silu()?.f_mul(&halves[1])?;
    Ok(inner.f_linear(&layer.down.tensor, None::<Tensor>)?)
}
