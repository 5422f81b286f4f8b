//! Reads and makes NumPy arrays. Token columns of f32 and f64 with contiguous rows are read in place; other columns are copied.

use std::sync::LazyLock;

use advlab::batch::large::{Large, SpareMemory};
use advlab::batch::{BatchBuilder, Buffer, Computed, FloatBuffer, Level, Numeric, TokenValues};
use half::{bf16, f16};
use ndarray::{ArrayView2, ShapeBuilder};
use numpy::{PyArray1, PyArray2, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use rayon::prelude::*;

use crate::pool::in_pool;

/// The largest integer up to which all integers are exact in f32.
const EXACT: f64 = (1 << 24) as f64;

/// Evaluates an expression in which `T` is the type of an array's numbers.
macro_rules! typed {
    ($array:expr, $T:ident => $body:expr) => {
        // A bool is read as u8, because a byte of a bool array may be neither 0 nor 1; a mask then refuses the byte. Two bytes
        // without a type are a bf16, a type that NumPy lacks.
        typed!($array, $T => $body; b'b' 1 u8, b'u' 1 u8, b'u' 2 u16, b'u' 4 u32, b'u' 8 u64, b'i' 1 i8, b'i' 2 i16,
            b'i' 4 i32, b'i' 8 i64, b'V' 2 bf16, b'f' 2 f16, b'f' 4 f32, b'f' 8 f64)
    };
    ($array:expr, $T:ident => $body:expr; $($kind:literal $size:literal $number:ty),+) => {
        match dtype($array) {
            $(($kind, $size) => {
                type $T = $number;
                $body
            })+
            _ => unreachable!("`_arrays.py` gives numbers"),
        }
    };
}

/// Returns the kind and the size of an array's numbers.
fn dtype(array: &Bound<'_, PyUntypedArray>) -> (u8, usize) {
    (array.dtype().kind(), array.dtype().itemsize())
}

/// The numbers of a NumPy array [B, T], which this object keeps alive. `package/advlab/_arrays.py` ensures that they are aligned
/// and have the machine's byte order, and that no stride is negative.
struct Array<T: 'static> {
    /// The memory from the first number to the last number. If another thread writes to it during a computation, the result mixes
    /// old and new numbers, as with NumPy's own functions, which also release the interpreter's lock.
    memory: &'static [T],
    shape: (usize, usize),
    /// The distances from row to row and from number to number, counted in numbers, not in bytes.
    strides: (usize, usize),
    _owner: Py<PyUntypedArray>,
}

impl<T: 'static> AsRef<[T]> for Array<T> {
    fn as_ref(&self) -> &[T] {
        self.memory
    }
}

impl<T: Numeric + 'static> Array<T> {
    /// Reads an array in place. `T` must be the type of its numbers.
    fn new(object: &Bound<'_, PyUntypedArray>) -> PyResult<Array<T>> {
        let stride = |axis: usize| usize::try_from(object.strides()[axis]).ok();
        let (&[rows, width], Some((down, right))) = (object.shape(), stride(0).zip(stride(1)))
        else {
            return Err(PyTypeError::new_err("not an array [B, T]"));
        };
        let (down, right) = (down / size_of::<T>(), right / size_of::<T>());
        let (strides, length) = match rows * width {
            0 => ((0, 0), 0),
            _ => ((down, right), (rows - 1) * down + (width - 1) * right + 1),
        };
        // SAFETY: the pointer comes from an array object; all of the memory belongs to the array, or to the array that it views
        // into. The object keeps the memory alive, and is stored together with the slice. The callers choose `T` by the array's
        // dtype; every bit pattern is a valid `T`, and the numbers are aligned.
        let memory = unsafe {
            let data = (*object.as_array_ptr()).fields.data;
            std::slice::from_raw_parts(data.cast_const().cast(), length)
        };
        Ok(Array {
            memory,
            shape: (rows, width),
            strides,
            _owner: object.clone().unbind(),
        })
    }

    fn view(&self) -> ArrayView2<'_, T> {
        match ArrayView2::from_shape(self.shape.strides(self.strides), self.memory) {
            Ok(view) => view,
            Err(_) => unreachable!("the memory ends with the last number"),
        }
    }
}

/// Returns the sum of each row, masked tokens included.
pub fn row_sums(array: &Bound<'_, PyUntypedArray>) -> PyResult<Vec<f64>> {
    typed!(array, T => {
        let (py, array) = (array.py(), Array::<T>::new(array)?);
        let rows = array.view();
        let of_row = |row: usize| match rows.row(row).as_slice() {
            Some(row) => sum(row),
            None => sum(&rows.row(row).to_vec()),
        };
        in_pool(py, || (0..rows.nrows()).into_par_iter().map(of_row).collect())
    })
}

/// Adds an array [B, T] to a batch as its mask.
pub fn mask(array: &Bound<'_, PyUntypedArray>, builder: BatchBuilder) -> PyResult<BatchBuilder> {
    typed!(array, T => {
        let (py, array) = (array.py(), Array::<T>::new(array)?);
        in_pool(py, || builder.mask(array.view()))
    })
}

/// Makes a token column of an array [B, T]. f32 and f64 keep their type, and half precision is widened; integers become f32 if
/// all are exact in f32, else f64.
pub fn tokens(array: &Bound<'_, PyUntypedArray>) -> PyResult<TokenValues> {
    match dtype(array) {
        (b'f', 2) => floats::<f16>(array),
        (b'V', 2) => floats::<bf16>(array),
        (b'f', 4) => floats::<f32>(array),
        (b'f', 8) => floats::<f64>(array),
        _ => typed!(array, T => {
            let (py, array) = (array.py(), Array::<T>::new(array)?);
            in_pool(py, || {
                let wide = array.view().mapv(|number| number.number());
                if wide.iter().all(|number| number.abs() <= EXACT) {
                    wide.mapv(|number| number as f32).into()
                } else {
                    wide.into()
                }
            })
        }),
    }
}

/// Makes a token column of an array: in place if its numbers are f32 or f64 and each row is contiguous, and otherwise by a copy.
fn floats<T: Numeric + 'static>(array: &Bound<'_, PyUntypedArray>) -> PyResult<TokenValues>
where
    Buffer<T>: Into<FloatBuffer>,
{
    let (py, array) = (array.py(), Array::<T>::new(array)?);
    let (shape, (down, right)) = (array.shape, array.strides);
    // The copy, in which half precision is widened, has only the array's own numbers, not the numbers between its rows.
    if size_of::<T>() == 2 || right != 1 && shape.1 > 1 {
        return in_pool(py, || array.view().into());
    }
    match TokenValues::padded(Buffer::new(array), shape, down) {
        Some(column) => Ok(column),
        None => unreachable!("the memory ends with the last number"),
    }
}

/// Returns the sum of a row. Most rewards per token are 0, so runs of zeros are skipped, as fast as memory can be read.
fn sum<T: Numeric>(row: &[T]) -> f64 {
    let (parts, rest) = row.as_chunks::<16>();
    let is_some = |part: &&[T; 16]| part.iter().fold(false, |some, &x| some | (x != T::BITS[0]));
    let mut sums = [0.0; 16];
    for part in parts.iter().filter(is_some) {
        for (sum, x) in sums.iter_mut().zip(part) {
            *sum += x.number();
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|x| x.number()).sum::<f64>()
}

/// Converts computed values to NumPy arrays. Values per response become [B] or, if `padded` is true, [B, T] as values per token
/// do. Values per token become [B, T], with 0 where the mask is 0, or rows of different lengths if the input was ragged.
pub fn to_numpy<'py>(
    py: Python<'py>,
    computed: Computed,
    is_f64: bool,
    padded: bool,
) -> PyResult<Bound<'py, PyAny>> {
    // Unless `is_f64`, the numbers are rounded to f32, the type of trainers' advantages.
    let array = |numbers: Vec<f64>| match is_f64 {
        true => PyArray1::from_vec(py, numbers).into_any(),
        false => PyArray1::from_iter(py, numbers.iter().map(|&number| number as f32)).into_any(),
    };
    if computed.level() == Level::Response && !padded {
        return Ok(array(computed.buffer().iter().collect()));
    }
    let (layout, responses) = (computed.layout(), 0..computed.layout().responses());
    let lengths: Vec<usize> = responses.map(|one| layout.row_length(one)).collect();
    let is_table = layout.is_padded();
    if is_table && !is_f64 {
        let shape = (lengths.len(), layout.width());
        let rows = in_pool(py, || computed.into_rows(&SPARE))?;
        let rows = rows.map_err(|error| PyMemoryError::new_err(error.message.clone()))?;
        return of_rows(py, rows, shape);
    }
    let mut numbers = vec![0.0; lengths.iter().sum()];
    let mut rest = &mut numbers[..];
    let rows = lengths.iter().map(|&length| rest.split_off_mut(..length));
    let rows: Vec<&mut [f64]> = rows.flatten().collect();
    let value = computed.lookup();
    let fill = |(response, row): (usize, &mut [f64])| {
        layout.scatter(response, row, |token| value(response, token));
    };
    in_pool(py, || rows.into_par_iter().enumerate().for_each(fill))?;
    if is_table {
        return array(numbers).call_method1("reshape", (lengths.len(), layout.width()));
    }
    let mut rest = &numbers[..];
    let rows = lengths.iter().map(|&length| rest.split_off(..length));
    Ok(PyList::new(
        py,
        rows.flatten()
            .map(|row| array(row.to_vec()))
            .collect::<Vec<_>>(),
    )?
    .into_any())
}

/// The memory of arrays that the caller has dropped, which the next arrays reuse.
static SPARE: LazyLock<SpareMemory> = LazyLock::new(SpareMemory::default);

/// Makes an array [B, T] of the numbers of its rows, without a copy.
fn of_rows(
    py: Python<'_>,
    mut rows: Large<f32>,
    shape: (usize, usize),
) -> PyResult<Bound<'_, PyAny>> {
    assert_eq!(rows.len(), shape.0 * shape.1, "a value for each token");
    let memory = rows.as_mut_ptr();
    let owner = PyCapsule::new_with_value(py, rows, c"advlab")?;
    // SAFETY: there are as many numbers as the shape requires, and they do not move with `rows`, which owns them on the heap. The array keeps the capsule alive, which owns the memory, and
    // only the array reads or writes the memory.
    let array = unsafe {
        let rows = ArrayView2::from_shape_ptr(shape, memory);
        PyArray2::borrow_from_array(&rows, owner.into_any())
    };
    Ok(array.into_any())
}
