//! The numbers of columns: shared memory, padded arrays in it, and token columns in any precision and layout.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use half::{bf16, f16};
use ndarray::{ArcArray2, Array2, ArrayView1, ArrayView2, ShapeBuilder};

use super::Layout;

/// Owns a buffer's memory: a `Vec`, an array, an object of another language.
pub trait Owner<T>: Send + Sync + 'static {
    /// The numbers; the same memory at each call.
    fn as_slice(&self) -> &[T];

    /// How many there are, which may be known before they are.
    fn count(&self) -> usize {
        self.as_slice().len()
    }
}

impl<T: Send + Sync + 'static> Owner<T> for Vec<T> {
    fn as_slice(&self) -> &[T] {
        self
    }
}

impl<T: Send + Sync + 'static> Owner<T> for ArcArray2<T> {
    /// The numbers in the order of the memory; none if they are not contiguous.
    fn as_slice(&self) -> &[T] {
        self.as_slice_memory_order().unwrap_or_default()
    }
}

/// Numbers in contiguous memory, which is shared and never copied.
pub struct Buffer<T: 'static>(Arc<dyn Owner<T>>);

impl<T> Buffer<T> {
    /// The numbers of an owner.
    pub fn new(owner: impl Owner<T>) -> Self {
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

/// Numbers in one of the two precisions that tensors have.
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
    /// The type that is computed with, f32 or f64.
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
    /// The index of the first row's first value.
    offset: usize,
    shape: (usize, usize),
    strides: (isize, isize),
}

impl<T: Element> Padded<T> {
    /// An array [B, T] whose value (b, t) is at `offset + b * strides.0 + t * strides.1` of the buffer. `None` if one of
    /// them is outside of it.
    pub fn with_strides(
        buffer: Buffer<T>,
        offset: usize,
        shape: (usize, usize),
        strides: (isize, isize),
    ) -> Option<Self> {
        let reach = |length: usize, stride: isize| {
            let last = isize::try_from(length.checked_sub(1)?).ok()?;
            last.checked_mul(stride)
        };
        if shape.0 > 0 && shape.1 > 0 {
            let ends = [reach(shape.0, strides.0)?, reach(shape.1, strides.1)?];
            // Saturated, an index is outside of any buffer.
            let lowest = ends[0].min(0).saturating_add(ends[1].min(0));
            let highest = ends[0].max(0).saturating_add(ends[1].max(0));
            offset.checked_add_signed(lowest)?;
            let last = offset.checked_add_signed(highest);
            last.filter(|&last| last < buffer.len())?;
        }
        Some(Padded {
            buffer,
            offset,
            shape,
            strides,
        })
    }

    /// [B, T].
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// The array in place; `None` if a stride is negative.
    pub fn view(&self) -> Option<ArrayView2<'_, T>> {
        let rows = usize::try_from(self.strides.0).ok()?;
        let columns = usize::try_from(self.strides.1).ok()?;
        let values = self.buffer.get(self.offset..)?;
        ArrayView2::from_shape(self.shape.strides((rows, columns)), values).ok()
    }

    /// The value of a response at a column.
    pub fn get(&self, response: usize, column: usize) -> T {
        self.buffer[self.index(response, column)]
    }

    fn number(&self, response: usize, column: usize) -> f64 {
        self.get(response, column).widen().into()
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
        let index = self.offset as isize
            + response as isize * self.strides.0
            + column as isize * self.strides.1;
        index as usize
    }
}

impl<T: Element> From<ArcArray2<T>> for Padded<T> {
    /// Shares the array if its memory is contiguous, in any order of the axes; copies it otherwise.
    fn from(array: ArcArray2<T>) -> Self {
        let (shape, strides) = (array.dim(), (array.strides()[0], array.strides()[1]));
        match Padded::with_strides(Buffer::new(array.clone()), 0, shape, strides) {
            Some(shared) => shared,
            None => Array2::from_shape_fn(shape, |at| array[at])
                .into_shared()
                .into(),
        }
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
            $crate::batch::TokenValues::F16($array) => $padded,
            $crate::batch::TokenValues::Bf16($array) => $padded,
            $crate::batch::TokenValues::F32($array) => $padded,
            $crate::batch::TokenValues::F64($array) => $padded,
            $crate::batch::TokenValues::Compact($buffer) => $compact,
        }
    };
}
pub(super) use each_layout;

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
            values => Box::new(layout.tokens_of(response).map(values.reader()))
        )
    }

    /// The tokens that count of some responses, one response after another.
    pub(crate) fn select(&self, layout: &Layout, responses: &[usize]) -> FloatBuffer {
        let tokens = responses.iter().flat_map(|&one| layout.tokens_of(one));
        each_layout!(
            self,
            array => padded_rows(array, layout, responses).into(),
            values => match values {
                FloatBuffer::F32(values) => FloatBuffer::F32(picked(values, tokens)),
                FloatBuffer::F64(values) => FloatBuffer::F64(picked(values, tokens)),
            }
        )
    }
}

fn picked<T: Element>(values: &[T], indices: impl Iterator<Item = usize>) -> Buffer<T> {
    indices.map(|index| values[index]).collect()
}

fn padded_rows<T: Element>(
    array: &Padded<T>,
    layout: &Layout,
    responses: &[usize],
) -> Vec<T::Wide> {
    let mut values = Vec::new();
    for &response in responses {
        for run in layout.runs(response) {
            let cells = array.cells(response, run.columns());
            values.extend(cells.iter().map(|value| value.widen()));
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
        let buffer = || Buffer::from(vec![0.0f32; 6]);
        let fits = |offset, shape, strides| {
            Padded::with_strides(buffer(), offset, shape, strides).is_some()
        };
        assert!(fits(0, (2, 3), (3, 1)) && fits(5, (2, 3), (-3, -1)) && fits(0, (2, 6), (0, 1)));
        assert!(fits(9, (0, 3), (3, 1)), "no value lies anywhere");
        assert!(!fits(1, (2, 3), (3, 1)) && !fits(4, (2, 3), (-3, -1)));
        assert!(!fits(0, (2, 3), (isize::MAX, 1)) && !fits(0, (usize::MAX, 2), (1, 1)));
    }

    #[test]
    fn half_precision_is_widened_exactly() {
        let values = [0.5, -1.75, 65504.0, 6.0e-8];
        let halves = Array2::from_shape_fn((2, 2), |(b, t)| f16::from_f64(values[2 * b + t]));
        let expected: Vec<f64> = halves.iter().map(|half| half.to_f64()).collect();
        assert_eq!(rows(&Padded::from(halves.into_shared())).concat(), expected);
        let brains = array![[bf16::from_f64(1e38), bf16::NEG_INFINITY]];
        assert_eq!(
            rows(&Padded::from(brains.into_shared()))[0],
            [bf16::from_f64(1e38).to_f64(), f64::NEG_INFINITY]
        );
    }
}
