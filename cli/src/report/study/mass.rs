//! Who gets the gradient: the shares of the sum of |A| by group accuracy, by length, by position, right against wrong.

use serde::Serialize;

use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::value;
use advlab::paint::{Paint, laid_out};
use advlab::script::{Hook, Outcome, Recipe, Summary};
use advlab::tensor::Level;

use super::{accuracies, with_advantage};

/// Groups are told apart by accuracy, responses by length, tokens by position, in so many parts.
const PARTS: usize = 4;
/// The parts of the groups by accuracy.
const ACCURACIES: [&str; PARTS + 2] = [
    "0, all wrong",
    "(0, 1/4]",
    "(1/4, 1/2]",
    "(1/2, 3/4]",
    "(3/4, 1)",
    "1, all right",
];
/// The widest bar of the table.
const BAR: f64 = 24.0;

/// A part of the tokens, with its shares of the wholes; of the responses where no token counts.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// What is told apart: `accuracy`, `response`, `length` or `position`.
    pub by: &'static str,
    /// Which part it is.
    pub part: String,
    /// Its share of the tokens.
    pub tokens: f64,
    /// Its share of the sum of |A|.
    pub advantage: f64,
    /// Its share of the sum of |dloss/dlogp|, where there is a loss and log-probs.
    pub gradient: Option<f64>,
}

/// Where the signal of a batch lies.
#[derive(Clone, Debug, Serialize)]
pub struct Mass {
    /// The shares, table by table.
    pub parts: Vec<Part>,
    /// The loss whose gradient it is.
    pub loss: Option<String>,
    /// The outcome at a glance; its `effective_responses` says over how many responses the sum of |A| is spread.
    pub summary: Summary,
}

/// The sums of a part: of 1, |A| and |dloss/dlogp|.
type Sums = [f64; 3];

impl Mass {
    /// The shares of a recipe's advantage on a batch, and of its own loss's gradient, or else of the loss that is given.
    ///
    /// # Errors
    /// [`Diagnostics`] where the recipe fails. A loss that lacks something, such as log-probs, has no share.
    pub fn of(recipe: &Recipe, loss: &Recipe, batch: &Batch) -> Result<Mass, Diagnostics> {
        let batch = &*with_advantage(recipe, batch)?.0;
        let outcome = recipe.advantage(batch, &mut recipe.init()?)?;
        Mass::of_outcome(recipe, loss, batch, &outcome)
    }

    /// The same of an outcome on the batch, as from another state than the first.
    ///
    /// # Errors
    /// As [`Mass::of`].
    pub fn of_outcome(
        recipe: &Recipe,
        loss: &Recipe,
        batch: &Batch,
        outcome: &Outcome,
    ) -> Result<Mass, Diagnostics> {
        let own = recipe.has(Hook::Loss);
        let loss = if own { recipe } else { loss };
        // The equivalent advantage of a loss alone is its gradient.
        let gradient = match outcome.loss {
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

    /// The shares as a table, and what it comes to.
    pub fn table(&self, paint: Paint) -> String {
        let unit = if self.summary.tokens > 0 {
            "tokens"
        } else {
            "responses"
        };
        let gradient = self.loss.as_ref().map_or("", |_| "  |dloss/dlogp|");
        let mut lines = vec![paint.dim(&format!("  {:<31}{unit:>9}     |A|{gradient}", ""))];
        let mut before = "";
        for part in &self.parts {
            let by = if part.by == before { "" } else { part.by };
            before = part.by;
            let percent = |share: f64| format!("{:>5.1} %", 100.0 * share);
            let bar = "▆".repeat((BAR * part.advantage).round() as usize);
            let gradient = part
                .gradient
                .map_or(String::new(), |share| format!("{:>15}", percent(share)));
            let (tokens, advantage) = (percent(part.tokens), percent(part.advantage));
            let line = format!(
                "  {by:<10}{:<21}{tokens:>9} {advantage}{gradient}  {}",
                part.part,
                paint.blue(&bar)
            );
            lines.push(line.trim_end().to_string());
        }
        let of = self.summary.responses;
        let effective = value(self.summary.effective_responses);
        lines.push(String::new());
        let text = format!("{effective} of {of} responses");
        lines.push(laid_out("  effective  ", &text, paint.width));
        if let Some((_, text)) = self
            .summary
            .rows()
            .iter()
            .find(|(name, _)| *name == "no signal")
        {
            lines.push(laid_out("  no signal  ", text, paint.width));
        }
        if let Some(loss) = &self.loss {
            lines.push(laid_out(
                "  loss       ",
                &format!("dloss/dlogp is that of {loss}"),
                paint.width,
            ));
        }
        lines.join("\n")
    }
}

/// A way to tell tokens apart: its name, the names of its parts, and their sums.
struct Kind {
    by: &'static str,
    parts: Vec<(String, Sums)>,
}

impl Kind {
    fn new(by: &'static str, names: impl IntoIterator<Item = impl Into<String>>) -> Kind {
        let parts = names.into_iter().map(|name| (name.into(), [0.0; 3]));
        Kind {
            by,
            parts: parts.collect(),
        }
    }

    /// The shares of the parts that have a token.
    fn shares(self, has_gradient: bool) -> impl Iterator<Item = Part> {
        let total = |index: usize| self.parts.iter().map(|(_, own)| own[index]).sum::<f64>();
        let totals = [0, 1, 2].map(total);
        let parts = self.parts.into_iter().filter(|(_, own)| own[0] > 0.0);
        parts.map(move |(part, own)| {
            let share = |index: usize| match totals[index] {
                0.0 => 0.0,
                total => own[index] / total,
            };
            Part {
                by: self.by,
                part,
                tokens: share(0),
                advantage: share(1),
                gradient: has_gradient.then(|| share(2)),
            }
        })
    }
}

/// The shares of all parts that have a token.
fn parts(outcome: &Outcome, gradient: Option<&[f64]>) -> Vec<Part> {
    let layout = outcome.advantage.layout();
    let has_tokens = layout.tokens() > 0;
    let accuracy = outcome.correct.as_ref().map(accuracies);
    let of_response = |one| layout.tokens_of(one).len();
    let lengths: Vec<usize> = (0..layout.responses()).map(of_response).collect();
    let bounds = quantiles(&lengths);
    let to = bounds.iter().map(|bound| format!("<= {bound} tokens"));
    let mut kinds = [
        Kind::new("accuracy", ACCURACIES),
        Kind::new("response", ["wrong", "right"]),
        Kind::new("length", to),
        Kind::new(
            "position",
            ["first quarter", "second", "third", "last quarter"],
        ),
    ];
    let value = outcome.advantage.lookup();
    for response in 0..layout.responses() {
        let tokens = match has_tokens {
            true => layout.tokens_of(response),
            false => 0..usize::from(outcome.advantage.level() == Level::Response),
        };
        let of_group = accuracy
            .as_ref()
            .map(|all| match all[layout.group_of(response)] {
                0.0 => 0,
                1.0 => PARTS + 1,
                share => (share * PARTS as f64).ceil() as usize,
            });
        let right = outcome.correct.as_ref();
        let label = right.map(|right| usize::from(right.at(response, 0) == 1.0));
        let length = bounds.iter().position(|bound| lengths[response] <= *bound);
        let length = length.filter(|_| has_tokens);
        let (start, count) = (tokens.start, tokens.len());
        for token in tokens {
            let size = outcome.counts(response) * value(response, token).abs();
            let slope = gradient
                .and_then(|all| all.get(token))
                .map_or(0.0, |slope| slope.abs());
            let position = has_tokens.then(|| (token - start) * PARTS / count.max(1));
            for (kind, place) in kinds.iter_mut().zip([of_group, label, length, position]) {
                let part = place.and_then(|place| kind.parts.get_mut(place));
                let sums = part.into_iter().flat_map(|(_, sums)| sums);
                sums.zip([1.0, size, slope])
                    .for_each(|(sum, add)| *sum += add);
            }
        }
    }
    let shares = kinds
        .into_iter()
        .map(|kind| kind.shares(gradient.is_some()));
    shares.flatten().collect()
}

/// The lengths up to which each quarter of the responses reaches, each once.
fn quantiles(lengths: &[usize]) -> Vec<usize> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let end = |part: usize| {
        sorted
            .get((sorted.len() * part).div_ceil(PARTS).max(1) - 1)
            .copied()
    };
    let mut ends: Vec<usize> = (1..=PARTS).filter_map(end).collect();
    ends.dedup();
    ends
}
