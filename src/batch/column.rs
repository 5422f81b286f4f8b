//! The values of columns: one a response, or one a token.

use half::{bf16, f16};
use ndarray::{ArcArray2, Array1, Array2, ArrayView1, ArrayView2};

use super::Layout;
use super::buffer::{Buffer, FloatBuffer, Padded};

/// The values of a token column.
///
/// Padded arrays are [B, T], one row a response in batch order; what stands where the mask is 0 is never read.
#[derive(Clone, Debug)]
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
        match self {
            TokenValues::F16(array) => {
                Box::new(columns.map(move |t| array.get(response, t).into()))
            }
            TokenValues::Bf16(array) => {
                Box::new(columns.map(move |t| array.get(response, t).into()))
            }
            TokenValues::F32(array) => {
                Box::new(columns.map(move |t| array.get(response, t).into()))
            }
            TokenValues::F64(array) => Box::new(columns.map(move |t| array.get(response, t))),
            TokenValues::Compact(values) => {
                Box::new(layout.tokens_of(response).map(|token| values.get(token)))
            }
        }
    }

    /// [B, T] of a padded array.
    pub(crate) fn shape(&self) -> Option<(usize, usize)> {
        match self {
            TokenValues::F16(array) => Some(array.shape()),
            TokenValues::Bf16(array) => Some(array.shape()),
            TokenValues::F32(array) => Some(array.shape()),
            TokenValues::F64(array) => Some(array.shape()),
            TokenValues::Compact(_) => None,
        }
    }
}

impl From<FloatBuffer> for TokenValues {
    fn from(values: FloatBuffer) -> Self {
        TokenValues::Compact(values)
    }
}

macro_rules! token_values_from {
    ($($element:ty => $variant:ident),+ $(,)?) => {$(
        impl From<Padded<$element>> for TokenValues {
            fn from(array: Padded<$element>) -> Self {
                TokenValues::$variant(array)
            }
        }
        impl From<Array2<$element>> for TokenValues {
            fn from(array: Array2<$element>) -> Self {
                TokenValues::$variant(array.into())
            }
        }
        impl From<ArcArray2<$element>> for TokenValues {
            fn from(array: ArcArray2<$element>) -> Self {
                TokenValues::$variant(array.into())
            }
        }
        impl From<ArrayView2<'_, $element>> for TokenValues {
            /// Copies the view; an owned or a shared array is not copied.
            fn from(array: ArrayView2<'_, $element>) -> Self {
                TokenValues::$variant(array.into())
            }
        }
    )+};
}
token_values_from!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

macro_rules! response_values_from {
    ($($element:ty: $widen:expr),+ $(,)?) => {$(
        impl From<ArrayView1<'_, $element>> for Buffer<f64> {
            fn from(array: ArrayView1<'_, $element>) -> Self {
                array.iter().copied().map($widen).collect()
            }
        }
        impl From<&Array1<$element>> for Buffer<f64> {
            fn from(array: &Array1<$element>) -> Self {
                array.view().into()
            }
        }
    )+};
}
// Response columns are small, and held as f64 whatever number type they come in.
response_values_from!(
    f64: |x| x,
    f32: f64::from,
    bool: |x| f64::from(u8::from(x)),
    // Counts and labels: exact up to 2^53, far beyond any of them.
    i64: |x| x as f64,
    i32: f64::from,
    u8: f64::from,
);

impl From<&[f64]> for Buffer<f64> {
    fn from(values: &[f64]) -> Self {
        values.to_vec().into()
    }
}
