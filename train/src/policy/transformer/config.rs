//! A model's `config.json`, as transformers 5 writes it; files of transformers 4 are read too.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{damaged, read_json};
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// The supported decoders. They differ in which projections have a bias and which heads a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Architecture {
    /// Qwen2 and 2.5: queries, keys and values have a bias.
    #[serde(rename = "Qwen2ForCausalLM")]
    Qwen2,
    /// Qwen3: each head's queries and keys are normed.
    #[serde(rename = "Qwen3ForCausalLM")]
    Qwen3,
    /// Llama 2 and 3.
    #[serde(rename = "LlamaForCausalLM")]
    Llama,
}

/// How positions rotate queries and keys (RoPE, arXiv 2104.09864).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// The base of the wavelengths.
    pub rope_theta: f64,
    /// The scaling of wavelengths for contexts that are longer than in the first training.
    #[serde(flatten)]
    pub scaling: RopeScaling,
}

/// A lengthening of RoPE's wavelengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// None.
    Default,
    /// Wavelengths above `original_max_position_embeddings / low_freq_factor` tokens become `factor` times as long, those
    /// below `original_max_position_embeddings / high_freq_factor` stay, with a linear transition in between.
    Llama3 {
        /// The factor of the longest wavelengths.
        factor: f64,
        /// Turns within the original context up to which a wavelength is lengthened by the whole factor.
        low_freq_factor: f64,
        /// Turns within the original context above which a wavelength is unchanged.
        high_freq_factor: f64,
        /// The original context, in tokens.
        original_max_position_embeddings: u32,
    },
}

/// The sizes of a decoder, under transformers' names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The only architecture of the model.
    pub architectures: [Architecture; 1],
    /// Rows of the embedding; a tokenizer may have fewer tokens.
    pub vocab_size: i64,
    /// The width of the residual stream.
    pub hidden_size: i64,
    /// The width inside an MLP.
    pub intermediate_size: i64,
    /// Number of layers.
    pub num_hidden_layers: i64,
    /// Query heads.
    pub num_attention_heads: i64,
    /// Key and value heads; each serves the same number of query heads.
    pub num_key_value_heads: i64,
    /// The width of a head; even.
    pub head_dim: i64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Positions.
    pub rope_parameters: Rope,
    /// Whether the embedding is also the output layer.
    pub tie_word_embeddings: bool,
}

impl ModelConfig {
    /// Reads a model's `config.json`.
    ///
    /// # Errors
    /// [`Diagnostics`] if it cannot be read, belongs to an unsupported model, or has sizes that do not fit each other.
    pub fn read(path: &Path) -> Result<Self, Diagnostics> {
        let mut keys: Map<String, Value> = read_json(path)?;
        keys.retain(|_, value| !value.is_null());
        // Keys that change what a decoder computes, with the only supported value.
        let supported = [
            ("hidden_act", json!("silu")),
            ("attention_bias", json!(false)),
            ("mlp_bias", json!(false)),
            ("use_sliding_window", json!(false)),
            ("quantization_config", Value::Null),
        ];
        for (key, supported) in supported {
            if let Some(found) = keys.get(key).filter(|found| **found != supported) {
                let problem = Diagnostic::error(format!("{found} is not supported"));
                let problem = problem.in_file(path).in_field(key);
                return Err(problem.expected(supported.to_string()).into());
            }
        }
        complete(&mut keys);
        let config: ModelConfig = serde_json::from_value(Value::Object(keys))
            .map_err(|error| damaged(path, error.to_string()))?;
        config.check().map_err(|problem| problem.in_file(path))?;
        Ok(config)
    }

    /// Whether the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), Diagnostic> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
        ];
        let (heads, kv_heads) = (self.num_attention_heads, self.num_key_value_heads);
        let Rope {
            rope_theta,
            scaling,
        } = self.rope_parameters;
        let is_scaling = match scaling {
            RopeScaling::Default => true,
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                ..
            } => factor > 0.0 && high > low,
        };
        if let Some((name, size)) = sizes.iter().find(|(_, size)| !(1..1 << 31).contains(size)) {
            return Err(Diagnostic::error(format!("`{name}` is {size}")));
        }
        let rules = [
            (
                heads % kv_heads == 0,
                format!("{heads} query heads cannot share {kv_heads} key and value heads"),
                "`num_attention_heads` is a multiple of `num_key_value_heads`",
            ),
            (
                self.head_dim % 2 == 0,
                format!("heads are {} wide", self.head_dim),
                "RoPE rotates pairs, so `head_dim` is even",
            ),
            (
                is_scaling && rope_theta > 0.0,
                format!(
                    "RoPE's numbers give no wavelengths: {:?}",
                    self.rope_parameters
                ),
                "`rope_theta` and `factor` are above 0",
            ),
        ];
        let mut broken = rules.into_iter().filter(|(is_kept, ..)| !is_kept);
        broken.next().map_or(Ok(()), |(_, wrong, help)| {
            Err(Diagnostic::error(wrong).with_help(help))
        })
    }

    /// The keys of a `config.json`.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let Value::Object(mut keys) = json!(self) else {
            unreachable!("a struct is an object");
        };
        let model_type = match self.architectures {
            [Architecture::Qwen2] => "qwen2",
            [Architecture::Qwen3] => "qwen3",
            [Architecture::Llama] => "llama",
        };
        keys.insert("model_type".to_string(), model_type.into());
        keys.insert("hidden_act".to_string(), "silu".into());
        keys
    }
}

/// Adds keys that a file may leave out, and RoPE's keys in the form of version 5: version 4 had the base beside `rope_scaling`,
/// and `type` in it.
fn complete(keys: &mut Map<String, Value>) {
    let rope = keys.remove("rope_parameters");
    let rope = rope.or_else(|| keys.remove("rope_scaling"));
    let rope = rope.and_then(|rope| serde_json::from_value(rope).ok());
    let mut rope: Map<String, Value> = rope.unwrap_or_default();
    let kind = rope.remove("type").unwrap_or("default".into());
    rope.entry("rope_type").or_insert(kind);
    let theta = keys.remove("rope_theta").unwrap_or(10_000.0.into());
    rope.entry("rope_theta").or_insert(theta);
    let size = |key| keys.get(key).and_then(Value::as_i64).unwrap_or(0);
    let heads = size("num_attention_heads");
    let head_dim = match keys.get("architectures") {
        Some(names) if *names == json!([Architecture::Qwen3]) => 128,
        _ => size("hidden_size") / heads.max(1),
    };
    let defaults = [
        ("num_key_value_heads", json!(heads)),
        ("head_dim", json!(head_dim)),
        ("rms_norm_eps", json!(1e-6)),
        ("tie_word_embeddings", json!(false)),
        ("rope_parameters", json!(rope)),
    ];
    for (key, value) in defaults {
        keys.entry(key).or_insert(value);
    }
}
