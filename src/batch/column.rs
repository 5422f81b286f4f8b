//! The values of columns: one a response, or one a token.

use half::{bf16, f16};
use ndarray::{ArcArray2, Array1, Array2, ArrayView1, ArrayView2};

use super::buffer::{Buffer, Element, FloatBuffer, Padded};
use super::{Layout, Numeric};

/// The values of a token column.
///
/// Padded arrays are [B, T], one row a response in batch order; what stands where the mask is 0 is never read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TokenValues {
    /// A padded array, widened to f32 as it is read.
    F16(Padded<f16>),
    /// A padded array, widened to f32 as it is read.
    Bf16(Padded<bf16>),
    /// A padded array.
    F32(Padded<f32>),
    /// A padded array.
    F64(Padded<f64>),
    /// The tokens that count, response by response: one number a token of the layout.
    Compact(FloatBuffer),
}

/// Evaluates one expression for a padded array of any type, or another one for compact values.
macro_rules! each_layout {
    ($values:expr, $array:ident => $padded:expr, $buffer:pat => $compact:expr) => {
        match $values {
            $crate::batch::TokenValues::F16($array) => $padded,
            $crate::batch::TokenValues::Bf16($array) => $padded,
            $crate::batch::TokenValues::F32($array) => $padded,
            $crate::batch::TokenValues::F64($array) => $padded,
            $crate::batch::TokenValues::Compact($buffer) => $compact,
        }
    };
}

impl TokenValues {
    /// Whether the values are f64; they are computed with as f32 otherwise.
    pub fn is_f64(&self) -> bool {
        match self {
            TokenValues::F64(_) => true,
            TokenValues::Compact(values) => values.is_f64(),
            _ => false,
        }
    }

    /// A response's tokens that count, widened to f64.
    pub fn of_response<'a>(
        &'a self,
        layout: &'a Layout,
        response: usize,
    ) -> Box<dyn Iterator<Item = f64> + 'a> {
        let columns = layout.runs(response).iter().flat_map(|run| run.columns());
        each_layout!(
            self,
            array => Box::new(columns.map(move |column| array.number(response, column))),
            values => Box::new(layout.tokens_of(response).map(|token| values.get(token)))
        )
    }

    /// [B, T] of a padded array.
    pub(crate) fn shape(&self) -> Option<(usize, usize)> {
        each_layout!(self, array => Some(array.shape()), _ => None)
    }

    /// The tokens of some responses, one response after another.
    pub(crate) fn select(&self, layout: &Layout, responses: &[usize]) -> FloatBuffer {
        each_layout!(
            self,
            array => gathered(array, layout, responses).into(),
            values => {
                let responses = responses.iter();
                values.gather(responses.flat_map(|&response| layout.tokens_of(response)))
            }
        )
    }
}

/// The tokens that count of some responses, row by row: a live recipe keeps some of each batch.
fn gathered<T: Element>(array: &Padded<T>, layout: &Layout, responses: &[usize]) -> Vec<T::Wide> {
    let mut values = Vec::new();
    let runs = |&response: &usize| layout.runs(response).iter().map(move |run| (response, run));
    for (response, run) in responses.iter().flat_map(runs) {
        match array.row(response, run.columns()) {
            Some(row) => values.extend(row.iter().map(|value| value.widen())),
            None => values.extend(array.values(response, run.columns()).map(T::widen)),
        }
    }
    values
}

impl From<FloatBuffer> for TokenValues {
    fn from(values: FloatBuffer) -> Self {
        TokenValues::Compact(values)
    }
}

impl<T: Element> From<Padded<T>> for TokenValues {
    fn from(array: Padded<T>) -> Self {
        T::column(array)
    }
}

impl<T: Element> From<Array2<T>> for TokenValues {
    fn from(array: Array2<T>) -> Self {
        T::column(array.into())
    }
}

impl<T: Element> From<ArcArray2<T>> for TokenValues {
    fn from(array: ArcArray2<T>) -> Self {
        T::column(array.into())
    }
}

impl<T: Element> From<ArrayView2<'_, T>> for TokenValues {
    /// Copies the view; an owned or a shared array is not copied.
    fn from(array: ArrayView2<'_, T>) -> Self {
        T::column(array.into())
    }
}

// Response columns are small, and held as f64 whatever number type they come in.
impl<T: Numeric> From<ArrayView1<'_, T>> for Buffer<f64> {
    fn from(array: ArrayView1<'_, T>) -> Self {
        array.iter().map(|value| value.number()).collect()
    }
}

impl<T: Numeric> From<&Array1<T>> for Buffer<f64> {
    fn from(array: &Array1<T>) -> Self {
        array.view().into()
    }
}

impl From<&[f64]> for Buffer<f64> {
    fn from(values: &[f64]) -> Self {
        values.to_vec().into()
    }
}

/// Rows of their own length each, one after another.
#[derive(Clone, Debug)]
pub(crate) struct Ragged {
    /// Where the rows begin, and where the last one ends.
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
        let buffer = if self.is_f64 {
            FloatBuffer::from(values)
        } else {
            FloatBuffer::F32(values.iter().map(|&value| value as f32).collect())
        };
        buffer.into()
    }
}

/// A column as it is given, values of tokens that do not count included.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Responses(Buffer<f64>),
    Tokens(TokenValues),
    Rows(Ragged),
}

impl Given {
    /// The number of responses and, but for rows of their own length, that of each one's columns; `None` where there
    /// are values of tokens that count alone.
    pub(super) fn shape(&self) -> Option<(usize, Option<usize>)> {
        match self {
            Given::Responses(values) => Some((values.len(), None)),
            Given::Tokens(values) => values.shape().map(|(rows, width)| (rows, Some(width))),
            Given::Rows(rows) => Some((rows.starts.len() - 1, None)),
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
