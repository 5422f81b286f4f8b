//! Scores of several seeds: means, interquartile means with bootstrap intervals, and the probability of improvement, as in
//! rliable (Agarwal et al., arXiv 2108.13264).

use advlab::random::{Purpose, StreamKey};

/// Resamples of an interval.
const RESAMPLES: usize = 2000;
/// The share outside of an interval on each side.
const OUTSIDE: f64 = 0.025;

/// An estimate with the ends of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

pub fn mean(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / scores.len().max(1) as f64
}

/// The mean without the lowest and the highest quarter, each rounded down to whole scores.
pub fn interquartile_mean(scores: &[f64]) -> f64 {
    let mut sorted = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 4;
    mean(&sorted[cut..sorted.len() - cut])
}

/// The interquartile mean with a percentile bootstrap over the seeds.
pub fn interquartile(scores: &[f64]) -> Estimate {
    estimate(&[scores], |all| interquartile_mean(&all[0]))
}

/// The chance that a run of one design scores higher than a run of the other, with equal scores counted half, and a
/// bootstrap interval over the seeds of each design (stratified: each design is resampled separately).
pub fn improvement(over: &[f64], scores: &[f64]) -> Estimate {
    estimate(&[over, scores], |all| {
        let pair = |own| all[0].iter().map(move |other: &f64| (own, other));
        let pairs = all[1].iter().flat_map(|own: &f64| pair(own));
        let wins = pairs.map(|(own, other)| match own.total_cmp(other) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        });
        wins.sum::<f64>() / (all[0].len() * all[1].len()).max(1) as f64
    })
}

/// A statistic of some samples, with a bootstrap that resamples each of them within itself.
fn estimate(samples: &[&[f64]], of: impl Fn(&[Vec<f64>]) -> f64) -> Estimate {
    let mut stream = StreamKey::new(0, Purpose::Estimates, 1).stream(0);
    let mut draw = |sample: &&[f64]| -> Vec<f64> {
        let any = |_: &f64| *stream.pick(sample);
        sample.iter().map(any).collect()
    };
    let resampled = |_| of(&samples.iter().map(&mut draw).collect::<Vec<_>>());
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(resampled).collect();
    drawn.sort_by(f64::total_cmp);
    let end = |share: f64| drawn[((RESAMPLES - 1) as f64 * share).round() as usize];
    let whole: Vec<Vec<f64>> = samples.iter().map(|sample| sample.to_vec()).collect();
    Estimate {
        value: of(&whole),
        low: end(OUTSIDE),
        high: end(1.0 - OUTSIDE),
    }
}

/// Whether so many scores of each design can never differ significantly at 95 %: in one of `ways / 2` orders, all scores of
/// one design are on one side of the other design's.
pub fn are_too_few(one: usize, other: usize) -> bool {
    let ways = (1..=one).map(|i| (other + i) as f64 / i as f64);
    ways.product::<f64>() / 2.0 < 20.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimates_are_those_of_rliable() {
        // scipy.stats.trim_mean(scores, 0.25) cuts whole scores.
        assert_eq!(interquartile_mean(&[5.0, 1.0, 2.0, 9.0]), 3.5);
        assert_eq!(interquartile_mean(&[3.0, 1.0, 100.0, 2.0, -50.0]), 2.0);
        assert_eq!(interquartile_mean(&[1.0, 2.0, 6.0]), 3.0);
        let better = improvement(&[1.0, 2.0], &[2.0, 3.0]);
        assert_eq!(better.value, 3.5 / 4.0);
        assert!(better.low >= 0.25 && better.high == 1.0, "{better:?}");
        let apart = improvement(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert_eq!((apart.low, apart.high), (1.0, 1.0));
        let spread = interquartile(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(spread.low < 3.0 && spread.high > 3.0 && spread.value == 3.0);
        let same = interquartile(&[2.0; 5]);
        assert_eq!((same.low, same.high), (2.0, 2.0));
    }

    #[test]
    fn three_seeds_are_too_few_and_four_are_not() {
        assert!(are_too_few(3, 3) && are_too_few(3, 4) && !are_too_few(4, 4));
    }
}
