//! The columns that kernels read, as scripts see them: a batch's own, or those that follow from others.
//!
//! Each is `None` where it is missing or of an unusual kind: the script knows what to do, or to say, then.

use std::ops::Deref;
use std::sync::Arc;

use super::tokens::{Tile, each_response};
use crate::batch::{Batch, Buffer, Computed, FloatBuffer, Layout, Level, TokenValues};
use crate::script::{HookCall, OLD_FOR_LOGP, Setting};
use crate::tensor::{Depth, Guard, Moments, Reservation, Token, is_on_gpu};

/// A hook's batch, with the results of the hooks before it and the parameters.
pub(super) struct Columns<'a> {
    call: &'a HookCall<'a>,
    pub(super) layout: &'a Arc<Layout>,
}

/// Values of the responses: shared with the batch, or made for this hook.
pub(super) enum Responses<'a> {
    Own(&'a Buffer<f64>),
    Made(Vec<f64>),
}

impl Deref for Responses<'_> {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        match self {
            Responses::Own(values) => values,
            Responses::Made(values) => values,
        }
    }
}

/// A reward by token.
pub(super) enum TokenReward<'a> {
    Column(&'a TokenValues),
    /// On each response's last token, 0 on the others.
    Last(Responses<'a>),
}

/// A value by token, or one for all tokens of a response.
pub(super) enum Advantage<'a> {
    Tokens(TokenValues),
    Responses(Responses<'a>),
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
    pub(super) fn correct(&self) -> Option<Responses<'a>> {
        correct(self)?
    }

    pub(super) fn reward(&self) -> Option<Responses<'a>> {
        if let Some(given) = self.call.reward {
            return of_responses(given);
        }
        let batch = self.call.batch;
        if is_unusual(batch) {
            return None;
        }
        match (
            batch.response_buffer("reward"),
            batch.token_column("token_reward"),
        ) {
            (Some(own), _) => Some(Responses::Own(own)),
            (None, Some(column)) => Some(Responses::Made(sums_of_tokens(self, column)?)),
            (None, None) => batch.response_buffer("correct").map(Responses::Own),
        }
    }

    pub(super) fn token_reward(&self) -> Option<TokenReward<'a>> {
        let column = self.call.batch.token_column("token_reward");
        match column.filter(|_| self.call.reward.is_none()) {
            Some(column) => Some(TokenReward::Column(column)),
            None => self.reward().map(TokenReward::Last),
        }
    }

    pub(super) fn length(&self) -> Option<Responses<'a>> {
        let (batch, layout) = (self.call.batch, self.layout);
        if let Some(own) = batch.response_buffer("length") {
            return Some(Responses::Own(own));
        }
        let has_tokens = layout.width() > 0 || batch.token_columns().next().is_some();
        if batch.token_column("length").is_some() || !has_tokens {
            return None;
        }
        let length = |response| layout.tokens_of(response).len() as f64;
        Some(Responses::Made(
            (0..layout.responses()).map(length).collect(),
        ))
    }

    pub(super) fn advantage(&self) -> Option<Advantage<'a>> {
        if let Some(given) = self.call.advantage {
            if given.buffer().len() != self.layout.size(given.level()) {
                return None;
            }
            return match given.level() {
                Level::Token => Some(Advantage::Tokens(given.buffer().clone().into())),
                _ => of_responses(given).map(Advantage::Responses),
            };
        }
        let batch = self.call.batch;
        let tokens = batch
            .token_column("advantage")
            .cloned()
            .map(Advantage::Tokens);
        let responses = || {
            Some(Advantage::Responses(Responses::Own(
                batch.response_buffer("advantage")?,
            )))
        };
        tokens.or_else(responses)
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

fn of_responses(given: &Computed) -> Option<Responses<'_>> {
    match (given.level(), given.buffer()) {
        (Level::Response, FloatBuffer::F64(values)) => Some(Responses::Own(values)),
        _ => None,
    }
}

/// Whether columns that say what is right are at another level than theirs.
fn is_unusual(batch: &Batch) -> bool {
    batch.token_column("correct").is_some()
        || batch.token_column("reward").is_some()
        || batch.response_buffer("token_reward").is_some()
}

/// `batch.correct` as scripts see it; `Some(None)` where nothing says it.
pub(super) fn correct<'a>(columns: &Columns<'a>) -> Option<Option<Responses<'a>>> {
    let batch = columns.call.batch;
    if is_unusual(batch) {
        return None;
    }
    if let Some(own) = batch.response_buffer("correct") {
        return Some(Some(Responses::Own(own)));
    }
    let right = |rewards: &[f64]| {
        let right = rewards
            .iter()
            .map(|&reward| f64::from(u8::from(reward > 0.0)));
        Some(Responses::Made(right.collect()))
    };
    Some(
        match (
            batch.response_column("reward"),
            batch.token_column("token_reward"),
        ) {
            (Some(reward), _) => right(reward),
            (None, Some(column)) => right(&sums_of_tokens(columns, column)?),
            (None, None) => None,
        },
    )
}

/// A reward by token, summed for each response in the precision that it was given in.
fn sums_of_tokens(columns: &Columns<'_>, column: &TokenValues) -> Option<Vec<f64>> {
    fn sum<T: Token>(columns: &Columns<'_>, column: &TokenValues) -> Option<Vec<f64>> {
        each_response(columns, Vec::<T>::new, |scratch, response| {
            let tiles = Tile::all(columns.layout, response);
            let tiles = tiles.map(|tile| Moments::of_tile(tile.read(column, scratch), Depth::Sum));
            T::narrow(tiles.fold(Moments::EMPTY, Moments::and).sum).widen()
        })
    }
    let sums = columns.call.sums.get_or_init(|| match column.is_f64() {
        true => sum::<f64>(columns, column),
        false => sum::<f32>(columns, column),
    });
    sums.clone()
}
