//! Rows that compute a separate result for each value within its cell of a level: ranks, indices, running sums in the order of a
//! key, extremes, and softmax.

use std::sync::Arc;

use super::elementwise::{detach, equal, exp, is_finite, less, safe_div, select};
use super::param::{Argument, choice, level, level_at, optional, tensor, tensor_at};
use super::reduction::{COUNT, MAX, MIN, PARAMS, SUM, meeting, reduce, split};
use super::row::{self, Class, Derivative, Op, Term, framed};
use crate::batch::Level;
use crate::tensor::error::TensorError;
use crate::tensor::frame::Frame;
use crate::tensor::graph::{Prim, Row, Tensor};
use crate::tensor::kernel::{Kernel, Within};

const ROW: Op = Op {
    class: Class::Order,
    params: PARAMS,
    derivative: Derivative::Composed,
    ..row::ROW
};

pub(super) const ROWS: &[&Op] = &[&RANK, &INDEX, &CUMSUM_BY, &ARGMAX, &ARGMIN, &SOFTMAX];

pub(super) static RANK: Op = Op {
    name: "rank",
    params: &[
        tensor("x"),
        level("level"),
        optional(choice("ties", &["order", "average"])),
    ],
    doc: "the rank of each value in its cell of a level, from 0 for the smallest; NaN ranks last; ties rank by their `index` or, with \"average\", at their mean rank",
    example: "batch.length.rank(\"batch\", \"average\")",
    shows: &[2.5, 4.0, 0.5, 2.5, 0.5],
    kernel: Kernel::Within(Within::Rank),
    derivative: Derivative::Zero,
    build: |op, args| {
        let rank = of_one(op, args)?;
        match args.get(2) {
            Some(Argument::Choice(1)) => average_rank(op, args, &rank),
            _ => Ok(rank),
        }
    },
    ..ROW
};

pub(super) static INDEX: Op = Op {
    name: "index",
    params: &[tensor("x"), level("level")],
    doc: "the index of each value in its cell of a level, from 0, in batch order; in a trajectory, in the order of its turns",
    example: "batch.length.index(\"group\")",
    shows: &[0.0, 1.0, 2.0, 0.0, 1.0],
    kernel: Kernel::Within(Within::Index),
    derivative: Derivative::Zero,
    build: |op, args| of_one(op, args),
    ..ROW
};

static CUMSUM_BY: Op = Op {
    name: "cumsum_by",
    params: &[tensor("x"), tensor("key"), level("level")],
    doc: "the running sum in each cell of a level, up to and including the value itself, in ascending order of key; ties are ordered by their `index`",
    example: "batch.reward.cumsum_by(batch.length, \"batch\")",
    shows: &[2.0, 2.0, 1.0, 2.0, 1.0],
    kernel: Kernel::Within(Within::CumsumBy),
    derivative: Derivative::Of(|vjp| {
        let Prim::Within(op, to) = vjp.result.inner().prim else {
            unreachable!("the node of this operation names a level");
        };
        // The gradient of a value is the sum of `grad` over the value itself and all values after it in the order of the key.
        let before = vjp.grad().then(|grad| by_key(op, grad, &vjp.args[1], to));
        let by_x = reduce(&SUM, vjp.grad(), to, None) - before + vjp.grad();
        vec![by_x, 0.0.into()]
    }),
    build: |op, args| {
        by_key(
            op,
            tensor_at(args, 0),
            &tensor_at(args, 1),
            level_at(args, 2),
        )
    },
    ..ROW
};

static ARGMAX: Op = Op {
    name: "argmax",
    doc: "1 for the largest value in each cell of a level (if several are equal, for the one with the lowest `index`), 0 for all other values",
    example: "batch.length.argmax(\"group\")",
    shows: &[0.0, 1.0, 0.0, 1.0, 0.0],
    build: |op, args| first_of(op, &MAX, args),
    ..ROW
};

static ARGMIN: Op = Op {
    name: "argmin",
    doc: "1 for the smallest value in each cell of a level (if several are equal, for the one with the lowest `index`), 0 for all other values",
    example: "batch.reward.argmin(\"group\")",
    shows: &[0.0, 1.0, 0.0, 1.0, 0.0],
    build: |op, args| first_of(op, &MIN, args),
    ..ROW
};

static SOFTMAX: Op = Op {
    name: "softmax",
    doc: "exp(x), divided by the sum of exp(x) in each cell of a level, without overflow; 0 for values that are not selected",
    example: "(batch.reward * 1000).softmax(\"group\")",
    shows: &[0.5, 0.0, 0.5, 0.5, 0.5],
    build: |op, args| {
        let (x, to, selection) = split(args);
        let (args, _) = meeting(op.name, std::iter::once(x).chain(selection).collect(), to)?;
        let (x, selection) = (&args[0], args.get(1));
        let e = exp(Term::from(x) - shift(x, to, selection));
        let share = safe_div(&e, reduce(&SUM, &e, to, selection));
        let selected = match selection {
            Some(selection) => select(selection, share, 0.0),
            None => share,
        };
        selected.built()
    },
    ..ROW
};

/// Returns, in each cell of a level, 1 for the `k` values with the smallest draws, and 0 for all other values.
pub(crate) fn subset(draws: &Tensor, to: Level, k: &Tensor) -> Result<Tensor, TensorError> {
    let rank = RANK.apply(&[Argument::Tensor(draws.clone()), Argument::Level(to)])?;
    less(&rank, k).built()
}

fn of_one(op: &'static Op, args: &[Argument]) -> Result<Tensor, TensorError> {
    let (x, to) = (tensor_at(args, 0), level_at(args, 1));
    let frame = framed(op, &x)?;
    if !to.contains(x.level()) {
        return Err(TensorError::not_coarser(op.name, x.level(), to));
    }
    within(op, (&x).into(), to, &frame).built()
}

/// Returns the mean of two ranks of each value: one with ties in the order of `index`, the other with ties in reverse order. All
/// NaN are ties.
fn average_rank(op: &'static Op, args: &[Argument], rank: &Tensor) -> Result<Tensor, TensorError> {
    let (x, to) = (tensor_at(args, 0), level_at(args, 1));
    let negated = (-Term::from(&x)).built()?;
    let reversed = of_one(op, &[Argument::Tensor(negated), Argument::Level(to)])?;
    let is_number = equal(&x, &x).built()?;
    let last = reduce(&SUM, &is_number, to, None) - 1.0;
    // NaN sorts last in both orders: the ranks of NaN are those from `last` + 1 to the number of values minus 1.
    let all = reduce(&COUNT, &x, to, None);
    let twice = select(&is_number, Term::from(rank) - &reversed, all) + last;
    (twice / 2.0).built()
}

/// Applies the operation `op` to one tensor, within each cell of `to`. The frame is a parameter, because a single number has no
/// frame of its own.
pub(super) fn within(op: &'static dyn Row, x: Term, to: Level, frame: &Arc<Frame>) -> Term {
    x.then(|x| {
        let level = x.level();
        Tensor::node(Prim::Within(op, to), vec![x], level, Some(frame.clone()))
    })
}

fn by_key(op: &'static dyn Row, x: Tensor, key: &Tensor, to: Level) -> Result<Tensor, TensorError> {
    let (args, frame) = meeting(op.name(), vec![x, key.clone()], to)?;
    let level = args[0].level();
    Tensor::node(Prim::Within(op, to), args, level, Some(frame))
}

/// Returns 1 for the first selected value in each cell that equals the cell's minimum or maximum (as `row` says), else 0.
fn first_of(op: &'static Op, row: &'static Op, args: &[Argument]) -> Result<Tensor, TensorError> {
    let (x, to, selection) = split(args);
    let (args, frame) = meeting(op.name, std::iter::once(x).chain(selection).collect(), to)?;
    let (x, selection) = (&args[0], args.get(1));
    let attains = equal(x, reduce(row, x, to, selection));
    let attains = match selection {
        Some(selection) => select(selection, attains, 0.0),
        None => attains,
    };
    let attains = attains.built()?;
    let index = within(&INDEX, x.into(), to, &frame);
    let first = reduce(&MIN, &index, to, Some(&attains));
    select(&attains, equal(index, first), 0.0).built()
}

/// Returns the number to subtract from a cell's values so that `exp` does not overflow: the largest selected value, or 0 if that
/// value is not finite.
pub(super) fn shift(x: &Tensor, to: Level, selection: Option<&Tensor>) -> Term {
    let most = detach(reduce(&MAX, x, to, selection));
    select(is_finite(&most), &most, 0.0)
}
