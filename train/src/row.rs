//! The report of a step: one row of a run's `metrics.jsonl`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use advlab::batch::{Batch, Level};
use advlab::number_text::in_json;
use advlab::script::{Statistics, Summary, Version};
use advlab::tensor::binomial_ratio;

/// One row of `metrics.jsonl`, from a run of advlab or of a trainer. A number that the run does not compute has no key; a number
/// that is not finite is null (in `metrics`, a string such as "NaN"). All fields except `device_memory`, `ms` and `time` are the
/// same, bit for bit, in a resumed run or a replay on the same platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The number of the step, counted from 0.
    pub step: u64,
    /// The version of the recipe that made the step's update, as all 64 digits of its hash.
    #[serde(default)]
    pub version: String,
    /// The versions that failed at this step before `version` was used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The value of `batch.step`; only in a trainer's run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_step: Option<u64>,
    /// The number of responses in the batch; only in a trainer's run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<usize>,
    /// The number of groups in the batch; only in a trainer's run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// The mean of the rewards that the verifier or the trainer gave. If rows are turns, each trajectory counts once, with the
    /// reward of its last turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward_mean: Option<f64>,
    /// The standard deviation (ddof 1) of the rewards that the verifier or the trainer gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward_std: Option<f64>,
    /// The mean reward per response after the recipe's `reward` hook; token rewards are summed over each response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe_reward_mean: Option<f64>,
    /// The policy's results on the prompts of the step.
    #[serde(flatten)]
    pub sampled: Evaluation,
    /// The share of groups without a signal: groups in which each response has the weight 0 or only advantages of 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_without_signal: Option<f64>,
    /// The number of groups that were drawn again because all their weights were 0; only if `resample` is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resampled: Option<usize>,
    /// The effective number of responses that carry the sum of |A|, as a fraction of the number of responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_responses: Option<f64>,
    /// The mean of the advantages, of which the recipe returns one per response or one per token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_mean: Option<f64>,
    /// The standard deviation (ddof 1) of the advantages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_std: Option<f64>,
    /// The smallest advantage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_min: Option<f64>,
    /// The largest advantage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_max: Option<f64>,
    /// The k3 estimate of KL(sampling policy || reference) in nats, averaged over tokens; only if the run has a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// The mean loss over the step's updates or, in a trainer's run, the loss that the recipe computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The share of tokens whose ratio was clipped; only if the recipe of the loss reports it as the metric `clip_share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_share: Option<f64>,
    /// The mean norm of the step's gradients before clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// The values that scripts report with `metric`; a loss's metrics are averaged over the step's updates with equal weights. If
    /// the advantage and the loss report metrics of the same name, the keys begin with the hook, as in `loss/name`.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "all_numbers",
        deserialize_with = "numbers"
    )]
    pub metrics: BTreeMap<String, f64>,
    /// The CRC-32C of the advantage's bytes; only in a trainer's run. The field comes after the numbers above, so that a replay
    /// in which one of those numbers differs names that number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crc32c: Option<u32>,
    /// The evaluation before training; only in the row of step 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_evaluation: Option<Evaluation>,
    /// The evaluation after this step, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Evaluation>,
    /// The largest number of bytes in use on the policy's GPU so far; it depends on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<u64>,
    /// The time of each stage in milliseconds; it depends on the machine.
    #[serde(default)]
    pub ms: BTreeMap<Stage, f64>,
    /// The time at which the row was written, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
}

/// The policy's results on some prompts: the evaluation set, which training never draws, or the prompts of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The estimates of pass@k.
    #[serde(flatten)]
    pub pass_at: PassAt,
    /// The entropy in nats, averaged over tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropy: Option<f64>,
    /// The mean number of tokens per response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<f64>,
}

/// A stage of a step. A trainer's run has only `recipe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Drawing prompts, sampling and verifying responses.
    Sample,
    /// Computing the responses' log-probs under the reference policy, and building the batch.
    Reference,
    /// The recipe's reward and advantage.
    Recipe,
    /// Losses, gradients and updates.
    Update,
    /// The hooks that native kernels computed; their time is also part of `recipe` and `update`.
    Native,
    /// The evaluation.
    Evaluate,
    /// A stage that this version of advlab does not know.
    #[serde(other)]
    Other,
}

/// Estimates of pass@k, the chance that at least one of k responses is right, for k = 1, 2, 4, ... up to the group's size. In
/// JSON, the estimates are named `pass@1` and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassAt(BTreeMap<usize, f64>);

impl PassAt {
    /// Estimates pass@k from the number of right responses in each group; each group has `group_size` responses.
    ///
    /// The estimate for a group is 1 - C(wrong, k) / C(group_size, k) (arXiv 2107.03374, eq. 1); all groups have equal weight.
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
        PassAt(ks.map(|k| (k, estimate(k))).collect())
    }

    /// Returns the estimate for `k`, if there is one.
    pub fn at(&self, k: usize) -> Option<f64> {
        self.0.get(&k).copied()
    }

    /// Returns the largest k and its estimate.
    pub fn last(&self) -> Option<(usize, f64)> {
        let (k, estimate) = self.0.last_key_value()?;
        Some((*k, *estimate))
    }

    /// Returns the names and the values of the estimates.
    fn named(&self) -> impl Iterator<Item = (String, f64)> {
        let all = self.0.iter();
        all.map(|(k, estimate)| (format!("pass@{k}"), *estimate))
    }
}

impl Serialize for PassAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}

impl<'de> Deserialize<'de> for PassAt {
    /// Picks the estimates from the keys that no other field takes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let estimate = |(name, value): (&String, &Value)| {
            let k = name.strip_prefix("pass@")?.parse().ok()?;
            Some((k, value.as_f64()?))
        };
        Ok(PassAt(keys.iter().filter_map(estimate).collect()))
    }
}

fn all_numbers<S: Serializer>(
    metrics: &BTreeMap<String, f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let numbers = metrics.iter().map(|(name, value)| (name, in_json(*value)));
    serializer.collect_map(numbers)
}

/// Reads numbers as [`all_numbers`] writes them.
fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let metrics = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let numbers = metrics.into_iter();
    Ok(numbers
        .filter_map(|(name, value)| Some((name, number(&value)?)))
        .collect())
}

impl Row {
    /// Returns a row with the numbers that every kind of run has: they describe the rewards of the batch, and the advantage that a
    /// version computed.
    pub(super) fn of_batch(step: u64, version: &Version, batch: &Batch, summary: &Summary) -> Row {
        let (silent, groups) = (summary.groups_without_signal, summary.groups.max(1));
        let reward = batch.response_column("reward").map(|values| {
            let layout = batch.layout();
            let last = |trajectory| layout.rows_of(trajectory).last();
            let last = (0..layout.size(Level::Trajectory)).filter_map(last);
            Statistics::of(last.map(|row| values[*row as usize]))
        });
        Row {
            step,
            version: version.as_str().to_string(),
            reward_mean: reward.map(|reward| reward.mean),
            reward_std: reward.map(|reward| reward.std),
            groups_without_signal: Some(silent as f64 / groups as f64),
            advantage_mean: Some(summary.advantage.mean),
            advantage_std: Some(summary.advantage.std),
            advantage_min: Some(summary.advantage.min),
            advantage_max: Some(summary.advantage.max),
            ..Row::default()
        }
    }

    /// Returns the total time of all stages, in seconds.
    pub fn seconds(&self) -> f64 {
        // The time of native kernels is skipped, because it is also part of other stages.
        let stages = self.ms.iter().filter(|(stage, _)| **stage != Stage::Native);
        stages.map(|(_, ms)| ms).sum::<f64>() / 1e3
    }

    /// Returns the row's values under their paths, such as `evaluation/pass@1`, in the order of the fields.
    pub(super) fn flat(&self) -> Map<String, Value> {
        flat(json!(self))
    }
}

/// Returns the values in nested objects under their paths, without nulls: a number is null if it is not finite or, in trainers'
/// rows of earlier versions, if it was not computed.
fn flat(value: Value) -> Map<String, Value> {
    let mut all = Map::new();
    let Value::Object(fields) = value else {
        return all;
    };
    for (name, value) in fields {
        if value.is_object() {
            let inner = flat(value).into_iter();
            all.extend(inner.map(|(path, value)| (format!("{name}/{path}"), value)));
        } else if !value.is_null() {
            all.insert(name, value);
        }
    }
    all
}

impl Evaluation {
    /// Returns the numbers with the names that they have in JSON.
    pub fn named(&self) -> impl Iterator<Item = (String, f64)> {
        let others = [("entropy", self.entropy), ("length", self.length)];
        let others = others.into_iter();
        self.pass_at
            .named()
            .chain(others.filter_map(|(name, value)| Some((name.to_string(), value?))))
    }
}

/// Returns the milliseconds that have passed since `since`.
pub(super) fn milliseconds(since: Instant) -> f64 {
    rounded(since.elapsed())
}

/// Returns a time in milliseconds, rounded to microseconds, because no reader needs more digits.
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

    /// A row that an earlier version wrote can be read, and is written unchanged.
    #[test]
    fn a_row_keeps_its_form() {
        let own = r#"{"step":3,"version":"aa","failed":["bb"],"reward_mean":0.125,"reward_std":0.3415650255319866,"recipe_reward_mean":0.5,"pass@1":0.125,"pass@2":0.25,"pass@16":0.5,"entropy":1.5861538171768188,"length":4.375,"groups_without_signal":0.0,"resampled":2,"effective_responses":0.6827304542088444,"advantage_mean":-0.0,"advantage_std":0.3204551580591551,"advantage_min":-0.23749999701976776,"advantage_max":0.762499988079071,"kl":2.008643241403148e-6,"loss":0.12321428443704333,"clip_share":0.0,"grad_norm":0.01938893086841713,"metrics":{"mean":0.23750000000000002,"none":"NaN","odd":"-inf"},"initial_evaluation":{"pass@1":0.125,"entropy":1.5872290652731191,"length":5.75},"evaluation":{"pass@1":0.5,"entropy":1.0,"length":5.0},"device_memory":9007199254740993,"ms":{"sample":92.474,"reference":0.159,"recipe":0.38,"update":0.302,"native":0.0,"evaluate":0.0},"time":1795888560.715}"#;
        let trainers = r#"{"step":1,"version":"aa","batch_step":7,"responses":4,"groups":2,"reward_mean":0.5,"reward_std":0.5,"groups_without_signal":0.0,"advantage_mean":0.0,"advantage_std":1.0,"advantage_min":-1.0,"advantage_max":1.0,"metrics":{"by":2.0},"crc32c":1234567890,"ms":{"recipe":0.25},"time":1795888560.5}"#;
        for line in [own, trainers] {
            let row: Row = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&row).unwrap(), line);
        }
        // Earlier versions wrote null for numbers that a trainer's run did not have.
        let nulls = trainers.replace(r#""metrics":{"by":2.0}"#, r#""loss":null,"metrics":{}"#);
        let row: Row = serde_json::from_str(&nulls).unwrap();
        assert_eq!((row.loss, row.metrics.len()), (None, 0));
        // Another program's row may have any keys, but it must have a step.
        let row: Row =
            serde_json::from_str(r#"{"step":2,"pass@1":0.5,"epoch":3,"ms":{"train":1.5}}"#)
                .unwrap();
        assert_eq!((row.step, row.sampled.pass_at.last()), (2, Some((1, 0.5))));
        assert!(serde_json::from_str::<Row>(r#"{"pass@1":0.5}"#).is_err());
    }

    #[test]
    fn pass_at_k_is_the_share_of_draws_with_a_right_response() {
        // In the first group two of four are right: one of its six pairs has no right response.
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
