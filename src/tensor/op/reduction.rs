//! Rows that reduce the values of each cell of a coarser level to one.

use super::build::*;
use super::{
    Argument, Class, Derivative, Kernel, Op, Param, Vjp, framed, level, level_at, optional, tensor,
    tensor_at,
};
use crate::tensor::Level;
use crate::tensor::error::TensorError;
use crate::tensor::frame::meet;
use crate::tensor::graph::{Prim, Tensor};

/// The reductions of the values of a cell. Of no value at all, each is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    /// Never outside the smallest and the largest value, so that equal values have themselves as their mean.
    Mean,
    Min,
    Max,
    /// With ddof 1; exactly 0 for equal values, and for one alone.
    Std,
    /// With ddof 0; exactly 0 for equal values.
    PopulationStd,
    Count,
    /// The mean of the two middle values where their number is even, as numpy has it.
    Median,
}

const PARAMS: &[Param] = &[tensor("x"), level("level"), optional(tensor("selection"))];

const ROW: Op = Op {
    class: Class::Reduction,
    params: PARAMS,
    build,
    ..super::ROW
};

pub(super) const ROWS: &[&Op] = &[
    &SUM,
    &MEAN,
    &MIN,
    &MAX,
    &STD,
    &POPULATION_STD,
    &COUNT,
    &ANY,
    &ALL,
    &MEDIAN,
    &OTHERS_MEAN,
    &LAST,
    &EXPAND,
];

pub(crate) static SUM: Op = Op {
    name: "sum",
    doc: "the sum in each cell of a level",
    example: "batch.reward.sum(\"group\")",
    shows: &[2.0, 0.0],
    kernel: Kernel::Reduce(Reduction::Sum),
    derivative: Derivative::Of(|vjp| spread(vjp, vjp.grad())),
    ..ROW
};

pub(super) static MEAN: Op = Op {
    name: "mean",
    doc: "the mean in each cell of a level; equal values have exactly themselves as their mean; of nothing, 0",
    example: "batch.length.mean(\"group\", batch.correct)",
    shows: &[1.5, 0.0],
    kernel: Kernel::Reduce(Reduction::Mean),
    derivative: Derivative::Of(|vjp| spread(vjp, safe_div(vjp.grad(), count(vjp)))),
    ..ROW
};

pub(super) static MIN: Op = Op {
    name: "min",
    doc: "the smallest value in each cell of a level; of nothing, 0",
    example: "batch.length.min(\"group\")",
    shows: &[1.0, 1.0],
    kernel: Kernel::Reduce(Reduction::Min),
    derivative: Derivative::Of(extreme_grads),
    ..ROW
};

pub(super) static MAX: Op = Op {
    name: "max",
    doc: "the largest value in each cell of a level; of nothing, 0",
    example: "batch.length.max(\"group\")",
    shows: &[3.0, 2.0],
    kernel: Kernel::Reduce(Reduction::Max),
    derivative: Derivative::Of(extreme_grads),
    ..ROW
};

pub(super) static STD: Op = Op {
    name: "std",
    doc: "the sample standard deviation (ddof 1, as torch.std); exactly 0 for equal values and for one alone",
    example: "batch.length.std(\"group\")",
    shows: &[1.0, std::f64::consts::FRAC_1_SQRT_2],
    kernel: Kernel::Reduce(Reduction::Std),
    derivative: Derivative::Of(|vjp| deviation_grads(vjp, 1.0)),
    ..ROW
};

pub(super) static POPULATION_STD: Op = Op {
    name: "population_std",
    doc: "the population standard deviation (ddof 0); exactly 0 for equal values",
    example: "batch.length.population_std(\"group\")",
    shows: &[0.816496580927726, 0.5],
    kernel: Kernel::Reduce(Reduction::PopulationStd),
    derivative: Derivative::Of(|vjp| deviation_grads(vjp, 0.0)),
    ..ROW
};

pub(super) static COUNT: Op = Op {
    name: "count",
    doc: "the number of values in each cell of a level (of those selected, where there is a selection)",
    example: "batch.reward.count(\"group\")",
    shows: &[3.0, 2.0],
    kernel: Kernel::Reduce(Reduction::Count),
    ..ROW
};

pub(super) static ANY: Op = Op {
    name: "any",
    doc: "1 where a value in the cell is not 0, else 0",
    example: "batch.correct.any(\"group\")",
    shows: &[1.0, 0.0],
    derivative: Derivative::Composed,
    build: |op, args| any(op, args, |x| not_equal(x, 0.0)),
    ..ROW
};

pub(super) static ALL: Op = Op {
    name: "all",
    doc: "1 where no value in the cell is 0, else 0",
    example: "batch.length.all(\"group\")",
    shows: &[1.0, 1.0],
    derivative: Derivative::Composed,
    // Of nothing, 1: there is none that is 0.
    build: |op, args| not(&any(op, args, |x| not(x))?).built(),
    ..ROW
};

pub(super) static MEDIAN: Op = Op {
    name: "median",
    doc: "the middle value in each cell of a level, the mean of the two middle ones where their number is even",
    example: "batch.length.median(\"group\")",
    shows: &[2.0, 1.5],
    kernel: Kernel::Reduce(Reduction::Median),
    derivative: Derivative::Of(median_grads),
    ..ROW
};

pub(super) static OTHERS_MEAN: Op = Op {
    name: "others_mean",
    doc: "for each value the mean of the others in its cell (leave-one-out); of one alone, itself",
    source: "RLOO, arXiv 2402.14740",
    example: "batch.reward.others_mean(\"group\")",
    shows: &[0.5, 1.0, 0.5, 0.0, 0.0],
    derivative: Derivative::Composed,
    build: |_, args| {
        let (x, to, selection) = split(args);
        let mean = reduce(&MEAN, &x, to, selection.as_ref());
        let others = reduce(&COUNT, &x, to, selection.as_ref()) - 1.0;
        // (n mean - x) / (n - 1), written so that it is exactly x where all are equal.
        let without = &mean + safe_div(&mean - &x, others);
        let result = match &selection {
            Some(selection) => select(selection, without, mean),
            None => without,
        };
        result.built()
    },
    ..ROW
};

static LAST: Op = Op {
    name: "last",
    doc: "the last value in each cell of a level: a response's last token, a trajectory's last turn, a group's last response; of nothing, 0",
    example: "batch.logp.last(\"response\")",
    shows: &[-0.5, -0.5, -1.0, -0.5, -0.5],
    derivative: Derivative::Composed,
    build: |op, args| {
        let (x, to, selection) = split(args);
        let level = selection
            .iter()
            .fold(x.level(), |level, by| level.join(by.level()));
        if !to.contains(level) {
            return Err(TensorError::not_coarser(op.name, level, to));
        }
        let x = x.expanded(level, &framed(op, &x)?)?;
        // Of the selected ones, the one after which no other is.
        let index = like(Prim::Index(to), &x)?;
        let last = equal(&index, reduce(&MAX, &index, to, selection.as_ref())).built()?;
        let last = match &selection {
            Some(selection) => select(selection, &last, 0.0).built()?,
            None => last,
        };
        named(op, &SUM, &x, to, Some(&last))
    },
    ..ROW
};

pub(super) static EXPAND: Op = Op {
    name: "expand",
    params: &[tensor("x"), level("level")],
    doc: "the same value in each cell of a finer level; operations do this by themselves",
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

fn split(args: &[Argument]) -> (Tensor, Level, Option<Tensor>) {
    let selection = (args.len() > 2).then(|| tensor_at(args, 2));
    (tensor_at(args, 0), level_at(args, 1), selection)
}

/// 1 where `test` holds of a value in the cell.
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

/// A reduction's node; the tensor and its selection are brought to the level where they meet.
pub(super) fn node(
    op: &'static Op,
    x: &Tensor,
    to: Level,
    selection: Option<&Tensor>,
) -> Result<Tensor, TensorError> {
    named(op, op, x, to, selection)
}

/// The node of a row under the name that the script has called.
fn named(
    op: &'static Op,
    row: &'static Op,
    x: &Tensor,
    to: Level,
    selection: Option<&Tensor>,
) -> Result<Tensor, TensorError> {
    let mut args = vec![x.clone()];
    args.extend(selection.cloned());
    let level = args
        .iter()
        .fold(Level::Batch, |join, arg| join.join(arg.level()));
    let frame = meet(op.name, &args, level)?;
    let Some(frame) = frame else {
        framed(op, x)?;
        unreachable!("`framed` refuses what has no frame");
    };
    if !to.contains(level) {
        return Err(TensorError::not_coarser(op.name, level, to));
    }
    if std::ptr::eq(row, &COUNT) && selection.is_none() {
        return Tensor::node(Prim::Count(level), Vec::new(), to, Some(frame));
    }
    for arg in &mut args {
        *arg = arg.expanded(level, &frame)?;
    }
    Tensor::node(Prim::Reduce(row), args, to, Some(frame))
}

/// The gradient of each value where that of its cell is `grad`: 0 where it is not selected.
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

/// Shared by all values that attain the extreme.
fn extreme_grads(vjp: &Vjp<'_>) -> Vec<Term> {
    let attains = equal(vjp.x(), vjp.result());
    let number = reduce(&SUM, &attains, vjp.result.level(), vjp.args.get(1));
    spread(vjp, attains * safe_div(vjp.grad(), number))
}

/// (x - mean) / ((n - ddof) std), and 0 where the std is 0, as torch has it.
fn deviation_grads(vjp: &Vjp<'_>, ddof: f64) -> Vec<Term> {
    let mean = reduce(&MEAN, vjp.x(), vjp.result.level(), vjp.args.get(1));
    let slope = safe_div(vjp.x() - mean, (count(vjp) - ddof) * vjp.result());
    spread(vjp, vjp.grad() * slope)
}

/// Half to each of the two middle values, or all to the one in the middle.
fn median_grads(vjp: &Vjp<'_>) -> Vec<Term> {
    // Values that are not selected rank behind all others, infinite ones included.
    let ranked = match vjp.args.get(1) {
        Some(selection) => select(selection, vjp.x(), f64::NAN),
        None => vjp.x(),
    };
    let rank = ranked.then(|ranked| like(Prim::Rank(vjp.result.level()), &ranked));
    let middle = (count(vjp) - 1.0) / 2.0;
    let low = equal(&rank, floor(&middle));
    let high = equal(rank, -floor(-middle));
    spread(vjp, vjp.grad() * (0.5 * (low + high)))
}
