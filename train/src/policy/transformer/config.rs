//! A model's `config.json`, as transformers 5 writes it (files of transformers 4 can also be read), and the layout of the
//! weights: the names and shapes in transformers' files, in the order in which the decoder uses the weights. Matrices with the
//! same input form one parameter, which is the concatenation of their rows.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tch::{Device, Tensor};

use crate::error::{Result, damaged, read_json};
use crate::torch::{TorchError, TorchResult, floats};
use advlab::diagnostic::Diagnostic;

/// The supported decoders, which differ in the projections that have a bias and in the heads that are normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Architecture {
    /// Qwen2 and Qwen2.5, in which the queries, keys and values have a bias.
    #[serde(rename = "Qwen2ForCausalLM")]
    Qwen2,
    /// Qwen3, in which the queries and keys of each head are normalized.
    #[serde(rename = "Qwen3ForCausalLM")]
    Qwen3,
    /// Llama 2 and 3.
    #[serde(rename = "LlamaForCausalLM")]
    Llama,
}

/// The rotary position embedding of queries and keys (RoPE, arXiv 2104.09864).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// The base of the wavelengths.
    pub rope_theta: f64,
    /// The scaling of wavelengths for contexts that are longer than those of the original training.
    #[serde(flatten)]
    pub scaling: RopeScaling,
}

/// The scaling of RoPE's wavelengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// No scaling.
    Default,
    /// Wavelengths above `original_max_position_embeddings / low_freq_factor` tokens become `factor` times as long. Wavelengths
    /// below `original_max_position_embeddings / high_freq_factor` do not change. Between these two bounds, the factor by which a
    /// frequency is multiplied is a linear function of the frequency.
    Llama3 {
        /// The factor of the longest wavelengths.
        factor: f64,
        /// A wavelength with at most this many periods in the original context is scaled by the full factor.
        low_freq_factor: f64,
        /// A wavelength with more than this many periods in the original context is unchanged.
        high_freq_factor: f64,
        /// The original context, in tokens.
        original_max_position_embeddings: u32,
    },
}

/// The sizes of a decoder, under transformers' names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The list of architectures, which must have exactly one entry.
    pub architectures: [Architecture; 1],
    /// The number of rows of the embedding; a tokenizer may have fewer tokens.
    pub vocab_size: i64,
    /// The width of the residual stream.
    pub hidden_size: i64,
    /// The width inside an MLP.
    pub intermediate_size: i64,
    /// The number of layers.
    pub num_hidden_layers: i64,
    /// The number of query heads.
    pub num_attention_heads: i64,
    /// The number of key and value heads; each serves the same number of query heads.
    pub num_key_value_heads: i64,
    /// The width of a head, which must be even.
    pub head_dim: i64,
    /// The number that is added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// The position embedding.
    pub rope_parameters: Rope,
    /// Whether the output layer uses the weights of the embedding.
    pub tie_word_embeddings: bool,
}

impl ModelConfig {
    /// Reads a model's `config.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is for an unsupported model, or has sizes that contradict each other.
    pub fn read(path: &Path) -> Result<Self> {
        let mut keys: Map<String, Value> = read_json(path)?;
        keys.retain(|_, value| !value.is_null());
        // Keys that change what a decoder computes, each with the only supported value.
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

    /// Checks that the sizes do not contradict each other.
    pub(super) fn check(&self) -> Result<(), Diagnostic> {
        let (heads, kv_heads) = (self.num_attention_heads, self.num_key_value_heads);
        let rope = &self.rope_parameters;
        let has_wavelengths = match rope.scaling {
            RopeScaling::Default => rope.rope_theta > 0.0,
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                ..
            } => rope.rope_theta > 0.0 && factor > 0.0 && high > low,
        };
        // All integers at the top level are sizes. The limit for the number of layers is lower, because the tensors of all layers
        // are listed before a file is read.
        for (name, size) in &self.to_json() {
            let most = match &**name {
                "num_hidden_layers" => 1 << 12,
                _ => (1 << 31) - 1,
            };
            if size
                .as_i64()
                .is_some_and(|size| !(1..=most).contains(&size))
            {
                let wrong = Diagnostic::error(format!("`{name}` is {size}"));
                return Err(wrong.expected(format!("1 to {most}")));
            }
        }
        if heads % kv_heads != 0 {
            let wrong = format!("{heads} query heads cannot share {kv_heads} key and value heads");
            let help = "`num_attention_heads` must be a multiple of `num_key_value_heads`";
            return Err(Diagnostic::error(wrong).with_help(help));
        }
        if self.head_dim % 2 != 0 {
            let problem = Diagnostic::error(format!("heads are {} wide", self.head_dim));
            return Err(problem.with_help("RoPE rotates pairs, so `head_dim` must be even"));
        }
        if !has_wavelengths {
            let wrong = format!("RoPE's numbers give no wavelengths: {rope:?}");
            let help = "`rope_theta` and `factor` must be above 0";
            return Err(Diagnostic::error(wrong).with_help(help));
        }
        Ok(())
    }

    /// Returns the keys of a `config.json`.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let Value::Object(mut keys) = json!(self) else {
            unreachable!("a struct is an object");
        };
        // The variant's name, in lower case, is the model type of transformers.
        let model_type = format!("{:?}", self.architectures[0]).to_lowercase();
        keys.insert("model_type".to_string(), model_type.into());
        keys.insert("hidden_act".to_string(), "silu".into());
        keys
    }
}

/// Adds keys that a file may omit, and converts RoPE's keys to the form of transformers 5: in version 4, the base was beside
/// `rope_scaling`, and `rope_type` could also be called `type`.
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

/// The tensors of files that form one parameter, with their names and shapes.
pub(super) type ParameterTensors = Vec<(String, Vec<usize>)>;

/// Returns all parameters of a model: the embedding, the layers, the last norm, and the output layer unless it shares the
/// embedding's weights.
pub(super) fn layout(config: &ModelConfig) -> Vec<ParameterTensors> {
    let (vocabulary, hidden) = (config.vocab_size as usize, config.hidden_size as usize);
    let (inner, head) = (config.intermediate_size as usize, config.head_dim as usize);
    let queries = head * config.num_attention_heads as usize;
    let keys = head * config.num_key_value_heads as usize;
    let mut all: Vec<ParameterTensors> = Vec::new();
    let mut add = |prefix: &str, parts: &[(&str, &[usize])]| {
        let named = parts.iter();
        let named = named.map(|(name, shape)| (format!("{prefix}{name}"), shape.to_vec()));
        all.push(named.collect());
    };
    add("model.", &[("embed_tokens.weight", &[vocabulary, hidden])]);
    for index in 0..config.num_hidden_layers {
        let prefix = format!("model.layers.{index}.");
        let mut layer = |parts: &[(&str, &[usize])]| add(&prefix, parts);
        layer(&[("input_layernorm.weight", &[hidden])]);
        layer(&[
            ("self_attn.q_proj.weight", &[queries, hidden]),
            ("self_attn.k_proj.weight", &[keys, hidden]),
            ("self_attn.v_proj.weight", &[keys, hidden]),
        ]);
        match config.architectures {
            [Architecture::Qwen2] => layer(&[
                ("self_attn.q_proj.bias", &[queries]),
                ("self_attn.k_proj.bias", &[keys]),
                ("self_attn.v_proj.bias", &[keys]),
            ]),
            [Architecture::Qwen3] => {
                layer(&[("self_attn.q_norm.weight", &[head])]);
                layer(&[("self_attn.k_norm.weight", &[head])]);
            }
            [Architecture::Llama] => {}
        }
        layer(&[("self_attn.o_proj.weight", &[hidden, queries])]);
        layer(&[("post_attention_layernorm.weight", &[hidden])]);
        layer(&[
            ("mlp.gate_proj.weight", &[inner, hidden]),
            ("mlp.up_proj.weight", &[inner, hidden]),
        ]);
        layer(&[("mlp.down_proj.weight", &[hidden, inner])]);
    }
    add("model.", &[("norm.weight", &[hidden])]);
    if !config.tie_word_embeddings {
        add("", &[("lm_head.weight", &[vocabulary, hidden])]);
    }
    all
}

/// Loads the parameters, each `[rows, columns]` or `[rows]`; `read` returns the values of a tensor, given its name and shape.
pub(super) fn load(
    layout: &[ParameterTensors],
    device: Device,
    mut read: impl FnMut(&str, &[usize]) -> Result<Vec<f32>>,
) -> Result<Vec<Tensor>> {
    let parameter = |parts: &ParameterTensors| {
        let mut values = Vec::new();
        for (name, shape) in parts {
            values.extend(read(name, shape)?);
        }
        let columns = parts[0].1[1..].iter().map(|&size| size as i64);
        let shape: Vec<i64> = [-1].into_iter().chain(columns).collect();
        let tensor = floats(&values, device)?.f_view(&shape[..]);
        Ok(tensor.map_err(TorchError::from)?)
    };
    layout.iter().map(parameter).collect()
}

/// Splits parameters, or other tensors of the same shapes, into views for the tensors of the layout.
pub(super) fn views(
    layout: &[ParameterTensors],
    tensors: &[Tensor],
) -> TorchResult<Vec<(String, Vec<usize>, Tensor)>> {
    let mut views = Vec::new();
    for (parts, tensor) in layout.iter().zip(tensors) {
        let rows: Vec<i64> = parts.iter().map(|(_, shape)| shape[0] as i64).collect();
        let own = tensor.f_detach()?.f_split_with_sizes(rows, 0)?;
        let named = parts.iter().cloned().zip(own);
        views.extend(named.map(|((name, shape), view)| (name, shape, view)));
    }
    Ok(views)
}
