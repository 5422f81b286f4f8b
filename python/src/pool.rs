//! Threads after a `fork`: a pool for each process, and locks that a thread of another process cannot hold for ever.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::Duration;

use advlab::deep_stack;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The process and its threads.
type Pool = (u32, ThreadPool);

/// The pool of this process. A forked child inherits the pointer, but not the threads, and makes its own pool.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(null_mut());

/// Runs a computation on this process's threads.
pub fn install<R: Send>(run: impl FnOnce() -> R + Send) -> PyResult<R> {
    let (process, known) = (std::process::id(), POOL.load(Ordering::Acquire));
    // SAFETY: a pool is never freed once this pointer refers to it.
    if let Some((_, threads)) = unsafe { known.as_ref() }.filter(|pool| pool.0 == process) {
        return Ok(threads.install(run));
    }
    let threads = deep_stack::pool(ThreadPoolBuilder::new())
        .thread_name(|index| format!("advlab-{index}"))
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let pool: &'static Pool = Box::leak(Box::new((process, threads)));
    // If another thread was first, this one uses a pool of its own, once.
    let mine = std::ptr::from_ref(pool).cast_mut();
    let _ = POOL.compare_exchange(known, mine, Ordering::AcqRel, Ordering::Relaxed);
    Ok(pool.1.install(run))
}

/// As [`install`], with the interpreter's lock released.
pub fn in_pool<R: Send>(py: Python<'_>, run: impl FnOnce() -> R + Send) -> PyResult<R> {
    py.detach(|| install(run))
}

/// How many milliseconds a child waits for a lock that one of its own threads may hold.
const PATIENCE: u32 = 10_000;

/// Locks data shared by calls; gives up in a forked child, since a thread of the parent may have held the lock at the fork. Call
/// it with the interpreter's lock released: the thread that holds the data may be waiting for the interpreter's lock.
pub fn lock<T>(shared: &Mutex<T>, is_child: bool) -> PyResult<MutexGuard<'_, T>> {
    if !is_child {
        return Ok(shared.lock().unwrap_or_else(PoisonError::into_inner));
    }
    for _ in 0..PATIENCE {
        match shared.try_lock() {
            Ok(held) => return Ok(held),
            Err(TryLockError::Poisoned(held)) => return Ok(held.into_inner()),
            Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(1)),
        }
    }
    Err(PyRuntimeError::new_err(
        "another thread was using this recipe when the process forked: load it again in the child",
    ))
}
