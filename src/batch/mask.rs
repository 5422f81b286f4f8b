//! The mask, which marks the tokens that count, stored as runs of consecutive tokens in each row.

use std::ops::Range;

use half::{bf16, f16};
use multiversion::multiversion;
use ndarray::{ArrayView1, ArrayView2};

use crate::parallel::each;

/// A type of number, or bool, that the values of masks and response columns may have.
pub trait Numeric: Copy + PartialEq + Send + Sync {
    /// The mask values 0 and 1: 0 marks a token that does not count, and 1 a token that counts.
    const BITS: [Self; 2];
    /// Returns the value as f64.
    fn number(self) -> f64;
}

macro_rules! numeric {
    ($([$zero:expr, $one:expr] $($element:ty: $widen:expr),+;)+) => {$($(
        impl Numeric for $element {
            const BITS: [Self; 2] = [$zero, $one];
            fn number(self) -> f64 {
                let widen: fn($element) -> f64 = $widen;
                widen(self)
            }
        }
    )+)+};
}
// The conversion by `as` is exact up to 2^53, and rounds larger integers.
numeric!(
    [false, true] bool: |x| f64::from(u8::from(x));
    [f16::ZERO, f16::ONE] f16: f64::from;
    [bf16::ZERO, bf16::ONE] bf16: f64::from;
    [0.0, 1.0] f32: f64::from, f64: |x| x;
    [0, 1] u8: f64::from, u16: f64::from, u32: f64::from, u64: |x| x as f64, usize: |x| x as f64,
    i8: f64::from, i16: f64::from, i32: f64::from, i64: |x| x as f64, isize: |x| x as f64;
);

/// A run of consecutive tokens that all count, as a range of columns in a response's padded or ragged row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRun {
    /// The column of the first token.
    pub start: u32,
    /// The number of tokens.
    pub len: u32,
}

impl TokenRun {
    /// Returns the columns of the run.
    pub fn columns(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// The runs of the tokens that count, row by row. A [`Layout`](super::Layout) is built from these runs and from the groups.
///
/// The builder checks that no row has more than `u32::MAX` tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tokens {
    runs: Vec<TokenRun>,
    run_start: Vec<usize>,
    /// The lengths of the input rows, including tokens that do not count; an advantage is written back with these lengths.
    lengths: Vec<usize>,
    /// The length of the longest row.
    pub(super) width: usize,
}

impl Tokens {
    /// Makes an empty mask with memory for `rows` rows.
    pub(crate) fn new(rows: usize) -> Self {
        let mut run_start = Vec::with_capacity(rows + 1);
        run_start.push(0);
        Tokens {
            runs: Vec::with_capacity(rows),
            run_start,
            lengths: Vec::with_capacity(rows),
            width: 0,
        }
    }

    /// Makes rows of the given lengths in which all tokens count.
    pub(crate) fn full(lengths: impl IntoIterator<Item = usize>) -> Self {
        let lengths = lengths.into_iter();
        let mut tokens = Tokens::new(lengths.size_hint().0);
        for length in lengths {
            let len = length as u32;
            let run = (length > 0).then_some(TokenRun { start: 0, len });
            tokens.add_runs(run.as_slice(), length);
        }
        tokens
    }

    /// Reads a padded mask [B, T]. If a value is neither 0 nor 1, the error contains the response, the column and the value.
    pub(crate) fn of_mask<M: Numeric>(
        mask: ArrayView2<'_, M>,
    ) -> Result<Self, (usize, usize, f64)> {
        let runs_of = |row: ArrayView1<M>| match row.as_slice() {
            Some(row) => runs_of(row),
            None => runs_of(&row.to_vec()),
        };
        // Each task but the last gets at least as many rows as fit into 65 536 tokens.
        let least = (64 << 10) / mask.ncols().max(1);
        let rows = each(mask.nrows(), least, &|row| runs_of(mask.row(row)));
        let mut tokens = Tokens::new(rows.len());
        for (row, runs) in rows.into_iter().enumerate() {
            let runs = runs.map_err(|(column, value)| (row, column, value))?;
            tokens.add_runs(&runs, mask.ncols());
        }
        Ok(tokens)
    }

    /// Adds a response's row, given by its mask. If a value is neither 0 nor 1, the error contains the column and the value.
    pub(crate) fn add<M: Numeric>(&mut self, mask: &[M]) -> Result<(), (usize, f64)> {
        self.add_runs(&runs_of(mask)?, mask.len());
        Ok(())
    }

    /// Appends the rows of `more`.
    #[cfg(feature = "files")]
    pub(crate) fn append(&mut self, more: &Tokens) {
        for response in 0..more.responses() {
            self.add_runs(more.runs(response), more.row_length(response));
        }
    }

    fn add_runs(&mut self, runs: &[TokenRun], length: usize) {
        self.runs.extend_from_slice(runs);
        self.run_start.push(self.runs.len());
        self.lengths.push(length);
        self.width = self.width.max(length);
    }

    /// Returns the rows of some responses, in the given order.
    pub(super) fn select(&self, responses: &[usize]) -> Self {
        let mut tokens = Tokens::new(responses.len());
        for &response in responses {
            tokens.add_runs(self.runs(response), self.row_length(response));
        }
        tokens
    }

    /// Returns the length of a row, including the tokens that do not count.
    pub(crate) fn row_length(&self, response: usize) -> usize {
        self.lengths[response]
    }

    pub(crate) fn runs(&self, response: usize) -> &[TokenRun] {
        &self.runs[self.run_start[response]..self.run_start[response + 1]]
    }

    pub(crate) fn responses(&self) -> usize {
        self.lengths.len()
    }
}

/// The number of mask values that are compared at once, without a branch.
const LANES: usize = 64;

/// Returns how many values at the start of a row equal `wanted`.
#[multiversion(targets("x86_64+avx2"))]
fn how_many<M: Numeric>(row: &[M], wanted: M) -> usize {
    let is_whole = |lanes: &&[M]| {
        lanes
            .iter()
            .fold(true, |all, value| all & (*value == wanted))
    };
    let whole = row.chunks_exact(LANES).take_while(is_whole).count() * LANES;
    let values = row[whole..].iter();
    whole + values.take_while(|value| **value == wanted).count()
}

/// Returns the runs of a row's mask or, if a value is neither 0 nor 1, its column and the value. Many values are compared at
/// once, because most rows have long runs.
fn runs_of<M: Numeric>(row: &[M]) -> Result<Vec<TokenRun>, (usize, f64)> {
    let mut runs = Vec::new();
    let mut end = 0;
    loop {
        let start = end + how_many(&row[end..], M::BITS[0]);
        end = start + how_many(&row[start..], M::BITS[1]);
        match row.get(start) {
            None => return Ok(runs),
            Some(value) if end == start => return Err((start, value.number())),
            Some(_) => runs.push(TokenRun {
                start: start as u32,
                len: (end - start) as u32,
            }),
        }
    }
}
