//! The inputs of a kernel, as the script sees them; `None` if one is missing or is of a kind that no kernel supports.

use std::sync::{Arc, Mutex};

use multiversion::multiversion;

use crate::batch::{Batch, Buffer, Computed, FloatBuffer, Layout, Level, TokenValues};
use crate::parallel::{lock, try_each_with};
use crate::script::{OLD_FOR_LOGP, ParamValue, Params, ScriptBatch};
use crate::tensor::{Guard, Precision};

/// A thread checks the clock once per this many responses.
const RESPONSES_PER_CHECK: usize = 64;

/// A batch, the parameters of a recipe, and the advantage that a loss is given.
pub(crate) struct HookInputs<'a> {
    pub(crate) batch: &'a Batch,
    /// The batch as the script sees it, with derived columns.
    pub(crate) script: ScriptBatch,
    pub(crate) guard: &'a Arc<Guard>,
    pub(crate) params: &'a Params,
    pub(crate) advantage: Option<&'a Computed>,
    /// The factor for the gradient of a loss.
    pub(crate) factor: Option<f64>,
    /// Whether the gradient is written as the rows of an array [B, T], if it is f32.
    pub(crate) by_rows: bool,
}

/// One value per token or one per response.
pub(super) enum Advantage {
    Tokens(TokenValues),
    Responses(Buffer<f64>),
}

impl<'a> HookInputs<'a> {
    pub(super) fn layout(&self) -> &'a Arc<Layout> {
        self.batch.layout()
    }

    /// A parameter as a number, converted as operations on tensors convert it.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.params.get(name)? {
            ParamValue::Number(number) => Some(*number),
            ParamValue::Integer(whole) => Some(*whole as f64),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        match self.params.get(name)? {
            ParamValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A column at response level.
    pub(super) fn response(&self, name: &str) -> Option<Buffer<f64>> {
        self.script.response_values(name)
    }

    /// The batch's own token column.
    pub(super) fn tokens(&self, name: &str) -> Option<&'a TokenValues> {
        self.batch.token_column(name)
    }

    /// The advantage that a loss is given, else the batch's own.
    pub(super) fn advantage(&self) -> Option<Advantage> {
        let Some(given) = self.advantage else {
            let responses = || Some(self.batch.response_buffer("advantage")?.clone());
            let tokens = self.tokens("advantage").cloned().map(Advantage::Tokens);
            return tokens.or_else(|| responses().map(Advantage::Responses));
        };
        match (given.level(), given.buffer()) {
            (Level::Token, values) => Some(Advantage::Tokens(values.clone().into())),
            (Level::Response, FloatBuffer::F64(values)) => {
                Some(Advantage::Responses(values.clone()))
            }
            _ => None,
        }
    }

    /// The policy's log-probs, and a note if the old ones stand in for them.
    pub(super) fn logp(&self) -> Option<(&'a TokenValues, Vec<String>)> {
        match self.tokens("logp") {
            Some(own) => Some((own, Vec::new())),
            None if self.batch.has("logp") => None,
            None => Some((self.tokens("old_logp")?, vec![OLD_FOR_LOGP.to_string()])),
        }
    }

    /// Computes a gradient response by response; `None` if it is not finite. `compute` also gives a summary of each response,
    /// in batch order.
    pub(super) fn gradient<T: Precision, S, R: Send>(
        &self,
        scratch: impl Fn() -> S + Send + Sync,
        compute: impl Fn(&mut S, usize, &mut [T]) -> Option<R> + Sync,
    ) -> Option<(Computed, Vec<R>)> {
        let layout = &**self.layout();
        let by_rows = self.by_rows && !self.batch.is_f64() && layout.is_padded();
        let compute = |scratch: &mut S, response: usize, out: &mut [T]| {
            if response.is_multiple_of(RESPONSES_PER_CHECK) {
                self.guard.check().ok()?;
            }
            let mut columns = 0..out.len();
            if by_rows {
                layout.clear_padding(response, out);
                // `compute` declines a response with holes.
                let run = layout.runs(response).first();
                columns = run.map_or(0..0, |run| run.columns());
            }
            let out = &mut out[columns];
            let summary = compute(scratch, response, out)?;
            scale(out, self.factor).then_some(summary)
        };
        let size = |response: usize| {
            if by_rows {
                layout.width()
            } else {
                layout.tokens_of(response).len()
            }
        };
        let count = (0..layout.responses()).map(size).sum();
        let _reservation = self.guard.reserve(count * size_of::<T>()).ok()?;
        let mut values = self.guard.spare().numbers::<T>(count).ok()?;
        let mut rest = &mut values[..];
        let outs = (0..layout.responses())
            .map(|response| rest.split_off_mut(..size(response)).unwrap_or_default());
        let outs: Vec<Mutex<&mut [T]>> = outs.map(Mutex::new).collect();
        let summaries = try_each_with(outs.len(), 1, &scratch, &|scratch, response| {
            compute(scratch, response, &mut lock(&outs[response])).ok_or(())
        });
        let summaries = summaries.ok()?;
        let rows_of = by_rows.then_some(self.layout());
        let values = T::wrap(values, rows_of);
        let gradient = Computed::new(self.layout().clone(), Level::Token, values);
        Some((gradient, summaries))
    }
}

/// Multiplies a gradient by a factor, if there is one, and says whether all of it is finite.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn scale<T: Precision>(values: &mut [T], factor: Option<f64>) -> bool {
    if let Some(factor) = factor {
        for value in values.iter_mut() {
            *value = T::narrow(value.widen() * factor);
        }
    }
    let mut is_finite = true;
    for value in values {
        is_finite &= value.widen().is_finite();
    }
    is_finite
}

/// A column's values of a response; `None` if they have another precision or are not contiguous.
pub(super) fn row<'a, T: Precision>(
    column: &'a TokenValues,
    layout: &Layout,
    response: usize,
) -> Option<&'a [T]> {
    let columns = match layout.runs(response) {
        [] => return Some(&[]),
        [run] => run.columns(),
        // There are holes between the tokens.
        _ => return None,
    };
    let place = column.place(response, (layout.tokens_of(response), columns));
    Some(&T::slice(column.numbers())?[place])
}
