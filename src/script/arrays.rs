//! Arrays of numbers and tensors, reduced as the values of a tensor are.

use rhai::{Array, Dynamic, Engine, FnPtr, NativeCallContext};

use super::bind::{describe, number};
use super::error::{CallError, Raised, origin, raise};
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
    for name in ["sort", "sort_by"] {
        let sort = |context: NativeCallContext, array: &mut Array, comparer: FnPtr| -> Raised<()> {
            *array = sorted(&context, array, &comparer)?;
            Ok(())
        };
        engine.register_fn(name, sort);
        engine.register_fn(
            name,
            move |context: NativeCallContext, array: &mut Array, comparer: &str| {
                sort(context, array, FnPtr::new(comparer)?)
            },
        );
    }
    for name in ["order", "order_by"] {
        let order = |context: NativeCallContext, array: Array, comparer: FnPtr| {
            sorted(&context, &array, &comparer)
        };
        engine.register_fn(name, order);
        engine.register_fn(
            name,
            move |context: NativeCallContext, array: Array, comparer: &str| {
                order(context, array, FnPtr::new(comparer)?)
            },
        );
    }
}

/// Merge sort, stable. The engine's own goes on after an error of its comparer, also where that is the end of its time.
fn sorted(context: &NativeCallContext, values: &[Dynamic], comparer: &FnPtr) -> Raised<Array> {
    if values.len() < 2 {
        return Ok(values.to_vec());
    }
    let (left, right) = values.split_at(values.len() / 2);
    let left = sorted(context, left, comparer)?;
    let right = sorted(context, right, comparer)?;
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    let mut merged = Array::with_capacity(values.len());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        // Equal values keep their order: the right one is first only if it comes before the left one.
        let next = if is_before(context, comparer, b, a)? {
            &mut right
        } else {
            &mut left
        };
        merged.extend(next.next());
    }
    merged.extend(left.chain(right));
    Ok(merged)
}

/// Whether `a` comes before `b`: the comparer gives a number below 0, or true.
fn is_before(
    context: &NativeCallContext,
    comparer: &FnPtr,
    a: &Dynamic,
    b: &Dynamic,
) -> Raised<bool> {
    let compared = comparer.call_raw(context, None, [a.clone(), b.clone()])?;
    match (compared.as_bool(), number(&compared)) {
        (Ok(is_before), _) => Ok(is_before),
        (_, Some(number)) => Ok(number < 0.0),
        _ => {
            let found = describe(&compared);
            let message = format!("what a sort compares by is a number or a boolean, not {found}");
            let problem = CallError::new(message).help("as in `a.sort(|x, y| x - y)`");
            Err(raise(context, problem))
        }
    }
}

fn reduce(name: &str, row: &'static Op, array: &Array) -> Result<Tensor, CallError> {
    let mut result: Option<Tensor> = None;
    for value in array {
        let value = match (value.read_lock::<Tensor>(), number(value)) {
            (Some(tensor), _) => tensor.clone(),
            (None, Some(number)) => Tensor::number(number),
            _ => {
                let found = describe(value);
                let message =
                    format!("`{name}` of an array takes numbers and tensors, not {found}");
                return Err(CallError::new(message));
            }
        };
        result = Some(match result {
            Some(before) => row.apply(&[Argument::Tensor(before), Argument::Tensor(value)])?,
            None => value,
        });
    }
    match result {
        None if name == "sum" => Ok(Tensor::number(0.0)),
        None => Err(CallError::new(format!("an empty array has no `{name}`"))),
        Some(sum) if name == "mean" => {
            // As many as an array may have: exact.
            let count = Tensor::number(1.0 / array.len() as f64);
            Ok(op::mul(&sum, &count)?)
        }
        Some(result) => Ok(result),
    }
}
