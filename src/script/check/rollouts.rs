//! The batches that a check runs on: rollouts made up so that everything occurs in them.

use crate::batch::Batch;

/// Responses from which batches of all kinds are made.
#[derive(Clone)]
pub(super) struct Rollouts {
    pub(super) groups: Vec<i64>,
    pub(super) rewards: Vec<f64>,
    pub(super) lengths: Vec<usize>,
    /// What stands where the mask is 0.
    pub(super) padding: f64,
    /// Whether `logp` is `old_logp`.
    pub(super) on_policy: bool,
}

/// The width of the padded rows, with holes.
const WIDTH: usize = 12;

impl Rollouts {
    /// Sizes, rewards and lengths with everything mixed; interleaved.
    pub(super) fn mixed() -> Rollouts {
        let groups = vec![
            7, 3, 7, 5, 3, 7, 5, 3, 7, 3, 5, 7, 3, 5, 9, 2, 9, 2, 9, 2, 9, 2, 2, 2, 2, 2,
        ];
        // The last group is large, and most of it wrong: a `k` of 4 has something to tell apart there.
        let rewards = vec![
            1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0,
            1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0,
        ];
        let lengths = (0..groups.len()).map(|i| 1 + (i * 5) % 7).collect();
        Rollouts {
            groups,
            rewards,
            lengths,
            padding: 0.0,
            on_policy: false,
        }
    }

    pub(super) fn with_rewards(mut self, reward: impl Fn(usize, i64) -> f64) -> Rollouts {
        self.rewards = self
            .groups
            .iter()
            .enumerate()
            .map(|(i, &group)| reward(i, group))
            .collect();
        self
    }

    pub(super) fn with_groups(mut self, group: impl Fn(usize) -> i64) -> Rollouts {
        self.groups = (0..self.groups.len()).map(group).collect();
        self
    }

    pub(super) fn with_lengths(mut self, length: impl Fn(usize) -> usize) -> Rollouts {
        self.lengths = (0..self.groups.len()).map(length).collect();
        self
    }

    /// The responses at these places, with the numbers of their tokens unchanged.
    pub(super) fn batch(&self, places: &[usize], wide: bool) -> Batch {
        let rows = |value: &dyn Fn(usize, usize) -> f64| {
            let cell = |(row, column): (usize, usize)| {
                let response = places[row];
                if counts(response, column, self.lengths[response]) {
                    value(response, column)
                } else {
                    self.padding
                }
            };
            ndarray::Array2::from_shape_fn((places.len(), WIDTH), cell)
        };
        let mask = ndarray::Array2::from_shape_fn((places.len(), WIDTH), |(row, column)| {
            counts(places[row], column, self.lengths[places[row]])
        });
        let old = |response: usize, column: usize| -0.1 - wave(response, column, 1);
        let moved = if self.on_policy { 0.0 } else { 0.2 };
        let columns: [(&str, ndarray::Array2<f64>); 5] = [
            ("old_logp", rows(&old)),
            (
                "ref_logp",
                rows(&|r, c| old(r, c) + 0.2 * (wave(r, c, 2) - 0.5)),
            ),
            (
                "logp",
                rows(&|r, c| old(r, c) + moved * (wave(r, c, 3) - 0.5)),
            ),
            ("value", rows(&|r, c| wave(r, c, 4))),
            ("entropy", rows(&|r, c| wave(r, c, 5))),
        ];
        let of_responses = |value: &dyn Fn(usize) -> f64| -> Vec<f64> {
            places.iter().map(|&place| value(place)).collect()
        };
        let mut builder = Batch::builder()
            .groups(places.iter().map(|&place| self.groups[place]))
            .mask(mask.view())
            .response("reward", of_responses(&|place| self.rewards[place]))
            // For a loss on `batch.advantage`.
            .response(
                "advantage",
                of_responses(&|place| self.rewards[place] - 0.5),
            );
        for (name, values) in columns {
            builder = match wide {
                true => builder.token(name, values),
                false => builder.token(name, values.mapv(|value| value as f32)),
            };
        }
        match builder.build() {
            Ok(batch) => batch,
            Err(error) => unreachable!("the check's batches are right: {error}"),
        }
    }

    pub(super) fn whole(&self) -> Batch {
        self.batch(&(0..self.groups.len()).collect::<Vec<_>>(), true)
    }
}

/// Whether a token counts: the first ones of the row do, but for a hole in every other response.
fn counts(response: usize, column: usize, length: usize) -> bool {
    match (response % 2 == 1 && length > 1, column) {
        (false, column) => column < length,
        // A tool's output after the first token.
        (true, 0) => true,
        (true, column) => column > 2 && column < length + 2,
    }
}

/// A number in [0, 1) that looks random and is the same everywhere.
fn wave(response: usize, column: usize, salt: usize) -> f64 {
    let x = (response * 31 + column * 17 + salt * 101) as f64;
    (x * 0.618_033_988_749_894_9).fract()
}
