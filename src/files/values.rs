//! The numbers of token columns, ragged or padded: checks them for odd values, and makes columns of a batch of them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use ::safetensors::Dtype as Number;
use half::{bf16, f16};

use super::later::{Later, Pending};
use super::names::{Reading, Role};
use super::table::{FileOrigin, Lists};
use super::tensors::{ElementType, FileTensor};
use super::{Dtype, Result};
use crate::batch::layout::Tokens;
use crate::batch::{Buffer, Element, FloatBuffer, Padded, TokenValues};
use crate::diagnostic::Diagnostic;
use crate::figures::counted;
use crate::parallel::each;

/// The values of some columns of a response, in any layout.
type Cells<'a, T> = dyn Fn(usize, Range<usize>) -> Cow<'a, [T]> + Sync + 'a;

/// The first odd value of a column (its response, column and value), and the number of odd values.
type Found = (usize, usize, f64, usize);

/// The properties of a token column that are known before its values are read.
pub(super) struct TokenColumn {
    pub(super) reading: Reading,
    pub(super) origin: Arc<FileOrigin>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) dtype: Option<Dtype>,
    /// A batch saved by advlab may contain NaN.
    pub(super) is_saved: bool,
}

/// A column, and its values that are still to be read.
type UnreadColumn = (TokenValues, Arc<dyn Pending>);

impl TokenColumn {
    /// Keeps the tokens that count, from one array per response.
    pub(super) fn of_lists(
        self,
        read: impl FnOnce() -> Result<Lists> + Send + 'static,
    ) -> UnreadColumn {
        if self.dtype == Some(Dtype::F32) {
            let narrow = |values: Vec<f64>| values.iter().map(|&value| value as f32).collect();
            let later = self.compact(f32::NAN, read, narrow);
            return (FloatBuffer::F32(Buffer::new(later.clone())).into(), later);
        }
        let later = self.compact(f64::NAN, read, Buffer::from);
        (FloatBuffer::F64(Buffer::new(later.clone())).into(), later)
    }

    fn compact<T: Clone + Send + Sync>(
        self,
        missing: T,
        read: impl FnOnce() -> Result<Lists> + Send + 'static,
        narrow: fn(Vec<f64>) -> Buffer<T>,
    ) -> Arc<Later<T>> {
        let responses = 0..self.tokens.responses();
        let runs = responses
            .clone()
            .flat_map(|response| self.tokens.runs(response));
        let count = runs.map(|run| run.len as usize).sum();
        Later::new(count, missing, move || {
            let mut lists = read()?;
            let notes = self.check(&|at, columns| lists.row(at)[columns].into())?;
            // In place: what counts only moves towards the beginning.
            let mut end = 0;
            for response in responses {
                for run in self.tokens.runs(response) {
                    let (start, columns) = (lists.starts[response], run.columns());
                    let from = start + columns.start..start + columns.end;
                    lists.values.copy_within(from, end);
                    end += run.len as usize;
                }
            }
            lists.values.truncate(end);
            Ok((narrow(lists.values), notes))
        })
    }

    /// A tensor [B, T] in the file's own precision, unless another one is asked for.
    pub(super) fn of_tensor(self, tensor: &FileTensor) -> UnreadColumn {
        use Number::{BF16, F16, F32, F64, I32, I64, U32, U64};
        let ElementType::Number(number) = tensor.kind else {
            unreachable!("a token column is of numbers");
        };
        // Large integers, such as hashes, are not exact as f32.
        let is_wide = match self.dtype {
            Some(dtype) => dtype == Dtype::F64,
            None => matches!(number, F64 | I32 | U32 | I64 | U64),
        };
        match number {
            F64 if is_wide => self.padded(tensor, f64::NAN, FileTensor::load),
            F32 if !is_wide => self.padded(tensor, f32::NAN, FileTensor::load),
            F16 if !is_wide => self.padded(tensor, f16::NAN, FileTensor::load),
            BF16 if !is_wide => self.padded(tensor, bf16::NAN, FileTensor::load),
            _ if is_wide => self.padded(tensor, f64::NAN, |tensor| {
                Ok(tensor.numbers::<f64>()?.into())
            }),
            _ => self.padded(tensor, f32::NAN, |tensor| {
                Ok(tensor.numbers::<f32>()?.into())
            }),
        }
    }

    fn padded<T: Element>(
        self,
        tensor: &FileTensor,
        missing: T,
        read: impl FnOnce(&FileTensor) -> Result<Buffer<T>> + Send + 'static,
    ) -> UnreadColumn {
        let (rows, width) = (tensor.shape[0], tensor.shape[1]);
        let strides = match tensor.fortran {
            true => (1, rows),
            false => (width, 1),
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

    /// Looks for odd values. A NaN that counts would make all results of its group NaN, so it is reported for the file already.
    fn check<T: Element>(&self, cells: &Cells<'_, T>) -> Result<Vec<String>> {
        let Reading {
            ours, theirs, role, ..
        } = &self.reading;
        let is_f32 = self.dtype == Some(Dtype::F32);
        let is_stray = |value: f64| !value.is_finite() || is_f32 && (value as f32).is_infinite();
        // Half precision may round a log-prob of 0 up by as much.
        let is_logp = ours.ends_with("logp");
        let is_positive = |value: f64| is_logp && value.is_finite() && value > 1e-3;
        // Padding may contain NaN where the mask is 0.
        let is_lost = |value: f64| value.is_finite() && value != 0.0;
        let usual = (f32::MIN, if is_logp { 0.0 } else { f32::MAX });
        let find = |is: &(dyn Fn(f64) -> bool + Sync)| self.find(cells, true, usual, is);
        let mut notes = Vec::new();
        let mut note = |found: Option<Found>, name: &str, what: &str, why: &str| {
            if let Some((response, column, _, count)) = found {
                let (count, first) = (counted(count, "token"), self.origin.name_of(response));
                notes.push(format!(
                    "`{name}` {what} at {count}, the first in {first}, token {column}{why}"
                ));
            }
        };
        // In most columns nothing is odd, which a single pass finds out.
        if find(&|value| is_stray(value) || is_positive(value)).is_some() {
            let stray = find(&is_stray);
            if let Some(found) = stray
                .as_ref()
                .filter(|_| *role == Role::Token && !self.is_saved)
            {
                return Err(self.stray(found));
            }
            note(stray, ours, "is NaN or infinite", "");
            let why = ": no log-prob is; are these probabilities, or -logp?";
            note(find(&is_positive), theirs, "is above 0", why);
        }
        if ours == "token_reward" {
            let lost = self.find(cells, false, (0.0, 0.0), &is_lost);
            let what = "holds rewards where the mask is 0,";
            note(lost, theirs, what, ": they do not count");
        }
        Ok(notes)
    }

    /// The error for a value that counts and is no number, or none in the precision that is asked for.
    fn stray(&self, &(response, column, value, _): &Found) -> Diagnostic {
        let found = match value {
            value if value.is_nan() => "NaN or null".to_string(),
            value if value.is_finite() => format!("{value}, too large for f32,"),
            value => value.to_string(),
        };
        let at = (Some(response), Some(column));
        let expected = "a finite number where the mask is 1";
        self.origin.wrong(&self.reading.theirs, at, found, expected)
    }

    /// The values for which `is` holds among the tokens that count, or among the others; `is` must be false from `usual.0`
    /// to `usual.1`.
    fn find<T: Element>(
        &self,
        cells: &Cells<'_, T>,
        counting: bool,
        usual: (f32, f32),
        is: &(dyn Fn(f64) -> bool + Sync),
    ) -> Option<Found> {
        let of_response = |response: usize| {
            let runs = self.tokens.runs(response).iter().map(|run| run.columns());
            let columns: Vec<Range<usize>> = match counting {
                true => runs.collect(),
                false => self.tokens.gaps(response).collect(),
            };
            let (mut first, mut count) = (None, 0);
            for run in columns {
                let row = cells(response, run.clone());
                let row = if is_usual(&row, usual) { &[] } else { &*row };
                for (value, column) in row.iter().zip(run) {
                    let value: f64 = value.widen().into();
                    if is(value) {
                        first.get_or_insert((column, value));
                        count += 1;
                    }
                }
            }
            first.map(|(column, value)| (response, column, value, count))
        };
        let all = each(self.tokens.responses(), 1, &of_response);
        let all: Vec<_> = all.into_iter().flatten().collect();
        let count = all.iter().map(|(.., count)| count).sum();
        let (response, column, value, _) = *all.first()?;
        Some((response, column, value, count))
    }
}

/// Whether all values lie between two numbers. Counting the others has no branches.
fn is_usual<T: Element>(row: &[T], usual: (f32, f32)) -> bool {
    let (low, high) = (T::Wide::from(usual.0), T::Wide::from(usual.1));
    let is_odd = |value: T::Wide| !((value >= low) & (value <= high));
    let odd = row.iter().map(|value| u32::from(is_odd(value.widen())));
    odd.sum::<u32>() == 0
}
