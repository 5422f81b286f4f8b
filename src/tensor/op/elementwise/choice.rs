//! Rows that choose between values, or pass them on.

use super::super::build::*;
use super::super::{Binary, Derivative, Kernel, Op, Ternary, Unary, Vjp, tensor};
use super::{A_B, Grads, ROW};
use crate::tensor::graph::Tensor;

pub(in crate::tensor::op) static CLAMP: Op = Op {
    name: "clamp",
    params: &[tensor("x"), tensor("low"), tensor("high")],
    doc: "x, at least low and at most high; NaN where any of the three is",
    example: "batch.length.clamp(1.5, 2.5)",
    shows: &[2.0, 2.5, 1.5, 2.0, 1.5],
    kernel: Kernel::Three(Ternary::Clamp),
    derivative: Derivative::Of(clamp_grads),
    ..ROW
};

pub(in crate::tensor::op) static MIN: Op = Op {
    name: "min",
    params: A_B,
    doc: "the smaller of two values; NaN where either is",
    example: "min(batch.length, 2)",
    shows: &[2.0, 2.0, 1.0, 2.0, 1.0],
    kernel: Kernel::Two(Binary::Min),
    derivative: Derivative::Of(|vjp| pick_grads(vjp, &vjp.args[0], &vjp.args[1])),
    ..ROW
};

pub(in crate::tensor::op) static MAX: Op = Op {
    name: "max",
    params: A_B,
    doc: "the larger of two values; NaN where either is",
    example: "max(batch.length, 2)",
    shows: &[2.0, 3.0, 2.0, 2.0, 2.0],
    kernel: Kernel::Two(Binary::Max),
    derivative: Derivative::Of(|vjp| pick_grads(vjp, &vjp.args[1], &vjp.args[0])),
    ..ROW
};

pub(in crate::tensor::op) static WHERE: Op = Op {
    name: "where",
    params: &[tensor("c"), tensor("a"), tensor("b")],
    doc: "a where c is not 0, else b; what the other one holds there, NaN included, has no influence",
    example: "where(batch.correct, batch.length, 0)",
    shows: &[2.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::Three(Ternary::Where),
    derivative: Derivative::Of(|vjp| {
        let zero = scalar(0.0);
        let by_a = select(&vjp.args[0], vjp.grad, &zero)?;
        let by_b = select(&vjp.args[0], &zero, vjp.grad)?;
        Ok(vec![zero, by_a, by_b])
    }),
    ..ROW
};

pub(in crate::tensor::op) static IS_FINITE: Op = Op {
    name: "is_finite",
    doc: "1 where x is neither NaN nor infinite, else 0",
    example: "is_finite(batch.reward / batch.reward)",
    shows: &[1.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::One(Unary::IsFinite),
    ..ROW
};

pub(in crate::tensor::op) static DETACH: Op = Op {
    name: "detach",
    doc: "the same values, through which no gradient goes",
    example: "detach(batch.reward)",
    shows: &[1.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::One(Unary::Detach),
    ..ROW
};

/// All to the first argument where `low` is less than `high`, else to the second; half to each at a tie, as in torch.
fn pick_grads(vjp: &Vjp<'_>, low: &Tensor, high: &Tensor) -> Grads {
    let half = mul(&scalar(0.5), &equal(low, high)?)?;
    let first = add(&less(low, high)?, &half)?;
    let by_a = mul(vjp.grad, &first)?;
    let by_b = sub(vjp.grad, &by_a)?;
    Ok(vec![by_a, by_b])
}

fn clamp_grads(vjp: &Vjp<'_>) -> Grads {
    let (x, low, high) = (&vjp.args[0], &vjp.args[1], &vjp.args[2]);
    let (below, above) = (less(x, low)?, less(high, x)?);
    let zero = scalar(0.0);
    let inside = select(&add(&below, &above)?, &zero, vjp.grad)?;
    // `high` wins where the bounds cross, as in the kernel.
    let crossed = less(high, &max(x, low)?)?;
    let by_low = select(&below, &select(&crossed, &zero, vjp.grad)?, &zero)?;
    Ok(vec![inside, by_low, select(&crossed, vjp.grad, &zero)?])
}
