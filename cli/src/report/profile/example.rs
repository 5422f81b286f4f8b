//! Batches to measure on, where nobody has rollouts at hand.

use ndarray::Array2;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use advlab::batch::Batch;

/// A batch of random numbers in all columns that built-in recipes read: responses of an eighth of `tokens` to all of
/// them, with a reward of 0 or 1. The same numbers each time.
pub fn example(groups: usize, size: usize, tokens: usize) -> Batch {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let shape = (groups * size, tokens);
    let lengths: Vec<usize> = (0..shape.0)
        .map(|_| random.random_range(tokens / 8..=tokens))
        .collect();
    let rewards: Vec<f64> = (0..shape.0)
        .map(|_| f64::from(random.random_range(0..2u8)))
        .collect();
    let mask = Array2::from_shape_fn(shape, |(response, token)| {
        u8::from(token < lengths[response])
    });
    let mut column =
        |least: f32, most: f32| Array2::from_shape_fn(shape, |_| random.random_range(least..most));
    let old_logp = column(-1.0, 0.0);
    let logp = &old_logp + &column(-0.05, 0.05);
    let ref_logp = &old_logp + &column(-0.1, 0.1);
    let batch = Batch::builder()
        .groups((0..shape.0).map(|response| response / size.max(1)))
        .mask(mask.view())
        .response("reward", rewards)
        .token("old_logp", old_logp)
        .token("logp", logp)
        .token("ref_logp", ref_logp)
        .token("value", column(0.0, 1.0))
        .token("entropy", column(0.0, 2.0))
        .token("advantage", column(-1.0, 1.0))
        .build();
    batch.unwrap_or_else(|error| unreachable!("columns of one shape make a batch: {error}"))
}
