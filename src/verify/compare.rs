//! Whether two values are the same.

mod exprs;

use super::approx;
use super::expr::{Expr, Function, Rational};
use super::region::{self, Region};
use super::value::{Order, Quantity, Value};
use exprs::{at_points, exprs, needs_wholes, variables};

/// Longer lists are compared in their order alone.
const LONGEST: usize = 64;

/// Whether an answer is what the gold is; `None` where that cannot be decided.
pub(super) fn same(gold: &Value, answer: &Value) -> Option<bool> {
    if gold == answer {
        return Some(true);
    }
    match (gold, answer) {
        (Value::Number(gold), Value::Number(answer)) => numbers(gold, answer),
        (Value::Based(digits, base), Value::Based(others, other)) => {
            let value = |digits: &str, base| u128::from_str_radix(digits, base).ok();
            let values = value(digits, *base).zip(value(others, *other));
            Some(values.is_some_and(|(a, b)| a == b))
        }
        (Value::Based(digits, _), other) | (other, Value::Based(digits, _)) => {
            let number = other.plain()?.exact()?;
            Some(number.to_string() == *digits)
        }
        (Value::Matrix(gold), Value::Matrix(answer)) => {
            let has_shape = |rows: &[Vec<Expr>]| (rows.len(), rows[0].len());
            if has_shape(gold) != has_shape(answer) {
                return Some(false);
            }
            let cells = gold.iter().flatten().zip(answer.iter().flatten());
            all(cells.map(|(gold, answer)| exprs(gold, answer)))
        }
        (Value::Relation(sides, orders), Value::Relation(others, other_orders)) => {
            let found = relations((sides, orders), (others, other_orders));
            // The letter is a part of an inequality.
            found.or_else(|| regions(gold, answer))
        }
        (Value::Relation(sides, orders), other) | (other, Value::Relation(sides, orders)) => {
            if let Some(right) = assigned(sides, orders) {
                return match std::ptr::eq(other, answer) {
                    true => same(right, other),
                    false => same(other, right),
                };
            }
            regions(gold, answer).or(Some(false))
        }
        _ => structures(gold, answer),
    }
}

/// All of them; undecided where none is false and one is undecided.
fn all(mut verdicts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut is_decided = true;
    loop {
        match verdicts.next() {
            Some(Some(true)) => {}
            Some(Some(false)) => return Some(false),
            Some(None) => is_decided = false,
            None => return is_decided.then_some(true),
        }
    }
}

/// What a name is said to be: the right side of `x = 5`, `f(x) = 2x`.
fn assigned<'v>(sides: &'v [Value], orders: &[Order]) -> Option<&'v Value> {
    if orders != [Order::Equal] {
        return None;
    }
    name(&sides[0]).map(|_| &sides[1])
}

fn name(value: &Value) -> Option<&Expr> {
    let letter = |expr: &Expr| matches!(expr, Expr::Variable(_) | Expr::E | Expr::I);
    value.plain().filter(|expr| match expr {
        Expr::Product(parts) | Expr::Call(Function::Named(_), parts) => parts.iter().all(letter),
        expr => letter(expr),
    })
}

fn structures(gold: &Value, answer: &Value) -> Option<bool> {
    if let Some(is_same) = regions(gold, answer) {
        return Some(is_same);
    }
    let in_order = |gold: &[Value], answer: &[Value]| {
        if gold.len() != answer.len() {
            return Some(false);
        }
        all(gold
            .iter()
            .zip(answer)
            .map(|(gold, answer)| same(gold, answer)))
    };
    match (gold, answer) {
        (Value::List(golds, _), Value::List(answers, _)) => {
            let (own, other) = (names(golds), names(answers));
            if own != Names::Several && other == Names::Several
                || own == Names::Several && other != Names::Several
            {
                return match own == Names::None || other == Names::None {
                    true => in_order(&values(golds), &values(answers)),
                    false => Some(false),
                };
            }
            let (golds, answers) = (unnamed(golds), unnamed(answers));
            match golds.len() == answers.len() && golds.len() <= LONGEST {
                true => any_order(&golds, &answers),
                false => in_order(&golds, &answers),
            }
        }
        (Value::Tuple(golds), Value::Tuple(answers)) => in_order(golds, answers),
        (Value::Tuple(golds), Value::List(answers, _)) => in_order(golds, &values(answers)),
        (Value::List(golds, _), Value::Tuple(answers)) => in_order(&values(golds), answers),
        (Value::Set(golds), Value::Set(answers)) => sets(golds, answers),
        (Value::Set(golds), Value::List(answers, _)) => sets(golds, &unnamed(answers)),
        (Value::List(golds, _), Value::Set(answers)) => sets(&unnamed(golds), answers),
        (Value::Set(one), other) | (other, Value::Set(one)) if one.len() == 1 => {
            match std::ptr::eq(other, answer) {
                true => same(&one[0], other),
                false => same(other, &one[0]),
            }
        }
        (Value::Interval(golds, closed), Value::Interval(answers, others)) => {
            if closed != others {
                return Some(false);
            }
            all(golds
                .iter()
                .zip(answers)
                .map(|(gold, answer)| exprs(gold, answer)))
        }
        (Value::Joined(join, golds), Value::Joined(other, answers)) if join == other => all(golds
            .iter()
            .zip(&**answers)
            .map(|(gold, answer)| same(gold, answer))),
        _ => Some(false),
    }
}

/// As sets of points, where one of the two is more than a tuple or a list of numbers.
fn regions(gold: &Value, answer: &Value) -> Option<bool> {
    let is_region = |value: &Value| match value {
        Value::Interval(..) | Value::Reals | Value::Joined(..) => true,
        Value::Relation(_, orders) => orders[0] != Order::Equal,
        Value::List(parts, _) => parts
            .iter()
            .all(|part| matches!(part, Value::Relation(_, orders) if orders[0] != Order::Equal)),
        _ => false,
    };
    if !is_region(gold) && !is_region(answer) {
        return None;
    }
    // The list `1, 2, 3` may be the union of two sets.
    let of = |value: &Value| match value {
        Value::List(parts, _) if !is_region(value) => region::points(parts),
        value => Some(Region::of(value)?.0),
    };
    let is_joined = |value: &Value| matches!(value, Value::Joined(..) | Value::Set(_));
    let is_list = |value: &Value| matches!(value, Value::List(..)) && !is_region(value);
    if is_list(gold) && !is_joined(answer) || is_list(answer) && !is_joined(gold) {
        return Some(false);
    }
    Some(region::same(&of(gold)?, &of(answer)?))
}

/// How many names the values of a list have together.
#[derive(PartialEq)]
enum Names {
    None,
    One,
    Several,
}

fn names(values: &[Value]) -> Names {
    let mut names = values.iter().filter_map(|value| match value {
        Value::Relation(sides, orders) if orders[..] == [Order::Equal] => name(&sides[0]),
        _ => None,
    });
    match names.next() {
        None => Names::None,
        Some(first) if names.all(|name| name == first) => Names::One,
        Some(_) => Names::Several,
    }
}

/// The values of a list; `x = 1, x = 2` without the name that all of them have.
fn unnamed(values: &[Value]) -> Vec<Value> {
    match names(values) {
        Names::Several => values.to_vec(),
        _ => self::values(values),
    }
}

/// The values without their names.
fn values(values: &[Value]) -> Vec<Value> {
    let value = |value: &Value| match value {
        Value::Relation(sides, orders) => assigned(sides, orders).unwrap_or(value).clone(),
        value => value.clone(),
    };
    values.iter().map(value).collect()
}

fn any_order(golds: &[Value], answers: &[Value]) -> Option<bool> {
    let mut left: Vec<&Value> = answers.iter().collect();
    for gold in golds {
        let Some(at) = left
            .iter()
            .position(|answer| same(gold, answer) == Some(true))
        else {
            return Some(false);
        };
        left.swap_remove(at);
    }
    Some(left.is_empty())
}

fn sets(golds: &[Value], answers: &[Value]) -> Option<bool> {
    if golds.len().max(answers.len()) > LONGEST {
        return None;
    }
    let within = |some: &[Value], others: &[Value]| {
        let is_in = |one: &Value| others.iter().any(|other| same(other, one) == Some(true));
        some.iter().all(is_in)
    };
    let is_same = within(golds, answers)
        && answers
            .iter()
            .all(|answer| golds.iter().any(|gold| same(gold, answer) == Some(true)));
    Some(is_same)
}

fn numbers(gold: &Quantity, answer: &Quantity) -> Option<bool> {
    if !gold.unit.is_empty() && !answer.unit.is_empty() && gold.unit != answer.unit {
        return Some(false);
    }
    if gold.is_percent == answer.is_percent {
        return exprs(&gold.expr, &answer.expr);
    }
    let hundredth = |expr: &Expr| match expr.exact() {
        Some(value) => Expr::Number(value / Rational::from_integer(100.into()), None),
        None => expr.clone().over(Expr::integer(100)),
    };
    let by_value = match gold.is_percent {
        true => exprs(&hundredth(&gold.expr), &answer.expr),
        false => exprs(&gold.expr, &hundredth(&answer.expr)),
    };
    if by_value == Some(true) {
        return by_value;
    }
    let is_large = region::constant(&gold.expr).is_some_and(|value| value.abs() >= 1.0);
    match is_large {
        true => exprs(&gold.expr, &answer.expr),
        false => by_value,
    }
}

type Sides<'v> = (&'v [Value], &'v [Order]);

/// Two relations: equations whose differences are proportional, inequalities by a positive factor.
fn relations(gold: Sides<'_>, answer: Sides<'_>) -> Option<bool> {
    if let (Some(a), Some(b)) = (assigned(gold.0, gold.1), assigned(answer.0, answer.1))
        && name(&gold.0[0]) == name(&answer.0[0])
    {
        return same(a, b);
    }
    if gold.1.len() > 1 || answer.1.len() > 1 {
        let is_same = gold.1 == answer.1 && gold.0.len() == answer.0.len();
        let pairs = || gold.0.iter().zip(answer.0);
        let verdict = is_same
            .then(|| all(pairs().map(|(a, b)| same(a, b))))
            .flatten();
        return verdict.or(Some(false));
    }
    // As a difference that is positive, not negative, zero or not zero.
    let difference = |(sides, orders): Sides<'_>| {
        let (left, right) = (sides[0].plain()?.clone(), sides[1].plain()?.clone());
        let (more, less, order) = match orders[0] {
            Order::Less => (right, left, Order::Greater),
            Order::LessOrEqual => (right, left, Order::GreaterOrEqual),
            order => (left, right, order),
        };
        Some((Expr::Sum(vec![more, less.negated()]), order))
    };
    let ((a, order), (b, other)) = (difference(gold)?, difference(answer)?);
    if order != other {
        return Some(false);
    }
    let names = variables([&a, &b]);
    let ratios = at_points(&names, needs_wholes(&a) || needs_wholes(&b), |at| {
        let (a, b) = (
            approx::real(approx::value(&a, at)?)?,
            approx::real(approx::value(&b, at)?)?,
        );
        (b.abs() > 1e-9).then_some(a / b)
    });
    let first = *ratios.first()?;
    let is_constant = ratios
        .iter()
        .all(|ratio| (ratio - first).abs() <= 1e-8 * first.abs());
    let is_directed = matches!(order, Order::Equal | Order::Unequal) || first > 0.0;
    Some(is_constant && first != 0.0 && is_directed && ratios.len() > 2)
}
