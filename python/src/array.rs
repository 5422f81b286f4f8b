//! Reads and makes NumPy arrays. Token columns of f32 and f64 with contiguous rows are read in place; other columns are copied.

use std::sync::LazyLock;

use advlab::batch::large::{Large, SpareMemory};
use advlab::batch::{BatchBuilder, Buffer, Computed, FloatBuffer, Level, Numeric, TokenValues};
use half::{bf16, f16};
use ndarray::{ArrayView2, ShapeBuilder};
use numpy::{PyArray1, PyArray2, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyList;
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
        match $array.dtype {
            $(($kind, $size) => {
                type $T = $number;
                $body
            })+
            _ => unreachable!("`_arrays.py` gives numbers"),
        }
    };
}

/// A NumPy array [B, T], which this object keeps alive. `package/advlab/_arrays.py` ensures that its numbers are aligned and have
/// the machine's byte order, and that no stride is negative.
pub struct Array {
    /// The memory from the first number to the last number. If another thread writes to it during a computation, the result mixes
    /// old and new numbers, as with NumPy's own functions, which also release the interpreter's lock.
    memory: &'static [u8],
    /// The kind and the size of the array's numbers.
    dtype: (u8, usize),
    shape: (usize, usize),
    /// The distances from row to row and from number to number, counted in numbers, not in bytes.
    strides: (usize, usize),
    owner: Py<PyUntypedArray>,
}

impl Array {
    pub fn new(object: &Bound<'_, PyUntypedArray>) -> PyResult<Array> {
        let (dtype, size) = (object.dtype(), object.dtype().itemsize());
        let stride = |axis: usize| usize::try_from(object.strides()[axis]).ok();
        let (&[rows, width], Some((down, right))) = (object.shape(), stride(0).zip(stride(1)))
        else {
            return Err(PyTypeError::new_err("not an array [B, T]"));
        };
        let (strides, length) = match rows * width {
            0 => ((0, 0), 0),
            _ => (
                (down / size, right / size),
                (rows - 1) * down + (width - 1) * right + size,
            ),
        };
        // SAFETY: the pointer comes from an array object; all of the memory belongs to the array, or to the array that it views
        // into. The object keeps the memory alive, and is stored together with the slice.
        let memory = unsafe {
            let data = (*object.as_array_ptr()).fields.data;
            std::slice::from_raw_parts(data.cast_const().cast(), length)
        };
        Ok(Array {
            memory,
            dtype: (dtype.kind(), size),
            shape: (rows, width),
            strides,
            owner: object.clone().unbind(),
        })
    }

    fn numbers<T: 'static>(&self) -> &'static [T] {
        let length = self.memory.len() / size_of::<T>();
        // SAFETY: `T` is the type of the array's numbers, as `typed` chooses it; every bit pattern is a valid `T`, and the
        // numbers are aligned.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), length) }
    }

    fn view<T: 'static>(&self) -> ArrayView2<'_, T> {
        match ArrayView2::from_shape(self.shape.strides(self.strides), self.numbers()) {
            Ok(view) => view,
            Err(_) => unreachable!("the memory ends with the last number"),
        }
    }

    /// Returns the sum of each row, masked tokens included.
    pub fn row_sums(&self) -> Vec<f64> {
        typed!(self, T => {
            let rows = self.view::<T>();
            let of_row = |row: usize| match rows.row(row).as_slice() {
                Some(row) => sum(row),
                None => sum(&rows.row(row).to_vec()),
            };
            (0..self.shape.0).into_par_iter().map(of_row).collect()
        })
    }

    /// Adds the array to a batch as its mask.
    pub fn mask(&self, builder: BatchBuilder) -> BatchBuilder {
        typed!(self, T => builder.mask(self.view::<T>()))
    }

    /// Adds the array to a batch as a token column. f32 and f64 keep their type, and half precision is widened; integers become
    /// f32 if all are exact in f32, else f64.
    pub fn tokens(self, name: &str, builder: BatchBuilder) -> BatchBuilder {
        match self.dtype {
            (b'f', 2) => builder.token(name, self.floats::<f16>()),
            (b'V', 2) => builder.token(name, self.floats::<bf16>()),
            (b'f', 4) => builder.token(name, self.floats::<f32>()),
            (b'f', 8) => builder.token(name, self.floats::<f64>()),
            _ => {
                let wide = typed!(self, T => self.view::<T>().mapv(|number| number.number()));
                match wide.iter().all(|number| number.abs() <= EXACT) {
                    true => builder.token(name, wide.mapv(|number| number as f32)),
                    false => builder.token(name, wide),
                }
            }
        }
    }

    /// Makes a token column of the numbers: in place if they are f32 or f64 and each row is contiguous, and otherwise by a copy.
    fn floats<T: Copy + Send + Sync + 'static>(self) -> TokenValues
    where
        Buffer<T>: Into<FloatBuffer>,
    {
        let ((_, width), (down, right)) = (self.shape, self.strides);
        // The copy, in which half precision is widened, has only the array's own numbers, not the numbers between its rows.
        if size_of::<T>() == 2 || right != 1 && width > 1 {
            return self.view::<T>().into();
        }
        let memory = Buffer::new(Memory(self.numbers(), self.owner));
        match TokenValues::padded(memory, self.shape, down) {
            Some(column) => column,
            None => unreachable!("the memory ends with the last number"),
        }
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

/// The numbers of an array, and the object that keeps them.
struct Memory<T: 'static>(&'static [T], #[allow(dead_code)] Py<PyUntypedArray>);

impl<T> AsRef<[T]> for Memory<T> {
    fn as_ref(&self) -> &[T] {
        self.0
    }
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
        return in_pool(py, || ArrayOwner::new(computed))??.into_python(py);
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

/// The owner of the memory of a NumPy array [B, T].
#[pyclass(frozen)]
struct ArrayOwner {
    rows: Large<f32>,
    shape: (usize, usize),
}

impl ArrayOwner {
    fn new(computed: Computed) -> PyResult<ArrayOwner> {
        let shape = (computed.layout().responses(), computed.layout().width());
        let rows = computed.into_rows(&SPARE);
        let rows = rows.map_err(|error| PyMemoryError::new_err(error.message.clone()))?;
        Ok(ArrayOwner { rows, shape })
    }

    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let owner = Bound::new(py, self)?;
        let ArrayOwner { rows, shape } = owner.get();
        let array = match ArrayView2::from_shape(*shape, rows) {
            // SAFETY: the array keeps its owner alive, and only the array reads or writes the owner's memory until the owner is
            // dropped.
            Ok(array) => unsafe { PyArray2::borrow_from_array(&array, owner.clone().into_any()) },
            Err(_) => unreachable!("the rows have as many numbers as the shape requires"),
        };
        Ok(array.into_any())
    }
}
