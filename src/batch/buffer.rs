//! Buffers: numbers in memory whose ownership is shared with whoever has it.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use half::{bf16, f16};
use ndarray::{ArcArray2, Array2, ArrayView2, ShapeBuilder};

use super::TokenValues;

/// Who owns a buffer's memory: a `Vec`, an array, the pages that a file was read into.
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

/// Numbers one after another, in memory that is shared and never copied.
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

    /// The number at an index, widened to f64. For many numbers, [`FloatBuffer::iter`] asks the owner once.
    pub fn get(&self, index: usize) -> f64 {
        self.view().get(index)
    }

    /// All numbers, widened to f64.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + Clone + '_ {
        let view = self.view();
        (0..self.len()).map(move |index| view.get(index))
    }

    /// The numbers at some indices.
    pub(crate) fn gather(&self, indices: impl Iterator<Item = usize>) -> FloatBuffer {
        match self.view() {
            view if self.is_f64() => FloatBuffer::F64(indices.map(|at| view.f64s[at]).collect()),
            view => FloatBuffer::F32(indices.map(|at| view.f32s[at]).collect()),
        }
    }

    /// The numbers as slices, so that the owner is asked for them once and not for each.
    pub(crate) fn view(&self) -> FloatView<'_> {
        match self {
            FloatBuffer::F32(values) => FloatView {
                f32s: values,
                f64s: &[],
            },
            FloatBuffer::F64(values) => FloatView {
                f32s: &[],
                f64s: values,
            },
        }
    }
}

/// The numbers of a [`FloatBuffer`]; one of the slices is empty.
#[derive(Clone, Copy)]
pub(crate) struct FloatView<'a> {
    f32s: &'a [f32],
    f64s: &'a [f64],
}

impl FloatView<'_> {
    pub(crate) fn get(self, index: usize) -> f64 {
        match self.f64s.get(index) {
            Some(&value) => value,
            None => f64::from(self.f32s[index]),
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

/// A number type that padded columns may have; tokens of it are computed with as f32 or f64.
pub trait Element: Copy + Send + Sync + fmt::Debug + 'static {
    /// The type that a value is widened to when it is read.
    type Wide: Copy + PartialOrd + From<f32> + Into<f64>;

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

/// A padded array [B, T] with any strides, in memory that is shared.
#[derive(Clone, Debug)]
pub struct Padded<T: 'static> {
    buffer: Buffer<T>,
    /// The index of the first row's first value.
    offset: usize,
    shape: (usize, usize),
    strides: (isize, isize),
}

impl<T: Element> Padded<T> {
    /// An array [B, T] of a buffer whose rows follow each other. `None` where the buffer has another length.
    pub fn new(buffer: Buffer<T>, shape: (usize, usize)) -> Option<Self> {
        // A T is far below 2^63.
        Padded::with_strides(buffer, 0, shape, (shape.1 as isize, 1))
            .filter(|padded| padded.buffer.len() == shape.0 * shape.1)
    }

    /// An array [B, T] whose value (b, t) is at `offset + b * strides.0 + t * strides.1` of the buffer. `None` where
    /// one would lie outside of it.
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
            offset
                .checked_add_signed(highest)
                .filter(|&last| last < buffer.len())?;
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

    /// The buffer, where the array is all of it, row by row.
    pub fn as_buffer(&self) -> Option<&Buffer<T>> {
        let (rows, columns) = self.shape;
        let is_whole = self.offset == 0 && self.buffer.len() == rows * columns;
        (is_whole && self.strides == (columns as isize, 1)).then_some(&self.buffer)
    }

    /// The array in place; `None` where a stride is negative.
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

    /// The value of a response at a column, widened to f64.
    pub fn number(&self, response: usize, column: usize) -> f64 {
        self.get(response, column).widen().into()
    }

    /// The values of a response's columns in one slice, where they lie one after another.
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

    /// The values of a response's columns.
    pub fn values(&self, response: usize, columns: Range<usize>) -> impl Iterator<Item = T> + '_ {
        columns.map(move |column| self.get(response, column))
    }

    /// `with_strides` has seen that all indices of the shape are in the buffer.
    fn index(&self, response: usize, column: usize) -> usize {
        assert!(
            response < self.shape.0 && column < self.shape.1,
            "({response}, {column}) is outside of a padded array of {:?}",
            self.shape
        );
        let index = self.offset as isize
            + response as isize * self.strides.0
            + column as isize * self.strides.1;
        index as usize
    }
}

impl<T: Element> From<Array2<T>> for Padded<T> {
    fn from(array: Array2<T>) -> Self {
        let (shape, strides) = (array.dim(), strides(array.strides()));
        let (values, offset) = array.into_raw_vec_and_offset();
        match Padded::with_strides(values.into(), offset.unwrap_or(0), shape, strides) {
            Some(padded) => padded,
            None => unreachable!("an array's values are within its memory"),
        }
    }
}

impl<T: Element> From<ArcArray2<T>> for Padded<T> {
    /// Shares the array where it is contiguous in its memory, in any order of its axes; copies it otherwise.
    fn from(array: ArcArray2<T>) -> Self {
        struct Shared<T>(ArcArray2<T>);
        impl<T: Element> Owner<T> for Shared<T> {
            fn as_slice(&self) -> &[T] {
                match self.0.as_slice_memory_order() {
                    Some(values) => values,
                    None => unreachable!("checked when the array was taken"),
                }
            }
        }
        let is_upright = array.strides().iter().all(|&stride| stride >= 0);
        if !is_upright || array.as_slice_memory_order().is_none() {
            return array.into_owned().into();
        }
        let (shape, strides) = (array.dim(), strides(array.strides()));
        match Padded::with_strides(Buffer::new(Shared(array)), 0, shape, strides) {
            Some(padded) => padded,
            None => unreachable!("a contiguous array's values are within its slice"),
        }
    }
}

impl<T: Element> From<ArrayView2<'_, T>> for Padded<T> {
    /// Copies the view, which belongs to somebody else.
    fn from(view: ArrayView2<'_, T>) -> Self {
        view.to_owned().into()
    }
}

fn strides(strides: &[isize]) -> (isize, isize) {
    (strides[0], strides[1])
}

#[cfg(test)]
mod tests {
    use ndarray::{array, s};

    use super::*;

    fn rows<T: Element>(padded: &Padded<T>) -> Vec<Vec<f64>> {
        let (responses, columns) = padded.shape();
        let row = |response| padded.values(response, 0..columns);
        (0..responses)
            .map(|response| row(response).map(|value| value.widen().into()).collect())
            .collect()
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
            assert_eq!(rows(&Padded::from(array.view())), expected);
            assert_eq!(rows(&Padded::from(array.to_shared())), expected);
            assert_eq!(rows(&Padded::from(array)), expected);
        }
    }

    #[test]
    fn an_owned_and_a_shared_array_are_not_copied() {
        let owned = array![[1.0f32, 2.0], [3.0, 4.0]];
        let shared = owned.to_shared();
        let padded = Padded::from(shared.clone());
        assert_eq!(padded.view().unwrap().as_ptr(), shared.as_ptr());
        assert_eq!(padded.row(0, 0..2).unwrap().as_ptr(), shared.as_ptr());
        let memory = owned.as_ptr();
        assert_eq!(Padded::from(owned).row(0, 0..2).unwrap().as_ptr(), memory);
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
        assert!(Padded::new(buffer(), (2, 3)).is_some() && Padded::new(buffer(), (1, 3)).is_none());
    }

    #[test]
    fn half_precision_is_widened_exactly() {
        let values = [0.5, -1.75, 65504.0, 6.0e-8];
        let halves = Array2::from_shape_fn((2, 2), |(b, t)| f16::from_f64(values[2 * b + t]));
        let expected: Vec<f64> = halves.iter().map(|half| half.to_f64()).collect();
        assert_eq!(rows(&Padded::from(halves)).concat(), expected);
        let brains = array![[bf16::from_f64(1e38), bf16::NEG_INFINITY]];
        assert_eq!(
            rows(&Padded::from(brains))[0],
            [bf16::from_f64(1e38).to_f64(), f64::NEG_INFINITY]
        );
    }
}
