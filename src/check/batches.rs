//! Small batches: one with all usual columns, and the variants of a batch that checks compare.

use crate::batch::{Batch, Computed, FloatBuffer, GroupId, Level};

/// A degenerate batch: its name; whether every run meets batches or groups like it, or only some kinds of runs do; and how
/// it is made of another batch.
type Degenerate = (&'static str, bool, fn(&Batch) -> Batch);

/// The degenerate batches that a recipe may meet before long.
pub const DEGENERATE: [Degenerate; 6] = [
    ("all right", true, |batch| with_rewards(batch, |_, _| 1.0)),
    ("all wrong", true, |batch| with_rewards(batch, |_, _| 0.0)),
    ("groups of one", false, |batch| {
        Variant::of(batch).groups(&|response| response)
    }),
    ("one group", false, |batch| {
        Variant::of(batch).groups(&|_| 0)
    }),
    ("one-token responses", false, |batch| {
        Variant::of(batch).lengths(&|_| 1)
    }),
    ("a response without tokens", false, |batch| {
        let length = |response| if response % 4 == 0 { 0 } else { usize::MAX };
        Variant::of(batch).lengths(&length)
    }),
];

/// The largest distance of `logp` from `old_logp`: far enough for a ratio to be clipped.
const MOVED: f64 = 0.4;

type ByToken<'a> = &'a dyn Fn(usize, usize) -> f64;

/// A batch with all usual columns: sizes of groups, rewards and lengths are mixed, and groups interleaved.
pub fn usual() -> Batch {
    // The last group is large, and most of it wrong: a `k` of 4 has something to tell apart there.
    let groups: [i64; 26] = [
        7, 3, 7, 5, 3, 7, 5, 3, 7, 3, 5, 7, 3, 5, 9, 2, 9, 2, 9, 2, 9, 2, 2, 2, 2, 2,
    ];
    let right = [0, 3, 4, 5, 6, 10, 11, 12, 17, 20, 23];
    let lengths: Vec<usize> = (0..groups.len()).map(|i| 1 + (i * 5) % 7).collect();
    let mut builder = Batch::builder().groups(groups).lengths(lengths.clone());
    let old = |i, t| -0.1 - wave(i, t, 1);
    // As if the rest of the vocabulary were one token.
    let squares = |pi: f64| pi * pi + (1.0 - pi) * (1.0 - pi);
    let tokens: [(&str, ByToken<'_>); 8] = [
        ("old_logp", &old),
        ("ref_logp", &|i, t| old(i, t) + 0.2 * wave(i, t, 2) - 0.1),
        ("value", &|i, t| wave(i, t, 4)),
        ("entropy", &|i, t| wave(i, t, 5)),
        ("rollout_logp", &|i, t| {
            old(i, t) + 0.2 * wave(i, t, 8) - 0.1
        }),
        ("teacher_logp", &|i, t| -0.1 - wave(i, t, 9)),
        ("process_reward", &|i, t| wave(i, t, 10) - 0.5),
        ("sum_pi_squared", &|i, t| squares(old(i, t).exp())),
    ];
    for (name, value) in tokens {
        let rows = lengths.iter().enumerate();
        let rows = rows.map(|(i, &length)| (0..length).map(|t| value(i, t)).collect::<Vec<f64>>());
        builder = builder.ragged(name, rows.collect::<Vec<_>>());
    }
    let all = 0..groups.len();
    let responses: [(&str, &dyn Fn(usize) -> f64); 7] = [
        ("reward", &|i| f64::from(u8::from(right.contains(&i)))),
        ("reward_baseline", &|i| (i % 3 % 2) as f64),
        ("truncated", &|i| f64::from(u8::from(i % 6 == 4))),
        ("input_tokens", &|i| (i * 7 % 5) as f64),
        ("turns", &|i| 1.0 + (i * 3 % 4) as f64),
        ("turn", &|i| (i * 11 % 26) as f64),
        ("step_reward", &|i| wave(i, 0, 11) - 0.5),
    ];
    for (name, value) in responses {
        builder = builder.response(name, all.clone().map(value).collect::<Vec<f64>>());
    }
    let kinds = [2, 3, 2, 4, 2];
    let texts = ["role", "agent", "episode", "state", "trajectory"];
    for (name, kinds) in texts.into_iter().zip(kinds) {
        let text = |i: usize| (i * 7 % 5 % kinds).to_string();
        builder = builder.text(name, all.clone().map(text));
    }
    with_what_losses_need(&built(builder.build()))
}

fn built(batch: Result<Batch, crate::Diagnostics>) -> Batch {
    match batch {
        Ok(batch) => batch,
        Err(error) => unreachable!("the columns are those of a batch: {error}"),
    }
}

/// A copy of a batch with some of its parts changed.
#[derive(Clone, Copy)]
pub struct Variant<'a> {
    batch: &'a Batch,
    group: Option<&'a dyn Fn(usize) -> usize>,
    /// The most tokens of each response that are taken over, its first.
    length: &'a dyn Fn(usize) -> usize,
    is_f64: bool,
    /// The name of a column that is left out.
    without: &'a str,
}

impl<'a> Variant<'a> {
    /// A copy with the same groups and tokens, in the batch's own precision.
    pub fn of(batch: &'a Batch) -> Self {
        Variant {
            batch,
            group: None,
            length: &|_| usize::MAX,
            is_f64: batch.is_f64(),
            without: "",
        }
    }

    /// The batch with other groups, by the index of the response.
    pub fn groups(self, group: &dyn Fn(usize) -> usize) -> Batch {
        let group = Some(group);
        Variant { group, ..self }.batch()
    }

    /// The batch with at most so many tokens of each response, its first.
    pub fn lengths(self, length: &dyn Fn(usize) -> usize) -> Batch {
        Variant { length, ..self }.batch()
    }

    pub(super) fn without(self, without: &'a str) -> Batch {
        Variant { without, ..self }.batch()
    }

    pub(super) fn precision(self, is_f64: bool) -> Self {
        Variant { is_f64, ..self }
    }

    /// The copy.
    pub fn batch(self) -> Batch {
        let (batch, layout) = (self.batch, self.batch.layout());
        let responses = 0..layout.responses();
        let group = |response: usize| match self.group {
            Some(group) => GroupId::from(group(response)),
            None => layout.group_id(layout.group_of(response)).clone(),
        };
        let tokens = |response: usize| layout.tokens_of(response).len();
        let lengths = responses.clone().map(|i| tokens(i).min((self.length)(i)));
        let lengths: Vec<usize> = lengths.collect();
        let is_kept = |name: &str| name != self.without;
        let mut builder = Batch::builder().step(batch.step());
        builder = builder.groups(responses.map(group));
        if layout.width() > 0 || batch.token_columns().next().is_some() {
            builder = builder.lengths(lengths.iter().copied());
        }
        for (name, values) in batch.response_columns().filter(|(name, _)| is_kept(name)) {
            let mut values = values.to_vec();
            if name == "length" {
                // A length that counts the tokens counts those that are left; another one stays.
                let counted = values.iter_mut().enumerate();
                let counted = counted.filter(|(i, length)| **length == tokens(*i) as f64);
                counted.for_each(|(i, length)| *length = lengths[i] as f64);
            }
            builder = builder.response(name, values);
        }
        for (name, texts) in batch.texts().filter(|(name, _)| is_kept(name)) {
            builder = builder.text(name, texts.iter().cloned());
        }
        for (name, values) in batch.token_columns().filter(|(name, _)| is_kept(name)) {
            let row = |(i, length): (usize, &usize)| -> Vec<f64> {
                values.of_response(layout, i).take(*length).collect()
            };
            let rows = lengths.iter().enumerate().map(row);
            let narrow = |row: Vec<f64>| -> Vec<f32> { row.iter().map(|x| *x as f32).collect() };
            builder = match self.is_f64 {
                true => builder.ragged(name, rows.collect::<Vec<_>>()),
                false => builder.ragged(name, rows.map(narrow).collect::<Vec<_>>()),
            };
        }
        built(builder.build())
    }
}

/// The batch with an advantage for a loss that reads `batch.advantage`, and log-probs that have moved since the tokens were
/// sampled.
pub(super) fn with_what_losses_need(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    let rewards = ["reward", "correct"].into_iter();
    let mut rewards = rewards.filter_map(|name| Some(batch.response_column(name)?.to_vec()));
    let sums = || {
        let rows = rows(&batch, "token_reward")?.into_iter();
        Some(rows.map(|row| row.iter().sum()).collect::<Vec<f64>>())
    };
    let rewards = rewards.next().or_else(sums);
    if let Some(rewards) = rewards.filter(|_| !batch.has("advantage")) {
        let mean = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
        batch = with_responses(&batch, "advantage", |i| rewards[i] - mean);
    }
    let (old, logp) = (rows(&batch, "old_logp"), rows(&batch, "logp"));
    if old.is_none() || logp.is_some() && logp != old {
        return batch;
    }
    with_tokens(&on_policy(&batch), "logp", |i, t, old| {
        old + 2.0 * MOVED * (wave(i, t, 3) - 0.5)
    })
}

/// The values of a token column, response by response.
fn rows(batch: &Batch, name: &str) -> Option<Vec<Vec<f64>>> {
    let (layout, column) = (batch.layout(), batch.token_column(name)?);
    let rows = (0..layout.responses()).map(|i| column.of_response(layout, i).collect());
    Some(rows.collect())
}

/// The batch with `logp` as it was when the tokens were sampled.
pub fn on_policy(batch: &Batch) -> Batch {
    made_of(batch, "old_logp", "logp", |_, _, old| old)
}

/// The batch with a response column of values made from the index of the response.
fn with_responses(batch: &Batch, name: &str, value: impl Fn(usize) -> f64) -> Batch {
    let layout = batch.layout().clone();
    let values: Vec<f64> = (0..layout.responses()).map(value).collect();
    let values = Computed::new(layout, Level::Response, values);
    batch.clone().with(name, &values)
}

/// The batch with other values in a token column, if it has it: made from the index of the response, that of its token,
/// and the value there.
pub(super) fn with_tokens(
    batch: &Batch,
    name: &str,
    value: impl Fn(usize, usize, f64) -> f64,
) -> Batch {
    made_of(batch, name, name, value)
}

/// The batch with a token column made of another one, if it has that.
fn made_of(
    batch: &Batch,
    from: &str,
    name: &str,
    value: impl Fn(usize, usize, f64) -> f64,
) -> Batch {
    let (Some(column), Some(rows)) = (batch.token_column(from), rows(batch, from)) else {
        return batch.clone();
    };
    let values = rows.iter().enumerate().flat_map(|(response, row)| {
        let row = row.iter().enumerate();
        row.map(|(token, old)| value(response, token, *old))
            .collect::<Vec<f64>>()
    });
    let values: FloatBuffer = match column.is_f64() {
        true => values.collect::<Vec<f64>>().into(),
        false => values
            .map(|value| value as f32)
            .collect::<Vec<f32>>()
            .into(),
    };
    let values = Computed::new(batch.layout().clone(), Level::Token, values);
    batch.clone().with(name, &values)
}

/// The batch with its advantage multiplied by a number.
pub(super) fn with_scaled_advantage(batch: &Batch, scale: f64) -> Batch {
    match batch.response_column("advantage") {
        Some(column) => with_responses(batch, "advantage", |i| scale * column[i]),
        None => with_tokens(batch, "advantage", |_, _, value| scale * value),
    }
}

/// The batch with other rewards, made from the index of the response and that of its group, in each form that the rewards
/// have.
pub fn with_rewards(batch: &Batch, reward: impl Fn(usize, usize) -> f64) -> Batch {
    let layout = batch.layout();
    let reward = |response: usize| reward(response, layout.group_of(response));
    let mut batch = with_tokens(batch, "token_reward", |response, token, _| {
        let is_last = token + 1 == layout.tokens_of(response).len();
        if is_last { reward(response) } else { 0.0 }
    });
    if batch.response_column("correct").is_some() {
        let correct = |response| f64::from(u8::from(reward(response) > 0.0));
        batch = with_responses(&batch, "correct", correct);
    }
    if batch.response_column("reward").is_some() {
        batch = with_responses(&batch, "reward", reward);
    }
    batch
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
        let small = Variant::of(&like.select(&[0, 2, 1])).lengths(&|_| 8);
        let all = DEGENERATE.map(|(name, _, of)| {
            let batch = of(&small);
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
            assert_eq!(of(&like).layout().tokens(), 0, "{name}");
        }
    }
}
