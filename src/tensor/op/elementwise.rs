//! Elementwise rows of the op table: arithmetic, functions, and choices between values. Rust operators and functions build nodes
//! of these rows, so that derivatives and composed rows can be written as formulas.

use std::f64::consts::{LN_2, SQRT_2};
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::logic;
use super::param::{Param, tensor};
use super::row::{Built, Derivative, Op, ROW, Term, Vjp};
use crate::tensor::graph::Tensor;
use crate::tensor::kernel::{Binary, Kernel, Ternary, Unary};

const X: &[Param] = &[tensor("x")];
const A_B: &[Param] = &[tensor("a"), tensor("b")];

/// The value of exp at -1. The next two constants are the sigmoid at -1 and its logarithm.
const EXP_1: f64 = 0.36787944117144233;
const SIGMOID_1: f64 = 0.2689414213699951;
const LOG_1: f64 = -1.3132616875182228;

rows! {
    ROWS, ROW;
    ADD = "+", A_B, "the sum";
        "batch.reward + 1" => [2.0, 1.0, 2.0, 1.0, 1.0]; Two(Binary::Add), |vjp| vec![vjp.grad(), vjp.grad()];
    SUB = "-", A_B, "the difference";
        "batch.reward - batch.reward.mean(\"batch\")" => [0.6, -0.4, 0.6, -0.4, -0.4];
        Two(Binary::Sub), |vjp| vec![vjp.grad(), -vjp.grad()];
    MUL = "*", A_B, "the product";
        "2 * batch.length" => [4.0, 6.0, 2.0, 4.0, 2.0];
        Two(Binary::Mul), |vjp| vec![vjp.grad() * vjp.arg(1), vjp.grad() * vjp.arg(0)];
    DIV = "/", A_B, "the quotient: 1 / 0 is infinite, 0 / 0 is NaN (IEEE); see `safe_div`";
        "batch.length / 2" => [1.0, 1.5, 0.5, 1.0, 0.5];
        Two(Binary::Div), |vjp| {
            let by_a = vjp.grad() / vjp.arg(1);
            let by_b = -(&by_a * vjp.arg(0) / vjp.arg(1));
            vec![by_a, by_b]
        };
    REM = "%", A_B, "the remainder, with the sign of the dividend (torch.fmod)";
        "batch.length % 2" => [0.0, 1.0, 1.0, 0.0, 1.0];
        Two(Binary::Rem), |vjp| {
            let quotient = vjp.arg(0) / vjp.arg(1);
            let whole = sign(&quotient) * floor(abs(quotient));
            vec![vjp.grad(), -(vjp.grad() * whole)]
        };
    POW = "**", A_B, "the power; a minus before the base needs brackets: `(-x) ** 2` or `-(x ** 2)`";
        "batch.length ** 2" => [4.0, 9.0, 1.0, 4.0, 1.0];
        Two(Binary::Pow), |vjp| {
            let (a, b) = (&vjp.arg(0), &vjp.arg(1));
            // a^0 is 1 for any a, so its derivative with respect to a is 0, even at a = 0, where a^-1 is infinite.
            let slope = b * pow(a, b - 1.0);
            let by_a = vjp.grad() * select(b, slope, 0.0);
            // The derivative of a^b with respect to b is set to 0 at a = 0, where ln a is infinite, and for negative a, for which
            // a^b is defined only for whole b.
            let log = select(less(0.0, a), ln(a), 0.0);
            let by_b = vjp.grad() * vjp.result() * log;
            vec![by_a, by_b]
        };
    NEG_SIGN = "-", X, "the negative";
        "-batch.reward" => [-1.0, 0.0, -1.0, 0.0, 0.0]; One(Unary::Neg), |vjp| vec![-vjp.grad()];
    NEG = "neg", X, "the negative";
        "neg(batch.reward)" => [-1.0, 0.0, -1.0, 0.0, 0.0]; One(Unary::Neg), |vjp| vec![-vjp.grad()];
    ABS = "abs", X, "the absolute value";
        "abs(batch.reward - 0.4)" => [0.6, 0.4, 0.6, 0.4, 0.4];
        One(Unary::Abs), |vjp| vec![vjp.grad() * sign(vjp.x())];
    SIGN = "sign", X, "the sign: -1, 0 or 1";
        "sign(batch.reward - 0.4)" => [1.0, -1.0, 1.0, -1.0, -1.0]; One(Unary::Sign);
    EXP = "exp", X, "e to the power of x";
        "exp(batch.reward - 1)" => [1.0, EXP_1, 1.0, EXP_1, EXP_1];
        One(Unary::Exp), |vjp| vec![vjp.grad() * vjp.result()];
    LN = "ln", X, "the natural logarithm";
        "ln(batch.length)" => [LN_2, 1.0986122886681098, 0.0, LN_2, 0.0];
        One(Unary::Ln), |vjp| vec![vjp.grad() / vjp.x()];
    LOG1P = "log1p", X, "ln(1 + x), accurate even for small x";
        "log1p(batch.reward)" => [LN_2, 0.0, LN_2, 0.0, 0.0];
        One(Unary::Log1p), |vjp| vec![vjp.grad() / (1.0 + vjp.x())];
    EXPM1 = "expm1", X, "exp(x) - 1, accurate even for small x";
        "expm1(batch.reward)" => [1.718281828459045, 0.0, 1.718281828459045, 0.0, 0.0];
        One(Unary::Expm1), |vjp| vec![vjp.grad() * exp(vjp.x())];
    SQRT = "sqrt", X, "the square root";
        "sqrt(batch.length * 2)" => [2.0, 2.449489742783178, SQRT_2, 2.0, SQRT_2];
        One(Unary::Sqrt), |vjp| vec![vjp.grad() / (2.0 * vjp.result())];
    SQUARE = "square", X, "the product of x with itself";
        "square(batch.length)" => [4.0, 9.0, 1.0, 4.0, 1.0];
        One(Unary::Square), |vjp| vec![vjp.grad() * (2.0 * vjp.x())];
    SIGMOID = "sigmoid", X, "1 / (1 + exp(-x)), without overflow";
        "sigmoid(batch.reward - 1)" => [0.5, SIGMOID_1, 0.5, SIGMOID_1, SIGMOID_1];
        One(Unary::Sigmoid), |vjp| vec![vjp.grad() * (vjp.result() * sigmoid(-vjp.x()))];
    LOG_SIGMOID = "log_sigmoid", X, "ln(sigmoid(x)), without overflow";
        "log_sigmoid(batch.reward - 1)" => [-LN_2, LOG_1, -LN_2, LOG_1, LOG_1];
        One(Unary::LogSigmoid), |vjp| vec![vjp.grad() * sigmoid(-vjp.x())];
    TANH = "tanh", X, "the hyperbolic tangent";
        "tanh(batch.reward)" => [0.7615941559557649, 0.0, 0.7615941559557649, 0.0, 0.0];
        One(Unary::Tanh), |vjp| vec![vjp.grad() * (1.0 - square(vjp.result()))];
    COS = "cos", X, "the cosine";
        "cos(batch.reward)" => [0.5403023058681398, 1.0, 0.5403023058681398, 1.0, 1.0];
        One(Unary::Cos), |vjp| vec![-(vjp.grad() * sin(vjp.x()))];
    SIN = "sin", X, "the sine";
        "sin(batch.reward)" => [0.8414709848078965, 0.0, 0.8414709848078965, 0.0, 0.0];
        One(Unary::Sin), |vjp| vec![vjp.grad() * cos(vjp.x())];
    FLOOR = "floor", X, "the largest whole number that is at most x";
        "floor(batch.length / 2)" => [1.0, 1.0, 0.0, 1.0, 0.0]; One(Unary::Floor);
    CEIL = "ceil", X, "the smallest whole number that is at least x";
        "ceil(batch.length / 2)" => [1.0, 2.0, 1.0, 1.0, 1.0]; One(Unary::Ceil);
    ROUND = "round", X, "the nearest whole number; halves are rounded to even (torch.round)";
        "round(batch.length / 2)" => [1.0, 2.0, 0.0, 1.0, 0.0]; One(Unary::Round);
    CLAMP = "clamp", &[tensor("x"), tensor("low"), tensor("high")],
        "x, limited to low ... high; NaN if any of the three is NaN";
        "batch.length.clamp(1.5, 2.5)" => [2.0, 2.5, 1.5, 2.0, 1.5]; Three(Ternary::Clamp), clamp_grads;
    MIN = "min", A_B, "the smaller of two values; NaN if either is NaN";
        "min(batch.length, 2)" => [2.0, 2.0, 1.0, 2.0, 1.0];
        Two(Binary::Min), |vjp| pick_grads(vjp, vjp.arg(0), vjp.arg(1));
    MAX = "max", A_B, "the larger of two values; NaN if either is NaN";
        "max(batch.length, 2)" => [2.0, 3.0, 2.0, 2.0, 2.0];
        Two(Binary::Max), |vjp| pick_grads(vjp, vjp.arg(1), vjp.arg(0));
    WHERE = "where", &[tensor("c"), tensor("a"), tensor("b")],
        "`a` if `c` is not 0, else `b`; the other value has no influence, even if it is NaN";
        "where(batch.correct, batch.length, 0)" => [2.0, 0.0, 1.0, 0.0, 0.0];
        Three(Ternary::Where), |vjp| {
            let by_a = select(vjp.arg(0), vjp.grad(), 0.0);
            let by_b = select(vjp.arg(0), 0.0, vjp.grad());
            vec![0.0.into(), by_a, by_b]
        };
    IS_FINITE = "is_finite", X, "1 if x is neither NaN nor infinite, else 0";
        "is_finite(batch.reward / batch.reward)" => [1.0, 0.0, 1.0, 0.0, 0.0]; One(Unary::IsFinite);
    SAFE_DIV = "safe_div", A_B, "a / b, or 0 if b is 0";
        "safe_div(batch.length, batch.reward)" => [2.0, 0.0, 1.0, 0.0, 0.0];
        Two(Binary::SafeDiv), |vjp| {
            let by_a = safe_div(vjp.grad(), vjp.arg(1));
            let by_b = -safe_div(&by_a * vjp.arg(0), vjp.arg(1));
            vec![by_a, by_b]
        };
    DETACH = "detach", X, "the same values; no gradient passes through them";
        "detach(batch.reward)" => [1.0, 0.0, 1.0, 0.0, 0.0]; One(Unary::Detach);
}

/// Rounds a sum of f32 tokens to the nearest f32. Scripts cannot call this operation.
static NARROW: Op = Op {
    name: "sum",
    kernel: Kernel::One(Unary::Narrow),
    derivative: Derivative::Of(|vjp| vec![vjp.grad()]),
    ..ROW
};

/// Passes the gradient to the first argument if `low` is less than `high`, and to the second argument if `low` is greater. At a
/// tie, each argument gets half of the gradient, as in torch.
fn pick_grads(vjp: &Vjp<'_>, low: Term, high: Term) -> Vec<Term> {
    let half = 0.5 * equal(&low, &high);
    let by_a = vjp.grad() * (less(low, high) + half);
    let by_b = vjp.grad() - &by_a;
    vec![by_a, by_b]
}

fn clamp_grads(vjp: &Vjp<'_>) -> Vec<Term> {
    let (x, low, high) = (vjp.arg(0), vjp.arg(1), vjp.arg(2));
    let (below, above) = (less(&x, &low), less(&high, &x));
    let inside = select(&below + above, 0.0, vjp.grad());
    // If `low` is above `high`, the result is `high`, as in the kernel.
    let crossed = less(high, max(x, low));
    let by_low = select(below, select(&crossed, 0.0, vjp.grad()), 0.0);
    vec![inside, by_low, select(crossed, vjp.grad(), 0.0)]
}

macro_rules! operators {
    ($($operator:ident::$method:ident = $row:expr;)+) => {$(
        impl<B: Into<Term>> $operator<B> for Term {
            type Output = Term;
            fn $method(self, b: B) -> Term {
                Term::map(&$row, [self, b.into()])
            }
        }

        impl<B: Into<Term>> $operator<B> for &Term {
            type Output = Term;
            fn $method(self, b: B) -> Term {
                Term::map(&$row, [self.clone(), b.into()])
            }
        }

        impl $operator<Term> for f64 {
            type Output = Term;
            fn $method(self, b: Term) -> Term {
                Term::map(&$row, [self.into(), b])
            }
        }
    )+};
}

operators! {
    Add::add = ADD;
    Sub::sub = SUB;
    Mul::mul = MUL;
    Div::div = DIV;
}

impl Neg for Term {
    type Output = Term;
    fn neg(self) -> Term {
        Term::map(&NEG, [self])
    }
}

macro_rules! functions {
    ($($name:ident($($arg:ident),+) = $row:expr;)+) => {$(
        pub(super) fn $name($($arg: impl Into<Term>),+) -> Term {
            Term::map(&$row, [$($arg.into()),+])
        }
    )+};
}

functions! {
    safe_div(a, b) = SAFE_DIV;
    pow(a, b) = POW;
    max(a, b) = MAX;
    less(a, b) = logic::LESS;
    equal(a, b) = logic::EQUAL;
    not_equal(a, b) = logic::NOT_EQUAL;
    not(x) = logic::NOT;
    square(x) = SQUARE;
    ln(x) = LN;
    exp(x) = EXP;
    abs(x) = ABS;
    sign(x) = SIGN;
    floor(x) = FLOOR;
    sigmoid(x) = SIGMOID;
    cos(x) = COS;
    sin(x) = SIN;
    log_sigmoid(x) = LOG_SIGMOID;
    // This is `where(c, a, b)`; Rust reserves the word `where`.
    select(c, a, b) = WHERE;
    clamp(x, low, high) = CLAMP;
    is_finite(x) = IS_FINITE;
    detach(x) = DETACH;
    narrow(x) = NARROW;
}

pub(crate) fn add(a: &Tensor, b: &Tensor) -> Built {
    (Term::from(a) + b).built()
}

#[cfg(test)]
pub(crate) fn sub(a: &Tensor, b: &Tensor) -> Built {
    (Term::from(a) - b).built()
}

pub(crate) fn mul(a: &Tensor, b: &Tensor) -> Built {
    (Term::from(a) * b).built()
}

/// Returns 1 for each value of `a` that is greater than the corresponding value of `b`, and 0 for all other values.
pub(crate) fn greater(a: &Tensor, b: &Tensor) -> Built {
    Tensor::map(&logic::GREATER, vec![a.clone(), b.clone()])
}
