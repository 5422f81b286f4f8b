//! The batch: what one training step produced, as named columns over a layout.

mod buffer;
mod builder;
mod column;
mod computed;
mod example;
pub mod known;
pub(crate) mod layout;
mod level;
mod zeros;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use advlab_answers::Verdict;

pub use buffer::{Buffer, Element, FloatBuffer, Owner, Padded};
pub use builder::BatchBuilder;
pub use column::TokenValues;
pub use computed::Computed;
pub(crate) use computed::{Rows, has_shape_of};
pub use layout::{GroupId, Layout, Numeric, Run};
pub use level::Level;
pub use zeros::Zeros;

/// Columns of references, the first of which counts.
pub(crate) const SOLUTIONS: [&str; 2] = ["solution", "answer"];

/// Texts by name, one a response each.
type Texts = BTreeMap<Arc<str>, Buffer<Arc<str>>>;

/// The data of one training step: named columns over a [`Layout`].
///
/// A response column has one f64 a response; a token column f32 or f64 for each token. Columns share the memory of
/// whoever made them, so a batch is cheap to clone and may be kept as long as anybody likes; see [`BatchBuilder`].
#[derive(Clone, Debug)]
pub struct Batch {
    layout: Arc<Layout>,
    responses: BTreeMap<Arc<str>, Buffer<f64>>,
    tokens: BTreeMap<Arc<str>, TokenValues>,
    texts: Texts,
    /// Whether the answers of completions are those of their solutions, once somebody has asked.
    verified: Arc<OnceLock<Buffer<f64>>>,
    pub(crate) is_f64: bool,
    step: Option<u64>,
}

impl Batch {
    /// Starts an empty batch.
    pub fn builder() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Which token belongs to which response, and which response to which group.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The training step that the batch comes from; 0 if none was given.
    pub fn step(&self) -> u64 {
        self.step.unwrap_or(0)
    }

    /// The training step that the batch comes from, if one was given.
    pub fn given_step(&self) -> Option<u64> {
        self.step
    }

    /// The same batch as one of another step.
    #[must_use]
    pub fn at_step(mut self, step: u64) -> Batch {
        self.step = Some(step);
        self
    }

    /// The names of all columns, in alphabetical order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self.column_names().collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// Whether there is a column of that name.
    pub fn has(&self, name: &str) -> bool {
        self.responses.contains_key(name) || self.tokens.contains_key(name)
    }

    /// The names of the response columns, then those of the token columns, each in alphabetical order.
    pub(crate) fn column_names(&self) -> impl Iterator<Item = &str> {
        let names = self.responses.keys().chain(self.tokens.keys());
        names.map(|name| &**name)
    }

    /// A response column: one value a response.
    pub fn response_column(&self, name: &str) -> Option<&[f64]> {
        self.response_buffer(name).map(|values| &**values)
    }

    /// A response column as its buffer, to be shared.
    pub fn response_buffer(&self, name: &str) -> Option<&Buffer<f64>> {
        self.responses.get(name)
    }

    /// All response columns with their names.
    pub fn response_columns(&self) -> impl Iterator<Item = (&str, &Buffer<f64>)> {
        self.responses
            .iter()
            .map(|(name, values)| (&**name, values))
    }

    /// The text columns, one string a response, such as its `prompt` and its `completion`.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &[Arc<str>])> {
        self.texts.iter().map(|(name, texts)| (&**name, &**texts))
    }

    /// A text column by its name.
    pub fn text(&self, name: &str) -> Option<&[Arc<str>]> {
        self.texts.get(name).map(|texts| &**texts)
    }

    /// Whether there is what [`Batch::verified`] compares.
    pub(crate) fn is_verifiable(&self) -> bool {
        let has_text = |name: &str| self.texts.contains_key(name);
        let has = |name: &&str| has_text(name) || self.responses.contains_key(*name);
        has_text("completion") && SOLUTIONS.iter().any(has)
    }

    /// The reference of a response, a text or a number.
    pub fn solution(&self, response: usize) -> Option<Cow<'_, str>> {
        SOLUTIONS.iter().find_map(|name| {
            let text = self.text(name).map(|texts| Cow::from(&*texts[response]));
            let number = || Some(self.response_column(name)?[response].to_string().into());
            text.or_else(number)
        })
    }

    /// 1 where the answer of a response's completion is that of its solution, 0 elsewhere: found once, in parallel. `None`
    /// where there are no such texts, or it may not go on.
    pub(crate) fn verified(&self, may_go_on: &(dyn Fn() -> bool + Sync)) -> Option<Buffer<f64>> {
        if let Some(found) = self.verified.get() {
            return Some(found.clone());
        }
        let completions = self.text("completion")?;
        let right = completions.par_iter().enumerate().map(|(at, completion)| {
            let is_right = advlab_answers::equal(&self.solution(at)?, completion) == Verdict::Equal;
            may_go_on().then_some(f64::from(u8::from(is_right)))
        });
        let right = right.collect::<Option<Vec<f64>>>()?;
        Some(self.verified.get_or_init(|| right.into()).clone())
    }

    /// All token columns with their names.
    pub fn token_columns(&self) -> impl Iterator<Item = (&str, &TokenValues)> {
        self.tokens.iter().map(|(name, values)| (&**name, values))
    }

    /// Whether token tensors that come from coarser ones alone are f64: as the token columns are, where there is one.
    pub(crate) fn is_f64(&self) -> bool {
        self.is_f64
    }

    /// A token column.
    pub fn token_column(&self, name: &str) -> Option<&TokenValues> {
        self.tokens.get(name)
    }

    /// The batch of some of the responses, in the order given.
    pub fn select(&self, responses: &[usize]) -> Batch {
        let of_responses = |(name, values): (&Arc<str>, &Buffer<f64>)| {
            let values = responses.iter().map(|&response| values[response]);
            (name.clone(), values.collect())
        };
        let of_tokens = |(name, values): (&Arc<str>, &TokenValues)| {
            let values = values.select(&self.layout, responses);
            (name.clone(), values.into())
        };
        let of_texts = |(name, texts): (&Arc<str>, &Buffer<Arc<str>>)| {
            let texts = responses.iter().map(|&response| texts[response].clone());
            (name.clone(), texts.collect())
        };
        Batch {
            layout: Arc::new(self.layout.select(responses)),
            responses: self.responses.iter().map(of_responses).collect(),
            tokens: self.tokens.iter().map(of_tokens).collect(),
            texts: self.texts.iter().map(of_texts).collect(),
            verified: Arc::default(),
            ..self.clone()
        }
    }

    /// The batch with values as a column of that name, in place of one that it may have.
    ///
    /// Panics where the values are not of this batch's responses or tokens, and where the builder refuses them: a known column at
    /// another level, a reward that is not finite, a negative weight.
    pub fn with(mut self, name: &str, values: &Computed) -> Batch {
        let (values, level) = (values.buffer(), values.level());
        let size = self.layout.size(level);
        assert_eq!(size, values.len(), "`{name}` is of another batch");
        if let Some(known) = known::column(name) {
            assert_eq!(known.level, level, "`{name}` is a {} column", known.level);
        }
        self.responses.remove(name);
        self.tokens.remove(name);
        match level {
            Level::Response => {
                let values: Vec<f64> = values.iter().collect();
                if let Some((at, expected)) = builder::misfit(name, &values) {
                    panic!(
                        "`{name}` is {} at response {at}; it must be {expected}",
                        values[at]
                    );
                }
                self.responses.insert(name.into(), values.into());
            }
            Level::Token => {
                let name = name.into();
                self.is_f64 |= values.is_f64();
                self.tokens.insert(name, values.clone().into());
            }
            _ => panic!("`{name}` is a {level} tensor, and no column"),
        }
        self
    }
}
