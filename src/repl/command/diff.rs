//! `:diff`: two recipes, or two versions of one, on the session's batch.

use super::super::session::Session;
use super::recipe::{assign, current, parse, title};
use super::{Answered, missing};
use crate::Batch;
use crate::diagnostic::Diagnostic;
use crate::figures::{count, share, value};
use crate::paint::{Paint, wrapped};
use crate::script::{Outcome, Recipe};
use crate::tensor::Level;

/// What is that small beside the largest advantage is rounding.
const ROUNDING: f64 = 1e-12;

/// Groups whose size differs are put into so many bins of accuracy.
const BINS: usize = 8;

pub(super) fn diff(session: &mut Session, arguments: &str) -> Answered {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let starts: Vec<usize> = (0..words.len())
        .filter(|&place| !words[place].contains('='))
        .collect();
    let (a, b) = match starts[..] {
        // The recipe in use, with other settings.
        [] if !words.is_empty() => {
            let a = current(session)?;
            let mut b = a.clone();
            for setting in &words {
                assign(&mut b, setting)?;
            }
            (a, b)
        }
        [0] if session.script.recipe().is_none() && !session.script.inputs().has_advantage() => {
            let first = words[0];
            let message =
                format!("there is nothing to compare `{first}` with: no recipe is in use");
            let other = if first == "grpo" { "dr_grpo" } else { "grpo" };
            let help =
                format!("`:diff {other} {first}` compares two, `:recipe {other}` puts one in use");
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        [0] => (current(session)?, parse(session, &words)?),
        [0, second] => (
            parse(session, &words[..second])?,
            parse(session, &words[second..])?,
        ),
        _ => return Err(missing("diff")),
    };
    session.script.guard().rearm();
    difference(&a, &b, &session.data.batch, session.paint)
}

/// Where and how much two recipes differ on a batch.
pub(super) fn difference(a: &Recipe, b: &Recipe, batch: &Batch, paint: Paint) -> Answered {
    let one = a.advantage(batch, &mut a.init()?)?;
    let two = b.advantage(batch, &mut b.init()?)?;
    let mut lines = vec![
        format!(
            "  a  {}",
            paint.bold(wrapped("     ", &title(a), paint.width).trim_start())
        ),
        format!(
            "  b  {}",
            paint.bold(wrapped("     ", &title(b), paint.width).trim_start())
        ),
    ];
    lines.extend(overall(&one, &two));
    if let Some(right) = one.correct.as_ref().or(two.correct.as_ref()) {
        let right: Vec<bool> = right.buffer().iter().map(|label| label == 1.0).collect();
        lines.push(String::new());
        lines.extend(by_accuracy(&one, &two, &right, paint));
    }
    Ok(lines.join("\n"))
}

/// The advantage of each response: of a token tensor, the mean over its tokens.
fn by_response(outcome: &Outcome) -> Vec<f64> {
    let (advantage, layout) = (&outcome.advantage, outcome.advantage.layout());
    let mean = |response: usize| {
        let tokens = layout.tokens_of(response).len();
        let sum: f64 = (0..tokens).map(|token| advantage.at(response, token)).sum();
        sum / tokens.max(1) as f64
    };
    match advantage.level() {
        Level::Token => (0..layout.responses()).map(mean).collect(),
        _ => advantage.buffer().iter().collect(),
    }
}

/// Both advantages where each of them has its values: token by token, if either is by token.
fn value_by_value(one: &Outcome, two: &Outcome) -> (Level, Vec<f64>, Vec<f64>) {
    let is_token = |outcome: &Outcome| outcome.advantage.level() == Level::Token;
    let level = match is_token(one) || is_token(two) {
        true => Level::Token,
        false => Level::Response,
    };
    let values = |outcome: &Outcome| match level {
        Level::Token => outcome.advantage.per_token().collect(),
        _ => by_response(outcome),
    };
    (level, values(one), values(two))
}

/// The largest |A| of both: what is rounding is small beside it.
fn largest(values: [&[f64]; 2]) -> f64 {
    let all = values.into_iter().flatten();
    all.fold(0.0, |most: f64, x| most.max(x.abs()))
}

fn overall(one: &Outcome, two: &Outcome) -> Vec<String> {
    let (level, a, b) = value_by_value(one, two);
    let layout = one.advantage.layout();
    let rounding = ROUNDING * largest([&a, &b]);
    // Two ways to compute the same differ in their last bits; what is no number differs from what is one.
    let gap = |place: usize| match (a[place] - b[place]).abs() {
        gap if gap.is_nan() => f64::from(u8::from(a[place].is_nan() != b[place].is_nan())),
        gap if gap <= rounding => 0.0,
        gap => gap,
    };
    let farthest = (0..a.len()).reduce(|far, place| match gap(place) > gap(far) {
        true => place,
        false => far,
    });
    let Some(farthest) = farthest.filter(|&place| gap(place) > 0.0) else {
        let beyond = if a == b { "" } else { " beyond rounding" };
        return vec![format!(
            "no difference{beyond} on any of the {} {level}s",
            count(a.len())
        )];
    };
    // The sign of 0 is 0 here.
    let sign = |x: f64| match x.abs() <= rounding {
        true => 0.0,
        false => x.signum(),
    };
    let same_sign = (0..a.len())
        .filter(|&place| sign(a[place]) == sign(b[place]))
        .count();
    let moved = (0..a.len()).filter(|&place| gap(place) > 0.0).count();
    let mean = (0..a.len()).map(gap).sum::<f64>() / a.len() as f64;
    let response = match level {
        Level::Token => layout.response_of_token(farthest),
        _ => farthest,
    };
    let members = layout.members(layout.group_of(response));
    let among = members
        .iter()
        .position(|&member| member as usize == response);
    // As the table of a tensor numbers them.
    let among = among.map_or(String::new(), |place| format!(" (its #{place})"));
    let place = format!("{}{among}", layout.describe(level, farthest));
    let correlation =
        correlation(&a, &b).map_or(String::new(), |r| format!(", correlation {r:.3}"));
    vec![
        format!(
            "{} of the {level}s differ, by {} in the mean",
            share(moved, a.len()),
            value(mean)
        ),
        format!(
            "the sign is the same for {}{correlation}",
            share(same_sign, a.len())
        ),
        format!(
            "most at {place}: {} and {}",
            value(a[farthest]),
            value(b[farthest])
        ),
    ]
}

fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (of_a, of_b) = (mean(a), mean(b));
    let sum = |x: &[f64], of_x: f64, y: &[f64], of_y: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - of_x) * (y - of_y)).sum()
    };
    let (aa, bb) = (sum(a, of_a, a, of_a), sum(b, of_b, b, of_b));
    (aa > 0.0 && bb > 0.0).then(|| sum(a, of_a, b, of_b) / (aa * bb).sqrt())
}

/// What falls into a bin of accuracy.
#[derive(Clone, Default)]
struct Bin {
    groups: usize,
    rights: usize,
    wrongs: usize,
    /// Sums over right and wrong responses, and of |A|, for each recipe.
    right: [f64; 2],
    wrong: [f64; 2],
    size: [f64; 2],
}

fn by_accuracy(one: &Outcome, two: &Outcome, right: &[bool], paint: Paint) -> Vec<String> {
    let layout = one.advantage.layout();
    let members = |group: usize| {
        layout
            .members(group)
            .iter()
            .map(|&response| response as usize)
    };
    let sizes: Vec<usize> = (0..layout.groups())
        .map(|group| layout.members(group).len())
        .collect();
    let uniform = sizes.windows(2).all(|pair| pair[0] == pair[1]);
    let parts = match sizes.first() {
        Some(&size) if uniform && size <= 16 => size,
        _ => BINS,
    };
    let mut bins = vec![Bin::default(); parts + 1];
    let advantages = [by_response(one), by_response(two)];
    let (level, a, b) = value_by_value(one, two);
    let largest = largest([&a, &b]);
    for group in 0..layout.groups() {
        let rights = members(group).filter(|&response| right[response]).count();
        // All right has a bin of its own, and so has all wrong where groups are of one size.
        let bin = &mut bins[rights * parts / sizes[group].max(1)];
        bin.groups += 1;
        for response in members(group) {
            let is_right = right[response];
            bin.rights += usize::from(is_right);
            bin.wrongs += usize::from(!is_right);
            for (of, advantage) in advantages.iter().enumerate() {
                let sum = if is_right {
                    &mut bin.right
                } else {
                    &mut bin.wrong
                };
                sum[of] += advantage[response];
                bin.size[of] += advantage[response].abs();
            }
        }
    }
    let mut lines = vec![
        paint.dim(&format!(
            "  {:<8}  {:>6}  {:^18}  {:^18}  {:^18}",
            "", "", "mean A of right", "mean A of wrong", "sum of |A|, a group"
        )),
        paint.dim(&format!(
            "  {:<8}  {:>6}{}",
            "accuracy",
            "groups",
            format!("  {:>8}  {:>8}", "a", "b").repeat(3)
        )),
    ];
    for (place, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.groups > 0) {
        let accuracy = match uniform && parts == sizes[0] {
            true => format!("{place}/{parts}"),
            false if place == parts => "1".to_string(),
            false => format!("{:.2} up", place as f64 / parts as f64),
        };
        let pair = |sums: [f64; 2], of: usize| {
            let mean = |sum: f64| match of {
                0 => "-".to_string(),
                _ if sum.abs() <= ROUNDING * largest * of as f64 => "0".to_string(),
                of => value(sum / of as f64),
            };
            format!("  {:>8}  {:>8}", mean(sums[0]), mean(sums[1]))
        };
        lines.push(format!(
            "  {accuracy:<8}  {:>6}{}{}{}",
            bin.groups,
            pair(bin.right, bin.rights),
            pair(bin.wrong, bin.wrongs),
            pair(bin.size, bin.groups)
        ));
    }
    if level == Level::Token {
        lines.push(paint.dim("  (of a response that has values by token, their mean)"));
    }
    lines
}
