//! Keys and values of the tokens so far, so that a further token costs one position. Prompts are padded at their
//! beginning, so that all rows write to the same column.

use tch::{Kind, Tensor};

use super::config::ModelConfig;
use super::decoder::Decoder;
use super::layers::{Heads, Turns};
use super::weights::Weights;
use crate::torch::Result;

/// The cache of some rows.
pub(super) struct Cache {
    /// Of each layer, `[rows, kv_heads, columns, head_dim]`. Zeros where nothing was written: a NaN in a place that
    /// attention masks would reach its result.
    layers: Vec<(Tensor, Tensor)>,
    /// The columns before each row's prompt, int64 `[rows, 1]`.
    padding: Tensor,
    /// Columns that were written.
    used: i64,
}

impl Cache {
    /// For rows with that `padding`, int64 `[rows]`, and up to `columns` tokens with it.
    pub(super) fn new(
        config: &ModelConfig,
        padding: &Tensor,
        columns: i64,
        dtype: Kind,
    ) -> Result<Self> {
        let shape = [padding.size()[0], config.kv_heads, columns, config.head_dim];
        let zeros = || Tensor::f_zeros(shape, (dtype, padding.device()));
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
            turns: Turns::new(config, &positions, weights.embedding.tensor.f_kind()?)?,
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
