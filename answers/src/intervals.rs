//! Compares sets of real numbers at their ends and at points between and beyond the ends.

use std::cmp::Ordering;

use super::expr::{Expr, REALS, Symbol};
use super::value;
use Symbol::{Interval, Joined, List, Or, Relation, Set, Tuple};

/// Returns whether this is an interval, a union, intersection or difference of sets, the set of real numbers, or an inequality. A
/// tuple or a list of numbers alone is not a region.
fn is_region(expr: &Expr) -> bool {
    matches!(expr.symbol, Interval(_) | Joined(_)) || expr.is(REALS) || is_inequality(expr)
}

/// Returns whether this is an inequality, a list of inequalities, or a choice between regions (`or`).
fn is_inequality(expr: &Expr) -> bool {
    match expr.symbol {
        Relation(sign) => sign != "=",
        List => expr.parts.iter().all(is_inequality),
        Or => expr.parts.iter().all(is_region),
        _ => false,
    }
}

/// Returns whether two sets are the same. They are compared at all ends, at a point between any two neighbouring ends, and at a
/// point beyond each outermost end. Returns `None` if one of the sets is not a set of numbers, if neither is a region, or if
/// there are several variables.
pub(super) fn same(a: &Expr, b: &Expr) -> Option<bool> {
    if !is_region(a) && !is_region(b) || Expr::variables(&[a, b]).len() > 1 {
        return None;
    }
    let mut ends = Vec::new();
    has(a, 0.0, &mut ends)?;
    has(b, 0.0, &mut ends)?;
    ends.retain(|end| end.is_finite());
    ends.sort_by(f64::total_cmp);
    ends.dedup_by(|a, b| order(*a, *b).is_eq());
    let least = ends.first().map_or(0.0, |end| end - end.abs() - 1.0);
    let most = ends.last().map_or(0.0, |end| end + end.abs() + 1.0);
    let middles = ends.windows(2).map(|pair| pair[0] / 2.0 + pair[1] / 2.0);
    let points = ends.iter().copied().chain(middles).chain([least, most]);
    for x in points {
        if has(a, x, &mut Vec::new())? != has(b, x, &mut Vec::new())? {
            return Some(false);
        }
    }
    Some(true)
}

/// Returns the value of an expression without variables; the value can be infinite.
pub(super) fn end(expr: &Expr) -> Option<f64> {
    match expr.infinity() {
        0 => value::constant(expr)?.real(),
        sign => Some(f64::INFINITY * f64::from(sign)),
    }
}

/// Compares two numbers; numbers that are almost equal count as equal.
fn order(a: f64, b: f64) -> Ordering {
    if (a - b).is_finite() && (a - b).abs() <= 1e-10 * a.abs().max(b.abs()) {
        Ordering::Equal
    } else {
        a.total_cmp(&b)
    }
}

/// Returns whether a number is in a set; the set's ends are appended to `ends`. Returns `None` if `set` is not a set of numbers.
fn has(set: &Expr, x: f64, ends: &mut Vec<f64>) -> Option<bool> {
    let mut end = |part: &Expr| {
        let end = self::end(part)?;
        ends.push(end);
        Some(end)
    };
    let is_closed = match set.symbol {
        Interval(is_closed) => is_closed,
        _ => [false, false],
    };
    Some(match (&set.symbol, &set.parts[..]) {
        // This is a solved inequality: a variable is on one side, and a number is on the other.
        (Relation(sign), [a, b]) => {
            let order = match (a.variable(), b.variable()) {
                (Some(_), None) => order(x, end(b)?),
                (None, Some(_)) => order(end(a)?, x),
                _ => return None,
            };
            match *sign {
                "<" => order.is_lt(),
                "\\leq" => order.is_le(),
                "\\neq" => order.is_ne(),
                _ => return None,
            }
        }
        (Interval(_) | Tuple, [from, to]) => {
            let (from, to) = (end(from)?, end(to)?);
            let is_point = from == to && is_closed == [true, true];
            (from < to || is_point).then_some(())?;
            let (from, to) = (order(x, from), order(x, to));
            (from.is_gt() || from.is_eq() && is_closed[0])
                && (to.is_lt() || to.is_eq() && is_closed[1])
        }
        (Joined(operator), [a, b]) => match (*operator, has(a, x, ends)?, has(b, x, ends)?) {
            ("\\cup", a, b) => a || b,
            ("\\cap", a, b) => a && b,
            (_, a, b) => a && !b,
        },
        (List | Or, parts) if is_inequality(set) => {
            let are_in = parts.iter().map(|part| has(part, x, ends));
            let are_in = are_in.collect::<Option<Vec<bool>>>()?;
            let is_or = set.symbol == Or;
            are_in.contains(&is_or) == is_or
        }
        // This is a finite set of numbers.
        (Set | List | Or, parts) => {
            let points = parts.iter().map(end).collect::<Option<Vec<f64>>>()?;
            points.into_iter().any(|point| order(x, point).is_eq())
        }
        _ => set.is(REALS).then_some(true)?,
    })
}
