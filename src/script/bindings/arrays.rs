//! Registers functions on arrays for scripts: `sum`, `mean`, `min` and `max`, sorting, and `dedup` with a comparison function.

use std::any::TypeId;
use std::cmp::Ordering;

use rhai::{Array, Dynamic, FnPtr, ImmutableString, Module, NativeCallContext};

use crate::diagnostic::Diagnostic;
use crate::script::engine::{add, add_raw};
use crate::script::error::{CallError, Raised, origin};
use crate::script::value::{as_tensor, describe, number, text};
use crate::tensor::Tensor;
use crate::tensor::op::{self, Argument, Class, Op};

/// Registers the functions. `sum`, `mean`, `min` and `max` return a number if all elements are numbers, and otherwise a tensor.
pub(in crate::script) fn arrays(module: &mut Module) {
    for (name, row) in [("sum", "+"), ("mean", "+"), ("min", "min"), ("max", "max")] {
        let row = op::table()
            .find(|op| op.name == row && op.class == Class::Elementwise)
            .expect("an array's functions are made of rows of the op table");
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
    let function = TypeId::of::<FnPtr>();
    for types in [&[array][..], &[array, function], &[array, name]] {
        let names = match types {
            [_] => "sort sort_desc order order_desc",
            _ => "sort sort_by order order_by dedup",
        };
        for name in names.split(' ') {
            add_raw(module, name, types, move |context, args| {
                let comparer = args.get(1).map(|comparer| match text(comparer) {
                    Some(name) => FnPtr::new(name),
                    None => Ok(comparer.clone_cast()),
                });
                let (array, comparer) = (args[0].clone_cast::<Array>(), comparer.transpose()?);
                let result = match (name, &comparer) {
                    ("dedup", Some(comparer)) => without_repeats(context, array, comparer)?,
                    (_, Some(comparer)) => {
                        let is_before = |order| order < 0.0;
                        sorted(&array, &|a, b| {
                            compare(context, comparer, [a, b], is_before)
                        })?
                    }
                    ("sort" | "order", None) => sorted(&array, &is_less)?,
                    _ => sorted(&array, &|a, b| is_less(b, a))?,
                };
                if name.starts_with("order") {
                    return Ok(result.into());
                }
                *args[0] = result.into();
                Ok(Dynamic::UNIT)
            });
        }
    }
}

/// Removes each element that `is`, the comparison function, finds equal to the last remaining element. The engine's own `dedup`
/// ignores errors of the comparison function.
fn without_repeats(context: &NativeCallContext, array: Array, is: &FnPtr) -> Raised<Array> {
    let mut kept = Array::new();
    for value in array {
        let compare = |last| compare(context, is, [last, &value], |order| order == 0.0);
        let repeats = kept.last().map(compare);
        if repeats.transpose()? != Some(true) {
            kept.push(value);
        }
    }
    Ok(kept)
}

/// Sorts by a stable merge sort, because Rhai's own sort can fail silently: it continues after an error of the comparison
/// function, ignores results that are floats, and leaves an array with a NaN unsorted. The standard library's sort may panic if
/// the comparison function is inconsistent.
fn sorted(
    values: &[Dynamic],
    is_before: &dyn Fn(&Dynamic, &Dynamic) -> Raised<bool>,
) -> Raised<Array> {
    if values.len() < 2 {
        return Ok(values.to_vec());
    }
    let (left, right) = values.split_at(values.len() / 2);
    let mut left = sorted(left, is_before)?.into_iter().peekable();
    let mut right = sorted(right, is_before)?.into_iter().peekable();
    let mut merged = Array::with_capacity(values.len());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        // The right value is taken only if it is less than the left value, so that equal values keep their order.
        let next = if is_before(b, a)? {
            &mut right
        } else {
            &mut left
        };
        merged.extend(next.next());
    }
    merged.extend(left.chain(right));
    Ok(merged)
}

/// Returns whether `a` is less than `b`. Fails if they have no order: if one is NaN, or if they are not two numbers, two strings
/// or two characters.
fn is_less(a: &Dynamic, b: &Dynamic) -> Raised<bool> {
    let letter = |value: &Dynamic| Some(value.as_char().ok()?.to_string().into());
    let order = match (a.as_int(), b.as_int(), number(a), number(b)) {
        (Ok(a), Ok(b), ..) => Some(a.cmp(&b)),
        (.., Some(a), Some(b)) => a.partial_cmp(&b),
        _ => [text, letter]
            .iter()
            .find_map(|of| Some(of(a)?.cmp(&of(b)?))),
    };
    Ok(order.map(Ordering::is_lt).ok_or_else(|| {
        let message = format!("{} and {} cannot be ordered", describe(a), describe(b));
        CallError::new(message, "only numbers, or only strings, can be sorted together; `a.filter(|x| x == x)` removes NaN")
    })?)
}

/// Returns the boolean that the comparison function gives for two elements. If it gives a number, such as their difference, `test`
/// converts the number to the boolean.
fn compare(
    context: &NativeCallContext,
    comparer: &FnPtr,
    both: [&Dynamic; 2],
    test: fn(f64) -> bool,
) -> Raised<bool> {
    let compared = comparer.call_raw(context, None, both.map(Dynamic::clone))?;
    match (compared.as_bool(), number(&compared)) {
        (Ok(compared), _) => Ok(compared),
        (_, Some(number)) => Ok(test(number)),
        _ => {
            let found = describe(&compared);
            let message = format!("a comparison must return a number or a boolean, not {found}");
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
        // The conversion of the length to a float is exact, because the size of an array is limited.
        "mean" => Ok(op::mul(
            &reduced,
            &Tensor::number(1.0 / array.len() as f64),
        )?),
        _ => Ok(reduced),
    }
}
