//! The options with which a caller reads a file.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::words::Tokenize;

/// The options with which a file is read.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// The columns that are read from fields with other names.
    pub map: &'a [Mapping],
    /// The precision of token columns. `None`: f64 for JSONL and parquet; for tensors, f64 if the tensor is f64 or has integers
    /// of 32 or 64 bits, else f32.
    pub dtype: Option<Dtype>,
    /// The columns whose tensors [B, T], arrays and texts are read, such as [`Recipe::columns`](crate::Recipe::columns); `None`
    /// for all columns. The lengths of responses and the precision of the batch do not depend on this choice.
    pub columns: Option<&'a BTreeSet<String>>,
    /// Whether a file without rewards is read, because the caller needs none.
    pub unrewarded: bool,
    /// The treatment of a response that has no reward.
    pub unscored: Unscored,
    /// The tokenizer that counts the tokens of completions if no column gives lengths; without a tokenizer, words are counted.
    pub tokenizer: Option<&'a Arc<dyn Tokenize>>,
    /// A function that is called from time to time with the number of bytes read and the total.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// A column and the field from which it is read, as in `--map reward=score`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The name of the column in the batch, such as `reward`.
    pub ours: String,
    /// The name of the field in the file, such as `score`.
    pub theirs: String,
}

/// The treatment of responses whose `reward` or `correct` is null, NaN or missing, for example because a verifier timed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unscored {
    /// Such a response is an error.
    #[default]
    Error,
    /// The missing value, a `reward` or a `correct`, becomes 0.
    Zero,
    /// The batch omits these responses. A copy with added columns keeps them; their value in these columns is 0.
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
