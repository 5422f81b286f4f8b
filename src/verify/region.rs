//! Sets of real numbers, compared by where they begin and end and by what lies between.

use std::cmp::Ordering;

use super::approx;
use super::expr::Expr;
use super::value::{Join, Order, Value};

/// The value of an expression without variables, infinity included.
pub(super) fn constant(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Infinity => Some(f64::INFINITY),
        Expr::Negative(inner) if **inner == Expr::Infinity => Some(f64::NEG_INFINITY),
        expr if expr.any(&|part| matches!(part, Expr::Variable(_))) => None,
        expr => approx::real(approx::value(expr, &|_| 0.0)?),
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

/// Half a line: the numbers from an end on, or up to it.
pub(super) struct Half(f64, Ordering, bool);

/// A set of real numbers as what it is made of.
pub(super) enum Region {
    All,
    Points(Vec<f64>),
    Halves(Vec<Half>),
    Joined(Join, Vec<Region>),
}

impl Region {
    /// The set that a value is, and the variable of the inequalities that it is given by; `None` where it is none.
    pub(super) fn of(value: &Value) -> Option<(Region, Option<&str>)> {
        let between = |ends: [&Expr; 2], closed: [bool; 2]| {
            let [from, to] = [constant(ends[0])?, constant(ends[1])?];
            let is_one = from < to || from == to && closed == [true, true];
            let halves = vec![
                Half(from, Ordering::Greater, closed[0]),
                Half(to, Ordering::Less, closed[1]),
            ];
            is_one.then_some((Region::Halves(halves), None))
        };
        match value {
            Value::Interval([from, to], closed) => between([from, to], *closed),
            Value::Tuple(parts) => match &parts[..] {
                [from, to] => between([from.plain()?, to.plain()?], [false, false]),
                _ => None,
            },
            Value::Reals => Some((Region::All, None)),
            Value::Set(parts) => Some((points(parts)?, None)),
            Value::Joined(join, both) => {
                let parts: Option<_> = both.iter().map(|part| Some(Region::of(part)?.0)).collect();
                Some((Region::Joined(*join, parts?), None))
            }
            Value::Relation(sides, orders) if orders[0] != Order::Equal => {
                inequality(sides, orders)
            }
            Value::List(parts, is_or) => {
                let is_relation = |part: &Value| matches!(part, Value::Relation(..));
                let parts = parts
                    .iter()
                    .map(|part| Region::of(part).filter(|_| is_relation(part)));
                let (parts, names): (Vec<_>, Vec<_>) =
                    parts.collect::<Option<Vec<_>>>()?.into_iter().unzip();
                let join = if *is_or {
                    Join::Union
                } else {
                    Join::Intersection
                };
                let is_one = names.windows(2).all(|pair| pair[0] == pair[1]);
                is_one.then_some((Region::Joined(join, parts), names[0]))
            }
            _ => None,
        }
    }

    fn ends(&self, ends: &mut Vec<f64>) {
        match self {
            Region::All => {}
            Region::Points(points) => ends.extend(points),
            Region::Halves(halves) => ends.extend(halves.iter().map(|half| half.0)),
            Region::Joined(_, parts) => parts.iter().for_each(|part| part.ends(ends)),
        }
    }

    fn has(&self, x: f64) -> bool {
        match self {
            Region::All => true,
            Region::Points(points) => points.iter().any(|point| order(x, *point).is_eq()),
            Region::Halves(halves) => halves.iter().all(|Half(end, side, is_closed)| {
                let order = order(x, *end);
                order == *side || order.is_eq() && *is_closed
            }),
            Region::Joined(Join::Union, parts) => parts.iter().any(|part| part.has(x)),
            Region::Joined(Join::Intersection, parts) => parts.iter().all(|part| part.has(x)),
            Region::Joined(Join::Difference, parts) => parts[0].has(x) && !parts[1].has(x),
        }
    }
}

/// Numbers, one by one.
pub(super) fn points(parts: &[Value]) -> Option<Region> {
    let numbers = parts.iter().map(|part| constant(part.plain()?));
    Some(Region::Points(numbers.collect::<Option<_>>()?))
}

/// The variable of a solved inequality and where it holds: `x > 2`, `1 < x < 2`.
fn inequality<'v>(sides: &'v [Value], orders: &[Order]) -> Option<(Region, Option<&'v str>)> {
    let variable = |side: &'v Value| match side.plain() {
        Some(Expr::Variable(name)) => Some(name.as_str()),
        _ => None,
    };
    let at = sides.iter().position(|side| variable(side).is_some())?;
    let mut parts = Vec::new();
    for (index, order) in orders.iter().enumerate() {
        let is_left = index == at;
        if !is_left && index + 1 != at {
            return None;
        }
        let bound = constant(sides[if is_left { at + 1 } else { at - 1 }].plain()?)?;
        let is_closed = matches!(order, Order::LessOrEqual | Order::GreaterOrEqual);
        let side = match order {
            Order::Less | Order::LessOrEqual => Ordering::Less,
            Order::Greater | Order::GreaterOrEqual => Ordering::Greater,
            Order::Unequal => {
                let but = vec![Region::All, Region::Points(vec![bound])];
                parts.push(Region::Joined(Join::Difference, but));
                continue;
            }
            _ => return None,
        };
        let side = if is_left { side } else { side.reverse() };
        parts.push(Region::Halves(vec![Half(bound, side, is_closed)]));
    }
    Some((
        Region::Joined(Join::Intersection, parts),
        variable(&sides[at]),
    ))
}

/// Whether two sets have the same points: at all ends, between them, and beyond.
pub(super) fn same(a: &Region, b: &Region) -> bool {
    let mut ends = Vec::new();
    a.ends(&mut ends);
    b.ends(&mut ends);
    ends.retain(|end| end.is_finite());
    ends.sort_by(f64::total_cmp);
    ends.dedup_by(|a, b| order(*a, *b).is_eq());
    let least = ends.first().map_or(0.0, |end| end - end.abs() - 1.0);
    let most = ends.last().map_or(0.0, |end| end + end.abs() + 1.0);
    let middles = ends.windows(2).map(|pair| pair[0] / 2.0 + pair[1] / 2.0);
    let mut points = ends.iter().copied().chain(middles).chain([least, most]);
    points.all(|x| a.has(x) == b.has(x))
}
