//! The inputs of a kernel, which are the inputs of the script. A function that reads an input returns `None` if the input is
//! missing or has a form that no kernel supports.

use std::sync::Mutex;

use multiversion::multiversion;

use crate::batch::{Computed, Layout, TokenValues};
use crate::parallel::{lock, try_each_with};
use crate::script::{HookInputs, OLD_FOR_LOGP, ParamValue, Reports};
use crate::tensor::Precision;

/// The number of responses between two checks of the time limit.
const RESPONSES_PER_CHECK: usize = 64;

impl HookInputs<'_> {
    /// Returns a parameter as a number, converted in the same way as in an operation on tensors; `None` if it is not a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match *self.params.get(name)? {
            ParamValue::Number(number) => Some(number),
            ParamValue::Integer(whole) => Some(whole as f64),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.params.get(name)? {
            ParamValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the policy's log-probs or, if there are none, the old log-probs, with a note that says so.
    pub(super) fn logp(&self) -> Option<(&TokenValues, Reports)> {
        let mut reports = Reports::default();
        if let Some(own) = self.batch.token_column("logp") {
            return Some((own, reports));
        }
        reports.notes.push(OLD_FOR_LOGP.to_string());
        (!self.batch.has("logp")).then_some((self.batch.token_column("old_logp")?, reports))
    }

    /// Computes a gradient response by response, and multiplies it by the factor, if there is one. `compute` writes a response's
    /// gradient and returns a summary; the summaries are in batch order. Returns `None` if the gradient is not finite, if
    /// `compute` declines a response, or if the guard or a lack of memory stops the computation.
    pub(super) fn gradient<T: Precision, S, R: Send>(
        &self,
        scratch: impl Fn() -> S + Send + Sync,
        compute: impl Fn(&mut S, usize, &mut [T]) -> Option<R> + Sync,
    ) -> Option<(Computed, Vec<R>)> {
        let (layout, limits) = (&**self.batch.layout(), &self.script.frame().context);
        let by_rows = limits.by_rows && !self.batch.is_f64() && layout.is_padded();
        let compute = |scratch: &mut S, response: usize, out: &mut [T]| {
            if response.is_multiple_of(RESPONSES_PER_CHECK) {
                limits.guard.check().ok()?;
            }
            let mut columns = 0..out.len();
            if by_rows {
                layout.clear_padding(response, out);
                // Only the first run is used, because `compute` declines a response with several runs.
                let run = layout.runs(response).first();
                columns = run.map_or(0..0, |run| run.columns());
            }
            let out = &mut out[columns];
            let summary = compute(scratch, response, out)?;
            scale(out, self.factor).then_some(summary)
        };
        let width = by_rows.then(|| layout.width());
        let size = |response: usize| width.unwrap_or_else(|| layout.tokens_of(response).len());
        let count = (0..layout.responses()).map(size).sum();
        let _reservation = limits.guard.reserve(count * size_of::<T>()).ok()?;
        let mut values = limits.guard.spare().numbers::<T>(count).ok()?;
        let mut rest = &mut values[..];
        let outs: Vec<Mutex<&mut [T]>> = (0..layout.responses())
            .map(|response| rest.split_off_mut(..size(response)).unwrap_or_default())
            .map(Mutex::new)
            .collect();
        let summaries = try_each_with(outs.len(), 1, &scratch, &|scratch, response| {
            compute(scratch, response, &mut lock(&outs[response])).ok_or(())
        });
        let gradient = T::computed(values, self.batch.layout().clone(), by_rows);
        Some((gradient, summaries.ok()?))
    }
}

/// Multiplies a gradient by a factor, if there is one, and returns whether all values are finite.
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

/// Returns a response's values in a column; `None` if the values are not of the type `T` or not contiguous.
pub(super) fn row<'a, T: Precision>(
    column: &'a TokenValues,
    layout: &Layout,
    response: usize,
) -> Option<&'a [T]> {
    let columns = match layout.runs(response) {
        [] => return Some(&[]),
        [run] => run.columns(),
        // The mask has holes, so the values are not contiguous.
        _ => return None,
    };
    let place = column.place(response, (layout.tokens_of(response), columns));
    Some(&T::slice(column.numbers())?[place])
}
