//! Parallel loops that are compiled once per result type. Rayon's iterators are compiled again for each closure, which makes
//! builds slow where there is a closure for each type of number. Also the lock of data that threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

/// Locks a mutex, also after a panic: no panic can leave the data of our locks half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
