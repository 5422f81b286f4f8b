//! Random streams: each stream is a pure function of the run's seed, the stream's purpose, the step and an index.
//!
//! ChaCha is counter-based: a stream can be opened without drawing the numbers of other streams. Therefore a resumed run, a
//! replayed run and a run with another number of threads draw the same numbers.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// The purpose of a stream. Its number is part of the stream's seed, so it must be unique and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The initial parameters of a policy.
    Initialization = 0,
    /// The prompts that training draws.
    TrainingPrompts = 1,
    /// The prompts of the evaluation set.
    EvaluationPrompts = 2,
    /// The tokens of responses that are trained on.
    Responses = 3,
    /// The tokens of responses that are only evaluated.
    EvaluationResponses = 4,
    /// The order in which an epoch's groups are divided into minibatches.
    Minibatches = 5,
    /// The prompts of supervised fine-tuning.
    FineTuning = 6,
    /// Draws for an estimate that involves no training.
    Estimates = 7,
}

/// The key of a family of streams, which has one stream for each index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// The run's seed.
    pub seed: u64,
    /// The purpose of the random numbers.
    pub purpose: Purpose,
    /// The training step or fine-tuning update, counted from 0, with the turn and the attempt in the upper 16 bits (see `again`);
    /// `u64::MAX` for the evaluation before the first step.
    pub step: u64,
}

impl StreamKey {
    /// Returns the family for a purpose at a step.
    pub const fn new(seed: u64, purpose: Purpose, step: u64) -> StreamKey {
        StreamKey {
            seed,
            purpose,
            step,
        }
    }

    /// Returns the family for a later turn of the step's responses, or for another attempt at the step. Turn and attempt change
    /// the step's upper bits, which steps below 2^48 do not use.
    pub const fn again(self, turn: u8, attempt: u8) -> StreamKey {
        let other = ((turn as u64) << 48) | ((attempt as u64) << 56);
        StreamKey {
            step: self.step ^ other,
            ..self
        }
    }

    /// Returns the stream at `index`, such as the index of a prompt in its step or of a response in its batch.
    pub fn stream(&self, index: u64) -> RandomStream {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&(self.purpose as u64).to_le_bytes());
        seed[16..24].copy_from_slice(&self.step.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(seed);
        generator.set_stream(index);
        RandomStream { generator }
    }
}

/// One sequence of random numbers.
#[derive(Debug)]
pub struct RandomStream {
    generator: ChaCha8Rng,
}

// The mappings from bits to numbers are implemented here, because the mappings of `rand` may change in a minor version, and a run
// must replay with the same numbers after an update.
impl RandomStream {
    /// Puts items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Returns a number in [0, 1), a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.generator.next_u64() >> 11) as f64 * f64::EPSILON / 2.0
    }

    /// Returns an integer in 0..n (0 if n is 0); relative to 1/n, a value's probability is off by at most n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.generator.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Picks one of the items, of which there must be at least one.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: StreamKey = StreamKey::new(1, Purpose::Responses, 2);

    fn head(key: StreamKey, index: u64) -> Vec<u64> {
        let mut stream = key.stream(index);
        (0..40).map(|_| stream.below(u64::MAX)).collect()
    }

    #[test]
    fn a_stream_depends_on_its_key_and_index_alone() {
        assert_eq!(head(KEY, 3), head(KEY, 3));
        let others = [
            head(KEY, 4),
            head(StreamKey { seed: 2, ..KEY }, 3),
            head(StreamKey { step: 3, ..KEY }, 3),
            head(
                StreamKey {
                    purpose: Purpose::TrainingPrompts,
                    ..KEY
                },
                3,
            ),
        ];
        for other in others {
            assert!(head(KEY, 3).iter().all(|number| !other.contains(number)));
        }
    }

    /// If these draws change, every run's numbers change.
    #[test]
    fn the_first_draws_of_each_purpose_stay_as_they_are() {
        use Purpose::*;
        for (purpose, expected) in [
            (Initialization, 14_333_231_192_236_240_189),
            (TrainingPrompts, 13_080_838_871_988_150_933),
            (EvaluationPrompts, 5_237_990_258_058_543_954),
            (Responses, 8_940_395_646_389_000_756),
            (EvaluationResponses, 5_013_192_317_427_791_207),
            (Minibatches, 17_651_911_862_638_011_772),
            (FineTuning, 6_177_301_321_678_019_017),
            (Estimates, 13_244_129_179_432_075_632),
        ] {
            let mut stream = StreamKey::new(7, purpose, 3).stream(5);
            assert_eq!(stream.generator.next_u64(), expected, "{purpose:?}");
        }
    }

    #[test]
    fn uniform_numbers_are_in_the_unit_interval_with_its_mean_and_variance() {
        let mut stream = KEY.stream(0);
        let numbers: Vec<f64> = (0..100_000).map(|_| stream.uniform()).collect();
        assert!(numbers.iter().all(|&u| (0.0..1.0).contains(&u)));
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|u| (u - mean).powi(2)).sum::<f64>() / 1e5;
        // The tolerance is five standard errors.
        assert!((mean - 0.5).abs() < 0.005, "mean {mean}");
        assert!(
            (variance - 1.0 / 12.0).abs() < 0.0012,
            "variance {variance}"
        );
    }

    #[test]
    fn whole_numbers_reach_every_value_below_n_and_no_other() {
        let mut stream = KEY.stream(0);
        let mut seen = [0; 7];
        for _ in 0..7_000 {
            seen[stream.below(7) as usize] += 1;
        }
        assert!(
            seen.iter().all(|&count| (850..1150).contains(&count)),
            "{seen:?}"
        );
        assert_eq!(stream.below(0), 0);
    }
}
