//! Rows that choose between values, or pass them on.

use super::super::build::*;
use super::super::{Binary, Derivative, Kernel, Op, Ternary, Unary, Vjp, tensor};
use super::{A_B, ROW};

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
    derivative: Derivative::Of(|vjp| pick_grads(vjp, vjp.arg(0), vjp.arg(1))),
    ..ROW
};

pub(in crate::tensor::op) static MAX: Op = Op {
    name: "max",
    params: A_B,
    doc: "the larger of two values; NaN where either is",
    example: "max(batch.length, 2)",
    shows: &[2.0, 3.0, 2.0, 2.0, 2.0],
    kernel: Kernel::Two(Binary::Max),
    derivative: Derivative::Of(|vjp| pick_grads(vjp, vjp.arg(1), vjp.arg(0))),
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
        let by_a = select(vjp.arg(0), vjp.grad(), 0.0);
        let by_b = select(vjp.arg(0), 0.0, vjp.grad());
        vec![0.0.into(), by_a, by_b]
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
fn pick_grads(vjp: &Vjp<'_>, low: Term, high: Term) -> Vec<Term> {
    let half = 0.5 * equal(&low, &high);
    let by_a = vjp.grad() * (less(low, high) + half);
    let by_b = vjp.grad() - &by_a;
    vec![by_a, by_b]
}

fn clamp_grads(vjp: &Vjp<'_>) -> Vec<Term> {
    let (x, low, high) = (vjp.arg(0), vjp.arg(1), vjp.arg(2));
    let (below, above) = (less(&x, &low), less(&high, &x));
    let inside = select(&below + above, 0.0, vjp.grad());
    // `high` wins where the bounds cross, as in the kernel.
    let crossed = less(high, max(x, low));
    let by_low = select(below, select(&crossed, 0.0, vjp.grad()), 0.0);
    vec![inside, by_low, select(crossed, vjp.grad(), 0.0)]
}
