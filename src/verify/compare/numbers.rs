//! Numbers and functions: exactly where they are rational, by value where not, at points where there are variables.

use std::collections::BTreeSet;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};

use super::super::expr::{Decimal, Expr, INFINITY, Rational, Symbol};
use super::super::number::{Numeral, constant, square, value};
use super::super::work;

/// Digits of an answer from which on it may be a rounded gold.
const ENOUGH: u32 = 6;

/// Whether expressions are the same number or the same function.
pub(super) fn numbers(gold: &Expr, answer: &Expr) -> Option<bool> {
    let infinity = |expr: &Expr| match expr {
        Expr::Node(Symbol::Negative, part) if part[0].is(INFINITY) => -1,
        expr => i32::from(expr.is(INFINITY)),
    };
    if infinity(gold) != 0 || infinity(answer) != 0 {
        return Some(infinity(gold) == infinity(answer));
    }
    if gold.has_variables() || answer.has_variables() {
        return functions(gold, answer);
    }
    let (a, b) = (constant(gold)?, constant(answer)?);
    let (exact, other) = (a.exact(), b.exact());
    if exact.is_some() && exact == other {
        return Some(true);
    }
    if let Some(is_rounded) = rounded((gold, &a), (answer, &b)) {
        return is_rounded;
    }
    if exact.is_some() && other.is_some() {
        return Some(false);
    }
    // Squares of roots are exact where double precision ends.
    if let (Some(a), Some(b)) = (square(gold), square(answer))
        && a != b
    {
        return Some(false);
    }
    let (a, b) = (a.near()?, b.near()?);
    work::spend(0)?;
    let scale = a.norm().max(b.norm());
    Some((a - b).norm() <= 1e-11 * scale || scale < 1e-15)
}

fn decimal(expr: &Expr) -> Option<Decimal> {
    match expr {
        Expr::Number(_, form) => *form,
        _ => None,
    }
}

/// Whether one is the other rounded, where that is allowed at all: an answer of six digits or more for an exact gold, or
/// a gold that was rounded itself.
fn rounded(
    (gold, value): (&Expr, &Numeral),
    (answer, other): (&Expr, &Numeral),
) -> Option<Option<bool>> {
    let is_fraction = value.exact().is_none_or(|value| !value.is_integer());
    match (decimal(gold), decimal(answer)) {
        (None, Some(own)) if own.significant >= ENOUGH && is_fraction => {
            Some(is_rounded(value, other.exact()?, own.places))
        }
        (Some(own), form) if own.significant >= 3 && is_fraction => {
            let is_longer = form.is_none_or(|form| form.places > own.places);
            let is_rounded = is_longer.then(|| is_rounded(other, value.exact()?, own.places));
            Some(is_rounded.unwrap_or(Some(false)))
        }
        _ => None,
    }
}

/// Whether `short` is the value rounded to its places, half up.
fn is_rounded(value: &Numeral, short: &Rational, places: u32) -> Option<bool> {
    let Some(value) = value.exact() else {
        let unit = 10f64.powi(-(places.min(300) as i32));
        let value = value.real()?;
        let difference = (value - short.to_f64()?).abs();
        return Some(difference <= (unit * 0.5).max(value.abs() * 4.0 * f64::EPSILON));
    };
    // In whole numbers: fractions would look for common divisors of thousands of digits.
    let power = BigInt::from(10).pow(places);
    let doubled: BigInt = value.numer().abs() * &power * 2 + value.denom();
    let rounded = doubled / (value.denom() * 2);
    let is_near = rounded * short.denom() == short.numer().abs() * power;
    Some(is_near && (value.is_negative() == short.is_negative() || short.is_zero()))
}

/// Values for variables: of both signs, above and below 1, then above 0 alone.
const POINTS: [[f64; 4]; 10] = [
    [0.7316, 1.3172, 2.4371, 0.3529],
    [2.1893, 0.5871, 1.7254, 3.1417],
    [-1.3719, 0.8127, -0.4291, 1.9233],
    [1.6127, -0.7523, 0.9371, -2.2817],
    [-0.5237, -1.8731, 1.2713, 0.6173],
    [3.7219, 2.9137, 4.1873, 5.2371],
    [-2.6173, 1.4371, -3.2719, -0.8713],
    [0.2173, 0.1371, 0.3719, 0.4713],
    [12.371, 9.7131, 7.3319, 15.173],
    [-0.1373, 3.3719, 0.7191, -1.1713],
];

/// The same, where only whole numbers have a value.
const WHOLES: [[f64; 4]; 5] = [
    [4.0, 3.0, 2.0, 5.0],
    [5.0, 2.0, 3.0, 4.0],
    [7.0, 4.0, 6.0, 3.0],
    [2.0, 6.0, 5.0, 8.0],
    [3.0, 5.0, 7.0, 2.0],
];

/// Functions of more variables are not compared.
const MOST_NAMES: usize = 16;

/// Calls with values for the variables of both, point after point.
pub(super) fn at_points<R>(
    gold: &Expr,
    answer: &Expr,
    mut evaluate: impl FnMut(&dyn Fn(&str) -> Option<Numeral>) -> Option<R>,
) -> Vec<R> {
    let mut names = BTreeSet::new();
    gold.variables(&mut names);
    answer.variables(&mut names);
    if names.len() > MOST_NAMES {
        return Vec::new();
    }
    let counts =
        |expr: &Expr| matches!(expr, Expr::Node(Symbol::Function("!" | "!!" | "binom"), _));
    let are_whole = gold.any(&counts) || answer.any(&counts);
    // A fifth name and those behind it have values of their own.
    let step = if are_whole { 1.0 } else { 0.61803 };
    let points: &[[f64; 4]] = if are_whole { &WHOLES } else { &POINTS };
    let at = |point: &[f64; 4]| {
        evaluate(&|name: &str| {
            let index = names.iter().position(|own| *own == name)?;
            let value = point[index % 4] + (index / 4) as f64 * step;
            Some(Numeral::Near(value.into()))
        })
    };
    points.iter().filter_map(at).collect()
}

/// As functions of their variables: the same at all points where both are defined.
fn functions(gold: &Expr, answer: &Expr) -> Option<bool> {
    let is_i = |expr: &Expr| expr.is("i");
    let is_complex = gold.any(&is_i) || answer.any(&is_i);
    let compared = at_points(gold, answer, |at| {
        let (a, b) = (value(gold, at)?, value(answer, at)?);
        if !is_complex {
            a.real().zip(b.real())?;
        }
        let (a, b) = (a.near()?, b.near()?);
        let scale = a.norm().max(b.norm());
        Some((a - b).norm() <= 1e-9 * scale.max(1e-3))
    });
    if compared.contains(&false) {
        return Some(false);
    }
    if differ_exactly(gold, answer) {
        return Some(false);
    }
    (compared.len() >= 2).then_some(true)
}

/// Whether functions differ where double precision does not tell: `x` and `x + 10^{-12}`. Decimals that are long enough
/// to be rounded may.
fn differ_exactly(gold: &Expr, answer: &Expr) -> bool {
    let is_long = |expr: &Expr| decimal(expr).is_some_and(|form| form.significant >= ENOUGH);
    if gold.any(&is_long) || answer.any(&is_long) {
        return false;
    }
    let mut names = BTreeSet::new();
    gold.variables(&mut names);
    answer.variables(&mut names);
    let differ_at = |point: usize| {
        let at = |name: &str| {
            let index = names.iter().position(|own| *own == name)?;
            let above = BigInt::from(3 + 8 * point + 17 * index);
            Some(Numeral::Exact(Rational::new(above, BigInt::from(7))))
        };
        let (a, b) = (value(gold, &at)?, value(answer, &at)?);
        Some(a.exact()? != b.exact()?)
    };
    (0..3).any(|point| differ_at(point) == Some(true))
}
