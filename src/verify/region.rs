//! Sets of real numbers, compared by where they begin and end and by what lies between.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::expr::{Expr, INFINITY, REALS, Symbol};
use super::number;

/// Whether this is a set of numbers that its points decide: more than a tuple, or a list of numbers.
pub(super) fn is_region(expr: &Expr) -> bool {
    use Symbol::*;
    match expr {
        Expr::Node(List | Or, parts) => parts.iter().all(is_inequality),
        Expr::Node(Interval(_) | Union | Intersection | Difference, _) => true,
        expr => expr.is(REALS) || is_inequality(expr),
    }
}

fn is_inequality(expr: &Expr) -> bool {
    use Symbol::*;
    match expr {
        Expr::Node(Unequal | Less | LessOrEqual, _) => true,
        Expr::Node(List | Or, parts) => parts.iter().all(is_inequality),
        _ => false,
    }
}

/// Whether two sets have the same points: at all ends, between them, and beyond. `None` where one is no set of numbers.
pub(super) fn same(a: &Expr, b: &Expr) -> Option<bool> {
    let (mut names, mut ends) = (BTreeSet::new(), Vec::new());
    a.variables(&mut names);
    b.variables(&mut names);
    collect_ends(a, &mut ends)?;
    collect_ends(b, &mut ends)?;
    if names.len() > 1 {
        return None;
    }
    ends.retain(|end| end.is_finite());
    ends.sort_by(f64::total_cmp);
    ends.dedup_by(|a, b| order(*a, *b).is_eq());
    let least = ends.first().map_or(0.0, |end| end - end.abs() - 1.0);
    let most = ends.last().map_or(0.0, |end| end + end.abs() + 1.0);
    let middles = ends.windows(2).map(|pair| pair[0] / 2.0 + pair[1] / 2.0);
    let points = ends.iter().copied().chain(middles).chain([least, most]);
    for x in points {
        if has(a, x)? != has(b, x)? {
            return Some(false);
        }
    }
    Some(true)
}

/// The value of an expression without variables, infinity included.
pub(super) fn end(expr: &Expr) -> Option<f64> {
    match expr {
        expr if expr.is(INFINITY) => Some(f64::INFINITY),
        Expr::Node(Symbol::Negative, part) if part[0].is(INFINITY) => Some(f64::NEG_INFINITY),
        expr => number::constant(expr)?.real(),
    }
}

/// Where two numbers are almost the same they are one.
fn order(a: f64, b: f64) -> Ordering {
    let is_near = (a - b).is_finite() && (a - b).abs() <= 1e-10 * a.abs().max(b.abs());
    if is_near {
        Ordering::Equal
    } else {
        a.total_cmp(&b)
    }
}

/// Where a set may begin or end; `None` where this is no set of numbers.
fn collect_ends(set: &Expr, ends: &mut Vec<f64>) -> Option<()> {
    use Symbol::*;
    let (symbol, parts) = match set {
        Expr::Node(symbol, parts) => (*symbol, parts),
        set => return set.is(REALS).then_some(()),
    };
    match (symbol, &parts[..]) {
        (Union | Intersection | Difference, parts) => {
            parts.iter().try_for_each(|part| collect_ends(part, ends))
        }
        (List | Or, parts) if is_inequality(set) => {
            parts.iter().try_for_each(|part| collect_ends(part, ends))
        }
        // A solved one: a variable on one side, a number on the other.
        (Unequal | Less | LessOrEqual, [a, b]) => {
            let bound = if a.variable().is_some() { b } else { a };
            let is_solved = a.variable().is_some() || b.variable().is_some();
            ends.push(end(bound).filter(|_| is_solved)?);
            Some(())
        }
        (Interval(_) | Tuple, [from, to]) => {
            let (from, to) = (end(from)?, end(to)?);
            ends.extend([from, to]);
            let is_point = from == to && symbol == Interval([true, true]);
            (from < to || is_point).then_some(())
        }
        (Set | List | Or, parts) => {
            ends.extend(parts.iter().map(end).collect::<Option<Vec<f64>>>()?);
            Some(())
        }
        _ => None,
    }
}

/// Whether a number is in a set of which the ends are known.
fn has(set: &Expr, x: f64) -> Option<bool> {
    use Symbol::*;
    let (symbol, parts) = match set {
        Expr::Node(symbol, parts) => (*symbol, parts),
        _ => return Some(true),
    };
    let side = |expr: &Expr| expr.variable().map_or_else(|| end(expr), |_| Some(x));
    let compared = || Some(order(side(&parts[0])?, side(&parts[1])?));
    let are_in = || {
        parts
            .iter()
            .map(|part| has(part, x))
            .collect::<Option<Vec<bool>>>()
    };
    Some(match symbol {
        Unequal => compared()?.is_ne(),
        Less => compared()?.is_lt(),
        LessOrEqual => compared()?.is_le(),
        Interval(_) | Tuple => {
            let is_closed = if let Interval(closed) = symbol {
                closed
            } else {
                [false, false]
            };
            let (from, to) = (order(x, end(&parts[0])?), order(x, end(&parts[1])?));
            (from.is_gt() || from.is_eq() && is_closed[0])
                && (to.is_lt() || to.is_eq() && is_closed[1])
        }
        Difference => are_in()? == [true, false],
        Union => are_in()?.contains(&true),
        Intersection => !are_in()?.contains(&false),
        Or if is_inequality(set) => are_in()?.contains(&true),
        List if is_inequality(set) => !are_in()?.contains(&false),
        // Numbers, one by one.
        _ => {
            let points: Option<Vec<f64>> = parts.iter().map(end).collect();
            points?.into_iter().any(|point| order(x, point).is_eq())
        }
    })
}
