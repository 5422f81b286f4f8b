//! How fast the machine moves bytes.

use std::time::{Duration, Instant};

use rayon::prelude::*;

/// Arrays of a mebibyte at least, so that starting the threads is not what is measured, and of 64 at most.
const VALUES: [usize; 2] = [1 << 18, 1 << 24];
/// Values that a thread takes at once, as many as a block of an executor has.
const BLOCK: usize = 1 << 14;
/// Enough runs for one without a disturbance.
const MEASURING: Duration = Duration::from_millis(60);

/// The values of an array of the size that is measured, where token columns have so many.
pub(super) fn length(tokens: usize) -> usize {
    tokens.clamp(VALUES[0], VALUES[1])
}

/// Bytes a second of adding an f32 array to another on all threads, two reads and a write: the best of many. The arrays
/// are as large as a token column of the batch, so that they are in the caches where that is.
pub(super) fn bandwidth(tokens: usize) -> f64 {
    let length = length(tokens);
    let (mut a, b) = (vec![1.0f32; length], vec![1.0f32; length]);
    let (mut best, began) = (f64::INFINITY, Instant::now());
    while began.elapsed() < MEASURING || best.is_infinite() {
        let started = Instant::now();
        let pairs = a.par_chunks_mut(BLOCK).zip(b.par_chunks(BLOCK));
        pairs.for_each(|(a, b)| a.iter_mut().zip(b).for_each(|(a, b)| *a += b));
        best = best.min(started.elapsed().as_secs_f64());
    }
    (3 * length * size_of::<f32>()) as f64 / best
}
