//! The number that an expression is: exactly where it is rational, else in double precision, complex on the way.

use num_bigint::BigInt;
use num_complex::Complex64;
use num_integer::Integer;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

use super::expr::{Expr, Rational, Symbol};
use super::work::{self, spend};

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

    /// In double precision; `None` beyond it. What is not 0 is none there either, however small.
    pub(super) fn near(&self) -> Option<Complex64> {
        match self {
            Exact(value) => {
                work::look((value.numer().bits() + value.denom().bits()) / 16)?;
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

/// The real part, where that is all.
fn real(value: Complex64) -> Option<f64> {
    (value.im.abs() <= 1e-12 * value.norm().max(1e-3)).then_some(value.re)
}

/// The number that an expression without variables is.
pub(super) fn constant(expr: &Expr) -> Option<Numeral> {
    value(expr, &|_| None)
}

/// The number that an expression is where its variables have values; `None` where it is none, or too large.
pub(super) fn value(expr: &Expr, at: &dyn Fn(&str) -> Option<Rational>) -> Option<Numeral> {
    work::look(210)?;
    let (name, parts) = match expr {
        Expr::Number(value, _) => return Some(Exact(value.clone())),
        Expr::Name(name) => {
            return Some(match &**name {
                "\\pi" => Near(std::f64::consts::PI.into()),
                "e" => Near(std::f64::consts::E.into()),
                "i" => Near(Complex64::I),
                name => Exact(at(name)?),
            });
        }
        Expr::Node(Symbol::Function(name), parts) => (*name, parts),
        _ => return None,
    };
    let parts: Option<Vec<Numeral>> = parts.iter().map(|part| value(part, at)).collect();
    let parts = parts?;
    let exact: Option<Vec<&Rational>> = parts.iter().map(Numeral::exact).collect();
    if let Some(value) = exact.and_then(|parts| exactly(name, &parts)) {
        return Some(Exact(value));
    }
    let near: Option<Vec<Complex64>> = parts.iter().map(Numeral::near).collect();
    let value = nearly(name, &near?)?;
    value.is_finite().then_some(Near(value))
}

/// The exact square, where this is rational or a product of square roots of rationals.
pub(super) fn square(expr: &Expr) -> Option<Rational> {
    let exact = |expr: &Expr| constant(expr)?.exact().cloned();
    let Expr::Node(Symbol::Function(name), parts) = expr else {
        return Some(Pow::pow(exact(expr)?, 2));
    };
    match *name {
        "-" => square(&parts[0]),
        "*" | "1/" => {
            let squares = parts.iter().map(square).collect::<Option<Vec<_>>>()?;
            exactly(name, &squares.iter().collect::<Vec<_>>())
        }
        "root" if parts[0] == Expr::integer(2) => exact(&parts[1]),
        "^" => power(&exact(&parts[0])?, &(exact(&parts[1])? * whole(2))),
        _ => Some(Pow::pow(exact(expr)?, 2)),
    }
}

fn whole(number: impl Into<BigInt>) -> Rational {
    Rational::from_integer(number.into())
}

/// A number times a power of ten; `None` where that is too large.
pub(super) fn shifted(number: BigInt, power: i32) -> Option<Rational> {
    spend(4 * u64::from(power.unsigned_abs()))?;
    let ten = BigInt::from(10).pow(power.unsigned_abs());
    match power < 0 {
        false => Some(whole(number * ten)),
        // Nothing to reduce: thousands of digits have their common divisors looked for only where there may be one.
        true if matches!((&number % 10u32).to_i32(), Some(1 | 3 | 7 | 9)) => {
            Some(Rational::new_raw(number, ten))
        }
        true => quotient(number, ten),
    }
}

/// The greatest common divisor: by one division to the size of the smaller, then by halving.
fn divisor(a: &BigInt, b: &BigInt) -> Option<BigInt> {
    let (less, more) = if a.bits() < b.bits() { (a, b) } else { (b, a) };
    if less.is_zero() {
        return Some(more.abs());
    }
    work::divide(less.bits(), more.bits())?;
    Some(less.gcd(&(more % less)))
}

/// The reduced quotient of a whole number and one above 0.
pub(super) fn quotient(above: BigInt, below: BigInt) -> Option<Rational> {
    spend(above.bits() + below.bits())?;
    if below.is_one() {
        return Some(whole(above));
    }
    let divisor = divisor(&above, &below)?;
    Some(Rational::new_raw(above / &divisor, below / divisor))
}

fn exactly(name: &str, parts: &[&Rational]) -> Option<Rational> {
    let first = *parts.first()?;
    let wholes = || {
        let parts = parts.iter();
        let wholes = parts.map(|part| part.is_integer().then(|| part.numer()));
        wholes.collect::<Option<Vec<&BigInt>>>()
    };
    let count = |index: usize| {
        let number = wholes()?.get(index)?.to_u32()?;
        work::look(u64::from(number).pow(2) / 24)?;
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
        ("root", [order, value]) if order.is_integer() => root(value, order.numer())?,
        ("abs", _) => first.abs(),
        ("floor", _) => first.floor(),
        ("ceil", _) => first.ceil(),
        ("!", _) => whole(product(1, count(0)?, 1)),
        ("!!", _) => whole(product(2 - count(0)? % 2, count(0)?, 2)),
        ("binom", _) => match (count(0)?, count(1)?) {
            (n, k) if k > n => Rational::zero(),
            (n, k) => whole(product(n - k + 1, n, 1) / product(1, k, 1)),
        },
        ("gcd", _) => {
            let mut numbers = wholes()?.into_iter();
            whole(numbers.try_fold(BigInt::zero(), |a, b| divisor(&a, b))?)
        }
        ("lcm", _) => {
            let mut numbers = wholes()?.into_iter();
            let lcm = |a: BigInt, b: &BigInt| Some((&a * b).abs() / divisor(&a, b)?.max(1.into()));
            whole(numbers.try_fold(BigInt::one(), lcm)?)
        }
        ("max", _) => (*parts.iter().max()?).clone(),
        ("min", _) => (*parts.iter().min()?).clone(),
        _ => return None,
    })
}

fn power(base: &Rational, exponent: &Rational) -> Option<Rational> {
    if !exponent.is_integer() {
        let root = root(base, exponent.denom()).filter(|_| !base.is_negative())?;
        return power(&root, &whole(exponent.numer().clone()));
    }
    let exponent = exponent.to_integer().to_i64()?;
    if base.is_zero() && exponent <= 0 {
        return None;
    }
    // Powers of 0, 1 and -1 depend on the parity alone.
    if base.is_zero() || base.abs().is_one() {
        return Some(Pow::pow(base, 2 - exponent.rem_euclid(2) as i32));
    }
    let bits = base.numer().bits() + base.denom().bits();
    let bits = bits.checked_mul(exponent.unsigned_abs())?;
    spend(bits)?;
    work::look(bits * bits / 20_000)?;
    Some(Pow::pow(base, exponent as i32))
}

/// The root where it is rational.
fn root(value: &Rational, order: &BigInt) -> Option<Rational> {
    let order = order.to_u32().filter(|order| (1..=64).contains(order))?;
    let of = |number: &BigInt| {
        work::divide(number.bits(), number.bits())?;
        let root = (order % 2 == 1 || !number.is_negative()).then(|| number.nth_root(order))?;
        (Pow::pow(&root, order) == *number).then_some(root)
    };
    Some(Rational::new_raw(of(value.numer())?, of(value.denom())?))
}

fn nearly(name: &str, parts: &[Complex64]) -> Option<Complex64> {
    let reals = |pick: fn(f64, f64) -> f64| {
        let reals: Option<Vec<f64>> = parts.iter().map(|part| real(*part)).collect();
        reals?.into_iter().reduce(pick)
    };
    let x = *parts.first()?;
    Some(match (name, parts) {
        ("+", _) => parts.iter().sum(),
        ("*", _) => parts.iter().product(),
        ("-", _) => -x,
        ("1/", _) => (x.norm() > 0.0).then(|| x.inv())?,
        ("^", [base, exponent]) => near_power(*base, *exponent)?,
        ("root", [order, x]) => near_root(real(*order)?, *x)?,
        ("sin", _) => x.sin(),
        ("cos", _) => x.cos(),
        ("tan", _) => x.sin() * inverse(x.cos())?,
        ("cot", _) => x.cos() * inverse(x.sin())?,
        ("sec", _) => inverse(x.cos())?,
        ("csc", _) => inverse(x.sin())?,
        ("asin", _) => x.asin(),
        ("acos", _) => x.acos(),
        ("atan", _) => x.atan(),
        ("sinh", _) => x.sinh(),
        ("cosh", _) => x.cosh(),
        ("tanh", _) => x.tanh(),
        ("ln", _) => x.ln(),
        ("log", [base, x]) => x.ln() * inverse(base.ln())?,
        ("exp", _) => x.exp(),
        ("abs", _) => x.norm().into(),
        // A hair below a whole number is that number.
        ("floor", _) => (real(x)? + 1e-12).floor().into(),
        ("ceil", _) => (real(x)? - 1e-12).ceil().into(),
        ("max", _) => reals(f64::max)?.into(),
        ("min", _) => reals(f64::min)?.into(),
        ("binom", [n, k]) => {
            let (n, k) = (real(*n)?, real(*k)?);
            let count = (k.fract() == 0.0 && (0.0..=1000.0).contains(&k)).then_some(k as u32)?;
            let factor = |i: u32| (n - f64::from(i)) / (f64::from(i) + 1.0);
            (0..count).map(factor).product::<f64>().into()
        }
        // A function that nobody knows has some value: another one for each letter.
        ("f", _) => (x * 1.87).sin() + 2.0,
        ("g", _) => (x * 2.24).sin() + 3.0,
        ("h", _) => (x * 2.61).sin() + 5.0,
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

fn inverse(value: Complex64) -> Option<Complex64> {
    (value.norm() > 1e-12).then(|| value.inv())
}

/// Odd roots of negative numbers are real.
fn near_root(order: f64, value: Complex64) -> Option<Complex64> {
    match real(value) {
        _ if order == 0.0 => None,
        Some(negative) if negative < 0.0 && order % 2.0 == 1.0 => {
            Some((-(-negative).powf(1.0 / order)).into())
        }
        _ => near_power(value, (1.0 / order).into()),
    }
}
