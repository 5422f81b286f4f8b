//! Elementwise rows on tiles: loops that the compiler makes vector code of.
//!
//! The functions are those of the op table, in f64, but for exp, which has one for each precision. Where all that goes in is
//! f32, the compiler computes `+ - * /`, roots and comparisons in f32 itself: the bits are the same, since an f64 has more than
//! twice an f32's digits. A number that is no f32 keeps the loop in f64.

use multiversion::multiversion;

use crate::tensor::exec::{Precision, in_strides};
use crate::tensor::op::{Binary, Ternary, Unary, VisitBinary, VisitTernary, VisitUnary};

/// An argument of a tile: its values, or one number for all of them.
#[derive(Clone, Copy)]
pub(super) enum Source<'a, T> {
    Values(&'a [T]),
    Number(f64),
}

/// What a loop reads at an index.
pub(in crate::tensor::exec) trait At: Copy {
    fn at(self, index: usize) -> f64;
}

impl<T: Precision> At for &[T] {
    #[inline(always)]
    fn at(self, index: usize) -> f64 {
        self[index].widen()
    }
}

impl At for f64 {
    #[inline(always)]
    fn at(self, _: usize) -> f64 {
        self
    }
}

/// A number in the precision of the tokens.
#[derive(Clone, Copy)]
struct Narrow<T>(T);

impl<T: Precision> At for Narrow<T> {
    #[inline(always)]
    fn at(self, _: usize) -> f64 {
        self.0.widen()
    }
}

/// Evaluates `$body` with a source as the narrowest thing that it is, cut to `$len` values.
macro_rules! with_source {
    ($source:expr, $len:expr, $name:ident => $body:expr) => {
        match $source {
            Source::Values(values) => {
                let $name = &values[..$len];
                $body
            }
            Source::Number(number) => {
                let narrow = T::narrow(number);
                if narrow.widen() == number {
                    let $name = Narrow(narrow);
                    $body
                } else {
                    let $name = number;
                    $body
                }
            }
        }
    };
}

/// Results, and what each is computed of.
pub(in crate::tensor::exec) struct Loop<'a, T, A>(
    pub(in crate::tensor::exec) &'a mut [T],
    pub(in crate::tensor::exec) A,
);

impl<T: Precision, A: At> VisitUnary for Loop<'_, T, (A,)> {
    type Output = ();
    type Value = T;
    #[inline(always)]
    fn visit(self, f: impl Fn(f64) -> f64 + Copy) {
        let Loop(out, (a,)) = self;
        for (i, out) in out.iter_mut().enumerate() {
            *out = T::narrow(f(a.at(i)));
        }
    }
}

impl<T: Precision, A: At, B: At> VisitBinary for Loop<'_, T, (A, B)> {
    type Output = ();
    type Value = T;
    #[inline(always)]
    fn visit(self, f: impl Fn(f64, f64) -> f64 + Copy) {
        let Loop(out, (a, b)) = self;
        for (i, out) in out.iter_mut().enumerate() {
            *out = T::narrow(f(a.at(i), b.at(i)));
        }
    }
}

impl<T: Precision, A: At, B: At, C: At> VisitTernary for Loop<'_, T, (A, B, C)> {
    type Output = ();
    type Value = T;
    #[inline(always)]
    fn visit(self, f: impl Fn(f64, f64, f64) -> f64 + Copy) {
        let Loop(out, (a, b, c)) = self;
        for (i, out) in out.iter_mut().enumerate() {
            *out = T::narrow(f(a.at(i), b.at(i), c.at(i)));
        }
    }
}

pub(super) fn unary<T: Precision>(op: Unary, a: &[T], out: &mut [T]) {
    in_strides(out.len(), |own, _| {
        unary_loop(op, &a[own.clone()], &mut out[own]);
    });
}

impl<T: Precision> Source<'_, T> {
    /// A number that is compared with tokens and taken as it is may be rounded as these before: the outcome is the same,
    /// unless it becomes a 0, whose sign then counts.
    fn rounded(self) -> Self {
        match self {
            Source::Number(number) if T::narrow(number).widen() != 0.0 => {
                Source::Number(T::narrow(number).widen())
            }
            other => other,
        }
    }

    /// A number that tokens are only compared with may become a neighbouring token's value: below or not below the one is
    /// below or not below the other.
    fn at_least(self) -> Self {
        match self {
            Source::Number(number) => Source::Number(T::at_least(number).widen()),
            other => other,
        }
    }

    fn at_most(self) -> Self {
        match self {
            Source::Number(number) => Source::Number(-T::at_least(-number).widen()),
            other => other,
        }
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn unary_loop<T: Precision>(op: Unary, a: &[T], out: &mut [T]) {
    let a = &a[..out.len()];
    op.visit(Loop(out, (a,)));
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn binary<T: Precision>(op: Binary, a: Source<T>, b: Source<T>, out: &mut [T]) {
    let len = out.len();
    let (a, b) = match op {
        Binary::Min | Binary::Max => (a.rounded(), b.rounded()),
        Binary::Less | Binary::GreaterEqual => (a.at_most(), b.at_least()),
        Binary::LessEqual | Binary::Greater => (a.at_least(), b.at_most()),
        _ => (a, b),
    };
    with_source!(a, len, a => with_source!(b, len, b => op.visit(Loop(out, (a, b)))));
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn ternary<T: Precision>(op: Ternary, [a, b, c]: [Source<T>; 3], out: &mut [T]) {
    let len = out.len();
    with_source!(a, len, a => with_source!(b, len, b => with_source!(c, len, c => {
        op.visit(Loop(out, (a, b, c)))
    })));
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn is_finite<T: Precision>(values: &[T]) -> bool {
    let mut all = true;
    for value in values {
        all &= value.widen().is_finite();
    }
    all
}
