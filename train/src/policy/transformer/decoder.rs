//! The decoder, from tokens to the vectors that the head reads, and its cache. `x` is `[rows, tokens, hidden]`.

use tch::{Kind, Tensor};

use super::config::{ModelConfig, Rope};
use super::weights::{Layer, Weights};
use crate::torch::{Result, floats};

/// A forward pass over `tokens`, int64 `[rows, tokens]`.
pub(super) struct Decoder<'a> {
    pub config: &'a ModelConfig,
    pub weights: &'a Weights,
    pub tokens: &'a Tensor,
    pub turns: Turns,
    /// Which tokens' hidden states are wanted, counting all rows' tokens as one row: int64 `[places]`; `None` for all. The last
    /// layer computes no more than they need.
    pub places: Option<&'a Tensor>,
}

impl Decoder<'_> {
    /// The hidden states `[places, hidden]` after the last norm; `attend` is a layer's attention.
    pub(super) fn states(
        &self,
        mut attend: impl FnMut(usize, Heads) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let embedding = &self.weights.embedding.tensor;
        let mut x = Tensor::f_embedding(embedding, self.tokens, -1, false, false)?;
        for index in 0..self.weights.layers.len() {
            x = self.layer(index, &x, |heads| attend(index, heads))?;
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

/// Each vector of the last dimension over its root mean square (arXiv 1910.07467).
fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let mean = x
        .f_square()?
        .f_mean_dim([-1i64].as_slice(), true, Kind::Float)?;
    let normed = x.f_mul(&mean.f_add_scalar(eps)?.f_rsqrt()?)?;
    Ok(weight.f_mul(&normed)?)
}

/// Cosine and sine of each position's angles; both halves of a head turn by the same angles.
pub(super) struct Turns {
    /// The positions' shape, and `head_dim` behind it.
    cos: Tensor,
    sin: Tensor,
}

impl Turns {
    /// Of positions, int64: `[tokens]`, or `[rows, 1, tokens]` if rows have their own.
    pub(super) fn new(config: &ModelConfig, positions: &Tensor) -> Result<Self> {
        let frequencies = frequencies(&config.rope, config.head_dim);
        let frequencies = floats(&frequencies, positions.device())?;
        let positions = positions.f_to_kind(Kind::Float)?.f_unsqueeze(-1)?;
        let angles = positions.f_mul(&frequencies)?;
        let angles = Tensor::f_cat(&[&angles, &angles], -1)?;
        Ok(Turns {
            cos: angles.f_cos()?,
            sin: angles.f_sin()?,
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
fn mlp(layer: &Layer, x: &Tensor) -> Result<Tensor> {
    let both = x.f_linear(&layer.gate_up.tensor, None::<Tensor>)?;
    let halves = both.f_chunk(2, -1)?;
    let inner = halves[0].f_silu()?.f_mul(&halves[1])?;
    Ok(inner.f_linear(&layer.down.tensor, None::<Tensor>)?)
}

/// Keys and values of the tokens so far, so that a further token costs one position. Prompts are padded at their beginning, so
/// that all rows write to the same column.
pub(super) struct Cache {
    /// Per layer `[rows, kv_heads, columns, head_dim]`. Zeros where nothing was written: a NaN in a place that attention masks
    /// would reach its result.
    layers: Vec<(Tensor, Tensor)>,
    /// The columns before each row's prompt, int64 `[rows, 1]`.
    padding: Tensor,
    /// Columns that were written.
    used: i64,
}

impl Cache {
    /// For rows with that `padding`, int64 `[rows]`, and up to `columns` tokens with it.
    pub(super) fn new(config: &ModelConfig, padding: &Tensor, columns: i64) -> Result<Self> {
        let shape = [padding.size()[0], config.kv_heads, columns, config.head_dim];
        let zeros = || Tensor::f_zeros(shape, (Kind::Float, padding.device()));
        let layers = (0..config.layers).map(|_| Ok((zeros()?, zeros()?)));
        Ok(Cache {
            layers: layers.collect::<Result<_>>()?,
            padding: padding.f_unsqueeze(1)?,
            used: 0,
        })
    }

    /// Goes on with these rows, in their order; one may come several times.
    pub(super) fn select(&mut self, rows: &Tensor) -> Result<()> {
        for (keys, values) in &mut self.layers {
            *keys = keys.f_index_select(0, rows)?;
            *values = values.f_index_select(0, rows)?;
        }
        self.padding = self.padding.f_index_select(0, rows)?;
        Ok(())
    }

    /// The hidden states `[rows, hidden]` behind the last of `tokens`, int64 `[rows, tokens]`, which follow those that
    /// are in the cache.
    pub(super) fn forward(
        &mut self,
        config: &ModelConfig,
        weights: &Weights,
        tokens: &Tensor,
    ) -> Result<Tensor> {
        let (_, count) = tokens.size2()?;
        let all = Tensor::f_arange(self.used + count, (Kind::Int64, tokens.device()))?;
        let new = all.f_narrow(0, self.used, count)?;
        let positions = new.f_sub(&self.padding)?.f_clamp_min(0)?.f_unsqueeze(1)?;
        // Each sees the columns up to its own that are not padding.
        let is_past = all.f_less_equal_tensor(&new.f_unsqueeze(1)?)?;
        let is_token = all.f_greater_equal_tensor(&self.padding)?;
        let mask = is_past
            .f_logical_and(&is_token.f_unsqueeze(1)?)?
            .f_unsqueeze(1)?;
        let rows = Tensor::f_arange(tokens.size()[0], (Kind::Int64, tokens.device()))?;
        let last = rows.f_mul_scalar(count)?.f_add_scalar(count - 1)?;
        let decoder = Decoder {
            config,
            weights,
            tokens,
            turns: Turns::new(config, &positions)?,
            places: (count > 1).then_some(&last),
        };
        let hidden = decoder.states(|layer, heads| self.attend(layer, &heads, &mask))?;
        self.used += count;
        Ok(hidden)
    }

    /// Attention over what is in the cache and the new tokens, which are written to it; `mask` is true where a query
    /// sees a key, `[rows, 1, tokens, columns]`.
    fn attend(&mut self, layer: usize, heads: &Heads, mask: &Tensor) -> Result<Tensor> {
        let (keys, values) = &self.layers[layer];
        let (rows, query_heads, count, head_dim) = heads.queries.size4()?;
        for (all, new) in [(keys, &heads.keys), (values, &heads.values)] {
            all.f_narrow(2, self.used, count)?.f_copy_(new)?;
        }
        let columns = self.used + count;
        let seen = Heads {
            queries: match count {
                // The queries that share keys as rows of one product: the keys are read once.
                1 => heads
                    .queries
                    .f_reshape([rows, keys.size()[1], -1, head_dim])?,
                _ => heads.queries.shallow_clone(),
            },
            keys: keys.f_narrow(2, 0, columns)?,
            values: values.f_narrow(2, 0, columns)?,
        };
        Ok(seen
            .attend(Some(mask))?
            .f_reshape([rows, query_heads, count, head_dim])?)
    }
}
