//! Rows that work value by value: arithmetic and functions.

mod arithmetic;
mod choice;
mod functions;

pub(super) use arithmetic::*;
pub(super) use choice::*;
pub(super) use functions::*;

use super::{Op, Param, tensor};

const X: &[Param] = &[tensor("x")];
const A_B: &[Param] = &[tensor("a"), tensor("b")];

/// The fields that most rows here share; a row names its own.
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
