//! Builds a batch from arrays, padded or ragged, and checks that they fit together.

mod ragged;

use std::collections::BTreeMap;
use std::sync::Arc;

use half::{bf16, f16};
use ndarray::{ArrayView1, ArrayView2};
use rayon::prelude::*;

use self::ragged::Ragged;
use super::known;
use super::layout::Tokens;
use super::{Batch, Buffer, FloatBuffer, GroupId, Layout, Level, Run, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The error, and the response at fault where it is one alone.
type Problem = (Option<usize>, Diagnostic);

fn problem(what: String) -> Problem {
    (None, Diagnostic::error(what))
}

/// A number type (or bool) that a mask can be made of: 1 or true marks a token that counts, 0 or false one that does
/// not.
pub trait MaskValue: Copy + Send + Sync {
    /// The value as a number; the builder refuses all but 0 and 1.
    fn number(self) -> f64;
}

macro_rules! mask_value {
    ($($element:ty: $widen:expr),+ $(,)?) => {$(
        impl MaskValue for $element {
            fn number(self) -> f64 {
                let widen: fn($element) -> f64 = $widen;
                widen(self)
            }
        }
    )+};
}
// `as` rounds only beyond 2^53, where the value is neither 0 nor 1 anyway.
mask_value!(
    bool: |x| f64::from(u8::from(x)), f16: f64::from, bf16: f64::from, f32: f64::from, f64: |x| x,
    u8: f64::from, u16: f64::from, u32: f64::from, u64: |x| x as f64, usize: |x| x as f64,
    i8: f64::from, i16: f64::from, i32: f64::from, i64: |x| x as f64, isize: |x| x as f64,
);

/// Collects the columns of a [`Batch`]; what does not fit is reported by [`BatchBuilder::build`].
///
/// Groups are always needed. The tokens that count come from `mask`, `ragged_mask` or `lengths`; without these, all
/// tokens of the token columns count, and without such columns the response column `length` says how many there are.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    groups: Option<Vec<GroupId>>,
    tokens: Option<(Tokens, Option<usize>)>,
    responses: Vec<(String, Buffer<f64>)>,
    padded: Vec<(String, TokenValues)>,
    ragged: Vec<(String, Ragged)>,
    step: u64,
    problem: Option<Problem>,
}

impl BatchBuilder {
    /// The group of each response, as numbers or strings, in any order and interleaved as they come.
    pub fn groups<I>(mut self, ids: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<GroupId>,
    {
        self.groups = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// The padded mask [B, T]: 1 (or true) for a token that counts, with holes wherever it likes.
    pub fn mask<M: MaskValue>(mut self, mask: ArrayView2<'_, M>) -> Self {
        if mask.ncols() > u32::MAX as usize {
            return self.fail(too_large("tokens in a row", mask.ncols()));
        }
        match tokens_of_mask(mask) {
            Ok(tokens) => self.tokens = Some((tokens, Some(mask.ncols()))),
            Err((response, token, found)) => {
                let what = format!(
                    "the mask is {found} at response {response}, token {token}: 1 marks a token that counts, 0 one that does not, and nothing else is allowed"
                );
                return self.fail((Some(response), Diagnostic::error(what)));
            }
        }
        self
    }

    /// The mask of ragged input: a row of its own length for each response.
    pub fn ragged_mask<R: AsRef<[bool]>>(mut self, rows: impl IntoIterator<Item = R>) -> Self {
        let mut tokens = Tokens::ragged();
        for row in rows {
            let row = row.as_ref();
            if row.len() > u32::MAX as usize {
                return self.fail(too_large("tokens in a row", row.len()));
            }
            tokens.add(row.iter().copied());
        }
        self.tokens = Some((tokens, None));
        self
    }

    /// The number of tokens of each response, all of which count.
    pub fn lengths(mut self, lengths: impl IntoIterator<Item = usize>) -> Self {
        let mut tokens = Tokens::ragged();
        for length in lengths {
            if length > u32::MAX as usize {
                return self.fail(too_large("tokens in a row", length));
            }
            tokens.add_full(length);
        }
        self.tokens = Some((tokens, None));
        self
    }

    /// The tokens that count, from a reader that has already told them apart.
    pub(crate) fn tokens(mut self, tokens: Tokens) -> Self {
        let width = tokens.width();
        self.tokens = Some((tokens, width));
        self
    }

    /// A column with one value a response. A vector is taken; an array or a slice is small, and is copied.
    pub fn response(mut self, name: impl Into<String>, values: impl Into<Buffer<f64>>) -> Self {
        self.responses.push((name.into(), values.into()));
        self
    }

    /// A token column, f32 or f64: padded [B, T], or one number for each token that counts.
    ///
    /// An owned or shared array is taken without a copy, and so is a [`Padded`](super::Padded) with any strides over memory
    /// that somebody else has; a view is copied.
    pub fn token(mut self, name: impl Into<String>, values: impl Into<TokenValues>) -> Self {
        self.padded.push((name.into(), values.into()));
        self
    }

    /// A ragged token column: a row of its own length for each response.
    pub fn ragged<T: Clone, R: AsRef<[T]>>(
        mut self,
        name: impl Into<String>,
        rows: impl IntoIterator<Item = R>,
    ) -> Self
    where
        FloatBuffer: From<Vec<T>>,
    {
        self.ragged.push((name.into(), Ragged::new(rows)));
        self
    }

    /// A ragged token column whose rows, one after another, begin at `starts`.
    pub(crate) fn ragged_rows(
        mut self,
        name: &str,
        starts: Vec<usize>,
        values: FloatBuffer,
    ) -> Self {
        let rows = Ragged::of_rows(starts, values);
        self.ragged.push((name.to_string(), rows));
        self
    }

    /// The training step that the batch comes from.
    pub fn step(mut self, step: u64) -> Self {
        self.step = step;
        self
    }

    fn fail(mut self, problem: Problem) -> Self {
        self.problem.get_or_insert(problem);
        self
    }

    /// Checks that everything fits together.
    ///
    /// # Errors
    /// The column, the response and what was found, of the first thing that does not.
    pub fn build(self) -> Result<Batch, Diagnostics> {
        self.build_located().map_err(|(_, error)| error.into())
    }

    /// As [`BatchBuilder::build`], with the response at fault where it is one alone.
    pub(crate) fn build_located(mut self) -> Result<Batch, Problem> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let Some(groups) = self.groups.take() else {
            return Err(problem(
                "nothing says which responses belong to one prompt: give each response a group (`group` in JSONL, `index` in padded files, `groups` in the builder)".to_string()
            ));
        };
        if groups.is_empty() {
            return Err(problem("the batch has no responses".to_string()));
        }
        if groups.len() > u32::MAX as usize {
            return Err(too_large("responses", groups.len()));
        }
        self.check_names()?;
        self.check_values(&groups)?;
        let tokens = self.check_tokens(groups.len())?;
        let layout = Layout::new(groups, tokens);
        for (column, values) in &self.padded {
            if let TokenValues::Compact(values) = values
                && values.len() != layout.tokens()
            {
                let (found, expected) = (values.len(), layout.tokens());
                return Err(problem(format!(
                    "`{column}` has {found} numbers, {expected} tokens count"
                )));
            }
        }
        let ragged = self.ragged.into_iter().map(|(name, ragged)| {
            let values = TokenValues::Compact(ragged.compact(&layout));
            (name.into(), values)
        });
        let tokens: BTreeMap<Arc<str>, TokenValues> = ragged
            .chain(self.padded.into_iter().map(|(n, v)| (n.into(), v)))
            .collect();
        Ok(Batch {
            responses: self
                .responses
                .into_iter()
                .map(|(name, values)| (name.into(), values))
                .collect(),
            tokens,
            layout: Arc::new(layout),
            step: self.step,
        })
    }

    fn check_names(&self) -> Result<(), Problem> {
        let responses = self
            .responses
            .iter()
            .map(|(name, _)| (name, Level::Response));
        let padded = self.padded.iter().map(|(name, _)| (name, Level::Token));
        let ragged = self.ragged.iter().map(|(name, _)| (name, Level::Token));
        let mut seen = std::collections::HashSet::new();
        for (name, found) in responses.chain(padded).chain(ragged) {
            if !seen.insert(name) {
                return Err(problem(format!("there are two columns named `{name}`")));
            }
            if let Some(known) = known::column(name)
                && known.level != found
            {
                return Err(problem(format!(
                    "`{name}` was given one value a {found}; it is a {} column{}",
                    known.level, known.hint
                )));
            }
        }
        Ok(())
    }

    fn check_values(&self, groups: &[GroupId]) -> Result<(), Problem> {
        for (column, values) in &self.responses {
            check_responses(column, values.len(), groups.len())?;
            let (allowed, expected): (fn(f64) -> bool, _) = match column.as_str() {
                "reward" => (f64::is_finite, "a finite number"),
                "correct" => (|x| x == 0.0 || x == 1.0, "0 or 1 (false or true)"),
                "length" => (
                    |x| x.is_finite() && x >= 0.0 && x.fract() == 0.0,
                    "a whole number of tokens",
                ),
                _ => continue,
            };
            if let Some(response) = values.iter().position(|&value| !allowed(value)) {
                let what = format!(
                    "response {response} (group {}): `{column}` is {}; it must be {expected}",
                    groups[response], values[response]
                );
                return Err((Some(response), Diagnostic::error(what)));
            }
        }
        Ok(())
    }

    /// The tokens that count, and whether all token columns have the rows that this takes.
    fn check_tokens(&mut self, responses: usize) -> Result<Tokens, Problem> {
        let (tokens, mut width, mut from) = match self.tokens.take() {
            Some((tokens, width)) => {
                check_responses("mask", tokens.responses(), responses)?;
                (Some(tokens), width, "mask".to_string())
            }
            None => (None, None, String::new()),
        };
        let ragged_mask = tokens.is_some() && width.is_none();
        for (column, values) in &self.padded {
            let Some((rows, columns)) = values.shape() else {
                continue;
            };
            check_responses(column, rows, responses)?;
            if ragged_mask || !self.ragged.is_empty() {
                let ragged = self.ragged.first().map_or(&from, |(name, _)| name);
                return Err(problem(format!(
                    "`{column}` is padded [B, T], `{ragged}` is ragged: give all token columns of a batch in one way"
                )));
            }
            let expected = *width.get_or_insert_with(|| {
                from.clone_from(column);
                columns
            });
            if columns != expected {
                return Err(problem(format!(
                    "`{column}` is {columns} tokens wide, `{from}` is {expected} wide: padded columns share one shape [B, T]"
                )));
            }
        }
        let tokens = match (tokens, width, self.ragged.first()) {
            (Some(tokens), ..) => tokens,
            (None, Some(width), _) => {
                full(Tokens::padded(width), std::iter::repeat_n(width, responses))?
            }
            (None, None, Some((name, rows))) => {
                check_responses(name, rows.responses(), responses)?;
                from.clone_from(name);
                full(
                    Tokens::ragged(),
                    (0..rows.responses()).map(|response| rows.length(response)),
                )?
            }
            (None, None, None) => self.tokens_by_length(responses)?,
        };
        for (column, rows) in &self.ragged {
            check_responses(column, rows.responses(), responses)?;
            for response in 0..responses {
                let found = rows.length(response);
                let expected = tokens.row_length(response);
                if found != expected {
                    let what = format!(
                        "response {response}: `{column}` has {found} tokens, `{from}` has {expected}: the token arrays of one response are of one length"
                    );
                    return Err((Some(response), Diagnostic::error(what)));
                }
            }
        }
        Ok(tokens)
    }

    fn tokens_by_length(&self, responses: usize) -> Result<Tokens, Problem> {
        match self.responses.iter().find(|(name, _)| name == "length") {
            // `check_values` has seen that they are whole.
            Some((_, lengths)) => full(
                Tokens::ragged(),
                lengths.iter().map(|&length| length as usize),
            ),
            None => full(Tokens::ragged(), std::iter::repeat_n(0, responses)),
        }
    }
}

fn full(mut tokens: Tokens, lengths: impl Iterator<Item = usize>) -> Result<Tokens, Problem> {
    for length in lengths {
        if length > u32::MAX as usize {
            return Err(too_large("tokens in a row", length));
        }
        tokens.add_full(length);
    }
    Ok(tokens)
}

fn too_large(what: &str, found: usize) -> Problem {
    problem(format!("{found} {what}: at most {} are possible", u32::MAX))
}

fn check_responses(column: &str, found: usize, expected: usize) -> Result<(), Problem> {
    if found == expected {
        return Ok(());
    }
    Err(problem(format!(
        "`{column}` has {found} responses, the batch has {expected} (as `group` says)"
    )))
}

/// Which tokens a padded mask counts, or the response, the column and the value of what is neither 0 nor 1.
pub(super) fn tokens_of_mask<M: MaskValue>(
    mask: ArrayView2<'_, M>,
) -> Result<Tokens, (usize, usize, f64)> {
    let runs_of = |row: &[M]| -> Result<Vec<Run>, (usize, f64)> {
        let how_many = |from: usize, wanted: f64| {
            let values = row[from..].iter();
            values.take_while(|value| value.number() == wanted).count()
        };
        let mut runs = Vec::new();
        let mut end = 0;
        loop {
            let start = end + how_many(end, 0.0);
            end = start + how_many(start, 1.0);
            match row.get(start) {
                None => return Ok(runs),
                Some(value) if end == start => return Err((start, value.number())),
                // The caller has seen that rows stay below 2^32 tokens.
                Some(_) => runs.push(Run {
                    start: start as u32,
                    len: (end - start) as u32,
                }),
            }
        }
    };
    let runs_of = |row: ArrayView1<M>| match row.as_slice() {
        Some(row) => runs_of(row),
        None => runs_of(&row.to_vec()),
    };
    let rows = (0..mask.nrows()).into_par_iter();
    let rows: Vec<_> = rows.map(|row| runs_of(mask.row(row))).collect();
    let mut tokens = Tokens::padded(mask.ncols());
    for (row, runs) in rows.into_iter().enumerate() {
        let runs = runs.map_err(|(column, value)| (row, column, value))?;
        tokens.add_runs(&runs, mask.ncols());
    }
    Ok(tokens)
}
