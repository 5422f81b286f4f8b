//! A folder that transformers opens: the weights under its names, the sizes, and what belongs to the tokenizer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use tch::Kind;

use super::config::ModelConfig;
use super::files::read_json;
use super::{Transformer, saved};
use crate::error;
use advlab::batch::Replacement;
use advlab::diagnostic::Diagnostics;

/// What goes along from the folder that a model came from, where it is there.
const COMPANIONS: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

impl Transformer {
    /// Writes the model to a folder as transformers has it: `config.json` and `model.safetensors`. With `origin`, the folder
    /// that the model came from, the config is that one's, and tokenizer, generation config and chat template go along.
    ///
    /// # Errors
    /// [`Diagnostics`] where a file cannot be read or written.
    pub fn export(&self, folder: &Path, origin: Option<&Path>) -> Result<(), Diagnostics> {
        fs::create_dir_all(folder).map_err(error::io("make", folder))?;
        let mut config = match origin {
            Some(origin) => read_json(&origin.join("config.json"))?,
            None => self.config.to_json(),
        };
        let dtype = match self.compute.dtype {
            Kind::BFloat16 => "bfloat16",
            _ => "float32",
        };
        // Without it, transformers would take the weights for what the config says.
        config.insert("dtype".to_string(), dtype.into());
        if let Some(version_4) = config.get_mut("torch_dtype") {
            *version_4 = dtype.into();
        }
        for file in COMPANIONS {
            if let Some(from) = origin.map(|origin| origin.join(file))
                && from.exists()
            {
                let bytes = advlab::regular_file::read(&from).map_err(error::io("read", &from))?;
                Replacement::write(&folder.join(file), &bytes)?;
            }
        }
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        let weights = folder.join("model.safetensors");
        saved::write(&weights, &metadata, &self.weights.split()?)?;
        let text = format!("{:#}\n", Value::Object(config));
        Replacement::write(&folder.join("config.json"), text.as_bytes())
    }
}

impl ModelConfig {
    /// As version 5 of transformers writes it.
    fn to_json(&self) -> Map<String, Value> {
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
        let entries = [
            ("architectures", json!([self.architecture.class()])),
            ("model_type", json!(self.architecture.model_type())),
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
