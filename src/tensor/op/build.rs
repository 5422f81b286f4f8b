//! Rows as operators and functions, for derivatives and composed rows to be written like formulas.

use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::Arc;

use super::scan::AT_LAST_TOKEN;
use super::{Argument, Op, elementwise, logic, reduction};
use crate::tensor::error::TensorError;
use crate::tensor::graph::{Prim, Tensor};
use crate::tensor::{Frame, Level};

type Built = Result<Tensor, TensorError>;

/// A tensor under construction, or the error: derivatives and composed rows use these like numbers, and
/// the first error is returned at the end.
#[derive(Clone)]
pub(crate) struct Term(Built);

impl Term {
    pub(crate) fn built(self) -> Built {
        self.0
    }

    /// Applies a construction that can fail to the tensor.
    pub(super) fn then(self, make: impl FnOnce(Tensor) -> Built) -> Term {
        Term(self.0.and_then(make))
    }

    fn map<const N: usize>(op: &'static Op, args: [Term; N]) -> Term {
        let args: Result<Vec<Tensor>, TensorError> = args.into_iter().map(Term::built).collect();
        Term(args.and_then(|args| Tensor::map(op, args)))
    }
}

impl From<&Tensor> for Term {
    fn from(tensor: &Tensor) -> Term {
        Term(Ok(tensor.clone()))
    }
}

impl From<&Term> for Term {
    fn from(term: &Term) -> Term {
        term.clone()
    }
}

impl From<f64> for Term {
    fn from(number: f64) -> Term {
        Term(Ok(Tensor::number(number)))
    }
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
    Add::add = elementwise::ADD;
    Sub::sub = elementwise::SUB;
    Mul::mul = elementwise::MUL;
    Div::div = elementwise::DIV;
}

impl Neg for Term {
    type Output = Term;
    fn neg(self) -> Term {
        Term::map(&elementwise::NEG, [self])
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
    safe_div(a, b) = elementwise::SAFE_DIV;
    pow(a, b) = elementwise::POW;
    max(a, b) = elementwise::MAX;
    less(a, b) = logic::LESS;
    equal(a, b) = logic::EQUAL;
    not_equal(a, b) = logic::NOT_EQUAL;
    not(x) = logic::NOT;
    square(x) = elementwise::SQUARE;
    ln(x) = elementwise::LN;
    exp(x) = elementwise::EXP;
    abs(x) = elementwise::ABS;
    sign(x) = elementwise::SIGN;
    floor(x) = elementwise::FLOOR;
    sigmoid(x) = elementwise::SIGMOID;
    log_sigmoid(x) = elementwise::LOG_SIGMOID;
    // `where(c, a, b)`, which is no name for a Rust function.
    select(c, a, b) = elementwise::WHERE;
    clamp(x, low, high) = elementwise::CLAMP;
    is_finite(x) = elementwise::IS_FINITE;
    detach(x) = elementwise::DETACH;
    narrow(x) = elementwise::NARROW;
}

/// The sum of two tensors.
pub(crate) fn add(a: &Tensor, b: &Tensor) -> Built {
    (Term::from(a) + b).built()
}

/// The difference of two tensors.
#[cfg(test)]
pub(crate) fn sub(a: &Tensor, b: &Tensor) -> Built {
    (Term::from(a) - b).built()
}

/// The product of two tensors.
pub(crate) fn mul(a: &Tensor, b: &Tensor) -> Built {
    (Term::from(a) * b).built()
}

/// 1 if `a` is greater than `b`, else 0.
pub(crate) fn greater(a: &Tensor, b: &Tensor) -> Built {
    Tensor::map(&logic::GREATER, vec![a.clone(), b.clone()])
}

/// A reduction row to a level, over the values for which `selection` is not 0.
pub(super) fn reduce(
    op: &'static Op,
    x: impl Into<Term>,
    to: Level,
    selection: Option<&Tensor>,
) -> Term {
    x.into().then(|x| reduction::node(op, &x, to, selection))
}

/// The sum over all cells that broadcasting gave a coarser tensor's value to: the gradient's way back to it. `frame`
/// is the coarser tensor's, whose groups may differ from those of `x` (after `regroup`).
pub(crate) fn sum_to(x: &Tensor, level: Level, frame: &Arc<Frame>) -> Built {
    if x.level() == level {
        return Ok(x.clone());
    }
    let sum = Prim::Reduce(&reduction::SUM);
    Tensor::node(sum, vec![x.clone()], level, Some(frame.clone()))
}

pub(crate) fn sum(x: &Tensor, to: Level) -> Built {
    reduction::node(&reduction::SUM, x, to, None)
}

/// The sum of each response's tokens in their precision: 0.1 + 0.2 + 0.4 equals another response's 0.7 even if all are
/// f32, so the group of the two has no signal.
pub(crate) fn sum_of_tokens(x: &Tensor) -> Built {
    let sum = sum(x, Level::Response)?;
    if x.is_f64() {
        Ok(sum)
    } else {
        narrow(&sum).built()
    }
}

pub(crate) fn at_last_token(x: &Tensor) -> Built {
    AT_LAST_TOKEN.apply(&[Argument::Tensor(x.clone())])
}

/// A node of a primitive in the frame and at the level of its argument.
pub(super) fn like(prim: Prim, x: &Tensor) -> Built {
    Tensor::node(prim, vec![x.clone()], x.level(), x.frame().cloned())
}
