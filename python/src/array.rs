//! NumPy arrays as columns and masks: their memory where it can be read in place, whatever its strides.

use advlab::batch::{BatchBuilder, Buffer, GroupId, Numeric, Owner, Padded};
use half::{bf16, f16};
use ndarray::{ArrayView, ArrayView1, ArrayView2, Dimension, IntoDimension, ShapeBuilder};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rayon::prelude::*;

/// Whole numbers up to here are the same as f32.
const EXACT: f64 = (1 << 24) as f64;

#[derive(Clone, Copy, PartialEq, Eq)]
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

/// A NumPy array that is kept alive, with numbers that are aligned, of the machine's byte order, and no negative stride:
/// `package/advlab/_arrays.py` sees to that.
pub struct Array {
    object: Py<PyUntypedArray>,
    kind: Kind,
    data: *const u8,
    shape: Vec<usize>,
    /// In numbers, not in bytes.
    strides: Vec<usize>,
}

// SAFETY: the object keeps its memory as long as somebody refers to it. Whoever writes into it meanwhile from another
// thread gets mixed numbers, as with NumPy's own functions, which let go of the interpreter's lock too.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// The array of the argument `name`. `is_bf16` says that the two bytes of each number are a bf16, for which NumPy has no
    /// type.
    pub fn new(name: &str, object: &Bound<'_, PyUntypedArray>, is_bf16: bool) -> PyResult<Array> {
        let dtype = object.dtype();
        let kind = match (dtype.kind(), dtype.itemsize()) {
            (_, 2) if is_bf16 => Kind::Bf16,
            // A truth value is a byte; one that is neither 0 nor 1 is then told, and not trusted.
            (b'b', 1) | (b'u', 1) => Kind::U8,
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
            _ => {
                let message = format!("`{name}` holds {dtype}: numbers or truth values are needed");
                return Err(PyTypeError::new_err(message));
            }
        };
        let size = dtype.itemsize();
        let strides = object.strides().iter().map(|&stride| {
            let stride = usize::try_from(stride).ok()?;
            (stride % size == 0).then_some(stride / size)
        });
        // SAFETY: the pointer is that of an array object.
        let data = unsafe { (*object.as_array_ptr()).fields.data };
        let Some(strides) = strides.collect::<Option<Vec<usize>>>() else {
            let message = format!("`{name}` has strides that are no multiples of its numbers");
            return Err(PyTypeError::new_err(message));
        };
        Ok(Array {
            object: object.clone().unbind(),
            kind,
            data: data.cast_const().cast(),
            shape: object.shape().to_vec(),
            strides,
        })
    }

    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// TypeError unless the argument `name` has so many dimensions; `shape` says what they are.
    pub fn expect(&self, name: &str, ndim: &[usize], shape: &str) -> PyResult<()> {
        let plural = if self.ndim() == 1 { "" } else { "s" };
        if ndim.contains(&self.ndim()) {
            return Ok(());
        }
        let found = format!("`{name}` has {} dimension{plural}", self.ndim());
        Err(PyTypeError::new_err(format!("{found}: {shape}")))
    }

    /// B.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    pub fn is_f64(&self) -> bool {
        self.kind == Kind::F64
    }

    fn view<T, D: Dimension>(&self, shape: D, strides: D) -> ArrayView<'_, T, D> {
        // SAFETY: the shape and the strides are the array's own, and `T` is the type of its numbers (`typed`).
        unsafe { ArrayView::from_shape_ptr(shape.strides(strides), self.data.cast()) }
    }

    fn view1<T>(&self) -> ArrayView1<'_, T> {
        self.view(
            [self.shape[0]].into_dimension(),
            [self.strides[0]].into_dimension(),
        )
    }

    fn view2<T>(&self) -> ArrayView2<'_, T> {
        let (shape, strides) = (&self.shape, &self.strides);
        self.view(
            [shape[0], shape[1]].into_dimension(),
            [strides[0], strides[1]].into_dimension(),
        )
    }

    /// The numbers of one dimension, as f64.
    pub fn numbers(&self) -> Vec<f64> {
        typed!(self.kind, T => self.view1::<T>().iter().map(|number| number.number()).collect())
    }

    /// The sum of each row, what does not count in a mask included.
    pub fn row_sums(&self) -> Vec<f64> {
        typed!(self.kind, T => {
            let rows = self.view2::<T>();
            let sum = |row: usize| match rows.row(row).as_slice() {
                Some(row) => sum(row),
                None => sum(&rows.row(row).to_vec()),
            };
            (0..self.rows()).into_par_iter().map(sum).collect()
        })
    }

    /// Group ids; `None` where the numbers are not whole ones by their type.
    pub fn integers(&self) -> Option<Vec<GroupId>> {
        Some(match self.kind {
            Kind::U8 => self.view1::<u8>().iter().map(GroupId::from).collect(),
            Kind::U16 => self.view1::<u16>().iter().map(GroupId::from).collect(),
            Kind::U32 => self.view1::<u32>().iter().map(GroupId::from).collect(),
            Kind::U64 => self.view1::<u64>().iter().map(GroupId::from).collect(),
            Kind::I8 => self.view1::<i8>().iter().map(GroupId::from).collect(),
            Kind::I16 => self.view1::<i16>().iter().map(GroupId::from).collect(),
            Kind::I32 => self.view1::<i32>().iter().map(GroupId::from).collect(),
            Kind::I64 => self.view1::<i64>().iter().map(GroupId::from).collect(),
            _ => return None,
        })
    }

    /// The mask [B, T].
    pub fn mask(&self, builder: BatchBuilder) -> BatchBuilder {
        typed!(self.kind, T => builder.mask(self.view2::<T>()))
    }

    /// A token column [B, T]: floats in place, integers as f32 where that holds them all, or else as f64.
    pub fn tokens(self, name: &str, builder: BatchBuilder) -> BatchBuilder {
        match self.kind {
            Kind::F16 => builder.token(name, self.padded::<f16>()),
            Kind::Bf16 => builder.token(name, self.padded::<bf16>()),
            Kind::F32 => builder.token(name, self.padded::<f32>()),
            Kind::F64 => builder.token(name, self.padded::<f64>()),
            kind => {
                let wide = typed!(kind, T => self.view2::<T>().mapv(|number| number.number()));
                if wide.iter().all(|number| number.abs() <= EXACT) {
                    builder.token(name, wide.mapv(|number| number as f32))
                } else {
                    builder.token(name, wide)
                }
            }
        }
    }

    fn padded<T: advlab::batch::Element>(self) -> Padded<T> {
        let (shape, strides) = (
            (self.shape[0], self.shape[1]),
            (self.strides[0], self.strides[1]),
        );
        // Far below 2^63, as NumPy's own are.
        let signed = (strides.0 as isize, strides.1 as isize);
        let length = match shape {
            (0, _) | (_, 0) => 0,
            (rows, columns) => (rows - 1) * strides.0 + (columns - 1) * strides.1 + 1,
        };
        let buffer = Buffer::new(Shared::<T> {
            data: self.data.cast(),
            length,
            _array: self.object,
        });
        match Padded::with_strides(buffer, 0, shape, signed) {
            Some(padded) => padded,
            None => unreachable!("the buffer ends with the last number"),
        }
    }
}

/// Rewards by token are 0 but for a few: stretches of zeros are passed over at the memory's speed.
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
struct Shared<T> {
    data: *const T,
    length: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: as of `Array`.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as of `Array`.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T: Send + Sync + 'static> Owner<T> for Shared<T> {
    fn as_slice(&self) -> &[T] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: all of it lies within the array's memory, which is kept alive; gaps between rows are numbers of the
        // array that this one is a view of.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}
