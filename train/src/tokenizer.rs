//! Counts and locates the tokens of completions that a file has as text, using a model's `tokenizer.json`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use tokenizers::models::ModelWrapper;

use crate::error::Result;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Tokenize;
use advlab::panics::caught;
use advlab::regular_file;

/// A model's tokenizer, of any type that `tokenizers` supports.
#[derive(Debug)]
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    with_special: bool,
}

/// Reads a `tokenizer.json`.
pub(crate) fn read(path: &Path) -> Result<tokenizers::Tokenizer> {
    let wrong = |what: String| {
        let help = "`AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)` of transformers writes tokenizer.json";
        Diagnostics::from(Diagnostic::error(what).in_file(path).with_help(help))
    };
    let text = regular_file::read_to_string(path)
        .map_err(|error| wrong(format!("the tokenizer cannot be read: {error}")))?;
    let damaged = |error: tokenizers::Error| wrong(format!("it is not a tokenizer: {error}"));
    serde_json::from_str::<IgnoredAny>(&text).map_err(|error| damaged(error.into()))?;
    // Panics are caught, because the crate panics on some JSON files that are not tokenizers.
    let parsed = caught(|| text.parse::<tokenizers::Tokenizer>());
    let parsed = parsed.unwrap_or_else(|| Err("it is damaged".into()));
    let mut tokenizer = parsed.map_err(damaged)?;
    // Dropout is turned off, because it is meant for training a model, and would make the tokens of a text random.
    if let ModelWrapper::BPE(model) = tokenizer.get_model()
        && model.dropout.is_some()
    {
        let mut model = model.clone();
        model.dropout = None;
        tokenizer.with_model(model);
    }
    // Truncation and padding are turned off, because texts must be encoded as they are.
    tokenizer.with_truncation(None).map_err(damaged)?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

impl Tokenizer {
    /// Loads a `tokenizer.json`. If `with_special` is set, the tokens that the tokenizer adds around a text count too.
    ///
    /// # Errors
    /// [`Diagnostics`] with the reason why the file cannot be read as a tokenizer.
    pub fn load(path: &Path, with_special: bool) -> Result<Self> {
        Ok(Tokenizer {
            path: path.to_path_buf(),
            inner: read(path)?,
            with_special,
        })
    }

    fn encode(&self, text: &str) -> Result<tokenizers::Encoding, String> {
        // Panics are caught, because with some damaged tokenizers the crate panics only here.
        let encoding = caught(|| self.inner.encode(text, self.with_special));
        let encoding = encoding.unwrap_or_else(|| Err("it is damaged".into()));
        encoding.map_err(|error| format!("a text that the tokenizer refuses ({error})"))
    }
}

impl Tokenize for Tokenizer {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn count(&self, text: &str) -> Result<usize, String> {
        Ok(self.encode(text)?.len())
    }

    fn spans(&self, text: &str) -> Result<Vec<Range<usize>>, String> {
        let encoding = self.encode(text)?;
        let offsets = encoding.get_offsets().iter();
        Ok(offsets.map(|&(start, end)| start..end).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(name: &str) -> PathBuf {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/tokenizers/");
        Path::new(folder).join(name)
    }

    fn tokenizer(name: &str) -> Tokenizer {
        Tokenizer::load(&path(name), false).unwrap()
    }

    const BOTH: [&str; 2] = ["gpt.json", "sentencepiece.json"];

    #[test]
    fn tokens_are_counted_and_found_in_the_text() {
        for name in BOTH {
            let text = "the lower lowest é";
            let tokenizer = tokenizer(name);
            let spans = tokenizer.spans(text).unwrap();
            assert_eq!(spans.len(), tokenizer.count(text).unwrap(), "{name}");
            assert!(spans.len() > 3, "{name}: {spans:?}");
            assert_eq!(tokenizer.count("").unwrap(), 0, "{name}");
        }
        // Special tokens count only if `with_special` is set.
        let count = |with_special| {
            let tokenizer = Tokenizer::load(&path(BOTH[1]), with_special);
            tokenizer.unwrap().count("the low").unwrap()
        };
        assert_eq!(count(true), count(false) + 1);
    }

    #[test]
    fn a_file_that_is_no_tokenizer_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let told = || Tokenizer::load(&path, false).unwrap_err().to_string();
        assert!(told().contains("cannot be read"), "{}", told());
        for text in ["{\"model\": 3}", "{"] {
            std::fs::write(&path, text).unwrap();
            assert!(told().contains("is not a tokenizer"), "{}", told());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_has_tokens_within_it(text in "(\\PC|[a-z ]{1,9}|\u{0}|<s>|\u{fffd}|\u{2581}){0,40}") {
            for name in BOTH {
                let spans = tokenizer(name).spans(&text).unwrap();
                prop_assert!(spans.iter().all(|span| text.get(span.clone()).is_some()), "{}", name);
            }
        }
    }
}
