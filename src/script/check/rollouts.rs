//! Small batches: rollouts with everything in them, the first of a batch, and the degenerate ones that are made of both.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ndarray::Array2;

use crate::batch::{Batch, GroupId};

/// Responses from which batches of all kinds are made.
#[derive(Clone)]
pub struct Rollouts {
    groups: Vec<GroupId>,
    /// Tokens of each response that count; `None` where the batch says nothing of tokens.
    lengths: Option<Vec<usize>>,
    responses: BTreeMap<String, Vec<f64>>,
    /// A row for each response, of as many tokens as it has, or more.
    tokens: BTreeMap<String, Vec<Vec<f64>>>,
    texts: BTreeMap<String, Vec<Arc<str>>>,
    /// The value of cells where the mask is 0.
    pub(super) padding: f64,
    pub(super) is_f64: bool,
    step: u64,
}

/// The name of a degenerate batch that a recipe may meet before long; whether every run meets batches or groups like it,
/// or only some kinds of runs do; and how it is made of other rollouts.
type Degenerate = (&'static str, bool, fn(Rollouts) -> Rollouts);

pub(crate) const DEGENERATE: [Degenerate; 6] = [
    ("all right", true, |all| all.with_rewards(|_, _| 1.0)),
    ("all wrong", true, |all| all.with_rewards(|_, _| 0.0)),
    ("groups of one", false, |all| all.with_groups(|i| i)),
    ("one group", false, |all| all.with_groups(|_| 0)),
    ("one-token responses", false, |all| all.with_lengths(|_| 1)),
    ("a response without tokens", false, |all| {
        all.with_lengths(|i| if i % 4 == 0 { 0 } else { usize::MAX })
    }),
];

/// How far `logp` is from `old_logp` at most: far enough for a ratio to be clipped.
const MOVED: f64 = 0.4;

impl Rollouts {
    /// Sizes, rewards and lengths with everything mixed; interleaved.
    pub fn mixed() -> Rollouts {
        // The last group is large, and most of it wrong: a `k` of 4 has something to tell apart there.
        let groups: [i64; 26] = [
            7, 3, 7, 5, 3, 7, 5, 3, 7, 3, 5, 7, 3, 5, 9, 2, 9, 2, 9, 2, 9, 2, 2, 2, 2, 2,
        ];
        let right = [0, 3, 4, 5, 6, 10, 11, 12, 17, 20, 23];
        let reward = (0..groups.len()).map(|i| f64::from(u8::from(right.contains(&i))));
        let lengths: Vec<usize> = (0..groups.len()).map(|i| 1 + (i * 5) % 7).collect();
        let rows = |value: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
            let row = |(i, &length): (usize, &usize)| (0..length).map(|t| value(i, t)).collect();
            lengths.iter().enumerate().map(row).collect()
        };
        let old = |response, token| -0.1 - wave(response, token, 1);
        let tokens = [
            ("old_logp", rows(&old)),
            (
                "ref_logp",
                rows(&|i, t| old(i, t) + 0.2 * (wave(i, t, 2) - 0.5)),
            ),
            ("value", rows(&|i, t| wave(i, t, 4))),
            ("entropy", rows(&|i, t| wave(i, t, 5))),
            (
                "rollout_logp",
                rows(&|i, t| old(i, t) + 0.2 * (wave(i, t, 8) - 0.5)),
            ),
            ("teacher_logp", rows(&|i, t| -0.1 - wave(i, t, 9))),
            ("process_reward", rows(&|i, t| wave(i, t, 10) - 0.5)),
            // As if the rest of the vocabulary were one token.
            (
                "sum_pi_squared",
                rows(&|i, t| {
                    let pi = old(i, t).exp();
                    pi * pi + (1.0 - pi) * (1.0 - pi)
                }),
            ),
        ];
        let by_response = |value: &dyn Fn(usize) -> f64| (0..groups.len()).map(value).collect();
        let responses = [
            ("reward", reward.collect()),
            ("reward_baseline", by_response(&|i| (i % 3 % 2) as f64)),
            (
                "truncated",
                by_response(&|i| f64::from(u8::from(i % 6 == 4))),
            ),
            ("input_tokens", by_response(&|i| (i * 7 % 5) as f64)),
            ("turns", by_response(&|i| 1.0 + (i * 3 % 4) as f64)),
            ("turn", by_response(&|i| (i * 11 % 26) as f64)),
            ("step_reward", by_response(&|i| wave(i, 0, 11) - 0.5)),
        ];
        let texts = [
            ("role", 2),
            ("agent", 3),
            ("episode", 2),
            ("state", 4),
            ("trajectory", 2),
        ];
        let texts = texts.map(|(name, of): (&str, usize)| {
            let text = |i: usize| (i * 7 % 5 % of).to_string().into();
            (name.to_string(), (0..groups.len()).map(text).collect())
        });
        Rollouts {
            groups: groups.into_iter().map(GroupId::from).collect(),
            responses: responses
                .map(|(name, values): (&str, Vec<f64>)| (name.to_string(), values))
                .into(),
            tokens: tokens.map(|(name, rows)| (name.to_string(), rows)).into(),
            texts: texts.into(),
            lengths: Some(lengths),
            padding: 0.0,
            is_f64: true,
            step: 0,
        }
        .with_what_losses_need()
    }

    /// These responses of a batch, with at most so many tokens of each, in the batch's own precision.
    pub fn of(batch: &Batch, taken: &[usize], most: usize) -> Rollouts {
        let (layout, all) = (batch.layout(), taken.iter());
        let has_tokens = layout.width() > 0 || batch.token_columns().next().is_some();
        let responses = batch.response_columns().map(|(name, values)| {
            let values = all.clone().map(|&i| values[i]).collect();
            (name.to_string(), values)
        });
        let tokens = batch.token_columns().map(|(name, values)| {
            let row = |&i: &usize| values.of_response(layout, i).take(most).collect();
            (name.to_string(), all.clone().map(row).collect())
        });
        let texts = batch.texts().map(|(name, texts)| {
            let texts = all.clone().map(|&i| texts[i].clone()).collect();
            (name.to_string(), texts)
        });
        let group = |&i: &usize| layout.group_id(layout.group_of(i)).clone();
        let rollouts = Rollouts {
            groups: all.clone().map(group).collect(),
            lengths: has_tokens.then(|| all.clone().map(|&i| layout.tokens_of(i).len()).collect()),
            responses: responses.collect(),
            tokens: tokens.collect(),
            texts: texts.collect(),
            padding: 0.0,
            is_f64: batch.is_f64(),
            step: batch.step(),
        };
        rollouts.with_lengths(|_| most)
    }

    /// An advantage for a loss on `batch.advantage`, and log-probs that have moved since the tokens were drawn.
    pub(super) fn with_what_losses_need(mut self) -> Rollouts {
        let mut named = ["reward", "correct"].iter();
        let rewards = named.find_map(|name| self.responses.get(*name)).cloned();
        let sums = |rows: &Vec<Vec<f64>>| rows.iter().map(|row| row.iter().sum()).collect();
        let rewards = rewards.or_else(|| self.tokens.get("token_reward").map(sums));
        if let Some(mut rewards) = rewards.filter(|_| !self.tokens.contains_key("advantage")) {
            let mean = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
            rewards.iter_mut().for_each(|reward| *reward -= mean);
            self.responses.entry("advantage".into()).or_insert(rewards);
        }
        if let Some(old) = self.tokens.get("old_logp").cloned()
            && self.tokens.get("logp").is_none_or(|logp| *logp == old)
        {
            self.tokens.insert("logp".into(), old);
            let move_on = |i, t, old| old + 2.0 * MOVED * (wave(i, t, 3) - 0.5);
            return self.with_tokens("logp", move_on);
        }
        self
    }

    /// The names of the columns.
    pub(super) fn columns(&self) -> Vec<String> {
        let names = self.responses.keys().chain(self.tokens.keys());
        let names = names.chain(self.texts.keys());
        names.cloned().collect()
    }

    /// The rollouts without a column; `None` where there is none of that name.
    pub(super) fn without(mut self, column: &str) -> Option<Rollouts> {
        let of_responses = self.responses.remove(column).is_some();
        let of_texts = self.texts.remove(column).is_some();
        (of_responses || of_texts || self.tokens.remove(column).is_some()).then_some(self)
    }

    /// The rollouts with `logp` as it was when the tokens were drawn.
    pub fn on_policy(mut self) -> Rollouts {
        if let Some(old) = self.tokens.get("old_logp").cloned() {
            self.tokens.insert("logp".into(), old);
        }
        self
    }

    /// Gives a token column other values, made from the index of the response, that of its token, and the value there.
    pub(super) fn with_tokens(
        mut self,
        name: &str,
        value: impl Fn(usize, usize, f64) -> f64,
    ) -> Rollouts {
        for (i, row) in self.tokens.get_mut(name).into_iter().flatten().enumerate() {
            for (t, cell) in row.iter_mut().enumerate() {
                *cell = value(i, t, *cell);
            }
        }
        self
    }

    pub(super) fn with_advantage(mut self, value: impl Fn(f64) -> f64) -> Rollouts {
        let column = self.responses.get_mut("advantage").into_iter().flatten();
        column.for_each(|cell| *cell = value(*cell));
        self.with_tokens("advantage", |_, _, cell| value(cell))
    }

    /// Gives other rewards, made from the index of the response and that of its group, in each form that the rewards
    /// have.
    pub fn with_rewards(mut self, reward: impl Fn(usize, usize) -> f64) -> Rollouts {
        let mut groups = HashMap::new();
        let ids = self.groups.iter().enumerate();
        let rewards = ids.map(|(i, id)| {
            let next = groups.len();
            reward(i, *groups.entry(id).or_insert(next))
        });
        let rewards: Vec<f64> = rewards.collect();
        if let Some(correct) = self.responses.get_mut("correct") {
            *correct = rewards
                .iter()
                .map(|&x| f64::from(u8::from(x > 0.0)))
                .collect();
        }
        if let Some(rows) = self.tokens.get_mut("token_reward") {
            let lengths = self.lengths.iter().flatten();
            for ((row, &reward), &length) in rows.iter_mut().zip(&rewards).zip(lengths) {
                row.fill(0.0);
                if let Some(last) = row[..length].last_mut() {
                    *last = reward;
                }
            }
        }
        if let Some(column) = self.responses.get_mut("reward") {
            *column = rewards;
        }
        self
    }

    /// The same rollouts in other groups: each response in the group of that number.
    pub fn with_groups(mut self, group: impl Fn(usize) -> usize) -> Rollouts {
        self.groups = (0..self.groups.len()).map(|i| group(i).into()).collect();
        self
    }

    /// The rollouts with the first tokens of each response alone, at most that many.
    pub(super) fn with_lengths(mut self, most: impl Fn(usize) -> usize) -> Rollouts {
        let counted = self.responses.get_mut("length");
        let lengths = self.lengths.iter_mut().flatten().enumerate();
        let mut columns = counted.into_iter().flatten();
        for (i, length) in lengths {
            let shorter = most(i).min(*length);
            // A length that counts the tokens counts those that are left; another one stays.
            if let Some(cell) = columns.next().filter(|cell| **cell == *length as f64) {
                *cell = shorter as f64;
            }
            *length = shorter;
        }
        self
    }

    /// All responses.
    pub fn whole(&self) -> Batch {
        self.batch(&(0..self.groups.len()).collect::<Vec<_>>())
    }

    /// The responses of these indices, padded, with holes in every other row.
    pub(super) fn batch(&self, indices: &[usize]) -> Batch {
        let mut builder = Batch::builder()
            .groups(indices.iter().map(|&i| self.groups[i].clone()))
            .step(self.step);
        for (name, values) in &self.responses {
            let values: Vec<f64> = indices.iter().map(|&i| values[i]).collect();
            builder = builder.response(name, values);
        }
        for (name, texts) in &self.texts {
            let texts = indices.iter().map(|&i| texts[i].clone());
            builder = builder.text(name.as_str(), texts);
        }
        if let Some(lengths) = &self.lengths {
            // A hole of two takes its columns too.
            let width = lengths.iter().max().map_or(0, |longest| longest + 2);
            let shape = (indices.len(), width);
            let token = |(row, column): (usize, usize)| {
                token_at(indices[row], column, lengths[indices[row]])
            };
            let mask = Array2::from_shape_fn(shape, |cell| token(cell).is_some());
            builder = builder.mask(mask.view());
            for (name, rows) in &self.tokens {
                let values = Array2::from_shape_fn(shape, |cell| {
                    token(cell).map_or(self.padding, |token| rows[indices[cell.0]][token])
                });
                builder = if self.is_f64 {
                    builder.token(name, values)
                } else {
                    builder.token(name, values.mapv(|value| value as f32))
                };
            }
        }
        match builder.build() {
            Ok(batch) => batch,
            Err(error) => unreachable!("the columns are those of a batch: {error}"),
        }
    }
}

/// The token of a response at a column: the first columns of its row, but for a hole of two after the first token, as
/// of a tool's output, in every other response.
fn token_at(response: usize, column: usize, length: usize) -> Option<usize> {
    let has_hole = response % 2 == 1 && length > 1;
    let token = match column {
        1 | 2 if has_hole => return None,
        3.. if has_hole => column - 2,
        _ => column,
    };
    (token < length).then_some(token)
}

/// A number in [0, 1) that looks random and is the same everywhere.
pub(super) fn wave(response: usize, token: usize, salt: usize) -> f64 {
    let x = (response * 31 + token * 17 + salt * 101) as f64;
    (x * 0.618_033_988_749_894_9).fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degenerate_batches_have_the_columns_and_group_sizes_of_the_run() {
        let padded = ndarray::array![[-0.1f32, -0.2, 9.0], [-0.3, 9.0, 9.0], [-0.4, -0.5, -0.6]];
        let mask = ndarray::array![[1, 1, 0], [1, 0, 0], [1, 1, 1]];
        let like = Batch::builder()
            .groups(["a", "b", "a"])
            .mask(mask.view())
            .response("reward", vec![1.0, 0.0, 0.5])
            .response("length", vec![2.0, 1.0, 700.0])
            .token("old_logp", padded.view())
            .build()
            .unwrap();
        let all = DEGENERATE.map(|(name, _, of)| {
            let batch = of(Rollouts::of(&like, &[0, 2, 1], 8)).whole();
            let columns: Vec<&str> = batch.columns().collect();
            let expected: Vec<&str> = like.columns().collect();
            assert_eq!(columns, expected, "{name}");
            assert!(!batch.token_column("old_logp").unwrap().is_f64());
            batch
        });
        let [right, wrong, ones, _, short, without] = &all;
        assert_eq!(right.response_column("reward").unwrap(), [1.0; 3]);
        assert_eq!(right.response_column("length").unwrap(), [2.0, 700.0, 1.0]);
        let layout = right.layout();
        let sizes: Vec<usize> = (0..2).map(|group| layout.members(group).len()).collect();
        assert_eq!(sizes, [2, 1]);
        assert_eq!(layout.tokens(), like.layout().tokens());
        assert_eq!(wrong.response_column("reward").unwrap(), [0.0; 3]);
        assert_eq!(ones.layout().groups(), 3);
        assert_eq!(short.layout().tokens(), 3);
        assert_eq!(without.layout().tokens_of(0).len(), 0);
        assert_eq!(without.response_column("length").unwrap()[0], 0.0);
    }

    #[test]
    fn a_batch_without_tokens_has_degenerate_ones_too() {
        let like = Batch::builder()
            .groups([0, 0])
            .response("reward", vec![1.0, 0.0])
            .build()
            .unwrap();
        for (name, _, of) in DEGENERATE {
            let batch = of(Rollouts::of(&like, &[0, 1], 8)).whole();
            assert_eq!(batch.layout().tokens(), 0, "{name}");
        }
    }
}
