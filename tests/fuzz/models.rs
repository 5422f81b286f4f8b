//! A language model's folder with one of its files damaged: an error names the folder or a file of it, or the model answers a prompt.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use advlab::diagnostic::Diagnostics;
use advlab_train::policy::{AdamWConfig, ModelConfig, Policy, Transformer, TransformerOptions};
use advlab_train::random::{Purpose, StreamKey};
use advlab_train::task::Prompt;
use advlab_train::text::{Message, Text};
use advlab_train::{Config, Device, TransformerConfig, torch};

use crate::engine::{Target, root};
use crate::folders::Folders;
use crate::rollouts::folder;

/// The files of a tiny model with a tokenizer and a chat template.
pub fn start() -> Box<dyn Target> {
    let (place, from) = (folder(), root("tests/golden/transformers/qwen2"));
    let to = place.path().join("folder");
    let sizes = ModelConfig {
        hidden_size: 8,
        intermediate_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        ..ModelConfig::read(&from.join("config.json")).unwrap()
    };
    let mut model = Transformer::new(sizes, 0, options(None)).unwrap();
    model.export(&to).unwrap();
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
    ] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    Box::new(Folders::new(place, |folders, name| {
        let answered = answer(&folders.path());
        // Weights can be finite and too large.
        let is_infinite = |error: &Diagnostics| error.to_string().contains("logits are NaN");
        if answered.as_ref().is_err_and(is_infinite) {
            return Ok(true);
        }
        Ok(folders.named(name, answered)?.is_some())
    }))
}

fn options(text: Option<Arc<Text>>) -> TransformerOptions {
    TransformerOptions {
        device: torch::start(Device::Cpu, NonZeroUsize::MIN).unwrap(),
        threads: NonZeroUsize::MIN,
        config: TransformerConfig {
            max_new_tokens: 4,
            ..Config::default().transformer
        },
        stops: text.iter().flat_map(|text| text.ends().to_vec()).collect(),
        text,
        adamw: AdamWConfig::default(),
        reference: false,
    }
}

/// What a run does with a model's folder: a chat becomes tokens, the model goes on, and its tokens become text.
fn answer(folder: &Path) -> Result<(), Diagnostics> {
    let sizes = ModelConfig::read(&folder.join("config.json"))?;
    let text = Arc::new(Text::load(folder, sizes.vocab_size as u32)?);
    let (role, content) = ("user", "the lower 17 <|im_end|>");
    let tokens = if text.has_template() {
        text.encode_chat(&[Message { role, content }])?
    } else {
        text.encode(content)?
    };
    let mut model = Transformer::load(folder, options(Some(text.clone())))?;
    // A template may write nothing.
    if tokens.is_empty() {
        return Ok(());
    }
    let prompt = Prompt {
        tokens,
        features: vec![],
    };
    let sampled = model.sample(&[prompt], 2, StreamKey::new(0, Purpose::Responses, 0))?;
    text.decode(sampled.responses.tokens()).map(drop)
}
