//! Arrays of numbers and tensors, reduced as the values of a tensor are.

use rhai::{Array, Dynamic, Engine, NativeCallContext};

use super::bind::{describe, number};
use super::error::{Problem, Raised, origin, raise};
use crate::tensor::Tensor;
use crate::tensor::op::{self, Argument, Class, Op};

/// Registers `sum`, `mean`, `min` and `max` of arrays; of numbers alone, each is a number.
pub(super) fn arrays(engine: &mut Engine) {
    for (name, row) in [("sum", "+"), ("mean", "+"), ("min", "min"), ("max", "max")] {
        let row = op::table().find(|op| op.name == row && op.class == Class::Elementwise);
        let Some(row) = row else {
            unreachable!("`{name}` of an array is made of rows of the op table");
        };
        let reduced = move |context: NativeCallContext, array: Array| {
            reduce(name, row, &array).map_or_else(
                |problem| Err(raise(&context, problem)),
                |tensor| {
                    tensor.mark(&origin(&context));
                    Raised::Ok(match tensor.as_number() {
                        Some(number) => Dynamic::from_float(number),
                        None => Dynamic::from(tensor),
                    })
                },
            )
        };
        engine.register_fn(name, reduced);
    }
}

fn reduce(name: &str, row: &'static Op, array: &Array) -> Result<Tensor, Problem> {
    let mut result: Option<Tensor> = None;
    for value in array {
        let value = match (value.read_lock::<Tensor>(), number(value)) {
            (Some(tensor), _) => tensor.clone(),
            (None, Some(number)) => Tensor::number(number),
            _ => {
                let found = describe(value);
                let message =
                    format!("`{name}` of an array takes numbers and tensors, not {found}");
                return Err(Problem::new(message));
            }
        };
        result = Some(match result {
            Some(before) => row.apply(&[Argument::Tensor(before), Argument::Tensor(value)])?,
            None => value,
        });
    }
    match result {
        None if name == "sum" => Ok(Tensor::number(0.0)),
        None => Err(Problem::new(format!("an empty array has no `{name}`"))),
        Some(sum) if name == "mean" => {
            // As many as an array may have: exact.
            let count = Tensor::number(1.0 / array.len() as f64);
            Ok(op::mul(&sum, &count)?)
        }
        Some(result) => Ok(result),
    }
}
