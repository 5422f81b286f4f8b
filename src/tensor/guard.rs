//! The limits of a computation: a deadline, and limits on the memory and the number of its tensors. The computation can also be
//! cancelled.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::error::{Stopped, TensorError};
use crate::batch::large::SpareMemory;
use crate::parallel::lock;

/// The maximum number of operations that graphs hold at once. A formula of 100 operations that is applied to each of 8192 groups
/// needs about 800 000; a runaway loop reaches this limit after two seconds, when it holds about 400 MB.
const NODES: usize = 1 << 20;

/// The lower bound, in bytes, of a script's allowance for memory in addition to its tensors. It applies if an eighth of the
/// limit for tensors is less.
const LEAST_BYTES: usize = 128 << 20;

/// The limits of one computation. The script engine and the executor share a guard, and check it between blocks of work.
#[derive(Debug)]
pub struct Guard {
    time: Option<Duration>,
    made: Instant,
    /// The time at which the clock was started, in nanoseconds after the guard was made.
    started: AtomicU64,
    cancelled: AtomicBool,
    memory: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
    nodes: AtomicUsize,
    spare: SpareMemory,
    failure: Mutex<Option<TensorError>>,
}

impl Guard {
    /// Makes a guard whose clock starts now. There is no deadline if `time` is `None`; the limit `memory` is in bytes.
    pub fn new(time: Option<Duration>, memory: usize) -> Arc<Self> {
        Guard::sharing(&SpareMemory::default(), time, memory)
    }

    /// Makes a guard whose computations take large buffers from `spare`, and return the buffers to it.
    pub fn sharing(spare: &SpareMemory, time: Option<Duration>, memory: usize) -> Arc<Self> {
        Arc::new(Guard {
            time,
            made: Instant::now(),
            started: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            memory,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            nodes: AtomicUsize::new(0),
            spare: spare.clone(),
            failure: Mutex::default(),
        })
    }

    /// Makes a guard without limits on time and memory; the number of operations remains limited.
    pub fn unlimited() -> Arc<Self> {
        Guard::new(None, usize::MAX)
    }

    /// Cancels the computation, which stops at its next check.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether the computation was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Restarts the clock, and clears a cancellation and a failure, for the next input of a session.
    pub fn rearm(&self) {
        self.start_clock();
        self.cancelled.store(false, Ordering::Relaxed);
        self.forget_failure();
    }

    /// Returns the first error that must end the script, even if the script caught the error.
    pub(crate) fn failure(&self) -> Option<TensorError> {
        lock(&self.failure).clone()
    }

    /// Records an error that must end the script, unless an earlier such error is recorded.
    pub(crate) fn fail(&self, error: &TensorError) {
        lock(&self.failure).get_or_insert_with(|| error.clone());
    }

    /// Clears the recorded error before another call.
    pub(crate) fn forget_failure(&self) {
        *lock(&self.failure) = None;
    }

    /// Restarts the clock and resets the peak at the start of one of several runs; a cancellation stays in effect. Returns the
    /// bytes that tensors already hold.
    pub fn begin_run(&self) -> usize {
        self.start_clock();
        let used = self.used.load(Ordering::Relaxed);
        self.peak.store(used, Ordering::Relaxed);
        used
    }

    pub(crate) fn start_clock(&self) {
        self.started.store(self.elapsed(), Ordering::Relaxed);
    }

    /// Runs work whose time does not count towards the deadline, because the work is not part of the script.
    pub(crate) fn untimed<R>(&self, work: impl FnOnce() -> R) -> R {
        let (before, done) = (self.elapsed(), work());
        let took = self.elapsed() - before;
        self.started.fetch_add(took, Ordering::Relaxed);
        done
    }

    /// Returns the nanoseconds since the guard was made. They fit into 64 bits, because 2^64 ns are 584 years.
    fn elapsed(&self) -> u64 {
        self.made.elapsed().as_nanos() as u64
    }

    /// Returns the spare memory for large buffers. A caller that takes a buffer must count its bytes with [`Guard::reserve`].
    pub fn spare(&self) -> &SpareMemory {
        &self.spare
    }

    /// Returns the maximum number of bytes that tensors and their computation held at once since the last [`Guard::begin_run`].
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns how many bytes a script's thread may allocate: the bytes that tensors hold, plus an eighth of the limit for
    /// tensors, or plus [`LEAST_BYTES`] if that is more.
    pub(crate) fn allowance(&self) -> usize {
        self.used() + (self.memory / 8).max(LEAST_BYTES)
    }

    /// Returns the number of bytes that tensors hold now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Checks whether the computation may go on.
    ///
    /// # Errors
    /// [`Stopped`], with the reason, if the computation must stop.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.is_cancelled() {
            return Err(Stopped::Cancelled);
        }
        let Some(time) = self.time else {
            return Ok(());
        };
        // Another thread may have restarted the clock after this thread read the time; the difference is then 0.
        let running = self
            .elapsed()
            .saturating_sub(self.started.load(Ordering::Relaxed));
        if Duration::from_nanos(running) > time {
            return Err(Stopped::Deadline(time));
        }
        Ok(())
    }

    /// Counts `bytes` until the reservation is dropped; fails if the memory limit is exceeded.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Reservation, Stopped> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let reservation = Reservation {
            guard: self.clone(),
            bytes,
            nodes: 0,
        };
        let now = before.saturating_add(bytes);
        if now > self.memory {
            return Err(Stopped::Memory { limit: self.memory });
        }
        self.peak.fetch_max(now, Ordering::Relaxed);
        Ok(reservation)
    }

    /// Counts bytes that are already allocated; if they exceed the limit, the script ends at the engine's next check.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let held = self.reserve(bytes);
        let held = held.map_err(|stopped| self.fail(&TensorError::new("values", stopped)));
        held.ok()
    }

    /// Counts an operation of a graph, and its bytes, until the reservation is dropped.
    pub(crate) fn reserve_node(self: &Arc<Self>, bytes: usize) -> Result<Reservation, Stopped> {
        let mut reservation = self.reserve(bytes)?;
        reservation.nodes = 1;
        if self.nodes.fetch_add(1, Ordering::Relaxed) >= NODES {
            return Err(Stopped::Graph { limit: NODES });
        }
        Ok(reservation)
    }
}

/// Bytes, perhaps with an operation of a graph, that count against a guard's limits for as long as the reservation lives.
#[derive(Debug)]
pub(crate) struct Reservation {
    guard: Arc<Guard>,
    bytes: usize,
    nodes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.guard.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.guard.nodes.fetch_sub(self.nodes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_the_limit_holds() {
        let guard = Guard::new(None, 100);
        let first = guard.reserve(60).unwrap();
        assert_eq!(
            guard.reserve(60).unwrap_err(),
            Stopped::Memory { limit: 100 }
        );
        drop(first);
        assert!(guard.reserve(60).is_ok());
        assert_eq!(guard.peak(), 60);
    }

    #[test]
    fn a_graph_without_end_is_stopped_and_comes_back() {
        let guard = Guard::unlimited();
        let mut reservations: Vec<Reservation> =
            (0..NODES).map(|_| guard.reserve_node(1).unwrap()).collect();
        let one_more = guard.reserve_node(1).map(|_| ());
        assert_eq!(one_more, Err(Stopped::Graph { limit: NODES }));
        reservations.pop();
        assert!(guard.reserve_node(1).is_ok());
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
