//! What bounds a computation: a deadline, a way to cancel it, and a limit on the memory of its tensors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Why a computation was stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// It ran longer than it was given.
    #[error("stopped after {:.3} s, the time that it was given", .0.as_secs_f64())]
    Deadline(Duration),
    /// Somebody cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// Its tensors would take more memory than they were given.
    #[error("the tensors alive at once would take more than {} MiB, the memory that they were given", .limit >> 20)]
    Memory {
        /// The limit in bytes.
        limit: usize,
    },
}

/// Bounds one computation; shared by the script engine and the executors, which look at it between blocks of work.
#[derive(Debug)]
pub struct Guard {
    time: Option<Duration>,
    made: Instant,
    /// When the clock was started, in nanoseconds after the guard was made.
    started: AtomicU64,
    cancelled: AtomicBool,
    memory: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
}

impl Guard {
    /// A guard whose clock starts now. `None` is no deadline; `memory` is in bytes.
    pub fn new(time: Option<Duration>, memory: usize) -> Arc<Self> {
        Arc::new(Guard {
            time,
            made: Instant::now(),
            started: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            memory,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        })
    }

    /// A guard that never stops anything.
    pub fn unlimited() -> Arc<Self> {
        Guard::new(None, usize::MAX)
    }

    /// Stops the computation at its next look at the guard.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Starts the clock again and takes a cancel back: for a guard that bounds one input of a session after the other.
    pub fn rearm(&self) {
        self.started.store(self.elapsed(), Ordering::Relaxed);
        self.cancelled.store(false, Ordering::Relaxed);
    }

    /// Nanoseconds since the guard was made: 2^64 of them are 584 years.
    fn elapsed(&self) -> u64 {
        self.made.elapsed().as_nanos() as u64
    }

    /// The most bytes that tensors held at once.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// The bytes that tensors hold now.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether the computation may go on.
    ///
    /// # Errors
    /// [`Stopped`] with the reason where it may not.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Stopped::Cancelled);
        }
        let Some(time) = self.time else {
            return Ok(());
        };
        // Another thread may have started the clock again after this one looked at it.
        let running = self
            .elapsed()
            .saturating_sub(self.started.load(Ordering::Relaxed));
        match Duration::from_nanos(running) > time {
            true => Err(Stopped::Deadline(time)),
            false => Ok(()),
        }
    }

    /// Counts `bytes` until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, Stopped> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge {
            guard: self.clone(),
            bytes,
        };
        let now = before.saturating_add(bytes);
        if now > self.memory {
            return Err(Stopped::Memory { limit: self.memory });
        }
        self.peak.fetch_max(now, Ordering::Relaxed);
        Ok(charge)
    }
}

/// Bytes that count against a guard's limit for as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    guard: Arc<Guard>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.guard.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_the_limit_holds() {
        let guard = Guard::new(None, 100);
        let first = guard.charge(60).unwrap();
        assert_eq!(
            guard.charge(60).unwrap_err(),
            Stopped::Memory { limit: 100 }
        );
        drop(first);
        assert!(guard.charge(60).is_ok());
        assert_eq!(guard.peak(), 60);
    }

    #[test]
    fn a_deadline_and_a_cancel_stop() {
        let guard = Guard::new(Some(Duration::ZERO), 0);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(guard.check(), Err(Stopped::Deadline(Duration::ZERO)));
        let guard = Guard::unlimited();
        assert_eq!(guard.check(), Ok(()));
        guard.cancel();
        assert_eq!(guard.check(), Err(Stopped::Cancelled));
        guard.rearm();
        assert_eq!(guard.check(), Ok(()));
    }
}
