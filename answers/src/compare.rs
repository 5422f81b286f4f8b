//! Decides whether two answers are the same.

mod numbers;

use super::expr::{Expr, Symbol};
use super::intervals;
use super::number::look;
use super::value::value;
use Symbol::{List, Measured, Or, Percent, Relation, Set, Tuple};
use numbers::{at_points, numbers};

/// The maximum length of a list that is compared in any order. A larger set equals only a set that is written alike.
const LONGEST: usize = 64;

/// Returns whether an answer equals the gold answer; `None` if that cannot be decided.
pub(super) fn same(gold: &Expr, answer: &Expr) -> Option<bool> {
    if gold == answer {
        return Some(true);
    }
    look(100)?;
    if let (Relation(_), Relation(_)) = (&gold.symbol, &answer.symbol) {
        // Two relations are compared as relations. Below, at most one of the answers is a relation, and its `x =` is dropped.
        return relations(gold, answer).or_else(|| intervals::same(gold, answer));
    }
    if let Some((_, gold)) = assigned(gold) {
        return same(gold, answer);
    }
    if let Some((_, answer)) = assigned(answer) {
        return same(gold, answer);
    }
    // An equation that always holds, such as `2x + 3x = 5x`, gives its last side.
    if let (Relation("="), [first, last]) = (&answer.symbol, &answer.parts[..])
        && same(first, last) == Some(true)
    {
        return same(gold, last);
    }
    if is_quantity(gold) && is_quantity(answer) {
        return quantities(gold, answer);
    }
    intervals::same(gold, answer).or_else(|| structures(gold, answer))
}

/// Returns the name and the value of an equation such as `x = 5` or `f(x) = 2x`.
fn assigned(expr: &Expr) -> Option<(&Expr, &Expr)> {
    let is_assigned = expr.symbol == Relation("=") && expr.parts[0].is_name();
    is_assigned.then(|| (&expr.parts[0], &expr.parts[1]))
}

fn is_quantity(expr: &Expr) -> bool {
    expr.is_plain() || matches!(expr.symbol, Measured(_) | Percent)
}

fn quantities(gold: &Expr, answer: &Expr) -> Option<bool> {
    let (golds, answers) = (&gold.parts, &answer.parts);
    match (&gold.symbol, &answer.symbol) {
        (Measured(a), Measured(b)) if a != b => Some(false),
        (Measured(_), _) => quantities(&golds[0], answer),
        (_, Measured(_)) => quantities(gold, &answers[0]),
        (Percent, Percent) => numbers(&golds[0], &answers[0]),
        (Percent, _) => percent(&golds[0], |gold| numbers(gold, answer)),
        (_, Percent) => percent(&answers[0], |answer| numbers(gold, answer)),
        _ => numbers(gold, answer),
    }
}

/// Compares a percentage with another number: `50%` equals 0.5 and also 50, because some references omit the percent sign. A
/// percentage below 1 % equals only its value.
fn percent(number: &Expr, is_same: impl Fn(&Expr) -> Option<bool>) -> Option<bool> {
    let by_value = is_same(&number.clone().over(Expr::integer(100)));
    let is_large = || intervals::end(number).is_some_and(|value| value.abs() >= 1.0);
    if by_value != Some(true) && is_large() {
        is_same(number)
    } else {
        by_value
    }
}

fn structures(gold: &Expr, answer: &Expr) -> Option<bool> {
    let (golds, answers) = (&gold.parts[..], &answer.parts[..]);
    match (&gold.symbol, &answer.symbol) {
        (List | Or, List | Or) => lists(golds, answers),
        (Set | List | Or, Set | List | Or) => sets(&unnamed(golds), &unnamed(answers)),
        (Set, _) if golds.len() == 1 => same(&golds[0], answer),
        (_, Set) if answers.len() == 1 => same(gold, &answers[0]),
        (Tuple | List | Or, Tuple | List | Or) => in_order(golds, answers),
        // All values are compared, because `1/2 or 0.5` names one value twice.
        (Or, _) => all(golds.iter().map(|gold| same(gold, answer))),
        (_, Or) => all(answers.iter().map(|answer| same(gold, answer))),
        (a, b) if a == b => in_order(golds, answers),
        _ => Some(false),
    }
}

fn names(values: &[Expr]) -> impl Iterator<Item = &Expr> {
    values.iter().filter_map(assigned).map(|(name, _)| name)
}

/// Returns whether the values of a list have different names, as in `x = 1, y = 2`.
fn have_names(values: &[Expr]) -> bool {
    let first = names(values).next();
    names(values).any(|name| Some(name) != first)
}

/// Returns the unknown whose roots a list gives: `x` for `x_1 = 1, x_2 = 2` and for `x = 1, 2`.
fn unknown(values: &[Expr]) -> Option<&str> {
    let mut unknowns = names(values).map(|name| name.variable()?.split('_').next());
    let first = unknowns.next()??;
    unknowns.all(|own| own == Some(first)).then_some(first)
}

/// Returns the values of a list without their names.
fn bare(values: &[Expr]) -> Vec<Expr> {
    let bare = |value| assigned(value).map_or(value, |(_, bare)| bare);
    values.iter().map(bare).cloned().collect()
}

/// Returns the values of a list, without their names if all names are the same, as in `x = 1, x = 2`.
fn unnamed(values: &[Expr]) -> Vec<Expr> {
    if have_names(values) {
        values.to_vec()
    } else {
        bare(values)
    }
}

fn in_order(golds: &[Expr], answers: &[Expr]) -> Option<bool> {
    if golds.len() != answers.len() {
        return Some(false);
    }
    let pairs = golds.iter().zip(answers);
    all(pairs.map(|(gold, answer)| same(gold, answer)))
}

/// Returns false if a verdict is false; otherwise `None` if a verdict is undecided; otherwise true.
fn all(mut verdicts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut verdict = Some(true);
    let is_different = verdicts.any(|own| {
        verdict = verdict.and(own);
        own == Some(false)
    });
    if is_different { Some(false) } else { verdict }
}

/// Compares two lists in any order, or in the given order if they have more than [`LONGEST`] elements. If only one list has
/// values with different names, and the lists do not give roots of the same unknown, they are compared in the given order if
/// the other list has no names, and differ otherwise.
fn lists(golds: &[Expr], answers: &[Expr]) -> Option<bool> {
    let has_order = have_names(golds) != have_names(answers);
    if has_order && unknown(golds).is_some() && unknown(golds) == unknown(answers) {
        return lists(&bare(golds), &bare(answers));
    }
    if has_order && [golds, answers].map(|own| names(own).next().is_some()) == [true; 2] {
        return Some(false);
    }
    if has_order || golds.len() != answers.len() || golds.len() > LONGEST {
        return in_order(golds, answers);
    }
    let (golds, mut left) = (unnamed(golds), unnamed(answers));
    Some(golds.iter().all(|gold| {
        let mut left_over = left.iter();
        let at = left_over.position(|answer| same(gold, answer) == Some(true));
        at.map(|at| left.swap_remove(at)).is_some()
    }))
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

/// Compares two relations. If both give a value to the same name, as `x = 5` does, the values are compared. Otherwise the
/// relations are the same if the differences of their sides are proportional, with a positive factor for `<` and `\leq`.
fn relations(gold: &Expr, answer: &Expr) -> Option<bool> {
    if let (Some((name, a)), Some((other, b))) = (assigned(gold), assigned(answer))
        && name == other
    {
        return same(a, b);
    }
    if !gold.parts.iter().chain(&answer.parts).all(Expr::is_plain) {
        return None;
    }
    if gold.symbol != answer.symbol {
        return Some(false);
    }
    let ratios = at_points(gold, answer, |at| {
        let side = |side: &Expr| value(side, at)?.real();
        let difference = |sides: &[Expr]| Some(side(&sides[0])? - side(&sides[1])?);
        let (a, b) = (difference(&gold.parts)?, difference(&answer.parts)?);
        (b.abs() > 1e-9).then_some(a / b)
    });
    look(1)?;
    let first = *ratios.first()?;
    let is_constant = |ratio: &f64| (ratio - first).abs() <= 1e-8 * first.abs();
    let is_directed = matches!(gold.symbol, Relation("=" | "\\neq")) || first > 0.0;
    Some(ratios.iter().all(is_constant) && first != 0.0 && is_directed && ratios.len() > 2)
}
