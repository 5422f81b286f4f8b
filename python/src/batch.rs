//! A batch, from arrays or from a file, and its columns as arrays.

use std::path::PathBuf;
use std::sync::Arc;

use advlab::Batch;
use advlab::batch::{BatchBuilder, FloatBuffer, GroupId, TokenValues};
use advlab::files::{Dtype, Mapping, ReadOptions, read};
use ndarray::{ArrayView1, ArrayView2};
use numpy::{Element, PyArray1, PyArray2, PyReadonlyArray1, PyUntypedArray};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::array::Array;
use crate::error::{in_python, raise};
use crate::pool;

/// Columns over a layout.
#[pyclass(frozen, name = "Batch", module = "advlab._native")]
pub struct PyBatch {
    pub batch: Batch,
    /// The trainer's step, if the trainer gave one.
    pub given_step: Option<u64>,
    /// What a reader decided, in words.
    #[pyo3(get)]
    notes: Vec<String>,
}

/// A column or a mask, as `package/advlab/_arrays.py` gives it.
#[derive(FromPyObject)]
enum Given<'py> {
    /// [B].
    Response(PyReadonlyArray1<'py, f64>),
    /// [B, T], and whether its two bytes are a bf16.
    Padded(Bound<'py, PyUntypedArray>, bool),
    /// Rows one after another, and their lengths.
    RaggedMask(PyReadonlyArray1<'py, bool>, Vec<usize>),
    RaggedF32(PyReadonlyArray1<'py, f32>, Vec<usize>),
    RaggedF64(PyReadonlyArray1<'py, f64>, Vec<usize>),
}

/// For each response the index of its value, and the values, each once.
type Labels<'py> = (Vec<usize>, Vec<Bound<'py, PyAny>>);

/// Adds a part of a batch to the builder, without the interpreter's lock.
type Input = Box<dyn FnOnce(BatchBuilder) -> BatchBuilder + Send>;

#[pymethods]
impl PyBatch {
    /// Without groups, each response is a group by itself.
    #[new]
    fn new(
        py: Python<'_>,
        groups: Option<Labels<'_>>,
        mask: Option<Given<'_>>,
        columns: Vec<(String, Given<'_>)>,
        texts: Vec<(String, Labels<'_>)>,
        step: Option<u64>,
    ) -> PyResult<PyBatch> {
        let mut inputs: Vec<Input> = Vec::new();
        let mut responses = 0;
        let mask = mask.map(|mask| ("mask".to_string(), mask));
        let is_masked = mask.is_some();
        for (at, (name, given)) in mask.into_iter().chain(columns).enumerate() {
            let (rows, input) = input(name, given, is_masked && at == 0)?;
            responses = rows;
            inputs.push(input);
        }
        for (name, (indices, values)) in texts {
            responses = indices.len();
            let values = values.iter().map(|value| text(&name, value.cast()?));
            let texts = spread(&indices, values)?;
            inputs.push(Box::new(|builder| builder.text(name, texts)));
        }
        let groups: Vec<GroupId> = match groups {
            Some((indices, ids)) => spread(&indices, ids.iter().map(group_id))?,
            None => (0..responses).map(GroupId::from).collect(),
        };
        let build = || {
            let builder = Batch::builder().groups(groups);
            let builder = step.into_iter().fold(builder, BatchBuilder::step);
            let inputs = inputs.into_iter();
            inputs
                .fold(builder, |builder, input| input(builder))
                .build()
        };
        let batch = py.detach(|| pool::install(build))?;
        Ok(PyBatch {
            batch: batch.map_err(raise)?,
            given_step: step,
            notes: Vec::new(),
        })
    }

    /// Reads a file of rollouts.
    #[staticmethod]
    fn read(
        py: Python<'_>,
        path: PathBuf,
        map: Vec<(String, String)>,
        f64: Option<bool>,
    ) -> PyResult<PyBatch> {
        let pairs = map.into_iter();
        let map: Vec<Mapping> = pairs
            .map(|(ours, theirs)| Mapping { ours, theirs })
            .collect();
        let options = ReadOptions {
            map: &map,
            dtype: f64.map(|wide| if wide { Dtype::F64 } else { Dtype::F32 }),
            ..ReadOptions::default()
        };
        let rollouts = py.detach(|| pool::install(|| read(&path, &options)))?;
        let rollouts = rollouts.map_err(raise)?;
        let notes = rollouts.notes.iter();
        Ok(PyBatch {
            notes: notes.map(|note| in_python(&note.to_string())).collect(),
            given_step: Some(rollouts.batch.step()).filter(|step| *step > 0),
            batch: rollouts.batch,
        })
    }

    fn __len__(&self) -> usize {
        self.batch.layout().responses()
    }

    #[getter]
    fn step(&self) -> u64 {
        self.batch.step()
    }

    /// The names of all columns.
    fn columns(&self) -> Vec<String> {
        let texts = self.batch.texts().map(|(name, _)| name);
        let names = self.batch.columns().chain(texts);
        names.map(str::to_string).collect()
    }

    /// The id of each response's group: an integer or a string.
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

    /// How many tokens of each response count.
    fn lengths<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let layout = self.batch.layout();
        let responses = 0..layout.responses();
        let lengths = responses.map(|response| layout.tokens_of(response).len() as i64);
        PyArray1::from_iter(py, lengths)
    }

    /// A column, read-only and in place if NumPy has its type: [B], [B, T], or one number for each token that counts; texts as
    /// a list of strings.
    fn column<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (py, batch) = (slf.py(), &slf.get().batch);
        if let Some(values) = batch.response_buffer(name) {
            return flat(slf, values);
        }
        if let Some(texts) = batch.text(name) {
            let texts = texts.iter().map(|text| &**text);
            return texts.collect::<Vec<_>>().into_bound_py_any(py);
        }
        match batch.token_column(name) {
            Some(TokenValues::F32(values)) => table(slf, values.view()),
            Some(TokenValues::F64(values)) => table(slf, values.view()),
            Some(TokenValues::F16(values)) => table(slf, values.view()),
            Some(TokenValues::Bf16(values)) => {
                let view = values.view().ok_or_else(no_array)?;
                Ok(PyArray2::from_owned_array(py, view.mapv(f32::from)).into_any())
            }
            Some(TokenValues::Compact(FloatBuffer::F32(values))) => flat(slf, values),
            Some(TokenValues::Compact(FloatBuffer::F64(values))) => flat(slf, values),
            Some(_) => Err(no_array()),
            None => Err(PyKeyError::new_err(name.to_string())),
        }
    }
}

/// The number of responses of a column or the mask, and what adds it to a builder.
fn input(name: String, given: Given<'_>, is_mask: bool) -> PyResult<(usize, Input)> {
    Ok(match given {
        Given::Response(values) => {
            let values = values.as_array().to_vec();
            let responses = values.len();
            (
                responses,
                Box::new(|builder| builder.response(name, values)),
            )
        }
        Given::Padded(array, is_bf16) => {
            let array = Array::new(&array, is_bf16)?;
            let responses = array.rows();
            let add = move |builder| match is_mask {
                true => array.mask(builder),
                false => array.tokens(&name, builder),
            };
            (responses, Box::new(add))
        }
        Given::RaggedMask(mask, lengths) => {
            let rows = rows(mask.as_array(), &lengths);
            (lengths.len(), Box::new(|builder| builder.ragged_mask(rows)))
        }
        Given::RaggedF32(values, lengths) => {
            let rows = rows(values.as_array(), &lengths);
            (
                lengths.len(),
                Box::new(|builder| builder.ragged(name, rows)),
            )
        }
        Given::RaggedF64(values, lengths) => {
            let rows = rows(values.as_array(), &lengths);
            (
                lengths.len(),
                Box::new(|builder| builder.ragged(name, rows)),
            )
        }
    })
}

/// Copies rows that lie one after another.
fn rows<T: Copy>(flat: ArrayView1<'_, T>, lengths: &[usize]) -> Vec<Vec<T>> {
    let mut numbers = flat.iter().copied();
    let row = |&length: &usize| numbers.by_ref().take(length).collect();
    lengths.iter().map(row).collect()
}

/// The value of each response.
fn spread<T: Clone>(
    indices: &[usize],
    values: impl Iterator<Item = PyResult<T>>,
) -> PyResult<Vec<T>> {
    let values: Vec<T> = values.collect::<PyResult<_>>()?;
    Ok(indices.iter().map(|&index| values[index].clone()).collect())
}

fn group_id(id: &Bound<'_, PyAny>) -> PyResult<GroupId> {
    match id.cast::<PyString>() {
        Ok(name) => Ok(text("groups", name)?.into()),
        Err(_) => Ok(GroupId::Number(id.extract()?)),
    }
}

/// A string of the argument `name`.
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

fn no_array() -> PyErr {
    PyTypeError::new_err("NumPy has no array for this column")
}

fn flat<'py, T: Element>(batch: &Bound<'py, PyBatch>, values: &[T]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the batch has the values and never changes: a frozen object. The array is read-only.
    let array =
        unsafe { PyArray1::borrow_from_array(&ArrayView1::from(values), batch.clone().into_any()) };
    read_only(array.into_any())
}

fn table<'py, T: Element>(
    batch: &Bound<'py, PyBatch>,
    view: Option<ArrayView2<'_, T>>,
) -> PyResult<Bound<'py, PyAny>> {
    let view = view.ok_or_else(no_array)?;
    // SAFETY: as of `flat`.
    let array = unsafe { PyArray2::borrow_from_array(&view, batch.clone().into_any()) };
    read_only(array.into_any())
}

fn read_only(array: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    array.getattr("flags")?.setattr("writeable", false)?;
    Ok(array)
}
