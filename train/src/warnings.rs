//! Warnings of a run, once each: numbers which show that the policy learns little, or the wrong thing.

use std::collections::VecDeque;

use super::config::WarningConfig;
use super::row::Row;
use advlab::number_text::value;

/// Steps in the mean: one odd step is no reason to warn.
const STEPS: usize = 10;

/// The messages about the numbers of a step, in the order of the configuration's keys.
const MESSAGES: [&str; 5] = [
    "{} of the groups have no signal: prompts that are too easy or too hard, or a group_size that is too small",
    "the entropy has fallen to {}: sampled responses hardly differ any more; an entropy bonus, a smaller lr or Pass@k training keep it up",
    "{} of the tokens are clipped: with fewer epochs, a smaller lr or wider bounds they teach again",
    "{} of the responses carry nearly all of the advantage: `advlab mass` shows which",
    "responses are {} times as long as at first: `advlab mass` shows whether long ones get more",
];

/// The numbers of the last steps, and the warnings given so far.
#[derive(Default)]
pub(super) struct Warnings {
    recent: VecDeque<[Option<f64>; 5]>,
    /// The mean length of the first steps.
    length: Option<f64>,
    given: [bool; 5],
}

impl Warnings {
    /// The warnings after a step that have not been given before.
    pub(super) fn after(&mut self, row: &Row, bounds: &WarningConfig) -> Vec<String> {
        self.recent.push_back([
            Some(row.groups_without_signal),
            Some(row.sampled.entropy),
            row.clip_share,
            // If no group has a signal, the first warning says so already.
            Some(row.effective_responses).filter(|share| *share > 0.0),
            Some(row.sampled.length),
        ]);
        if self.recent.len() < STEPS {
            return Vec::new();
        }
        let means: [Option<f64>; 5] = std::array::from_fn(|index| {
            let numbers = self.recent.iter().map(|numbers| numbers[index]);
            Some(numbers.sum::<Option<f64>>()? / STEPS as f64)
        });
        self.recent.pop_front();
        let first = *self.length.get_or_insert(means[4].unwrap_or_default());
        let mut new = Vec::new();
        let mut warn =
            |index: usize, is_beyond: &dyn Fn(&f64) -> bool, shown: &dyn Fn(f64) -> String| {
                if let Some(found) = means[index].filter(is_beyond)
                    && !std::mem::replace(&mut self.given[index], true)
                {
                    new.push(MESSAGES[index].replace("{}", &shown(found)));
                }
            };
        let above = |bound: f64| move |found: &f64| bound > 0.0 && *found > bound;
        let below = |bound: f64| move |found: &f64| *found < bound;
        let percent = |found: f64| format!("{:.0} %", 100.0 * found);
        let growth = |found: f64| value(found / first);
        warn(0, &above(bounds.groups_without_signal), &percent);
        warn(1, &below(bounds.entropy), &value);
        warn(2, &above(bounds.clip_share), &percent);
        warn(3, &below(bounds.effective_responses), &percent);
        warn(4, &above(bounds.length_growth * first), &growth);
        new
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
