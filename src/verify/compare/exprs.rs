//! Numbers and functions: exactly where they are rational, by value where not, at points where there are variables.

use std::collections::BTreeSet;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};

use super::super::approx;
use super::super::expr::{Decimal, Expr, Function, Rational};

/// Digits of an answer from which on it may be a rounded gold.
const ENOUGH: u32 = 6;

/// Whether expressions are the same number or the same function.
pub(super) fn exprs(gold: &Expr, answer: &Expr) -> Option<bool> {
    let infinity = |expr: &Expr| match expr {
        Expr::Infinity => 1,
        Expr::Negative(inner) if **inner == Expr::Infinity => -1,
        _ => 0,
    };
    if infinity(gold) != 0 || infinity(answer) != 0 {
        return Some(infinity(gold) == infinity(answer));
    }
    let names = variables([gold, answer]);
    if !names.is_empty() {
        return functions(gold, answer, &names);
    }
    let (exact, other) = (gold.exact(), answer.exact());
    if let (Some(gold), Some(answer)) = (&exact, &other)
        && gold == answer
    {
        return Some(true);
    }
    if let Some(is_rounded) = rounded(gold, answer, exact.as_ref(), other.as_ref()) {
        return Some(is_rounded);
    }
    if exact.is_some() && other.is_some() {
        return Some(false);
    }
    // Squares of roots are exact where double precision ends.
    if let (Some(a), Some(b)) = (gold.square(), answer.square())
        && a != b
    {
        return Some(false);
    }
    let (a, b) = (
        approx::value(gold, &|_| 0.0)?,
        approx::value(answer, &|_| 0.0)?,
    );
    let scale = a.norm().max(b.norm());
    Some((a - b).norm() <= 1e-11 * scale || scale < 1e-15)
}

/// The names of the variables of two expressions.
pub(super) fn variables(both: [&Expr; 2]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for expr in both {
        expr.each_variable(&mut |name| {
            names.insert(name.to_string());
        });
    }
    names
}

/// The form of a number that was written as a decimal.
fn decimal(expr: &Expr) -> Option<Decimal> {
    match expr {
        Expr::Number(_, form) => *form,
        _ => None,
    }
}

/// Whether one is the other rounded, where that is allowed at all: an answer of six digits or more for an exact gold, or
/// a gold that was rounded itself.
fn rounded(
    gold: &Expr,
    answer: &Expr,
    exact: Option<&Rational>,
    other: Option<&Rational>,
) -> Option<bool> {
    let (form, other_form) = (decimal(gold), decimal(answer));
    match (form, other_form) {
        (None, Some(own))
            if own.significant >= ENOUGH && exact.is_none_or(|gold| !gold.is_integer()) =>
        {
            Some(is_rounded(gold, exact, other?, own.places)?)
        }
        (Some(own), other_form)
            if own.significant >= 3 && exact.is_some_and(|gold| !gold.is_integer()) =>
        {
            let is_longer = other_form.is_none_or(|other| other.places > own.places);
            Some(is_longer && is_rounded(answer, other, exact?, own.places)?)
        }
        _ => None,
    }
}

/// Whether `short` is the value rounded to its places, half up.
fn is_rounded(
    expr: &Expr,
    exact: Option<&Rational>,
    short: &Rational,
    places: u32,
) -> Option<bool> {
    let power = BigInt::from(10).pow(places);
    if let Some(value) = exact {
        // In whole numbers: fractions would look for common divisors of thousands of digits.
        let doubled: BigInt = value.numer().abs() * &power * 2 + value.denom();
        let rounded = doubled / (value.denom() * 2);
        let is_near = rounded * short.denom() == short.numer().abs() * power;
        return Some(is_near && (value.is_negative() == short.is_negative() || short.is_zero()));
    }
    let unit = 10f64.powi(-(places.min(300) as i32));
    let value = approx::real(approx::value(expr, &|_| 0.0)?)?;
    let short = short.to_f64()?;
    Some((value - short).abs() <= (unit * 0.5).max(value.abs() * 4.0 * f64::EPSILON))
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

/// Calls with a value for each name, point after point.
pub(super) fn at_points<R>(
    names: &BTreeSet<String>,
    are_whole: bool,
    mut evaluate: impl FnMut(&dyn Fn(&str) -> f64) -> Option<R>,
) -> Vec<R> {
    let points: &[[f64; 4]] = if are_whole { &WHOLES } else { &POINTS };
    let mut results = Vec::new();
    for point in points {
        let at = |name: &str| {
            let index = names.iter().position(|own| own == name).unwrap_or(0);
            // A fifth name and those behind it have values of their own.
            point[index % 4] + (index / 4) as f64 * if are_whole { 1.0 } else { 0.61803 }
        };
        results.extend(evaluate(&at));
    }
    results
}

pub(super) fn needs_wholes(expr: &Expr) -> bool {
    let is_one = |expr: &Expr| {
        matches!(
            expr,
            Expr::Call(
                Function::Factorial | Function::DoubleFactorial | Function::Binomial,
                _
            )
        )
    };
    expr.any(&is_one)
}

/// As functions of their variables: the same at all points where both are defined.
fn functions(gold: &Expr, answer: &Expr, names: &BTreeSet<String>) -> Option<bool> {
    if names.len() > 16 {
        return None;
    }
    let is_complex = |expr: &Expr| expr.any(&|expr| *expr == Expr::I);
    let is_complex = is_complex(gold) || is_complex(answer);
    let compared = at_points(names, needs_wholes(gold) || needs_wholes(answer), |at| {
        let (a, b) = (approx::value(gold, at)?, approx::value(answer, at)?);
        if !is_complex {
            approx::real(a).zip(approx::real(b))?;
        }
        let scale = a.norm().max(b.norm());
        Some((a - b).norm() <= 1e-9 * scale.max(1e-3))
    });
    if compared.contains(&false) {
        return Some(false);
    }
    (compared.len() >= 2).then_some(true)
}
