//! Builds a batch from arrays, padded or ragged, and checks that they fit together.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ndarray::ArrayView2;

use super::given::{Given, Ragged};
use super::layout::{Tokens, TurnOrder};
use super::{Batch, Buffer, Element, GroupId, Layout, Level, Numeric, Texts, TokenValues, known};
use crate::diagnostic::{Diagnostic, Diagnostics};

const NO_GROUPS: &str = "nothing says which responses belong to one prompt: give each response a group (`group` in JSONL, \
                         `index` in padded files, `groups` in the builder)";

/// The error, and the response at fault if it is only one.
type Problem = (Option<usize>, Diagnostic);

fn problem(response: impl Into<Option<usize>>, message: impl Into<String>) -> Problem {
    (response.into(), Diagnostic::error(message.into()))
}

/// Collects the columns of a [`Batch`]; [`BatchBuilder::build`] checks them.
///
/// Groups are always needed. `mask`, `ragged_mask` or `lengths` say which tokens count. Without these, all tokens of the
/// token columns count; without token columns, the response column `length` has the number of tokens.
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
    /// The group of each response, as numbers or strings, in any order.
    pub fn groups<I>(mut self, ids: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<GroupId>,
    {
        self.groups = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// The padded mask [B, T]: 1 (or true) for a token that counts, 0 for others, also between those that count.
    pub fn mask<M: Numeric>(mut self, mask: ArrayView2<'_, M>) -> Self {
        match Tokens::of_mask(mask) {
            Ok(tokens) => return self.tokens(tokens),
            Err((response, token, found)) => self.problem.get_or_insert(problem(
                response,
                format!(
                    "the mask is {found} at response {response}, token {token}: 1 marks a token that counts, 0 one that does not, and nothing else is allowed"
                ),
            )),
        };
        self
    }

    /// The mask of ragged input: one row per response, of any length.
    pub fn ragged_mask<R: AsRef<[bool]>>(self, rows: impl IntoIterator<Item = R>) -> Self {
        let mut tokens = Tokens::new(None);
        for row in rows {
            if tokens.add(row.as_ref()).is_err() {
                unreachable!("a boolean is 0 or 1");
            }
        }
        self.tokens(tokens)
    }

    /// The number of tokens of each response, all of which count.
    pub fn lengths(self, lengths: impl IntoIterator<Item = usize>) -> Self {
        self.tokens(full(None, lengths))
    }

    /// The tokens that count.
    pub(crate) fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// A column with one value per response. A vector is not copied.
    pub fn response(self, name: impl Into<String>, values: impl Into<Buffer<f64>>) -> Self {
        self.column(name, Given::Responses(values.into()))
    }

    /// A token column, f32 or f64: padded [B, T], or one number per token that counts.
    ///
    /// An owned or shared array is not copied, nor is a [`Padded`](super::Padded) with any strides over the memory of another
    /// owner; a view is copied.
    pub fn token(self, name: impl Into<String>, values: impl Into<TokenValues>) -> Self {
        self.column(name, Given::Tokens(values.into()))
    }

    /// A ragged token column: one row per response, of any length.
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

    /// Checks that everything fits together.
    ///
    /// # Errors
    /// The first thing that does not fit: the column, the response and the value.
    pub fn build(self) -> Result<Batch, Diagnostics> {
        self.build_located().map_err(|(_, error)| error.into())
    }

    /// As [`BatchBuilder::build`], with the response at fault if it is only one.
    pub(crate) fn build_located(mut self) -> Result<Batch, Problem> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let groups = self.groups.take().ok_or_else(|| problem(None, NO_GROUPS))?;
        if groups.is_empty() {
            return Err(problem(None, "the batch has no responses"));
        }
        check_size(None, "responses", groups.len())?;
        for (name, texts) in &self.texts {
            check_responses(name, texts.len(), groups.len())?;
        }
        self.check_columns(&groups)?;
        let tokens = self.check_tokens(groups.len())?;
        let layout = Layout::new(groups, tokens, self.turns());
        let (mut responses, mut tokens) = (BTreeMap::new(), BTreeMap::new());
        for (name, given) in self.columns {
            let values = match given {
                Given::Responses(values) => {
                    responses.insert(name.into(), values);
                    continue;
                }
                Given::Tokens(values) => values,
                Given::Rows(rows) => rows.compact(&layout),
            };
            if let TokenValues::Compact(values) = &values
                && values.len() != layout.tokens()
            {
                let (found, expected) = (values.len(), layout.tokens());
                let message = format!("`{name}` has {found} numbers, {expected} tokens count");
                return Err(problem(None, message));
            }
            tokens.insert(name.into(), values);
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

    /// The values of a response column.
    fn responses(&self, name: &str) -> Option<&[f64]> {
        let mut columns = self.columns.iter();
        match columns.find(|(own, _)| own == name)? {
            (_, Given::Responses(values)) => Some(values),
            _ => None,
        }
    }

    /// The trajectories, from the columns `trajectory` and `turn`.
    fn turns(&self) -> Option<TurnOrder> {
        let turn = self.responses("turn");
        if let Some(texts) = self.texts.get("trajectory") {
            return Some(TurnOrder::new(texts.iter(), turn));
        }
        // -0.0 and 0.0 are one key.
        let keys = self.responses("trajectory")?.iter();
        Some(TurnOrder::new(keys.map(|x| (x + 0.0).to_bits()), turn))
    }

    /// The names, levels, sizes and response values of the columns.
    fn check_columns(&self, groups: &[GroupId]) -> Result<(), Problem> {
        let mut seen = HashSet::new();
        for (name, given) in &self.columns {
            if !seen.insert(name) {
                let message = format!("there are two columns named `{name}`");
                return Err(problem(None, message));
            }
            let (found, values) = match given {
                Given::Responses(values) => (Level::Response, &values[..]),
                _ => (Level::Token, &[][..]),
            };
            let known = known::column(name);
            if let Some(known) = known.filter(|known| known.level != found) {
                let (level, hint) = (known.level, known.hint);
                let message =
                    format!("`{name}` was given one value a {found}; it is a {level} column{hint}");
                return Err(problem(None, message));
            }
            if let Some((found, _)) = given.shape() {
                check_responses(name, found, groups.len())?;
            }
            if let Some((response, message)) = known.and_then(|known| known.misfit(values)) {
                let group = &groups[response];
                let message = format!("response {response} (group {group}): {message}");
                return Err(problem(response, message));
            }
        }
        Ok(())
    }

    /// The tokens that count. All token columns must have rows of these lengths.
    fn check_tokens(&mut self, responses: usize) -> Result<Tokens, Problem> {
        let mask = self.tokens.take();
        let rows = self.columns.iter().filter_map(|(name, given)| match given {
            Given::Responses(_) => None,
            given => Some((name.as_str(), given, given.shape()?.1)),
        });
        let (tokens, from) = match (mask, rows.clone().next()) {
            (Some(tokens), _) => (tokens, "mask"),
            (None, Some((name, given, width))) => {
                let lengths = (0..responses).map(|response| given.row_length(response));
                (full(width, lengths), name)
            }
            (None, None) => {
                // `check_columns` has checked that they are whole numbers.
                let lengths = self.responses("length").unwrap_or_default().iter();
                let lengths = lengths.map(|&length| length as usize);
                let lengths = lengths.chain(std::iter::repeat(0)).take(responses);
                (full(None, lengths), "length")
            }
        };
        check_responses(from, tokens.responses(), responses)?;
        for response in 0..responses {
            let length = tokens.row_length(response);
            check_size(Some(response), "tokens in one response", length)?;
            for (column, given, _) in rows.clone() {
                let found = given.row_length(response);
                if found != length {
                    let message = format!(
                        "response {response}: `{column}` has {found} tokens, `{from}` has {length}: the token columns of a batch are padded to one [B, T], or ragged with one length a response"
                    );
                    return Err(problem(response, message));
                }
            }
        }
        Ok(tokens)
    }
}

/// Rows in which all tokens count.
fn full(width: Option<usize>, lengths: impl IntoIterator<Item = usize>) -> Tokens {
    let mut tokens = Tokens::new(width);
    for length in lengths {
        tokens.add_full(length);
    }
    tokens
}

fn check_size(response: Option<usize>, what: &str, found: usize) -> Result<(), Problem> {
    let most = u32::MAX;
    match found <= most as usize {
        true => Ok(()),
        false => {
            let message = format!("{found} {what}: at most {most} are possible");
            Err(problem(response, message))
        }
    }
}

fn check_responses(column: &str, found: usize, expected: usize) -> Result<(), Problem> {
    match found == expected {
        true => Ok(()),
        false => {
            let message = format!(
                "`{column}` has {found} responses, the batch has {expected} (as `group` says)"
            );
            Err(problem(None, message))
        }
    }
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
