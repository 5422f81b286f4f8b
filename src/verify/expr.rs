//! Expressions, and their exact value where they are rational numbers.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

use super::approx::OF_ONE;
use super::work::spend;

pub(super) type Rational = BigRational;

/// Numbers with more bits than these are not computed: in a hundredth of a second nothing can be made of them.
const MOST_BITS: u64 = 40_000;

/// The largest number whose factorial is computed, and the largest of binomials.
const MOST_FACTORS: u32 = 4_000;

/// The form of a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    /// Digits behind the point.
    pub(super) places: u32,
    /// Digits from the first that is not 0.
    pub(super) significant: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// A function of one complex number, by its row in [`approx::OF_ONE`](super::approx::OF_ONE).
    OfOne(usize),
    /// The logarithm of the second to the base of the first.
    Log,
    /// The root of the second of the order of the first.
    Root,
    Abs,
    Floor,
    Ceil,
    Factorial,
    DoubleFactorial,
    Binomial,
    Gcd,
    Lcm,
    Max,
    Min,
    /// A function that is only a name, such as f.
    Named(char),
}

impl Function {
    /// The function of a name in LaTeX or in plain text.
    pub(super) fn of(name: &str) -> Option<Function> {
        Some(match name {
            "log" | "lg" => Function::Log,
            "abs" => Function::Abs,
            "floor" => Function::Floor,
            "ceil" => Function::Ceil,
            "gcd" => Function::Gcd,
            "lcm" => Function::Lcm,
            "max" => Function::Max,
            "min" => Function::Min,
            name => {
                let plain = name.replacen("arc", "a", 1);
                let row = OF_ONE.iter().position(|(own, _)| *own == plain)?;
                Function::OfOne(row)
            }
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// A number, and its form where it was written as a decimal.
    Number(Rational, Option<Decimal>),
    Pi,
    E,
    I,
    Infinity,
    Variable(String),
    Sum(Vec<Expr>),
    Product(Vec<Expr>),
    Quotient(Box<Expr>, Box<Expr>),
    Power(Box<Expr>, Box<Expr>),
    Negative(Box<Expr>),
    Call(Function, Vec<Expr>),
}

impl Expr {
    pub(super) fn integer(number: i64) -> Expr {
        Expr::Number(Rational::from_integer(number.into()), None)
    }

    /// The number that digits with a point and an exponent are; `None` where the exponent is too large.
    pub(super) fn literal(text: &str) -> Option<Expr> {
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let number: BigInt = format!("{whole}{fraction}").parse().ok()?;
        let places = fraction.len() as u32;
        let shift = exponent.checked_sub(i32::try_from(places).ok()?)?;
        if u64::from(shift.unsigned_abs()) * 4 > MOST_BITS {
            return None;
        }
        let value = match shift < 0 {
            true => decimal(number, shift.unsigned_abs()),
            false => Rational::from_integer(number * BigInt::from(10).pow(shift.unsigned_abs())),
        };
        let significant = format!("{whole}{fraction}");
        let significant = significant.trim_start_matches('0').len() as u32;
        let is_decimal = places > 0 && exponent == 0;
        let form = is_decimal.then_some(Decimal {
            places,
            significant,
        });
        Some(Expr::Number(value, form))
    }

    pub(super) fn negated(self) -> Expr {
        match self {
            Expr::Number(value, form) => Expr::Number(-value, form),
            Expr::Negative(inner) => *inner,
            other => Expr::Negative(Box::new(other)),
        }
    }

    pub(super) fn power(self, exponent: Expr) -> Expr {
        Expr::Power(Box::new(self), Box::new(exponent))
    }

    pub(super) fn over(self, divisor: Expr) -> Expr {
        Expr::Quotient(Box::new(self), Box::new(divisor))
    }

    pub(super) fn parts(&self) -> &[Expr] {
        match self {
            Expr::Sum(parts) | Expr::Product(parts) | Expr::Call(_, parts) => parts,
            Expr::Negative(part) => std::slice::from_ref(part),
            _ => &[],
        }
    }

    /// Calls a function with each variable's name.
    pub(super) fn each_variable(&self, call: &mut dyn FnMut(&str)) {
        match self {
            Expr::Variable(name) => call(name),
            Expr::Quotient(a, b) | Expr::Power(a, b) => {
                a.each_variable(call);
                b.each_variable(call);
            }
            other => other
                .parts()
                .iter()
                .for_each(|part| part.each_variable(call)),
        }
    }

    /// Whether this or a part of it is as asked.
    pub(super) fn any(&self, is_one: &dyn Fn(&Expr) -> bool) -> bool {
        is_one(self)
            || match self {
                Expr::Quotient(a, b) | Expr::Power(a, b) => a.any(is_one) || b.any(is_one),
                other => other.parts().iter().any(|part| part.any(is_one)),
            }
    }

    /// The exact value, where it is a rational number that is not too large.
    pub(super) fn exact(&self) -> Option<Rational> {
        let value = match self {
            Expr::Number(value, _) => value.clone(),
            Expr::Sum(parts) => sum(parts)?,
            Expr::Product(parts) => product(parts, Expr::exact)?,
            Expr::Negative(part) => -part.exact()?,
            Expr::Quotient(a, b) => {
                let b = b.exact().filter(|b| !b.is_zero())?;
                a.exact()? / b
            }
            Expr::Power(base, exponent) => power(&base.exact()?, &exponent.exact()?)?,
            Expr::Call(function, parts) => call(*function, parts)?,
            _ => return None,
        };
        bounded(value)
    }

    /// The exact square, where this is rational or a product of square roots of rationals.
    pub(super) fn square(&self) -> Option<Rational> {
        let two = || Rational::from_integer(2.into());
        let square = match self {
            Expr::Product(parts) => product(parts, Expr::square)?,
            Expr::Negative(part) => part.square()?,
            Expr::Quotient(a, b) => a.square()? / b.square().filter(|b| !b.is_zero())?,
            Expr::Call(Function::Root, parts) if parts[0].exact() == Some(two()) => {
                parts[1].exact()?
            }
            Expr::Power(base, exponent) => power(&base.exact()?, &(exponent.exact()? * two()))?,
            other => {
                let value = other.exact()?;
                &value * &value
            }
        };
        bounded(square)
    }
}

/// A number less `places` powers of ten, reduced: its divisors that count are 2 and 5 alone.
fn decimal(mut number: BigInt, places: u32) -> Rational {
    if number.is_zero() {
        return Rational::zero();
    }
    let (mut twos, mut fives) = (u64::from(places), places);
    let even = number.trailing_zeros().unwrap_or(0).min(twos);
    number >>= even;
    twos -= even;
    while fives > 0 {
        let (quotient, rest) = number.div_rem(&5.into());
        if !rest.is_zero() {
            break;
        }
        number = quotient;
        fives -= 1;
    }
    Rational::new_raw(number, BigInt::from(5).pow(fives) << twos)
}

fn bounded(value: Rational) -> Option<Rational> {
    let bits = value.numer().bits() + value.denom().bits();
    spend(if value.is_integer() {
        bits.isqrt()
    } else {
        bits
    })?;
    (bits <= MOST_BITS).then_some(value)
}

/// Numerators and denominators apart: thousands of factors need no common divisor each.
fn product(parts: &[Expr], of: fn(&Expr) -> Option<Rational>) -> Option<Rational> {
    let (mut above, mut below) = (BigInt::one(), BigInt::one());
    for part in parts {
        let value = of(part)?;
        above *= value.numer();
        below *= value.denom();
        let bits = above.bits() + below.bits();
        spend(bits.isqrt())?;
        if bits > MOST_BITS {
            return None;
        }
    }
    if !below.is_one() {
        spend(above.bits() + below.bits())?;
    }
    Some(if below.is_one() {
        Rational::from_integer(above)
    } else {
        Rational::new(above, below)
    })
}

/// Integers first: thousands of terms need no common denominator each.
fn sum(parts: &[Expr]) -> Option<Rational> {
    let (mut whole, mut rest) = (BigInt::zero(), Rational::zero());
    for part in parts {
        let value = part.exact()?;
        match value.is_integer() {
            true => whole += value.to_integer(),
            false => rest = bounded(rest + value)?,
        }
    }
    Some(rest + Rational::from_integer(whole))
}

fn power(base: &Rational, exponent: &Rational) -> Option<Rational> {
    if exponent.is_integer() {
        let exponent = exponent.to_integer().to_i64()?;
        if base.is_zero() && exponent <= 0 {
            return None;
        }
        let bits = base.numer().bits() + base.denom().bits();
        let is_trivial = base.is_zero() || base.abs().is_one();
        let size = bits.checked_mul(exponent.unsigned_abs())?;
        if !is_trivial && size > MOST_BITS {
            return None;
        }
        // Powers of 0, 1 and -1 depend on the parity alone.
        let exponent = if is_trivial {
            2 - exponent.rem_euclid(2)
        } else {
            exponent
        };
        return Some(Pow::pow(base, i32::try_from(exponent).ok()?));
    }
    if base.is_negative() {
        return None;
    }
    let order = exponent.denom().to_u32()?;
    power(
        &root(base, order)?,
        &Rational::from_integer(exponent.numer().clone()),
    )
}

/// The root where it is rational.
fn root(value: &Rational, order: u32) -> Option<Rational> {
    let of = |number: &BigInt| {
        let is_even = order.is_even();
        if order == 0 || order > 64 || is_even && number.is_negative() {
            return None;
        }
        let root = number.nth_root(order);
        (Pow::pow(&root, order) == *number).then_some(root)
    };
    Some(Rational::new(of(value.numer())?, of(value.denom())?))
}

fn call(function: Function, parts: &[Expr]) -> Option<Rational> {
    let whole = |index: usize| {
        let value = parts.get(index)?.exact()?;
        value.is_integer().then(|| value.to_integer())
    };
    let number = |index: usize| {
        let number = whole(index)?.to_u32()?;
        spend(8 * u64::from(number.min(MOST_FACTORS)))?;
        (number <= MOST_FACTORS).then_some(number)
    };
    let product = |from: u32, to: u32, step: usize| {
        let factors = (from..=to).step_by(step).map(BigInt::from);
        Rational::from_integer(factors.product())
    };
    let fold = |pick: fn(Rational, Rational) -> Rational| {
        let values: Option<Vec<Rational>> = parts.iter().map(Expr::exact).collect();
        values?.into_iter().reduce(pick)
    };
    let wholes = |pick: fn(&BigInt, &BigInt) -> BigInt| {
        let values: Option<Vec<BigInt>> = (0..parts.len()).map(whole).collect();
        let value = values?.into_iter().reduce(|a, b| pick(&a, &b))?;
        Some(Rational::from_integer(value))
    };
    let first = || parts.first()?.exact();
    match function {
        Function::Abs => Some(first()?.abs()),
        Function::Floor => Some(first()?.floor()),
        Function::Ceil => Some(first()?.ceil()),
        Function::Root => root(&parts.get(1)?.exact()?, whole(0)?.to_u32()?),
        Function::Factorial => Some(product(1, number(0)?, 1)),
        Function::DoubleFactorial => {
            let number = number(0)?;
            Some(product(if number.is_even() { 2 } else { 1 }, number, 2))
        }
        Function::Binomial => {
            let (n, k) = (number(0)?, number(1)?);
            if k > n {
                return Some(Rational::zero());
            }
            Some(product(n - k + 1, n, 1) / product(1, k, 1))
        }
        Function::Gcd => wholes(|a, b| a.gcd(b)),
        Function::Lcm => wholes(|a, b| a.lcm(b)),
        Function::Max => fold(|a, b| a.max(b)),
        Function::Min => fold(|a, b| a.min(b)),
        _ => None,
    }
}
