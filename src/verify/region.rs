//! Sets of real numbers as unions of intervals.

use super::approx;
use super::expr::Expr;
use super::value::{Join, Order, Value};

/// From the first to the second, and which of the two belong to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    ends: [f64; 2],
    closed: [bool; 2],
}

const ALL: Span = Span {
    ends: [f64::NEG_INFINITY, f64::INFINITY],
    closed: [false, false],
};

/// The value of an expression without variables, infinity included.
pub(super) fn constant(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Infinity => Some(f64::INFINITY),
        Expr::Negative(inner) if **inner == Expr::Infinity => Some(f64::NEG_INFINITY),
        expr => {
            let mut variables = 0;
            expr.each_variable(&mut |_| variables += 1);
            let value = (variables == 0).then(|| approx::value(expr, &|_| 0.0))??;
            approx::real(value)
        }
    }
}

/// The spans of a value in their order, none touching the next; `None` where it is no set of reals.
pub(super) fn spans(value: &Value) -> Option<Vec<Span>> {
    let open = |from, to, closed| {
        let is_one = from < to || from == to && closed == [true, true];
        is_one.then(|| {
            vec![Span {
                ends: [from, to],
                closed,
            }]
        })
    };
    let spans = match value {
        Value::Interval([from, to], closed) => open(constant(from)?, constant(to)?, *closed)?,
        Value::Tuple(parts) => match &parts[..] {
            [from, to] => open(
                constant(from.plain()?)?,
                constant(to.plain()?)?,
                [false, false],
            )?,
            _ => return None,
        },
        Value::Reals => vec![ALL],
        Value::Set(points) => {
            let points = points.iter().map(|point| {
                let point = constant(point.plain()?)?;
                Some(Span {
                    ends: [point, point],
                    closed: [true, true],
                })
            });
            points.collect::<Option<Vec<Span>>>()?
        }
        Value::Joined(join, both) => {
            let [a, b] = &**both;
            let (a, b) = (spans_of(a)?, spans_of(b)?);
            match join {
                Join::Union => [a, b].concat(),
                Join::Intersection => intersection(&a, &b),
                Join::Difference => intersection(&a, &complement(&b)),
            }
        }
        Value::Relation(sides, orders) => of_relation(sides, orders)?.1,
        Value::List(parts, is_or) => {
            let parts: Option<Vec<_>> = parts
                .iter()
                .map(|part| match part {
                    Value::Relation(sides, orders) if orders[0] != Order::Equal => {
                        of_relation(sides, orders)
                    }
                    _ => None,
                })
                .collect();
            let parts = parts?;
            if parts.windows(2).any(|pair| pair[0].0 != pair[1].0) {
                return None;
            }
            let parts = parts.into_iter().map(|(_, spans)| spans);
            match is_or {
                true => parts.flatten().collect(),
                false => parts.reduce(|a, b| intersection(&a, &b))?,
            }
        }
        _ => return None,
    };
    Some(merged(spans))
}

fn spans_of(value: &Value) -> Option<Vec<Span>> {
    spans(value)
}

/// The variable of a solved inequality and where it holds: `x > 2`, `1 < x < 2`.
fn of_relation(sides: &[Value], orders: &[Order]) -> Option<(String, Vec<Span>)> {
    let variable = |value: &Value| match value.plain() {
        Some(Expr::Variable(name)) => Some(name.clone()),
        _ => None,
    };
    let at = sides.iter().position(|side| variable(side).is_some())?;
    let name = variable(&sides[at])?;
    let mut spans = vec![ALL];
    for (index, order) in orders.iter().enumerate() {
        let is_left = index == at;
        if !is_left && index + 1 != at {
            return None;
        }
        let bound = constant(sides[if is_left { at + 1 } else { at - 1 }].plain()?)?;
        let closed = matches!(order, Order::LessOrEqual | Order::GreaterOrEqual);
        let is_less = match order {
            Order::Less | Order::LessOrEqual => is_left,
            Order::Greater | Order::GreaterOrEqual => !is_left,
            Order::Unequal => {
                let point = Span {
                    ends: [bound, bound],
                    closed: [true, true],
                };
                spans = intersection(&spans, &complement(&[point]));
                continue;
            }
            _ => return None,
        };
        let part = match is_less {
            true => Span {
                ends: [f64::NEG_INFINITY, bound],
                closed: [false, closed],
            },
            false => Span {
                ends: [bound, f64::INFINITY],
                closed: [closed, false],
            },
        };
        spans = intersection(&spans, &[part]);
    }
    Some((name, spans))
}

fn is_near(a: f64, b: f64) -> bool {
    a == b || a.is_finite() && b.is_finite() && (a - b).abs() <= 1e-10 * a.abs().max(b.abs())
}

/// Sorted, with those that touch put together.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| {
        a.ends[0]
            .total_cmp(&b.ends[0])
            .then(b.closed[0].cmp(&a.closed[0]))
    });
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        if let Some(last) = merged.last_mut() {
            let touches = is_near(last.ends[1], span.ends[0]) && (last.closed[1] || span.closed[0]);
            if touches || span.ends[0] < last.ends[1] {
                if is_near(last.ends[1], span.ends[1]) {
                    last.closed[1] |= span.closed[1];
                } else if span.ends[1] > last.ends[1] {
                    (last.ends[1], last.closed[1]) = (span.ends[1], span.closed[1]);
                }
                continue;
            }
        }
        merged.push(span);
    }
    merged
}

fn intersection(a: &[Span], b: &[Span]) -> Vec<Span> {
    let both = |a: &Span, b: &Span| {
        // The later start and the earlier end; where they are the same, both must have it.
        let pick = |end: usize, first: bool| {
            if a.ends[end] == b.ends[end] {
                (a.ends[end], a.closed[end] && b.closed[end])
            } else if (a.ends[end] > b.ends[end]) == first {
                (a.ends[end], a.closed[end])
            } else {
                (b.ends[end], b.closed[end])
            }
        };
        let ((from, opens), (to, closes)) = (pick(0, true), pick(1, false));
        let span = Span {
            ends: [from, to],
            closed: [opens, closes],
        };
        (from < to || from == to && opens && closes).then_some(span)
    };
    a.iter()
        .flat_map(|a| b.iter().filter_map(move |b| both(a, b)))
        .collect()
}

fn complement(spans: &[Span]) -> Vec<Span> {
    let (mut rest, mut from, mut opens) = (Vec::new(), f64::NEG_INFINITY, false);
    for span in merged(spans.to_vec()) {
        let gap = Span {
            ends: [from, span.ends[0]],
            closed: [opens, !span.closed[0]],
        };
        if gap.ends[0] < gap.ends[1] || gap.ends[0] == gap.ends[1] && gap.closed == [true, true] {
            rest.push(gap);
        }
        (from, opens) = (span.ends[1], !span.closed[1]);
    }
    if from < f64::INFINITY {
        rest.push(Span {
            ends: [from, f64::INFINITY],
            closed: [opens, false],
        });
    }
    rest
}

/// Whether two unions have the same points.
pub(super) fn same(a: &[Span], b: &[Span]) -> bool {
    let is_same = |(a, b): (&Span, &Span)| {
        a.closed == b.closed && is_near(a.ends[0], b.ends[0]) && is_near(a.ends[1], b.ends[1])
    };
    a.len() == b.len() && a.iter().zip(b).all(is_same)
}
