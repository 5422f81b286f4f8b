//! Rows that run along the tokens of each response or, for response tensors, along the turns of each trajectory. They skip tokens
//! that the mask excludes.

use super::elementwise::{add, select};
use super::param::{Argument, number, optional, tensor, tensor_at};
use super::row::{self, Built, Class, Derivative, Op, Term, Vjp, framed, unframed};
use crate::batch::Level;
use crate::tensor::error::TensorError;
use crate::tensor::graph::{Prim, Tensor, meet};
use crate::tensor::kernel::{Kernel, Scan};

const ROW: Op = Op {
    class: Class::Scan,
    params: &[tensor("x"), optional(tensor("gamma"))],
    build: scan,
    ..row::ROW
};

pub(super) const ROWS: &[&Op] = &[&CUMSUM, &SUFFIX_SUM, &NEXT, &PREV, &AT_LAST_TOKEN];

static CUMSUM: Op = Op {
    name: "cumsum",
    doc: "the running sum, up to and including the token itself; with gamma (a number, or a number for each response), y_t = x_t + gamma y_(t-1)",
    example: "batch.token_reward.cumsum()",
    shows: &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    kernel: Kernel::Scan(Scan::Cumsum),
    derivative: Derivative::Of(|vjp| discounted(vjp, &SUFFIX_SUM, &PREV)),
    ..ROW
};

static SUFFIX_SUM: Op = Op {
    name: "suffix_sum",
    doc: "the return-to-go: y_t = x_t + gamma y_(t+1); gamma is a number, or a number for each response, and 1 by default; with gamma * lambda, this is GAE's recurrence",
    source: "GAE, arXiv 1506.02438, eq. 16",
    example: "batch.token_reward.suffix_sum(0.5)",
    shows: &[0.5, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    kernel: Kernel::Scan(Scan::SuffixSum),
    derivative: Derivative::Of(|vjp| discounted(vjp, &CUMSUM, &NEXT)),
    ..ROW
};

static NEXT: Op = Op {
    name: "next",
    params: &[tensor("x"), number("fill")],
    doc: "the next token's value; for the last token, the fill",
    example: "batch.token_reward.next(0)",
    shows: &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    kernel: Kernel::Scan(Scan::Next),
    derivative: Derivative::Of(|vjp| back(vjp, &PREV)),
    ..ROW
};

static PREV: Op = Op {
    name: "prev",
    params: &[tensor("x"), number("fill")],
    doc: "the previous token's value; for the first token, the fill",
    example: "batch.token_reward.prev(-1)",
    shows: &[-1.0, 0.0, -1.0, 0.0, 0.0, -1.0, -1.0, 0.0, -1.0],
    kernel: Kernel::Scan(Scan::Prev),
    derivative: Derivative::Of(|vjp| back(vjp, &NEXT)),
    ..ROW
};

static AT_LAST_TOKEN: Op = Op {
    name: "at_last_token",
    params: &[tensor("x")],
    doc: "a response's value at its last token that counts, 0 at its other tokens",
    example: "batch.reward.at_last_token()",
    shows: &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    derivative: Derivative::Composed,
    build: |op, args| {
        let x = tensor_at(args, 0);
        let frame = framed(op, &x)?;
        if !x.level().contains(Level::Response) {
            let level = x.level();
            let to = ["group", "response"][usize::from(level == Level::Token)];
            let message = format!(
                "needs a value for each response, but this is a {level} tensor: reduce it first, as in `x.sum(\"{to}\")`"
            );
            return Err(TensorError::level(op.name, message));
        }
        let x = x.expanded(Level::Response, &frame)?;
        Tensor::node(Prim::AtLastToken, vec![x], Level::Token, Some(frame))
    },
    ..ROW
};

fn scan(op: &'static Op, args: &[Argument]) -> Result<Tensor, TensorError> {
    let x = tensor_at(args, 0);
    // If the responses are the turns of trajectories, a response tensor is scanned along the turns of each trajectory.
    let is_of_turns = x.level() == Level::Response
        && x.frame()
            .is_some_and(|frame| frame.layout.has_trajectories());
    if x.level() != Level::Token && !is_of_turns {
        let message = format!(
            "needs a token tensor, but this is a {} tensor: a response's value is put on its last token by `x.at_last_token()`; responses follow each other only in a batch with a column `trajectory`",
            x.level()
        );
        return Err(TensorError::level(op.name, message));
    }
    let by = match args.len() {
        1 => Tensor::number(1.0),
        _ => tensor_at(args, 1),
    };
    if !by.level().contains(Level::Response) {
        let message = format!(
            "takes one discount per response, but `gamma` is a {} tensor",
            by.level()
        );
        return Err(TensorError::level(op.name, message));
    }
    along(op, &x, &by)
}

/// Builds a scan with one number for all responses, or with one number per response.
fn along(op: &'static Op, x: &Tensor, by: &Tensor) -> Result<Tensor, TensorError> {
    if let Some(number) = by.as_number() {
        // If only the last token has a value, the suffix sum is that value at all tokens. Adding 0 turns -0 into 0, as a sum
        // does.
        if let (Kernel::Scan(Scan::SuffixSum), 1.0, Prim::AtLastToken, Some(frame)) =
            (op.kernel, number, &x.inner().prim, x.frame())
        {
            return add(&x.inner().args[0], &Tensor::number(0.0))?.expanded(Level::Token, frame);
        }
        return like(Prim::Scan(op, number), x);
    }
    if x.level() != Level::Token {
        let message = "takes one number as its discount along the turns of trajectories";
        return Err(TensorError::level(op.name, message));
    }
    let args = [x.clone(), by.clone()];
    let frame = meet(op.name, &args, Level::Token)?;
    let Some(frame) = frame else {
        return Err(unframed(op.name));
    };
    let args = vec![x.clone(), by.expanded(Level::Response, &frame)?];
    Tensor::node(Prim::Scan(op, 1.0), args, Level::Token, Some(frame))
}

fn discount(vjp: &Vjp<'_>) -> Tensor {
    match (vjp.args.get(1), &vjp.result.inner().prim) {
        (Some(by), _) => by.clone(),
        (None, Prim::Scan(_, number)) => Tensor::number(*number),
        (None, other) => unreachable!("{} is not a scan", other.name()),
    }
}

/// Returns the gradients of a discounted sum. The gradient with respect to x is the discounted sum of `grad` in the other
/// direction. With respect to the discount, it is that sum times the result at the adjacent token, given by `shifted`.
fn discounted(vjp: &Vjp<'_>, other_way: &'static Op, shifted: &'static Op) -> Vec<Term> {
    let by_x = vjp
        .grad()
        .then(|grad| along(other_way, &grad, &discount(vjp)));
    let before = vjp
        .result()
        .then(|result| like(Prim::Scan(shifted, 0.0), &result));
    let by_discount = &by_x * before;
    vec![by_x, by_discount]
}

/// Returns the gradient, shifted by one token in the other direction.
fn back(vjp: &Vjp<'_>, op: &'static Op) -> Vec<Term> {
    vec![vjp.grad().then(|grad| like(Prim::Scan(op, 0.0), &grad))]
}

/// Returns a token tensor whose sum over a response is the gradient of the response's value: the gradient at the response's last
/// token, and 0 at its other tokens.
pub(crate) fn at_last_token_grad(node: &Tensor, grad: &Tensor) -> Result<Tensor, TensorError> {
    let frame = framed(&AT_LAST_TOKEN, node)?;
    let one = Tensor::number(1.0).expanded(Level::Response, &frame)?;
    let last = Tensor::node(Prim::AtLastToken, vec![one], Level::Token, Some(frame))?;
    // `select` is used instead of a product, because a gradient at another token must have no effect, even if it is not finite.
    select(&last, grad, 0.0).built()
}

pub(crate) fn at_last_token(x: &Tensor) -> Built {
    AT_LAST_TOKEN.apply(&[Argument::Tensor(x.clone())])
}

/// Makes a node of a primitive, in the frame and at the level of the argument.
fn like(prim: Prim, x: &Tensor) -> Built {
    Tensor::node(prim, vec![x.clone()], x.level(), x.frame().cloned())
}
