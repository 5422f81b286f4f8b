//! The batch that is there without an input: real rollouts, so that the first formula has something to work on.

use serde::Deserialize;

use crate::Batch;

/// The first 16 groups of `examples/rollouts.jsonl`: a small policy on mazes, after 150 steps of GRPO.
const ROLLOUTS: &str = include_str!("rollouts.jsonl");

#[derive(Deserialize)]
struct Row {
    group: String,
    reward: f64,
    old_logp: Vec<f64>,
    ref_logp: Vec<f64>,
    entropy: Vec<f64>,
}

/// 128 responses to 16 prompts, with what their tokens' log-probs and entropies were.
pub fn builtin() -> Batch {
    let rows = ROLLOUTS.lines().map(serde_json::from_str);
    let rows: Vec<Row> = rows
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| unreachable!("the built-in rollouts are right: {error}"));
    let rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
    Batch::builder()
        .groups(rows.iter().map(|row| row.group.as_str()))
        .response("reward", rewards)
        .ragged("old_logp", rows.iter().map(|row| &row.old_logp))
        .ragged("ref_logp", rows.iter().map(|row| &row.ref_logp))
        .ragged("entropy", rows.iter().map(|row| &row.entropy))
        .build()
        .unwrap_or_else(|error| unreachable!("the built-in rollouts make a batch: {error}"))
}
