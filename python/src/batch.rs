//! A batch, from arrays or from a file, and its columns as arrays.

use advlab::Batch;
use advlab::batch::{BatchBuilder, Buffer, FloatBuffer, TokenValues};
use advlab::files::{Dtype, Mapping, ReadOptions, read};
use ndarray::{ArrayView1, ArrayView2};
use numpy::{Element, PyArray1, PyArray2, PyUntypedArray};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::array::Array;
use crate::error::{in_python, raise};
use crate::{groups, pool};

/// Columns over a layout.
#[pyclass(frozen, name = "Batch", module = "advlab._native")]
pub struct PyBatch {
    pub batch: Batch,
    /// The trainer's step, where it said one.
    pub step: Option<u64>,
    /// What a reader decided, in words.
    notes: Vec<String>,
}

/// An array as `package/advlab/_arrays.py` gives it: whether its two bytes are a bf16, and the lengths of its rows where
/// they are ragged and lie one after another.
type Given<'py> = (Bound<'py, PyUntypedArray>, bool, Option<Vec<usize>>);

/// What puts a part of a batch into the builder, without the interpreter's lock.
type Input = Box<dyn FnOnce(BatchBuilder) -> BatchBuilder + Send>;

#[pymethods]
impl PyBatch {
    #[new]
    #[pyo3(signature = (groups, mask, columns, texts, step))]
    fn new(
        py: Python<'_>,
        groups: Option<&Bound<'_, PyAny>>,
        mask: Option<Given<'_>>,
        columns: Vec<(String, Given<'_>)>,
        texts: Vec<(String, Vec<Bound<'_, PyString>>)>,
        step: Option<u64>,
    ) -> PyResult<PyBatch> {
        let is_grouped = groups.is_some();
        let mut inputs: Vec<Input> = Vec::new();
        if let Some(ids) = groups {
            let ids = match ids.cast::<PyUntypedArray>() {
                Ok(array) => groups::of_numbers(&Array::new("groups", array, false)?)?,
                Err(_) => groups::of_objects(ids)?,
            };
            inputs.push(Box::new(|builder| builder.groups(ids)));
        }
        let mut responses = 0;
        if let Some((array, is_bf16, lengths)) = mask {
            let array = Array::new("mask", &array, is_bf16)?;
            responses = lengths.as_ref().map_or(array.rows(), Vec::len);
            inputs.push(match lengths {
                Some(lengths) => {
                    let mask = truths(&array)?;
                    Box::new(move |builder| builder.ragged_mask(rows(&mask, &lengths)))
                }
                None => {
                    array.expect("mask", &[2], "it is [B, T], 1 for a token that counts")?;
                    Box::new(move |builder| array.mask(builder))
                }
            });
        }
        for (name, (array, is_bf16, lengths)) in columns {
            let array = Array::new(&name, &array, is_bf16)?;
            responses = lengths.as_ref().map_or(array.rows(), Vec::len);
            array.expect(
                &name,
                &[1, 2],
                "[B] is one value per response, [B, T] one per token",
            )?;
            inputs.push(match (lengths, array.ndim()) {
                (Some(lengths), _) => {
                    Box::new(move |builder| ragged(builder, name, &array, &lengths))
                }
                (None, 1) => Box::new(move |builder| builder.response(name, array.numbers())),
                (None, _) => Box::new(move |builder| array.tokens(&name, builder)),
            });
        }
        for (name, texts) in texts {
            responses = texts.len();
            let texts = groups::texts(&name, &texts)?;
            inputs.push(Box::new(|builder| builder.text(name, texts)));
        }
        if !is_grouped {
            // Each response by itself, for a loss that does not look at groups.
            inputs.push(Box::new(move |builder| builder.groups(0..responses)));
        }
        let build = || {
            let empty = Batch::builder();
            let empty = step.into_iter().fold(empty, BatchBuilder::step);
            inputs
                .into_iter()
                .fold(empty, |builder, input| input(builder))
                .build()
        };
        let batch = py.detach(|| pool::install(build))?;
        Ok(PyBatch {
            batch: batch.map_err(raise(py))?,
            step,
            notes: Vec::new(),
        })
    }

    /// Reads a file of rollouts.
    #[staticmethod]
    fn read(
        py: Python<'_>,
        path: std::path::PathBuf,
        map: Vec<(String, String)>,
        f64: Option<bool>,
    ) -> PyResult<PyBatch> {
        let pairs = map.into_iter();
        let map: Vec<Mapping> = pairs
            .map(|(ours, theirs)| Mapping { ours, theirs })
            .collect();
        let dtype = f64.map(|wide| if wide { Dtype::F64 } else { Dtype::F32 });
        let options = ReadOptions {
            map: &map,
            dtype,
            ..ReadOptions::default()
        };
        let rollouts = py.detach(|| pool::install(|| read(&path, &options)))?;
        let rollouts = rollouts.map_err(raise(py))?;
        let notes = rollouts
            .notes
            .iter()
            .map(|note| in_python(&note.to_string()))
            .collect();
        Ok(PyBatch {
            step: Some(rollouts.batch.step()).filter(|step| *step > 0),
            batch: rollouts.batch,
            notes,
        })
    }

    fn __len__(&self) -> usize {
        self.batch.layout().responses()
    }

    /// The names of all columns.
    fn columns(&self) -> Vec<String> {
        let texts = self.batch.texts().map(|(name, _)| name);
        let names = self.batch.columns().chain(texts);
        names.map(str::to_string).collect()
    }

    #[getter(step)]
    fn own_step(&self) -> u64 {
        self.batch.step()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// The id of each response's group: an integer or a string.
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let layout = self.batch.layout();
        let ids = (0..layout.groups()).map(|group| match layout.group_id(group) {
            advlab::batch::GroupId::Number(number) => number.into_py_any(py),
            advlab::batch::GroupId::String(name) => name.to_string().into_py_any(py),
        });
        let ids: Vec<Py<PyAny>> = ids.collect::<PyResult<_>>()?;
        let responses = 0..layout.responses();
        Ok(responses
            .map(|response| ids[layout.group_of(response)].clone_ref(py))
            .collect())
    }

    /// How many tokens of each response count.
    fn lengths<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let layout = self.batch.layout();
        let lengths =
            (0..layout.responses()).map(|response| layout.tokens_of(response).len() as i64);
        PyArray1::from_iter(py, lengths)
    }

    /// A column, read-only and in place where NumPy has its type: [B], [B, T], or one number for each token that counts; a list
    /// of strings, of texts.
    fn column<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let batch = &slf.get().batch;
        if let Some(values) = batch.response_buffer(name) {
            return line(slf, values);
        }
        if let Some(texts) = batch.text(name) {
            let texts = texts.iter().map(|text| &**text);
            return texts.collect::<Vec<_>>().into_bound_py_any(slf.py());
        }
        match batch.token_column(name) {
            Some(TokenValues::F32(values)) => table(slf, values.view()),
            Some(TokenValues::F64(values)) => table(slf, values.view()),
            Some(TokenValues::F16(values)) => table(slf, values.view()),
            Some(TokenValues::Bf16(values)) => {
                let wide = values.view().map(|view| view.mapv(f32::from));
                wide.map_or_else(
                    || strange(name),
                    |wide| Ok(PyArray2::from_owned_array(slf.py(), wide).into_any()),
                )
            }
            Some(TokenValues::Compact(FloatBuffer::F32(values))) => line(slf, values),
            Some(TokenValues::Compact(FloatBuffer::F64(values))) => line(slf, values),
            Some(_) => strange(name),
            None => Err(PyKeyError::new_err(name.to_string())),
        }
    }
}

/// The sum of each row of an array [B, T], float64 [B].
#[pyfunction]
pub fn row_sums<'py>(py: Python<'py>, given: Given<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (array, is_bf16, lengths) = given;
    let array = Array::new("token_reward", &array, is_bf16)?;
    if lengths.is_some() {
        let message = "`token_reward` has rows of different lengths: pad them with 0 to [B, T]";
        return Err(PyTypeError::new_err(message));
    }
    array.expect("token_reward", &[2], "it is [B, T], padded with 0")?;
    let sums = py.detach(|| pool::install(|| array.row_sums()))?;
    Ok(PyArray1::from_vec(py, sums))
}

fn ragged(builder: BatchBuilder, name: String, array: &Array, lengths: &[usize]) -> BatchBuilder {
    let numbers = array.numbers();
    if array.is_f64() {
        return builder.ragged(name, rows(&numbers, lengths));
    }
    let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    builder.ragged(name, rows(&numbers, lengths))
}

/// Rows that lie one after another.
fn rows<'a, T>(values: &'a [T], lengths: &'a [usize]) -> impl Iterator<Item = &'a [T]> {
    let mut rest = values;
    lengths.iter().map(move |&length| {
        let (row, others) = rest.split_at(length.min(rest.len()));
        rest = others;
        row
    })
}

fn truths(mask: &Array) -> PyResult<Vec<bool>> {
    let truth = |number: f64| match number {
        0.0 => Ok(false),
        1.0 => Ok(true),
        other => {
            let message = format!(
                "the mask is {other} somewhere: 1 marks a token that counts, 0 one that does not"
            );
            Err(PyTypeError::new_err(message))
        }
    };
    mask.numbers().into_iter().map(truth).collect()
}

fn strange<'py>(name: &str) -> PyResult<Bound<'py, PyAny>> {
    Err(PyTypeError::new_err(format!(
        "`{name}` has no array in NumPy"
    )))
}

fn line<'py, T: Element>(
    batch: &Bound<'py, PyBatch>,
    values: &Buffer<T>,
) -> PyResult<Bound<'py, PyAny>> {
    let view = ArrayView1::from(&**values);
    // SAFETY: the batch has the buffer and never lets go of it: a frozen object. The array is read-only.
    let array = unsafe { PyArray1::borrow_from_array(&view, batch.clone().into_any()) };
    read_only(array.into_any())
}

fn table<'py, T: Element>(
    batch: &Bound<'py, PyBatch>,
    view: Option<ArrayView2<'_, T>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(view) = view else {
        return Err(PyTypeError::new_err("a column with negative strides"));
    };
    // SAFETY: as of `line`.
    let array = unsafe { PyArray2::borrow_from_array(&view, batch.clone().into_any()) };
    read_only(array.into_any())
}

fn read_only(array: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    array.getattr("flags")?.setattr("writeable", false)?;
    Ok(array)
}
