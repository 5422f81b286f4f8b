//! Work on all threads behind one call per type of result: an iterator of rayon's is compiled anew for every closure, which takes
//! longer than the closure itself where it is there for each type of number.

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
