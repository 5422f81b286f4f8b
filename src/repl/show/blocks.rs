//! Histograms of Unicode blocks.

use crate::figures::along;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How often finite values fall in each of `buckets` equal parts of their range.
pub(crate) fn counts(values: &[f64], buckets: usize) -> (f64, f64, Vec<usize>) {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let least = finite().fold(f64::INFINITY, f64::min);
    let most = finite().fold(f64::NEG_INFINITY, f64::max);
    let mut counts = vec![0; buckets];
    if least < most {
        for value in finite() {
            let share = along(value, (least, most));
            // The largest value belongs to the last part.
            let bucket = ((share * buckets as f64) as usize).min(buckets - 1);
            counts[bucket] += 1;
        }
    }
    (least, most, counts)
}

/// One line of blocks: how values are spread from the least to the most. Empty where they are all the same.
pub(in crate::repl) fn histogram(values: &[f64], width: usize) -> String {
    let (_, _, counts) = counts(values, width);
    let most = counts.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let block = |&count: &usize| match count {
        0 => ' ',
        // A part that has any value at all shows it.
        count => BLOCKS[(count * BLOCKS.len()).div_ceil(most) - 1],
    };
    counts.iter().map(block).collect()
}
