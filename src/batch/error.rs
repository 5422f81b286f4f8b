//! What can be wrong with the arrays that a batch is made of.

use super::GroupId;

/// What is wrong with the arrays or columns that a [`Batch`](super::Batch) was to be made of.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// There is no response at all.
    #[error("the batch has no responses")]
    Empty,
    /// Nothing says which response belongs to which group.
    #[error(
        "nothing says which responses belong to one prompt: give each response a group (`group` in JSONL, `index` in padded files, `groups` in the builder)"
    )]
    NoGroups,
    /// A column has another number of responses than the batch.
    #[error("`{column}` has {found} responses, the batch has {expected} (as `{from}` says)")]
    Responses {
        /// The column at fault.
        column: String,
        /// Its number of rows.
        found: usize,
        /// The batch's number of responses.
        expected: usize,
        /// The column that set the number.
        from: String,
    },
    /// A padded column has another width than the mask or the other columns.
    #[error(
        "`{column}` is {} tokens wide, `{from}` is {} wide: padded columns share one shape [B, T]",
        found,
        expected
    )]
    Width {
        /// The column at fault.
        column: String,
        /// Its T.
        found: usize,
        /// The T of the others.
        expected: usize,
        /// The column that set the width.
        from: String,
    },
    /// Some token columns are padded and some ragged.
    #[error(
        "`{padded}` is padded [B, T], `{ragged}` is ragged: give all token columns of a batch in one way"
    )]
    Mixed {
        /// A padded column.
        padded: String,
        /// A ragged one.
        ragged: String,
    },
    /// A response's token array has another length than the response's other arrays.
    #[error(
        "response {response}: `{column}` has {found} tokens, `{from}` has {expected}: the token arrays of one response are of one length"
    )]
    RowLength {
        /// The column at fault.
        column: String,
        /// The response, from 0.
        response: usize,
        /// Its number of tokens.
        found: usize,
        /// The number that the response has by its other arrays.
        expected: usize,
        /// The column that set the number.
        from: String,
    },
    /// A column of one number for each token that counts has another number of them.
    #[error("`{column}` has {found} numbers, {expected} tokens count")]
    Tokens {
        /// The column at fault.
        column: String,
        /// Its number of values.
        found: usize,
        /// The batch's number of tokens.
        expected: usize,
    },
    /// A value that must be finite is not, or one that must be 0 or 1 is something else.
    #[error("response {response} (group {group}): `{column}` is {found}; it must be {expected}")]
    Value {
        /// The column at fault.
        column: String,
        /// The response, from 0.
        response: usize,
        /// Its group.
        group: GroupId,
        /// The value.
        found: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// A mask holds something that is neither 0 nor 1.
    #[error(
        "the mask is {found} at response {response}, token {token}: 1 marks a token that counts, 0 one that does not, and nothing else is allowed"
    )]
    Mask {
        /// The response, from 0.
        response: usize,
        /// The column, from 0.
        token: usize,
        /// The value.
        found: f64,
    },
    /// A column that lives at one level was given at another.
    #[error(
        "`{column}` was given one value a {found}; it is a {expected} column{}",
        hint
    )]
    Level {
        /// The column at fault.
        column: String,
        /// The level that it was given at.
        found: crate::batch::Level,
        /// The level that it has.
        expected: crate::batch::Level,
        /// What to do, or nothing.
        hint: &'static str,
    },
    /// Two columns have one name.
    #[error("there are two columns named `{column}`")]
    Twice {
        /// The name.
        column: String,
    },
    /// More than the layout's 32-bit places can hold.
    #[error("{what}: at most {} are possible", u32::MAX)]
    TooLarge {
        /// What there is too much of.
        what: String,
    },
}

impl BatchError {
    /// The response at fault, from 0, where it is one alone.
    pub fn response(&self) -> Option<usize> {
        match self {
            BatchError::RowLength { response, .. }
            | BatchError::Value { response, .. }
            | BatchError::Mask { response, .. } => Some(*response),
            _ => None,
        }
    }
}
