//! The defaults of sampling that a model's folder has: `generation_config.json`, and `config.json` behind it.

use std::path::Path;

use serde::Deserialize;

use super::super::files::read_json;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// What a model's makers say of its responses. What they leave out is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// The tokens that end a response.
    pub ends: Vec<u32>,
    /// Logits are divided by it.
    pub temperature: Option<f64>,
    /// The most likely tokens that are drawn have this probability together.
    pub top_p: Option<f64>,
    /// So many of the most likely tokens are drawn; all at 0.
    pub top_k: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Several(Vec<u32>),
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Written {
    eos_token_id: Option<Ids>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<usize>,
}

impl Generation {
    /// Of a folder; `eos` is the tokenizer's own token for the end, for folders that name none.
    pub(super) fn load(
        folder: &Path,
        eos: Option<u32>,
        vocabulary: u32,
    ) -> Result<Self, Diagnostics> {
        let read = |name| -> Result<Written, Diagnostics> {
            let path = folder.join(name);
            match path.exists() {
                true => read_json(&path),
                false => Ok(Written::default()),
            }
        };
        let written = read("generation_config.json")?;
        let ids = match written.eos_token_id {
            Some(ids) => Some(ids),
            None => read("config.json")?.eos_token_id,
        };
        let ends = match ids {
            Some(Ids::One(id)) => vec![id],
            Some(Ids::Several(ids)) => ids,
            None => eos.into_iter().collect(),
        };
        if let Some(id) = ends.iter().find(|id| **id >= vocabulary) {
            let message =
                format!("`eos_token_id` is {id}; the model's vocabulary has {vocabulary}");
            return Err(Diagnostic::error(message).in_file(folder).into());
        }
        Ok(Generation {
            ends,
            temperature: written.temperature,
            top_p: written.top_p,
            top_k: written.top_k,
        })
    }
}
