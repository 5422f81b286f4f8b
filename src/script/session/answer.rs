//! What an input gave, free of the script engine.

use std::sync::Arc;

use rhai::{Array, Dynamic, FnPtr, ImmutableString, Map};

use super::super::batch_type::ScriptBatch;
use crate::batch::{Computed, Layout};
use crate::tensor::{Tensor, TensorError};

/// Elements of an array or a map that are taken over to be shown.
const SHOWN: usize = 32;

/// What an input gave.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Nothing: a `let`, a `fn`, a statement.
    Nothing,
    /// True or false.
    Truth(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A tensor, computed.
    Tensor(Computed),
    /// A batch, with its columns.
    Batch(Columns),
    /// An array: its first elements, and how many it has.
    Array(Vec<Answer>, usize),
    /// A map: its first entries, and how many it has.
    Map(Vec<(String, Answer)>, usize),
    /// A function or a closure, by its name.
    Function(String),
    /// Anything else, by the name of its type.
    Other(String),
}

/// A batch's columns.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Which token belongs to which response, and which response to which group.
    pub layout: Arc<Layout>,
    /// The training step.
    pub step: u64,
    /// The columns by name: the batch's own, then those that follow from them.
    pub columns: Vec<(String, Computed)>,
    /// How many of the columns are the batch's own.
    pub own: usize,
}

impl Answer {
    /// A tensor's values, or the number that it is, a truth being 1 or 0; of anything else none.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Answer::Tensor(computed) => computed.buffer().iter().collect(),
            Answer::Number(number) => vec![*number],
            Answer::Whole(whole) => vec![*whole as f64],
            Answer::Truth(truth) => vec![f64::from(u8::from(*truth))],
            _ => Vec::new(),
        }
    }

    /// Takes over a value of a script, and computes what is not computed yet.
    pub(super) fn of(value: &Dynamic) -> Result<Answer, TensorError> {
        if let Some(tensor) = value.read_lock::<Tensor>() {
            return match tensor.frame() {
                Some(frame) => {
                    let computed = tensor.evaluate()?.over(frame.layout());
                    Ok(Answer::Tensor(computed))
                }
                None => Ok(Answer::Number(tensor.evaluate()?.get(0))),
            };
        }
        if let Some(batch) = value.read_lock::<ScriptBatch>() {
            return Columns::of(&batch).map(Answer::Batch);
        }
        if let Some(array) = value.read_lock::<Array>() {
            let shown = array.iter().take(SHOWN).map(Answer::of);
            return Ok(Answer::Array(shown.collect::<Result<_, _>>()?, array.len()));
        }
        if let Some(map) = value.read_lock::<Map>() {
            let shown = map.iter().take(SHOWN);
            let shown = shown.map(|(key, value)| Ok((key.to_string(), Answer::of(value)?)));
            return Ok(Answer::Map(shown.collect::<Result<_, _>>()?, map.len()));
        }
        if let Some(text) = value.read_lock::<ImmutableString>() {
            return Ok(Answer::Text(text.to_string()));
        }
        if let Some(function) = value.read_lock::<FnPtr>() {
            return Ok(Answer::Function(function.fn_name().to_string()));
        }
        Ok(
            match (
                value.as_bool(),
                value.as_int(),
                value.as_float(),
                value.as_char(),
            ) {
                (Ok(truth), ..) => Answer::Truth(truth),
                (_, Ok(whole), ..) => Answer::Whole(whole),
                (_, _, Ok(number), _) => Answer::Number(number),
                (.., Ok(letter)) => Answer::Text(letter.to_string()),
                _ if value.is_unit() => Answer::Nothing,
                _ => Answer::Other(value.type_name().to_string()),
            },
        )
    }
}

impl Columns {
    fn of(batch: &ScriptBatch) -> Result<Columns, TensorError> {
        let (own, derived) = batch.column_names();
        let mut columns = Vec::new();
        for name in own.iter().chain(&derived) {
            // A column that cannot be made has its message where it is asked for.
            let Ok(tensor) = batch.column(name) else {
                continue;
            };
            let value = tensor.evaluate()?;
            let computed = value.over(batch.frame().layout());
            columns.push((name.clone(), computed));
        }
        Ok(Columns {
            layout: batch.frame().layout().clone(),
            step: batch.step(),
            columns,
            own: own.len(),
        })
    }
}
