//! Makes the batches of the checks: a small batch with all usual columns, and variants of a batch.

use crate::batch::{Batch, BatchBuilder, Column, FloatBuffer, GroupId};

/// The name of the degenerate batch in which every response is a group of its own.
pub(super) const ALONE: &str = "groups of one";
/// The name of the degenerate batch in which some responses have no tokens, as if an off-policy correction had rejected them.
pub(super) const REJECTED: &str = "a response without tokens";

/// The name of a degenerate batch, whether such a batch occurs in every run, and the function that makes it from another batch.
type Degenerate = (&'static str, bool, fn(&Batch) -> Batch);

/// The degenerate batches that a recipe may meet in training.
pub const DEGENERATE: [Degenerate; 6] = [
    ("all right", true, |batch| with_rewards(batch, |_, _| 1.0)),
    ("all wrong", true, |batch| with_rewards(batch, |_, _| 0.0)),
    (ALONE, false, |batch| regrouped(batch, &|i| i)),
    ("one group", false, |batch| regrouped(batch, &|_| 0)),
    ("one-token responses", false, |batch| {
        shortened(batch, &|_| 1)
    }),
    (REJECTED, false, |batch| {
        shortened(batch, &|i| if i % 4 == 0 { 0 } else { usize::MAX })
    }),
];

/// The largest difference between `logp` and `old_logp`, which is large enough for ratios to be clipped.
const MOVED: f64 = 0.4;

type ByToken<'a> = &'a dyn Fn(usize, usize) -> f64;

/// Makes a batch with all usual columns. Group sizes, rewards and lengths vary, and the groups are interleaved.
pub fn usual() -> Batch {
    // The last group is large and most of its responses are wrong, so that `k = 4` changes its advantages.
    let groups: [i64; 26] = [
        7, 3, 7, 5, 3, 7, 5, 3, 7, 3, 5, 7, 3, 5, 9, 2, 9, 2, 9, 2, 9, 2, 2, 2, 2, 2,
    ];
    let right = [0, 3, 4, 5, 6, 10, 11, 12, 17, 20, 23];
    let lengths = (0..groups.len()).map(|i| 1 + (i * 5) % 7);
    let mut builder = Batch::builder().groups(groups).lengths(lengths.clone());
    let old = |i, t| -0.1 - wave(i, t, 1);
    // The sum of pi^2 over the vocabulary, as if all tokens but the sampled one were a single token.
    let squares = |pi: f64| pi * pi + (1.0 - pi) * (1.0 - pi);
    let near_old = |i, t, salt| old(i, t) + 0.2 * wave(i, t, salt) - 0.1;
    let tokens: [(&str, ByToken<'_>); 8] = [
        ("old_logp", &old),
        ("ref_logp", &|i, t| near_old(i, t, 2)),
        ("value", &|i, t| wave(i, t, 4)),
        ("entropy", &|i, t| wave(i, t, 5)),
        ("rollout_logp", &|i, t| near_old(i, t, 8)),
        ("teacher_logp", &|i, t| -0.1 - wave(i, t, 9)),
        ("process_reward", &|i, t| wave(i, t, 10) - 0.5),
        ("sum_pi_squared", &|i, t| squares(old(i, t).exp())),
    ];
    for (name, value) in tokens {
        let rows = lengths.clone().enumerate();
        let values = rows.flat_map(|(i, length)| (0..length).map(move |t| value(i, t)));
        builder = builder.token(name, buffer(values, true));
    }
    let text = |i: usize, kinds: usize| i * 7 % 5 % kinds;
    let trajectory = |i: usize| (groups[i], text(i, 2));
    // The turns of each trajectory are in reverse order.
    let is_later = |i: usize, j: &usize| trajectory(i) == trajectory(*j);
    let turn = |i: usize| (i + 1..groups.len()).filter(|j| is_later(i, j)).count() as f64;
    let responses: [(&str, &dyn Fn(usize) -> f64); 10] = [
        ("reward", &|i| f64::from(u8::from(right.contains(&i)))),
        ("reward_baseline", &|i| (i % 3 % 2) as f64),
        ("truncated", &|i| f64::from(u8::from(i % 6 == 4))),
        ("input_tokens", &|i| (i * 7 % 5) as f64),
        ("turns", &|i| 1.0 + (i * 3 % 4) as f64),
        ("turn", &turn),
        ("step_reward", &|i| wave(i, 0, 11) - 0.5),
        ("state_score", &|i| wave(i, 0, 12)),
        ("reasoning_length", &|i| (i % 2) as f64),
        ("flawed", &|i| f64::from(u8::from(i % 4 == 3))),
    ];
    for (name, value) in responses {
        builder = builder.response(name, (0..groups.len()).map(value).collect::<Vec<f64>>());
    }
    let kinds = [2, 3, 2, 4, 2];
    let texts = ["role", "agent", "episode", "state", "trajectory"];
    for (name, kinds) in texts.into_iter().zip(kinds) {
        let texts = (0..groups.len()).map(|i| text(i, kinds).to_string());
        builder = builder.text(name, texts);
    }
    with_what_losses_need(&built(builder))
}

fn built(builder: BatchBuilder) -> Batch {
    match builder.build() {
        Ok(batch) => batch,
        Err(error) => unreachable!("the columns of a degenerate batch are invalid: {error}"),
    }
}

/// Converts numbers to one of the two precisions of token columns.
fn buffer(values: impl Iterator<Item = f64>, is_f64: bool) -> FloatBuffer {
    if is_f64 {
        values.collect::<Vec<f64>>().into()
    } else {
        values.map(|x| x as f32).collect::<Vec<f32>>().into()
    }
}

/// Returns the batch with new groups; `group` maps the index of a response to its group.
pub fn regrouped(batch: &Batch, group: &dyn Fn(usize) -> usize) -> Batch {
    copy(batch, Some(group), &|_| usize::MAX, batch.is_f64(), "")
}

/// Returns the batch with each response cut to its first `most(i)` tokens, where `i` is the index of the response.
pub fn shortened(batch: &Batch, most: &dyn Fn(usize) -> usize) -> Batch {
    copy(batch, None, most, batch.is_f64(), "")
}

/// Returns the batch with its token columns in f64 or f32.
pub(super) fn in_precision(batch: &Batch, is_f64: bool) -> Batch {
    copy(batch, None, &|_| usize::MAX, is_f64, "")
}

/// Returns the batch without the column `name`.
pub(crate) fn without(batch: &Batch, name: &str) -> Batch {
    copy(batch, None, &|_| usize::MAX, batch.is_f64(), name)
}

fn copy(
    batch: &Batch,
    group: Option<&dyn Fn(usize) -> usize>,
    most: &dyn Fn(usize) -> usize,
    is_f64: bool,
    without: &str,
) -> Batch {
    let (layout, responses) = (batch.layout(), 0..batch.layout().responses());
    let group = |i: usize| match group {
        Some(group) => GroupId::from(group(i)),
        None => layout.group_id(layout.group_of(i)).clone(),
    };
    let tokens = |i: usize| layout.tokens_of(i).len();
    let kept = |i: usize| tokens(i).min(most(i));
    let is_kept = |name: &str| name != without;
    let mut builder = Batch::builder().step(batch.step());
    builder = builder.groups(responses.clone().map(group));
    if layout.width() > 0 || batch.token_columns().next().is_some() {
        builder = builder.lengths(responses.clone().map(kept));
    }
    for (name, values) in batch.response_columns().filter(|(name, _)| is_kept(name)) {
        // If `length` is the number of tokens, it becomes the number of tokens that remain; any other `length` is unchanged.
        let value = |i: usize| {
            if name == "length" && values[i] == tokens(i) as f64 {
                kept(i) as f64
            } else {
                values[i]
            }
        };
        builder = builder.response(name, responses.clone().map(value).collect::<Vec<f64>>());
    }
    for (name, texts) in batch.texts().filter(|(name, _)| is_kept(name)) {
        builder = builder.text(name, texts.iter().cloned());
    }
    for (name, values) in batch.token_columns().filter(|(name, _)| is_kept(name)) {
        let row = |i: usize| values.of_response(layout, i).take(kept(i));
        builder = builder.token(name, buffer(responses.clone().flat_map(row), is_f64));
    }
    built(builder)
}

/// Adds the columns that a loss needs, if the batch has a reward and `old_logp` for them: an `advantage` (the reward minus its
/// mean over the batch) unless the batch has one, and a `logp` that differs from `old_logp` unless the batch has such a `logp`.
pub(super) fn with_what_losses_need(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    let layout = batch.layout().clone();
    let rows = |name: &str| -> Option<Vec<Vec<f64>>> {
        let column = batch.token_column(name)?;
        let row = |i: usize| column.of_response(&layout, i).collect();
        Some((0..layout.responses()).map(row).collect())
    };
    let (old, logp) = (rows("old_logp"), rows("logp"));
    let column = |name: &str| Some(batch.response_column(name)?.to_vec());
    let sum = |row: &Vec<f64>| row.iter().sum::<f64>();
    let sums = || Some(rows("token_reward")?.iter().map(sum).collect());
    let rewards = column("reward").or_else(|| column("correct")).or_else(sums);
    if let Some(rewards) = rewards.filter(|_| !batch.has("advantage")) {
        let mean = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
        batch = with_responses(&batch, "advantage", |i| rewards[i] - mean);
    }
    if old.is_none() || logp.is_some() && logp != old {
        return batch;
    }
    with_tokens(&on_policy(&batch), "logp", |i, t, old| {
        old + 2.0 * MOVED * (wave(i, t, 3) - 0.5)
    })
}

/// Returns the batch with `logp` equal to `old_logp`, as when the tokens were sampled; a batch without `old_logp` is unchanged.
pub fn on_policy(batch: &Batch) -> Batch {
    made_of(batch, "old_logp", "logp", |_, _, old| old)
}

/// Returns the batch with the response column `name`; `value` maps the index of a response to its value.
pub(super) fn with_responses(batch: &Batch, name: &str, value: impl Fn(usize) -> f64) -> Batch {
    let values = (0..batch.layout().responses()).map(value).collect();
    batch.clone().replacing(name, Column::Response(values))
}

/// Returns the batch with new values in a token column, if it has that column. `value` computes them from the index of the
/// response, the index of the token, and the old value.
pub(super) fn with_tokens(
    batch: &Batch,
    name: &str,
    value: impl Fn(usize, usize, f64) -> f64,
) -> Batch {
    made_of(batch, name, name, value)
}

/// Returns the batch with the token column `name` computed from the column `from`; a batch without a column `from` is unchanged.
fn made_of(
    batch: &Batch,
    from: &str,
    name: &str,
    value: impl Fn(usize, usize, f64) -> f64,
) -> Batch {
    let (layout, Some(column)) = (batch.layout(), batch.token_column(from)) else {
        return batch.clone();
    };
    let value = &value;
    let values = (0..layout.responses()).flat_map(|i| {
        let row = column.of_response(layout, i).enumerate();
        row.map(move |(token, old)| value(i, token, old))
    });
    let values = buffer(values, column.is_f64());
    batch.clone().replacing(name, Column::Token(values.into()))
}

/// Returns the batch with its advantage multiplied by a number.
pub(super) fn with_scaled_advantage(batch: &Batch, scale: f64) -> Batch {
    match batch.response_column("advantage") {
        Some(column) => with_responses(batch, "advantage", |i| scale * column[i]),
        None => with_tokens(batch, "advantage", |_, _, value| scale * value),
    }
}

/// Returns the batch with new rewards in its columns `reward`, `token_reward` and `correct`, if it has them. `reward` computes
/// the reward of a response from the index of the response and the index of its group.
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

/// Returns a number in [0, 1) that looks random but depends only on the arguments.
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
        let small = shortened(&like.select(&[0, 2, 1]), &|_| 8);
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
