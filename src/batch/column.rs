//! The numbers of columns: shared memory, padded arrays in it, and token columns in any precision and layout.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use half::{bf16, f16};
use ndarray::{ArcArray2, Array2, ArrayView1, ArrayView2, ShapeBuilder};

use super::Layout;

/// Owns a buffer's memory: a `Vec`, an array, an object of another language.
pub trait BufferOwner<T>: Send + Sync + 'static {
    /// The numbers; the same memory at each call.
    fn as_slice(&self) -> &[T];

    /// How many there are, which may be known before they are.
    fn count(&self) -> usize {
        self.as_slice().len()
    }
}

impl<T: Send + Sync + 'static> BufferOwner<T> for Vec<T> {
    fn as_slice(&self) -> &[T] {
        self
    }
}

impl<T: Send + Sync + 'static> BufferOwner<T> for ArcArray2<T> {
    /// The numbers in the order of the memory; none if they are not contiguous.
    fn as_slice(&self) -> &[T] {
        self.as_slice_memory_order().unwrap_or_default()
    }
}

/// Numbers in contiguous memory, which is shared and never copied.
pub struct Buffer<T: 'static>(Arc<dyn BufferOwner<T>>);

impl<T> Buffer<T> {
    /// The numbers of an owner.
    pub fn new(owner: impl BufferOwner<T>) -> Self {
        Buffer(Arc::new(owner))
    }

    /// How many numbers there are. A column of a file is not read for that.
    pub fn len(&self) -> usize {
        self.0.count()
    }

    /// Whether there is no number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone + Send + Sync> Buffer<T> {
    /// The numbers at some indices.
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
        self.0.as_slice()
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

/// Numbers in one of a tensor's two precisions.
#[derive(Clone, Debug)]
pub enum FloatBuffer {
    /// Single precision.
    F32(Buffer<f32>),
    /// Double precision.
    F64(Buffer<f64>),
}

impl FloatBuffer {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match self {
            FloatBuffer::F32(values) => values.len(),
            FloatBuffer::F64(values) => values.len(),
        }
    }

    /// Whether there is no number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the numbers are f64; they are f32 otherwise.
    pub fn is_f64(&self) -> bool {
        matches!(self, FloatBuffer::F64(_))
    }

    /// The number at an index, widened to f64. For many numbers, [`FloatBuffer::iter`] is faster.
    pub fn get(&self, index: usize) -> f64 {
        self.reader()(index)
    }

    /// All numbers, widened to f64.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + Clone + '_ {
        (0..self.len()).map(self.reader())
    }

    /// Reads numbers by their index, widened to f64. The owner is asked for its memory only once.
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

impl From<Vec<f32>> for FloatBuffer {
    fn from(values: Vec<f32>) -> Self {
        FloatBuffer::F32(values.into())
    }
}

impl From<Vec<f64>> for FloatBuffer {
    fn from(values: Vec<f64>) -> Self {
        FloatBuffer::F64(values.into())
    }
}

/// A number type of padded columns.
pub trait Element: Copy + Send + Sync + fmt::Debug + 'static {
    /// The type used for computation, f32 or f64.
    type Wide: Copy + PartialOrd + From<f32> + Into<f64> + Send + Sync;

    /// The value in the precision that is computed with.
    fn widen(self) -> Self::Wide;

    /// An array as a token column.
    fn column(array: Padded<Self>) -> TokenValues;
}

macro_rules! element {
    ($($element:ty => $wide:ty, $variant:ident: $widen:expr),+ $(,)?) => {$(
        impl Element for $element {
            type Wide = $wide;

            fn widen(self) -> $wide {
                let widen: fn($element) -> $wide = $widen;
                widen(self)
            }

            fn column(array: Padded<Self>) -> TokenValues {
                TokenValues::$variant(array)
            }
        }
    )+};
}
element!(
    f32 => f32, F32: |x| x, f64 => f64, F64: |x| x, f16 => f32, F16: f16::to_f32, bf16 => f32, Bf16: bf16::to_f32
);

/// A padded array [B, T] with any strides, in shared memory.
#[derive(Clone, Debug)]
pub struct Padded<T: 'static> {
    buffer: Buffer<T>,
    shape: (usize, usize),
    strides: (usize, usize),
}

impl<T: Element> Padded<T> {
    /// An array [B, T] whose value (b, t) is at `b * strides.0 + t * strides.1` of the buffer. `None` if one of them is outside
    /// of it.
    pub fn with_strides(
        buffer: Buffer<T>,
        shape: (usize, usize),
        strides: (usize, usize),
    ) -> Option<Self> {
        if shape.0 > 0 && shape.1 > 0 {
            let down = (shape.0 - 1).checked_mul(strides.0)?;
            let right = (shape.1 - 1).checked_mul(strides.1)?;
            let last = down.checked_add(right);
            last.filter(|&last| last < buffer.len())?;
        }
        Some(Padded {
            buffer,
            shape,
            strides,
        })
    }

    pub(super) fn into_buffer(self) -> Buffer<T> {
        self.buffer
    }

    /// [B, T].
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// The array in place; `None` if its shape is too large for ndarray.
    pub fn view(&self) -> Option<ArrayView2<'_, T>> {
        ArrayView2::from_shape(self.shape.strides(self.strides), &self.buffer).ok()
    }

    /// The value of a response at a column.
    pub fn get(&self, response: usize, column: usize) -> T {
        self.buffer[self.index(response, column)]
    }

    /// The values of a response's columns in one slice, if they are contiguous.
    pub fn row(&self, response: usize, columns: Range<usize>) -> Option<&[T]> {
        if columns.is_empty() {
            return Some(&[]);
        }
        if self.strides.1 != 1 {
            return None;
        }
        let start = self.index(response, columns.start);
        Some(&self.buffer[start..start + columns.len()])
    }

    /// The values of a response's columns, copied only if they are not contiguous.
    pub(crate) fn cells(&self, response: usize, columns: Range<usize>) -> Cow<'_, [T]> {
        let row = self.row(response, columns.clone()).map(Cow::Borrowed);
        row.unwrap_or_else(|| columns.map(|column| self.get(response, column)).collect())
    }

    /// `with_strides` has checked that all indices of the shape are in the buffer.
    fn index(&self, response: usize, column: usize) -> usize {
        let (rows, width) = self.shape;
        assert!(
            response < rows && column < width,
            "({response}, {column}) is outside of a padded array [{rows}, {width}]"
        );
        response * self.strides.0 + column * self.strides.1
    }
}

impl<T: Element> From<ArcArray2<T>> for Padded<T> {
    /// Shares the array if its memory is contiguous, in either order of the axes; copies it otherwise.
    fn from(array: ArcArray2<T>) -> Self {
        let stride = |axis: usize| usize::try_from(array.strides()[axis]).ok();
        let share =
            |strides| Padded::with_strides(Buffer::new(array.clone()), array.dim(), strides);
        let copy = || Array2::from_shape_fn(array.dim(), |at| array[at]).into_shared();
        let shared = stride(0).zip(stride(1)).and_then(share);
        shared.unwrap_or_else(|| copy().into())
    }
}

/// The values of a token column.
///
/// Padded arrays are [B, T], one row per response in batch order; values where the mask is 0 are never read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TokenValues {
    /// A padded array, widened to f32 when it is read.
    F16(Padded<f16>),
    /// A padded array, widened to f32 when it is read.
    Bf16(Padded<bf16>),
    /// A padded array.
    F32(Padded<f32>),
    /// A padded array.
    F64(Padded<f64>),
    /// Only the tokens that count, response by response: one number per token of the layout.
    Compact(FloatBuffer),
}

/// Evaluates one expression for a padded array of any type, and another one for compact values.
macro_rules! each_layout {
    ($values:expr, $array:ident => $padded:expr, $buffer:pat => $compact:expr) => {
        match $values {
            TokenValues::F16($array) => $padded,
            TokenValues::Bf16($array) => $padded,
            TokenValues::F32($array) => $padded,
            TokenValues::F64($array) => $padded,
            TokenValues::Compact($buffer) => $compact,
        }
    };
}

impl TokenValues {
    /// Whether the values are f64; otherwise computation uses f32.
    pub fn is_f64(&self) -> bool {
        match self {
            TokenValues::F64(_) => true,
            TokenValues::Compact(values) => values.is_f64(),
            _ => false,
        }
    }

    /// A response's tokens that count, widened to f64.
    pub fn of_response(&self, layout: &Layout, response: usize) -> impl Iterator<Item = f64> {
        let values = self.select(layout, &[response]);
        (0..values.len()).map(move |token| values.get(token))
    }

    /// [B, T] of a padded array.
    pub(super) fn shape(&self) -> Option<(usize, usize)> {
        each_layout!(self, array => Some(array.shape), _ => None)
    }

    /// The tokens that count of some responses, one response after another.
    pub(crate) fn select(&self, layout: &Layout, responses: &[usize]) -> FloatBuffer {
        let stretches = responses.iter().flat_map(|&response| {
            let stretches = layout.stretches(response);
            stretches.map(move |(tokens, columns)| (response, tokens, columns))
        });
        match self {
            TokenValues::Compact(_) => self.gather(stretches.map(|(_, tokens, _)| (0, tokens))),
            _ => self.gather(stretches.map(|(response, _, columns)| (response, columns))),
        }
    }

    /// The values of some columns of rows, one after another; compact values are one row.
    pub(super) fn gather(&self, cells: impl Iterator<Item = (usize, Range<usize>)>) -> FloatBuffer {
        fn of<T: Copy>(values: &[T], cells: impl Iterator<Item = (usize, Range<usize>)>) -> Vec<T> {
            let mut all = Vec::new();
            cells.for_each(|(_, columns)| all.extend_from_slice(&values[columns]));
            all
        }
        each_layout!(
            self,
            array => {
                let mut all = Vec::new();
                for (row, columns) in cells {
                    let cells = array.cells(row, columns);
                    all.extend(cells.iter().map(|value| value.widen()));
                }
                all.into()
            },
            values => match values {
                FloatBuffer::F32(values) => of(values, cells).into(),
                FloatBuffer::F64(values) => of(values, cells).into(),
            }
        )
    }
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

impl<T: Element> From<ArcArray2<T>> for TokenValues {
    fn from(array: ArcArray2<T>) -> Self {
        T::column(array.into())
    }
}

impl<T: Element> From<Array2<T>> for TokenValues {
    fn from(array: Array2<T>) -> Self {
        array.into_shared().into()
    }
}

impl<T: Element> From<ArrayView2<'_, T>> for TokenValues {
    /// Copies the view; an owned or a shared array is not copied.
    fn from(array: ArrayView2<'_, T>) -> Self {
        array.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{array, s};

    use super::*;

    fn rows<T: Element>(padded: &Padded<T>) -> Vec<Vec<f64>> {
        let (responses, columns) = padded.shape();
        let row = |response| {
            let cells = padded.cells(response, 0..columns);
            cells.iter().map(|value| value.widen().into()).collect()
        };
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
        for array in [c, fortran, reversed, every_other] {
            let expected: Vec<Vec<f64>> = array.rows().into_iter().map(|r| r.to_vec()).collect();
            assert_eq!(rows(&Padded::from(array.to_shared())), expected);
            assert_eq!(rows(&Padded::from(array.into_shared())), expected);
        }
    }

    #[test]
    fn a_contiguous_array_is_not_copied() {
        let array = array![[1.0f32, 2.0], [3.0, 4.0]];
        let memory = array.as_ptr();
        let padded = Padded::from(array.into_shared());
        assert_eq!(padded.view().unwrap().as_ptr(), memory);
        assert_eq!(padded.row(0, 0..2).unwrap().as_ptr(), memory);
    }

    #[test]
    fn what_would_lie_outside_of_the_buffer_is_refused() {
        let fits =
            |shape, strides| Padded::with_strides(vec![0.0f32; 6].into(), shape, strides).is_some();
        assert!(fits((2, 3), (3, 1)) && fits((2, 3), (1, 2)) && fits((2, 6), (0, 1)));
        assert!(fits((0, 9), (3, 1)), "no value lies anywhere");
        assert!(!fits((2, 3), (4, 1)) && !fits((3, 3), (3, 1)));
        assert!(!fits((2, 3), (usize::MAX, 1)) && !fits((usize::MAX, 2), (1, 1)));
    }

    #[test]
    fn half_precision_is_widened_exactly() {
        let halves = [0.5, -1.75, 65504.0, 6.0e-8].map(f16::from_f64);
        let brains = [1e38, f64::NEG_INFINITY].map(bf16::from_f64);
        assert_eq!(
            rows(&Padded::from(array![halves].into_shared()))[0],
            halves.map(f64::from)
        );
        assert_eq!(
            rows(&Padded::from(array![brains].into_shared()))[0],
            brains.map(f64::from)
        );
    }
}
