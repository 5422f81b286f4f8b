//! The profile of a computation: its time, divided among the lines of the script that requested the operations.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::error::Origin;
use crate::parallel::lock;

/// The times of a computation's operations.
#[derive(Debug, Default)]
pub struct Profile {
    /// The seconds of each origin, summed, so that the map stays small even if `take` is never called.
    timings: Mutex<BTreeMap<Option<Origin>, f64>>,
}

/// The time of a line's operations. The time of a pass is divided among the pass's operations in proportion to the time that each
/// operation took on all threads.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The line of the script that requested the operations; `None` if no line did.
    pub origin: Option<Origin>,
    /// The time of these operations, in seconds.
    pub seconds: f64,
}

impl Profile {
    pub(super) fn note(&self, origin: Option<&Origin>, seconds: f64) {
        *lock(&self.timings).entry(origin.cloned()).or_default() += seconds;
    }

    /// Returns the timings since the last call.
    pub fn take(&self) -> Vec<Timing> {
        let timings = std::mem::take(&mut *lock(&self.timings)).into_iter();
        let timings = timings.map(|(origin, seconds)| Timing { origin, seconds });
        timings.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_nobody_takes_grows_with_the_lines_alone() {
        let profile = Profile::default();
        let origin = |line| Origin {
            source: None,
            line,
            column: 1,
        };
        for step in 0..1000 {
            profile.note(Some(&origin(step % 3)), 0.5);
            profile.note(None, 1.0);
        }
        let timings = profile.take();
        let seconds = timings.iter().map(|timing| timing.seconds);
        assert_eq!((timings.len(), seconds.sum::<f64>()), (4, 1500.0));
    }
}
