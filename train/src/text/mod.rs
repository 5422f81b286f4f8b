//! Text for a model: its tokenizer, its chat template and where its responses end, from the files of its folder. How they are
//! drawn is the run's to say: its log-probs are those of the policy itself.

mod chat;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use tokenizers::Tokenizer;

pub use chat::Message;

use crate::error::read_json;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use chat::ChatTemplate;

/// Tokens before a stop string that are decoded with it: the first of them may be half a character, or lose its space.
const CONTEXT: usize = 4;

/// The `config.json` of a model's folder.
pub(crate) fn config_file(folder: &Path) -> Result<PathBuf, Diagnostics> {
    let path = folder.join("config.json");
    if path.exists() {
        return Ok(path);
    }
    let what = match folder.exists() {
        true => "is not a model's folder: it has no config.json",
        false => "is no folder",
    };
    let message = format!("{} {what}", folder.display());
    let help = "a model's folder is one as `save_pretrained` of transformers writes it; `hf download NAME --local-dir FOLDER` brings one from the hub";
    Err(Diagnostic::error(message).with_help(help).into())
}

/// What makes tokens of text, and text of tokens.
#[derive(Debug)]
pub struct Text {
    path: PathBuf,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    generation: Generation,
    vocabulary: u32,
}

impl Text {
    /// Of a model's folder, whose embedding has `vocabulary` rows: `tokenizer.json`, and if they are there
    /// `tokenizer_config.json`, `chat_template.jinja` and `generation_config.json`.
    ///
    /// # Errors
    /// [`Diagnostics`] if there is no tokenizer, a file is damaged, or a token has no row in the embedding.
    pub fn load(folder: &Path, vocabulary: u32) -> Result<Self, Diagnostics> {
        let path = folder.join("tokenizer.json");
        if !path.exists() {
            let message = format!("{} has no tokenizer.json", folder.display());
            let help = "`AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)` of transformers writes it, also from the older files";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        let wrong = |error: tokenizers::Error| damaged(&path, &error);
        let mut tokenizer = Tokenizer::from_file(&path).map_err(wrong)?;
        // A prompt is never cut or padded behind anybody's back.
        tokenizer.with_truncation(None).map_err(wrong)?;
        tokenizer.with_padding(None);
        check_vocabulary(&tokenizer, vocabulary).map_err(|problem| problem.in_file(&path))?;
        let config_path = folder.join("tokenizer_config.json");
        let config = match config_path.exists() {
            true => read_json(&config_path)?,
            false => Value::Null,
        };
        let template = ChatTemplate::load(folder, &config_path, &config)?;
        let eos = chat::special_token(&config, "eos_token");
        let eos = eos.and_then(|token| tokenizer.token_to_id(token));
        Ok(Text {
            generation: Generation::load(folder, eos, vocabulary)?,
            path,
            tokenizer,
            template,
            vocabulary,
        })
    }

    /// The tokens of a text, with those around it that the tokenizer adds by itself, such as one for the beginning.
    ///
    /// # Errors
    /// [`Diagnostics`] if the tokenizer has no token for a part of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Diagnostics> {
        self.tokens(text, true)
    }

    /// The tokens of a chat up to where the model is to answer, by its template.
    ///
    /// # Errors
    /// [`Diagnostics`] if the model has no template or it refuses the messages, and as [`Text::encode`].
    pub fn encode_chat(&self, messages: &[Message<'_>]) -> Result<Vec<u32>, Diagnostics> {
        let Some(template) = &self.template else {
            let message = "the model has no chat template";
            let help = "a prompt's own template needs none: `prompt_template = \"{question}\"`";
            return Err(Diagnostic::error(message)
                .in_file(&self.path)
                .with_help(help)
                .into());
        };
        // The template writes all special tokens itself.
        self.tokens(&template.render(messages)?, false)
    }

    /// Whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    fn tokens(&self, text: &str, with_special: bool) -> Result<Vec<u32>, Diagnostics> {
        let encoding = self.tokenizer.encode_fast(text, with_special);
        let encoding = encoding.map_err(|error| damaged(&self.path, &error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens; special ones, such as those that end a response, are left out.
    ///
    /// # Errors
    /// [`Diagnostics`] if the tokenizer's decoder fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, Diagnostics> {
        let text = self.tokenizer.decode(tokens, true);
        text.map_err(|error| damaged(&self.path, &error))
    }

    /// The rows of the model's embedding.
    pub fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    /// Where responses end.
    pub fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Lets responses end with these strings too, beside those of [`Text::generation`].
    #[must_use]
    pub fn with_stops(mut self, stops: &[String]) -> Self {
        self.generation.stop_strings.extend_from_slice(stops);
        self
    }

    /// Whether the text of a response has a stop string now that it has its last token; asked after each token.
    ///
    /// # Errors
    /// As [`Text::decode`].
    pub fn has_stop(&self, response: &[u32]) -> Result<bool, Diagnostics> {
        let stops = &self.generation.stop_strings;
        // No token of a string has less than a byte of it.
        let Some(longest) = stops.iter().map(String::len).max() else {
            return Ok(false);
        };
        let tail = response.len().saturating_sub(longest + CONTEXT);
        let text = self.decode(&response[tail..])?;
        Ok(stops.iter().any(|stop| text.contains(stop)))
    }
}

/// Each token must have a row in the embedding; the embedding may have more rows.
fn check_vocabulary(tokenizer: &Tokenizer, vocabulary: u32) -> Result<(), Diagnostic> {
    let last = tokenizer
        .get_vocab(true)
        .into_iter()
        .max_by_key(|(_, id)| *id);
    match last {
        Some((token, id)) if id >= vocabulary => {
            let message = format!(
                "token `{token}` has the number {id}; the model's vocabulary has {vocabulary}"
            );
            let help =
                "tokenizer and model are not of the same folder, or the embedding was not widened";
            Err(Diagnostic::error(message).with_help(help))
        }
        _ => Ok(()),
    }
}

fn damaged(path: &Path, error: &tokenizers::Error) -> Diagnostics {
    Diagnostic::error(format!("the tokenizer: {error}"))
        .in_file(path)
        .into()
}

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
    fn load(folder: &Path, eos: Option<u32>, vocabulary: u32) -> Result<Self, Diagnostics> {
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
