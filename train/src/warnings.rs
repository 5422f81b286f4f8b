//! What a run warns of, once each: numbers that show that it learns little, or not what is meant.

use std::collections::VecDeque;

use super::config::WarningConfig;
use super::row::Row;
use advlab::figures::value;

/// Steps whose mean counts: one odd step is no reason to warn.
const STEPS: usize = 10;
/// The numbers of a step, in the order of the configuration's keys.
type Numbers = [Option<f64>; 5];

/// The numbers of the last steps, and the warnings that were given.
#[derive(Default)]
pub(super) struct Warnings {
    recent: VecDeque<Numbers>,
    /// The mean length of the first steps.
    length: Option<f64>,
    given: [bool; 5],
}

impl Warnings {
    /// The warnings after a step that were not given before.
    pub(super) fn after(&mut self, row: &Row, bounds: &WarningConfig) -> Vec<String> {
        let sampled = &row.sampled;
        self.recent.push_back([
            Some(row.groups_without_signal),
            Some(sampled.entropy),
            row.clip_share,
            // If nothing has a signal, the first warning says so.
            Some(row.effective_responses).filter(|share| *share > 0.0),
            Some(sampled.length),
        ]);
        if self.recent.len() < STEPS {
            return Vec::new();
        }
        let mean = |index: usize| -> Option<f64> {
            let numbers = self.recent.iter().map(|numbers| numbers[index]);
            Some(numbers.sum::<Option<f64>>()? / STEPS as f64)
        };
        let [no_signal, entropy, clipped, effective, length] = std::array::from_fn(mean);
        self.recent.pop_front();
        let first = *self.length.get_or_insert(length.unwrap_or_default());
        let above = |found: Option<f64>, bound: f64| found.filter(|x| bound > 0.0 && *x > bound);
        let below = |found: Option<f64>, bound: f64| found.filter(|x| *x < bound);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let beyond = [
            above(no_signal, bounds.groups_without_signal).map(|share| {
                let share = percent(share);
                format!("{share} of the groups have no signal: prompts that are too easy or too hard, or a group_size that is too small")
            }),
            below(entropy, bounds.entropy).map(|entropy| {
                let entropy = value(entropy);
                format!("the entropy has fallen to {entropy}: what is sampled hardly differs any more; an entropy bonus, a smaller lr or Pass@k training keep it up")
            }),
            above(clipped, bounds.clip_share).map(|share| {
                let share = percent(share);
                format!("{share} of the tokens are clipped: fewer epochs, a smaller lr or wider bounds let them teach")
            }),
            below(effective, bounds.effective_responses).map(|share| {
                let share = percent(share);
                format!("{share} of the responses carry nearly all of the advantage: `advlab mass` shows which")
            }),
            above(length, bounds.length_growth * first).map(|length| {
                let times = value(length / first);
                format!("responses are {times} times as long as at first: `advlab mass` shows whether long ones get more")
            }),
        ];
        let new = beyond
            .into_iter()
            .zip(&mut self.given)
            .filter_map(|(message, given)| {
                let message = message.filter(|_| !*given)?;
                *given = true;
                Some(message)
            });
        new.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Evaluation};

    #[test]
    fn each_is_told_once_and_by_the_mean_of_ten_steps() {
        let row = |entropy: f64, length: f64| Row {
            sampled: Evaluation {
                entropy,
                length,
                ..Evaluation::default()
            },
            effective_responses: 0.5,
            ..Row::default()
        };
        let bounds = Config::default().warnings;
        let mut warnings = Warnings::default();
        let mut told = Vec::new();
        for step in 0..60 {
            let row = if step < 20 {
                row(1.0, 10.0)
            } else {
                row(0.0, 100.0)
            };
            let new = warnings.after(&row, &bounds);
            told.extend(new.into_iter().map(|text| (step, text)));
        }
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].0 > 21 && told[0].1.contains("times as long"),
            "{told:?}"
        );
        assert!(told[1].0 == 29 && told[1].1.contains("entropy"), "{told:?}");
        // 0 is never.
        let never = WarningConfig {
            entropy: 0.0,
            length_growth: 0.0,
            ..bounds
        };
        let mut warnings = Warnings::default();
        assert!((0..20).all(|_| warnings.after(&row(0.0, 1.0), &never).is_empty()));
    }
}
