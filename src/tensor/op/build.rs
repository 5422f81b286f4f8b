//! Rows as plain functions on tensors, for derivatives and composed rows to be written like formulas.

use std::sync::Arc;

use super::reduction::EXPAND;
use super::scan::AT_LAST_TOKEN;
use super::{Argument, Op, elementwise, logic, reduction};
use crate::tensor::error::TensorError;
use crate::tensor::graph::{Prim, Tensor};
use crate::tensor::{Frame, Level};

type Built = Result<Tensor, TensorError>;

macro_rules! rows {
    ($($name:ident($($arg:ident),+) = $row:expr;)+) => {$(
        pub(crate) fn $name($($arg: &Tensor),+) -> Built {
            Tensor::map(&$row, vec![$($arg.clone()),+])
        }
    )+};
}

rows! {
    add(a, b) = elementwise::ADD;
    sub(a, b) = elementwise::SUB;
    mul(a, b) = elementwise::MUL;
    div(a, b) = elementwise::DIV;
    safe_div(a, b) = elementwise::SAFE_DIV;
    pow(a, b) = elementwise::POW;
    max(a, b) = elementwise::MAX;
    less(a, b) = logic::LESS;
    greater(a, b) = logic::GREATER;
    equal(a, b) = logic::EQUAL;
    not_equal(a, b) = logic::NOT_EQUAL;
    not(x) = logic::NOT;
    neg(x) = elementwise::NEG;
    square(x) = elementwise::SQUARE;
    ln(x) = elementwise::LN;
    exp(x) = elementwise::EXP;
    abs(x) = elementwise::ABS;
    sign(x) = elementwise::SIGN;
    floor(x) = elementwise::FLOOR;
    sigmoid(x) = elementwise::SIGMOID;
    log_sigmoid(x) = elementwise::LOG_SIGMOID;
}

/// `where(c, a, b)`, which is no name for a Rust function.
pub(crate) fn select(c: &Tensor, a: &Tensor, b: &Tensor) -> Built {
    Tensor::map(&elementwise::WHERE, vec![c.clone(), a.clone(), b.clone()])
}

pub(super) fn scalar(value: f64) -> Tensor {
    Tensor::number(value)
}

/// A reduction row to a level, over the values where `selection` is not 0.
pub(super) fn reduce(op: &'static Op, x: &Tensor, to: Level, selection: Option<&Tensor>) -> Built {
    reduction::node(op, x, to, selection)
}

/// The sum over all cells that broadcasting gave a coarser tensor's value to: how a gradient goes back to it. `frame`
/// is that of the coarser tensor, whose groups may be others than those of `x` (after `regroup`).
pub(crate) fn sum_to(x: &Tensor, level: Level, frame: &Arc<Frame>) -> Built {
    if x.level() == level {
        return Ok(x.clone());
    }
    let sum = Prim::Reduce(&reduction::SUM);
    Tensor::node(sum, vec![x.clone()], level, Some(frame.clone()))
}

/// The sum of the one value in each of the tensor's own cells, as [`sum_to`] has it for a batch that is one group: there
/// is no -0.
pub(crate) fn sum_of_one(x: &Tensor) -> Built {
    like(Prim::Reduce(&reduction::SUM), x)
}

pub(crate) fn expand(x: &Tensor, to: Level) -> Built {
    EXPAND.apply(&[Argument::Tensor(x.clone()), Argument::Level(to)])
}

pub(crate) fn sum(x: &Tensor, to: Level) -> Built {
    reduce(&reduction::SUM, x, to, None)
}

pub(crate) fn at_last_token(x: &Tensor) -> Built {
    AT_LAST_TOKEN.apply(&[Argument::Tensor(x.clone())])
}

/// A node of a primitive in the frame and at the level of its argument.
pub(super) fn like(prim: Prim, x: &Tensor) -> Built {
    Tensor::node(prim, vec![x.clone()], x.level(), x.frame().cloned())
}
