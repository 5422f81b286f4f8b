//! Whether two answers are the same.

mod numbers;

use super::expr::{Expr, Symbol};
use super::number::{self, constant, value};
use super::region::{self, is_region};
use Symbol::{Equal, Less, LessOrEqual, List, Or, Percent, Set, Tuple, Unequal};
use numbers::{at_points, numbers};

/// Longer lists are compared in their order alone.
const LONGEST: usize = 64;

/// Whether an answer is what the gold is; `None` where that cannot be decided.
pub(super) fn same(gold: &Expr, answer: &Expr) -> Option<bool> {
    if gold == answer {
        return Some(true);
    }
    let is_relation =
        |expr: &Expr| matches!(expr.symbol(), Some(Equal | Unequal | Less | LessOrEqual));
    match (gold.symbol(), answer.symbol()) {
        (Some(Symbol::Based(base)), Some(Symbol::Based(other))) => {
            let value = |expr: &Expr, base| u128::from_str_radix(digits(expr), base).ok();
            let values = value(gold, base).zip(value(answer, other));
            Some(values.is_some_and(|(a, b)| a == b))
        }
        (Some(Symbol::Based(_)), _) => is_written(answer, digits(gold)),
        (_, Some(Symbol::Based(_))) => is_written(gold, digits(answer)),
        // The letter is a part of an inequality.
        _ if is_relation(gold) && is_relation(answer) => {
            relations(gold, answer).or_else(|| regions(gold, answer))
        }
        _ if assigned(gold).is_some() => same(assigned(gold)?, answer),
        _ if assigned(answer).is_some() => same(gold, assigned(answer)?),
        _ if is_quantity(gold) && is_quantity(answer) => quantities(gold, answer),
        _ => regions(gold, answer).or_else(|| structures(gold, answer)),
    }
}

fn digits(based: &Expr) -> &str {
    match based.parts() {
        [Expr::Name(digits)] => digits,
        _ => "",
    }
}

/// Whether a number is written with the digits.
fn is_written(expr: &Expr, digits: &str) -> Option<bool> {
    Some(constant(expr)?.exact()?.to_string() == digits)
}

/// All of them; undecided where none is false and one is undecided.
fn all(verdicts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut is_decided = true;
    for verdict in verdicts {
        match verdict {
            Some(true) => {}
            Some(false) => return Some(false),
            None => is_decided = false,
        }
    }
    is_decided.then_some(true)
}

/// What a name is said to be: the right side of `x = 5`, `f(x) = 2x`.
fn assigned(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Node(Equal, sides) if sides[0].is_name() => Some(&sides[1]),
        _ => None,
    }
}

fn is_quantity(expr: &Expr) -> bool {
    expr.is_plain() || matches!(expr, Expr::Measured(..) | Expr::Node(Percent, _))
}

fn quantities(gold: &Expr, answer: &Expr) -> Option<bool> {
    match (gold, answer) {
        (Expr::Measured(_, unit), Expr::Measured(_, other)) if unit != other => Some(false),
        (Expr::Measured(gold, _), Expr::Measured(answer, _)) => quantities(gold, answer),
        (Expr::Measured(gold, _), answer) => quantities(gold, answer),
        (gold, Expr::Measured(answer, _)) => quantities(gold, answer),
        (Expr::Node(Percent, gold), Expr::Node(Percent, answer)) => numbers(&gold[0], &answer[0]),
        (Expr::Node(Percent, gold), answer) => {
            either_way(&gold[0], numbers(&hundredth(&gold[0]), answer), || {
                numbers(&gold[0], answer)
            })
        }
        (gold, Expr::Node(Percent, answer)) => {
            either_way(gold, numbers(gold, &hundredth(&answer[0])), || {
                numbers(gold, &answer[0])
            })
        }
        (gold, answer) => numbers(gold, answer),
    }
}

fn hundredth(expr: &Expr) -> Expr {
    number::folded(expr.clone().over(Expr::integer(100)))
}

/// A percent sign is a hundredth, or, from 1 on, as good as a unit.
fn either_way(
    gold: &Expr,
    by_value: Option<bool>,
    bare: impl Fn() -> Option<bool>,
) -> Option<bool> {
    let is_large = || region::end(gold).is_some_and(|value| value.abs() >= 1.0);
    if by_value != Some(true) && is_large() {
        bare()
    } else {
        by_value
    }
}

/// As sets of points, where one of the two is more than a tuple or a list of numbers.
fn regions(gold: &Expr, answer: &Expr) -> Option<bool> {
    if !is_region(gold) && !is_region(answer) {
        return None;
    }
    // The list `1, 2, 3` may be the union of two sets.
    let is_list = |expr: &Expr| matches!(expr.symbol(), Some(List | Or)) && !is_region(expr);
    let is_joined = |expr: &Expr| {
        use Symbol::*;
        matches!(expr.symbol(), Some(Union | Intersection | Difference | Set))
    };
    if is_list(gold) && !is_joined(answer) || is_list(answer) && !is_joined(gold) {
        return Some(false);
    }
    region::same(gold, answer)
}

fn structures(gold: &Expr, answer: &Expr) -> Option<bool> {
    let is_list = |symbol| matches!(symbol, List | Or);
    let (Some(a), Some(b)) = (gold.symbol(), answer.symbol()) else {
        return match (gold, answer) {
            (Expr::Node(Set, one), other) if one.len() == 1 => same(&one[0], other),
            (other, Expr::Node(Set, one)) if one.len() == 1 => same(other, &one[0]),
            _ => Some(false),
        };
    };
    let (golds, answers) = (gold.parts(), answer.parts());
    match (a, b) {
        (a, b) if is_list(a) && is_list(b) => lists(golds, answers),
        (a, b) if (a == Set || is_list(a)) && (b == Set || is_list(b)) => {
            sets(&unnamed(golds), &unnamed(answers))
        }
        (Set, _) if golds.len() == 1 => same(&golds[0], answer),
        (_, Set) if answers.len() == 1 => same(gold, &answers[0]),
        (a, b) if (a == Tuple || is_list(a)) && (b == Tuple || is_list(b)) => {
            in_order(&values(golds), &values(answers))
        }
        (a, b) if a == b => in_order(&values(golds), &values(answers)),
        _ => Some(false),
    }
}

/// The names that the values of a list have, each once.
fn names(values: &[Expr]) -> Vec<&Expr> {
    let mut names: Vec<&Expr> = Vec::new();
    for value in values {
        if assigned(value).is_some() && !names.contains(&&value.parts()[0]) {
            names.push(&value.parts()[0]);
        }
    }
    names
}

/// The values without their names.
fn values(values: &[Expr]) -> Vec<&Expr> {
    values
        .iter()
        .map(|value| assigned(value).unwrap_or(value))
        .collect()
}

/// The values of a list; `x = 1, x = 2` without the name that all of them have.
fn unnamed(values: &[Expr]) -> Vec<&Expr> {
    match names(values).len() {
        0 | 1 => self::values(values),
        _ => values.iter().collect(),
    }
}

fn in_order(golds: &[&Expr], answers: &[&Expr]) -> Option<bool> {
    let pairs = golds.iter().zip(answers);
    match golds.len() == answers.len() {
        true => all(pairs.map(|(gold, answer)| same(gold, answer))),
        false => Some(false),
    }
}

fn lists(golds: &[Expr], answers: &[Expr]) -> Option<bool> {
    let (own, other) = (names(golds).len(), names(answers).len());
    if (own > 1) != (other > 1) {
        return match own.min(other) {
            0 => in_order(&values(golds), &values(answers)),
            _ => Some(false),
        };
    }
    let (golds, answers) = (unnamed(golds), unnamed(answers));
    if golds.len() != answers.len() || golds.len() > LONGEST {
        return in_order(&golds, &answers);
    }
    let mut left = answers;
    for gold in golds {
        let found = left
            .iter()
            .position(|answer| same(gold, answer) == Some(true));
        let Some(at) = found else {
            return Some(false);
        };
        left.swap_remove(at);
    }
    Some(true)
}

fn sets(golds: &[&Expr], answers: &[&Expr]) -> Option<bool> {
    if golds.len().max(answers.len()) > LONGEST {
        return None;
    }
    let is_same = |gold: &Expr, answer: &Expr| same(gold, answer) == Some(true);
    let are_golds = |answer: &&Expr| golds.iter().any(|gold| is_same(gold, answer));
    let is_found = |gold: &&Expr| answers.iter().any(|answer| is_same(gold, answer));
    Some(answers.iter().all(are_golds) && golds.iter().all(is_found))
}

/// Two relations: equations whose differences are proportional, inequalities by a positive factor.
fn relations(gold: &Expr, answer: &Expr) -> Option<bool> {
    let (golds, answers) = (gold.parts(), answer.parts());
    if let (Some(a), Some(b)) = (assigned(gold), assigned(answer))
        && golds[0] == answers[0]
    {
        return same(a, b);
    }
    if !golds.iter().chain(answers).all(Expr::is_plain) {
        return None;
    }
    if gold.symbol() != answer.symbol() {
        return Some(false);
    }
    let ratios = at_points(gold, answer, |at| {
        let difference =
            |sides: &[Expr]| Some(value(&sides[0], at)?.real()? - value(&sides[1], at)?.real()?);
        let (a, b) = (difference(golds)?, difference(answers)?);
        (b.abs() > 1e-9).then_some(a / b)
    });
    let first = *ratios.first()?;
    let is_constant = |ratio: &f64| (ratio - first).abs() <= 1e-8 * first.abs();
    let is_directed = matches!(gold.symbol(), Some(Equal | Unequal)) || first > 0.0;
    Some(ratios.iter().all(is_constant) && first != 0.0 && is_directed && ratios.len() > 2)
}
