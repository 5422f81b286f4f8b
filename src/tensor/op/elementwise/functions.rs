//! Rows of functions of one value.

use std::f64::consts::{LN_2, SQRT_2};

use super::super::build::*;
use super::super::{Derivative, Kernel, Op, Unary};
use super::ROW;

/// The exponential, the sigmoid and its logarithm at -1.
const EXP_1: f64 = 0.36787944117144233;
const SIGMOID_1: f64 = 0.2689414213699951;
const LOG_1: f64 = -1.3132616875182228;

pub(in crate::tensor::op) static ABS: Op = Op {
    name: "abs",
    doc: "the absolute value",
    example: "abs(batch.reward - 0.4)",
    shows: &[0.6, 0.4, 0.6, 0.4, 0.4],
    kernel: Kernel::One(Unary::Abs),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * sign(vjp.x())]),
    ..ROW
};

pub(in crate::tensor::op) static SIGN: Op = Op {
    name: "sign",
    doc: "-1, 0 or 1",
    example: "sign(batch.reward - 0.4)",
    shows: &[1.0, -1.0, 1.0, -1.0, -1.0],
    kernel: Kernel::One(Unary::Sign),
    ..ROW
};

pub(in crate::tensor::op) static EXP: Op = Op {
    name: "exp",
    doc: "e to the power of x",
    example: "exp(batch.reward - 1)",
    shows: &[1.0, EXP_1, 1.0, EXP_1, EXP_1],
    kernel: Kernel::One(Unary::Exp),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * vjp.result()]),
    ..ROW
};

pub(in crate::tensor::op) static LN: Op = Op {
    name: "ln",
    doc: "the natural logarithm",
    example: "ln(batch.length)",
    shows: &[LN_2, 1.0986122886681098, 0.0, LN_2, 0.0],
    kernel: Kernel::One(Unary::Ln),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() / vjp.x()]),
    ..ROW
};

pub(in crate::tensor::op) static LOG1P: Op = Op {
    name: "log1p",
    doc: "ln(1 + x), exact for small x",
    example: "log1p(batch.reward)",
    shows: &[LN_2, 0.0, LN_2, 0.0, 0.0],
    kernel: Kernel::One(Unary::Log1p),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() / (1.0 + vjp.x())]),
    ..ROW
};

pub(in crate::tensor::op) static EXPM1: Op = Op {
    name: "expm1",
    doc: "exp(x) - 1, exact for small x",
    example: "expm1(batch.reward)",
    shows: &[1.718281828459045, 0.0, 1.718281828459045, 0.0, 0.0],
    kernel: Kernel::One(Unary::Expm1),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * exp(vjp.x())]),
    ..ROW
};

pub(in crate::tensor::op) static SQRT: Op = Op {
    name: "sqrt",
    doc: "the square root",
    example: "sqrt(batch.length * 2)",
    shows: &[2.0, 2.449489742783178, SQRT_2, 2.0, SQRT_2],
    kernel: Kernel::One(Unary::Sqrt),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() / (2.0 * vjp.result())]),
    ..ROW
};

pub(in crate::tensor::op) static SIGMOID: Op = Op {
    name: "sigmoid",
    doc: "1 / (1 + exp(-x)), without overflow",
    example: "sigmoid(batch.reward - 1)",
    shows: &[0.5, SIGMOID_1, 0.5, SIGMOID_1, SIGMOID_1],
    kernel: Kernel::One(Unary::Sigmoid),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * (vjp.result() * sigmoid(-vjp.x()))]),
    ..ROW
};

pub(in crate::tensor::op) static LOG_SIGMOID: Op = Op {
    name: "log_sigmoid",
    doc: "ln(sigmoid(x)), without overflow",
    example: "log_sigmoid(batch.reward - 1)",
    shows: &[-LN_2, LOG_1, -LN_2, LOG_1, LOG_1],
    kernel: Kernel::One(Unary::LogSigmoid),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * sigmoid(-vjp.x())]),
    ..ROW
};

pub(in crate::tensor::op) static TANH: Op = Op {
    name: "tanh",
    doc: "the hyperbolic tangent",
    example: "tanh(batch.reward)",
    shows: &[0.7615941559557649, 0.0, 0.7615941559557649, 0.0, 0.0],
    kernel: Kernel::One(Unary::Tanh),
    derivative: Derivative::Of(|vjp| vec![vjp.grad() * (1.0 - square(vjp.result()))]),
    ..ROW
};

pub(in crate::tensor::op) static FLOOR: Op = Op {
    name: "floor",
    doc: "the whole number at or below x",
    example: "floor(batch.length / 2)",
    shows: &[1.0, 1.0, 0.0, 1.0, 0.0],
    kernel: Kernel::One(Unary::Floor),
    ..ROW
};

pub(in crate::tensor::op) static CEIL: Op = Op {
    name: "ceil",
    doc: "the whole number at or above x",
    example: "ceil(batch.length / 2)",
    shows: &[1.0, 2.0, 1.0, 1.0, 1.0],
    kernel: Kernel::One(Unary::Ceil),
    ..ROW
};

pub(in crate::tensor::op) static ROUND: Op = Op {
    name: "round",
    doc: "the nearest whole number, halves to the even one (torch.round)",
    example: "round(batch.length / 2)",
    shows: &[1.0, 2.0, 0.0, 1.0, 0.0],
    kernel: Kernel::One(Unary::Round),
    ..ROW
};
