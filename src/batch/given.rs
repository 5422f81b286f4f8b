//! Columns as a builder gets them, before it is known which of their tokens count.

#[cfg(feature = "files")]
use std::ops::Range;

#[cfg(feature = "files")]
use super::Element;
use super::column::each_layout;
use super::{Buffer, FloatBuffer, Layout, TokenValues};

/// Rows of different lengths, one after another.
#[derive(Clone, Debug)]
pub(crate) struct Ragged {
    /// The start of each row, and the end of the last one.
    starts: Vec<usize>,
    values: Vec<f64>,
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

    /// Adds only the length of a row, for a column whose values nobody reads.
    #[cfg(feature = "files")]
    pub(crate) fn push_length(&mut self, length: usize) {
        self.starts.push(self.starts[self.rows()] + length);
    }

    /// Adds the rows of more responses.
    #[cfg(feature = "files")]
    pub(crate) fn append(&mut self, other: &Ragged) {
        let before = self.starts[self.rows()];
        self.values.extend_from_slice(&other.values);
        let starts = other.starts[1..].iter();
        self.starts.extend(starts.map(|start| before + start));
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

    /// The first of a response's values that is `wanted`: its column and value, and the number of wanted values. Values
    /// from `usual.0` to `usual.1` are never wanted.
    #[cfg(feature = "files")]
    pub(crate) fn scan(
        &self,
        response: usize,
        columns: Range<usize>,
        usual: (f32, f32),
        wanted: impl Fn(f64) -> bool + Copy,
    ) -> Option<(usize, f64, usize)> {
        let start = columns.start;
        let (first, value, count) = match self {
            Given::Rows(rows) => scan(&rows.row(response)[columns], usual, wanted),
            Given::Tokens(values) => each_layout!(
                values,
                array => scan(&array.cells(response, columns), usual, wanted),
                _ => None
            ),
            Given::Responses(_) => None,
        }?;
        Some((start + first, value, count))
    }
}

/// Most rows have only usual values, which are counted without branches.
#[cfg(feature = "files")]
fn scan<T: Element>(
    row: &[T],
    (low, high): (f32, f32),
    wanted: impl Fn(f64) -> bool,
) -> Option<(usize, f64, usize)> {
    let (low, high) = (T::Wide::from(low), T::Wide::from(high));
    let values = row.iter().map(|value| value.widen());
    let unusual = values
        .clone()
        .map(|x| u32::from(!((x >= low) & (x <= high))));
    if unusual.sum::<u32>() == 0 {
        return None;
    }
    let values = values.map(Into::into).enumerate();
    let mut wanted = values.filter(|&(_, value)| wanted(value));
    let (first, value) = wanted.next()?;
    Some((first, value, 1 + wanted.count()))
}
