//! Rows of arithmetic: the operators, and quotients and powers by name.

use super::super::build::*;
use super::super::{Binary, Derivative, Kernel, Op, Unary};
use super::{A_B, ROW};

pub(in crate::tensor::op) static ADD: Op = Op {
    name: "+",
    params: A_B,
    doc: "the sum",
    example: "batch.reward + 1",
    shows: &[2.0, 1.0, 2.0, 1.0, 1.0],
    kernel: Kernel::Two(Binary::Add),
    derivative: Derivative::Of(|vjp| vec![vjp.grad(), vjp.grad()]),
    ..ROW
};

pub(in crate::tensor::op) static SUB: Op = Op {
    name: "-",
    params: A_B,
    doc: "the difference",
    example: "batch.reward - batch.reward.mean(\"batch\")",
    shows: &[0.6, -0.4, 0.6, -0.4, -0.4],
    kernel: Kernel::Two(Binary::Sub),
    derivative: Derivative::Of(|vjp| vec![vjp.grad(), -vjp.grad()]),
    ..ROW
};

pub(in crate::tensor::op) static MUL: Op = Op {
    name: "*",
    params: A_B,
    doc: "the product",
    example: "2 * batch.length",
    shows: &[4.0, 6.0, 2.0, 4.0, 2.0],
    kernel: Kernel::Two(Binary::Mul),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * vjp.arg(1), vjp.grad() * vjp.arg(0)]),
    ..ROW
};

pub(in crate::tensor::op) static DIV: Op = Op {
    name: "/",
    params: A_B,
    doc: "the quotient, as IEEE has it: 1 / 0 is infinite, 0 / 0 NaN; see `safe_div`",
    example: "batch.length / 2",
    shows: &[1.0, 1.5, 0.5, 1.0, 0.5],
    kernel: Kernel::Two(Binary::Div),
    derivative: Derivative::Of(|vjp| {
        let by_a = vjp.grad() / vjp.arg(1);
        let by_b = -(&by_a * vjp.arg(0) / vjp.arg(1));
        vec![by_a, by_b]
    }),
    ..ROW
};

pub(in crate::tensor::op) static SAFE_DIV: Op = Op {
    name: "safe_div",
    params: A_B,
    doc: "a / b, and 0 where b is 0",
    example: "safe_div(batch.length, batch.reward)",
    shows: &[2.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::Two(Binary::SafeDiv),
    derivative: Derivative::Of(|vjp| {
        let by_a = safe_div(vjp.grad(), vjp.arg(1));
        let by_b = -safe_div(&by_a * vjp.arg(0), vjp.arg(1));
        vec![by_a, by_b]
    }),
    ..ROW
};

pub(in crate::tensor::op) static REM: Op = Op {
    name: "%",
    params: A_B,
    doc: "the remainder with the sign of the dividend, as of numbers in Rhai (torch.fmod)",
    example: "batch.length % 2",
    shows: &[0.0, 1.0, 1.0, 0.0, 1.0],
    kernel: Kernel::Two(Binary::Rem),
    derivative: Derivative::Of(|vjp| {
        let quotient = vjp.arg(0) / vjp.arg(1);
        let whole = sign(&quotient) * floor(abs(quotient));
        vec![vjp.grad(), -(vjp.grad() * whole)]
    }),
    ..ROW
};

pub(in crate::tensor::op) static POW: Op = Op {
    name: "**",
    params: A_B,
    doc: "the power; a minus before the base needs brackets: `(-x) ** 2` or `-(x ** 2)`",
    example: "batch.length ** 2",
    shows: &[4.0, 9.0, 1.0, 4.0, 1.0],
    kernel: Kernel::Two(Binary::Pow),
    derivative: Derivative::Of(|vjp| {
        let (a, b) = (&vjp.arg(0), &vjp.arg(1));
        // a^0 is 1 for any a: no slope, also at a = 0, where a^-1 is infinite.
        let slope = b * pow(a, b - 1.0);
        let by_a = vjp.grad() * select(b, slope, 0.0);
        // a^b does not change with b at a = 0, where ln a is infinite; below 0 only whole b give a number at all.
        let log = select(less(0.0, a), ln(a), 0.0);
        let by_b = vjp.grad() * vjp.result() * log;
        vec![by_a, by_b]
    }),
    ..ROW
};

const NEGATIVE: Op = Op {
    name: "-",
    doc: "the negative",
    example: "-batch.reward",
    shows: &[-1.0, 0.0, -1.0, 0.0, 0.0],
    kernel: Kernel::One(Unary::Neg),
    derivative: Derivative::Of(|vjp| vec![-vjp.grad()]),
    ..ROW
};

pub(in crate::tensor::op) static NEG_SIGN: Op = NEGATIVE;

pub(in crate::tensor::op) static NEG: Op = Op {
    name: "neg",
    example: "neg(batch.reward)",
    ..NEGATIVE
};

pub(in crate::tensor::op) static SQUARE: Op = Op {
    name: "square",
    doc: "the product of x with itself",
    example: "square(batch.length)",
    shows: &[4.0, 9.0, 1.0, 4.0, 1.0],
    kernel: Kernel::One(Unary::Square),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * (2.0 * vjp.x())]),
    ..ROW
};
