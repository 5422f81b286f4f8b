//! The values of columns, in shared memory; the values of a token column are padded, ragged or compact.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ndarray::{Array1, ArrayBase, ArrayView1, Data, Dimension, Ix2};

use super::Layout;

/// Values in contiguous memory, which may belong to a `Vec` or to an object of another language. Clones of a buffer share this
/// memory.
pub struct Buffer<T: 'static>(Arc<dyn AsRef<[T]> + Send + Sync>);

impl<T> Buffer<T> {
    /// Makes a buffer of an owner's values. Every call of the owner's `as_ref` must return the same memory.
    pub fn new(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        Buffer(Arc::new(owner))
    }
}

impl<T: Clone + Send + Sync> Buffer<T> {
    /// Copies the values at some indices.
    pub(super) fn pick(&self, indices: &[usize]) -> Self {
        indices.iter().map(|&index| self[index].clone()).collect()
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Buffer(self.0.clone())
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        (*self.0).as_ref()
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} x {})", self.len(), std::any::type_name::<T>())
    }
}

impl<T: Send + Sync> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        Buffer::new(values)
    }
}

impl<T: Clone + Send + Sync> From<&[T]> for Buffer<T> {
    fn from(values: &[T]) -> Self {
        values.to_vec().into()
    }
}

macro_rules! widened {
    ($($type:ty),+) => {$(
        impl From<Vec<$type>> for Buffer<f64> {
            fn from(values: Vec<$type>) -> Self {
                values.into_iter().map(f64::from).collect()
            }
        }
    )+};
}
widened!(bool, u8, i32, f32);

impl<T: Clone + Send + Sync> From<Array1<T>> for Buffer<T> {
    /// Copies the array only if its values do not lie in memory side by side, in the order of their indices.
    fn from(array: Array1<T>) -> Self {
        in_order(array).into()
    }
}

impl<T: Copy + Into<f64>> From<ArrayView1<'_, T>> for Buffer<f64> {
    fn from(array: ArrayView1<'_, T>) -> Self {
        array.iter().map(|&value| value.into()).collect()
    }
}

impl<T: Send + Sync> FromIterator<T> for Buffer<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Vec::from_iter(values).into()
    }
}

/// Numbers in one of the two precisions of tensors.
#[derive(Clone, Debug)]
pub enum FloatBuffer {
    /// Single precision.
    F32(Buffer<f32>),
    /// Double precision.
    F64(Buffer<f64>),
}

impl FloatBuffer {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            FloatBuffer::F32(values) => values.len(),
            FloatBuffer::F64(values) => values.len(),
        }
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the numbers are f64; they are f32 otherwise.
    pub fn is_f64(&self) -> bool {
        matches!(self, FloatBuffer::F64(_))
    }

    /// Returns the number at an index, converted to f64. For many numbers, [`FloatBuffer::iter`] is faster.
    pub fn get(&self, index: usize) -> f64 {
        self.reader()(index)
    }

    /// Returns all numbers, converted to f64.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + Clone + '_ {
        (0..self.len()).map(self.reader())
    }

    /// Returns a function that reads numbers by their index, converted to f64. The owner is asked for its memory only once.
    pub(crate) fn reader(&self) -> impl Fn(usize) -> f64 + Copy + '_ {
        let (f32s, f64s): (&[f32], &[f64]) = match self {
            FloatBuffer::F32(values) => (values, &[]),
            FloatBuffer::F64(values) => (&[], values),
        };
        move |index| match f64s.get(index) {
            Some(&value) => value,
            None => f64::from(f32s[index]),
        }
    }
}

impl From<Buffer<f32>> for FloatBuffer {
    fn from(values: Buffer<f32>) -> Self {
        FloatBuffer::F32(values)
    }
}

impl From<Buffer<f64>> for FloatBuffer {
    fn from(values: Buffer<f64>) -> Self {
        FloatBuffer::F64(values)
    }
}

impl From<Buffer<f16>> for FloatBuffer {
    /// Converts the numbers to f32.
    fn from(values: Buffer<f16>) -> Self {
        FloatBuffer::F32(values.to_f32_vec().into())
    }
}

impl From<Buffer<bf16>> for FloatBuffer {
    /// Converts the numbers to f32.
    fn from(values: Buffer<bf16>) -> Self {
        FloatBuffer::F32(values.to_f32_vec().into())
    }
}

impl<T: Send + Sync + 'static> From<Vec<T>> for FloatBuffer
where
    Buffer<T>: Into<FloatBuffer>,
{
    fn from(values: Vec<T>) -> Self {
        Buffer::from(values).into()
    }
}

/// The values of a token column: numbers in shared memory, and the position of each response's row in this memory. No computation
/// uses the values of tokens with mask 0.
#[derive(Clone, Debug)]
pub struct TokenValues {
    numbers: FloatBuffer,
    rows: Rows,
}

#[derive(Clone, Debug)]
enum Rows {
    /// There are no rows: the memory holds only the numbers of the tokens that count, response by response.
    Compact,
    /// The rows of an array [B, T], given by its shape and the distance between the starts of consecutive rows.
    Padded((usize, usize), usize),
    /// Rows of any lengths, given by the start of each row and the end of the last row.
    Ragged(Arc<[usize]>),
}

impl TokenValues {
    /// Makes the values of an array [B, T] whose value (b, t) is at the index `b * stride + t` of the buffer. Returns `None` if
    /// one of these indices is outside the buffer.
    pub fn padded(
        numbers: impl Into<FloatBuffer>,
        shape: (usize, usize),
        stride: usize,
    ) -> Option<Self> {
        let numbers = numbers.into();
        if shape.0 > 0 && shape.1 > 0 {
            let end = (shape.0 - 1).checked_mul(stride)?.checked_add(shape.1)?;
            Some(end).filter(|&end| end <= numbers.len())?;
        }
        let rows = Rows::Padded(shape, stride);
        Some(TokenValues { numbers, rows })
    }

    /// Makes values from concatenated rows of any lengths, given by the start of each row and the end of the last row.
    pub(crate) fn ragged(numbers: FloatBuffer, starts: Arc<[usize]>) -> Self {
        let rows = Rows::Ragged(starts);
        TokenValues { numbers, rows }
    }

    /// Returns all numbers, including the numbers of tokens that do not count.
    pub fn numbers(&self) -> &FloatBuffer {
        &self.numbers
    }

    /// Returns the shape [B, T] of a padded array, and the distance between the starts of consecutive rows; `None` if the values
    /// are not padded.
    pub fn shape(&self) -> Option<((usize, usize), usize)> {
        match self.rows {
            Rows::Padded(shape, stride) => Some((shape, stride)),
            _ => None,
        }
    }

    /// Returns whether the values are f64; if not, they are f32.
    pub fn is_f64(&self) -> bool {
        self.numbers.is_f64()
    }

    /// Returns the values of a response's tokens that count, converted to f64.
    pub fn of_response(&self, layout: &Layout, response: usize) -> impl Iterator<Item = f64> {
        let values = self.select(layout, &[response]);
        (0..values.len()).map(move |token| values.get(token))
    }

    /// Returns the values of the tokens that count, response by response. Compact values are not copied.
    pub fn compact(&self, layout: &Layout) -> FloatBuffer {
        match self.rows {
            Rows::Compact => self.numbers.clone(),
            _ => self.select(layout, &(0..layout.responses()).collect::<Vec<_>>()),
        }
    }

    /// Returns the same values; if all tokens of ragged rows count, the values become compact.
    pub(super) fn in_layout(mut self, layout: &Layout) -> Self {
        if matches!(self.rows, Rows::Ragged(_)) && self.numbers.len() == layout.tokens() {
            self.rows = Rows::Compact;
        }
        self
    }

    /// Returns the number of rows; `None` if the values are compact.
    pub(super) fn responses(&self) -> Option<usize> {
        match &self.rows {
            Rows::Compact => None,
            Rows::Padded((rows, _), _) => Some(*rows),
            Rows::Ragged(starts) => Some(starts.len() - 1),
        }
    }

    /// Returns the range of a response's row in the numbers; `None` if the values are compact.
    pub(crate) fn row(&self, response: usize) -> Option<Range<usize>> {
        match &self.rows {
            Rows::Compact => None,
            Rows::Padded((_, width), stride) => {
                let start = response * stride;
                Some(start..start + width)
            }
            Rows::Ragged(starts) => Some(starts[response]..starts[response + 1]),
        }
    }

    /// Returns the range of the numbers that belong to a run of a response's tokens. Compact values are indexed by the run's
    /// tokens, and padded and ragged values by the run's columns (see [`Layout::token_runs`]).
    pub(crate) fn place(
        &self,
        response: usize,
        (tokens, columns): (Range<usize>, Range<usize>),
    ) -> Range<usize> {
        match self.row(response) {
            Some(row) => row.start + columns.start..row.start + columns.end,
            None => tokens,
        }
    }

    /// Returns the values of the tokens that count in some responses, one response after the other.
    pub(crate) fn select(&self, layout: &Layout, responses: &[usize]) -> FloatBuffer {
        fn of<T: Copy>(numbers: &[T], places: impl Iterator<Item = Range<usize>>) -> Vec<T> {
            let mut all = Vec::new();
            places.for_each(|place| all.extend_from_slice(&numbers[place]));
            all
        }
        let places = responses.iter().flat_map(|&response| {
            let runs = layout.token_runs(response);
            runs.map(move |run| self.place(response, run))
        });
        match &self.numbers {
            FloatBuffer::F32(numbers) => of(numbers, places).into(),
            FloatBuffer::F64(numbers) => of(numbers, places).into(),
        }
    }
}

impl<T: Send + Sync + 'static> From<Vec<T>> for TokenValues
where
    Buffer<T>: Into<FloatBuffer>,
{
    /// Makes a column with one number per token that counts.
    fn from(values: Vec<T>) -> Self {
        FloatBuffer::from(values).into()
    }
}

impl From<FloatBuffer> for TokenValues {
    /// Makes a column with one number per token that counts.
    fn from(numbers: FloatBuffer) -> Self {
        let rows = Rows::Compact;
        TokenValues { numbers, rows }
    }
}

impl<T, S> From<ArrayBase<S, Ix2>> for TokenValues
where
    T: Clone + Send + Sync + 'static,
    S: Data<Elem = T>,
    Buffer<T>: Into<FloatBuffer>,
{
    /// Makes a padded column. An owned array of f32 or f64 in row order is not copied.
    fn from(array: ArrayBase<S, Ix2>) -> Self {
        let shape = array.dim();
        match TokenValues::padded(in_order(array), shape, shape.1) {
            Some(values) => values,
            None => unreachable!("an array has as many numbers as its shape"),
        }
    }
}

/// Returns the numbers of an array in row order. A view is copied, and so is an array whose values do not lie in memory side by
/// side, in this order.
fn in_order<T: Clone, S: Data<Elem = T>, D: Dimension>(array: ArrayBase<S, D>) -> Vec<T> {
    let array = if array.is_standard_layout() {
        array.into_owned()
    } else {
        array.as_standard_layout().into_owned()
    };
    let length = array.len();
    let (mut values, start) = array.into_raw_vec_and_offset();
    values.drain(..start.unwrap_or(0));
    values.truncate(length);
    values
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ShapeBuilder, array, s};

    use super::*;

    fn rows(values: &TokenValues) -> Vec<Vec<f64>> {
        let ((responses, _), _) = values.shape().unwrap();
        let numbers: Vec<f64> = values.numbers().iter().collect();
        let row = |response| numbers[values.row(response).unwrap()].to_vec();
        (0..responses).map(row).collect()
    }

    #[test]
    fn any_strides_read_as_ndarray_reads_them() {
        let c = Array2::from_shape_fn((3, 4), |(b, t)| (10 * b + t) as f64);
        let fortran = Array2::from_shape_fn((3, 4).f(), |(b, t)| (10 * b + t) as f64);
        let mut reversed = c.clone();
        reversed.invert_axis(ndarray::Axis(0));
        reversed.invert_axis(ndarray::Axis(1));
        let mut every_other = c.clone();
        every_other.slice_collapse(s![..;2, 1..;2]);
        let mut without_first = c.clone();
        without_first.slice_collapse(s![1.., ..]);
        for array in [c, fortran, reversed, every_other, without_first] {
            let expected: Vec<Vec<f64>> = array.rows().into_iter().map(|r| r.to_vec()).collect();
            assert_eq!(rows(&array.to_shared().into()), expected);
            assert_eq!(rows(&array.into()), expected);
        }
    }

    #[test]
    fn a_contiguous_array_is_not_copied() {
        let array = array![[1.0f32, 2.0], [3.0, 4.0]];
        let memory = array.as_ptr();
        let values = TokenValues::from(array);
        assert!(matches!(values.numbers(), FloatBuffer::F32(all) if all.as_ptr() == memory));
        let array = array![1.0, 2.0, 3.0];
        let memory = array.as_ptr();
        assert_eq!(Buffer::from(array).as_ptr(), memory);
    }

    #[test]
    fn numbers_of_other_types_make_columns() {
        let mut reversed = array![1.0, 2.0, 3.0];
        reversed.invert_axis(ndarray::Axis(0));
        assert_eq!(Buffer::from(reversed)[..], [3.0, 2.0, 1.0]);
        let widened: [Buffer<f64>; 4] = [
            vec![true, false].into(),
            vec![1u8, 0].into(),
            vec![1i32, 0].into(),
            vec![1f32, 0.0].into(),
        ];
        for column in widened {
            assert_eq!(column[..], [1.0, 0.0]);
        }
        let tokens = TokenValues::from(vec![0.5f32, 0.25]);
        assert!(!tokens.is_f64() && tokens.numbers().get(1) == 0.25);
    }

    #[test]
    fn what_would_lie_outside_of_the_buffer_is_refused() {
        let fits = |shape, stride| TokenValues::padded(vec![0.0f32; 6], shape, stride).is_some();
        assert!(fits((2, 3), 3) && fits((2, 2), 4) && fits((2, 6), 0));
        assert!(fits((0, 9), 3), "no value lies anywhere");
        assert!(!fits((2, 3), 4) && !fits((3, 3), 3) && !fits((1, 7), 0));
        assert!(!fits((2, 3), usize::MAX) && !fits((usize::MAX, 2), 1));
    }

    #[test]
    fn half_precision_is_widened_exactly() {
        let halves = [0.5, -1.75, 65504.0, 6.0e-8].map(f16::from_f64);
        let brains = [1e38, f64::NEG_INFINITY].map(bf16::from_f64);
        assert_eq!(rows(&array![halves].into())[0], halves.map(f64::from));
        assert_eq!(rows(&array![brains].into())[0], brains.map(f64::from));
    }
}
