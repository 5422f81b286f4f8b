//! Where responses end by a model's folder: `generation_config.json`, and `config.json` behind it. How they are drawn is the
//! run's to say: its log-probs are those of the policy itself.

use std::path::Path;

use serde::Deserialize;

use super::super::files::read_json;
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// Where a model's makers say that its responses end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// With one of these tokens.
    pub ends: Vec<u32>,
    /// Once the text has one of these.
    pub stop_strings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "found neither a value of the key's kind nor a list of them"
)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            OneOrMore::One(one) => vec![one],
            OneOrMore::More(all) => all,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Written {
    eos_token_id: Option<OneOrMore<u32>>,
    stop_strings: Option<OneOrMore<String>>,
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
        let ends = match written.eos_token_id {
            Some(ends) => Some(ends),
            None => read("config.json")?.eos_token_id,
        };
        let ends = ends.map_or_else(|| eos.into_iter().collect(), OneOrMore::into_vec);
        if let Some(id) = ends.iter().find(|id| **id >= vocabulary) {
            let message =
                format!("`eos_token_id` is {id}; the model's vocabulary has {vocabulary}");
            return Err(Diagnostic::error(message).in_file(folder).into());
        }
        let mut stop_strings = written.stop_strings.map_or(vec![], OneOrMore::into_vec);
        stop_strings.retain(|stop| !stop.is_empty());
        Ok(Generation { ends, stop_strings })
    }
}
