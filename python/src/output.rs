//! Computed values as NumPy arrays.

use std::sync::Mutex;

use advlab::batch::{Computed, FloatBuffer, Level};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use numpy::{Element, PyArray1, PyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::recipe::Shape;

/// Values that are not yet an array of Python's.
pub enum Values {
    Line32(Vec<f32>),
    Line64(Vec<f64>),
    Padded(Padded),
    Table64(Array2<f64>),
    /// Rows of their own length each.
    Ragged32(Vec<Vec<f32>>),
    Ragged64(Vec<Vec<f64>>),
}

impl Values {
    /// A value for each response as [B], for each token as [B, T] with 0 where the mask is 0, or as ragged as the input was.
    pub fn of(computed: &Computed, shape: Shape) -> Values {
        let is_f64 = shape.f64;
        if computed.level() == Level::Response && !shape.padded {
            return match computed.buffer() {
                FloatBuffer::F64(values) if is_f64 => Values::Line64(values.to_vec()),
                values if is_f64 => Values::Line64(values.iter().collect()),
                // Rounds to f32: that is what trainers hold advantages in.
                values => Values::Line32(values.iter().map(|value| value as f32).collect()),
            };
        }
        let layout = computed.layout();
        let width = layout.width();
        let is_padded =
            (0..layout.responses()).all(|response| layout.row_length(response) == width);
        match (is_padded, is_f64) {
            (true, false) => Values::Padded(padded(computed)),
            (true, true) => Values::Table64(table(computed)),
            (false, false) => Values::Ragged32(ragged(computed, |value| value as f32)),
            (false, true) => Values::Ragged64(ragged(computed, |value| value)),
        }
    }

    pub fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Values::Line32(values) => PyArray1::from_vec(py, values).into_py_any(py),
            Values::Line64(values) => PyArray1::from_vec(py, values).into_py_any(py),
            Values::Padded(values) => values.into_python(py),
            Values::Table64(values) => PyArray2::from_owned_array(py, values).into_py_any(py),
            Values::Ragged32(rows) => list(py, rows),
            Values::Ragged64(rows) => list(py, rows),
        }
    }
}

/// The memory of large arrays [B, T] that nobody has any more, for the next ones: of fresh memory each page that is written
/// for the first time costs more than all the rest. An advantage and the returns beside it are two.
static SPARE: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new());
const SPARES: usize = 2;
/// The C library gives the memory of so many numbers back to the system when it is freed; smaller blocks it reuses itself.
const LARGE: usize = 8 << 20;

/// An array [B, T].
#[pyclass(frozen)]
pub struct Padded {
    values: Vec<f32>,
    shape: (usize, usize),
}

impl Padded {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let owner = Bound::new(py, self)?;
        let Padded { values, shape } = owner.get();
        let view = ArrayView2::from_shape(*shape, &values[..shape.0 * shape.1]);
        let view = view.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        // SAFETY: the array keeps its owner, which nothing but the array reads or writes until it is dropped.
        unsafe { PyArray2::borrow_from_array(&view, owner.clone().into_any()) }.into_py_any(py)
    }
}

impl Drop for Padded {
    fn drop(&mut self) {
        // A lock that another thread holds, or held when the process forked, is not waited for.
        if self.values.len() >= LARGE
            && let Ok(mut spare) = SPARE.try_lock()
        {
            spare.truncate(SPARES - 1);
            spare.insert(0, std::mem::take(&mut self.values));
        }
    }
}

fn padded(computed: &Computed) -> Padded {
    let layout = computed.layout();
    let shape = (layout.responses(), layout.width());
    let length = shape.0 * shape.1;
    let spare = SPARE.try_lock().ok().and_then(|mut spare| {
        let fits = |values: &Vec<f32>| length >= LARGE && values.len() >= length;
        spare.iter().position(fits).map(|at| spare.remove(at))
    });
    let mut values = spare.unwrap_or_else(|| vec![0.0; length]);
    let array = ArrayViewMut2::from_shape(shape, &mut values[..length]);
    let written = array.map(|mut array| computed.write_into(&mut array));
    match written {
        Ok(Ok(())) => Padded { values, shape },
        _ => unreachable!("the array has the shape of the layout"),
    }
}

fn table(computed: &Computed) -> Array2<f64> {
    let layout = computed.layout();
    let mut array = Array2::zeros((layout.responses(), layout.width()));
    if let Some(values) = array.as_slice_mut().filter(|values| !values.is_empty()) {
        let rows = values.par_chunks_mut(layout.width()).enumerate();
        rows.for_each(|(response, row)| fill(computed, response, row, |value| value));
    }
    array
}

fn ragged<T: Copy + Default>(computed: &Computed, cast: fn(f64) -> T) -> Vec<Vec<T>> {
    let layout = computed.layout();
    let rows = 0..layout.responses();
    rows.map(|response| {
        let mut row = vec![T::default(); layout.row_length(response)];
        fill(computed, response, &mut row, cast);
        row
    })
    .collect()
}

/// Writes the tokens that count.
fn fill<T>(computed: &Computed, response: usize, row: &mut [T], cast: fn(f64) -> T) {
    let layout = computed.layout();
    let start = layout.tokens_of(response).start;
    layout.scatter(response, row, |token| {
        cast(computed.at(response, token - start))
    });
}

fn list<T: Element>(py: Python<'_>, rows: Vec<Vec<T>>) -> PyResult<Py<PyAny>> {
    let rows = rows.into_iter().map(|row| PyArray1::from_vec(py, row));
    rows.collect::<Vec<_>>().into_py_any(py)
}
