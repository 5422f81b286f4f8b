//! Columns as a builder gets them, before it is known which of their tokens count.

use super::column::each_layout;
use super::{Buffer, FloatBuffer, Layout, TokenValues};

/// Rows of different lengths, one after another.
#[derive(Clone, Debug)]
pub(crate) struct Ragged {
    /// The start of each row, and the end of the last one.
    pub(crate) starts: Vec<usize>,
    pub(crate) values: Vec<f64>,
    /// Whether the values are computed with as f64.
    pub(crate) is_f64: bool,
}

impl Ragged {
    pub(crate) fn new(is_f64: bool) -> Self {
        Ragged {
            starts: vec![0],
            values: Vec::new(),
            is_f64,
        }
    }

    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = f64>) {
        self.values.extend(row);
        self.starts.push(self.values.len());
    }

    fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn length(&self, response: usize) -> usize {
        self.starts[response + 1] - self.starts[response]
    }

    pub(crate) fn row(&self, response: usize) -> &[f64] {
        &self.values[self.starts[response]..self.starts[response + 1]]
    }

    /// Only the tokens that count.
    pub(super) fn compact(self, layout: &Layout) -> TokenValues {
        let mut values = Vec::new();
        if self.values.len() == layout.tokens() {
            values = self.values;
        } else {
            for response in 0..layout.responses() {
                let row = self.row(response);
                let runs = layout.runs(response).iter();
                runs.for_each(|run| values.extend_from_slice(&row[run.columns()]));
            }
        }
        TokenValues::Compact(match self.is_f64 {
            true => values.into(),
            false => FloatBuffer::F32(values.iter().map(|&value| value as f32).collect()),
        })
    }
}

/// A column as it is given, with the values of tokens that do not count.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Responses(Buffer<f64>),
    Tokens(TokenValues),
    Rows(Ragged),
}

impl Given {
    /// The number of responses, and the width of padded rows; `None` for compact tokens.
    pub(super) fn shape(&self) -> Option<(usize, Option<usize>)> {
        match self {
            Given::Responses(values) => Some((values.len(), None)),
            Given::Rows(rows) => Some((rows.rows(), None)),
            Given::Tokens(values) => each_layout!(
                values,
                array => Some((array.shape().0, Some(array.shape().1))),
                _ => None
            ),
        }
    }

    /// The length of a response's row.
    pub(super) fn row_length(&self, response: usize) -> usize {
        match self {
            Given::Rows(rows) => rows.length(response),
            _ => self.shape().and_then(|(_, width)| width).unwrap_or(0),
        }
    }
}
