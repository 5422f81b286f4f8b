//! What kernels read of a call, as the script sees it; `None` where it is missing or of an unusual kind.

use std::sync::Arc;

use crate::batch::{Batch, Buffer, Computed, FloatBuffer, Layout, Level, TokenValues};
use crate::script::{OLD_FOR_LOGP, Parameters, Setting};
use crate::tensor::Guard;

/// A batch with the parameters of a recipe, and with the advantage that a loss is given.
pub(crate) struct Columns<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) layout: &'a Arc<Layout>,
    pub(crate) guard: &'a Arc<Guard>,
    pub(crate) params: &'a Parameters,
    pub(crate) advantage: Option<&'a Computed>,
    /// The values of a response column as the script sees it.
    pub(crate) column: &'a (dyn Fn(&str) -> Option<Buffer<f64>> + Sync),
}

/// A value by token, or one for all tokens of a response.
pub(super) enum Advantage {
    Tokens(TokenValues),
    Responses(Buffer<f64>),
}

impl<'a> Columns<'a> {
    /// A parameter's number; an integer is the number that operations on tensors make of it.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.params.get(name)? {
            Setting::Number(number) => Some(*number),
            Setting::Whole(whole) => Some(*whole as f64),
            _ => None,
        }
    }

    pub(super) fn whole(&self, name: &str) -> Option<i64> {
        match self.params.get(name)? {
            Setting::Whole(whole) => Some(*whole),
            _ => None,
        }
    }

    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        match self.params.get(name)? {
            Setting::Truth(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The parameter's value among some.
    pub(super) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let Setting::Text(text) = self.params.get(name)? else {
            return None;
        };
        let mut choices = choices.iter();
        choices.find_map(|(known, choice)| (known == text).then_some(*choice))
    }

    pub(super) fn is_unset(&self, name: &str) -> bool {
        matches!(self.params.get(name), Some(Setting::Nothing))
    }

    pub(super) fn response(&self, name: &str) -> Option<Buffer<f64>> {
        (self.column)(name)
    }

    /// A token column of the batch.
    pub(super) fn tokens(&self, name: &str) -> Option<&'a TokenValues> {
        self.batch.token_column(name)
    }

    /// The advantage that a loss is given, else the batch's own.
    pub(super) fn advantage(&self) -> Option<Advantage> {
        let Some(given) = self.advantage else {
            let tokens = self.tokens("advantage").cloned().map(Advantage::Tokens);
            let responses = || self.batch.response_buffer("advantage").cloned();
            return tokens.or_else(|| responses().map(Advantage::Responses));
        };
        if given.buffer().len() != self.layout.size(given.level()) {
            return None;
        }
        match (given.level(), given.buffer()) {
            (Level::Token, values) => Some(Advantage::Tokens(values.clone().into())),
            (Level::Response, FloatBuffer::F64(values)) => {
                Some(Advantage::Responses(values.clone()))
            }
            _ => None,
        }
    }

    /// The policy's log-probs, and the note where others stand for them.
    pub(super) fn logp(&self) -> Option<(&'a TokenValues, Option<&'static str>)> {
        match self.tokens("logp") {
            Some(own) => Some((own, None)),
            None if self.batch.has("logp") => None,
            None => Some((self.tokens("old_logp")?, Some(OLD_FOR_LOGP))),
        }
    }

    /// A result at response level, where all of it is finite.
    pub(super) fn finite(&self, values: Vec<f64>) -> Option<Computed> {
        let is_finite = values.iter().all(|value| value.is_finite());
        is_finite.then(|| Computed::new(self.layout.clone(), Level::Response, values))
    }
}
