//! The value of an expression in double precision, complex on the way.

use num_complex::Complex64;
use num_traits::ToPrimitive;

use super::expr::{Expr, Function};
use super::work::spend;

/// Values of variables by their names.
pub(super) type Point<'a> = &'a dyn Fn(&str) -> f64;

/// The value at a point; `None` where it is undefined or beyond double precision.
pub(super) fn value(expr: &Expr, at: Point<'_>) -> Option<Complex64> {
    spend(0)?;
    let result = match expr {
        Expr::Number(value, _) => {
            let double = value.to_f64()?;
            // What is not 0 is none either, however small.
            if double == 0.0 && *value.numer() != 0.into() {
                return None;
            }
            double.into()
        }
        Expr::Pi => std::f64::consts::PI.into(),
        Expr::E => std::f64::consts::E.into(),
        Expr::I => Complex64::I,
        Expr::Infinity => return None,
        Expr::Variable(name) => at(name).into(),
        Expr::Sum(parts) => {
            let mut sum = Complex64::default();
            for part in parts {
                sum += value(part, at)?;
            }
            sum
        }
        Expr::Product(parts) => {
            let mut product = Complex64::from(1.0);
            for part in parts {
                product *= value(part, at)?;
            }
            product
        }
        Expr::Negative(part) => -value(part, at)?,
        Expr::Quotient(a, b) => {
            let b = value(b, at)?;
            if b.norm() == 0.0 {
                return None;
            }
            value(a, at)? / b
        }
        Expr::Power(base, exponent) => power(value(base, at)?, value(exponent, at)?)?,
        Expr::Call(function, parts) => {
            let values: Option<Vec<Complex64>> = parts.iter().map(|part| value(part, at)).collect();
            call(*function, &values?)?
        }
    };
    result.is_finite().then_some(result)
}

fn inverse(value: Complex64) -> Option<Complex64> {
    (value.norm() > 1e-12).then(|| value.inv())
}

type OfOne = fn(Complex64) -> Option<Complex64>;

/// The functions of one number by their names.
pub(super) const OF_ONE: [(&str, OfOne); 14] = [
    ("sin", |x| Some(x.sin())),
    ("cos", |x| Some(x.cos())),
    ("tan", |x| Some(x.sin() * inverse(x.cos())?)),
    ("cot", |x| Some(x.cos() * inverse(x.sin())?)),
    ("sec", |x| inverse(x.cos())),
    ("csc", |x| inverse(x.sin())),
    ("asin", |x| Some(x.asin())),
    ("acos", |x| Some(x.acos())),
    ("atan", |x| Some(x.atan())),
    ("sinh", |x| Some(x.sinh())),
    ("cosh", |x| Some(x.cosh())),
    ("tanh", |x| Some(x.tanh())),
    ("ln", |x| Some(x.ln())),
    ("exp", |x| Some(x.exp())),
];

fn power(base: Complex64, exponent: Complex64) -> Option<Complex64> {
    if base.norm() == 0.0 {
        return (exponent.re > 0.0).then_some(base);
    }
    let is_whole = exponent.im == 0.0 && exponent.re.fract() == 0.0 && exponent.re.abs() < 1e9;
    let result = match is_whole {
        true if base.im == 0.0 => base.re.powi(exponent.re as i32).into(),
        true => base.powi(exponent.re as i32),
        false if base.im == 0.0 && base.re > 0.0 && exponent.im == 0.0 => {
            base.re.powf(exponent.re).into()
        }
        false => base.powc(exponent),
    };
    (result.norm() > 0.0).then_some(result)
}

/// The real part, where that is all.
pub(super) fn real(value: Complex64) -> Option<f64> {
    (value.im.abs() <= 1e-12 * value.norm().max(1e-3)).then_some(value.re)
}

fn call(function: Function, values: &[Complex64]) -> Option<Complex64> {
    let first = *values.first()?;
    let reals = || {
        values
            .iter()
            .map(|value| real(*value))
            .collect::<Option<Vec<f64>>>()
    };
    let factorial = |step: f64| {
        let n = real(first).filter(|n| n.fract() == 0.0 && (0.0..=170.0).contains(n))?;
        let factors = std::iter::successors(Some(n), |k| Some(k - step)).take_while(|k| *k > 1.0);
        Some(Complex64::from(factors.product::<f64>()))
    };
    Some(match function {
        Function::OfOne(row) => OF_ONE[row].1(first)?,
        Function::Log => values.get(1)?.ln() * inverse(first.ln())?,
        Function::Root => return root(real(first)?, *values.get(1)?),
        Function::Abs => first.norm().into(),
        Function::Floor => (real(first)? + 1e-12).floor().into(),
        Function::Ceil => (real(first)? - 1e-12).ceil().into(),
        Function::Factorial => return factorial(1.0),
        Function::DoubleFactorial => return factorial(2.0),
        Function::Binomial => {
            let (n, k) = (real(first)?, real(*values.get(1)?)?);
            let is_count = k.fract() == 0.0 && (0.0..=1000.0).contains(&k);
            let count = is_count.then_some(k as u32)?;
            let factors = 0..count;
            factors
                .map(|i| (n - f64::from(i)) / (f64::from(i) + 1.0))
                .product::<f64>()
                .into()
        }
        Function::Max => reals()?.into_iter().reduce(f64::max)?.into(),
        Function::Min => reals()?.into_iter().reduce(f64::min)?.into(),
        // A function that nobody knows has some value: another one for each letter.
        Function::Named(letter) => {
            (first * f64::from(letter as u32 % 97 + 2) * 0.37).sin() + f64::from(letter as u32)
        }
        Function::Gcd | Function::Lcm => return None,
    })
}

/// Odd roots of negative numbers are real.
fn root(order: f64, value: Complex64) -> Option<Complex64> {
    if order == 0.0 {
        return None;
    }
    match real(value) {
        Some(negative) if negative < 0.0 && order % 2.0 == 1.0 => {
            Some((-(-negative).powf(1.0 / order)).into())
        }
        Some(positive) if positive >= 0.0 && order == 2.0 => Some(positive.sqrt().into()),
        _ if order == 2.0 => Some(value.sqrt()),
        _ => power(value, (1.0 / order).into()),
    }
}
