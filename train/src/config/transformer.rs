//! The keys of a run's transformer.

use serde::{Deserialize, Serialize};

use super::{FEW, MANY, OutOfBounds, SOME, at_least_0, one_of, whole};
use crate::policy::{AdamWConfig, Policy};
use crate::task::Task;
use advlab::diagnostic::Diagnostics;

const DTYPES: [&str; 3] = ["auto", "float32", "bfloat16"];

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
    pub stop_strings: Vec<String>,
    pub device: String,
    pub dtype: String,
    pub tokens_per_forward: usize,
    pub rows_per_batch: usize,
    pub gradient_checkpointing: bool,
}

impl TransformerConfig {
    pub(super) fn out_of_bounds(&self) -> Option<OutOfBounds> {
        let Self {
            intermediate_size: width,
            num_key_value_heads: kv_heads,
            num_attention_heads: heads,
            tokens_per_forward: tokens,
            ..
        } = *self;
        let numbers = [
            ("transformer.hidden_size", self.hidden_size, FEW),
            ("transformer.intermediate_size", width, MANY),
            ("transformer.num_hidden_layers", self.num_hidden_layers, FEW),
            ("transformer.num_attention_heads", heads, FEW),
            ("transformer.num_key_value_heads", kv_heads, FEW),
            ("transformer.max_new_tokens", self.max_new_tokens, MANY),
            ("transformer.top_k", self.top_k, 0..=1 << 20),
            ("transformer.tokens_per_forward", tokens, SOME),
            ("transformer.rows_per_batch", self.rows_per_batch, MANY),
        ];
        let wrong = |key, found, expected: &str| Some((key, found, expected.to_string()));
        one_of("transformer.device", &self.device, &["auto", "cpu", "cuda"])
            .or_else(|| one_of("transformer.dtype", &self.dtype, &DTYPES))
            .or_else(|| whole(numbers.map(|(key, found, bounds)| (key, found as u64, bounds))))
            .or_else(|| at_least_0([("transformer.temperature", self.temperature)]))
            .or_else(|| match self.top_p {
                top_p if top_p > 0.0 && top_p <= 1.0 => None,
                top_p => {
                    let expected = "above 0, and at most 1";
                    wrong("transformer.top_p", format!("{top_p:?}"), expected)
                }
            })
            .or_else(|| match self.stop_strings.iter().any(String::is_empty) {
                true => wrong(
                    "transformer.stop_strings",
                    "\"\"".to_string(),
                    "no empty string",
                ),
                false => None,
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
        use crate::policy::LanguageModel;
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
