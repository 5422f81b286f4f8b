//! `:diff`: two recipes, or two versions of one, on the session's batch.

use super::super::session::Session;
use super::recipe::{assign, named, title};
use super::{Answered, missing};
use crate::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::{counted, share, value};
use crate::paint::{Paint, beside};
use crate::script::{Outcome, Recipe};
use crate::tensor::Level;

/// Advantages that differ by less, beside the largest, differ by rounding.
const ROUNDING: f64 = 1e-12;

/// Groups whose size differs are put into so many bins of accuracy.
const BINS: usize = 8;

pub(super) fn diff(session: &mut Session, arguments: &str) -> Answered {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    if words.is_empty() {
        return Err(missing("diff"));
    }
    let (a, b) = recipes(session, &words)?;
    session.script.guard().rearm();
    difference(&a, &b, session.batch(), session.paint)
}

/// The two recipes that the words name, or the one in use and the one that they name.
fn recipes(session: &Session, words: &[&str]) -> Result<(Recipe, Recipe), Diagnostics> {
    let is_name = |index: &usize| !words[*index].contains('=');
    let starts: Vec<usize> = (0..words.len()).filter(is_name).collect();
    let error =
        |message: String, help: &str| Err(Diagnostic::error(message).with_help(help).into());
    let named = |words: &[&str]| named(session, words[0], &words[1..]);
    match starts[..] {
        // The recipe in use, with other settings.
        [] => {
            let a = session.recipe()?;
            let mut b = a.clone();
            words
                .iter()
                .try_for_each(|setting| assign(&mut b, setting))?;
            Ok((a, b))
        }
        [0] if session.script.recipe().is_none() && !session.script.inputs().has_advantage() => {
            let first = words[0];
            let other = if first == "grpo" { "dr_grpo" } else { "grpo" };
            error(
                format!("there is nothing to compare `{first}` with: no recipe is in use"),
                &format!("`:diff {other} {first}` compares two, `:recipe {other}` puts one in use"),
            )
        }
        [0] => Ok((session.recipe()?, named(words)?)),
        [0, second] => Ok((named(&words[..second])?, named(&words[second..])?)),
        [first, ..] if first > 0 => error(
            format!("`{}` stands before any recipe", words[0]),
            "a setting stands behind its recipe: `:diff grpo passk k=8`",
        ),
        [_, _, third, ..] => error(
            format!(
                "`:diff` compares two recipes, and `{}` is a third",
                words[third]
            ),
            "it is `:diff [A] B [k=8]`; a setting is written without spaces, `k=8`",
        ),
        [..] => Err(missing("diff")),
    }
}

/// Where and how much two recipes differ on a batch.
pub(super) fn difference(a: &Recipe, b: &Recipe, batch: &Batch, paint: Paint) -> Answered {
    let one = a.advantage(batch, &mut a.init()?)?;
    let two = b.advantage(batch, &mut b.init()?)?;
    let both = Both::of(&one, &two);
    let head = |letter: &str, recipe| {
        let title = paint.bold(&title(recipe));
        beside(&format!("  {letter}"), 5, &title, paint.width)
    };
    let mut lines = vec![head("a", a), head("b", b)];
    lines.extend(both.overall(&one));
    if let Some(right) = one.correct.as_ref().or(two.correct.as_ref()) {
        let right: Vec<bool> = right.buffer().iter().map(|label| label == 1.0).collect();
        lines.push(String::new());
        lines.extend(both.by_accuracy([&one, &two], &right, paint));
    }
    Ok(lines.join("\n"))
}

/// The advantage of each response: of a token tensor, the mean over its tokens.
fn by_response(outcome: &Outcome) -> Vec<f64> {
    let (advantage, layout) = (&outcome.advantage, outcome.advantage.layout());
    if advantage.level() != Level::Token {
        return advantage.buffer().iter().collect();
    }
    let mean = |response: usize| {
        let tokens = layout.tokens_of(response).len();
        let sum: f64 = (0..tokens).map(|token| advantage.at(response, token)).sum();
        sum / tokens.max(1) as f64
    };
    (0..layout.responses()).map(mean).collect()
}

/// Both advantages where each of them has its values: token by token, if either is by token.
struct Both {
    level: Level,
    a: Vec<f64>,
    b: Vec<f64>,
    /// Differences up to this are rounding.
    rounding: f64,
}

impl Both {
    fn of(one: &Outcome, two: &Outcome) -> Both {
        let outcomes = [one, two];
        let is_token = |outcome: &&Outcome| outcome.advantage.level() == Level::Token;
        let (level, [a, b]) = if outcomes.iter().any(is_token) {
            let values = |outcome: &Outcome| outcome.advantage.per_token().collect();
            (Level::Token, outcomes.map(values))
        } else {
            (Level::Response, outcomes.map(by_response))
        };
        let all = a.iter().chain(&b);
        let largest = all.fold(0.0, |most: f64, x| most.max(x.abs()));
        let rounding = ROUNDING * largest;
        Both {
            level,
            a,
            b,
            rounding,
        }
    }

    /// How far two values are apart. Two ways to compute the same differ in their last bits; what is no number differs
    /// from what is one.
    fn gap(&self, index: usize) -> f64 {
        let (a, b) = (self.a[index], self.b[index]);
        match (a - b).abs() {
            gap if gap.is_nan() => f64::from(u8::from(a.is_nan() != b.is_nan())),
            gap if gap <= self.rounding => 0.0,
            gap => gap,
        }
    }

    fn overall(&self, one: &Outcome) -> Vec<String> {
        let (level, all) = (self.level, 0..self.a.len());
        let farther = |far, index| {
            if self.gap(index) > self.gap(far) {
                index
            } else {
                far
            }
        };
        let farthest = all.clone().reduce(farther);
        let Some(farthest) = farthest.filter(|&index| self.gap(index) > 0.0) else {
            let beyond = if self.a == self.b {
                ""
            } else {
                " beyond rounding"
            };
            let values = counted(all.len(), level.name());
            return vec![format!("no difference{beyond} on any of the {values}")];
        };
        // The sign of 0 is 0 here.
        let sign = |x: f64| {
            if x.abs() <= self.rounding {
                0.0
            } else {
                x.signum()
            }
        };
        let is_same_sign = |&index: &usize| sign(self.a[index]) == sign(self.b[index]);
        let same_sign = all.clone().filter(is_same_sign).count();
        let moved = all.clone().filter(|&index| self.gap(index) > 0.0).count();
        let mean = all.clone().map(|index| self.gap(index)).sum::<f64>() / all.len() as f64;
        let layout = one.advantage.layout();
        let response = match level {
            Level::Token => layout.response_of_token(farthest),
            _ => farthest,
        };
        let mut members = layout.members(layout.group_of(response)).iter();
        let among = members.position(|&member| member as usize == response);
        // As the table of a tensor numbers them.
        let among = among.map_or(String::new(), |index| format!(" (its #{index})"));
        let correlation = correlation(&self.a, &self.b);
        let correlation = correlation.map_or(String::new(), |r| format!(", correlation {r:.3}"));
        let (moved, mean) = (share(moved, all.len()), value(mean));
        let (a, b) = (value(self.a[farthest]), value(self.b[farthest]));
        let place = layout.describe(level, farthest);
        vec![
            format!("{moved} of the {level}s differ, by {mean} in the mean"),
            format!(
                "the sign is the same for {}{correlation}",
                share(same_sign, all.len())
            ),
            format!("most at {place}{among}: {a} and {b}"),
        ]
    }

    fn by_accuracy(&self, outcomes: [&Outcome; 2], right: &[bool], paint: Paint) -> Vec<String> {
        let layout = outcomes[0].advantage.layout();
        let members = |group: usize| layout.members(group).iter().map(|&one| one as usize);
        let sizes: Vec<usize> = (0..layout.groups())
            .map(|group| members(group).len())
            .collect();
        let is_uniform = sizes.windows(2).all(|pair| pair[0] == pair[1]);
        let parts = match sizes.first() {
            Some(&size) if is_uniform && size <= 16 => size,
            _ => BINS,
        };
        let mut bins = vec![Bin::default(); parts + 1];
        let advantages = outcomes.map(by_response);
        for group in 0..layout.groups() {
            let rights = members(group).filter(|&response| right[response]).count();
            // All right has a bin of its own, and so has all wrong where groups are of one size.
            let bin = &mut bins[rights * parts / sizes[group].max(1)];
            bin.sizes.number += 1;
            for response in members(group) {
                let values = [advantages[0][response], advantages[1][response]];
                let of = if right[response] {
                    &mut bin.right
                } else {
                    &mut bin.wrong
                };
                of.number += 1;
                of.add(values);
                bin.sizes.add(values.map(f64::abs));
            }
        }
        let titles = ["mean A of right", "mean A of wrong", "sum of |A|, a group"];
        let titles: String = titles.map(|title| format!("  {title:^18}")).concat();
        let letters = format!("  {:>8}  {:>8}", "a", "b").repeat(3);
        let mut lines = vec![
            paint.dim(&format!("  {:<8}  {:>6}{titles}", "", "")),
            paint.dim(&format!("  {:<8}  {:>6}{letters}", "accuracy", "groups")),
        ];
        for (index, bin) in bins
            .iter()
            .enumerate()
            .filter(|(_, bin)| bin.sizes.number > 0)
        {
            let accuracy = if is_uniform && parts == sizes[0] {
                format!("{index}/{parts}")
            } else if index == parts {
                "1".to_string()
            } else {
                format!("{:.2} up", index as f64 / parts as f64)
            };
            let mean = |sum: f64, of: usize| match of {
                0 => "-".to_string(),
                _ if sum.abs() <= self.rounding * of as f64 => "0".to_string(),
                of => value(sum / of as f64),
            };
            let pair = |of: &Sums| {
                let [a, b] = of.sums.map(|sum| mean(sum, of.number));
                format!("  {a:>8}  {b:>8}")
            };
            let groups = bin.sizes.number;
            let cells: String = [&bin.right, &bin.wrong, &bin.sizes].map(pair).concat();
            lines.push(format!("  {accuracy:<8}  {groups:>6}{cells}"));
        }
        if self.level == Level::Token {
            lines.push(paint.dim("  (of a response that has values by token, their mean)"));
        }
        lines
    }
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

/// The groups of one accuracy: the advantages of right and wrong responses, and the sizes of all in a group.
#[derive(Clone, Default)]
struct Bin {
    right: Sums,
    wrong: Sums,
    sizes: Sums,
}

/// Sums of so many values for each recipe.
#[derive(Clone, Default)]
struct Sums {
    number: usize,
    sums: [f64; 2],
}

impl Sums {
    fn add(&mut self, [a, b]: [f64; 2]) {
        self.sums[0] += a;
        self.sums[1] += b;
    }
}
