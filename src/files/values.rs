//! The numbers of token columns, ragged or padded: what is odd in them, and how they become columns of a batch.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use ::safetensors::Dtype as Number;
use half::{bf16, f16};
use rayon::prelude::*;

use super::Dtype;
use super::later::{Later, Pending};
use super::names::{Reading, Role};
use super::table::{Lists, Origin};
use super::tensors::{Kind, Tensor};
use crate::batch::layout::Tokens;
use crate::batch::{Buffer, Element, FloatBuffer, Padded, TokenValues};
use crate::diagnostic::Diagnostic;
use crate::figures::counted;

/// The values of a response's columns.
type Cells<'a, T> = dyn Fn(usize, Range<usize>) -> Cow<'a, [T]> + Sync + 'a;

/// The first of some values of a column, and how many they are.
struct Found {
    response: usize,
    column: usize,
    value: f64,
    count: usize,
}

/// What is known of a token column before its values are read.
pub(super) struct TokenColumn {
    pub(super) reading: Reading,
    pub(super) origin: Arc<Origin>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) dtype: Option<Dtype>,
    /// A batch of ours may hold NaN.
    pub(super) is_saved: bool,
}

/// Rounded to the nearest f32.
fn narrowed(values: &[f64]) -> Buffer<f32> {
    let narrow = values.iter().map(|&value| value as f32);
    narrow.collect::<Vec<_>>().into()
}

impl TokenColumn {
    /// An array per response, of which the tokens that count are kept.
    pub(super) fn of_lists(&self, lists: Lists) -> Result<(TokenValues, Vec<String>), Diagnostic> {
        let is_f32 = self.dtype == Some(Dtype::F32);
        let (values, notes) = self.kept(lists)?;
        let values = if is_f32 {
            FloatBuffer::F32(narrowed(&values))
        } else {
            values.into()
        };
        Ok((values.into(), notes))
    }

    /// As `of_lists`, of arrays that are read when they are first used.
    pub(super) fn of_deferred_lists(
        self,
        read: impl Fn() -> Result<Lists, Diagnostic> + Send + Sync + 'static,
    ) -> (TokenValues, Arc<dyn Pending>) {
        let count = self.count();
        if self.dtype == Some(Dtype::F32) {
            let later = Later::new(count, f32::NAN, move || {
                let (values, notes) = self.kept(read()?)?;
                Ok((narrowed(&values), notes))
            });
            return (FloatBuffer::F32(Buffer::new(later.clone())).into(), later);
        }
        let later = Later::new(count, f64::NAN, move || {
            let (values, notes) = self.kept(read()?)?;
            Ok((values.into(), notes))
        });
        (FloatBuffer::F64(Buffer::new(later.clone())).into(), later)
    }

    /// The number of tokens that count.
    fn count(&self) -> usize {
        let runs = (0..self.tokens.responses()).flat_map(|response| self.tokens.runs(response));
        runs.map(|run| run.len as usize).sum()
    }

    /// The values of the tokens that count, and what is odd in them.
    fn kept(&self, lists: Lists) -> Result<(Vec<f64>, Vec<String>), Diagnostic> {
        let notes = self.check(&|at, columns| lists.row(at)[columns].into())?;
        let count = self.count();
        if count == lists.values.len() {
            return Ok((lists.values, notes));
        }
        let mut values = Vec::with_capacity(count);
        for response in 0..self.tokens.responses() {
            let row = lists.row(response);
            for run in self.tokens.runs(response) {
                values.extend_from_slice(&row[run.columns()]);
            }
        }
        Ok((values, notes))
    }

    /// A tensor [B, T] in the file's own precision, unless another one is asked for; it is read when it is used.
    pub(super) fn of_tensor(self, tensor: &Tensor) -> (TokenValues, Arc<dyn Pending>) {
        let (is_f32, is_f64) = (
            self.dtype == Some(Dtype::F32),
            self.dtype == Some(Dtype::F64),
        );
        use Number::{BF16, BOOL, F16, F32, F64, I8, I16, U8, U16};
        let Kind::Number(kind) = tensor.kind else {
            unreachable!("a token column is of numbers");
        };
        match kind {
            F64 if !is_f32 => self.padded(tensor, f64::NAN, Tensor::load),
            F32 if !is_f64 => self.padded(tensor, f32::NAN, Tensor::load),
            F16 if !is_f64 => self.padded(tensor, f16::NAN, Tensor::load),
            BF16 if !is_f64 => self.padded(tensor, bf16::NAN, Tensor::load),
            // Larger integers, such as hashes, are not f32.
            BOOL | U8 | I8 | U16 | I16 | F16 | BF16 | F32 | F64 if !is_f64 => self.narrow(tensor),
            _ if is_f32 => self.narrow(tensor),
            _ => self.padded(tensor, f64::NAN, |tensor| {
                Ok(tensor.numbers(|value| value)?.into())
            }),
        }
    }

    fn narrow(self, tensor: &Tensor) -> (TokenValues, Arc<dyn Pending>) {
        let read = |tensor: &Tensor| Ok(tensor.numbers(|value| value as f32)?.into());
        self.padded(tensor, f32::NAN, read)
    }

    fn padded<T: Element>(
        self,
        tensor: &Tensor,
        missing: T,
        read: impl Fn(&Tensor) -> Result<Buffer<T>, Diagnostic> + Send + Sync + 'static,
    ) -> (TokenValues, Arc<dyn Pending>) {
        let (rows, width) = (tensor.shape[0], tensor.shape[1]);
        let strides = if tensor.fortran {
            (1, rows)
        } else {
            (width, 1)
        };
        let padded = move |values| match Padded::with_strides(values, (rows, width), strides) {
            Some(padded) => padded,
            None => unreachable!("there are as many numbers as the shape has"),
        };
        let tensor = tensor.clone();
        let later = Later::new(rows * width, missing, move || {
            let values = read(&tensor)?;
            let array = padded(values.clone());
            let notes = self.check(&|at, columns| array.cells(at, columns))?;
            Ok((values, notes))
        });
        (padded(Buffer::new(later.clone())).into(), later)
    }

    /// Looks for odd values. NaN that counts makes every result of its group NaN: better said of the file than of the result.
    fn check<T: Element>(&self, cells: &Cells<'_, T>) -> Result<Vec<String>, Diagnostic> {
        let Reading {
            ours, theirs, role, ..
        } = &self.reading;
        let is_f32 = self.dtype == Some(Dtype::F32);
        let is_stray = |value: f64| !value.is_finite() || is_f32 && (value as f32).is_infinite();
        // Half precision may round a log-prob of 0 up by as much.
        let is_logp = ours.ends_with("logp");
        let is_positive = |value: f64| is_logp && value.is_finite() && value > 1e-3;
        let usual = (f32::MIN, if is_logp { 0.0 } else { f32::MAX });
        let runs = |response| {
            self.tokens
                .runs(response)
                .iter()
                .map(|run| run.columns())
                .collect()
        };
        let find = |is: &(dyn Fn(f64) -> bool + Sync)| self.find(cells, &runs, usual, is);
        let mut notes = Vec::new();
        let mut note = |found: &Found, name: &str, what: &str, why: &str| {
            let (count, at) = (counted(found.count, "token"), found.column);
            let first = self.origin.name_of(found.response);
            notes.push(format!(
                "`{name}` {what} at {count}, the first in {first}, token {at}{why}"
            ));
        };
        // Most often there is nothing odd, which one pass finds.
        if find(&|value| is_stray(value) || is_positive(value)).is_some() {
            if let Some(found) = find(&is_stray) {
                if *role == Role::Token && !self.is_saved {
                    return Err(self.stray(&found));
                }
                note(&found, ours, "is NaN or infinite", "");
            }
            if let Some(found) = find(&is_positive) {
                let why = ": no log-prob is; are these probabilities, or -logp?";
                note(&found, theirs, "is above 0", why);
            }
        }
        // NaN under the mask is what padding may be.
        let is_lost = |value: f64| value.is_finite() && value != 0.0;
        let gaps = |response| self.tokens.gaps(response).collect();
        if ours == "token_reward"
            && let Some(found) = self.find(cells, &gaps, (0.0, 0.0), &is_lost)
        {
            let why = ": they do not count";
            note(&found, theirs, "holds rewards where the mask is 0,", why);
        }
        Ok(notes)
    }

    /// The error for a value that counts and is no number, or none in the precision that is asked for.
    fn stray(&self, found: &Found) -> Diagnostic {
        let value = match found.value {
            value if value.is_nan() => "NaN or null".to_string(),
            value if value.is_finite() => format!("{value}, too large for f32,"),
            value => value.to_string(),
        };
        let at = (Some(found.response), Some(found.column));
        let expected = "a finite number where the mask is 1";
        self.origin.wrong(&self.reading.theirs, at, value, expected)
    }

    /// The values for which `is` holds in the `columns` of each response; it holds for none from `usual.0` to `usual.1`.
    fn find<T: Element>(
        &self,
        cells: &Cells<'_, T>,
        columns: &(dyn Fn(usize) -> Vec<Range<usize>> + Sync),
        usual: (f32, f32),
        is: &(dyn Fn(f64) -> bool + Sync),
    ) -> Option<Found> {
        let of_response = |response: usize| {
            let mut first: Option<Found> = None;
            for run in columns(response) {
                let row = cells(response, run.clone());
                let row = if is_usual(&row, usual) { &[] } else { &*row };
                let values = row.iter().map(|value| value.widen().into()).enumerate();
                for (at, value) in values.filter(|(_, value)| is(*value)) {
                    let found = first.get_or_insert(Found {
                        response,
                        column: run.start + at,
                        value,
                        count: 0,
                    });
                    found.count += 1;
                }
            }
            first
        };
        let found = (0..self.tokens.responses())
            .into_par_iter()
            .filter_map(of_response);
        let all = found.collect::<Vec<Found>>().into_iter();
        all.reduce(|first, next| Found {
            count: first.count + next.count,
            ..first
        })
    }
}

/// Whether all values lie between two numbers. Counting the others has no branches.
fn is_usual<T: Element>(row: &[T], usual: (f32, f32)) -> bool {
    let (low, high) = (T::Wide::from(usual.0), T::Wide::from(usual.1));
    let is_odd = |value: T::Wide| !((value >= low) & (value <= high));
    let odd = row.iter().map(|value| u32::from(is_odd(value.widen())));
    odd.sum::<u32>() == 0
}
