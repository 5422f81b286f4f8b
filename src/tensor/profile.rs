//! The profile of a computation: its time by operation, and by the script line that requested it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Origin;
use crate::parallel::lock;

/// The times of a computation's operations, while it is on.
#[derive(Debug, Default)]
pub struct Profile {
    is_on: AtomicBool,
    timings: Mutex<Vec<Timing>>,
}

/// The time of an operation. Operations that run tile by tile in one pass share its time in proportion to their own.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The line of the script that requested the operation; `None` if no line did.
    pub origin: Option<Origin>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Profile {
    /// Switches it on or off; it begins as off.
    pub fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, origin: Option<&Origin>, seconds: f64) {
        let origin = origin.cloned();
        lock(&self.timings).push(Timing { origin, seconds });
    }

    /// The timings since this was last called.
    pub fn take(&self) -> Vec<Timing> {
        std::mem::take(&mut lock(&self.timings))
    }
}
