//! Rows that work value by value: arithmetic and functions.

use std::f64::consts::{LN_2, SQRT_2};

use super::build::*;
use super::{Derivative, Kernel, Local, Op, Param, tensor};
use crate::tensor::error::TensorError;
use crate::tensor::graph::Tensor;

const X: &[Param] = &[tensor("x")];
const A_B: &[Param] = &[tensor("a"), tensor("b")];

type Grads = Result<Vec<Tensor>, TensorError>;

/// What most rows here share; a row names what is its own.
const ROW: Op = Op {
    params: X,
    ..super::ROW
};

pub(super) const ROWS: &[&Op] = &[
    &ADD,
    &SUB,
    &MUL,
    &DIV,
    &REM,
    &POW,
    &NEG_SIGN,
    &NEG,
    &ABS,
    &SIGN,
    &EXP,
    &LN,
    &LOG1P,
    &EXPM1,
    &SQRT,
    &SQUARE,
    &SIGMOID,
    &LOG_SIGMOID,
    &TANH,
    &FLOOR,
    &CEIL,
    &ROUND,
    &CLAMP,
    &MIN,
    &MAX,
    &WHERE,
    &IS_FINITE,
    &SAFE_DIV,
    &DETACH,
];

pub(super) static ADD: Op = Op {
    name: "+",
    params: A_B,
    doc: "the sum",
    example: "batch.reward + 1",
    shows: &[2.0, 1.0, 2.0, 1.0, 1.0],
    kernel: Kernel::Two(|a, b| a + b),
    derivative: Derivative::Of(|l| Ok(vec![l.grad.clone(), l.grad.clone()])),
    ..ROW
};

pub(super) static SUB: Op = Op {
    name: "-",
    params: A_B,
    doc: "the difference",
    example: "batch.reward - batch.reward.mean(\"batch\")",
    shows: &[0.6, -0.4, 0.6, -0.4, -0.4],
    kernel: Kernel::Two(|a, b| a - b),
    derivative: Derivative::Of(|l| Ok(vec![l.grad.clone(), neg(l.grad)?])),
    ..ROW
};

pub(super) static MUL: Op = Op {
    name: "*",
    params: A_B,
    doc: "the product",
    example: "2 * batch.length",
    shows: &[4.0, 6.0, 2.0, 4.0, 2.0],
    kernel: Kernel::Two(|a, b| a * b),
    derivative: Derivative::Of(|l| Ok(vec![mul(l.grad, &l.args[1])?, mul(l.grad, &l.args[0])?])),
    ..ROW
};

pub(super) static DIV: Op = Op {
    name: "/",
    params: A_B,
    doc: "the quotient, as IEEE has it: 1 / 0 is infinite, 0 / 0 NaN; see `safe_div`",
    example: "batch.length / 2",
    shows: &[1.0, 1.5, 0.5, 1.0, 0.5],
    kernel: Kernel::Two(|a, b| a / b),
    derivative: Derivative::Of(|l| {
        let by_a = div(l.grad, &l.args[1])?;
        let by_b = neg(&div(&mul(&by_a, &l.args[0])?, &l.args[1])?)?;
        Ok(vec![by_a, by_b])
    }),
    ..ROW
};

pub(super) static REM: Op = Op {
    name: "%",
    params: A_B,
    doc: "the remainder with the sign of the dividend, as of numbers in Rhai (torch.fmod)",
    example: "batch.length % 2",
    shows: &[0.0, 1.0, 1.0, 0.0, 1.0],
    kernel: Kernel::Two(|a, b| a % b),
    derivative: Derivative::Of(|l| {
        let quotient = div(&l.args[0], &l.args[1])?;
        let whole = mul(&sign(&quotient)?, &floor(&abs(&quotient)?)?)?;
        Ok(vec![l.grad.clone(), neg(&mul(l.grad, &whole)?)?])
    }),
    ..ROW
};

pub(super) static POW: Op = Op {
    name: "**",
    params: A_B,
    doc: "the power",
    example: "batch.length ** 2",
    shows: &[4.0, 9.0, 1.0, 4.0, 1.0],
    kernel: Kernel::Two(f64::powf),
    derivative: Derivative::Of(|l| {
        let (a, b) = (&l.args[0], &l.args[1]);
        // a^0 is 1 for any a: no slope, also at a = 0, where a^-1 is infinite.
        let slope = mul(b, &pow(a, &sub(b, &scalar(1.0))?)?)?;
        let by_a = mul(l.grad, &select(b, &slope, &scalar(0.0))?)?;
        // a^b does not change with b at a = 0, where ln a is infinite; below 0 only whole b give a number at all.
        let log = select(&less(&scalar(0.0), a)?, &ln(a)?, &scalar(0.0))?;
        let by_b = mul(&mul(l.grad, l.result)?, &log)?;
        Ok(vec![by_a, by_b])
    }),
    ..ROW
};

pub(super) static NEG_SIGN: Op = Op {
    name: "-",
    doc: "the negative",
    example: "-batch.reward",
    shows: &[-1.0, 0.0, -1.0, 0.0, 0.0],
    kernel: Kernel::One(|x| -x),
    derivative: Derivative::Of(|l| Ok(vec![neg(l.grad)?])),
    ..ROW
};

pub(super) static NEG: Op = Op {
    name: "neg",
    example: "neg(batch.reward)",
    ..copy(&NEG_SIGN)
};

pub(super) static ABS: Op = Op {
    name: "abs",
    doc: "the absolute value",
    example: "abs(batch.reward - 0.4)",
    shows: &[0.6, 0.4, 0.6, 0.4, 0.4],
    kernel: Kernel::One(f64::abs),
    derivative: Derivative::Of(|l| Ok(vec![mul(l.grad, &sign(&l.args[0])?)?])),
    ..ROW
};

pub(super) static SIGN: Op = Op {
    name: "sign",
    doc: "-1, 0 or 1",
    example: "sign(batch.reward - 0.4)",
    shows: &[1.0, -1.0, 1.0, -1.0, -1.0],
    kernel: Kernel::One(|x| if x == 0.0 { 0.0 } else { x.signum() }),
    ..ROW
};

pub(super) static EXP: Op = Op {
    name: "exp",
    doc: "e to the power of x",
    example: "exp(batch.reward - 1)",
    shows: &[
        1.0,
        0.36787944117144233,
        1.0,
        0.36787944117144233,
        0.36787944117144233,
    ],
    kernel: Kernel::One(f64::exp),
    derivative: Derivative::Of(|l| Ok(vec![mul(l.grad, l.result)?])),
    ..ROW
};

pub(super) static LN: Op = Op {
    name: "ln",
    doc: "the natural logarithm",
    example: "ln(batch.length)",
    shows: &[LN_2, 1.0986122886681098, 0.0, LN_2, 0.0],
    kernel: Kernel::One(f64::ln),
    derivative: Derivative::Of(|l| Ok(vec![div(l.grad, &l.args[0])?])),
    ..ROW
};

pub(super) static LOG1P: Op = Op {
    name: "log1p",
    doc: "ln(1 + x), exact for small x",
    example: "log1p(batch.reward)",
    shows: &[LN_2, 0.0, LN_2, 0.0, 0.0],
    kernel: Kernel::One(f64::ln_1p),
    derivative: Derivative::Of(|l| Ok(vec![div(l.grad, &add(&scalar(1.0), &l.args[0])?)?])),
    ..ROW
};

pub(super) static EXPM1: Op = Op {
    name: "expm1",
    doc: "exp(x) - 1, exact for small x",
    example: "expm1(batch.reward)",
    shows: &[1.718281828459045, 0.0, 1.718281828459045, 0.0, 0.0],
    kernel: Kernel::One(f64::exp_m1),
    derivative: Derivative::Of(|l| Ok(vec![mul(l.grad, &exp(&l.args[0])?)?])),
    ..ROW
};

pub(super) static SQRT: Op = Op {
    name: "sqrt",
    doc: "the square root",
    example: "sqrt(batch.length * 2)",
    shows: &[2.0, 2.449489742783178, SQRT_2, 2.0, SQRT_2],
    kernel: Kernel::One(f64::sqrt),
    derivative: Derivative::Of(|l| Ok(vec![div(l.grad, &mul(&scalar(2.0), l.result)?)?])),
    ..ROW
};

pub(super) static SQUARE: Op = Op {
    name: "square",
    doc: "the product of x with itself",
    example: "square(batch.length)",
    shows: &[4.0, 9.0, 1.0, 4.0, 1.0],
    kernel: Kernel::One(|x| x * x),
    derivative: Derivative::Of(|l| Ok(vec![mul(l.grad, &mul(&scalar(2.0), &l.args[0])?)?])),
    ..ROW
};

pub(super) static SIGMOID: Op = Op {
    name: "sigmoid",
    doc: "1 / (1 + exp(-x)), without overflow",
    example: "sigmoid(batch.reward - 1)",
    shows: &[
        0.5,
        0.2689414213699951,
        0.5,
        0.2689414213699951,
        0.2689414213699951,
    ],
    kernel: Kernel::One(logistic),
    derivative: Derivative::Of(|l| {
        let slope = mul(l.result, &sigmoid(&neg(&l.args[0])?)?)?;
        Ok(vec![mul(l.grad, &slope)?])
    }),
    ..ROW
};

pub(super) static LOG_SIGMOID: Op = Op {
    name: "log_sigmoid",
    doc: "ln(sigmoid(x)), without overflow",
    example: "log_sigmoid(batch.reward - 1)",
    shows: &[
        -LN_2,
        -1.3132616875182228,
        -LN_2,
        -1.3132616875182228,
        -1.3132616875182228,
    ],
    kernel: Kernel::One(|x| x.min(0.0) - (-x.abs()).exp().ln_1p()),
    derivative: Derivative::Of(|l| Ok(vec![mul(l.grad, &sigmoid(&neg(&l.args[0])?)?)?])),
    ..ROW
};

pub(super) static TANH: Op = Op {
    name: "tanh",
    doc: "the hyperbolic tangent",
    example: "tanh(batch.reward)",
    shows: &[0.7615941559557649, 0.0, 0.7615941559557649, 0.0, 0.0],
    kernel: Kernel::One(f64::tanh),
    derivative: Derivative::Of(|l| {
        let slope = sub(&scalar(1.0), &square(l.result)?)?;
        Ok(vec![mul(l.grad, &slope)?])
    }),
    ..ROW
};

pub(super) static FLOOR: Op = Op {
    name: "floor",
    doc: "the whole number at or below x",
    example: "floor(batch.length / 2)",
    shows: &[1.0, 1.0, 0.0, 1.0, 0.0],
    kernel: Kernel::One(f64::floor),
    ..ROW
};

pub(super) static CEIL: Op = Op {
    name: "ceil",
    doc: "the whole number at or above x",
    example: "ceil(batch.length / 2)",
    shows: &[1.0, 2.0, 1.0, 1.0, 1.0],
    kernel: Kernel::One(f64::ceil),
    ..ROW
};

pub(super) static ROUND: Op = Op {
    name: "round",
    doc: "the nearest whole number, halves to the even one (torch.round)",
    example: "round(batch.length / 2)",
    shows: &[1.0, 2.0, 0.0, 1.0, 0.0],
    kernel: Kernel::One(f64::round_ties_even),
    ..ROW
};

pub(super) static CLAMP: Op = Op {
    name: "clamp",
    params: &[tensor("x"), tensor("low"), tensor("high")],
    doc: "x, at least low and at most high; NaN where any of the three is",
    example: "batch.length.clamp(1.5, 2.5)",
    shows: &[2.0, 2.5, 1.5, 2.0, 1.5],
    kernel: Kernel::Three(|x, low, high| smaller(larger(x, low), high)),
    derivative: Derivative::Of(clamp_grads),
    ..ROW
};

pub(super) static MIN: Op = Op {
    name: "min",
    params: A_B,
    doc: "the smaller of two values; NaN where either is",
    example: "min(batch.length, 2)",
    shows: &[2.0, 2.0, 1.0, 2.0, 1.0],
    kernel: Kernel::Two(smaller),
    derivative: Derivative::Of(|l| pick_grads(l, &l.args[0], &l.args[1])),
    ..ROW
};

pub(super) static MAX: Op = Op {
    name: "max",
    params: A_B,
    doc: "the larger of two values; NaN where either is",
    example: "max(batch.length, 2)",
    shows: &[2.0, 3.0, 2.0, 2.0, 2.0],
    kernel: Kernel::Two(larger),
    derivative: Derivative::Of(|l| pick_grads(l, &l.args[1], &l.args[0])),
    ..ROW
};

pub(super) static WHERE: Op = Op {
    name: "where",
    params: &[tensor("c"), tensor("a"), tensor("b")],
    doc: "a where c is not 0, else b; what the other one holds there, NaN included, has no influence",
    example: "where(batch.correct, batch.length, 0)",
    shows: &[2.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::Three(|c, a, b| if c != 0.0 { a } else { b }),
    derivative: Derivative::Of(|l| {
        let zero = scalar(0.0);
        let by_a = select(&l.args[0], l.grad, &zero)?;
        let by_b = select(&l.args[0], &zero, l.grad)?;
        Ok(vec![zero, by_a, by_b])
    }),
    ..ROW
};

pub(super) static IS_FINITE: Op = Op {
    name: "is_finite",
    doc: "1 where x is neither NaN nor infinite, else 0",
    example: "is_finite(batch.reward / batch.reward)",
    shows: &[1.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::One(|x| f64::from(u8::from(x.is_finite()))),
    ..ROW
};

pub(super) static SAFE_DIV: Op = Op {
    name: "safe_div",
    params: A_B,
    doc: "a / b, and 0 where b is 0",
    example: "safe_div(batch.length, batch.reward)",
    shows: &[2.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::Two(|a, b| if b == 0.0 { 0.0 } else { a / b }),
    derivative: Derivative::Of(|l| {
        let by_a = safe_div(l.grad, &l.args[1])?;
        let by_b = neg(&safe_div(&mul(&by_a, &l.args[0])?, &l.args[1])?)?;
        Ok(vec![by_a, by_b])
    }),
    ..ROW
};

pub(super) static DETACH: Op = Op {
    name: "detach",
    doc: "the same values, through which no gradient goes",
    example: "detach(batch.reward)",
    shows: &[1.0, 0.0, 1.0, 0.0, 0.0],
    kernel: Kernel::One(|x| x),
    ..ROW
};

/// A row's fields, for another row that differs in its name alone.
const fn copy(op: &Op) -> Op {
    Op {
        name: op.name,
        class: op.class,
        params: op.params,
        doc: op.doc,
        source: op.source,
        example: op.example,
        shows: op.shows,
        kernel: op.kernel,
        derivative: op.derivative,
        build: op.build,
    }
}

/// The smaller of two values; NaN where either is, which `f64::min` would hide.
fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

/// The larger of two values; NaN where either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// The logistic function. Both branches keep exp's argument at or below 0.
fn logistic(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// All to the first argument where `low` is less than `high`, else to the second; half to each at a tie, as torch has
/// it.
fn pick_grads(l: &Local<'_>, low: &Tensor, high: &Tensor) -> Grads {
    let half = mul(&scalar(0.5), &equal(low, high)?)?;
    let first = add(&less(low, high)?, &half)?;
    let by_a = mul(l.grad, &first)?;
    let by_b = sub(l.grad, &by_a)?;
    Ok(vec![by_a, by_b])
}

fn clamp_grads(l: &Local<'_>) -> Grads {
    let (x, low, high) = (&l.args[0], &l.args[1], &l.args[2]);
    let (below, above) = (less(x, low)?, less(high, x)?);
    let zero = scalar(0.0);
    let inside = select(&add(&below, &above)?, &zero, l.grad)?;
    // `high` wins where the bounds cross, as in the kernel.
    let crossed = less(high, &max(x, low)?)?;
    let by_low = select(&below, &select(&crossed, &zero, l.grad)?, &zero)?;
    Ok(vec![inside, by_low, select(&crossed, l.grad, &zero)?])
}
