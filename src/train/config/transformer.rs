//! The keys of a run's transformer.

use serde::{Deserialize, Serialize};

use super::{FEW, MANY, OutOfBounds, SOME, at_least_0, one_of, whole};
use crate::diagnostic::Diagnostics;
use crate::train::policy::{AdamWConfig, Policy};
use crate::train::task::Task;

/// The table `[transformer]`: what a run with `policy = "transformer"` reads beside the other keys.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    pub model: String,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub max_new_tokens: usize,
    pub temperature: f64,
    pub top_k: usize,
    pub top_p: f64,
    pub device: String,
    pub dtype: String,
    pub tokens_per_forward: usize,
    pub rows_per_batch: usize,
    pub gradient_checkpointing: bool,
}

impl TransformerConfig {
    pub(super) fn out_of_bounds(&self) -> Option<OutOfBounds> {
        let sizes = 1..=1 << 16;
        let top_p = (self.top_p, "above 0, and at most 1");
        one_of("transformer.device", &self.device, &["auto", "cpu", "cuda"])
            .or_else(|| {
                let dtypes = ["auto", "float32", "bfloat16"];
                one_of("transformer.dtype", &self.dtype, &dtypes)
            })
            .or_else(|| {
                let number = |number: usize| number as u64;
                whole([
                    (
                        "transformer.hidden_size",
                        number(self.hidden_size),
                        sizes.clone(),
                    ),
                    (
                        "transformer.intermediate_size",
                        number(self.intermediate_size),
                        MANY,
                    ),
                    (
                        "transformer.num_hidden_layers",
                        number(self.num_hidden_layers),
                        FEW,
                    ),
                    (
                        "transformer.num_attention_heads",
                        number(self.num_attention_heads),
                        FEW,
                    ),
                    (
                        "transformer.num_key_value_heads",
                        number(self.num_key_value_heads),
                        FEW,
                    ),
                    (
                        "transformer.max_new_tokens",
                        number(self.max_new_tokens),
                        MANY,
                    ),
                    ("transformer.top_k", number(self.top_k), 0..=1 << 20),
                    (
                        "transformer.tokens_per_forward",
                        number(self.tokens_per_forward),
                        SOME,
                    ),
                    (
                        "transformer.rows_per_batch",
                        number(self.rows_per_batch),
                        MANY,
                    ),
                ])
            })
            .or_else(|| at_least_0([("transformer.temperature", self.temperature)]))
            .or_else(|| {
                let (found, expected) = top_p;
                let is_out = !(found > 0.0 && found <= 1.0);
                is_out.then(|| {
                    (
                        "transformer.top_p",
                        format!("{found:?}"),
                        expected.to_string(),
                    )
                })
            })
    }

    /// The policy for a task.
    ///
    /// # Errors
    /// [`Diagnostics`] where the device is not there, the model cannot be read or the sizes do not fit each other.
    #[cfg(feature = "torch")]
    pub(super) fn make(
        &self,
        task: &dyn Task,
        adamw: AdamWConfig,
        seed: u64,
        has_reference: bool,
    ) -> Result<Box<dyn Policy>, Diagnostics> {
        use crate::train::policy::LanguageModel;
        let model = LanguageModel::new(self, task, adamw, seed, has_reference)?;
        Ok(Box::new(model))
    }

    /// # Errors
    /// [`Diagnostics`]: this build has no libtorch.
    #[cfg(not(feature = "torch"))]
    pub(super) fn make(
        &self,
        _: &dyn Task,
        _: AdamWConfig,
        _: u64,
        _: bool,
    ) -> Result<Box<dyn Policy>, Diagnostics> {
        Err(super::without_libtorch("`policy = \"transformer\"`"))
    }
}
