//! Makes batches from arrays or from a file, and returns their columns as arrays.

use std::path::PathBuf;
use std::sync::Arc;

use advlab::Batch;
use advlab::batch::{FloatBuffer, GroupId};
use advlab::files::{Dtype, Mapping, ReadOptions, Tokenize};
use advlab_cli::prompt::builtin;
use advlab_cli::read_rollouts;
use advlab_train::tokenizer::Tokenizer;
use ndarray::{ArrayView, ArrayView1, ArrayView2, Dimension, ShapeBuilder};
use numpy::{Element, PyArray, PyArray1, PyReadonlyArray1, PyUntypedArray};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::array;
use crate::error::{in_python, raise};
use crate::pool::in_pool;

/// Python's `Batch`: a batch, the step number that the trainer or the file gave, and the reader's notes.
#[pyclass(frozen, subclass, name = "Batch", module = "advlab._native")]
pub struct PyBatch {
    pub batch: Batch,
    /// The step number, if the trainer gave one or the file has one above 0.
    pub given_step: Option<u64>,
    /// Notes on how the file was interpreted.
    #[pyo3(get)]
    notes: Vec<String>,
}

/// A column or a mask, as `package/advlab/_arrays.py` passes it.
#[derive(FromPyObject)]
enum PyColumn<'py> {
    /// One number per response, [B].
    Response(PyReadonlyArray1<'py, f64>),
    /// One number per token, [B, T].
    Padded(Bound<'py, PyUntypedArray>),
    /// The rows of a ragged array, one after another, and their lengths.
    RaggedMask(PyReadonlyArray1<'py, bool>, Vec<usize>),
    RaggedF32(PyReadonlyArray1<'py, f32>, Vec<usize>),
    RaggedF64(PyReadonlyArray1<'py, f64>, Vec<usize>),
}

/// The index of each response's value in the list of distinct values, and that list.
type Labels<'py> = (Vec<usize>, Vec<Bound<'py, PyAny>>);

#[pymethods]
impl PyBatch {
    #[staticmethod]
    fn of_columns(
        py: Python<'_>,
        groups: Labels<'_>,
        mask: Option<PyColumn<'_>>,
        columns: Vec<(String, PyColumn<'_>)>,
        texts: Vec<(String, Labels<'_>)>,
        step: Option<u64>,
    ) -> PyResult<PyBatch> {
        let mut builder = Batch::builder().groups(spread(groups, group_id)?);
        if let Some(step) = step {
            builder = builder.step(step);
        }
        builder = match mask {
            Some(PyColumn::Padded(array)) => array::mask(&array, builder)?,
            Some(PyColumn::RaggedMask(mask, lengths)) => {
                builder.ragged_mask(rows(mask.as_slice()?, &lengths))
            }
            _ => builder,
        };
        for (name, given) in columns {
            builder = match given {
                PyColumn::Response(values) => builder.response(name, values.as_array()),
                PyColumn::Padded(array) => builder.token(name, array::tokens(&array)?),
                PyColumn::RaggedMask(..) => return Err(PyTypeError::new_err(name)),
                PyColumn::RaggedF32(values, lengths) => {
                    builder.ragged(name, rows(values.as_slice()?, &lengths))
                }
                PyColumn::RaggedF64(values, lengths) => {
                    builder.ragged(name, rows(values.as_slice()?, &lengths))
                }
            };
        }
        for (name, values) in texts {
            let texts = spread(values, |value| text(&name, value.cast()?))?;
            builder = builder.text(name, texts);
        }
        let batch = in_pool(py, || builder.build())?;
        Ok(PyBatch {
            batch: batch.map_err(raise)?,
            given_step: step,
            notes: Vec::new(),
        })
    }

    /// Reads rollouts; without a path, returns the built-in rollouts of `advlab repl`.
    #[new]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        map: Vec<(String, String)>,
        f64: Option<bool>,
        step: Option<u64>,
        tokenizer: Option<PathBuf>,
        unscored: &str,
    ) -> PyResult<PyBatch> {
        let Some(path) = path else {
            return Ok(PyBatch {
                batch: builtin(),
                given_step: None,
                notes: Vec::new(),
            });
        };
        let pairs = map.into_iter();
        let map: Vec<Mapping> = pairs
            .map(|(ours, theirs)| Mapping { ours, theirs })
            .collect();
        let load = |path: PathBuf| Tokenizer::load(&path, false).map_err(raise);
        let tokenizer = tokenizer.map(load).transpose()?;
        let tokenizer = tokenizer.map(|one| Arc::new(one) as Arc<dyn Tokenize>);
        let options = ReadOptions {
            map: &map,
            dtype: f64.map(|wide| if wide { Dtype::F64 } else { Dtype::F32 }),
            tokenizer: tokenizer.as_ref(),
            unscored: advlab_cli::unscored(unscored).map_err(PyValueError::new_err)?,
            ..ReadOptions::default()
        };
        let read = in_pool(py, || read_rollouts(&path, step, &options))?;
        let (rollouts, notes) = read.map_err(raise)?;
        Ok(PyBatch {
            notes: notes.iter().map(|note| in_python(note)).collect(),
            given_step: Some(rollouts.batch.step()).filter(|step| *step > 0),
            batch: rollouts.batch,
        })
    }

    /// Returns the number of responses, B.
    #[getter]
    fn responses(&self) -> usize {
        self.batch.layout().responses()
    }

    /// Returns the training step that the batch comes from; 0 if the step is unknown.
    #[getter]
    fn step(&self) -> u64 {
        self.batch.step()
    }

    fn _columns(&self) -> Vec<String> {
        let texts = self.batch.texts().map(|(name, _)| name);
        let names = self.batch.columns().chain(texts);
        names.map(str::to_string).collect()
    }

    /// Returns the id of each response's group: an integer or a string.
    #[getter]
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let layout = self.batch.layout();
        let ids = (0..layout.groups()).map(|group| match layout.group_id(group) {
            GroupId::Number(number) => number.into_py_any(py),
            GroupId::String(name) => name.into_py_any(py),
        });
        let ids: Vec<Py<PyAny>> = ids.collect::<PyResult<_>>()?;
        let responses = 0..layout.responses();
        let id = |response| ids[layout.group_of(response)].clone_ref(py);
        Ok(responses.map(id).collect())
    }

    /// Returns the number of each response's tokens that count.
    #[getter]
    fn lengths<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let layout = self.batch.layout();
        let responses = 0..layout.responses();
        let lengths = responses.map(|response| layout.tokens_of(response).len() as i64);
        PyArray1::from_iter(py, lengths)
    }

    /// Returns a column of numbers as a read-only array: [B] or [B, T] without a copy or, if the column is not padded, a copy
    /// with one number per token that counts. Returns a column of texts as a list of strings.
    fn _column<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (py, batch) = (slf.py(), &slf.get().batch);
        if let Some(values) = batch.response_buffer(name) {
            return in_place(slf, ArrayView1::from(&values[..]));
        }
        if let Some(texts) = batch.text(name) {
            let texts = texts.iter().map(|text| &**text);
            return texts.collect::<Vec<_>>().into_bound_py_any(py);
        }
        let Some(column) = batch.token_column(name) else {
            return Err(PyKeyError::new_err(name.to_string()));
        };
        match (column.numbers(), column.shape()) {
            (FloatBuffer::F32(values), Some(shape)) => in_place(slf, padded(values, shape)?),
            (FloatBuffer::F64(values), Some(shape)) => in_place(slf, padded(values, shape)?),
            (_, None) => {
                let array = match column.compact(batch.layout()) {
                    FloatBuffer::F32(values) => PyArray1::from_slice(py, &values).into_any(),
                    FloatBuffer::F64(values) => PyArray1::from_slice(py, &values).into_any(),
                };
                array.getattr("flags")?.setattr("writeable", false)?;
                Ok(array)
            }
        }
    }
}

/// Returns an array [B, T] whose rows start `stride` numbers apart.
fn padded<T>(
    values: &[T],
    (shape, stride): ((usize, usize), usize),
) -> PyResult<ArrayView2<'_, T>> {
    let array = ArrayView2::from_shape(shape.strides((stride, 1)), values);
    array.map_err(|_| PyTypeError::new_err("NumPy has no array for this column"))
}

/// Splits an array in which rows of the given lengths are stored one after another.
fn rows<'a, T>(mut flat: &'a [T], lengths: &[usize]) -> impl Iterator<Item = &'a [T]> {
    let row = move |&length: &usize| flat.split_off(..length).unwrap_or_default();
    lengths.iter().map(row)
}

/// Returns the value of each response.
fn spread<T: Clone>(
    (indices, values): Labels<'_>,
    read: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let values: Vec<T> = values.iter().map(read).collect::<PyResult<_>>()?;
    Ok(indices.iter().map(|&index| values[index].clone()).collect())
}

fn group_id(id: &Bound<'_, PyAny>) -> PyResult<GroupId> {
    match id.cast::<PyString>() {
        Ok(name) => Ok(text("groups", name)?.into()),
        Err(_) => Ok(GroupId::Number(id.extract()?)),
    }
}

/// Converts a text in the argument `name`. Fails if it is not valid Unicode.
fn text(name: &str, text: &Bound<'_, PyString>) -> PyResult<Arc<str>> {
    match text.to_cow() {
        Ok(text) => Ok((*text).into()),
        Err(_) => {
            let shown = text.repr()?;
            let message = format!("`{name}` has the string {shown}, which is not valid Unicode");
            Err(PyValueError::new_err(message))
        }
    }
}

/// Returns a read-only array over the batch's own memory.
fn in_place<'py, T: Element, D: Dimension>(
    batch: &Bound<'py, PyBatch>,
    view: ArrayView<'_, T, D>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the batch owns the values and never changes, because it is a frozen object. The array is read-only.
    let array = unsafe { PyArray::borrow_from_array(&view, batch.clone().into_any()) };
    array.getattr("flags")?.setattr("writeable", false)?;
    Ok(array.into_any())
}
