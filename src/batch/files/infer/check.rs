//! What is odd in the values of tokens.

use std::array;
use std::ops::Range;

use rayon::prelude::*;

use super::Inference;
use crate::batch::column::Given;
use crate::batch::files::Dtype;
use crate::batch::files::names::{Reading, Role};
use crate::batch::files::raw::Header;
use crate::batch::layout::Tokens;
use crate::diagnostic::Diagnostic;
use crate::figures::counted;

impl Inference<'_> {
    /// NaN that counts makes every result of its group NaN: better said of the file than of the result.
    pub(super) fn check_tokens(
        &mut self,
        reading: &Reading,
        given: &Given,
    ) -> Result<(), Diagnostic> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        let first = |found: &Found| {
            let line = self.raw.origin.name_of(found.response);
            format!("{line}, token {}", found.column)
        };
        let is_f32 = self.options.dtype == Some(Dtype::F32);
        let is_stray = |value: f64| !value.is_finite() || is_f32 && (value as f32).is_infinite();
        // Half precision may round a log-prob of 0 up by as much.
        let most = match reading.ours.ends_with("logp") {
            true => 1e-3,
            false => f64::INFINITY,
        };
        let is_positive = |value: f64| value > most;
        let columns = |response| tokens.runs(response).iter().map(|run| run.columns());
        let kinds = |value| [is_stray(value), is_positive(value)];
        let [stray, positive] = Found::among(given, tokens, columns, reading.usual(), kinds);
        if let Some(found) = stray {
            let is_saved = matches!(self.raw.header, Header::Saved { .. });
            if reading.role == Role::Token && !is_saved {
                return Err(self.stray(reading, given, &found));
            }
            let first = first(&found);
            self.notes.not_finite(&reading.ours, found.values, &first);
        }
        if let Some(found) = positive {
            self.notes.add(format!(
                "`{}` is above 0 at {}, the first in {}: no log-prob is; are these probabilities, or -logp?",
                reading.theirs,
                counted(found.values, "token"),
                first(&found)
            ));
        }
        // A reward that does not count was meant to. NaN there is what padding may be.
        let is_lost = |value: f64| [value.is_finite() && value != 0.0];
        if reading.ours == "token_reward"
            && let [Some(found)] =
                Found::among(given, tokens, |at| tokens.gaps(at), (0.0, 0.0), is_lost)
        {
            self.notes.add(format!(
                "`{}` holds rewards where the mask is 0, in {} (the first in {}): they do not count",
                reading.theirs,
                counted(found.responses, "response"),
                first(&found)
            ));
        }
        Ok(())
    }

    /// The error for a value that counts and is no number, or none in the precision that is asked for.
    fn stray(&self, reading: &Reading, given: &Given, found: &Found) -> Diagnostic {
        let value = match found.value {
            value if value.is_nan() && matches!(given, Given::Rows(_)) => "NaN or null".to_string(),
            value if value.is_finite() => format!("{value}, too large for f32,"),
            value => value.to_string(),
        };
        let (response, token) = (Some(found.response), Some(found.column));
        let expected = "a finite number where the mask is 1";
        let field = &reading.theirs;
        self.raw.wrong(field, response, token, value, expected)
    }
}

/// The first of some values of a column, and how many they are.
#[derive(Clone, Copy)]
struct Found {
    response: usize,
    column: usize,
    value: f64,
    values: usize,
    responses: usize,
}

impl Found {
    /// The values of each of `N` kinds among those of the `columns` of each response; none of those from `usual.0` to
    /// `usual.1` is of any. One pass finds the responses that have any: most often there are none.
    fn among<const N: usize, C: Iterator<Item = Range<usize>>>(
        given: &Given,
        tokens: &Tokens,
        columns: impl Fn(usize) -> C + Sync,
        usual: (f32, f32),
        kinds: impl Fn(f64) -> [bool; N] + Sync,
    ) -> [Option<Found>; N] {
        let is_any = |value| kinds(value).into_iter().fold(false, |any, is| any | is);
        let has_any = |&response: &usize| {
            columns(response).any(|run| given.scan(response, run, usual, is_any).is_some())
        };
        let of_kind = |response: usize, kind: usize| {
            let is = |value| kinds(value)[kind];
            let found = columns(response).filter_map(|run| given.scan(response, run, usual, is));
            found
                .map(|(column, value, values)| Found {
                    response,
                    column,
                    value,
                    values,
                    responses: 1,
                })
                .reduce(|first, next| Found {
                    values: first.values + next.values,
                    ..first
                })
        };
        let responses = (0..tokens.responses()).into_par_iter().filter(has_any);
        let found = responses.map(|response| array::from_fn(|kind| of_kind(response, kind)));
        let found: Vec<[Option<Found>; N]> = found.collect();
        array::from_fn(|kind| {
            let found = found.iter().filter_map(|found| found[kind]);
            found.reduce(|first, next| Found {
                values: first.values + next.values,
                responses: first.responses + 1,
                ..first
            })
        })
    }
}
