//! The functions of elementwise rows, each written once: used on single numbers, and as loops that
//! are compiled for one function each, for executors.

use std::marker::PhantomData;

use crate::tensor::Precision;
use crate::tensor::exp::{exp, expm1, k3};

/// Operations with their functions, and a visitor that gets each function as a type of its own.
macro_rules! operations {
    ($(#[$doc:meta])* $name:ident, $visitor:ident, fn($($x:ident: $f64:ty),+), { $($op:ident => $f:expr,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum $name {
            $($op,)+
        }

        pub(crate) trait $visitor {
            type Output;
            /// The type that the values are rounded to.
            type Value: Precision;
            fn visit(self, f: impl Fn($($f64),+) -> f64 + Copy) -> Self::Output;
        }

        impl $name {
            /// Passes the operation's function to a visitor. Inlined, so that loops around it use the instructions that their
            /// caller was compiled for.
            #[inline(always)]
            pub(crate) fn visit<V: $visitor>(self, visitor: V) -> V::Output {
                match self {
                    $($name::$op => visitor.visit($f),)+
                }
            }

            #[inline(always)]
            pub(crate) fn of(self, $($x: f64),+) -> f64 {
                self.to::<f64>($($x),+)
            }

            /// Of values that are rounded to a precision, not rounded yet.
            #[inline(always)]
            pub(crate) fn to<T: Precision>(self, $($x: f64),+) -> f64 {
                struct Call<T>($($f64,)+ PhantomData<T>);
                impl<T: Precision> $visitor for Call<T> {
                    type Output = f64;
                    type Value = T;
                    #[inline(always)]
                    fn visit(self, f: impl Fn($($f64),+) -> f64 + Copy) -> f64 {
                        let Call($($x,)+ _) = self;
                        f($($x),+)
                    }
                }
                self.visit(Call::<T>($($x,)+ PhantomData))
            }
        }
    };
}

operations! {
    /// Functions of one value.
    Unary, VisitUnary, fn(x: f64), {
        Neg => #[inline(always)] |x| -x,
        Abs => #[inline(always)] |x| x.abs(),
        Sign => #[inline(always)] |x| if x == 0.0 { 0.0 } else { x.signum() },
        Exp => V::Value::exp,
        Ln => #[inline(always)] |x| x.ln(),
        Log1p => #[inline(always)] |x| x.ln_1p(),
        Expm1 => expm1,
        Sqrt => #[inline(always)] |x| x.sqrt(),
        Square => #[inline(always)] |x| x * x,
        Sigmoid => logistic,
        LogSigmoid => #[inline(always)] |x| x.min(0.0) - exp(-x.abs()).ln_1p(),
        Tanh => #[inline(always)] |x| x.tanh(),
        Floor => #[inline(always)] |x| x.floor(),
        Ceil => #[inline(always)] |x| x.ceil(),
        Round => #[inline(always)] |x| x.round_ties_even(),
        IsFinite => #[inline(always)] |x| truth(x.is_finite()),
        Not => #[inline(always)] |x| truth(x == 0.0),
        Detach => #[inline(always)] |x| x,
        K3 => k3,
        Narrow => #[inline(always)] |x| f64::from(x as f32),
    }
}

operations! {
    /// Functions of two values.
    Binary, VisitBinary, fn(a: f64, b: f64), {
        Add => #[inline(always)] |a, b| a + b,
        Sub => #[inline(always)] |a, b| a - b,
        Mul => #[inline(always)] |a, b| a * b,
        Div => #[inline(always)] |a, b| a / b,
        SafeDiv => #[inline(always)] |a, b| if b == 0.0 { 0.0 } else { a / b },
        Rem => #[inline(always)] |a, b| a % b,
        Pow => #[inline(always)] |a, b| a.powf(b),
        Min => smaller,
        Max => larger,
        Less => #[inline(always)] |a, b| truth(a < b),
        LessEqual => #[inline(always)] |a, b| truth(a <= b),
        Greater => #[inline(always)] |a, b| truth(a > b),
        GreaterEqual => #[inline(always)] |a, b| truth(a >= b),
        Equal => #[inline(always)] |a, b| truth(a == b),
        NotEqual => #[inline(always)] |a, b| truth(a != b),
        And => #[inline(always)] |a, b| truth(a != 0.0 && b != 0.0),
        Or => #[inline(always)] |a, b| truth(a != 0.0 || b != 0.0),
    }
}

operations! {
    /// Functions of three values.
    Ternary, VisitTernary, fn(a: f64, b: f64, c: f64), {
        Clamp => #[inline(always)] |x, low, high| smaller(larger(x, low), high),
        Where => #[inline(always)] |c, a, b| if c != 0.0 { a } else { b },
    }
}

#[inline(always)]
fn truth(test: bool) -> f64 {
    if test { 1.0 } else { 0.0 }
}

/// The smaller of two values; NaN if either is NaN, which `f64::min` would hide.
#[inline(always)]
fn smaller(a: f64, b: f64) -> f64 {
    let least = if b < a { b } else { a };
    if b.is_nan() { b } else { least }
}

/// The larger of two values; NaN if either is NaN.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    let most = if b > a { b } else { a };
    if b.is_nan() { b } else { most }
}

/// The logistic function. Both branches keep exp's argument at or below 0.
#[inline(always)]
fn logistic(x: f64) -> f64 {
    let e = exp(-x.abs());
    let top = if x >= 0.0 { 1.0 } else { e };
    top / (1.0 + e)
}
