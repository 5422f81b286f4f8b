//! Replaces `tokenizer.rs` in a build without the feature `tokenizer`: loading a tokenizer gives an error that says how to build
//! advlab with this feature.

use std::ops::Range;
use std::path::Path;

use crate::error::Result;
use advlab::diagnostic::Diagnostic;
use advlab::files::Tokenize;

/// A model's tokenizer, which this build cannot load.
#[derive(Debug)]
pub enum Tokenizer {}

impl Tokenizer {
    /// Fails, because this build has no tokenizers.
    ///
    /// # Errors
    /// Always returns an error, which has the commands that build advlab with tokenizers.
    pub fn load(path: &Path, _with_special: bool) -> Result<Self> {
        Err(Diagnostic::not_built("tokenizers").in_file(path).into())
    }
}

impl Tokenize for Tokenizer {
    fn name(&self) -> String {
        match *self {}
    }

    fn count(&self, _: &str) -> Result<usize, String> {
        match *self {}
    }

    fn spans(&self, _: &str) -> Result<Vec<Range<usize>>, String> {
        match *self {}
    }
}
