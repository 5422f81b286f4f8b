//! Compares two recipes, or two versions of a recipe, on a batch.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Point, Trial, accuracies, members, title};
use crate::Result;
use crate::number_text::{counted, share, value};
use crate::paint::Paint;
use crate::report::Report;
use advlab::Batch;
use advlab::script::{Computed, Outcome, Recipe, Statistics};
use advlab::tensor::Level;

/// A difference of at most this fraction of the largest |A| counts as a rounding error.
pub(super) const ROUNDING: f64 = 1e-12;

/// The rows are the accuracies if all groups have one size of at most `EXACT`, and otherwise `PARTS` ranges and the accuracy 1.
const EXACT: usize = 16;
const PARTS: usize = 8;

/// Reports where and how much two recipes differ on a batch.
pub fn report(a: &Recipe, b: &Recipe, batch: &Batch, paint: Paint) -> Result<Report> {
    let mut report = Report::new(paint);
    for (letter, recipe) in [("  a", a), ("  b", b)] {
        report.row(letter, 5, &paint.bold(&title(recipe)));
    }
    let [a, b] = [Trial::of(a, batch)?, Trial::of(b, batch)?];
    if let Some(note) = a.note.or(b.note) {
        report.note(&note);
    }
    let outcomes = [a.outcome, b.outcome];
    let rounding = overall(&outcomes, &mut report);
    if let Some(correct) = outcomes.iter().find_map(|outcome| outcome.correct.as_ref()) {
        report.line("");
        by_accuracy(&outcomes, correct, rounding, &mut report);
    }
    Ok(report)
}

/// Compares all values, per token if either advantage is per token. Returns the largest difference that counts as a rounding
/// error.
fn overall(outcomes: &[Outcome; 2], report: &mut Report) -> f64 {
    let is_token = |outcome: &Outcome| outcome.advantage.level() == Level::Token;
    let (level, [a, b]) = match outcomes.iter().any(is_token) {
        true => {
            let values = |outcome: &Outcome| outcome.advantage.per_token().collect();
            (Level::Token, outcomes.each_ref().map(values))
        }
        false => (Level::Response, by_response(outcomes)),
    };
    let sizes = a.iter().chain(&b).map(|x: &f64| x.abs());
    let rounding = ROUNDING * sizes.fold(0.0, f64::max);
    // Rounding errors count as 0; a NaN differs from a number.
    let gap = |(a, b): (&f64, &f64)| match (a - b).abs() {
        gap if gap.is_nan() => f64::from(u8::from(a.is_nan() != b.is_nan())),
        gap if gap <= rounding => 0.0,
        gap => gap,
    };
    let gaps: Vec<f64> = a.iter().zip(&b).map(gap).collect();
    let all = gaps.len();
    let moved = gaps.iter().filter(|gap| **gap > 0.0).count();
    let largest = gaps.iter().copied().fold(0.0, f64::max);
    let Some(farthest) = gaps.iter().position(|gap| moved > 0 && *gap == largest) else {
        let beyond = if a == b { "" } else { " beyond rounding" };
        let values = counted(all, level.name());
        report.line(format!("no difference{beyond} on any of the {values}"));
        report.about = json!({ "level": level.name(), "values": all, "differ": 0.0, "mean": 0.0, "same_sign": 1.0 });
        return rounding;
    };
    let ones = vec![1.0; all];
    let same_sign = signs(&a, &b, &ones, rounding)[0] as usize;
    let mean = gaps.iter().sum::<f64>() / all as f64;
    let correlation = Statistics::correlation(&a, &b, &ones);
    let part = |number: usize| number as f64 / all as f64;
    report.about = json!({
        "level": level.name(), "values": all, "differ": part(moved), "mean": mean, "same_sign": part(same_sign),
        "correlation": correlation, "most": { "index": farthest, "a": a[farthest], "b": b[farthest] },
    });
    let (moved, same_sign) = (share(moved, all), share(same_sign, all));
    let correlation = correlation.map_or(String::new(), |r| format!(", correlation {r:.3}"));
    let place = outcomes[0].advantage.layout().describe(level, farthest);
    let [mean, a, b] = [mean, a[farthest], b[farthest]].map(value);
    let differ = format!("{moved} of the {level}s differ, by {mean} on average");
    report.line(differ);
    report.line(format!("the sign is the same for {same_sign}{correlation}"));
    report.line(format!("largest difference at {place}: {a} and {b}"));
    rounding
}

/// Adds a table by the groups' accuracy: the mean advantages of right and of wrong responses, and the sum of |A| per group.
fn by_accuracy(outcomes: &[Outcome; 2], correct: &Computed, rounding: f64, report: &mut Report) {
    let layout = correct.layout();
    let sizes = || (0..layout.groups()).map(|group| layout.members(group).len());
    let size = sizes().next().unwrap_or(0);
    let is_exact = size <= EXACT && sizes().all(|own| own == size);
    let parts = if is_exact { size } else { PARTS };
    let mut rows: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (group, accuracy) in accuracies(correct).into_iter().enumerate() {
        // The 1e-9 is added because rounding can make an accuracy such as 3/10, times 10, a little less than 3.
        let part = (accuracy * parts as f64 + 1e-9) as usize;
        rows.entry(part).or_default().push(group);
    }
    let advantages = by_response(outcomes);
    let unless_rounding = |x: f64| if x.abs() <= rounding { 0.0 } else { x };
    let titles = "accuracy,groups,A right a,b,A wrong a,b,sum |A| a,b".split(',');
    let mut cells: Vec<Vec<String>> = vec![titles.map(String::from).collect()];
    for (part, groups) in rows {
        let accuracy = match is_exact {
            true => format!("{part}/{parts}"),
            false if part == parts => "1".to_string(),
            false => format!("{:.2} up", part as f64 / parts as f64),
        };
        let all = groups.iter().flat_map(|&group| members(layout, group));
        let is_right = |one: usize| correct.at(one, 0) == 1.0;
        let [a, b] = [0, 1].map(|which| Point::of(all.clone(), is_right, &advantages[which]).0);
        let number = groups.len();
        let [total_a, total_b] = [a, b].map(|point| Some(point.total / number as f64));
        let row = [
            a.of_right, b.of_right, a.of_wrong, b.of_wrong, total_a, total_b,
        ];
        let row = row.map(|number| number.map(unless_rounding));
        report.rows.push(json!({
            "accuracy": accuracy, "groups": number, "right_a": row[0], "right_b": row[1],
            "wrong_a": row[2], "wrong_b": row[3], "total_a": row[4], "total_b": row[5],
        }));
        let shown = row.map(|number| number.map_or("-".to_string(), value));
        let head = [accuracy, number.to_string()].into_iter();
        cells.push(head.chain(shown).collect());
    }
    report.table(&cells);
}

/// Returns the numbers of pairs with the same sign, with opposite signs, and with exactly one zero (up to `rounding`). The pair
/// at an index counts `counts[index]` times.
pub(super) fn signs(a: &[f64], b: &[f64], counts: &[f64], rounding: f64) -> [f64; 3] {
    let sign = |x: &f64| if x.abs() > rounding { x.signum() } else { 0.0 };
    let mut sums = [0.0; 3];
    for ((a, b), count) in a.iter().zip(b).zip(counts) {
        let kind = match sign(a) * sign(b) {
            _ if sign(a) == sign(b) => 0,
            0.0 => 2,
            _ => 1,
        };
        sums[kind] += count;
    }
    sums
}

fn by_response(outcomes: &[Outcome; 2]) -> [Vec<f64>; 2] {
    let outcomes = outcomes.each_ref();
    outcomes.map(|outcome| outcome.advantage.by_response())
}
