//! The columns that kernels read, as scripts see them: a batch's own, or those that follow from others.
//!
//! Each is `None` where it is missing or of an unusual kind: the script knows what to do, or to say, then.

use std::sync::Arc;

use crate::batch::{Buffer, Computed, FloatBuffer, Layout, Level, TokenValues};
use crate::script::{HookCall, OLD_FOR_LOGP, Setting};
use crate::tensor::{Guard, Reservation, is_on_gpu};

/// A hook's batch, with the results of the hooks before it and the parameters.
pub(super) struct Columns<'a> {
    call: &'a HookCall<'a>,
    pub(super) layout: &'a Arc<Layout>,
}

/// A reward by token.
pub(super) enum TokenReward<'a> {
    Column(&'a TokenValues),
    /// On each response's last token, 0 on the others.
    Last(Buffer<f64>),
}

/// A value by token, or one for all tokens of a response.
pub(super) enum Advantage {
    Tokens(TokenValues),
    Responses(Buffer<f64>),
}

impl<'a> Columns<'a> {
    /// None where tokens lie on a GPU: libtorch computes with them there.
    pub(super) fn of(call: &'a HookCall<'a>) -> Option<Columns<'a>> {
        let layout = call.batch.layout();
        let mut tokens = call.batch.token_columns();
        let is_far = tokens.any(|(_, values)| is_on_gpu(values));
        (!is_far).then_some(Columns { call, layout })
    }

    pub(super) fn guard(&self) -> &'a Arc<Guard> {
        self.call.guard
    }

    /// Counts the bytes of values that a kernel makes; `None` where there is no room for them.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.guard().reserve(bytes).ok()
    }

    /// A parameter's number; an integer is the number that operations on tensors make of it.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match (self.call.settings)(name)? {
            Setting::Number(number) => Some(number),
            Setting::Whole(whole) => Some(whole as f64),
            _ => None,
        }
    }

    pub(super) fn whole(&self, name: &str) -> Option<i64> {
        match (self.call.settings)(name)? {
            Setting::Whole(whole) => Some(whole),
            _ => None,
        }
    }

    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        match (self.call.settings)(name)? {
            Setting::Truth(truth) => Some(truth),
            _ => None,
        }
    }

    /// The parameter's value among some.
    pub(super) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let Setting::Text(text) = (self.call.settings)(name)? else {
            return None;
        };
        let mut choices = choices.iter();
        choices.find_map(|(known, choice)| (*known == text).then_some(*choice))
    }

    /// A number that need not be set.
    pub(super) fn optional(&self, name: &str) -> Option<Option<f64>> {
        match (self.call.settings)(name)? {
            Setting::Nothing => Some(None),
            _ => self.number(name).map(Some),
        }
    }

    /// Which responses are right.
    pub(super) fn correct(&self) -> Option<Buffer<f64>> {
        self.call.column("correct")
    }

    pub(super) fn reward(&self) -> Option<Buffer<f64>> {
        match self.call.reward {
            Some(given) => of_responses(given),
            None => self.call.column("reward"),
        }
    }

    pub(super) fn token_reward(&self) -> Option<TokenReward<'a>> {
        let column = self.tokens("token_reward");
        match column.filter(|_| self.call.reward.is_none()) {
            Some(column) => Some(TokenReward::Column(column)),
            None => self.reward().map(TokenReward::Last),
        }
    }

    pub(super) fn length(&self) -> Option<Buffer<f64>> {
        self.call.column("length")
    }

    pub(super) fn advantage(&self) -> Option<Advantage> {
        if let Some(given) = self.call.advantage {
            if given.buffer().len() != self.layout.size(given.level()) {
                return None;
            }
            return match given.level() {
                Level::Token => Some(Advantage::Tokens(given.buffer().clone().into())),
                _ => of_responses(given).map(Advantage::Responses),
            };
        }
        let of_responses = || self.call.batch.response_buffer("advantage").cloned();
        let tokens = self.tokens("advantage").cloned();
        (tokens.map(Advantage::Tokens)).or_else(|| of_responses().map(Advantage::Responses))
    }

    /// A token column of the batch.
    pub(super) fn tokens(&self, name: &str) -> Option<&'a TokenValues> {
        self.call.batch.token_column(name)
    }

    /// The policy's log-probs, and the note where others stand for them.
    pub(super) fn logp(&self) -> Option<(&'a TokenValues, Option<&'static str>)> {
        let batch = self.call.batch;
        match batch.token_column("logp") {
            Some(own) => Some((own, None)),
            None if batch.has("logp") => None,
            None => Some((batch.token_column("old_logp")?, Some(OLD_FOR_LOGP))),
        }
    }

    /// Whether tokens are f64, where all that a kernel reads is of one precision.
    pub(super) fn is_f64(&self, read: &[&TokenValues]) -> Option<bool> {
        let is_f64 = self.call.batch.is_f64();
        let all = read.iter().all(|column| column.is_f64() == is_f64);
        all.then_some(is_f64)
    }

    /// A result at response level, where all of it is finite.
    pub(super) fn responses(&self, values: Vec<f64>) -> Option<Computed> {
        let is_finite = values
            .iter()
            .fold(true, |all, value| all & value.is_finite());
        is_finite.then(|| Computed::new(self.layout.clone(), Level::Response, values))
    }
}

fn of_responses(given: &Computed) -> Option<Buffer<f64>> {
    match (given.level(), given.buffer()) {
        (Level::Response, FloatBuffer::F64(values)) => Some(values.clone()),
        _ => None,
    }
}
