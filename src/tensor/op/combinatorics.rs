//! Rows of the op table that count subsets. In tests, their relative error is below 1e-12 up to n = 100000.

use std::f64::consts::LN_10;

use super::param::{Argument, tensor, tensor_at};
use super::row::{self, Class, Derivative, Op};
use crate::batch::Level;
use crate::tensor::binomial;
use crate::tensor::error::TensorError;
use crate::tensor::graph::Tensor;
use crate::tensor::kernel::Kernel;

const ROW: Op = Op {
    class: Class::Combinatorics,
    params: &[tensor("n"), tensor("k")],
    derivative: Derivative::None("it counts subsets of whole numbers"),
    build,
    ..row::ROW
};

pub(super) const ROWS: &[&Op] = &[&BINOMIAL, &LN_BINOMIAL, &BINOMIAL_RATIO];

static BINOMIAL: Op = Op {
    name: "binomial",
    doc: "C(n, k), the number of ways to choose k of n; 0 if n < k or n < 0",
    example: "binomial(batch.length + 3, 2)",
    shows: &[10.0, 15.0, 6.0, 10.0, 6.0],
    kernel: Kernel::Fallible(|x| {
        let (n, k) = (whole("n", x[0])?, whole("k", x[1])?);
        Ok(binomial::binomial(n, counted("k", k)?))
    }),
    ..ROW
};

const LN_6: f64 = 1.791759469228055;
const LN_15: f64 = 2.70805020110221;

static LN_BINOMIAL: Op = Op {
    name: "ln_binomial",
    doc: "ln C(n, k), which does not overflow; -infinity if n < k or n < 0",
    example: "ln_binomial(batch.length + 3, 2)",
    shows: &[LN_10, LN_15, LN_6, LN_10, LN_6],
    kernel: Kernel::Fallible(|x| {
        let (n, k) = (whole("n", x[0])?, whole("k", x[1])?);
        binomial::ln_binomial(n, counted("k", k)?)
    }),
    ..ROW
};

static BINOMIAL_RATIO: Op = Op {
    name: "binomial_ratio",
    params: &[tensor("a"), tensor("b"), tensor("k")],
    doc: "C(a, k) / C(b, k): the probability that k items drawn from b without replacement all belong to a given subset of a items; 0 if a < k or a < 0",
    source: "the unbiased pass@k estimator, arXiv 2107.03374, eq. 1",
    example: "let n = batch.reward.count(\"group\"); binomial_ratio(n - batch.correct.sum(\"group\"), n, 2)",
    shows: &[0.0, 1.0],
    kernel: Kernel::Fallible(|x| {
        let (a, b, k) = (whole("a", x[0])?, whole("b", x[1])?, whole("k", x[2])?);
        let k = counted("k", k)?;
        if b < k {
            return Err(format!("k = {k} is more than the {b} to choose from"));
        }
        binomial::binomial_ratio(a, b, k)
    }),
    ..ROW
};

/// The limit beyond which f64 cannot represent every whole number.
const LARGEST: f64 = 9_007_199_254_740_992.0;

fn whole(name: &str, value: f64) -> Result<i64, String> {
    if value.abs() > LARGEST {
        return Err(format!(
            "{name} = {value:e} is beyond 2^53, where numbers are no longer exact"
        ));
    }
    if value.fract() != 0.0 || value.is_nan() {
        return Err(format!("{name} = {value} is not a whole number"));
    }
    Ok(value as i64)
}

fn counted(name: &str, value: i64) -> Result<i64, String> {
    if value < 0 {
        return Err(format!("{name} = {value} is negative"));
    }
    Ok(value)
}

fn build(op: &'static Op, args: &[Argument]) -> Result<Tensor, TensorError> {
    let tensors: Vec<Tensor> = (0..args.len()).map(|at| tensor_at(args, at)).collect();
    let levels = tensors.iter().map(Tensor::level);
    if levels.fold(Level::Batch, Level::join) == Level::Token {
        let message = "counts subsets of responses, and its result would be a token tensor: reduce token tensors first, as in `x.sum(\"response\")`, and position tensors, as in `x.sum(\"group\")`";
        return Err(TensorError::level(op.name, message));
    }
    Tensor::map(op, tensors)
}
