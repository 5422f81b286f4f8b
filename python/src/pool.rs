//! Threads after a `fork`: a pool for each process, and a lock that a thread of another process cannot hold for ever.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

struct Pool {
    process: u32,
    threads: ThreadPool,
}

/// The pool of this process. A child inherits the pointer, but not the threads, and makes its own.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(null_mut());

/// Runs a computation on this process's threads.
pub fn install<R: Send>(run: impl FnOnce() -> R + Send) -> PyResult<R> {
    Ok(pool()?.threads.install(run))
}

fn pool() -> PyResult<&'static Pool> {
    let process = std::process::id();
    let known = POOL.load(Ordering::Acquire);
    // SAFETY: a pool is never freed once the pointer to it stands here.
    if let Some(pool) = unsafe { known.as_ref() }
        && pool.process == process
    {
        return Ok(pool);
    }
    let threads = ThreadPoolBuilder::new()
        .thread_name(|index| format!("advlab-{index}"))
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let pool: &'static Pool = Box::leak(Box::new(Pool { process, threads }));
    // Where another thread was first, this one computes on a pool of its own, once.
    let mine = std::ptr::from_ref(pool).cast_mut();
    let _ = POOL.compare_exchange(known, mine, Ordering::AcqRel, Ordering::Relaxed);
    Ok(pool)
}

/// How long a child waits for a lock that a thread of its own may hold just now.
const PATIENCE: u32 = 100;

/// A mutex that says so where a thread of the parent held it when the process was forked.
pub struct ForkLock<T> {
    process: AtomicU32,
    value: Mutex<T>,
}

impl<T> ForkLock<T> {
    pub fn new(value: T) -> Self {
        ForkLock {
            process: AtomicU32::new(std::process::id()),
            value: Mutex::new(value),
        }
    }

    /// The value. Call it with the interpreter's lock released: whoever holds this one may be waiting for that.
    pub fn lock(&self) -> PyResult<MutexGuard<'_, T>> {
        let process = std::process::id();
        for _ in 0..PATIENCE {
            if self.process.load(Ordering::Acquire) == process {
                return Ok(self.value.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let held = match self.value.try_lock() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(held)) => held.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    sleep(Duration::from_millis(1));
                    continue;
                }
            };
            self.process.store(process, Ordering::Release);
            return Ok(held);
        }
        Err(PyRuntimeError::new_err(
            "another thread was using this recipe when the process forked: load it again in the child",
        ))
    }
}
