//! The report of a step: one row of a run's `metrics.jsonl`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use advlab::number_text::in_json;
use advlab::tensor::binomial_ratio;

/// One row of `metrics.jsonl`, which also has the `time` when it was written. All fields but that, `ms` and `device_memory` are
/// the same, bit for bit, in a resumed run or a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The step, from 0.
    pub step: u64,
    /// The recipe's version that made the step's update; all 64 digits.
    pub version: String,
    /// Versions that failed at this step before `version` was used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Mean reward of the verifier.
    pub reward_mean: f64,
    /// Standard deviation of that reward, ddof 1.
    pub reward_std: f64,
    /// Mean reward after the recipe's `reward` hook, summed over tokens if it has one per token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe_reward_mean: Option<f64>,
    /// The policy's results on the step's own prompts.
    #[serde(flatten)]
    pub sampled: Evaluation,
    /// Share of the groups in which every advantage is exactly 0.
    pub groups_without_signal: f64,
    /// Groups that were drawn again, since none of their responses had weight; not if the run does not do that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resampled: Option<usize>,
    /// The effective number of responses that share the sum of |A|, as a share of the step's responses.
    pub effective_responses: f64,
    /// Mean advantage, over the values at its own level.
    pub advantage_mean: f64,
    /// Standard deviation of the advantage, ddof 1.
    pub advantage_std: f64,
    /// Smallest advantage.
    pub advantage_min: f64,
    /// Largest advantage.
    pub advantage_max: f64,
    /// Mean k3 estimate, over tokens, of the KL from the sampling policy to the reference, nats; if the run has a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// Mean loss of the step's updates.
    pub loss: f64,
    /// Share of tokens whose ratio was clipped, if the loss recipe reports it as `clip_share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_share: Option<f64>,
    /// Mean norm of the step's gradients, before clipping.
    pub grad_norm: f64,
    /// The values that scripts report with `metric`; a loss's metrics are averaged over the step's updates with equal
    /// weights. If the advantage and the loss report the same name, they are `advantage/name` and `loss/name`.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "all_numbers"
    )]
    pub metrics: BTreeMap<String, f64>,
    /// The evaluation before the first step, in that step's row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_evaluation: Option<Evaluation>,
    /// The evaluation after this step, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Evaluation>,
    /// The most bytes in use at once on the policy's GPU so far; depends on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<u64>,
    /// Milliseconds of each stage.
    pub ms: Milliseconds,
}

/// The policy's results on some prompts: the evaluation set, which training never draws, or the prompts of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Estimates of pass@k.
    #[serde(flatten)]
    pub pass_at: PassAt,
    /// Mean entropy of a token, nats.
    pub entropy: f64,
    /// Mean tokens of a response.
    pub length: f64,
}

/// Milliseconds of the stages of a step: the only numbers of a row that depend on the machine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Milliseconds {
    /// Drawing prompts, sampling and verifying responses.
    pub sample: f64,
    /// The responses' log-probs under the reference policy, and the batch of it all.
    pub reference: f64,
    /// The recipe's reward and advantage.
    pub recipe: f64,
    /// Losses, gradients and updates.
    pub update: f64,
    /// Of these two, the hooks that kernels answered.
    pub native: f64,
    /// The evaluation.
    pub evaluate: f64,
}

/// Estimates of pass@k, the chance that at least one of k responses is right, for k = 1, 2, 4, ... up to the group's size;
/// named `pass@1` and so on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassAt(Map<String, Value>);

impl PassAt {
    /// Estimates from the number of right responses in each group; all groups have `group_size` responses.
    ///
    /// The estimate of a group is 1 - C(wrong, k) / C(n, k) (arXiv 2107.03374, eq. 1); groups have equal weight.
    pub fn of(right: &[usize], group_size: usize) -> PassAt {
        let estimate = |k: usize| {
            let fails = right.iter().map(|&right| {
                let wrong = (group_size - right) as i64;
                // k is at most the size of the group.
                binomial_ratio(wrong, group_size as i64, k as i64).unwrap_or(0.0)
            });
            let passed: f64 = fails.map(|fail| 1.0 - fail).sum();
            passed / right.len().max(1) as f64
        };
        let powers = std::iter::successors(Some(1), |k| Some(k * 2));
        let ks = powers.take_while(|k| *k < group_size).chain([group_size]);
        let named = ks.map(|k| (format!("pass@{k}"), estimate(k).into()));
        PassAt(named.collect())
    }

    /// The estimate for `k`, if there is one.
    pub fn at(&self, k: usize) -> Option<f64> {
        self.0.get(&format!("pass@{k}"))?.as_f64()
    }

    /// The largest k and its estimate.
    pub fn last(&self) -> Option<(usize, f64)> {
        let (name, estimate) = self.0.iter().next_back()?;
        let k = name.strip_prefix("pass@")?.parse().ok()?;
        Some((k, estimate.as_f64()?))
    }
}

fn all_numbers<S: Serializer>(
    metrics: &BTreeMap<String, f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let numbers = metrics.iter().map(|(name, value)| (name, in_json(*value)));
    serializer.collect_map(numbers)
}

impl Row {
    /// The row as JSON, in the form of `metrics.jsonl`.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

/// The values of a row by their paths, such as `evaluation/pass@1`, in the row's order.
pub fn flatten(row: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in row.as_object().into_iter().flatten() {
        if value.is_object() {
            let inner = flatten(value).into_iter();
            all.extend(inner.map(|(path, value)| (format!("{name}/{path}"), value)));
        } else {
            all.insert(name.clone(), value.clone());
        }
    }
    all
}

/// The milliseconds since a moment.
pub(super) fn milliseconds(since: Instant) -> f64 {
    rounded(since.elapsed())
}

/// In milliseconds, to microseconds: enough to read.
pub(super) fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_are_no_numbers_are_told_apart() {
        let metrics = [("a", f64::NAN), ("b", f64::INFINITY), ("c", 0.5)];
        let metrics = metrics
            .map(|(name, value)| (name.to_string(), value))
            .into();
        let json = all_numbers(&metrics, serde_json::value::Serializer).unwrap();
        assert_eq!(
            json,
            serde_json::json!({ "a": "NaN", "b": "inf", "c": 0.5 })
        );
    }

    #[test]
    fn pass_at_k_is_the_share_of_draws_with_a_right_response() {
        // Two of four are right: one of the six pairs has no right response.
        let pass = PassAt::of(&[2, 0], 4);
        assert_eq!(pass.at(1), Some(0.25));
        assert!((pass.at(2).unwrap() - 5.0 / 12.0).abs() < 1e-15);
        assert_eq!(pass.at(4), Some(0.5));
        assert_eq!(pass.at(3), None);
    }

    #[test]
    fn the_largest_k_is_the_group_even_where_it_is_no_power_of_two() {
        let pass = PassAt::of(&[1], 6);
        let json = serde_json::to_value(&pass).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(|key| &**key).collect();
        assert_eq!(keys, ["pass@1", "pass@2", "pass@4", "pass@6"]);
        assert_eq!(serde_json::from_value::<PassAt>(json).unwrap(), pass);
        assert_eq!(pass.last(), Some((6, 1.0)));
        assert_eq!(PassAt::of(&[1], 1).last(), Some((1, 1.0)));
    }
}
