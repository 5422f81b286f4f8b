//! Rows as plain functions on tensors, for derivatives and composed rows to be written like formulas.

use std::sync::Arc;

use super::reduction::EXPAND;
use super::scan::AT_LAST_TOKEN;
use super::{Argument, Op, elementwise, logic, reduction};
use crate::tensor::error::TensorError;
use crate::tensor::graph::{Prim, Tensor};
use crate::tensor::{Frame, Level};

type Built = Result<Tensor, TensorError>;

fn two(op: &'static Op, a: &Tensor, b: &Tensor) -> Built {
    Tensor::map(op, vec![a.clone(), b.clone()])
}

fn one(op: &'static Op, x: &Tensor) -> Built {
    Tensor::map(op, vec![x.clone()])
}

pub(crate) fn add(a: &Tensor, b: &Tensor) -> Built {
    two(&elementwise::ADD, a, b)
}

pub(crate) fn sub(a: &Tensor, b: &Tensor) -> Built {
    two(&elementwise::SUB, a, b)
}

pub(crate) fn mul(a: &Tensor, b: &Tensor) -> Built {
    two(&elementwise::MUL, a, b)
}

pub(crate) fn div(a: &Tensor, b: &Tensor) -> Built {
    two(&elementwise::DIV, a, b)
}

pub(super) fn safe_div(a: &Tensor, b: &Tensor) -> Built {
    two(&elementwise::SAFE_DIV, a, b)
}

pub(super) fn pow(a: &Tensor, b: &Tensor) -> Built {
    two(&elementwise::POW, a, b)
}

pub(super) fn max(a: &Tensor, b: &Tensor) -> Built {
    two(&elementwise::MAX, a, b)
}

pub(crate) fn less(a: &Tensor, b: &Tensor) -> Built {
    two(&logic::LESS, a, b)
}

/// `a > b`, as 0 or 1.
pub(crate) fn greater(a: &Tensor, b: &Tensor) -> Built {
    two(&logic::GREATER, a, b)
}

pub(crate) fn equal(a: &Tensor, b: &Tensor) -> Built {
    two(&logic::EQUAL, a, b)
}

pub(crate) fn neg(x: &Tensor) -> Built {
    one(&elementwise::NEG, x)
}

pub(crate) fn square(x: &Tensor) -> Built {
    one(&elementwise::SQUARE, x)
}

pub(crate) fn ln(x: &Tensor) -> Built {
    one(&elementwise::LN, x)
}

pub(super) fn expm1(x: &Tensor) -> Built {
    one(&elementwise::EXPM1, x)
}

pub(super) fn exp(x: &Tensor) -> Built {
    one(&elementwise::EXP, x)
}

pub(super) fn abs(x: &Tensor) -> Built {
    one(&elementwise::ABS, x)
}

pub(super) fn sign(x: &Tensor) -> Built {
    one(&elementwise::SIGN, x)
}

pub(super) fn floor(x: &Tensor) -> Built {
    one(&elementwise::FLOOR, x)
}

pub(super) fn sigmoid(x: &Tensor) -> Built {
    one(&elementwise::SIGMOID, x)
}

pub(super) fn log_sigmoid(x: &Tensor) -> Built {
    one(&elementwise::LOG_SIGMOID, x)
}

/// `where(c, a, b)`, which is no name for a Rust function.
pub(crate) fn select(c: &Tensor, a: &Tensor, b: &Tensor) -> Built {
    Tensor::map(&elementwise::WHERE, vec![c.clone(), a.clone(), b.clone()])
}

pub(super) fn scalar(value: f64) -> Tensor {
    Tensor::number(value)
}

/// A reduction row to a level, over the places where `selection` is not 0.
pub(super) fn reduce(op: &'static Op, x: &Tensor, to: Level, selection: Option<&Tensor>) -> Built {
    reduction::node(op, x, to, selection)
}

/// The sum over all cells that broadcasting gave a coarser tensor's value to: how a gradient goes back to it. `frame` is
/// that of the coarser tensor, whose groups may be others than those of `x` (after `regroup`).
pub(crate) fn sum_to(x: &Tensor, level: Level, frame: &Arc<Frame>) -> Built {
    if x.level() == level {
        return Ok(x.clone());
    }
    let sum = Prim::Reduce(&reduction::SUM);
    Tensor::node(sum, vec![x.clone()], level, Some(frame.clone()))
}

/// The same value in each cell of a finer level of the tensor's batch.
pub(crate) fn expand(x: &Tensor, to: Level) -> Built {
    EXPAND.apply(&[Argument::Tensor(x.clone()), Argument::Level(to)])
}

/// The sum in each cell of a coarser level.
pub(crate) fn sum(x: &Tensor, to: Level) -> Built {
    reduce(&reduction::SUM, x, to, None)
}

/// A response's value on its last token, 0 on the others.
pub(crate) fn at_last_token(x: &Tensor) -> Built {
    AT_LAST_TOKEN.apply(&[Argument::Tensor(x.clone())])
}

/// A node of a primitive in the frame and at the level of its argument.
pub(super) fn like(prim: Prim, x: &Tensor) -> Built {
    Tensor::node(prim, vec![x.clone()], x.level(), x.frame().cloned())
}
