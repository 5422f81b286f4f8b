//! Rows for formulas of reinforcement learning: KL estimators, whitening, binary cross-entropy, and gradients.

use super::elementwise::{abs, less, log_sigmoid, max, select, square};
use super::param::{Argument, choice, level, level_at, tensor, tensor_at};
use super::reduction::{MEAN, POPULATION_STD, reduce};
use super::row::{self, Class, Derivative, Op, Term};
use crate::tensor::backprop::grad;
use crate::tensor::graph::Tensor;
use crate::tensor::kernel::{Kernel, Unary};

const ROW: Op = Op {
    class: Class::Field,
    derivative: Derivative::Composed,
    build: |_, args| grad(&tensor_at(args, 0), &tensor_at(args, 1)),
    ..row::ROW
};

pub(super) const ROWS: &[&Op] = &[&KL, &WHITEN, &BCE_WITH_LOGITS, &GRAD];

const KINDS: &[&str] = &["k1", "k2", "k3", "abs"];

static KL: Op = Op {
    name: "kl",
    params: &[tensor("logp"), tensor("ref"), choice("kind", KINDS)],
    doc: "an estimator of KL(policy || reference) at each token: with d = logp - ref, k1 = d, k2 = d^2/2, k3 = exp(-d) - 1 + d, abs = |d|",
    source: "J. Schulman, Approximating KL divergence, 2020",
    example: "kl(batch.old_logp, batch.ref_logp, \"k1\").sum(\"response\")",
    shows: &[0.25, 0.0, -0.5, 0.0, 0.5],
    build: |_, args| {
        let d = Term::from(&tensor_at(args, 0)) - &tensor_at(args, 1);
        let estimate = match args[2] {
            Argument::Choice(0) => d,
            Argument::Choice(1) => square(d) / 2.0,
            Argument::Choice(2) => d.then(|d| Tensor::map(&K3, vec![d])),
            _ => abs(d),
        };
        estimate.built()
    },
    ..ROW
};

/// If d is at least this large, the derivative of k3, 1 - exp(-d), rounds to 1 in f64.
pub(crate) const FAR: f64 = 40.0;

/// Applies [`crate::tensor::exp::k3`] to a difference, for `kl`. The derivative 1 - exp(-d) is computed as d - k3, which needs no
/// second exp. Beyond [`FAR`], the derivative is set to 1, because d and k3 can round to the same number or be infinite.
static K3: Op = Op {
    name: "kl",
    kernel: Kernel::One(Unary::K3),
    derivative: Derivative::Of(|vjp| {
        let slope = select(less(FAR, vjp.x()), 1.0, vjp.x() - vjp.result());
        vec![vjp.grad() * slope]
    }),
    ..ROW
};

/// The minimum variance in whitening, which divides by the square root of the variance.
const VARIANCE_FLOOR: f64 = 1e-8;

/// The whitened rewards of a correct and an incorrect response if two of five responses are correct.
const RIGHT: f64 = 1.2247448713915892;
const WRONG: f64 = -0.8164965809277261;

static WHITEN: Op = Op {
    name: "whiten",
    params: &[tensor("x"), level("level")],
    doc: "(x - mean) / sqrt(max(var, 1e-8)) in each cell of a level, with ddof 0; 0 for a single value",
    source: "REINFORCE++, arXiv 2501.03262",
    example: "batch.reward.whiten(\"batch\")",
    shows: &[RIGHT, WRONG, RIGHT, WRONG, WRONG],
    build: |_, args| {
        let (x, to) = (tensor_at(args, 0), level_at(args, 1));
        let std = reduce(&POPULATION_STD, &x, to, None);
        let centred = Term::from(&x) - reduce(&MEAN, &x, to, None);
        (centred / max(std, VARIANCE_FLOOR.sqrt())).built()
    },
    ..ROW
};

static BCE_WITH_LOGITS: Op = Op {
    name: "bce_with_logits",
    params: &[tensor("logit"), tensor("label")],
    doc: "-label ln sigmoid(logit) - (1 - label) ln sigmoid(-logit), without overflow",
    source: "torch.nn.BCEWithLogitsLoss",
    example: "bce_with_logits(0 * batch.reward, batch.correct).mean(\"batch\")",
    shows: &[std::f64::consts::LN_2],
    build: |_, args| {
        let (logit, label) = (tensor_at(args, 0), Term::from(&tensor_at(args, 1)));
        let right = &label * log_sigmoid(&logit);
        let wrong = (1.0 - label) * log_sigmoid(-Term::from(&logit));
        (-(right + wrong)).built()
    },
    ..ROW
};

static GRAD: Op = Op {
    name: "grad",
    params: &[tensor("loss"), tensor("x")],
    doc: "the derivative of loss, a batch tensor, with respect to each value of x, at x's level; 0 if loss does not depend on x",
    example: "let r = batch.reward; grad((r * r).sum(\"batch\"), r)",
    shows: &[2.0, 0.0, 2.0, 0.0, 0.0],
    ..ROW
};
