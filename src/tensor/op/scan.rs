//! Rows that run along the tokens of each response, over those that count, across the holes of a mask; of response tensors,
//! along the turns of each trajectory.

use super::build::*;
use super::{
    Argument, Class, Derivative, Kernel, Op, Vjp, framed, number, number_at, optional, tensor,
    tensor_at,
};
use crate::tensor::Level;
use crate::tensor::error::TensorError;
use crate::tensor::graph::{Prim, Tensor};

/// The scans of a response's tokens; each takes one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// y_t = x_t + gamma y_(t-1)
    Cumsum,
    /// y_t = x_t + gamma y_(t+1)
    SuffixSum,
    /// y_t = x_(t+1), the number after the last
    Next,
    /// y_t = x_(t-1), the number before the first
    Prev,
}

const ROW: Op = Op {
    class: Class::Scan,
    params: &[tensor("x"), optional(number("gamma"))],
    build: |op, args| scan(op, args, 1.0),
    ..super::ROW
};

pub(super) const ROWS: &[&Op] = &[&CUMSUM, &SUFFIX_SUM, &NEXT, &PREV, &AT_LAST_TOKEN];

static CUMSUM: Op = Op {
    name: "cumsum",
    doc: "the sum up to and with each token; with gamma, y_t = x_t + gamma y_(t-1)",
    example: "batch.token_reward.cumsum()",
    shows: &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    kernel: Kernel::Scan(Scan::Cumsum),
    derivative: Derivative::Of(|vjp| back(vjp, &SUFFIX_SUM, vjp.number)),
    ..ROW
};

static SUFFIX_SUM: Op = Op {
    name: "suffix_sum",
    doc: "the return-to-go: y_t = x_t + gamma y_(t+1), gamma 1 if not given; with gamma * lambda it is GAE's recurrence",
    source: "GAE, arXiv 1506.02438, eq. 16",
    example: "batch.token_reward.suffix_sum(0.5)",
    shows: &[0.5, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    kernel: Kernel::Scan(Scan::SuffixSum),
    derivative: Derivative::Of(|vjp| back(vjp, &CUMSUM, vjp.number)),
    ..ROW
};

static NEXT: Op = Op {
    name: "next",
    params: &[tensor("x"), number("fill")],
    doc: "the next token's value, and a fill after the last",
    example: "batch.token_reward.next(0)",
    shows: &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    kernel: Kernel::Scan(Scan::Next),
    derivative: Derivative::Of(|vjp| back(vjp, &PREV, 0.0)),
    ..ROW
};

static PREV: Op = Op {
    name: "prev",
    params: &[tensor("x"), number("fill")],
    doc: "the previous token's value, and a fill before the first",
    example: "batch.token_reward.prev(-1)",
    shows: &[-1.0, 0.0, -1.0, 0.0, 0.0, -1.0, -1.0, 0.0, -1.0],
    kernel: Kernel::Scan(Scan::Prev),
    derivative: Derivative::Of(|vjp| back(vjp, &NEXT, 0.0)),
    ..ROW
};

pub(super) static AT_LAST_TOKEN: Op = Op {
    name: "at_last_token",
    params: &[tensor("x")],
    doc: "a response's value on its last token that counts, 0 on the others",
    example: "batch.reward.at_last_token()",
    shows: &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    derivative: Derivative::Composed,
    build: |op, args| {
        let x = tensor_at(args, 0);
        let frame = framed(op, &x)?;
        if !x.level().contains(Level::Response) {
            let message = format!(
                "needs a response tensor, this is a {} tensor: reduce it first, as in `x.sum(\"response\")`",
                x.level()
            );
            return Err(TensorError::level(op.name, message));
        }
        let x = x.expanded(Level::Response, &frame)?;
        Tensor::node(Prim::AtLastToken, vec![x], Level::Token, Some(frame))
    },
    ..ROW
};

fn scan(op: &'static Op, args: &[Argument], default: f64) -> Result<Tensor, TensorError> {
    let x = tensor_at(args, 0);
    // One value a response, where these are turns: along their trajectories.
    let is_of_turns = x.level() == Level::Response
        && x.frame()
            .is_some_and(|frame| frame.layout.has_trajectories());
    if x.level() != Level::Token && !is_of_turns {
        let message = format!(
            "needs a token tensor, this is a {} tensor: a response's value is put on its last token by `x.at_last_token()`; responses follow each other in a batch with a column `trajectory` alone",
            x.level()
        );
        return Err(TensorError::level(op.name, message));
    }
    let number = if args.len() > 1 {
        number_at(args, 1)
    } else {
        default
    };
    like(Prim::Scan(op, number), &x)
}

/// The scan of the gradient that runs the other way.
fn back(vjp: &Vjp<'_>, op: &'static Op, number: f64) -> Vec<Term> {
    vec![vjp.grad().then(|grad| like(Prim::Scan(op, number), &grad))]
}

/// The gradient of each response's value: that of its last token.
pub(crate) fn at_last_token_grad(node: &Tensor, grad: &Tensor) -> Result<Tensor, TensorError> {
    let frame = framed(&AT_LAST_TOKEN, node)?;
    let one = Tensor::number(1.0).expanded(Level::Response, &frame)?;
    let last = Tensor::node(Prim::AtLastToken, vec![one], Level::Token, Some(frame))?;
    // Not a product: a gradient elsewhere that is not finite has no part in it.
    select(&last, grad, 0.0).built()
}
