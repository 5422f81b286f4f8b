//! Text for a model: the tokenizer, the chat template and the ends of responses, from the files of the model's folder. Sampling
//! settings in the folder are ignored, because the run's configuration has them.

mod chat;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokenizers::Tokenizer;

pub use chat::Message;

use crate::error::{Result, read_json};
use crate::tokenizer;
use advlab::diagnostic::Diagnostic;
use advlab::panics::caught;
use chat::ChatTemplate;

/// The number of tokens before a stop string that are decoded together with the stop string, because the first decoded token may
/// be half a character or lose its space.
const CONTEXT: usize = 4;

/// Returns the path of the `config.json` in a model's folder, or an error if the file does not exist.
pub(crate) fn config_file(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("config.json");
    if path.exists() {
        return Ok(path);
    }
    let what = match folder.exists() {
        true => "is not a model's folder: it has no config.json",
        false => "is not a folder",
    };
    let message = format!("{} {what}", folder.display());
    let help = "a model's folder is what `save_pretrained` of transformers writes; `hf download NAME --local-dir FOLDER` downloads one from the hub";
    Err(Diagnostic::error(message).with_help(help).into())
}

/// Converts between text and tokens.
#[derive(Debug)]
pub struct Text {
    path: PathBuf,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    vocabulary: u32,
    ends: Vec<u32>,
    stops: Vec<String>,
}

impl Text {
    /// Reads a model's folder: `tokenizer.json` and, if they exist, `tokenizer_config.json`, `chat_template.jinja`,
    /// `generation_config.json` and `config.json`. The model's embedding has `vocabulary` rows.
    ///
    /// # Errors
    /// [`Diagnostics`](advlab::diagnostic::Diagnostics) if there is no tokenizer, a file is damaged, or a token has no row in the
    /// embedding.
    pub fn load(folder: &Path, vocabulary: u32) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let tokenizer = tokenizer::read(&path)?;
        let all = tokenizer.get_vocab(true).into_iter();
        let last = all.max_by_key(|(_, id)| *id);
        if let Some((token, id)) = last.filter(|(_, id)| *id >= vocabulary) {
            let message = format!(
                "token `{token}` has the ID {id}, but the model's vocabulary has only IDs below {vocabulary}"
            );
            let help = "the tokenizer and the model come from different folders, or the embedding was not resized";
            let problem = Diagnostic::error(message).in_file(path);
            return Err(problem.with_help(help).into());
        }
        let config = read_optional(folder, "tokenizer_config.json")?;
        let mut ends: Vec<u32> = list(folder, "generation_config.json", "eos_token_id")?;
        if ends.is_empty() {
            ends = list(folder, "config.json", "eos_token_id")?;
        }
        if ends.is_empty() {
            let eos = chat::special_token(&config["eos_token"]);
            ends.extend(eos.and_then(|token| tokenizer.token_to_id(token)));
        }
        if let Some(id) = ends.iter().find(|id| **id >= vocabulary) {
            let message =
                format!("`eos_token_id` is {id}; the vocabulary has only IDs below {vocabulary}");
            return Err(Diagnostic::error(message).in_file(folder).into());
        }
        let mut stops: Vec<String> = list(folder, "generation_config.json", "stop_strings")?;
        stops.retain(|stop| !stop.is_empty());
        Ok(Text {
            template: ChatTemplate::load(folder, &config)?,
            path,
            tokenizer,
            vocabulary,
            ends,
            stops,
        })
    }

    /// Returns the tokens of a text, with the tokens that the tokenizer adds around the text, such as a token for the beginning.
    ///
    /// # Errors
    /// [`Diagnostics`](advlab::diagnostic::Diagnostics) if the tokenizer has no token for a part of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.tokens(text, true)
    }

    /// Returns the tokens of a chat in the format of the model's template, up to the point at which the model continues.
    ///
    /// # Errors
    /// [`Diagnostics`](advlab::diagnostic::Diagnostics) if the model has no template, if the template refuses the messages, or if
    /// the tokenizer has no token for a part of the chat.
    pub fn encode_chat(&self, messages: &[Message<'_>]) -> Result<Vec<u32>> {
        let Some(template) = &self.template else {
            let problem = Diagnostic::error("the model has no chat template").in_file(&self.path);
            let help =
                "a `prompt_template` needs no chat template: `prompt_template = \"{question}\"`";
            return Err(problem.with_help(help).into());
        };
        // The template writes all special tokens itself.
        self.tokens(&template.render(messages)?, false)
    }

    /// Returns whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    fn tokens(&self, text: &str, with_special: bool) -> Result<Vec<u32>> {
        let encoding = self.guarded(|| self.tokenizer.encode_fast(text, with_special))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the text of tokens, without special tokens, such as the token that ends a response.
    ///
    /// # Errors
    /// [`Diagnostics`](advlab::diagnostic::Diagnostics) if the tokenizer's decoder fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.guarded(|| self.tokenizer.decode(tokens, true))
    }

    /// Returns the tokenizer's result or error. Panics are caught, because the crate panics with some damaged tokenizers.
    fn guarded<T>(&self, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
        let done = caught(call).unwrap_or_else(|| Err("it is damaged".into()));
        done.map_err(|error| {
            let problem = Diagnostic::error(format!("the tokenizer fails: {error}"));
            problem.in_file(&self.path).into()
        })
    }

    /// Returns the number of rows of the model's embedding.
    pub fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    /// Returns the tokens that end a response: the tokens that the model's files name, or else the tokenizer's end token.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Adds stop strings to the stop strings of the model's files. A response ends once its text contains a stop string.
    #[must_use]
    pub fn with_stops(mut self, stops: &[String]) -> Self {
        self.stops.extend_from_slice(stops);
        self
    }

    /// Returns whether the end of a response's text, with its special tokens, contains a stop string. The end suffices, because
    /// sampling calls this after each token.
    pub fn has_stop(&self, response: &[u32]) -> Result<bool> {
        // A tail of `longest` tokens and their context suffices, because each token has at least one byte.
        let Some(longest) = self.stops.iter().map(String::len).max() else {
            return Ok(false);
        };
        let tail = response.len().saturating_sub(longest + CONTEXT);
        // A stop string may name a special token, or stand in a text from which special tokens are left out.
        for is_plain in [true, false] {
            let text = self.guarded(|| self.tokenizer.decode(&response[tail..], is_plain))?;
            if self.stops.iter().any(|stop| text.contains(stop)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the content of a JSON file in a folder, or null if the file does not exist.
fn read_optional(folder: &Path, name: &str) -> Result<Value> {
    let path = folder.join(name);
    match path.exists() {
        true => read_json(&path),
        false => Ok(Value::Null),
    }
}

/// Returns the values of a key in a folder's JSON file, which may have one value, a list of values, or none.
fn list<T: DeserializeOwned>(folder: &Path, file: &str, key: &str) -> Result<Vec<T>> {
    let values = match &read_optional(folder, file)?[key] {
        Value::Null => json!([]),
        Value::Array(values) => json!(values),
        value => json!([value]),
    };
    serde_json::from_value(values).map_err(|error| {
        let problem = Diagnostic::error(error.to_string());
        problem.in_file(folder.join(file)).in_field(key).into()
    })
}
