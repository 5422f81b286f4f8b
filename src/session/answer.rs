//! The values of a session's inputs, in types that do not depend on the script engine.

use std::sync::Arc;

use rhai::{Array, Dynamic, FnPtr, Map};

use crate::batch::{Computed, Layout};
use crate::script::ScriptBatch;
use crate::script::explain::CLOSURE;
use crate::script::value::text;
use crate::tensor::{Tensor, TensorError};

/// The maximum number of elements of an array, or entries of a map, that are kept for display.
const SHOWN: usize = 32;

/// The value of an input.
#[derive(Clone, Debug)]
pub enum Answer {
    /// No value: the input is, for example, a `let`, a `fn` or another statement.
    Nothing,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number, or a tensor that is a single number without a batch.
    Number(f64),
    /// A string.
    String(String),
    /// A computed tensor.
    Tensor(Computed),
    /// A batch with its columns.
    Batch(BatchColumns),
    /// An array: its first elements, and its length.
    Array(Vec<Answer>, usize),
    /// A map: its first entries, and the number of entries.
    Map(Vec<(String, Answer)>, usize),
    /// A description of any other value, such as `a closure`.
    Other(String),
}

/// The computed columns of a batch.
#[derive(Clone, Debug)]
pub struct BatchColumns {
    /// The layout, which says to which response each token belongs, and to which group each response belongs.
    pub layout: Arc<Layout>,
    /// The training step.
    pub step: u64,
    /// The columns by name: first the batch's own columns, then the columns derived from them.
    pub columns: Vec<(String, Computed)>,
    /// The number of the batch's own columns in `columns`.
    pub own: usize,
}

impl Answer {
    /// Returns the values of a tensor, or the single value of a number or a boolean (1 for true); empty for any other value.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Answer::Tensor(computed) => computed.buffer().iter().collect(),
            Answer::Number(number) => vec![*number],
            Answer::Integer(whole) => vec![*whole as f64],
            Answer::Bool(truth) => vec![f64::from(u8::from(*truth))],
            _ => Vec::new(),
        }
    }

    /// Converts a value of a script, and computes the tensors in it.
    pub(super) fn of(value: &Dynamic) -> Result<Answer, TensorError> {
        if let Some(tensor) = value.read_lock::<Tensor>() {
            let values = tensor.evaluate()?;
            return Ok(match tensor.frame() {
                Some(frame) => Answer::Tensor(values.over(frame.layout())),
                None => Answer::Number(values.get(0)),
            });
        }
        if let Some(batch) = value.read_lock::<ScriptBatch>() {
            return BatchColumns::of(&batch).map(Answer::Batch);
        }
        if let Some(array) = value.read_lock::<Array>() {
            let shown = array.iter().take(SHOWN).map(Answer::of);
            return Ok(Answer::Array(shown.collect::<Result<_, _>>()?, array.len()));
        }
        if let Some(map) = value.read_lock::<Map>() {
            let shown = map
                .iter()
                .take(SHOWN)
                .map(|(key, value)| Ok((key.to_string(), Answer::of(value)?)));
            return Ok(Answer::Map(shown.collect::<Result<_, _>>()?, map.len()));
        }
        if let Some(text) = text(value) {
            return Ok(Answer::String(text.to_string()));
        }
        let function = value.read_lock::<FnPtr>();
        Ok(match (value.type_name(), function) {
            (_, Some(closure)) if closure.fn_name().starts_with(CLOSURE) => {
                Answer::Other("a closure".to_string())
            }
            (_, Some(function)) => Answer::Other(format!("the function `{}`", function.fn_name())),
            ("bool", _) => Answer::Bool(value.as_bool().unwrap_or_default()),
            ("i64", _) => Answer::Integer(value.as_int().unwrap_or_default()),
            ("f64", _) => Answer::Number(value.as_float().unwrap_or_default()),
            ("char", _) => Answer::String(value.to_string()),
            ("()", _) => Answer::Nothing,
            (name, _) => Answer::Other(format!("a {name}")),
        })
    }
}

impl BatchColumns {
    fn of(batch: &ScriptBatch) -> Result<BatchColumns, TensorError> {
        let layout = batch.frame().layout();
        let (own, derived) = batch.column_names();
        let mut columns = Vec::new();
        for name in own.iter().chain(&derived) {
            // A column that cannot be made is skipped; the error is shown if an input reads the column.
            let Ok(tensor) = batch.column(name) else {
                continue;
            };
            let computed = tensor.evaluate()?.over(layout);
            columns.push((name.clone(), computed));
        }
        Ok(BatchColumns {
            layout: layout.clone(),
            step: batch.call().step,
            columns,
            own: own.len(),
        })
    }
}
