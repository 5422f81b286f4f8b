//! Warnings, each given at most once per run, that the policy learns little or learns the wrong thing. The bounds are the
//! settings `[warnings]` in `config/defaults.toml`.

use std::collections::VecDeque;

use super::config::WarningConfig;
use super::row::Row;
use advlab::number_text::value;

/// The number of steps over which a mean is taken. Means are used because a single unusual step is no reason to warn.
const STEPS: usize = 10;

/// The messages, in the order of the keys in `[warnings]`. Each number is the mean over the last `STEPS` steps; for the length
/// of responses, this mean is divided by the mean over the first `STEPS` steps.
const MESSAGES: [&str; 5] = [
    "{} of the groups have no signal: perhaps the prompts are too easy or too hard, or group_size is too small",
    "the entropy is only {}: sampled responses hardly differ; an entropy bonus, a smaller lr or Pass@k training keeps the entropy higher",
    "{} of the tokens are clipped: with fewer epochs, a smaller lr or wider bounds, fewer tokens are clipped",
    "few responses carry most of the advantage, effectively {} of them: `advlab mass` shows which responses",
    "responses are {} times as long as at first: `advlab mass` shows whether long responses get more of the advantage",
];

/// A warning names the last reload if that reload was fewer than this many steps ago.
const RELOAD: u64 = 100;

/// The warnings of a run. They depend only on the run's rows in `metrics.jsonl`. A resumed run passes its old rows first, so it
/// does not repeat their warnings.
#[derive(Default)]
pub(super) struct Warnings {
    recent: VecDeque<[Option<f64>; 5]>,
    /// The mean length of responses over the first `STEPS` steps.
    length: Option<f64>,
    given: [bool; 5],
    version: String,
    /// The step at which the version last changed, and both versions as text.
    change: Option<(u64, String)>,
}

impl Warnings {
    /// Returns the warnings that are due after a step and have not been given before.
    pub(super) fn after(&mut self, row: &Row, bounds: &WarningConfig) -> Vec<String> {
        let step = row.step;
        let before = std::mem::replace(&mut self.version, row.version.clone());
        if !before.is_empty() && before != self.version {
            let [from, to] = [&before, &self.version].map(|one| one.get(..6).unwrap_or(one));
            self.change = Some((step, format!("{from} -> {to}")));
        }
        self.recent.push_back([
            row.groups_without_signal,
            row.sampled.entropy,
            row.clip_share,
            // A share of 0 is ignored, because the first warning already says that no group has a signal.
            row.effective_responses.filter(|share| *share > 0.0),
            row.sampled.length,
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
        let change = self.change.as_ref();
        let change = change.filter(|(at, _)| step.saturating_sub(*at) < RELOAD);
        let change = change.map_or(String::new(), |(at, versions)| {
            format!("; the cause may be the reload at step {at} ({versions})")
        });
        let [signal, entropy, clipped, effective, length] = means;
        let above = |mean: Option<f64>, bound| mean.filter(|mean| bound > 0.0 && *mean > bound);
        let below = |mean: Option<f64>, bound| mean.filter(|mean| *mean < bound);
        let percent = |found: f64| format!("{:.0} %", 100.0 * found);
        let found = [
            above(signal, bounds.groups_without_signal).map(percent),
            below(entropy, bounds.entropy).map(value),
            above(clipped, bounds.clip_share).map(percent),
            below(effective, bounds.effective_responses).map(percent),
            above(length, bounds.length_growth * first).map(|found| value(found / first)),
        ];
        let told = found.into_iter().zip(&mut self.given).zip(MESSAGES);
        let told = told.filter_map(|((found, given), message)| {
            let found = found.filter(|_| !std::mem::replace(given, true))?;
            Some(format!("{}{change}", message.replace("{}", &found)))
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Evaluation};

    #[test]
    fn each_is_told_once_and_by_the_mean_of_ten_steps() {
        let row = |step: u64, version: &str, entropy: f64, length: f64| Row {
            step,
            version: version.repeat(64),
            sampled: Evaluation {
                entropy: Some(entropy),
                length: Some(length),
                ..Evaluation::default()
            },
            effective_responses: Some(0.5),
            ..Row::default()
        };
        let bounds = Config::default().warnings;
        let rows = |reload: u64| {
            (0..200).map(move |step| {
                let version = if step < reload { "a" } else { "b" };
                let (entropy, length) = if step < 120 {
                    (1.0, 10.0)
                } else {
                    (0.0, 100.0)
                };
                row(step, version, entropy, length)
            })
        };
        let told = |warnings: &mut Warnings, rows: &mut dyn Iterator<Item = Row>| {
            let mut told = Vec::new();
            for row in rows {
                let new = warnings.after(&row, &bounds);
                told.extend(new.into_iter().map(|text| (row.step, text)));
            }
            told
        };
        let all = told(&mut Warnings::default(), &mut rows(110));
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(
            all[0].0 > 121 && all[0].1.contains("times as long"),
            "{all:?}"
        );
        assert!(all[1].0 == 129 && all[1].1.contains("entropy"), "{all:?}");
        // For a hundred steps after a change of version, a warning names the change.
        let names = |text: &str| text.ends_with("the reload at step 110 (aaaaaa -> bbbbbb)");
        assert!(all.iter().all(|(_, text)| names(text)), "{all:?}");
        for reload in [0, 20] {
            let late = told(&mut Warnings::default(), &mut rows(reload));
            assert!(late.iter().all(|(_, text)| !text.contains("reload")));
        }
        // If the run is stopped at any step, its earlier rows suffice to continue with the same warnings.
        for stop in [5, 115, 124, 150] {
            let mut resumed = Warnings::default();
            let before = told(&mut resumed, &mut rows(110).take(stop));
            let after = told(&mut resumed, &mut rows(110).skip(stop));
            assert_eq!([before, after].concat(), all);
        }
        // 0 turns a warning off.
        let never = WarningConfig {
            entropy: 0.0,
            length_growth: 0.0,
            ..bounds
        };
        let mut warnings = Warnings::default();
        assert!((0..20).all(|step| warnings.after(&row(step, "a", 0.0, 1.0), &never).is_empty()));
    }
}
