//! What can be wrong with an operation on tensors, with the operation, the levels and the line of the script.

use std::fmt;
use std::sync::Arc;

use super::{Level, Stopped, UnknownLevel};
use crate::suggest;

/// The line and column of a script where a tensor was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The script's file or name; `None` for the recipe itself.
    pub source: Option<Arc<str>>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

/// An operation on tensors that cannot be done, or a computation that failed or was stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorError {
    /// The operation, as scripts write it.
    pub op: &'static str,
    /// What is wrong.
    pub kind: TensorErrorKind,
    /// Where the tensor at fault was made, when that is not where the error shows up.
    pub origin: Option<Origin>,
}

/// What is wrong with an operation on tensors.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorErrorKind {
    /// A reduction to a level that is not coarser.
    #[error(
        "a {from} tensor has no {to} to be reduced to: it can go to {}",
        coarser(*from)
    )]
    ReduceTo {
        /// The tensor's level.
        from: Level,
        /// The level asked for.
        to: Level,
    },
    /// An expansion to a level that is not finer.
    #[error(
        "a {from} tensor cannot be spread over {to}: that level is not finer; reduce it with `sum`, `mean`, ..."
    )]
    ExpandTo {
        /// The tensor's level.
        from: Level,
        /// The level asked for.
        to: Level,
    },
    /// A tensor of another level is needed.
    #[error("needs a {expected} tensor, this is a {found} tensor{hint}")]
    NeedsLevel {
        /// The level needed.
        expected: &'static str,
        /// The level found.
        found: Level,
        /// What to do.
        hint: &'static str,
    },
    /// Tensors of different batches meet.
    #[error(
        "a {left} tensor and a {right} tensor of different batches cannot be combined: a value of one batch, or of one group, does not go with another's; group results are put together with `batch.map_groups(|g| ...)`"
    )]
    DifferentBatches {
        /// The level of the left one.
        left: Level,
        /// The level of the right one.
        right: Level,
    },
    /// Tensors over different groupings of the same responses meet at a level of groups.
    #[error(
        "a {left} tensor and a {right} tensor over different groups (after `regroup`) cannot be combined: bring one to response level first, as in `x.expand(\"response\")`"
    )]
    DifferentGroups {
        /// The level of the left one.
        left: Level,
        /// The level of the right one.
        right: Level,
    },
    /// A level's name that is none.
    #[error(transparent)]
    UnknownLevel(#[from] UnknownLevel),
    /// A kind, or another named choice, that is none of those possible.
    #[error("`{param}` is \"{found}\": {}", suggest::did_you_mean(found, choices.iter().copied()))]
    Choice {
        /// The parameter.
        param: &'static str,
        /// What was written.
        found: String,
        /// What is possible.
        choices: &'static [&'static str],
    },
    /// An argument of another type than the operation takes.
    #[error("`{param}` must be {expected}, this is {found}")]
    Argument {
        /// The parameter.
        param: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// The values themselves do not allow the operation.
    #[error("{why}, at {location}")]
    Value {
        /// What is wrong with them.
        why: String,
        /// Where, in words.
        location: String,
    },
    /// A gradient of something that is not one value.
    #[error(
        "the loss must be one value, a batch tensor; this is a {found} tensor: say how to average it, as in `loss.mean(\"batch\")`"
    )]
    LossLevel {
        /// The level found.
        found: Level,
    },
    /// A gradient through an operation that has none.
    #[error(
        "has no derivative ({why}), and the loss depends on it: use `detach()` on its arguments if that is meant"
    )]
    NoDerivative {
        /// Why not.
        why: &'static str,
    },
    /// The computation was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl TensorError {
    pub(crate) fn new(op: &'static str, kind: impl Into<TensorErrorKind>) -> Self {
        TensorError {
            op,
            kind: kind.into(),
            origin: None,
        }
    }

    /// Adds where the tensor at fault was made, unless that is known already.
    pub(crate) fn or_at(mut self, origin: Option<&Origin>) -> Self {
        if self.origin.is_none() {
            self.origin = origin.cloned();
        }
        self
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TensorErrorKind::Stopped(stopped) => stopped.fmt(f),
            _ => write!(f, "`{}`: {}", self.op, self.kind),
        }
    }
}

impl std::error::Error for TensorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.kind)
    }
}

fn coarser(from: Level) -> String {
    let names = Level::ALL
        .into_iter()
        .filter(|level| level.contains(from))
        .map(|level| format!("\"{level}\""));
    names.collect::<Vec<_>>().join(", ")
}
