//! The values of columns: shared or borrowed padded arrays, or the counting tokens one after another.

use std::sync::Arc;

use ndarray::{ArcArray2, Array1, Array2, ArrayView1, ArrayView2};

use super::lend::Lease;

/// Numbers one after another, in one of the two precisions that tensors have.
#[derive(Clone, Debug)]
pub enum Floats {
    /// Single precision.
    F32(Arc<Vec<f32>>),
    /// Double precision.
    F64(Arc<Vec<f64>>),
}

impl Floats {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match self {
            Floats::F32(values) => values.len(),
            Floats::F64(values) => values.len(),
        }
    }

    /// Whether there is no number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number at a place, widened to f64.
    pub fn get(&self, place: usize) -> f64 {
        match self {
            Floats::F32(values) => f64::from(values[place]),
            Floats::F64(values) => values[place],
        }
    }

    /// All numbers, widened to f64.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        (0..self.len()).map(|place| self.get(place))
    }
}

/// The values of a token column.
///
/// Padded arrays are [B, T], one row a response in batch order; what stands where the mask is 0 is never read.
#[derive(Clone, Debug)]
pub enum TokenValues<'a> {
    /// A padded array in shared ownership.
    Shared32(ArcArray2<f32>),
    /// A padded array in shared ownership.
    Shared64(ArcArray2<f64>),
    /// A padded array that somebody else owns.
    View32(ArrayView2<'a, f32>),
    /// A padded array that somebody else owns.
    View64(ArrayView2<'a, f64>),
    /// The tokens that count, response by response: one number a token of the layout.
    Compact(Floats),
}

impl TokenValues<'_> {
    /// Whether the values are f64; they are f32 otherwise.
    pub fn is_f64(&self) -> bool {
        matches!(
            self,
            TokenValues::Shared64(_)
                | TokenValues::View64(_)
                | TokenValues::Compact(Floats::F64(_))
        )
    }

    /// [B, T] of a padded array.
    pub(crate) fn shape(&self) -> Option<(usize, usize)> {
        match self {
            TokenValues::Shared32(array) => Some(array.dim()),
            TokenValues::Shared64(array) => Some(array.dim()),
            TokenValues::View32(array) => Some(array.dim()),
            TokenValues::View64(array) => Some(array.dim()),
            TokenValues::Compact(_) => None,
        }
    }
}

macro_rules! token_values_from {
    ($element:ty, $shared:ident, $view:ident) => {
        impl From<ArcArray2<$element>> for TokenValues<'_> {
            fn from(array: ArcArray2<$element>) -> Self {
                TokenValues::$shared(array)
            }
        }
        impl From<Array2<$element>> for TokenValues<'_> {
            fn from(array: Array2<$element>) -> Self {
                TokenValues::$shared(array.into_shared())
            }
        }
        impl<'a> From<ArrayView2<'a, $element>> for TokenValues<'a> {
            fn from(array: ArrayView2<'a, $element>) -> Self {
                TokenValues::$view(array)
            }
        }
    };
}
token_values_from!(f32, Shared32, View32);
token_values_from!(f64, Shared64, View64);

/// The values of a response column, one a response; whatever number type they come in, they are held as f64.
#[derive(Clone, Debug)]
pub struct ResponseValues(pub(crate) Vec<f64>);

impl From<Vec<f64>> for ResponseValues {
    fn from(values: Vec<f64>) -> Self {
        ResponseValues(values)
    }
}

impl From<&[f64]> for ResponseValues {
    fn from(values: &[f64]) -> Self {
        ResponseValues(values.to_vec())
    }
}

macro_rules! response_values_from {
    ($($element:ty: $widen:expr),+ $(,)?) => {$(
        impl From<ArrayView1<'_, $element>> for ResponseValues {
            fn from(array: ArrayView1<'_, $element>) -> Self {
                ResponseValues(array.iter().copied().map($widen).collect())
            }
        }
        impl From<&Array1<$element>> for ResponseValues {
            fn from(array: &Array1<$element>) -> Self {
                array.view().into()
            }
        }
    )+};
}
response_values_from!(
    f64: |x| x,
    f32: f64::from,
    bool: |x| f64::from(u8::from(x)),
    // Counts and labels: exact up to 2^53, far beyond any of them.
    i64: |x| x as f64,
    i32: f64::from,
    u8: f64::from,
);

/// A token column as an executor holds it: like [`TokenValues`], but for any lifetime, since a view is on lease.
#[derive(Clone, Debug)]
pub(crate) enum TokenStore {
    Shared32(ArcArray2<f32>),
    Shared64(ArcArray2<f64>),
    Lent32(Arc<Lease<f32>>),
    Lent64(Arc<Lease<f64>>),
    Compact(Floats),
}

/// What a [`TokenStore`] shows while it is read.
pub(crate) enum Row<'a> {
    Padded32(ArrayView2<'a, f32>),
    Padded64(ArrayView2<'a, f64>),
    Compact(&'a Floats),
}

/// The batch that a tensor was made from has been given back to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseEnded;

impl TokenStore {
    pub(crate) fn is_f64(&self) -> bool {
        matches!(
            self,
            TokenStore::Shared64(_) | TokenStore::Lent64(_) | TokenStore::Compact(Floats::F64(_))
        )
    }

    /// Reads the column; a lease cannot end before `f` returns.
    pub(crate) fn read<R>(&self, f: impl FnOnce(Row<'_>) -> R) -> Result<R, LeaseEnded> {
        match self {
            TokenStore::Shared32(array) => Ok(f(Row::Padded32(array.view()))),
            TokenStore::Shared64(array) => Ok(f(Row::Padded64(array.view()))),
            TokenStore::Lent32(lease) => lease.read(|view| f(Row::Padded32(view))),
            TokenStore::Lent64(lease) => lease.read(|view| f(Row::Padded64(view))),
            TokenStore::Compact(values) => Ok(f(Row::Compact(values))),
        }
    }
}
