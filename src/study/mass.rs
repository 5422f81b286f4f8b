//! Who gets the gradient: the shares of the sum of |A| by group accuracy, by length, by position, right against wrong.

use serde::Serialize;

use crate::Batch;
use crate::diagnostic::Diagnostics;
use crate::figures::value;
use crate::paint::{Paint, laid_out};
use crate::script::{Hook, Outcome, Recipe, Summary};
use crate::tensor::Level;

use super::with_advantage;

/// Groups are told apart by accuracy, responses by length, tokens by position, in so many parts.
const PARTS: usize = 4;
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
        let own = recipe.has(Hook::Loss);
        let loss = if own { recipe } else { loss };
        // The equivalent advantage of a loss alone is its gradient.
        let gradient = match outcome.loss {
            Some(_) => None,
            None => loss
                .loss(
                    &outcome.weighted(batch),
                    Some(&outcome.advantage),
                    &mut loss.init()?,
                )
                .ok(),
        };
        let gradient: Option<Vec<f64>> = match (&gradient, outcome.loss) {
            (Some(loss), _) => Some(loss.gradient.per_token().collect()),
            (None, Some(_)) => Some(outcome.advantage.per_token().collect()),
            (None, None) => None,
        };
        Ok(Mass {
            parts: parts(&outcome, gradient.as_deref()),
            loss: gradient.is_some().then(|| loss.name().to_string()),
            summary: Summary::of(&outcome),
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
        let text =
            format!("the sum of |A| is spread as over {effective} of {of} responses of equal |A|");
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

/// The shares of all parts that have a token.
fn parts(outcome: &Outcome, gradient: Option<&[f64]>) -> Vec<Part> {
    let layout = outcome.advantage.layout();
    let has_tokens = layout.tokens() > 0;
    let accuracy = accuracies(outcome);
    let lengths: Vec<usize> = (0..layout.responses())
        .map(|one| layout.tokens_of(one).len())
        .collect();
    let bounds = quantiles(&lengths);
    // Each kind with the names of its parts.
    let quarters = ["first quarter", "second", "third", "last quarter"];
    let of_accuracy = [
        "0, all wrong",
        "to 1/4",
        "to 1/2",
        "to 3/4",
        "below 1",
        "1, all right",
    ];
    let of_length = bounds
        .iter()
        .map(|bound| format!("to {bound} tokens"))
        .collect();
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut kinds: Vec<(&'static str, Vec<String>, Vec<Sums>)> = [
        ("accuracy", owned(&of_accuracy)),
        ("response", owned(&["wrong", "right"])),
        ("length", of_length),
        ("position", owned(&quarters)),
    ]
    .map(|(by, names)| (by, names.clone(), vec![[0.0; 3]; names.len()]))
    .into();
    let value = outcome.advantage.lookup();
    let right = outcome.correct.as_ref();
    for response in 0..layout.responses() {
        let tokens = match has_tokens {
            true => layout.tokens_of(response),
            false => 0..usize::from(outcome.advantage.level() == Level::Response),
        };
        let part_of_group =
            accuracy
                .as_ref()
                .map(|accuracy| match accuracy[layout.group_of(response)] {
                    0.0 => 0,
                    1.0 => PARTS + 1,
                    share => (share * PARTS as f64).ceil() as usize,
                });
        let label = right.map(|right| usize::from(right.at(response, 0) == 1.0));
        let length = bounds.iter().position(|bound| lengths[response] <= *bound);
        let (start, count) = (tokens.start, tokens.len());
        for token in tokens {
            let size = outcome.counts(response) * value(response, token).abs();
            let slope = gradient
                .and_then(|all| all.get(token))
                .map_or(0.0, |slope| slope.abs());
            let position = Some((token - start) * PARTS / count.max(1));
            let places = [
                part_of_group,
                label,
                length.filter(|_| has_tokens),
                position.filter(|_| has_tokens),
            ];
            for ((_, _, sums), place) in kinds.iter_mut().zip(places) {
                let Some(sums) = place.and_then(|place| sums.get_mut(place)) else {
                    continue;
                };
                for (sum, add) in sums.iter_mut().zip([1.0, size, slope]) {
                    *sum += add;
                }
            }
        }
    }
    let mut all = Vec::new();
    for (by, names, sums) in kinds {
        let total = |index: usize| sums.iter().map(|one| one[index]).sum::<f64>();
        let totals = [0, 1, 2].map(total);
        let share = |own: &Sums, index: usize| match totals[index] {
            0.0 => 0.0,
            total => own[index] / total,
        };
        for (part, own) in names.into_iter().zip(&sums).filter(|(_, own)| own[0] > 0.0) {
            all.push(Part {
                by,
                part,
                tokens: share(own, 0),
                advantage: share(own, 1),
                gradient: gradient.map(|_| share(own, 2)),
            });
        }
    }
    all
}

/// The share of right responses of each group, where anything says which are right.
fn accuracies(outcome: &Outcome) -> Option<Vec<f64>> {
    let layout = outcome.advantage.layout();
    let right = outcome.correct.as_ref()?;
    let of = |group: usize| {
        let members = layout.members(group).iter();
        let sum: f64 = members.map(|&one| right.at(one as usize, 0)).sum();
        sum / layout.members(group).len().max(1) as f64
    };
    Some((0..layout.groups()).map(of).collect())
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
