//! The sizes of a model, from `config.json` as transformers writes it: version 5 (`rope_parameters`, `dtype`) and version
//! 4 (`rope_theta`, `rope_scaling`, `torch_dtype`).

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::read_json;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::suggest::did_you_mean;

/// The decoders that there are. They differ in where projections have a bias and heads a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Qwen2 and 2.5: queries, keys and values have a bias.
    Qwen2,
    /// Qwen3: queries and keys are normed by head.
    Qwen3,
    /// Llama 2 and 3.
    Llama,
}

/// Each with its class in transformers, and what a config calls it.
const ARCHITECTURES: [(Architecture, &str, &str); 3] = [
    (Architecture::Qwen2, "Qwen2ForCausalLM", "qwen2"),
    (Architecture::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    (Architecture::Llama, "LlamaForCausalLM", "llama"),
];

/// The kinds of number that weights are stored in.
pub(super) const DTYPES: [&str; 3] = ["float32", "bfloat16", "float16"];

/// How positions turn queries and keys (RoPE, arXiv 2104.09864).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The base of the wavelengths.
    pub theta: f64,
    /// Llama 3's lengthening of the long ones.
    pub scaling: Option<Llama3Scaling>,
}

/// Wavelengths above `original_context / low_frequency` tokens become `factor` times as long, those below
/// `original_context / high_frequency` stay, and between them it goes over smoothly.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Llama3Scaling {
    /// How many times as long the long wavelengths become.
    pub factor: f64,
    /// Turns within the original context below which a wavelength is lengthened by the whole factor.
    #[serde(rename = "low_freq_factor")]
    pub low_frequency: f64,
    /// Turns within the original context above which a wavelength stays.
    #[serde(rename = "high_freq_factor")]
    pub high_frequency: f64,
    /// The context, in tokens, that the model was first trained with.
    #[serde(rename = "original_max_position_embeddings")]
    pub original_context: f64,
}

/// The sizes of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which decoder.
    pub architecture: Architecture,
    /// Rows of the embedding; a tokenizer may have fewer tokens.
    pub vocabulary: i64,
    /// The width of the residual stream.
    pub hidden: i64,
    /// The width inside an MLP.
    pub intermediate: i64,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: i64,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: i64,
    /// The width of a head; even.
    pub head_dim: i64,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: f64,
    /// Positions.
    pub rope: Rope,
    /// Whether the embedding serves as the head too.
    pub is_tied: bool,
}

/// What is read of a config, both versions' keys.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Written {
    #[serde(default)]
    architectures: Vec<String>,
    vocab_size: u32,
    hidden_size: u32,
    intermediate_size: u32,
    num_hidden_layers: u32,
    num_attention_heads: u32,
    num_key_value_heads: Option<u32>,
    head_dim: Option<u32>,
    #[serde(default = "default_eps")]
    rms_norm_eps: f64,
    #[serde(default)]
    tie_word_embeddings: bool,
    rope_parameters: Option<Map<String, Value>>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Map<String, Value>>,
    dtype: Option<String>,
    torch_dtype: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

fn default_eps() -> f64 {
    1e-6
}

/// Keys that change what a decoder computes, and the value with which it is the one that is here.
fn without_effect() -> [(&'static str, Value); 5] {
    [
        ("hidden_act", "silu".into()),
        ("attention_bias", false.into()),
        ("mlp_bias", false.into()),
        ("use_sliding_window", false.into()),
        ("quantization_config", Value::Null),
    ]
}

impl ModelConfig {
    /// Of a model's `config.json`.
    ///
    /// # Errors
    /// [`Diagnostics`] if it cannot be read, is of another model, or has sizes that do not fit each other.
    pub fn read(path: &Path) -> Result<Self, Diagnostics> {
        let wrong = |problem: Diagnostic| Diagnostics::from(problem.in_file(path));
        let written: Written = read_json(path)?;
        let architecture = architecture(&written.architectures).map_err(wrong)?;
        for (key, expected) in without_effect() {
            let found = written.rest.get(key).unwrap_or(&expected);
            if *found != expected {
                let problem = Diagnostic::error(format!("`{key}` is {found}"));
                return Err(wrong(problem.in_field(key).expected(expected.to_string())));
            }
        }
        let dtype = written.dtype.as_deref().or(written.torch_dtype.as_deref());
        if let Some(dtype) = dtype.filter(|dtype| !DTYPES.contains(dtype)) {
            let problem = Diagnostic::error(format!("the weights' dtype is `{dtype}`"));
            return Err(wrong(problem.expected(DTYPES.join(", "))));
        }
        let heads = written.num_attention_heads;
        let head_dim = written.head_dim.unwrap_or(match architecture {
            Architecture::Qwen3 => 128,
            _ => written.hidden_size / heads.max(1),
        });
        let config = ModelConfig {
            architecture,
            vocabulary: written.vocab_size.into(),
            hidden: written.hidden_size.into(),
            intermediate: written.intermediate_size.into(),
            layers: written.num_hidden_layers as usize,
            heads: heads.into(),
            kv_heads: written.num_key_value_heads.unwrap_or(heads).into(),
            head_dim: head_dim.into(),
            norm_eps: written.rms_norm_eps,
            rope: rope(&written).map_err(wrong)?,
            is_tied: written.tie_word_embeddings,
        };
        config.check().map_err(wrong)?;
        Ok(config)
    }

    /// Whether the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), Diagnostic> {
        let sizes = [
            ("vocab_size", self.vocabulary),
            ("hidden_size", self.hidden),
            ("intermediate_size", self.intermediate),
            ("num_hidden_layers", self.layers as i64),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
        ];
        if let Some((name, size)) = sizes.iter().find(|(_, size)| *size < 1) {
            return Err(Diagnostic::error(format!("`{name}` is {size}")));
        }
        let (heads, kv_heads, head_dim) = (self.heads, self.kv_heads, self.head_dim);
        if heads % kv_heads != 0 {
            let message =
                format!("{heads} query heads cannot share {kv_heads} key and value heads");
            let help = "`num_attention_heads` is a multiple of `num_key_value_heads`";
            return Err(Diagnostic::error(message).with_help(help));
        }
        if head_dim % 2 != 0 {
            let message =
                format!("heads are {head_dim} wide; RoPE turns pairs, so it must be even");
            return Err(Diagnostic::error(message));
        }
        let is_rope = |rope: &Rope| {
            let scaling = rope.scaling.as_ref();
            rope.theta > 0.0
                && scaling.is_none_or(|s| s.factor > 0.0 && s.high_frequency > s.low_frequency)
        };
        if !is_rope(&self.rope) {
            let problem = Diagnostic::error("RoPE's numbers give no wavelengths");
            return Err(problem.found(format!("{:?}", self.rope)));
        }
        Ok(())
    }
}

fn architecture(names: &[String]) -> Result<Architecture, Diagnostic> {
    let known = || ARCHITECTURES.iter().map(|(_, class, _)| *class);
    let [name] = names else {
        let count = names.len();
        let message = format!("`architectures` names {count} models, and 1 is needed");
        let known: Vec<&str> = known().collect();
        return Err(Diagnostic::error(message).with_help(format!("known are {}", known.join(", "))));
    };
    let found = ARCHITECTURES.iter().find(|(_, class, _)| class == name);
    found.map(|(found, ..)| *found).ok_or_else(|| {
        let problem = Diagnostic::error(format!("`{name}` is an unknown architecture"));
        problem.with_help(did_you_mean(name, known()))
    })
}

/// In version 5 one object has all; in version 4 the base stands beside it, and the type may be called `type`.
fn rope(written: &Written) -> Result<Rope, Diagnostic> {
    let parameters = written.rope_parameters.as_ref();
    let parameters = parameters.or(written.rope_scaling.as_ref());
    let get = |key| parameters.and_then(|parameters| parameters.get(key));
    let theta = get("rope_theta").and_then(Value::as_f64);
    let kind = get("rope_type").or_else(|| get("type"));
    let scaling = match kind.map(|kind| kind.as_str().unwrap_or_default()) {
        None | Some("default") => None,
        Some("llama3") => {
            let parameters = parameters.cloned().map_or(Value::Null, Value::Object);
            let scaling = serde_json::from_value(parameters);
            Some(scaling.map_err(|error| Diagnostic::error(format!("RoPE: {error}")))?)
        }
        Some(other) => {
            let problem = Diagnostic::error(format!("RoPE's type is `{other}`"));
            return Err(problem.expected("`default` or `llama3`"));
        }
    };
    Ok(Rope {
        theta: theta.or(written.rope_theta).unwrap_or(10_000.0),
        scaling,
    })
}

impl ModelConfig {
    /// As version 5 of transformers writes it.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let rope = match self.rope.scaling {
            None => json!({ "rope_type": "default", "rope_theta": self.rope.theta }),
            Some(scaling) => json!({
                "rope_type": "llama3",
                "rope_theta": self.rope.theta,
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_frequency,
                "high_freq_factor": scaling.high_frequency,
                "original_max_position_embeddings": scaling.original_context as i64,
            }),
        };
        let mut names = ARCHITECTURES.iter();
        let names = names.find(|(own, ..)| *own == self.architecture);
        let (class, model_type) = names.map_or(("", ""), |(_, class, name)| (class, name));
        let entries = [
            ("architectures", json!([class])),
            ("model_type", json!(model_type)),
            ("vocab_size", json!(self.vocabulary)),
            ("hidden_size", json!(self.hidden)),
            ("intermediate_size", json!(self.intermediate)),
            ("num_hidden_layers", json!(self.layers)),
            ("num_attention_heads", json!(self.heads)),
            ("num_key_value_heads", json!(self.kv_heads)),
            ("head_dim", json!(self.head_dim)),
            ("hidden_act", json!("silu")),
            ("rms_norm_eps", json!(self.norm_eps)),
            ("rope_parameters", rope),
            ("tie_word_embeddings", json!(self.is_tied)),
        ];
        let entries = entries.map(|(key, value)| (key.to_string(), value));
        entries.into_iter().collect()
    }
}
