//! Whether two answers are the same.

mod numbers;

use super::expr::{Expr, Symbol};
use super::region;
use super::value::value;
use super::work;
use Symbol::{List, Measured, Or, Percent, Relation, Set, Tuple};
use numbers::{at_points, numbers};

/// Longer lists are compared in their order alone.
const LONGEST: usize = 64;

/// Whether an answer is what the gold is; `None` where that cannot be decided.
pub(super) fn same(gold: &Expr, answer: &Expr) -> Option<bool> {
    if gold == answer {
        return Some(true);
    }
    work::look(100)?;
    match (gold, answer) {
        // The letter is a part of an inequality.
        (Expr::Node(Relation(_), _), Expr::Node(Relation(_), _)) => {
            relations(gold, answer).or_else(|| region::same(gold, answer))
        }
        _ if assigned(gold).is_some() => same(assigned(gold)?.1, answer),
        _ if assigned(answer).is_some() => same(gold, assigned(answer)?.1),
        _ if is_quantity(gold) && is_quantity(answer) => quantities(gold, answer),
        _ => region::same(gold, answer).or_else(|| structures(gold, answer)),
    }
}

/// A name and what it is said to be: `x = 5`, `f(x) = 2x`.
fn assigned(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::Node(Relation("="), sides) if sides[0].is_name() => Some((&sides[0], &sides[1])),
        _ => None,
    }
}

fn is_quantity(expr: &Expr) -> bool {
    expr.is_plain() || matches!(expr.symbol(), Some(Measured(_) | Percent))
}

fn quantities(gold: &Expr, answer: &Expr) -> Option<bool> {
    match (gold, answer) {
        (Expr::Node(Measured(a), _), Expr::Node(Measured(b), _)) if a != b => Some(false),
        (Expr::Node(Measured(_), gold), _) => quantities(&gold[0], answer),
        (_, Expr::Node(Measured(_), answer)) => quantities(gold, &answer[0]),
        (Expr::Node(Percent, a), Expr::Node(Percent, b)) => numbers(&a[0], &b[0]),
        (Expr::Node(Percent, a), _) => percent(&a[0], |gold| numbers(gold, answer)),
        (_, Expr::Node(Percent, b)) => percent(&b[0], |answer| numbers(gold, answer)),
        _ => numbers(gold, answer),
    }
}

/// A percent sign is a hundredth, or, from 1 on, as good as a unit.
fn percent(number: &Expr, is_same: impl Fn(&Expr) -> Option<bool>) -> Option<bool> {
    let by_value = is_same(&number.clone().over(Expr::integer(100)));
    let is_large = || region::end(number).is_some_and(|value| value.abs() >= 1.0);
    match by_value {
        Some(true) => by_value,
        _ if is_large() => is_same(number),
        _ => by_value,
    }
}

fn structures(gold: &Expr, answer: &Expr) -> Option<bool> {
    let (golds, answers) = (gold.parts(), answer.parts());
    let (a, b) = (gold.symbol(), answer.symbol());
    match (a, b) {
        (Some(List | Or), Some(List | Or)) => lists(golds, answers),
        (Some(Set | List | Or), Some(Set | List | Or)) => sets(&unnamed(golds), &unnamed(answers)),
        (Some(Set), _) if golds.len() == 1 => same(&golds[0], answer),
        (_, Some(Set)) if answers.len() == 1 => same(gold, &answers[0]),
        (Some(Tuple | List | Or), Some(Tuple | List | Or)) => in_order(golds, answers),
        (Some(a), Some(b)) if a == b => in_order(golds, answers),
        _ => Some(false),
    }
}

/// Whether the values of a list have several names.
fn have_names(values: &[Expr]) -> bool {
    let mut names = values.iter().filter_map(assigned).map(|(name, _)| name);
    let first = names.next();
    names.any(|name| Some(name) != first)
}

/// The values of a list; `x = 1, x = 2` without the name that all of them have.
fn unnamed(values: &[Expr]) -> Vec<Expr> {
    let value = |value| assigned(value).map_or(value, |(_, value)| value);
    match have_names(values) {
        true => values.to_vec(),
        false => values.iter().map(value).cloned().collect(),
    }
}

/// All of them, each with its own; undecided where none is false and one is undecided.
fn in_order(golds: &[Expr], answers: &[Expr]) -> Option<bool> {
    if golds.len() != answers.len() {
        return Some(false);
    }
    let mut is_decided = true;
    for (gold, answer) in golds.iter().zip(answers) {
        match same(gold, answer) {
            Some(false) => return Some(false),
            verdict => is_decided &= verdict.is_some(),
        }
    }
    is_decided.then_some(true)
}

/// In any order, but with several names on one side alone in that of the names.
fn lists(golds: &[Expr], answers: &[Expr]) -> Option<bool> {
    let is_bare = |values: &[Expr]| values.iter().all(|value| assigned(value).is_none());
    let has_order = have_names(golds) != have_names(answers);
    if has_order && !is_bare(golds) && !is_bare(answers) {
        return Some(false);
    }
    if has_order || golds.len() != answers.len() || golds.len() > LONGEST {
        return in_order(golds, answers);
    }
    let (golds, mut left) = (unnamed(golds), unnamed(answers));
    let is_found = |gold: &Expr| {
        let at = left
            .iter()
            .position(|answer| same(gold, answer) == Some(true));
        at.map(|at| left.swap_remove(at)).is_some()
    };
    Some(golds.iter().all(is_found))
}

fn sets(golds: &[Expr], answers: &[Expr]) -> Option<bool> {
    if golds.len().max(answers.len()) > LONGEST {
        return None;
    }
    let is_same = |gold: &Expr, answer: &Expr| same(gold, answer) == Some(true);
    let are_golds = |answer: &Expr| golds.iter().any(|gold| is_same(gold, answer));
    let is_found = |gold: &Expr| answers.iter().any(|answer| is_same(gold, answer));
    Some(answers.iter().all(are_golds) && golds.iter().all(is_found))
}

/// Two relations: equations whose differences are proportional, inequalities by a positive factor.
fn relations(gold: &Expr, answer: &Expr) -> Option<bool> {
    let (golds, answers) = (gold.parts(), answer.parts());
    if let (Some((name, a)), Some((other, b))) = (assigned(gold), assigned(answer))
        && name == other
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
    let is_directed = matches!(gold.symbol(), Some(Relation("=" | "\\neq"))) || first > 0.0;
    Some(ratios.iter().all(is_constant) && first != 0.0 && is_directed && ratios.len() > 2)
}
