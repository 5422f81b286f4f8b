//! Rows that reduce the values of each cell of a coarser level to one value, and `expand`, which repeats values at a finer level.

use std::sync::Arc;

use super::elementwise::{equal, narrow, not, not_equal, safe_div, select};
use super::param::{Argument, Param, level, level_at, optional, tensor, tensor_at};
use super::row::{self, Built, Class, Derivative, Op, Term, Vjp, framed, unframed};
use crate::batch::Level;
use crate::tensor::error::TensorError;
use crate::tensor::frame::Frame;
use crate::tensor::graph::{Prim, Tensor, meet};
use crate::tensor::kernel::{Kernel, Reduction};

pub(super) const PARAMS: &[Param] = &[tensor("x"), level("level"), optional(tensor("selection"))];

const ROW: Op = Op {
    class: Class::Reduction,
    params: PARAMS,
    build,
    ..row::ROW
};

rows! {
    ROWS, ROW;
    SUM = "sum", PARAMS, "the sum in each cell of a level";
        "batch.reward.sum(\"group\")" => [2.0, 0.0]; Reduce(Reduction::Sum), |vjp| spread(vjp, vjp.grad());
    MEAN = "mean", PARAMS, "the mean in each cell of a level; exact for equal values; 0 for an empty cell";
        "batch.length.mean(\"group\", batch.correct)" => [1.5, 0.0];
        Reduce(Reduction::Mean), |vjp| spread(vjp, safe_div(vjp.grad(), count(vjp)));
    MIN = "min", PARAMS, "the smallest value in each cell of a level; 0 for an empty cell";
        "batch.length.min(\"group\")" => [1.0, 1.0]; Reduce(Reduction::Min), extreme_grads;
    MAX = "max", PARAMS, "the largest value in each cell of a level; 0 for an empty cell";
        "batch.length.max(\"group\")" => [3.0, 2.0]; Reduce(Reduction::Max), extreme_grads;
    STD = "std", PARAMS,
        "the sample standard deviation (ddof 1, as torch.std); exactly 0 for equal values and for a single value";
        "batch.length.std(\"group\")" => [1.0, std::f64::consts::FRAC_1_SQRT_2];
        Reduce(Reduction::Std), |vjp| deviation_grads(vjp, 1.0);
    POPULATION_STD = "population_std", PARAMS,
        "the population standard deviation (ddof 0); exactly 0 for equal values";
        "batch.length.population_std(\"group\")" => [0.816496580927726, 0.5];
        Reduce(Reduction::PopulationStd), |vjp| deviation_grads(vjp, 0.0);
    COUNT = "count", PARAMS,
        "the number of values in each cell of a level (only the selected values, if there is a selection)";
        "batch.reward.count(\"group\")" => [3.0, 2.0]; Reduce(Reduction::Count);
}

pub(super) const COMPOSED: &[&Op] = &[&ANY, &ALL, &EXPAND];

pub(super) static ANY: Op = Op {
    name: "any",
    doc: "1 for a cell that has a value other than 0, else 0",
    example: "batch.correct.any(\"group\")",
    shows: &[1.0, 0.0],
    derivative: Derivative::Composed,
    build: |op, args| any(op, args, |x| not_equal(x, 0.0)),
    ..ROW
};

pub(super) static ALL: Op = Op {
    name: "all",
    doc: "1 for a cell in which no value is 0, else 0",
    example: "batch.length.all(\"group\")",
    shows: &[1.0, 1.0],
    derivative: Derivative::Composed,
    // The result is 1 for an empty cell, because no value in it is 0.
    build: |op, args| not(&any(op, args, |x| not(x))?).built(),
    ..ROW
};

pub(super) static EXPAND: Op = Op {
    name: "expand",
    params: &[tensor("x"), level("level")],
    doc: "each value, repeated for all cells of a finer level; elementwise operations expand their arguments automatically",
    example: "batch.reward.max(\"group\").expand(\"response\")",
    shows: &[1.0, 1.0, 1.0, 0.0, 0.0],
    derivative: Derivative::Composed,
    build: |op, args| {
        let (x, to) = (tensor_at(args, 0), level_at(args, 1));
        if !x.level().contains(to) {
            let message = format!(
                "a {} tensor cannot be expanded to {to}: that level is not finer; reduce it with `sum`, `mean`, ...",
                x.level()
            );
            return Err(TensorError::level(op.name, message));
        }
        x.expanded(to, &framed(op, &x)?)
    },
    ..ROW
};

pub(super) fn split(args: &[Argument]) -> (Tensor, Level, Option<Tensor>) {
    let selection = (args.len() > 2).then(|| tensor_at(args, 2));
    (tensor_at(args, 0), level_at(args, 1), selection)
}

/// Returns 1 for each cell that has a selected value for which `test` holds, else 0.
fn any(
    op: &'static Op,
    args: &[Argument],
    test: impl Fn(&Tensor) -> Term,
) -> Result<Tensor, TensorError> {
    let (x, to, selection) = split(args);
    named(op, &MAX, &test(&x).built()?, to, selection.as_ref())
}

fn build(op: &'static Op, args: &[Argument]) -> Result<Tensor, TensorError> {
    let (x, to, selection) = split(args);
    node(op, &x, to, selection.as_ref())
}

/// Makes a reduction's node. The tensor and its selection are first expanded to their common level.
pub(super) fn node(
    op: &'static Op,
    x: &Tensor,
    to: Level,
    selection: Option<&Tensor>,
) -> Result<Tensor, TensorError> {
    named(op, op, x, to, selection)
}

/// Makes the node of the reduction `row`. Errors about levels and batches name `op`, the operation that the script called.
fn named(
    op: &'static Op,
    row: &'static Op,
    x: &Tensor,
    to: Level,
    selection: Option<&Tensor>,
) -> Result<Tensor, TensorError> {
    let mut args = vec![x.clone()];
    args.extend(selection.cloned());
    let (args, frame) = meeting(op.name, args, to)?;
    if std::ptr::eq(row, &COUNT) && selection.is_none() {
        return Tensor::node(Prim::Count(args[0].level()), Vec::new(), to, Some(frame));
    }
    Tensor::node(Prim::Reduce(row), args, to, Some(frame))
}

/// Returns a row's arguments, expanded to their common level (which must be at least as fine as `to`), and their frame.
pub(super) fn meeting(
    op: &'static str,
    mut args: Vec<Tensor>,
    to: Level,
) -> Result<(Vec<Tensor>, Arc<Frame>), TensorError> {
    let level = args
        .iter()
        .fold(Level::Batch, |join, arg| join.join(arg.level()));
    let Some(frame) = meet(op, &args, level)? else {
        return Err(unframed(op));
    };
    if !to.contains(level) {
        return Err(TensorError::not_coarser(op, level, to));
    }
    for arg in &mut args {
        *arg = arg.expanded(level, &frame)?;
    }
    Ok((args, frame))
}

/// Returns the gradient of each value: the gradient `grad` of its cell, or 0 if the value is not selected.
fn spread(vjp: &Vjp<'_>, grad: Term) -> Vec<Term> {
    let by_x = match vjp.args.get(1) {
        Some(selection) => select(selection, grad, 0.0),
        None => grad,
    };
    vec![by_x, 0.0.into()]
}

fn count(vjp: &Vjp<'_>) -> Term {
    reduce(&COUNT, vjp.x(), vjp.result.level(), vjp.args.get(1))
}

/// Divides the gradient equally among all values that attain the extreme.
fn extreme_grads(vjp: &Vjp<'_>) -> Vec<Term> {
    let attains = equal(vjp.x(), vjp.result());
    let number = reduce(&SUM, &attains, vjp.result.level(), vjp.args.get(1));
    spread(vjp, attains * safe_div(vjp.grad(), number))
}

/// Multiplies the gradient by the derivative (x - mean) / ((n - ddof) std), which is taken as 0 if the std is 0, as in torch.
fn deviation_grads(vjp: &Vjp<'_>, ddof: f64) -> Vec<Term> {
    let mean = reduce(&MEAN, vjp.x(), vjp.result.level(), vjp.args.get(1));
    let slope = safe_div(vjp.x() - mean, (count(vjp) - ddof) * vjp.result());
    spread(vjp, vjp.grad() * slope)
}

/// Reduces the values for which `selection` is not 0 to a coarser level. Without a selection, all values are reduced.
pub(super) fn reduce(
    op: &'static Op,
    x: impl Into<Term>,
    to: Level,
    selection: Option<&Tensor>,
) -> Term {
    x.into().then(|x| node(op, &x, to, selection))
}

/// Sums a gradient over all cells to which a coarser tensor's value was broadcast, which yields that tensor's gradient. `frame`
/// is the frame of the coarser tensor, whose groups may differ from the groups of `x` (after `regroup`).
pub(crate) fn sum_to(x: &Tensor, level: Level, frame: &Arc<Frame>) -> Built {
    if x.level() == level {
        return Ok(x.clone());
    }
    let sum = Prim::Reduce(&SUM);
    Tensor::node(sum, vec![x.clone()], level, Some(frame.clone()))
}

pub(crate) fn sum(x: &Tensor, to: Level) -> Built {
    node(&SUM, x, to, None)
}

/// Returns the sum of each response's tokens, rounded to the tokens' precision. In f32, 0.1 + 0.2 + 0.4 then equals the 0.7 of
/// another response, so a group of these two responses has no signal.
pub(crate) fn sum_of_tokens(x: &Tensor) -> Built {
    let sum = sum(x, Level::Response)?;
    if x.is_f64() {
        Ok(sum)
    } else {
        narrow(&sum).built()
    }
}
