//! The schedule of the learning rate: a warm-up, followed by a constant or a falling rate.

use serde::{Deserialize, Serialize};

use super::Config;

/// The learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    Constant,
    /// The rate follows half a period of a cosine, and reaches 0 just after the last step.
    Cosine,
}

impl Config {
    /// Returns the learning rate at a step: it rises to `lr` over the first `warmup_steps`, and then follows the schedule.
    pub(crate) fn lr_at(&self, step: u64) -> f64 {
        let share = |of: u64, all: u64| (of as f64 / all.max(1) as f64).min(1.0);
        let warmup = self.warmup_steps;
        if step < warmup {
            return self.lr * share(step + 1, warmup);
        }
        if self.lr_schedule == Schedule::Constant {
            return self.lr;
        }
        let share = share(step - warmup, self.steps.saturating_sub(warmup));
        self.lr * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_rate_rises_and_stays_or_falls_to_0() {
        let config = Config {
            lr: 0.5,
            steps: 12,
            warmup_steps: 4,
            ..Config::default()
        };
        let rates =
            |config: &Config| -> Vec<f64> { (0..12).map(|step| config.lr_at(step)).collect() };
        let constant = rates(&config);
        assert_eq!(constant[..5], [0.125, 0.25, 0.375, 0.5, 0.5]);
        assert!(constant[4..].iter().all(|lr| *lr == 0.5));
        let cosine = Config {
            lr_schedule: Schedule::Cosine,
            ..config
        };
        let falling = rates(&cosine);
        assert_eq!(falling[..5], constant[..5]);
        // This is halfway through the eight remaining steps.
        assert!((falling[8] - 0.25).abs() < 1e-15);
        assert!(falling[4..].is_sorted_by(|before, after| before > after));
        assert!(cosine.lr_at(12) == 0.0 && falling[11] > 0.0);
        // Without a warm-up, `lr` applies from step 0.
        assert_eq!(Config::default().lr_at(0), Config::default().lr);
    }
}
