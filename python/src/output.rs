//! Computed values as NumPy arrays.

use advlab::batch::{Computed, FloatBuffer, Level};
use ndarray::Array2;
use numpy::{Element, PyArray1, PyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::recipe::Shape;

/// Values that are not yet an array of Python's.
pub enum Values {
    Line32(Vec<f32>),
    Line64(Vec<f64>),
    Table32(Array2<f32>),
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
            (true, false) => Values::Table32(computed.to_padded()),
            (true, true) => Values::Table64(table(computed)),
            (false, false) => Values::Ragged32(ragged(computed, |value| value as f32)),
            (false, true) => Values::Ragged64(ragged(computed, |value| value)),
        }
    }

    pub fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Values::Line32(values) => PyArray1::from_vec(py, values).into_py_any(py),
            Values::Line64(values) => PyArray1::from_vec(py, values).into_py_any(py),
            Values::Table32(values) => PyArray2::from_owned_array(py, values).into_py_any(py),
            Values::Table64(values) => PyArray2::from_owned_array(py, values).into_py_any(py),
            Values::Ragged32(rows) => list(py, rows),
            Values::Ragged64(rows) => list(py, rows),
        }
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
