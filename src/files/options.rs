//! The options with which a caller reads a file.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::words::Tokenize;

/// The options with which a file is read.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Names for fields that have other names in the file.
    pub map: &'a [Mapping],
    /// The precision of token columns; `None` for the file's precision (f64 for JSONL).
    pub dtype: Option<Dtype>,
    /// The columns whose tensors [B, T], arrays and texts are read, such as [`Recipe::columns`](crate::Recipe::columns); `None`
    /// for all columns. The lengths of responses and the precision of the batch do not depend on this choice.
    pub columns: Option<&'a BTreeSet<String>>,
    /// What to do with a response that has no reward.
    pub unscored: Unscored,
    /// Counts the tokens of completions if no column gives the lengths of responses. Without a tokenizer, words are counted.
    pub tokenizer: Option<&'a Arc<dyn Tokenize>>,
    /// Called from time to time with the number of bytes read and the total.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// Reads a field of a file under another name, as in `--map reward=score`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The name of the column in the batch, such as `reward`.
    pub ours: String,
    /// The name of the field in the file, such as `score`.
    pub theirs: String,
}

/// What to do with responses whose `reward` or `correct` is null or NaN, for example because a verifier timed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unscored {
    /// Such a response is an error.
    #[default]
    Error,
    /// The reward becomes 0.
    Zero,
    /// The batch omits these responses. A copy with added columns has them, with the value 0.
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
