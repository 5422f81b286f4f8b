//! The values of inputs, independent of the script engine; and inputs that are looked into without keeping their value: their
//! numbers and their gradient.

use std::sync::Arc;

use rhai::{Array, Dynamic, FnPtr, Map};

use super::Session;
use crate::batch::{Computed, Layout};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::ScriptBatch;
use crate::script::explain::CLOSURE;
use crate::script::value::{as_tensor, describe, number, text};
use crate::tensor::{Level, Tensor, TensorError, grad};

/// The most elements of an array or a map that are kept for display.
const SHOWN: usize = 32;

/// The value of an input.
#[derive(Clone, Debug)]
pub enum Answer {
    /// None: a `let`, a `fn`, a statement.
    Nothing,
    /// True or false.
    Truth(bool),
    /// An integer.
    Whole(i64),
    /// A number that is no integer, or a tensor that belongs to no batch.
    Number(f64),
    /// A string.
    String(String),
    /// A tensor, computed.
    Tensor(Computed),
    /// A batch, with its columns.
    Batch(BatchColumns),
    /// An array: its first elements, and how many it has.
    Array(Vec<Answer>, usize),
    /// A map: its first entries, and how many it has.
    Map(Vec<(String, Answer)>, usize),
    /// Any other value, described: `a closure`.
    Other(String),
}

/// A batch's columns, computed.
#[derive(Clone, Debug)]
pub struct BatchColumns {
    /// Which token belongs to which response, and which response to which group.
    pub layout: Arc<Layout>,
    /// The training step.
    pub step: u64,
    /// The columns by name: the batch's own, then those derived from them.
    pub columns: Vec<(String, Computed)>,
    /// The number of the batch's own columns.
    pub own: usize,
}

impl Answer {
    /// A tensor's values, or a number (true is 1); nothing for any other value.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Answer::Tensor(computed) => computed.buffer().iter().collect(),
            Answer::Number(number) => vec![*number],
            Answer::Whole(whole) => vec![*whole as f64],
            Answer::Truth(truth) => vec![f64::from(u8::from(*truth))],
            _ => Vec::new(),
        }
    }

    /// Converts a value of a script, and computes its tensors.
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
            let shown = map.iter().take(SHOWN);
            let shown = shown.map(|(key, value)| Ok((key.to_string(), Answer::of(value)?)));
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
            ("bool", _) => Answer::Truth(value.as_bool().unwrap_or_default()),
            ("i64", _) => Answer::Whole(value.as_int().unwrap_or_default()),
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
            // The error of a column that cannot be made is shown when it is asked for.
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

/// The paired values of two inputs, and the level where they meet; `None` for arrays.
pub type Pairs = (Option<Level>, Vec<(f64, f64)>);

impl Session {
    /// The numbers of an input: a tensor's values, with its level, or an array's.
    ///
    /// # Errors
    /// As [`Session::evaluate`]; also if the input gives something else.
    pub fn numbers(&mut self, text: &str) -> Result<(Option<Level>, Vec<f64>), Diagnostics> {
        let value = self.value(text)?;
        if let Some(tensor) = value.read_lock::<Tensor>() {
            let computed = tensor.evaluate();
            let computed = computed.map_err(|error| self.failed_in(text, error))?;
            return Ok((Some(tensor.level()), computed.iter().collect()));
        }
        let array = value.read_lock::<Array>();
        let numbers = array.and_then(|array| array.iter().map(number).collect::<Option<_>>());
        let numbers =
            numbers.ok_or_else(|| is_no(text, &value, "not a tensor or an array of numbers"))?;
        Ok((None, numbers))
    }

    /// The values of two inputs, tensors of any levels, at the level where they meet.
    pub fn pairs(&mut self, x: &str, y: &str) -> Result<Pairs, Diagnostics> {
        let (left, right) = (self.value(x)?, self.value(y)?);
        let (level, left, right) = match (as_tensor(&left), as_tensor(&right)) {
            (Some(left), Some(right)) => {
                let level = left.level().join(right.level());
                let frame = self.batch.frame();
                let spread = |text: &str, tensor: &Tensor| {
                    let tensor = tensor.expanded(level, tensor.frame().unwrap_or(frame));
                    let values = tensor.and_then(|tensor| tensor.evaluate());
                    let values = values.map_err(|error| self.failed_in(text, error))?;
                    Ok::<Vec<f64>, Diagnostics>(values.iter().collect())
                };
                (Some(level), spread(x, &left)?, spread(y, &right)?)
            }
            _ => (None, self.numbers(x)?.1, self.numbers(y)?.1),
        };
        if left.len() != right.len() {
            let (of_x, of_y) = (left.len(), right.len());
            let message =
                format!("`{x}` has {of_x} values and `{y}` has {of_y}: they must go together");
            return Err(Diagnostic::error(message).into());
        }
        Ok((level, left.into_iter().zip(right).collect()))
    }

    /// The derivative of an input, a batch tensor, with respect to each value of `batch.logp`.
    ///
    /// # Errors
    /// As [`Session::evaluate`]; also if the input is no batch tensor, or has no derivative.
    pub fn gradient(&mut self, text: &str) -> Result<Answer, Diagnostics> {
        let value = self.value(text)?;
        let loss = as_tensor(&value);
        let loss =
            loss.ok_or_else(|| is_no(text, &value, "and only a batch tensor has a gradient"))?;
        let logp = self.batch.column("logp").map_err(|problem| {
            let help = "a gradient is one with respect to the policy's log-probs";
            Diagnostic::error(problem.diagnostic.message.clone()).with_help(help)
        })?;
        let gradient = grad(&loss, &logp).map_err(|error| self.failed_in(text, error))?;
        self.answer(text, &Dynamic::from(gradient))
    }

    /// Runs an input for its value, and leaves the session as it was.
    fn value(&mut self, text: &str) -> Result<Dynamic, Diagnostics> {
        self.guard.rearm();
        let engine = self.engine(text);
        let ast = self.functions.merge(&self.compile(&engine, text)?);
        let scope = self.scope.clone();
        let value = self.run(&engine, &ast, text);
        self.scope = scope;
        self.batch.call().take_reports();
        value
    }
}

/// The error of an input whose value has the wrong type.
fn is_no(text: &str, value: &Dynamic, what: &str) -> Diagnostics {
    Diagnostic::error(format!("`{text}` is {}, {what}", describe(value))).into()
}
