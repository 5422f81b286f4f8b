//! Parallel loops that are compiled once per result type. Rayon's iterators are compiled again for each closure, which makes
//! builds slow where there is a closure for each type of number.

use rayon::prelude::*;

/// The results for each index, at least `grain` of them by one thread.
pub(crate) fn each<R: Send>(
    count: usize,
    grain: usize,
    of: &(dyn Fn(usize) -> R + Sync),
) -> Vec<R> {
    let indices = (0..count).into_par_iter().with_min_len(grain);
    indices.map(of).collect()
}

/// Calls a function with each part of some values, and with the index of the part's first value.
pub(crate) fn by_parts<T: Send>(
    values: &mut [T],
    size: usize,
    of: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let parts = values.par_chunks_mut(size).enumerate();
    parts.for_each(|(index, part)| of(index * size, part));
}
