//! Statistics of scores over seeds: means, interquartile means with bootstrap intervals, and the probability of improvement, as
//! in rliable (Agarwal et al., arXiv 2108.13264). A rank test decides whether two designs differ, because bootstrap intervals
//! from few scores miss the true value too often.

use advlab_train::random::{Purpose, StreamKey};

/// The number of resamples for an interval.
const RESAMPLES: usize = 2000;
/// The share of the resamples that lie beyond each end of an interval.
const OUTSIDE: f64 = 0.025;
/// If the number of one design's scores times the number of all scores is at most `COUNTED`, the test counts all divisions of the
/// scores between the designs; otherwise, it draws `DRAWN` divisions.
const COUNTED: usize = 5_000;
const DRAWN: usize = 20_000;
/// The significance level: a difference is claimed if its adjusted p-value is at most this number.
pub const LEVEL: f64 = 0.05;

/// An estimate with the ends of its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

pub fn mean(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / scores.len().max(1) as f64
}

/// Returns the mean of the scores without the lowest and the highest quarter; the size of a quarter is rounded down.
pub fn interquartile_mean(scores: &[f64]) -> f64 {
    let mut sorted = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 4;
    mean(&sorted[cut..sorted.len() - cut])
}

/// Returns the interquartile mean with an interval from a percentile bootstrap over the seeds.
pub fn interquartile(scores: &[f64]) -> Estimate {
    let mut stream = StreamKey::new(0, Purpose::Estimates, 1).stream(0);
    let mut any = |_: &f64| *stream.pick(scores);
    let resampled = |_| interquartile_mean(&scores.iter().map(&mut any).collect::<Vec<f64>>());
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(resampled).collect();
    drawn.sort_by(f64::total_cmp);
    let end = |share: f64| drawn[((RESAMPLES - 1) as f64 * share).round() as usize];
    Estimate {
        value: interquartile_mean(scores),
        low: end(OUTSIDE),
        high: end(1.0 - OUTSIDE),
    }
}

/// Returns the chance that a run with one of `scores` scores higher than a run with one of `over`; an equal score counts half.
pub fn improvement(over: &[f64], scores: &[f64]) -> f64 {
    let wins = |own: &f64, other: &f64| u8::from(own > other) + u8::from(own >= other);
    let pairs = scores
        .iter()
        .flat_map(|own| over.iter().map(move |other| wins(own, other)));
    pairs.map(f64::from).sum::<f64>() / (2 * over.len() * scores.len()).max(1) as f64
}

/// Returns the two-sided p-value of the Mann-Whitney test: the share of the divisions of the scores between the designs whose
/// rank sum is at least as far from the mean rank sum as the observed rank sum. Equal scores share their mean rank. The p-value
/// is exact for few scores, and estimated from random divisions for many scores.
pub fn mann_whitney(one: &[f64], other: &[f64]) -> f64 {
    let all = [one, other].concat();
    // Ranks are doubled, so that the mean rank of equal scores is whole.
    let below = |score: &f64, x: &f64| usize::from(x < score) + usize::from(x <= score);
    let rank = |score: &f64| all.iter().map(|x| below(score, x)).sum::<usize>() + 1;
    let mut ranks: Vec<usize> = all.iter().map(rank).collect();
    let (size, mean) = (one.len(), one.len() * (all.len() + 1));
    let far = |sum: usize| sum.abs_diff(mean);
    let found = far(ranks[..size].iter().sum());
    if size * all.len() > COUNTED {
        let mut stream = StreamKey::new(0, Purpose::Estimates, 2).stream(0);
        let is_as_far = |_: &usize| {
            stream.shuffle(&mut ranks);
            far(ranks[..size].iter().sum()) >= found
        };
        // The observed division counts too, because otherwise p could be 0.
        return (1 + (0..DRAWN).filter(is_as_far).count()) as f64 / (1 + DRAWN) as f64;
    }
    // `ways[count][sum]` is the number of ways in which `count` ranks have this sum.
    let mut ways = vec![vec![0.0; 2 * mean + 1]; size + 1];
    ways[0][0] = 1.0;
    let mut most = 0;
    for (before, rank) in ranks.into_iter().enumerate() {
        most += rank;
        for count in (0..size.min(before + 1)).rev() {
            for sum in rank..=most.min(2 * mean) {
                ways[count + 1][sum] += ways[count][sum - rank];
            }
        }
    }
    let sums = ways[size].iter().enumerate();
    let as_far = sums.filter(|(sum, _)| far(*sum) >= found);
    as_far.map(|(_, ways)| ways).sum::<f64>() / ways[size].iter().sum::<f64>()
}

/// Returns the p-values adjusted for the number of tests (Holm), so that the probability of a false claim in a report is at
/// most 5 % at the 5 % level.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let scaled = |p: &f64| p * values.iter().filter(|other| *other >= p).count() as f64;
    let adjusted = |p: &f64| {
        let up_to = values.iter().filter(|other| *other <= p);
        up_to.map(scaled).fold(0.0, f64::max).min(1.0)
    };
    values.iter().map(adjusted).collect()
}

/// Returns the smallest p-value that two designs with `one` and `other` scores can have. It is reached if all scores of one
/// design are higher than all scores of the other.
pub fn least_p(one: usize, other: usize) -> f64 {
    let ways = (1..=one).map(|i| (other + i) as f64 / i as f64);
    2.0 / ways.product::<f64>()
}

/// Returns the smallest number of seeds per design with which one of `comparisons` comparisons can show a difference.
pub fn least_seeds(comparisons: usize) -> usize {
    let is_enough = |seeds: &usize| comparisons as f64 * least_p(*seeds, *seeds) <= LEVEL;
    (1..).find(is_enough).unwrap_or(usize::MAX)
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
        assert_eq!(improvement(&[1.0, 2.0], &[2.0, 3.0]), 3.5 / 4.0);
        assert_eq!(improvement(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 1.0);
        let spread = interquartile(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(spread.low < 3.0 && spread.high > 3.0 && spread.value == 3.0);
        let same = interquartile(&[2.0; 5]);
        assert_eq!((same.low, same.high), (2.0, 2.0));
    }

    /// The values are those of scipy.stats.permutation_test over all permutations, with the statistic `rankdata(...)[:n].sum()`;
    /// without equal scores, `mannwhitneyu(method="exact")` gives the same values.
    #[test]
    fn the_test_is_exact_also_with_equal_scores() {
        let near = |p: f64, expected: f64| assert!((p - expected).abs() < 1e-12, "{p} {expected}");
        let five = [1.0, 2.0, 3.0, 4.0, 5.0];
        near(
            mann_whitney(&five, &[6.0, 7.0, 8.0, 9.0, 10.0]),
            2.0 / 252.0,
        );
        near(mann_whitney(&five, &five), 1.0);
        near(mann_whitney(&[2.0], &[1.0, 2.0, 3.0]), 1.0);
        near(mann_whitney(&[], &five), 1.0);
        let mut trials = StreamKey::new(1, Purpose::Estimates, 0).stream(0);
        for (few, many, values) in [(4, 4, 3), (3, 6, 4), (6, 2, 100), (5, 5, 2), (2, 7, 3)] {
            let mut draw = |count| -> Vec<f64> {
                let one = |_| trials.below(values) as f64 - 1.0;
                (0..count).map(one).collect()
            };
            let (one, other) = (draw(few), draw(many));
            near(mann_whitney(&one, &other), by_enumeration(&one, &other));
            near(mann_whitney(&other, &one), by_enumeration(&one, &other));
        }
    }

    /// Returns the p-value from an enumeration of all divisions, whose statistic is the share of pairs that are won.
    fn by_enumeration(one: &[f64], other: &[f64]) -> f64 {
        let all = [one, other].concat();
        let far = |wins: f64| (wins - 0.5).abs();
        let found = far(improvement(one, other));
        let (mut count, mut as_far) = (0, 0);
        for chosen in (0u32..1 << all.len()).filter(|set| set.count_ones() as usize == one.len()) {
            let part = |is_chosen: bool| -> Vec<f64> {
                let is_part = |place: &usize| (chosen >> place & 1 == 1) == is_chosen;
                (0..all.len()).filter(is_part).map(|at| all[at]).collect()
            };
            count += 1;
            as_far += u32::from(far(improvement(&part(true), &part(false))) >= found - 1e-12);
        }
        f64::from(as_far) / f64::from(count)
    }

    /// If there are too many divisions to count, random divisions are drawn: p is close to the normal approximation, and at least
    /// 1 / (1 + `DRAWN`).
    #[test]
    fn the_test_of_many_scores_draws_orders() {
        let scores = |count: usize, more: f64| -> Vec<f64> {
            (0..count)
                .map(|at| (at * 7 % count) as f64 + more)
                .collect()
        };
        let p = mann_whitney(&scores(80, 0.0), &scores(80, 8.5));
        // 60 % of the pairs are won, which is 2.2 standard errors from a half.
        assert!((p - 0.028).abs() < 0.004, "{p}");
        let p = mann_whitney(&scores(80, 0.0), &scores(80, 100.0));
        assert_eq!(p, 1.0 / (1.0 + DRAWN as f64));
    }

    #[test]
    fn seeds_are_too_few_for_a_number_of_comparisons() {
        assert_eq!([0, 1, 2, 6, 7].map(least_seeds), [1, 4, 5, 5, 6]);
        assert_eq!(holm(&[0.04, 0.01, 0.03]), [0.06, 0.03, 0.06]);
        assert_eq!((holm(&[]), holm(&[0.75, 0.5])), (vec![], vec![1.0, 1.0]));
    }
}
