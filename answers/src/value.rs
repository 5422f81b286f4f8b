//! Computes the value of an expression: exactly if it is rational, else in double precision, with complex intermediate values.

use num_bigint::BigInt;
use num_complex::Complex64;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

use super::expr::{Expr, Function, Name, Number};
use super::number::{Rational, look, quotient, spend, whole};

#[derive(Clone, Debug)]
pub(super) enum Numeral {
    Exact(Rational),
    Near(Complex64),
}

use Numeral::{Exact, Near};

impl Numeral {
    pub(super) fn exact(&self) -> Option<&Rational> {
        match self {
            Exact(value) => Some(value),
            Near(_) => None,
        }
    }

    /// Returns the value in double precision; `None` if it is outside the range: too large, or so small that it would become 0.
    pub(super) fn near(&self) -> Option<Complex64> {
        match self {
            Exact(value) => {
                look((value.numer().bits() + value.denom().bits()) / 16)?;
                let double = value.to_f64().filter(|double| double.is_finite())?;
                (double != 0.0 || value.is_zero()).then(|| double.into())
            }
            Near(value) => Some(*value),
        }
    }

    pub(super) fn real(&self) -> Option<f64> {
        real(self.near()?)
    }
}

/// Returns the real part, if the imaginary part is 0 up to rounding errors.
fn real(value: Complex64) -> Option<f64> {
    (value.im.abs() <= 1e-12 * value.norm().max(1e-3)).then_some(value.re)
}

/// Returns the value of an expression without variables.
pub(super) fn constant(expr: &Expr) -> Option<Numeral> {
    value(expr, &|_| None)
}

/// Returns the value of an expression at given values of its variables; `None` if the expression has no value there, or a value
/// that is too large.
pub(super) fn value(expr: &Expr, at: &dyn Fn(&str) -> Option<Rational>) -> Option<Numeral> {
    look(210)?;
    Some(match &expr.symbol {
        Number(value, _) => Exact(Rational::clone(value)),
        Name(name) => match &**name {
            "\\pi" => Near(std::f64::consts::PI.into()),
            "e" => Near(std::f64::consts::E.into()),
            "i" => Near(Complex64::I),
            name => Exact(at(name)?),
        },
        Function(name) => {
            let parts = expr.parts.iter().map(|part| value(part, at));
            let parts = parts.collect::<Option<Vec<Numeral>>>()?;
            let exact: Option<Vec<&Rational>> = parts.iter().map(Numeral::exact).collect();
            if let Some(value) = exact.and_then(|parts| exactly(name, &parts)) {
                return Some(Exact(value));
            }
            let near: Option<Vec<Complex64>> = parts.iter().map(Numeral::near).collect();
            Near(nearly(name, &near?).filter(|value| value.is_finite())?)
        }
        _ => return None,
    })
}

/// Returns the exact square of a product or quotient of rational numbers and their square roots; `None` if the square is not
/// known to be rational.
pub(super) fn square(expr: &Expr) -> Option<Rational> {
    let exact = |expr: &Expr| constant(expr)?.exact().cloned();
    let parts = &expr.parts;
    match expr.symbol {
        Function("-") => square(&parts[0]),
        Function(name @ ("*" | "1/")) => {
            let squares = parts.iter().map(square).collect::<Option<Vec<_>>>()?;
            exactly(name, &squares.iter().collect::<Vec<_>>())
        }
        Function("root") if parts[0] == Expr::integer(2) => exact(&parts[1]),
        Function("^") => power(&exact(&parts[0])?, &(exact(&parts[1])? * whole(2))),
        _ => Some(Pow::pow(exact(expr)?, 2)),
    }
}

fn exactly(name: &str, parts: &[&Rational]) -> Option<Rational> {
    let first = *parts.first()?;
    let count = |index: usize| {
        let number = parts.get(index).filter(|number| number.is_integer())?;
        let number = number.numer().to_u32()?;
        look(u64::from(number).pow(2) / 24)?;
        Some(number)
    };
    let product = |from: u32, to: u32, step: usize| {
        let factors = (from..=to).step_by(step).map(BigInt::from);
        factors.product::<BigInt>()
    };
    Some(match (name, parts) {
        ("+", _) => parts.iter().try_fold(Rational::zero(), |a, b| {
            let above = a.numer() * b.denom() + b.numer() * a.denom();
            quotient(above, a.denom() * b.denom())
        })?,
        ("*", _) => parts.iter().try_fold(Rational::one(), |a, b| {
            quotient(a.numer() * b.numer(), a.denom() * b.denom())
        })?,
        ("-", _) => -first,
        ("1/", _) => (!first.is_zero()).then(|| first.recip())?,
        ("^", [base, exponent]) => power(base, exponent)?,
        ("abs", _) => first.abs(),
        ("floor", _) => first.floor(),
        ("ceil", _) => first.ceil(),
        ("!", _) => whole(product(1, count(0)?, 1)),
        ("!!", _) => whole(product(2 - count(0)? % 2, count(0)?, 2)),
        ("binom", _) => match (count(0)?, count(1)?) {
            (n, k) if k > n => Rational::zero(),
            (n, k) => whole(product(n - k + 1, n, 1) / product(1, k, 1)),
        },
        _ => return None,
    })
}

fn power(base: &Rational, exponent: &Rational) -> Option<Rational> {
    let exponent = exponent.is_integer().then(|| exponent.numer().to_i32())??;
    if base.is_zero() && exponent <= 0 {
        return None;
    }
    let bits = base.numer().bits() + base.denom().bits();
    let bits = bits.checked_mul(u64::from(exponent.unsigned_abs()))?;
    spend(bits)?;
    look(bits * bits / 20_000)?;
    Some(Pow::pow(base, exponent))
}

fn nearly(name: &str, parts: &[Complex64]) -> Option<Complex64> {
    let x = *parts.first()?;
    Some(match (name, parts) {
        ("+", _) => parts.iter().sum(),
        ("*", _) => parts.iter().product(),
        ("-", _) => -x,
        ("1/", _) => inverse(x)?,
        ("^", [base, exponent]) => near_power(*base, *exponent)?,
        // Odd roots of negative numbers are real.
        ("root", [order, x]) if x.re < 0.0 && real(*x).is_some() && order.re % 2.0 == 1.0 => {
            -near_power(-x, inverse(*order)?)?
        }
        ("root", [order, x]) => near_power(*x, inverse(*order)?)?,
        ("sin", _) => x.sin(),
        ("cos", _) => x.cos(),
        ("tan", _) => x.sin() * inverse(x.cos())?,
        ("cot", _) => x.cos() * inverse(x.sin())?,
        ("sec", _) => inverse(x.cos())?,
        ("csc", _) => inverse(x.sin())?,
        ("asin", _) => x.asin(),
        ("acos", _) => x.acos(),
        ("atan", _) => x.atan(),
        ("ln", _) => x.ln(),
        ("log", [base, x]) => x.ln() * inverse(base.ln())?,
        ("exp", _) => x.exp(),
        ("abs", _) => x.norm().into(),
        // Rounding errors may put a value just below or just above the whole number that it should be.
        ("floor", _) => (real(x)? + 1e-12).floor().into(),
        ("ceil", _) => (real(x)? - 1e-12).ceil().into(),
        _ => return None,
    })
}

fn near_power(base: Complex64, exponent: Complex64) -> Option<Complex64> {
    if base.norm() == 0.0 {
        return (exponent.re > 0.0).then_some(base);
    }
    let is_whole = exponent.im == 0.0 && exponent.re.fract() == 0.0 && exponent.re.abs() < 1e9;
    let result = match base.im == 0.0 && exponent.im == 0.0 {
        true if base.re > 0.0 || is_whole => base.re.powf(exponent.re).into(),
        _ if is_whole => base.powi(exponent.re as i32),
        _ => base.powc(exponent),
    };
    (result.norm() > 0.0).then_some(result)
}

/// Returns the reciprocal; `None` near a pole.
fn inverse(value: Complex64) -> Option<Complex64> {
    (value.norm() > 1e-12).then(|| value.inv())
}
