//! How a file is read, as its caller says.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::words::Tokenize;

/// How to read a file.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Names for fields that the file calls otherwise.
    pub map: &'a [Mapping],
    /// The precision of token columns; if it is `None`, the file's (f64 for JSONL).
    pub dtype: Option<Dtype>,
    /// Reads tensors [B, T], arrays and texts of these columns only, such as [`Recipe::columns`](crate::Recipe::columns); of
    /// all columns if it is `None`. The lengths of responses and the precision of the batch do not depend on it.
    pub columns: Option<&'a BTreeSet<String>>,
    /// What a response is without a reward.
    pub unscored: Unscored,
    /// Counts the tokens of completions if nothing else says how long responses are; without it, words are counted.
    pub tokenizer: Option<&'a Arc<dyn Tokenize>>,
    /// Called from time to time with the number of bytes read and the total.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// A field of a file is read under another name: `--map reward=score`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Our name for it, such as `reward`.
    pub ours: String,
    /// The file's name for it, such as `score`.
    pub theirs: String,
}

/// What becomes of responses whose `reward` or `correct` is null or NaN, as that of a verifier that timed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unscored {
    /// They are an error.
    #[default]
    Error,
    /// Their reward is 0.
    Zero,
    /// They are not in the batch. A copy with columns added has them, with 0.
    LeaveOut,
}

/// A precision of token columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}
