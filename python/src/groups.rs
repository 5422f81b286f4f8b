//! Group ids of any kind: integers of any width, strings, and whatever else can be a key of a dictionary.

use std::collections::HashSet;
use std::sync::Arc;

use advlab::batch::GroupId;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyString};

use crate::array::Array;

/// Strings of Python's: each is kept once, as most groups have many responses.
struct Names(HashSet<Arc<str>>);

impl Names {
    /// `column` names the argument that the text is of.
    fn of(&mut self, column: &str, text: &Bound<'_, PyString>) -> PyResult<Arc<str>> {
        let text = text.to_cow().map_err(|_| {
            let shown = text
                .repr()
                .map_or_else(|_| String::new(), |text| text.to_string());
            let message = format!("`{column}` has the string {shown}, which is not valid Unicode");
            PyValueError::new_err(message)
        })?;
        if let Some(name) = self.0.get(&*text) {
            return Ok(name.clone());
        }
        let name = Arc::from(&*text);
        self.0.insert(Arc::clone(&name));
        Ok(name)
    }
}

/// The texts of a column.
pub fn texts(name: &str, texts: &[Bound<'_, PyString>]) -> PyResult<Vec<Arc<str>>> {
    let mut names = Names(HashSet::with_capacity(texts.len()));
    texts.iter().map(|text| names.of(name, text)).collect()
}

/// The ids of a sequence of objects.
pub fn of_objects(ids: &Bound<'_, PyAny>) -> PyResult<Vec<GroupId>> {
    let others = PyDict::new(ids.py());
    let mut names = Names(HashSet::with_capacity(ids.len().unwrap_or(0)));
    let ids = ids.try_iter().map_err(|_| {
        PyTypeError::new_err(format!(
            "`groups` is {ids}: it is a sequence [B], an id for each response"
        ))
    })?;
    let ids = ids.enumerate();
    ids.map(|(response, id)| of_object(response, &id?, &others, &mut names))
        .collect()
}

fn of_object(
    response: usize,
    id: &Bound<'_, PyAny>,
    others: &Bound<'_, PyDict>,
    names: &mut Names,
) -> PyResult<GroupId> {
    if let Ok(text) = id.cast::<PyString>() {
        return Ok(names.of("groups", text)?.into());
    }
    if id.is_instance_of::<PyInt>() {
        return match id.extract::<i64>() {
            Ok(number) => Ok(GroupId::Number(number)),
            // Beyond 64 bits, as a hash may be: by its digits.
            Err(_) => Ok(id.str()?.to_cow()?.as_ref().into()),
        };
    }
    // NumPy's own whole numbers.
    if let Ok(number) = id.call_method0("__index__") {
        return of_object(response, &number, others, names);
    }
    let is_nan = id.is_instance_of::<PyFloat>() && id.extract::<f64>()?.is_nan();
    if id.is_none() || is_nan {
        let message = format!("response {response} has no group: its id is {id}");
        return Err(PyValueError::new_err(message));
    }
    let known = others.get_item(id).map_err(|_| {
        let message = format!("the group id of response {response} is {id}, which is no key");
        PyTypeError::new_err(message)
    })?;
    let index = match known {
        Some(index) => index.extract()?,
        None => {
            let next = others.len();
            others.set_item(id, next)?;
            next
        }
    };
    // Different objects may read alike.
    Ok(format!("{id} #{index}").into())
}

/// The ids of an array of whole numbers.
pub fn of_numbers(ids: &Array) -> PyResult<Vec<GroupId>> {
    ids.expect("groups", &[1], "it is [B], an id for each response")?;
    ids.integers()
        .ok_or_else(|| PyTypeError::new_err("group ids are whole numbers, strings or objects"))
}
