//! The batch: what one training step produced, as named columns over a layout.

mod builder;
mod column;
mod error;
mod example;
mod files;
pub(crate) mod known;
pub(crate) mod layout;
mod lend;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use builder::{BatchBuilder, MaskValue, RaggedValue};
pub use column::{Floats, ResponseValues, TokenValues};
pub(crate) use column::{Row, TokenStore};
pub use error::BatchError;
pub(crate) use files::Replacement;
pub use files::{
    Advantage, Dtype, Mapping, Note, ReadError, ReadOptions, Rollouts, WriteError, read,
};
pub use layout::{GroupId, Layout, Run};
pub(crate) use lend::Lent;

/// What one training step produced: named columns over a [`Layout`].
///
/// A response column has one f64 a response; a token column f32 or f64 for each token. Columns that were given as
/// views are borrowed for `'a`, never copied; see [`BatchBuilder`].
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    layout: Arc<Layout>,
    responses: BTreeMap<Arc<str>, Arc<[f64]>>,
    tokens: BTreeMap<Arc<str>, TokenValues<'a>>,
    step: u64,
}

impl<'a> Batch<'a> {
    /// Starts an empty batch.
    pub fn builder() -> BatchBuilder<'a> {
        BatchBuilder::default()
    }

    /// Which token belongs to which response, and which response to which group.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The training step that the batch comes from; 0 where nobody said.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The names of all columns, in alphabetical order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self
            .responses
            .keys()
            .chain(self.tokens.keys())
            .map(|name| &**name)
            .collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// Whether there is a column of that name.
    pub fn has(&self, name: &str) -> bool {
        self.responses.contains_key(name) || self.tokens.contains_key(name)
    }

    /// A response column: one value a response.
    pub fn response_column(&self, name: &str) -> Option<&[f64]> {
        self.responses.get(name).map(|values| &**values)
    }

    /// A token column.
    pub fn token_column(&self, name: &str) -> Option<&TokenValues<'a>> {
        self.tokens.get(name)
    }
}
