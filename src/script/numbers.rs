//! Plain numbers and arrays in scripts, with the behaviour that users of Python expect.
//!
//! Rhai's own division of integers is whole (`1 / 2` is 0), and its comparison of floats has a tolerance
//! (`1e-17 > 0.0` is false): in a formula, both are silent errors.

use std::any::TypeId;

use rhai::{Array, Dynamic, FLOAT, FnPtr, INT, ImmutableString, Module, NativeCallContext};

use super::engine::{add, add_raw};
use super::error::{CallError, Raised, origin};
use super::value::{as_tensor, describe, number, text};
use crate::diagnostic::Diagnostic;
use crate::tensor::Tensor;
use crate::tensor::op::{self, Argument, Class, Op};

/// Registers exact comparisons, the division of integers, and the functions of arrays.
pub(super) fn numbers(module: &mut Module) {
    arrays(module);
    add(module, "/", |a: INT, b: INT| widened(a) / widened(b));
    add_raw(module, "/=", &[TypeId::of::<INT>(); 2], |_, args| {
        let quotient = widened(args[0].as_int()?) / widened(args[1].as_int()?);
        *args[0] = Dynamic::from_float(quotient);
        Ok(Dynamic::UNIT)
    });
    macro_rules! comparisons {
        ($($sign:literal $compare:tt),+) => {$(
            add(module, $sign, |a: FLOAT, b: FLOAT| a $compare b);
            add(module, $sign, |a: INT, b: FLOAT| widened(a) $compare b);
            add(module, $sign, |a: FLOAT, b: INT| a $compare widened(b));
        )+};
    }
    comparisons!("==" ==, "!=" !=, "<" <, "<=" <=, ">" >, ">=" >=);
}

/// Exact up to 2^53, as in all operations of integers with other numbers.
fn widened(whole: INT) -> FLOAT {
    whole as FLOAT
}

/// Registers `sum`, `mean`, `min` and `max` of arrays, which are numbers if all elements are.
fn arrays(module: &mut Module) {
    for (name, row) in [("sum", "+"), ("mean", "+"), ("min", "min"), ("max", "max")] {
        let row = op::table().find(|op| op.name == row && op.class == Class::Elementwise);
        let row = row.expect("an array's functions are made of rows of the op table");
        let reduced = move |context: NativeCallContext, array: Array| {
            let tensor = reduce(name, row, &array)?;
            tensor.mark(&origin(&context));
            Raised::Ok(match tensor.as_number() {
                Some(number) => Dynamic::from_float(number),
                None => Dynamic::from(tensor),
            })
        };
        add(module, name, reduced);
    }
    let (array, name) = (TypeId::of::<Array>(), TypeId::of::<ImmutableString>());
    for comparer in [TypeId::of::<FnPtr>(), name] {
        for (name, is_in_place) in [
            ("sort", true),
            ("sort_by", true),
            ("order", false),
            ("order_by", false),
        ] {
            add_raw(module, name, &[array, comparer], move |context, args| {
                let comparer = match text(args[1]) {
                    Some(name) => FnPtr::new(name)?,
                    None => args[1].clone_cast(),
                };
                let array = args[0].clone_cast::<Array>();
                let sorted = Dynamic::from_array(sorted(context, &array, &comparer)?);
                if !is_in_place {
                    return Ok(sorted);
                }
                *args[0] = sorted;
                Ok(Dynamic::UNIT)
            });
        }
    }
}

/// A stable merge sort. Rhai's own sort continues after an error of the comparer and ignores the results of a comparer that
/// gives floats: both sort wrongly without an error. The standard library's may panic at an inconsistent comparer.
fn sorted(context: &NativeCallContext, values: &[Dynamic], comparer: &FnPtr) -> Raised<Array> {
    if values.len() < 2 {
        return Ok(values.to_vec());
    }
    let (left, right) = values.split_at(values.len() / 2);
    let mut left = sorted(context, left, comparer)?.into_iter().peekable();
    let mut right = sorted(context, right, comparer)?.into_iter().peekable();
    let mut merged = Array::with_capacity(values.len());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        // Equal values keep their order: the right one is first only if it comes before the left one.
        let next = match is_before(context, comparer, b, a)? {
            true => &mut right,
            false => &mut left,
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
            let message = format!("a sort compares by a number or a boolean, not {found}");
            Err(CallError::new(message, "as in `a.sort(|x, y| x - y)`").into())
        }
    }
}

fn reduce(name: &str, row: &'static Op, array: &Array) -> Result<Tensor, CallError> {
    let mut tensors = array.iter().map(|value| {
        as_tensor(value).ok_or_else(|| {
            let found = describe(value);
            let message = format!("`{name}` of an array takes numbers and tensors, not {found}");
            CallError::from(Diagnostic::error(message))
        })
    });
    let Some(first) = tensors.next() else {
        return match name {
            "sum" => Ok(Tensor::number(0.0)),
            _ => Err(Diagnostic::error(format!("an empty array has no `{name}`")).into()),
        };
    };
    let reduced = tensors.try_fold(first?, |before, value| {
        let both = [Argument::Tensor(before), Argument::Tensor(value?)];
        Ok::<Tensor, CallError>(row.apply(&both)?)
    })?;
    match name {
        // Exact: the size of an array is bounded.
        "mean" => Ok(op::mul(
            &reduced,
            &Tensor::number(1.0 / array.len() as f64),
        )?),
        _ => Ok(reduced),
    }
}
