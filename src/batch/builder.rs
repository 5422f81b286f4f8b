//! Builds a batch from padded or ragged arrays, and checks that the arrays fit together.

use std::collections::BTreeMap;
use std::sync::Arc;

use ndarray::ArrayView2;

use super::layout::{Tokens, TurnOrder};
use super::{
    Batch, Buffer, Column, FloatBuffer, GroupId, Layout, Numeric, TextColumns, TokenValues,
    column_names,
};
use crate::diagnostic::{Diagnostic, Diagnostics};

const NO_GROUPS: &str = "nothing says which responses belong to one prompt: give each response a group (`group` in JSONL, \
                         `index` in padded files, `groups` in the builder)";

/// An error, and the index of the response that caused it, if a single response did.
type BuildError = (Option<usize>, Diagnostic);

fn problem(response: impl Into<Option<usize>>, message: impl Into<String>) -> BuildError {
    (response.into(), Diagnostic::error(message.into()))
}

/// Collects the columns of a [`Batch`]; [`BatchBuilder::build`] checks them.
///
/// Groups are required. `mask`, `ragged_mask` or `lengths` says which tokens count. If none of them is called, all tokens of the
/// padded or ragged columns count. If there are no such columns either, the response column `length` gives the numbers of tokens;
/// without it, no response has a token.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    groups: Option<Vec<GroupId>>,
    tokens: Option<Result<Tokens, BuildError>>,
    columns: Vec<(Arc<str>, Column)>,
    texts: TextColumns,
    step: Option<u64>,
}

impl BatchBuilder {
    /// Sets the group id of each response, a number or a string. The responses of a group need not be adjacent.
    pub fn groups<I>(mut self, ids: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<GroupId>,
    {
        self.groups = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the padded mask [B, T]: 1 (or true) marks a token that counts. Zeros may occur anywhere in a row.
    pub fn mask<M: Numeric>(mut self, mask: ArrayView2<'_, M>) -> Self {
        let tokens = Tokens::of_mask(mask).map_err(|(response, token, found)| {
            let message = format!(
                "the mask is {found} at response {response}, token {token}: 1 marks a token that counts, 0 a token that does not, and nothing else is allowed"
            );
            problem(response, message)
        });
        self.tokens = Some(tokens);
        self
    }

    /// Sets the mask of ragged input: one row per response, of any length.
    pub fn ragged_mask<R: AsRef<[bool]>>(self, rows: impl IntoIterator<Item = R>) -> Self {
        let mut tokens = Tokens::new(0);
        for row in rows {
            if tokens.add(row.as_ref()).is_err() {
                unreachable!("a boolean is 0 or 1");
            }
        }
        self.tokens(tokens)
    }

    /// Sets the number of tokens of each response; all tokens count.
    pub fn lengths(self, lengths: impl IntoIterator<Item = usize>) -> Self {
        self.tokens(Tokens::full(lengths))
    }

    /// Sets the mask, as the runs of the tokens that count.
    pub(crate) fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(Ok(tokens));
        self
    }

    /// Adds a column with one value per response. A vector of f64 is not copied, nor is an owned array of f64 that lies in memory
    /// in order.
    pub fn response(self, name: impl Into<String>, values: impl Into<Buffer<f64>>) -> Self {
        self.column(name.into(), Column::Response(values.into()))
    }

    /// Adds a token column in f32 or f64, which is padded [B, T] or has one number per token that counts.
    ///
    /// An owned array of f32 or f64 in row order is not copied, nor is the memory of another owner ([`TokenValues::padded`]). A
    /// view is copied, and half precision is converted to f32.
    pub fn token(self, name: impl Into<String>, values: impl Into<TokenValues>) -> Self {
        self.column(name.into(), Column::Token(values.into()))
    }

    /// Adds a ragged token column: one row per response, of any length.
    pub fn ragged<T: Clone + Send + Sync + 'static, R: AsRef<[T]>>(
        self,
        name: impl Into<String>,
        rows: impl IntoIterator<Item = R>,
    ) -> Self
    where
        Buffer<T>: Into<FloatBuffer>,
    {
        let (mut values, mut starts) = (Vec::new(), vec![0]);
        for row in rows {
            values.extend_from_slice(row.as_ref());
            starts.push(values.len());
        }
        self.token(name, TokenValues::ragged(values.into(), starts.into()))
    }

    fn column(mut self, name: String, values: Column) -> Self {
        self.columns.push((name.into(), values));
        self
    }

    /// Adds a text column with one text per response, such as `completion`.
    pub fn text<T: Into<Arc<str>>>(
        self,
        name: impl Into<Arc<str>>,
        texts: impl IntoIterator<Item = T>,
    ) -> Self {
        self.text_buffer(name, texts.into_iter().map(Into::into).collect())
    }

    /// Works like [`BatchBuilder::text`], for texts in shared memory.
    pub fn text_buffer(mut self, name: impl Into<Arc<str>>, texts: Buffer<Arc<str>>) -> Self {
        self.texts.insert(name.into(), texts);
        self
    }

    /// Sets the training step of the batch.
    pub fn step(mut self, step: u64) -> Self {
        self.step = Some(step);
        self
    }

    /// Checks that the columns fit together, and builds the batch.
    ///
    /// # Errors
    /// There are no groups or no responses, a mask or a column has a value that is not allowed, two columns have the same name, a
    /// response has too many tokens, or the columns do not fit together. If a single value is the cause, the error names the
    /// value and its response.
    pub fn build(self) -> Result<Batch, Diagnostics> {
        self.build_located().map_err(|(_, error)| error.into())
    }

    /// Works like [`BatchBuilder::build`], but the error also contains the index of the response that caused it, if a single
    /// response did.
    pub(crate) fn build_located(mut self) -> Result<Batch, BuildError> {
        let tokens = self.tokens.take().transpose()?;
        let groups = self.groups.take().ok_or_else(|| problem(None, NO_GROUPS))?;
        if groups.is_empty() {
            return Err(problem(None, "the batch has no responses"));
        }
        self.check_responses(tokens.as_ref(), groups.len())?;
        self.check_columns(&groups)?;
        let tokens = self.check_tokens(tokens, groups.len())?;
        let layout = Layout::new(groups, |id| id, tokens, self.turns());
        let (mut columns, mut is_f64) = (BTreeMap::new(), None);
        for (name, mut values) in self.columns {
            if let Column::Token(given) = values {
                let (found, expected) = (given.numbers().len(), layout.tokens());
                if given.responses().is_none() && found != expected {
                    let message =
                        format!("`{name}` has {found} numbers, but {expected} tokens count");
                    return Err(problem(None, message));
                }
                is_f64 = is_f64.max(Some(given.is_f64()));
                values = Column::Token(given.in_layout(&layout));
            }
            if self.texts.contains_key(&name) || columns.insert(name.clone(), values).is_some() {
                let message = format!("there are two columns named `{name}`");
                return Err(problem(None, message));
            }
        }
        Ok(Batch {
            is_f64: is_f64.unwrap_or(true),
            columns,
            texts: self.texts,
            verified: Arc::default(),
            layout: Arc::new(layout),
            step: self.step,
            finest: None,
        })
    }

    fn responses(&self, name: &str) -> Option<&[f64]> {
        let column = self.columns.iter().find(|(given, _)| &**given == name)?;
        column.1.response().map(|values| &**values)
    }

    /// Returns the order of turns that the columns `trajectory` and `turn` define.
    fn turns(&self) -> Option<TurnOrder> {
        let turn = self.responses("turn");
        if let Some(texts) = self.texts.get("trajectory") {
            return Some(TurnOrder::new(texts.iter(), turn));
        }
        // Adding 0.0 turns -0.0 into 0.0, so that -0.0 and 0.0 are the same key.
        let keys = self.responses("trajectory")?.iter();
        Some(TurnOrder::new(keys.map(|x| (x + 0.0).to_bits()), turn))
    }

    /// Checks that texts, columns and the mask have as many responses as there are group ids.
    fn check_responses(&self, mask: Option<&Tokens>, expected: usize) -> Result<(), BuildError> {
        let texts = self.texts.iter();
        let texts = texts.map(|(name, texts)| (&**name, Some(texts.len())));
        let columns = self.columns.iter();
        let columns = columns.map(|(name, values)| match values {
            Column::Response(values) => (&**name, Some(values.len())),
            Column::Token(values) => (&**name, values.responses()),
        });
        let mask = mask.map(|tokens| ("mask", Some(tokens.responses())));
        for (column, found) in texts.chain(columns).chain(mask) {
            if let Some(found) = found.filter(|found| *found != expected) {
                let message = format!(
                    "`{column}` has {found} responses, but the batch has {expected} (according to `group`)"
                );
                return Err(problem(None, message));
            }
        }
        Ok(())
    }

    /// Checks the level of each column whose name a batch knows and, if it is a response column, its values.
    fn check_columns(&self, groups: &[GroupId]) -> Result<(), BuildError> {
        for (name, column) in &self.columns {
            let known = column_names::column(name);
            if let Some((response, message)) = known.and_then(|known| known.misfit(column)) {
                let place = response.map(|at| format!("response {at} (group {}): ", groups[at]));
                let place = place.unwrap_or_default();
                return Err(problem(response, format!("{place}{message}")));
            }
        }
        Ok(())
    }

    /// Returns the tokens that count. The rows of the mask and of all token columns must have the same lengths.
    fn check_tokens(&self, mask: Option<Tokens>, responses: usize) -> Result<Tokens, BuildError> {
        let rows = self.columns.iter().filter_map(|(name, values)| {
            let rows = values.token().filter(|values| values.responses().is_some());
            Some((&**name, rows?))
        });
        let rows: Vec<(&str, &TokenValues)> = rows.collect();
        let (tokens, from) = match (mask, rows.first()) {
            (Some(tokens), _) => (tokens, "mask"),
            (None, Some((name, first))) => {
                let lengths = (0..responses).filter_map(|at| Some(first.row(at)?.len()));
                (Tokens::full(lengths), *name)
            }
            (None, None) => {
                // `check_columns` has checked that lengths are integers. A length beyond `usize` becomes the largest `usize`,
                // which is refused below.
                let lengths = self.responses("length").unwrap_or_default().iter();
                let lengths = lengths.map(|&length| length as usize);
                let lengths = lengths.chain(std::iter::repeat(0)).take(responses);
                (Tokens::full(lengths), "length")
            }
        };
        for response in 0..responses {
            let (length, most) = (tokens.row_length(response), u32::MAX);
            if length > most as usize {
                let message =
                    format!("a response has {length} tokens; at most {most} are possible");
                return Err(problem(response, message));
            }
            for (column, values) in &rows {
                let found = values.row(response).map_or(length, |row| row.len());
                if found != length {
                    let message = format!(
                        "response {response}: `{column}` has {found} tokens, but `{from}` has {length}: pad all token columns to one shape [B, T], or give each response rows of one length"
                    );
                    return Err(problem(response, message));
                }
            }
        }
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::batch::{Computed, Level};

    #[test]
    fn a_column_put_in_later_is_held_to_the_same() {
        let of = |groups: [i64; 2], lengths| {
            let batch = Batch::builder().groups(groups).lengths(lengths).build();
            batch.unwrap()
        };
        let batch = of([0, 0], [1, 2]);
        for (name, level, values, refused) in [
            (
                "reward",
                Level::Response,
                vec![1.0, f64::NAN],
                "response 1 of group 0: `reward` is NaN",
            ),
            (
                "correct",
                Level::Response,
                vec![0.3, 1.0],
                "response 0 of group 0: `correct` is 0.3",
            ),
            (
                "weight",
                Level::Response,
                vec![-1.0, 1.0],
                "response 0 of group 0: `weight` is -1",
            ),
            (
                "reward",
                Level::Token,
                vec![0.0; 3],
                "`reward` was given one value per token",
            ),
            (
                "mine",
                Level::Group,
                vec![0.0],
                "`mine` is a group tensor; a column has values per response or per token",
            ),
            ("reward", Level::Response, vec![0.5, -1.0], ""),
            ("mine", Level::Response, vec![f64::NAN; 2], ""),
        ] {
            let values = Computed::new(batch.layout().clone(), level, values);
            let with = batch.clone().with(name, &values);
            let why = with
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(
                why.starts_with(refused) && why.is_empty() == refused.is_empty(),
                "{why}"
            );
        }
        // Numbers replace the texts of their name, with what was computed from the texts.
        let texts = Batch::builder().groups([0, 0]).text("solution", ["5", "5"]);
        let texts = texts.text("completion", ["5", "6"]).build().unwrap();
        let right = |batch: &Batch| {
            Some(
                batch
                    .is_verifiable()
                    .then(|| batch.verified(&|| true))??
                    .to_vec(),
            )
        };
        let values = Computed::new(texts.layout().clone(), Level::Response, vec![6.0; 2]);
        let before = right(&texts);
        let with = texts.with("solution", &values).unwrap();
        assert!(with.text("solution").is_none());
        let expected = |right: [f64; 2]| cfg!(feature = "answers").then(|| right.to_vec());
        assert_eq!(before, expected([1.0, 0.0]));
        assert_eq!(right(&with), expected([0.0, 1.0]));
        // As many values, in the same layout and in other layouts.
        for (other, is_fit) in [
            (of([0, 0], [1, 2]), true),
            (of([0, 1], [1, 2]), false),
            (of([7, 7], [1, 2]), false),
            (of([0, 0], [2, 1]), false),
        ] {
            let values = Computed::new(other.layout().clone(), Level::Response, vec![0.0; 2]);
            assert_eq!(
                batch.clone().with("mine", &values).is_ok(),
                is_fit,
                "{other:?}"
            );
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
                "response 0: `logp` has 3 tokens, but `mask` has 2",
            ),
            (mixed, "response 1: `logp` has 3 tokens, but `mask` has 1"),
            (ragged, "response 1: `logp` has 1 tokens, but `value` has 2"),
            (
                batch().text("prompt", vec![String::new()]),
                "`prompt` has 1 responses, but the batch has 2",
            ),
        ] {
            let error = built.build().unwrap_err().to_string();
            assert!(error.starts_with(found), "{error}");
        }
    }

    #[test]
    fn names_are_of_one_column() {
        let twice = || Batch::builder().groups([0]).response("score", vec![1.0]);
        for built in [
            twice().response("score", vec![1.0]),
            twice().text("score", ["good"]),
        ] {
            let error = built.build().unwrap_err().to_string();
            assert_eq!(error, "there are two columns named `score`");
        }
    }
}
