//! `:diff`: two recipes, or two versions of one, on the session's batch.

use super::super::session::{Session, join};
use super::recipe::{assign, named, title};
use super::{Answered, wrong};
use crate::report::study::{accuracies, members, with_advantage};
use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{counted, share, value};
use advlab::paint::{Paint, beside, wrapped};
use advlab::script::{Computed, Hook, Outcome, Recipe};
use advlab::session::is_typed;
use advlab::tensor::Level;

/// Advantages that differ by less, relative to the largest, differ by rounding.
const ROUNDING: f64 = 1e-12;

/// The titles of the table by accuracy, each above two columns.
const TITLES: &str = "   mean A of right     mean A of wrong    sum of |A|, a group";

/// Bins of accuracy if the sizes of groups differ.
const BINS: usize = 8;

pub(super) fn diff(session: &mut Session, arguments: &str) -> Answered {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let (a, b) = recipes(session, &words)?;
    session.script.guard().rearm();
    let text = difference(&a, &b, &session.data.batch, session.paint)?;
    let inputs = session.script.inputs();
    let typed = [&a, &b].into_iter().find(|one| is_typed(one));
    let note = typed.map(|recipe| match inputs.formula() {
        Some(formula) => format!("what you typed is the formula `{formula}`"),
        None => {
            let hook = [Hook::Advantage, Hook::Loss].into_iter();
            let hook = hook.filter(|&hook| recipe.has(hook)).map(Hook::name);
            let hook = hook.collect::<Vec<_>>().join("` and `fn ");
            format!("what you typed is your `fn {hook}`: formulas do not count beside it")
        }
    });
    Ok(join(text, note.map(|note| session.note(&note))))
}

/// The two recipes that the words name, or the one in use and the one that they name.
fn recipes(session: &Session, words: &[&str]) -> Result<(Recipe, Recipe), Diagnostics> {
    let is_name = |index: &usize| !words[*index].contains('=');
    let starts: Vec<usize> = (0..words.len()).filter(is_name).collect();
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
            let message =
                format!("there is nothing to compare `{first}` with: no recipe is in use");
            let help =
                format!("`:diff {other} {first}` compares two, `:recipe {other}` puts one in use");
            Err(wrong(message, help))
        }
        [0] => Ok((session.recipe()?, named(words)?)),
        [0, second] => Ok((named(&words[..second])?, named(&words[second..])?)),
        [0, _, third, ..] => {
            let message = format!(
                "`:diff` compares two recipes, and `{}` is a third",
                words[third]
            );
            let help = "it is `:diff [A] B [k=8]`; a setting is written without spaces, `k=8`";
            Err(wrong(message, help))
        }
        [..] => Err(wrong(
            format!("`{}` stands before any recipe", words[0]),
            "a setting stands behind its recipe: `:diff grpo passk k=8`",
        )),
    }
}

/// Where and how much two recipes differ on a batch.
pub(super) fn difference(a: &Recipe, b: &Recipe, batch: &Batch, paint: Paint) -> Answered {
    let (of_a, note) = with_advantage(a, batch)?;
    let (of_b, other) = with_advantage(b, batch)?;
    let one = a.advantage(&of_a, &mut a.init()?)?;
    let two = b.advantage(&of_b, &mut b.init()?)?;
    let both = Both::of(&one, &two);
    let head = |letter: &str, recipe| {
        let title = paint.bold(&title(recipe));
        beside(&format!("  {letter}"), 5, &title, paint.width)
    };
    let mut lines = vec![head("a", a), head("b", b)];
    let note = note.or(other);
    lines.extend(note.map(|note| paint.dim(&wrapped("", &format!("note: {note}"), paint.width))));
    lines.extend(both.overall(&one));
    if let Some(correct) = one.correct.as_ref().or(two.correct.as_ref()) {
        lines.push(String::new());
        lines.extend(both.by_accuracy([&one, &two], correct, paint));
    }
    Ok(lines.join("\n"))
}

/// Two advantages side by side: per token if either of them is, else per response.
struct Both {
    level: Level,
    a: Vec<f64>,
    b: Vec<f64>,
    /// The differences, value by value. Those of rounding are 0; a NaN differs from a number.
    gaps: Vec<f64>,
    /// Differences up to this are rounding.
    rounding: f64,
}

impl Both {
    fn of(one: &Outcome, two: &Outcome) -> Both {
        let is_token = |outcome: &Outcome| outcome.advantage.level() == Level::Token;
        let level = match is_token(one) || is_token(two) {
            true => Level::Token,
            false => Level::Response,
        };
        let [a, b]: [Vec<f64>; 2] = [one, two].map(|outcome| match level {
            Level::Token => outcome.advantage.per_token().collect(),
            _ => outcome.advantage.by_response(),
        });
        let all = a.iter().chain(&b);
        let rounding = ROUNDING * all.fold(0.0, |most: f64, x| most.max(x.abs()));
        let gap = |(a, b): (&f64, &f64)| match (a - b).abs() {
            gap if gap.is_nan() => f64::from(u8::from(a.is_nan() != b.is_nan())),
            gap if gap <= rounding => 0.0,
            gap => gap,
        };
        let gaps = a.iter().zip(&b).map(gap).collect();
        Both {
            level,
            gaps,
            a,
            b,
            rounding,
        }
    }

    fn overall(&self, one: &Outcome) -> Vec<String> {
        let (level, gaps, all) = (self.level, &self.gaps, self.gaps.len());
        let farther = |far, index| if gaps[index] > gaps[far] { index } else { far };
        let farthest = (0..all).reduce(farther);
        let Some(farthest) = farthest.filter(|&index| gaps[index] > 0.0) else {
            let is_equal = self.a == self.b;
            let beyond = if is_equal { "" } else { " beyond rounding" };
            let values = counted(all, level.name());
            return vec![format!("no difference{beyond} on any of the {values}")];
        };
        // The sign of what is 0 but for rounding is 0.
        let sign = |x: &f64| (x.abs() > self.rounding).then(|| x.signum());
        let pairs = self.a.iter().zip(&self.b);
        let same_sign = pairs.filter(|(a, b)| sign(a) == sign(b)).count();
        let same_sign = share(same_sign, all);
        let moved = share(gaps.iter().filter(|gap| **gap > 0.0).count(), all);
        let mean = value(gaps.iter().sum::<f64>() / all as f64);
        let layout = one.advantage.layout();
        let response = match level {
            Level::Token => layout.response_of_token(farthest),
            _ => farthest,
        };
        // As the table of a tensor numbers them.
        let among = members(layout, layout.group_of(response)).position(|one| one == response);
        let among = among.map_or(String::new(), |index| format!(" (its #{index})"));
        let correlation = correlation(&self.a, &self.b);
        let correlation = correlation.map_or(String::new(), |r| format!(", correlation {r:.3}"));
        let (a, b) = (value(self.a[farthest]), value(self.b[farthest]));
        let place = layout.describe(level, farthest);
        vec![
            format!("{moved} of the {level}s differ, by {mean} in the mean"),
            format!("the sign is the same for {same_sign}{correlation}"),
            format!("most at {place}{among}: {a} and {b}"),
        ]
    }

    fn by_accuracy(
        &self,
        outcomes: [&Outcome; 2],
        correct: &Computed,
        paint: Paint,
    ) -> Vec<String> {
        let layout = outcomes[0].advantage.layout();
        let sizes: Vec<usize> = (0..layout.groups())
            .map(|one| layout.members(one).len())
            .collect();
        let is_uniform = sizes.windows(2).all(|pair| pair[0] == pair[1]);
        let exact = sizes.first().filter(|size| is_uniform && **size <= 16);
        let parts = *exact.unwrap_or(&BINS);
        let letters = format!("  {:>8}  {:>8}", "a", "b").repeat(3);
        let mut lines = vec![
            paint.dim(&format!("{:<18}{TITLES}", "")),
            paint.dim(&format!("  accuracy  groups{letters}")),
        ];
        let advantages = outcomes.map(|outcome| outcome.advantage.by_response());
        let mean = |sum: f64, number: usize| match number {
            0 => "-".to_string(),
            _ if sum.abs() <= self.rounding * number as f64 => "0".to_string(),
            number => value(sum / number as f64),
        };
        // All right has a bin of its own, and so has all wrong if groups are of one size. A share of 3/10 is 0.3, but 10 of
        // it are a little less than 3.
        let bin = |accuracy: f64| (accuracy * parts as f64 + 1e-9) as usize;
        let bins: Vec<usize> = accuracies(correct).into_iter().map(bin).collect();
        for index in 0..=parts {
            let groups: Vec<usize> = (0..bins.len())
                .filter(|&group| bins[group] == index)
                .collect();
            if groups.is_empty() {
                continue;
            }
            let all = groups.iter().flat_map(|&group| members(layout, group));
            let accuracy = match exact {
                Some(_) => format!("{index}/{parts}"),
                None if index == parts => "1".to_string(),
                None => format!("{:.2} up", index as f64 / parts as f64),
            };
            let mut line = format!("  {accuracy:<8}  {:>6}", groups.len());
            for is_right in [true, false] {
                let own = all
                    .clone()
                    .filter(|&one| (correct.at(one, 0) == 1.0) == is_right);
                for advantage in &advantages {
                    let sum = own.clone().map(|one| advantage[one]).sum();
                    line.push_str(&format!("  {:>8}", mean(sum, own.clone().count())));
                }
            }
            for advantage in &advantages {
                let sum = all.clone().map(|one| advantage[one].abs()).sum();
                line.push_str(&format!("  {:>8}", mean(sum, groups.len())));
            }
            lines.push(line);
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
