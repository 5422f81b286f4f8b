//! Builds a batch from arrays, padded or ragged, and checks that they fit together.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ndarray::ArrayView2;

use super::column::{Given, Ragged};
use super::known;
use super::layout::{Tokens, TurnOrder};
use super::{Batch, Buffer, Element, GroupId, Layout, Level, Numeric, Texts, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The error, and the response at fault where it is one alone.
type Problem = (Option<usize>, Diagnostic);

fn problem(what: String) -> Problem {
    (None, Diagnostic::error(what))
}

/// Collects the columns of a [`Batch`]; what does not fit is reported by [`BatchBuilder::build`].
///
/// Groups are always needed. The tokens that count come from `mask`, `ragged_mask` or `lengths`; without these, all
/// tokens of the token columns count, and without such columns the response column `length` says how many there are.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    groups: Option<Vec<GroupId>>,
    tokens: Option<Tokens>,
    columns: Vec<(String, Given)>,
    texts: Texts,
    step: Option<u64>,
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
    pub fn mask<M: Numeric>(self, mask: ArrayView2<'_, M>) -> Self {
        match check_length(mask.ncols()).map(|()| Tokens::of_mask(mask)) {
            Ok(Ok(tokens)) => self.tokens(tokens),
            Ok(Err((response, token, found))) => {
                let what = format!(
                    "the mask is {found} at response {response}, token {token}: 1 marks a token that counts, 0 one that does not, and nothing else is allowed"
                );
                self.fail((Some(response), Diagnostic::error(what)))
            }
            Err(problem) => self.fail(problem),
        }
    }

    /// The mask of ragged input: a row of its own length for each response.
    pub fn ragged_mask<R: AsRef<[bool]>>(self, rows: impl IntoIterator<Item = R>) -> Self {
        let mut tokens = Tokens::new(None);
        for row in rows {
            if let Err(problem) = check_length(row.as_ref().len()) {
                return self.fail(problem);
            }
            if tokens.add(row.as_ref()).is_err() {
                unreachable!("a boolean is 0 or 1");
            }
        }
        self.tokens(tokens)
    }

    /// The number of tokens of each response, all of which count.
    pub fn lengths(self, lengths: impl IntoIterator<Item = usize>) -> Self {
        match full(Tokens::new(None), lengths) {
            Ok(tokens) => self.tokens(tokens),
            Err(problem) => self.fail(problem),
        }
    }

    /// The tokens that count, from a reader that has already told them apart.
    pub(crate) fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// A column with one value a response. A vector is taken; an array or a slice is small, and is copied.
    pub fn response(self, name: impl Into<String>, values: impl Into<Buffer<f64>>) -> Self {
        self.column(name, Given::Responses(values.into()))
    }

    /// A token column, f32 or f64: padded [B, T], or one number for each token that counts.
    ///
    /// An owned or shared array is taken without a copy, and so is a [`Padded`](super::Padded) with any strides over
    /// memory that somebody else has; a view is copied.
    pub fn token(self, name: impl Into<String>, values: impl Into<TokenValues>) -> Self {
        self.column(name, Given::Tokens(values.into()))
    }

    /// A ragged token column: a row of its own length for each response.
    pub fn ragged<T: Element, R: AsRef<[T]>>(
        self,
        name: impl Into<String>,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let mut ragged = Ragged::new(size_of::<T::Wide>() == size_of::<f64>());
        for row in rows {
            let row = row.as_ref().iter();
            ragged.push(row.map(|value| value.widen().into()));
        }
        self.column(name, Given::Rows(ragged))
    }

    pub(crate) fn column(mut self, name: impl Into<String>, values: Given) -> Self {
        self.columns.push((name.into(), values));
        self
    }

    /// A text for each response, such as its `completion`.
    pub fn text<T: Into<Arc<str>>>(
        self,
        name: impl Into<Arc<str>>,
        texts: impl IntoIterator<Item = T>,
    ) -> Self {
        self.text_buffer(name, texts.into_iter().map(Into::into).collect())
    }

    /// As [`BatchBuilder::text`], of texts that are shared.
    pub fn text_buffer(mut self, name: impl Into<Arc<str>>, texts: Buffer<Arc<str>>) -> Self {
        self.texts.insert(name.into(), texts);
        self
    }

    /// The training step that the batch comes from.
    pub fn step(mut self, step: u64) -> Self {
        self.step = Some(step);
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
        check_size("responses", groups.len())?;
        self.check_names()?;
        for (name, texts) in &self.texts {
            check_responses(name, texts.len(), groups.len())?;
        }
        self.check_values(&groups)?;
        let tokens = self.check_tokens(groups.len())?;
        let layout = Layout::new(groups, tokens, self.turns());
        let (mut responses, mut tokens) = (BTreeMap::new(), BTreeMap::new());
        for (name, given) in self.columns {
            let name: Arc<str> = name.into();
            match given {
                Given::Responses(values) => drop(responses.insert(name, values)),
                Given::Tokens(values) => drop(tokens.insert(name, values)),
                Given::Rows(rows) => drop(tokens.insert(name, rows.compact(&layout))),
            }
        }
        for (column, values) in &tokens {
            let expected = layout.tokens();
            if let TokenValues::Compact(values) = values
                && values.len() != expected
            {
                let found = values.len();
                return Err(problem(format!(
                    "`{column}` has {found} numbers, {expected} tokens count"
                )));
            }
        }
        Ok(Batch {
            is_f64: tokens.is_empty() || tokens.values().any(TokenValues::is_f64),
            responses,
            tokens,
            texts: self.texts,
            verified: Arc::default(),
            layout: Arc::new(layout),
            step: self.step,
        })
    }

    /// Where the columns `trajectory` and `turn` say so.
    fn turns(&self) -> Option<TurnOrder> {
        let column = |name: &str| {
            let mut columns = self.columns.iter();
            match columns.find(|(own, _)| own == name) {
                Some((_, Given::Responses(values))) => Some(&values[..]),
                _ => None,
            }
        };
        let turn = column("turn");
        match (self.texts.get("trajectory"), column("trajectory")) {
            (Some(texts), _) => Some(TurnOrder::new(texts.iter(), turn)),
            // -0.0 and 0.0 are one.
            (None, Some(keys)) => Some(TurnOrder::new(
                keys.iter().map(|x| (x + 0.0).to_bits()),
                turn,
            )),
            (None, None) => None,
        }
    }

    fn check_names(&self) -> Result<(), Problem> {
        let mut seen = HashSet::new();
        for (name, given) in &self.columns {
            if !seen.insert(name) {
                return Err(problem(format!("there are two columns named `{name}`")));
            }
            let found = match given {
                Given::Responses(_) => Level::Response,
                _ => Level::Token,
            };
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
        for (column, given) in &self.columns {
            if let Some((found, _)) = given.shape() {
                check_responses(column, found, groups.len())?;
            }
            let Given::Responses(values) = given else {
                continue;
            };
            if let Some((response, expected)) = misfit(column, values) {
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
        let mask = self.tokens.take();
        let rows = self.columns.iter().filter_map(|(name, given)| match given {
            Given::Responses(_) => None,
            given => Some((name.as_str(), given, given.shape()?.1)),
        });
        let (tokens, from) = match (mask, rows.clone().next()) {
            (Some(tokens), _) => (tokens, "mask"),
            (None, Some((name, given, width))) => {
                let tokens = Tokens::new(width);
                let lengths = (0..responses).map(|response| given.row_length(response));
                (full(tokens, lengths)?, name)
            }
            (None, None) => (self.tokens_by_length(responses)?, "length"),
        };
        check_responses(from, tokens.responses(), responses)?;
        for (column, given, _) in rows {
            let differs =
                |&response: &usize| given.row_length(response) != tokens.row_length(response);
            if let Some(response) = (0..responses).find(differs) {
                let what = format!(
                    "response {response}: `{column}` has {} tokens, `{from}` has {}: the token columns of a batch are padded to one [B, T], or ragged with one length a response",
                    given.row_length(response),
                    tokens.row_length(response)
                );
                return Err((Some(response), Diagnostic::error(what)));
            }
        }
        Ok(tokens)
    }

    fn tokens_by_length(&self, responses: usize) -> Result<Tokens, Problem> {
        let length = self.columns.iter().find(|(name, _)| name == "length");
        let lengths = match length {
            // `check_values` has seen that they are whole.
            Some((_, Given::Responses(lengths))) => lengths.iter().map(|&x| x as usize).collect(),
            _ => vec![0; responses],
        };
        full(Tokens::new(None), lengths)
    }
}

/// The first response whose value a column of that name cannot have, and what it can.
pub(super) fn misfit(column: &str, values: &[f64]) -> Option<(usize, &'static str)> {
    let (allowed, expected): (fn(f64) -> bool, _) = match column {
        "reward" => (f64::is_finite, "a finite number"),
        "weight" => (|x| x.is_finite() && x >= 0.0, "a number from 0 on"),
        "correct" => (|x| x == 0.0 || x == 1.0, "0 or 1 (false or true)"),
        "length" => (
            |x| x.is_finite() && x >= 0.0 && x.fract() == 0.0,
            "a whole number of tokens",
        ),
        _ => return None,
    };
    let response = values.iter().position(|&value| !allowed(value))?;
    Some((response, expected))
}

fn full(mut tokens: Tokens, lengths: impl IntoIterator<Item = usize>) -> Result<Tokens, Problem> {
    for (response, length) in lengths.into_iter().enumerate() {
        check_length(length).map_err(|(_, error)| (Some(response), error))?;
        tokens.add_full(length);
    }
    Ok(tokens)
}

fn check_length(row: usize) -> Result<(), Problem> {
    check_size("tokens in one response", row)
}

fn check_size(what: &str, found: usize) -> Result<(), Problem> {
    let most = u32::MAX;
    if found <= most as usize {
        return Ok(());
    }
    Err(problem(format!(
        "{found} {what}: at most {most} are possible"
    )))
}

fn check_responses(column: &str, found: usize, expected: usize) -> Result<(), Problem> {
    if found == expected {
        return Ok(());
    }
    Err(problem(format!(
        "`{column}` has {found} responses, the batch has {expected} (as `group` says)"
    )))
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::batch::Computed;
    use std::panic::AssertUnwindSafe;

    #[test]
    fn a_column_put_in_later_is_held_to_the_same() {
        let batch = Batch::builder().groups([0, 0]).lengths([1, 2]).build();
        let batch = batch.unwrap();
        for (name, level, values, refused) in [
            ("reward", Level::Response, vec![1.0, f64::NAN], true),
            ("correct", Level::Response, vec![0.3, 1.0], true),
            ("weight", Level::Response, vec![-1.0, 1.0], true),
            ("reward", Level::Token, vec![0.0; 3], true),
            ("reward", Level::Response, vec![0.5, -1.0], false),
            ("mine", Level::Response, vec![f64::NAN; 2], false),
        ] {
            let values = Computed::new(batch.layout().clone(), level, values);
            let with = AssertUnwindSafe(|| batch.clone().with(name, &values));
            let with = std::panic::catch_unwind(with);
            assert_eq!(with.is_err(), refused, "{name}");
        }
    }

    #[test]
    fn rows_of_another_length_are_refused_padded_or_ragged() {
        let batch = || Batch::builder().groups([0, 0]);
        let padded = || Array2::<f32>::zeros((2, 3));
        let of_other_width = batch()
            .mask(Array2::<u8>::ones((2, 2)).view())
            .token("logp", padded());
        let mixed = batch().lengths([3, 1]).token("logp", padded());
        let ragged = batch()
            .ragged("value", [vec![1.0], vec![2.0, 3.0]])
            .ragged::<f64, _>("logp", [[1.0], [2.0]]);
        for (built, found) in [
            (
                of_other_width,
                "response 0: `logp` has 3 tokens, `mask` has 2",
            ),
            (mixed, "response 1: `logp` has 3 tokens, `mask` has 1"),
            (ragged, "response 1: `logp` has 1 tokens, `value` has 2"),
            (
                batch().text("prompt", vec![String::new()]),
                "`prompt` has 1 responses, the batch has 2",
            ),
        ] {
            let error = built.build().unwrap_err().to_string();
            assert!(error.starts_with(found), "{error}");
        }
    }
}
