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

/// The exact number that an expression is; as it was where it is none.
pub(super) fn folded(expr: Expr) -> Expr {
    match constant(&expr) {
        Some(Exact(value)) => Expr::Number(value, None),
        _ => expr,
    }
}

/// The number that an expression is where its variables have values; `None` where it is none, or too large.
pub(super) fn value(expr: &Expr, at: &dyn Fn(&str) -> Option<Numeral>) -> Option<Numeral> {
    work::look(150)?;
    let (symbol, parts) = match expr {
        Expr::Number(value, _) => return Some(Exact(value.clone())),
        Expr::Name(name) => {
            return Some(Near(match &**name {
                "\\pi" => std::f64::consts::PI.into(),
                "e" => std::f64::consts::E.into(),
                "i" => Complex64::I,
                name => return at(name),
            }));
        }
        Expr::Node(symbol, parts) => (*symbol, parts),
        Expr::Measured(..) => return None,
    };
    let parts: Option<Vec<Numeral>> = parts.iter().map(|part| value(part, at)).collect();
    let parts = parts?;
    let exact: Option<Vec<&Rational>> = parts.iter().map(Numeral::exact).collect();
    if let Some(value) = exact.and_then(|parts| exactly(symbol, &parts)) {
        return Some(Exact(value));
    }
    let near: Option<Vec<Complex64>> = parts.iter().map(Numeral::near).collect();
    let value = nearly(symbol, &near?)?;
    value.is_finite().then_some(Near(value))
}

/// The exact square, where this is rational or a product of square roots of rationals.
pub(super) fn square(expr: &Expr) -> Option<Rational> {
    let exact = |expr: &Expr| constant(expr)?.exact().cloned();
    let parts = expr.parts();
    let squares = || parts.iter().map(square).collect::<Option<Vec<_>>>();
    Some(match expr.symbol() {
        Some(symbol @ (Symbol::Product | Symbol::Quotient)) => {
            exactly(symbol, &squares()?.iter().collect::<Vec<_>>())?
        }
        Some(Symbol::Negative) => square(&parts[0])?,
        Some(Symbol::Function("root")) if parts[0] == Expr::integer(2) => exact(&parts[1])?,
        Some(Symbol::Power) => power(&exact(&parts[0])?, &(exact(&parts[1])? * whole(2)))?,
        _ => Pow::pow(exact(expr)?, 2),
    })
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

/// The reduced quotient of whole numbers.
pub(super) fn quotient(above: BigInt, below: BigInt) -> Option<Rational> {
    if below.is_one() {
        return Some(whole(above));
    }
    let (above, below) = if below.is_negative() {
        (-above, -below)
    } else {
        (above, below)
    };
    let divisor = divisor(&above, &below).filter(|divisor| !divisor.is_zero())?;
    Some(Rational::new_raw(above / &divisor, below / divisor))
}

fn exactly(symbol: Symbol, parts: &[&Rational]) -> Option<Rational> {
    Some(match (symbol, parts) {
        (Symbol::Sum, parts) => sum(parts)?,
        (Symbol::Product, parts) => product(parts)?,
        (Symbol::Negative, [part]) => -*part,
        (Symbol::Quotient, [a, b]) => {
            quotient(a.numer() * b.denom(), a.denom() * b.numer()).filter(|_| !b.is_zero())?
        }
        (Symbol::Power, [base, exponent]) => power(base, exponent)?,
        (Symbol::Function(name), parts) => function(name, parts)?,
        _ => return None,
    })
}

/// Thousands of terms need a common denominator each, but are reduced once.
fn sum(parts: &[&Rational]) -> Option<Rational> {
    let (mut above, mut below) = (BigInt::zero(), BigInt::one());
    for part in parts {
        if *part.denom() == below {
            above += part.numer();
        } else {
            above = above * part.denom() + part.numer() * &below;
            below *= part.denom();
        }
        spend(above.bits() + below.bits())?;
    }
    quotient(above, below)
}

/// Numerators and denominators apart: thousands of factors need no common divisor each.
fn product(parts: &[&Rational]) -> Option<Rational> {
    let (mut above, mut below) = (BigInt::one(), BigInt::one());
    for part in parts {
        above *= part.numer();
        below *= part.denom();
        spend(above.bits() + below.bits())?;
    }
    quotient(above, below)
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

/// The functions of rational numbers that are rational.
fn function(name: &str, parts: &[&Rational]) -> Option<Rational> {
    let first = *parts.first()?;
    let wholes = || {
        let wholes = parts
            .iter()
            .map(|part| part.is_integer().then(|| part.numer()));
        wholes.collect::<Option<Vec<&BigInt>>>()
    };
    let fold = |pick: fn(&BigInt, &BigInt) -> Option<BigInt>| {
        let mut numbers = wholes()?.into_iter();
        let first = numbers.next()?.abs();
        Some(whole(numbers.try_fold(first, |a, b| pick(&a, b))?))
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
        ("abs", _) => first.abs(),
        ("floor", _) => first.floor(),
        ("ceil", _) => first.ceil(),
        ("root", [order, value]) if order.is_integer() => root(value, order.numer())?,
        ("!", _) => whole(product(1, count(0)?, 1)),
        ("!!", _) => whole(product(2 - count(0)? % 2, count(0)?, 2)),
        ("binom", _) => match (count(0)?, count(1)?) {
            (n, k) if k > n => Rational::zero(),
            (n, k) => whole(product(n - k + 1, n, 1) / product(1, k, 1)),
        },
        ("gcd", _) => fold(divisor)?,
        ("lcm", _) => fold(|a, b| Some((a * b).abs() / divisor(a, b)?.max(1.into())))?,
        ("max", parts) => (*parts.iter().max()?).clone(),
        ("min", parts) => (*parts.iter().min()?).clone(),
        _ => return None,
    })
}

fn nearly(symbol: Symbol, parts: &[Complex64]) -> Option<Complex64> {
    Some(match (symbol, parts) {
        (Symbol::Sum, parts) => parts.iter().sum(),
        (Symbol::Product, parts) => parts.iter().product(),
        (Symbol::Negative, [part]) => -part,
        (Symbol::Quotient, [a, b]) if b.norm() > 0.0 => a / b,
        (Symbol::Power, [base, exponent]) => near_power(*base, *exponent)?,
        // A function that nobody knows has some value: another one for each letter.
        (Symbol::Named(letter), [x]) => {
            let letter = f64::from(letter as u32);
            (x * (letter % 97.0 + 2.0) * 0.37).sin() + letter
        }
        (Symbol::Function(name), [x]) => of_one(name, *x)?,
        (Symbol::Function(name), parts) => of_several(name, parts)?,
        _ => return None,
    })
}

fn near_power(base: Complex64, exponent: Complex64) -> Option<Complex64> {
    if base.norm() == 0.0 {
        return (exponent.re > 0.0).then_some(base);
    }
    let is_whole = exponent.im == 0.0 && exponent.re.fract() == 0.0 && exponent.re.abs() < 1e9;
    let is_real = base.im == 0.0 && exponent.im == 0.0;
    let result = match is_whole {
        true if is_real => base.re.powi(exponent.re as i32).into(),
        true => base.powi(exponent.re as i32),
        false if is_real && base.re > 0.0 => base.re.powf(exponent.re).into(),
        false => base.powc(exponent),
    };
    (result.norm() > 0.0).then_some(result)
}

fn inverse(value: Complex64) -> Option<Complex64> {
    (value.norm() > 1e-12).then(|| value.inv())
}

fn of_one(name: &str, x: Complex64) -> Option<Complex64> {
    let factorial = |step: f64| {
        let n = real(x).filter(|n| n.fract() == 0.0 && (0.0..=170.0).contains(n))?;
        let factors = std::iter::successors(Some(n), |k| Some(k - step)).take_while(|k| *k > 1.0);
        Some(factors.product::<f64>().into())
    };
    Some(match name {
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.sin() * inverse(x.cos())?,
        "cot" => x.cos() * inverse(x.sin())?,
        "sec" => inverse(x.cos())?,
        "csc" => inverse(x.sin())?,
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "ln" => x.ln(),
        "exp" => x.exp(),
        "abs" => x.norm().into(),
        // A hair below a whole number is that number.
        "floor" => (real(x)? + 1e-12).floor().into(),
        "ceil" => (real(x)? - 1e-12).ceil().into(),
        "!" => factorial(1.0)?,
        "!!" => factorial(2.0)?,
        _ => return None,
    })
}

fn of_several(name: &str, parts: &[Complex64]) -> Option<Complex64> {
    let reals = || {
        parts
            .iter()
            .map(|part| real(*part))
            .collect::<Option<Vec<f64>>>()
    };
    Some(match (name, parts) {
        ("log", [base, x]) => x.ln() * inverse(base.ln())?,
        ("root", [order, x]) => near_root(real(*order)?, *x)?,
        ("binom", [n, k]) => {
            let (n, k) = (real(*n)?, real(*k)?);
            let count = (k.fract() == 0.0 && (0.0..=1000.0).contains(&k)).then_some(k as u32)?;
            let factor = |i: u32| (n - f64::from(i)) / (f64::from(i) + 1.0);
            (0..count).map(factor).product::<f64>().into()
        }
        ("max", _) => reals()?.into_iter().reduce(f64::max)?.into(),
        ("min", _) => reals()?.into_iter().reduce(f64::min)?.into(),
        _ => return None,
    })
}

/// Odd roots of negative numbers are real.
fn near_root(order: f64, value: Complex64) -> Option<Complex64> {
    match real(value) {
        _ if order == 0.0 => None,
        Some(negative) if negative < 0.0 && order % 2.0 == 1.0 => {
            Some((-(-negative).powf(1.0 / order)).into())
        }
        _ if order == 2.0 => Some(value.sqrt()),
        _ => near_power(value, (1.0 / order).into()),
    }
}
