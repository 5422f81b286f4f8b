//! The distribution of the gradient: shares of the sum of |A| by group accuracy, by length, by position, right against wrong.

use serde::Serialize;
use serde_json::json;

use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::value;
use advlab::paint::{Paint, laid_out};
use advlab::script::{Hook, Outcome, Recipe, Summary};
use advlab::tensor::Level;

use super::{accuracies, title, with_advantage};
use crate::report::Report;

/// The number of parts of groups by accuracy, of responses by length, and of tokens by position.
const PARTS: usize = 4;
/// The properties by which tokens are divided, with the names of the parts; the parts by length depend on the lengths.
const KINDS: [(&str, &[&str]); 4] = [
    (
        "accuracy",
        &[
            "0, all wrong",
            "(0, 1/4]",
            "(1/4, 1/2]",
            "(1/2, 3/4]",
            "(3/4, 1)",
            "1, all right",
        ],
    ),
    ("response", &["wrong", "right"]),
    ("length", &[]),
    (
        "position",
        &["first quarter", "second", "third", "last quarter"],
    ),
];
/// The widest bar of the table.
const BAR: f64 = 24.0;

/// A part of the tokens, with its shares of the totals; a part of the responses if no token counts.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The property that divides the parts: `accuracy`, `response`, `length` or `position`.
    pub by: &'static str,
    pub part: String,
    pub tokens: f64,
    /// Its share of the sum of |A|.
    pub advantage: f64,
    /// Its share of the sum of |dloss/dlogp|, if there are a loss and log-probs.
    pub gradient: Option<f64>,
}

/// The distribution of a batch's signal over parts of its tokens.
#[derive(Clone, Debug, Serialize)]
pub struct Mass {
    /// The shares, table by table.
    pub parts: Vec<Part>,
    /// The loss whose gradient it is.
    pub loss: Option<String>,
    /// The outcome at a glance; its `effective_responses` says over how many responses the sum of |A| is spread.
    pub summary: Summary,
}

impl Mass {
    /// The shares of a recipe's advantage on a batch, and of the gradient of its own loss, or of `loss` if it has none. If the
    /// loss lacks a column, such as log-probs, there are no shares of the gradient.
    pub fn of(recipe: &Recipe, loss: &Recipe, batch: &Batch) -> Result<Mass, Diagnostics> {
        let batch = &*with_advantage(recipe, batch)?.0;
        let outcome = recipe.advantage(batch, &mut recipe.init()?)?;
        Mass::of_outcome(recipe, loss, batch, &outcome)
    }

    /// The same for an outcome that was computed with another state than the first.
    pub fn of_outcome(
        recipe: &Recipe,
        loss: &Recipe,
        batch: &Batch,
        outcome: &Outcome,
    ) -> Result<Mass, Diagnostics> {
        let own = recipe.has(Hook::Loss);
        let loss = if own { recipe } else { loss };
        let gradient = match outcome.loss {
            // The equivalent advantage of a pure loss is its gradient.
            Some(_) => Some(outcome.advantage.per_token().collect()),
            None => {
                let (batch, advantage) = (&outcome.weighted(batch), Some(&outcome.advantage));
                let loss = loss.loss(batch, advantage, &mut loss.init()?).ok();
                loss.map(|loss| loss.gradient.per_token().collect::<Vec<f64>>())
            }
        };
        Ok(Mass {
            parts: parts(outcome, gradient.as_deref()),
            loss: gradient.is_some().then(|| loss.name().to_string()),
            summary: Summary::of(outcome),
        })
    }

    /// The shares below the recipe's title.
    pub fn report(&self, recipe: &Recipe, paint: Paint) -> Report {
        let head = paint.bold(&title(recipe));
        Report {
            text: format!("{head}\n{}", self.table(paint)),
            rows: self.parts.iter().map(|part| json!(part)).collect(),
            about: json!({ "loss": self.loss, "summary": self.summary }),
            ..Report::default()
        }
    }

    /// The shares as a table, with a summary.
    pub fn table(&self, paint: Paint) -> String {
        let summary = &self.summary;
        let unit = ["responses", "tokens"][usize::from(summary.tokens > 0)];
        let gradient = self.loss.as_ref().map_or("", |_| "  |dloss/dlogp|");
        let mut lines = vec![paint.dim(&format!("  {:<31}{unit:>9}     |A|{gradient}", ""))];
        let percent = |share: f64| format!("{:>5.1} %", 100.0 * share);
        let mut before = "";
        for Part {
            by,
            part,
            tokens,
            advantage,
            gradient,
        } in &self.parts
        {
            let kind = if *by == before { "" } else { by };
            before = by;
            let gradient = gradient.map(|share| format!("{:>15}", percent(share)));
            let gradient = gradient.unwrap_or_default();
            let bar = paint.blue(&"▆".repeat((BAR * advantage).round() as usize));
            let [tokens, advantage] = [*tokens, *advantage].map(percent);
            let line = format!("  {kind:<10}{part:<21}{tokens:>9} {advantage}{gradient}  {bar}");
            lines.push(line.trim_end().to_string());
        }
        let effective = value(summary.effective_responses);
        let effective = format!("{effective} of {} responses", summary.responses);
        let mut rows = vec![("effective", effective)];
        let none = summary.rows().into_iter();
        rows.extend(none.filter(|(name, _)| *name == "no signal"));
        let loss = self.loss.iter();
        rows.extend(loss.map(|loss| ("loss", format!("dloss/dlogp is that of {loss}"))));
        lines.push(String::new());
        let rows = rows.iter();
        lines
            .extend(rows.map(|(name, text)| laid_out(&format!("  {name:<11}"), text, paint.width)));
        lines.join("\n")
    }
}

/// The shares of all parts with at least one token.
fn parts(outcome: &Outcome, gradient: Option<&[f64]>) -> Vec<Part> {
    let layout = outcome.advantage.layout();
    let lengths = (0..layout.responses()).map(|one| layout.tokens_of(one).len());
    let bounds = quantiles(&lengths.collect::<Vec<usize>>());
    let sums = sums(outcome, gradient, &bounds);
    let mut parts = Vec::new();
    for ((by, names), sums) in KINDS.into_iter().zip(sums) {
        let totals = [0, 1, 2].map(|index| sums.iter().map(|own| own[index]).sum::<f64>());
        for (index, own) in sums.iter().enumerate().filter(|(_, own)| own[0] > 0.0) {
            let share = |index: usize| match totals[index] {
                0.0 => 0.0,
                total => own[index] / total,
            };
            let name = names.get(index).map(|name| name.to_string());
            parts.push(Part {
                by,
                part: name.unwrap_or_else(|| format!("<= {} tokens", bounds[index])),
                tokens: share(0),
                advantage: share(1),
                gradient: gradient.map(|_| share(2)),
            });
        }
    }
    parts
}

/// The sums of 1, |A| and |dloss/dlogp| over the tokens of each part, by kind.
fn sums(outcome: &Outcome, gradient: Option<&[f64]>, bounds: &[usize]) -> [Vec<[f64; 3]>; 4] {
    let layout = outcome.advantage.layout();
    let has_tokens = layout.tokens() > 0;
    let accuracy = outcome.correct.as_ref().map(accuracies);
    let value = outcome.advantage.lookup();
    let mut sums = KINDS.map(|(_, names)| vec![[0.0; 3]; names.len().max(bounds.len())]);
    for response in 0..layout.responses() {
        let tokens = match has_tokens {
            true => layout.tokens_of(response),
            false => 0..usize::from(outcome.advantage.level() == Level::Response),
        };
        let of_group = accuracy
            .as_ref()
            .map(|all| match all[layout.group_of(response)] {
                1.0 => PARTS + 1,
                share => (share * PARTS as f64).ceil() as usize,
            });
        let right = outcome.correct.as_ref();
        let right = right.map(|right| usize::from(right.at(response, 0) == 1.0));
        let (start, count) = (tokens.start, tokens.len());
        let of_length = bounds
            .iter()
            .position(|bound| count <= *bound && has_tokens);
        for token in tokens {
            let size = outcome.counts(response) * value(response, token).abs();
            let slope = gradient.and_then(|all| all.get(token));
            let add = [1.0, size, slope.map_or(0.0, |slope| slope.abs())];
            let position = has_tokens.then(|| (token - start) * PARTS / count);
            for (sums, part) in sums.iter_mut().zip([of_group, right, of_length, position]) {
                let sums = part.and_then(|part| sums.get_mut(part));
                for (sum, add) in sums.into_iter().flatten().zip(add) {
                    *sum += add;
                }
            }
        }
    }
    sums
}

/// The upper bounds of the quartiles of the responses' lengths, without duplicates.
fn quantiles(lengths: &[usize]) -> Vec<usize> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let end = |part: usize| (sorted.len() * part).div_ceil(PARTS).max(1) - 1;
    let ends = (1..=PARTS).filter_map(|part| sorted.get(end(part)).copied());
    let mut ends: Vec<usize> = ends.collect();
    ends.dedup();
    ends
}
