//! The results of hooks: an advantage or a loss, with the hooks' reports; and a summary of an outcome, such as the number of
//! groups without a signal and the distribution of the advantage.

use std::time::Duration;

use serde::Serialize;

use super::hook::Hook;
use crate::batch::{Batch, Computed};
use crate::diagnostic::Diagnostics;
use crate::number_text::{count, share};
use crate::tensor::{Depth, Level, Moments, Origin};

/// The reports of the hooks that computed a result.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Reports {
    /// The numbers that `metric` reported, by name. If several hooks report a metric of the same name, each of these names gets
    /// its hook as a prefix, as in `reward/clipped`.
    pub metrics: Vec<(String, f64)>,
    /// The hook that reported each metric, and the metric's name.
    pub(super) reporters: Vec<(Hook, String)>,
    /// The printed lines.
    pub prints: Vec<String>,
    /// Notes on substituted columns, such as `old_logp` for `logp`, and on keys that a full table has forgotten.
    pub notes: Vec<String>,
    /// The last call of `map_groups` at each location in a script.
    pub map_groups: Vec<MapGroupsNote>,
    /// The time that the hooks took.
    pub time: Duration,
    /// The time that the kernel took, if a native kernel computed the result in place of a built-in's script.
    pub native: Option<Duration>,
}

impl Reports {
    /// Returns the hook that reported a metric; `Advantage` if the hook is unknown.
    pub fn reporter(&self, metric: &str) -> Hook {
        let found = self.reporters.iter().find(|(_, name)| name == metric);
        found.map_or(Hook::Advantage, |(hook, _)| *hook)
    }

    /// Adds the reports and the time of a loss. If both reports have a metric of the same name, both names get their hook as a
    /// prefix, as in `loss/clipped`.
    pub fn add(&mut self, mut loss: Reports) {
        for (name, _) in &mut loss.metrics {
            let reporter = self.reporter(name);
            if let Some((same, _)) = self.metrics.iter_mut().find(|(own, _)| own == name) {
                *same = format!("{}/{name}", reporter.name());
                *name = format!("{}/{name}", Hook::Loss.name());
            }
        }
        self.metrics.append(&mut loss.metrics);
        self.prints.append(&mut loss.prints);
        self.notes.append(&mut loss.notes);
        self.map_groups.append(&mut loss.map_groups);
        self.time += loss.time;
        let native = self.native.into_iter().chain(loss.native);
        self.native = native.reduce(|a, b| a + b);
    }
}

/// A call of `map_groups` in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapGroupsNote {
    /// The location of the call.
    pub origin: Origin,
    /// Whether one call of the function was enough for all groups.
    pub by_one_call: bool,
}

/// The advantage of a batch, with the hooks' reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The reward that the recipe computed, at response or token level; `None` if the recipe has no `reward` hook.
    pub reward: Option<Computed>,
    /// The weight of each response in a loss, at response level: from the `weight` hook or, if there is no such hook, from the
    /// column `weight`.
    pub weight: Option<Computed>,
    /// The advantage, at response or token level.
    pub advantage: Computed,
    /// The loss, if the advantage is derived from a loss, as -M dloss/dlogp, where M is the number of tokens.
    pub loss: Option<f64>,
    /// The column `correct` as scripts see it, 1 for a correct response; `None` if there is none and it cannot be derived.
    pub correct: Option<Computed>,
    /// The reports of the hooks.
    pub reports: Reports,
}

/// A loss with its gradient.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The loss.
    pub value: f64,
    /// The gradient dloss/dlogp, at token level.
    pub gradient: Computed,
    /// The reports of the hook.
    pub reports: Reports,
}

impl Outcome {
    /// Makes an outcome that has only an advantage, or the gradient of a loss in its place.
    pub(crate) fn of(advantage: Computed) -> Outcome {
        Outcome {
            advantage,
            reward: None,
            weight: None,
            loss: None,
            correct: None,
            reports: Reports::default(),
        }
    }

    /// Returns the weight of a response's advantage; 1 if there are no weights, or if the advantage is derived from a loss,
    /// because such a loss already contains the weights.
    pub fn counts(&self, response: usize) -> f64 {
        let weight = self.weight.as_ref().filter(|_| self.loss.is_none());
        weight.map_or(1.0, |weight| weight.at(response, 0))
    }

    /// Returns the batch to pass to a loss: `batch` with the outcome's weights as its column `weight`.
    ///
    /// # Errors
    /// [`Diagnostics`] of [`Batch::with`], if there are weights and `batch` is not the batch of this outcome.
    pub fn weighted(&self, batch: &Batch) -> Result<Batch, Diagnostics> {
        match &self.weight {
            Some(weight) => batch.clone().with("weight", weight),
            None => Ok(batch.clone()),
        }
    }
}

/// Returns whether the results, metrics, printed lines and notes of a kernel and of the script are equal, bit for bit.
pub(super) fn same_bits(script: &Outcome, kernel: &Outcome) -> bool {
    let of = |a: Option<&Computed>, b: Option<&Computed>| match (a, b) {
        (Some(a), Some(b)) => {
            let (level, a, b) = (a.level() == b.level(), a.buffer(), b.buffer());
            let bits = a.iter().map(f64::to_bits);
            level && a.is_f64() == b.is_f64() && bits.eq(b.iter().map(f64::to_bits))
        }
        (a, b) => a.is_none() && b.is_none(),
    };
    let told = |all: &Outcome| {
        let Reports {
            metrics,
            prints,
            notes,
            ..
        } = &all.reports;
        format!("{:?}", (all.loss, metrics, prints, notes))
    };
    of(Some(&script.advantage), Some(&kernel.advantage))
        && of(script.reward.as_ref(), kernel.reward.as_ref())
        && of(script.correct.as_ref(), kernel.correct.as_ref())
        && told(script) == told(kernel)
}

/// The mean, standard deviation (ddof 1, like `std` in scripts), minimum and maximum of some values; all 0 if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// The mean.
    pub mean: f64,
    /// The standard deviation with ddof 1; 0 for a single value.
    pub std: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Statistics {
    /// Computes the statistics of some values.
    pub fn of(values: impl Iterator<Item = f64>) -> Statistics {
        let all = Moments::of_selected(values.map(|value| (value, true)), Depth::Squares);
        if all.count == 0 {
            return Statistics::default();
        }
        Statistics {
            mean: all.mean(),
            std: all.std(1),
            min: all.min,
            max: all.max,
        }
    }

    /// Computes Pearson's correlation of `a` and `b`, where pair i is counted `counts[i]` times; `None` if the counted values of
    /// `a`, or those of `b`, are all equal.
    pub fn correlation(a: &[f64], b: &[f64], counts: &[f64]) -> Option<f64> {
        let whole: f64 = counts.iter().sum();
        let [a, b] = [a, b].map(|x| -> Vec<f64> {
            let sum: f64 = x.iter().zip(counts).map(|(x, count)| count * x).sum();
            x.iter().map(|x| x - sum / whole).collect()
        });
        let sum = |x: &[f64], y: &[f64]| -> f64 {
            let pairs = x.iter().zip(y).zip(counts);
            pairs.map(|((x, y), count)| count * (x * y)).sum()
        };
        let (aa, bb) = (sum(&a, &a), sum(&b, &b));
        (aa > 0.0 && bb > 0.0).then(|| sum(&a, &b) / (aa * bb).sqrt())
    }
}

/// The loss -A * ratio at the first update, when logp = old_logp and so the ratio is 1. The means are weighted by the
/// responses' weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LossAtStart {
    /// The loss averaged over tokens.
    pub over_tokens: f64,
    /// The loss averaged over each response's tokens, and then over responses.
    pub over_responses: f64,
    /// The sum of |dloss/dlogp| for the loss averaged over tokens; this sum is the mean of |A| over tokens.
    pub gradient_mass: f64,
}

impl LossAtStart {
    /// Returns whether a mean of A is 0 except for rounding, although A is not 0. A mean of up to 1e-6 times the mean of |A|
    /// counts as rounding, because f32 has seven digits.
    pub fn is_zero(&self, mean: f64) -> bool {
        self.gradient_mass > 0.0 && mean.abs() <= 1e-6 * self.gradient_mass
    }
}

/// A summary of an outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The number of groups.
    pub groups: usize,
    /// The sizes of the smallest and of the largest group.
    pub group_size: [usize; 2],
    /// The number of responses.
    pub responses: usize,
    /// The number of tokens that count.
    pub tokens: usize,
    /// The number of groups whose responses are all correct; `None` if the outcome does not say which responses are correct.
    pub all_right: Option<usize>,
    /// The number of groups whose responses are all incorrect; `None` if `all_right` is `None`.
    pub all_wrong: Option<usize>,
    /// The level of the advantage: `response` or `token`.
    pub level: &'static str,
    /// The statistics of the advantage, over its values at that level.
    pub advantage: Statistics,
    /// The number of groups without a learning signal: each response has weight 0, or advantage 0 on all tokens.
    pub groups_without_signal: usize,
    /// The number of responses with weight 0, which the loss ignores; `None` if there are no weights.
    pub without_weight: Option<usize>,
    /// The statistics of the weights; `None` if there are no weights, or if all weights are 0 or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Statistics>,
    /// The number of tokens whose advantage or weight is exactly 0.
    pub tokens_without_signal: usize,
    /// The effective number of responses that contribute to the weighted sum of |A|: (sum of s)² / (sum of s²), where s is
    /// [`Outcome::counts`] of a response times the sum of |A| over its tokens (its |A| if the batch has no tokens). It is 0 if
    /// every s is 0.
    pub effective_responses: f64,
    /// The loss of a trainer at the first update; `None` if the advantage is derived from a loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_at_start: Option<LossAtStart>,
}

impl Summary {
    /// Summarizes an outcome.
    pub fn of(outcome: &Outcome) -> Summary {
        let (advantage, layout) = (&outcome.advantage, outcome.advantage.layout());
        let value = advantage.lookup();
        let is_per_token = advantage.level() == Level::Token;
        let weight = outcome.weight.as_ref().map(Computed::buffer);
        // Computes, for a response, the number of tokens without a signal, whether the whole response has no signal, and the s of
        // `effective_responses`.
        let of_response = |response: usize| {
            let tokens = layout.tokens_of(response);
            let is_out = weight.is_some_and(|weight| weight.get(response) == 0.0);
            let (count, (sum, zeros)) = (tokens.len(), advantage.magnitude(response, tokens));
            let zeros = if is_out { count } else { zeros };
            let (is_zero, sum) = if is_per_token {
                (zeros == count, sum)
            } else {
                let alone = value(response, 0);
                // In a batch without tokens, the response's own advantage counts.
                let is_alone = layout.tokens() == 0;
                let sum = if is_alone { alone.abs() } else { sum };
                (is_out || alone == 0.0, sum)
            };
            (zeros, is_zero, outcome.counts(response) * sum)
        };
        let responses: Vec<_> = (0..layout.responses()).map(of_response).collect();
        let groups = || (0..layout.groups()).map(|group| layout.members(group));
        let groups_with = |test: &dyn Fn(usize) -> bool| {
            let all = |group: &&[u32]| group.iter().all(|&response| test(response as usize));
            groups().filter(all).count()
        };
        let groups_of = |label: f64| {
            let right = outcome.correct.as_ref()?.buffer();
            Some(groups_with(&|response| right.get(response) == label))
        };
        let whole: f64 = responses.iter().map(|(.., sum)| sum).sum();
        let squares: f64 = responses.iter().map(|(.., sum)| sum * sum).sum();
        let sizes = || groups().map(<[u32]>::len);
        let loss_at_start = || {
            // In a batch without tokens, each response counts as one token.
            let tokens = |response| match layout.tokens() {
                0 => 1.0,
                _ => layout.tokens_of(response).len() as f64,
            };
            let [mut tokens_sum, mut responses_sum, mut all, mut any] = [0.0; 4];
            for response in 0..layout.responses() {
                let (weight, count) = (outcome.counts(response), tokens(response));
                let mean = advantage.of_response(response);
                tokens_sum -= weight * count * mean;
                all += weight * count;
                if count > 0.0 {
                    responses_sum -= weight * mean;
                    any += weight;
                }
            }
            let mean = |sum: f64, of: f64| if of == 0.0 { 0.0 } else { sum / of };
            LossAtStart {
                over_tokens: mean(tokens_sum, all),
                over_responses: mean(responses_sum, any),
                gradient_mass: mean(whole, all),
            }
        };
        Summary {
            groups: layout.groups(),
            group_size: [sizes().min().unwrap_or(0), sizes().max().unwrap_or(0)],
            responses: layout.responses(),
            tokens: layout.tokens(),
            all_right: groups_of(1.0),
            all_wrong: groups_of(0.0),
            level: advantage.level().name(),
            advantage: Statistics::of(advantage.buffer().iter()),
            groups_without_signal: groups_with(&|response| responses[response].1),
            tokens_without_signal: responses.iter().map(|(zero, ..)| zero).sum(),
            weight: weight
                .filter(|weight| weight.iter().any(|x| x != 0.0 && x != 1.0))
                .map(|weight| Statistics::of(weight.iter())),
            without_weight: weight.map(|weight| weight.iter().filter(|x| *x == 0.0).count()),
            effective_responses: if squares > 0.0 {
                whole * whole / squares
            } else {
                0.0
            },
            loss_at_start: outcome.loss.is_none().then(loss_at_start),
        }
    }

    /// Returns the summary as rows, each with a label and a text.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if let (Some(right), Some(wrong)) = (self.all_right, self.all_wrong) {
            let of = |number: usize| format!("{} ({})", count(number), share(number, self.groups));
            let mixed = of(self.groups - right - wrong);
            let (right, wrong) = (of(right), of(wrong));
            let text = format!("all right {right}   all wrong {wrong}   mixed {mixed}");
            rows.push(("groups", text));
        }
        let spread = |Statistics { min, max, .. }| format!("min {min:.4}   max {max:.4}");
        // A mean that is 0 except for rounding is shown as 0, not as -0.0000.
        let mean = format!("{:.4}", self.advantage.mean).replace("-0.0000", "0.0000");
        let std = self.advantage.std;
        let (range, level) = (spread(self.advantage), self.level);
        let text = format!("mean {mean}   std {std:.4}   {range}   per {level}");
        rows.push(("advantage", text));
        if let Some(out) = self.without_weight {
            let weight = self.weight;
            let spread = weight.map(|of| format!("mean {:.4}   {}", of.mean, spread(of)));
            let of = share(out, self.responses);
            let none = format!("0 for {} ({of}) of the responses", count(out));
            let none = Some(none).filter(|_| out > 0 || spread.is_none());
            let parts: Vec<String> = spread.into_iter().chain(none).collect();
            rows.push(("weight", parts.join("   ")));
        }
        let groups = share(self.groups_without_signal, self.groups);
        let zero = match self.without_weight {
            Some(_) => "advantage or weight",
            None => "advantage",
        };
        let tokens = match self.tokens {
            0 => String::new(),
            all => format!(
                " and {} of the tokens",
                share(self.tokens_without_signal, all)
            ),
        };
        let text = format!("{groups} of the groups{tokens} have {zero} 0");
        rows.push(("no signal", text));
        if self.groups_without_signal == self.groups {
            let none = "no group gives a learning signal";
            rows.push(("", none.to_string()));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_std_of_a_spread_is_that_of_scripts() {
        let std = |values: &[f64]| Statistics::of(values.iter().copied()).std;
        assert_eq!(std(&[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(std(&[1.0, 3.0]), 2f64.sqrt());
        assert_eq!(std(&[5.0]), 0.0);
        assert_eq!(std(&[]), 0.0);
        assert_eq!(std(&[0.1, 0.1, 0.1]), 0.0);
    }

    #[test]
    fn a_summary_looks_at_each_response_and_not_at_its_tokens() {
        // Counting these tokens one by one would take days.
        let (count, length) = (1_000_000, 1 << 31);
        let batch = Batch::builder().groups((0..count).map(|at| at / 2));
        let batch = batch.lengths(vec![length; count]).build().unwrap();
        let values: Vec<f64> = (0..count).map(|at| (at % 2) as f64).collect();
        let advantage = Computed::new(batch.layout().clone(), Level::Response, values);
        let summary = Summary::of(&Outcome::of(advantage));
        assert_eq!(summary.tokens_without_signal, count / 2 * length);
        assert_eq!(summary.effective_responses, (count / 2) as f64);
        assert_eq!(summary.groups_without_signal, 0);
    }
}
