//! NumPy arrays [B, T] in and out: their memory is read in place, whatever its strides.

use std::sync::Mutex;

use advlab::batch::{
    BatchBuilder, Buffer, Computed, Element, Level, Numeric, Owner, Padded as PaddedColumn,
};
use half::{bf16, f16};
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};
use numpy::{PyArray1, PyArray2, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use rayon::prelude::*;

/// Integers up to this one are exact in f32.
const EXACT: f64 = (1 << 24) as f64;

#[derive(Clone, Copy)]
enum Kind {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// Evaluates an expression with the number type of a kind as `T`.
macro_rules! typed {
    ($kind:expr, $T:ident => $body:expr) => {
        typed!($kind, $T => $body; U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, Bf16 bf16, F32 f32, F64 f64)
    };
    ($kind:expr, $T:ident => $body:expr; $($name:ident $number:ty),+) => {
        match $kind {
            $(Kind::$name => {
                type $T = $number;
                $body
            })+
        }
    };
}

/// A NumPy array [B, T] that is kept alive, with aligned numbers of the machine's byte order and without negative strides:
/// `package/advlab/_arrays.py` sees to that.
pub struct Array {
    object: Py<PyUntypedArray>,
    kind: Kind,
    data: *const u8,
    shape: (usize, usize),
    /// In numbers, not in bytes.
    strides: (usize, usize),
}

// SAFETY: the object keeps its memory as long as somebody refers to it. Whoever writes into it meanwhile from another
// thread gets mixed numbers, as with NumPy's own functions, which release the interpreter's lock too.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// `is_bf16` says that the two bytes of each number are a bf16, for which NumPy has no type.
    pub fn new(object: &Bound<'_, PyUntypedArray>, is_bf16: bool) -> PyResult<Array> {
        let (dtype, size) = (object.dtype(), object.dtype().itemsize());
        let strides: Option<Vec<usize>> = (object.strides().iter())
            .map(|&stride| Some(usize::try_from(stride).ok()? / size))
            .collect();
        let kind = match (dtype.kind(), size) {
            (_, 2) if is_bf16 => Kind::Bf16,
            // A truth value that is neither 0 nor 1 is refused as a number.
            (b'b' | b'u', 1) => Kind::U8,
            (b'u', 2) => Kind::U16,
            (b'u', 4) => Kind::U32,
            (b'u', 8) => Kind::U64,
            (b'i', 1) => Kind::I8,
            (b'i', 2) => Kind::I16,
            (b'i', 4) => Kind::I32,
            (b'i', 8) => Kind::I64,
            (b'f', 2) => Kind::F16,
            (b'f', 4) => Kind::F32,
            (b'f', 8) => Kind::F64,
            _ => return Err(PyTypeError::new_err(format!("no numbers: {dtype}"))),
        };
        let (&[rows, width], Some(&[down, right])) = (object.shape(), strides.as_deref()) else {
            return Err(PyTypeError::new_err("not an array [B, T]"));
        };
        // SAFETY: the pointer is that of an array object.
        let data = unsafe { (*object.as_array_ptr()).fields.data };
        Ok(Array {
            object: object.clone().unbind(),
            kind,
            data: data.cast_const().cast(),
            shape: (rows, width),
            strides: (down, right),
        })
    }

    /// B.
    pub fn rows(&self) -> usize {
        self.shape.0
    }

    fn view<T>(&self) -> ArrayView2<'_, T> {
        // SAFETY: the shape and the strides are the array's own, and `T` is the type of its numbers (`typed`).
        unsafe { ArrayView2::from_shape_ptr(self.shape.strides(self.strides), self.data.cast()) }
    }

    /// The sum of each row, masked tokens included.
    pub fn row_sums(&self) -> Vec<f64> {
        typed!(self.kind, T => {
            let rows = self.view::<T>();
            let of_row = |row: usize| match rows.row(row).as_slice() {
                Some(row) => sum(row),
                None => sum(&rows.row(row).to_vec()),
            };
            (0..self.rows()).into_par_iter().map(of_row).collect()
        })
    }

    /// Adds the mask.
    pub fn mask(&self, builder: BatchBuilder) -> BatchBuilder {
        typed!(self.kind, T => builder.mask(self.view::<T>()))
    }

    /// Adds a token column: floats in place, integers as f32 if that is exact for all of them, and as f64 otherwise.
    pub fn tokens(self, name: &str, builder: BatchBuilder) -> BatchBuilder {
        match self.kind {
            Kind::F16 => builder.token(name, self.in_place::<f16>()),
            Kind::Bf16 => builder.token(name, self.in_place::<bf16>()),
            Kind::F32 => builder.token(name, self.in_place::<f32>()),
            Kind::F64 => builder.token(name, self.in_place::<f64>()),
            kind => {
                let wide = typed!(kind, T => self.view::<T>().mapv(|number| number.number()));
                if wide.iter().all(|number| number.abs() <= EXACT) {
                    builder.token(name, wide.mapv(|number| number as f32))
                } else {
                    builder.token(name, wide)
                }
            }
        }
    }

    fn in_place<T: Element>(self) -> PaddedColumn<T> {
        let (shape, strides) = (self.shape, self.strides);
        let length = match shape {
            (0, _) | (_, 0) => 0,
            (rows, width) => (rows - 1) * strides.0 + (width - 1) * strides.1 + 1,
        };
        let memory = Buffer::new(Memory::<T> {
            data: self.data.cast(),
            length,
            _array: self.object,
        });
        match PaddedColumn::with_strides(memory, shape, strides) {
            Some(column) => column,
            None => unreachable!("the memory ends with the last number"),
        }
    }
}

/// The sum of a row. Most rewards per token are 0: runs of zeros are skipped at the memory's speed.
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

/// The memory of an array from its first number to its last one.
struct Memory<T> {
    data: *const T,
    length: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: as of `Array`.
unsafe impl<T: Send> Send for Memory<T> {}
// SAFETY: as of `Array`.
unsafe impl<T: Sync> Sync for Memory<T> {}

impl<T: Send + Sync + 'static> Owner<T> for Memory<T> {
    fn as_slice(&self) -> &[T] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: all of it lies within the array's memory, which is kept alive; gaps between rows are numbers of the
        // array that this one is a view of.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}

/// Computed values on their way to NumPy.
pub enum Values {
    F32(Rows<f32>),
    F64(Rows<f64>),
    Padded(Padded),
}

/// Numbers one after another, and how many each response has; without lengths, each has one.
pub struct Rows<T> {
    numbers: Vec<T>,
    lengths: Option<Vec<usize>>,
}

impl Values {
    /// Values per response as [B], unless they are to be `padded`; values per token as [B, T] with 0 where the mask is 0, or
    /// as rows of their own lengths if the input has such.
    pub fn new(computed: &Computed, is_f64: bool, padded: bool) -> Values {
        let layout = computed.layout();
        let width = layout.width();
        let lengths = (computed.level() != Level::Response || padded).then(|| {
            let responses = 0..layout.responses();
            responses
                .map(|response| layout.row_length(response))
                .collect::<Vec<_>>()
        });
        let is_table = |lengths: &Vec<usize>| lengths.iter().all(|&length| length == width);
        match lengths {
            lengths if is_f64 => Values::F64(Rows::new(computed, lengths, |value| value)),
            Some(lengths) if is_table(&lengths) => Values::Padded(Padded::new(computed)),
            // Rounds to f32: that is what trainers hold advantages in.
            lengths => Values::F32(Rows::new(computed, lengths, |value| value as f32)),
        }
    }
}

impl<'py> IntoPyObject<'py> for Values {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Values::F32(rows) => rows.into_python(py),
            Values::F64(rows) => rows.into_python(py),
            Values::Padded(padded) => padded.into_python(py),
        }
    }
}

impl<T: numpy::Element + Copy + Default + Send> Rows<T> {
    fn new(computed: &Computed, lengths: Option<Vec<usize>>, cast: fn(f64) -> T) -> Self {
        let layout = computed.layout();
        let Some(lengths) = lengths else {
            let numbers = computed.buffer().iter().map(cast).collect();
            return Rows {
                numbers,
                lengths: None,
            };
        };
        let mut numbers = vec![T::default(); lengths.iter().sum()];
        let (mut rest, mut rows) = (&mut numbers[..], Vec::with_capacity(lengths.len()));
        for &length in &lengths {
            let (row, others) = rest.split_at_mut(length);
            rows.push(row);
            rest = others;
        }
        rows.into_par_iter()
            .enumerate()
            .for_each(|(response, row)| {
                let start = layout.tokens_of(response).start;
                let value = |token| cast(computed.at(response, token - start));
                layout.scatter(response, row, value);
            });
        let lengths = Some(lengths);
        Rows { numbers, lengths }
    }

    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let flat = PyArray1::from_vec(py, self.numbers);
        let Some(lengths) = self.lengths else {
            return Ok(flat.into_any());
        };
        let width = lengths.first().copied().unwrap_or(0);
        if lengths.iter().all(|&length| length == width) {
            return flat.call_method1("reshape", (lengths.len(), width));
        }
        let ends = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        let ends: Vec<usize> = ends.take(lengths.len() - 1).collect();
        py.import("numpy")?.call_method1("split", (flat, ends))
    }
}

/// The memory of large arrays [B, T] that nobody has any more, for the next ones: the first write to each page of fresh
/// memory costs more than all the rest. A step has two such arrays, the advantage and the returns.
static SPARE: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new());
const SPARES: usize = 2;
/// The size in numbers from which on memory is kept.
const LARGE: usize = 1 << 20;

/// An array [B, T] of f32 on its way to NumPy, and then the owner of the array's memory.
#[pyclass(frozen)]
pub struct Padded {
    values: Vec<f32>,
    shape: (usize, usize),
}

impl Padded {
    fn new(computed: &Computed) -> Padded {
        let layout = computed.layout();
        let shape = (layout.responses(), layout.width());
        let length = shape.0 * shape.1;
        let spare = SPARE.try_lock().ok().and_then(|mut spare| {
            let fits = |values: &Vec<f32>| length >= LARGE && values.len() >= length;
            spare.iter().position(fits).map(|at| spare.remove(at))
        });
        let mut values = spare.unwrap_or_else(|| vec![0.0; length]);
        let array = ArrayViewMut2::from_shape(shape, &mut values[..length]);
        match array.map(|mut array| computed.write_into(&mut array)) {
            Ok(Ok(())) => Padded { values, shape },
            _ => unreachable!("the array has the shape of the layout"),
        }
    }

    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let owner = Bound::new(py, self)?;
        let Padded { values, shape } = owner.get();
        let view = ArrayView2::from_shape(*shape, &values[..shape.0 * shape.1]);
        let view = view.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        // SAFETY: the array keeps its owner, which nothing but the array reads or writes until it is dropped.
        let array = unsafe { PyArray2::borrow_from_array(&view, owner.clone().into_any()) };
        Ok(array.into_any())
    }
}

impl Drop for Padded {
    fn drop(&mut self) {
        // Never wait here: after a fork, a thread of the parent may hold the lock for ever.
        if self.values.len() >= LARGE
            && let Ok(mut spare) = SPARE.try_lock()
        {
            spare.truncate(SPARES - 1);
            spare.insert(0, std::mem::take(&mut self.values));
        }
    }
}
