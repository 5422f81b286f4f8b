//! The numbers of token columns, ragged or padded: checks them for odd values, and makes columns of a batch of them.

use std::ops::Range;
use std::sync::Arc;

use ::safetensors::Dtype as Number;

use super::later::{Later, Pending};
use super::names::{Reading, Role};
use super::table::FileOrigin;
use super::tensors::{ElementType, FileTensor};
use super::{Dtype, Result, changed};
use crate::batch::layout::Tokens;
use crate::batch::{Buffer, FloatBuffer, TokenValues};
use crate::diagnostic::Diagnostic;
use crate::number_text::counted;
use crate::parallel::each;

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
    /// One array per response, by the start of each among the numbers that `read` gives.
    pub(super) fn of_lists(
        self,
        starts: Vec<usize>,
        read: impl FnOnce() -> Result<Vec<f64>> + Send + 'static,
    ) -> UnreadColumn {
        let (count, path) = (starts[starts.len() - 1], self.origin.path.clone());
        let read = move || match read()? {
            values if values.len() == count => Ok(Buffer::from(values)),
            _ => Err(changed(&path, "its bytes are others")),
        };
        let starts: Arc<[usize]> = starts.into();
        let rows = move |values| TokenValues::ragged(values, starts.clone());
        if self.dtype == Some(Dtype::F32) {
            let narrow = |values: Buffer<f64>| values.iter().map(|&value| value as f32).collect();
            return self.later((count, f32::NAN), rows, read, narrow);
        }
        self.later((count, f64::NAN), rows, read, |values| values)
    }

    /// A tensor [B, T] in the file's own precision, unless another one is asked for.
    pub(super) fn of_tensor(self, tensor: &FileTensor) -> UnreadColumn {
        use Number::{F32, F64, I32, I64, U32, U64};
        let ElementType::Number(number) = tensor.kind else {
            unreachable!("a token column is of numbers");
        };
        // Large integers, such as hashes, are not exact as f32.
        let is_wide = match self.dtype {
            Some(dtype) => dtype == Dtype::F64,
            None => matches!(number, F64 | I32 | U32 | I64 | U64),
        };
        let (tensor, shape) = (tensor.clone(), (tensor.shape[0], tensor.shape[1]));
        let rows = move |values: FloatBuffer| match TokenValues::padded(values, shape, shape.1) {
            Some(column) => column,
            None => unreachable!("there are as many numbers as the shape has"),
        };
        let count = shape.0 * shape.1;
        if is_wide {
            let read = move || match number {
                F64 => tensor.load(),
                _ => Ok(tensor.numbers::<f64>()?.into()),
            };
            return self.later((count, f64::NAN), rows, read, |values| values);
        }
        let read = move || match number {
            F32 => tensor.load(),
            _ => Ok(tensor.numbers::<f32>()?.into()),
        };
        self.later((count, f32::NAN), rows, read, |values| values)
    }

    /// A column of `count` numbers that are read, checked and narrowed on first use. If they cannot be read, all are `missing`.
    fn later<S: 'static, T: Copy + Send + Sync>(
        self,
        (count, missing): (usize, T),
        rows: impl Fn(FloatBuffer) -> TokenValues + Clone + Send + 'static,
        read: impl FnOnce() -> Result<Buffer<S>> + Send + 'static,
        narrow: fn(Buffer<S>) -> Buffer<T>,
    ) -> UnreadColumn
    where
        Buffer<S>: Into<FloatBuffer>,
        Buffer<T>: Into<FloatBuffer>,
    {
        let unread = rows.clone();
        let later = Later::new(count, missing, move || {
            let values = read()?;
            let column = rows(values.clone().into());
            let notes = match column.numbers() {
                FloatBuffer::F32(numbers) => self.check(&column, numbers)?,
                FloatBuffer::F64(numbers) => self.check(&column, numbers)?,
            };
            Ok((narrow(values), notes))
        });
        (unread(Buffer::new(later.clone()).into()), later)
    }

    /// Looks for odd values. A NaN that counts would make all results of its group NaN, so it is reported for the file already.
    fn check<T: Float>(&self, column: &TokenValues, numbers: &[T]) -> Result<Vec<String>> {
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
        let find = |counting, usual, is: &(dyn Fn(f64) -> bool + Sync)| {
            self.find((column, numbers), counting, usual, is)
        };
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
        if find(true, usual, &|value| is_stray(value) || is_positive(value)).is_some() {
            let stray = find(true, usual, &is_stray);
            if let Some(found) = stray
                .as_ref()
                .filter(|_| *role == Role::Token && !self.is_saved)
            {
                return Err(self.stray(found));
            }
            note(stray, ours, "is NaN or infinite", "");
            let why = ": no log-prob is; are these probabilities, or -logp?";
            note(find(true, usual, &is_positive), theirs, "is above 0", why);
        }
        if ours == "token_reward" {
            let lost = find(false, (0.0, 0.0), &is_lost);
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
    fn find<T: Float>(
        &self,
        (column, numbers): (&TokenValues, &[T]),
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
                let row = &numbers[column.place(response, (0..0, run.clone()))];
                let row = if is_usual(row, usual) { &[] } else { row };
                for (value, column) in row.iter().zip(run) {
                    let value: f64 = (*value).into();
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

trait Float: Copy + PartialOrd + From<f32> + Into<f64> + Sync {}
impl Float for f32 {}
impl Float for f64 {}

/// Whether all values lie between two numbers. Counting the others has no branches.
fn is_usual<T: Float>(row: &[T], usual: (f32, f32)) -> bool {
    let (low, high) = (T::from(usual.0), T::from(usual.1));
    let is_odd = |value: &T| !((*value >= low) & (*value <= high));
    row.iter()
        .map(|value| u32::from(is_odd(value)))
        .sum::<u32>()
        == 0
}
