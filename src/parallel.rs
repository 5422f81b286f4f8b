//! Parallel loops that all use one loop of rayon. Rayon's loops are compiled anew for each closure and type; they were a twelfth
//! of the code that the compiler had to optimise. This module also locks data that threads share.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

use crate::allocation::{held, moved};

/// The maximum number of parts per thread into which a loop is divided. A thread whose parts are short can take more parts.
const PARTS_PER_THREAD: usize = 16;

/// Locks a mutex, even after a panic, because no panic can leave the data of this library's locks inconsistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls a function with each index below `count`, in parallel.
fn run(count: usize, of: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(of);
}

/// Returns the result for each index below `count`, computed in parallel; each task but the last computes at least `grain`
/// neighbouring results.
pub(crate) fn each<R: Send>(
    count: usize,
    grain: usize,
    of: &(dyn Fn(usize) -> R + Sync),
) -> Vec<R> {
    each_with(count, grain, &|| (), &|(), index| of(index))
}

/// Works like [`each`], but each task makes a value with `scratch`, and passes it to the function for each of the task's results.
pub(crate) fn each_with<S, R: Send>(
    count: usize,
    grain: usize,
    scratch: &(dyn Fn() -> S + Sync),
    of: &(dyn Fn(&mut S, usize) -> R + Sync),
) -> Vec<R> {
    let parts = PARTS_PER_THREAD * rayon::current_num_threads();
    let size = count.div_ceil(parts).max(grain).max(1);
    let part = |index: usize| -> Vec<R> {
        let indices = index * size..count.min((index + 1) * size);
        let mut scratch = scratch();
        indices.map(|index| of(&mut scratch, index)).collect()
    };
    if count <= size {
        return part(0);
    }
    let mut done: Vec<Mutex<Vec<R>>> = Vec::new();
    done.resize_with(count.div_ceil(size), Mutex::default);
    // The memory of the results is added to the caller's count, because the caller frees that memory. Otherwise, freeing the
    // results of a loop would lower the count of the memory that a script holds.
    let results = AtomicIsize::new(0);
    run(done.len(), &|index| {
        let before = held();
        *lock(&done[index]) = part(index);
        let more = held() - before;
        moved(-more);
        results.fetch_add(more, Ordering::Relaxed);
    });
    moved(results.into_inner());
    let mut all = Vec::with_capacity(count);
    for part in done {
        all.append(&mut lock(&part));
    }
    all
}

/// Returns the results of [`each_with`], or an error. A task that sees the error of another call makes no further calls, so it
/// depends on chance which of several errors is returned.
pub(crate) fn try_each_with<S, R: Send, E: Send>(
    count: usize,
    grain: usize,
    scratch: &(dyn Fn() -> S + Sync),
    of: &(dyn Fn(&mut S, usize) -> Result<R, E> + Sync),
) -> Result<Vec<R>, E> {
    let failed = AtomicBool::new(false);
    let done = each_with(count, grain, scratch, &|scratch, index| {
        let done = (!failed.load(Ordering::Relaxed)).then(|| of(scratch, index))?;
        failed.fetch_or(done.is_err(), Ordering::Relaxed);
        Some(done)
    });
    done.into_iter().flatten().collect()
}

/// Calls a function in parallel with each part of the values and the index of the part's first value; returns the results. A part
/// has `size` values, or fewer if it is the last.
pub(crate) fn by_parts<T: Send, R: Send>(
    values: &mut [T],
    size: usize,
    of: &(dyn Fn(usize, &mut [T]) -> R + Sync),
) -> Vec<R> {
    let parts: Vec<Mutex<&mut [T]>> = values.chunks_mut(size).map(Mutex::new).collect();
    each(parts.len(), 1, &|index| {
        of(index * size, &mut lock(&parts[index]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_allocate_for_results_is_counted_as_the_callers() {
        let before = held();
        // This call counts bytes as a program's allocator does.
        let counts = each(1000, 1, &|index| {
            moved(16);
            index
        });
        assert_eq!((counts.len(), held() - before), (1000, 16_000));
        let of_workers = rayon::broadcast(|_| held());
        assert!(of_workers.iter().all(|&held| held == 0), "{of_workers:?}");
    }
}
