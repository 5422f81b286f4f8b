//! The state shared by the run and the thread that follows the files: the newest version, the last batch, the events.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::change::VersionChange;
use super::event::LiveEvent;
use super::{InUse, LiveOptions, Loaded};
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::{Host, Recipe};
use crate::tensor::Guard;

/// Events that are kept for a run that does not ask for them; the oldest are lost first.
const EVENTS: usize = 1024;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) options: LiveOptions,
    ledger: Mutex<Ledger>,
    /// Signals a change of [`Ledger::looks_done`].
    pub(super) looked: Condvar,
}

/// The changing part, under one lock, so that events come in the order of the versions. It is never held for longer
/// than it takes to read or write a few pointers: the run does not wait.
#[derive(Debug)]
pub(super) struct Ledger {
    current: Arc<Loaded>,
    pub(super) last: Option<Arc<Observed>>,
    /// The last batch on which a version failed at a step.
    pub(super) failed_on: Option<Arc<Observed>>,
    pub(super) events: VecDeque<LiveEvent>,
    published: u64,
    is_stopped: bool,
    /// The number of looks at the files that were asked for, and of those that are done.
    pub(super) looks_asked: u64,
    pub(super) looks_done: u64,
    /// The running check, so that it can be cancelled.
    check: Option<Arc<Guard>>,
}

/// A batch of the run, and the state that its step began with.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) batch: Batch,
    pub(super) in_use: InUse,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic can leave data half changed while a lock of this module is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(super) fn tell(&mut self, event: LiveEvent) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl Shared {
    pub(super) fn new(host: &Host, options: LiveOptions, first: Arc<Loaded>) -> Shared {
        let ledger = Ledger {
            current: first,
            last: None,
            failed_on: None,
            events: VecDeque::new(),
            published: 1,
            is_stopped: false,
            looks_asked: 0,
            looks_done: 0,
            check: None,
        };
        Shared {
            host: host.clone(),
            options,
            ledger: Mutex::new(ledger),
            looked: Condvar::new(),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// A guard for a check that [`Shared::stop`] can cancel; `None` if it has been called.
    pub(super) fn begin_check(&self) -> Option<Arc<Guard>> {
        let guard = self.options.guard(&self.host);
        let mut ledger = self.ledger();
        ledger.check = Some(guard.clone());
        (!ledger.is_stopped).then_some(guard)
    }

    pub(super) fn stop(&self) {
        let mut ledger = self.ledger();
        ledger.is_stopped = true;
        if let Some(check) = ledger.check.take() {
            check.cancel();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.ledger().is_stopped
    }

    pub(super) fn current(&self) -> Arc<Loaded> {
        self.ledger().current.clone()
    }

    /// Publishes a version, unless the one that it was compared with is not the newest any more.
    pub(super) fn publish(
        &self,
        compared_with: &Arc<Loaded>,
        recipe: Recipe,
        times: (Duration, Duration),
    ) -> bool {
        let settings = &self.options.settings;
        let change = VersionChange::between(&compared_with.recipe, &recipe, settings, times);
        let mut ledger = self.ledger();
        if !Arc::ptr_eq(&ledger.current, compared_with) {
            return false;
        }
        let loaded = Arc::new(Loaded {
            recipe,
            serial: ledger.published,
            times,
        });
        ledger.published += 1;
        ledger.tell(LiveEvent::Published(change));
        ledger.current = loaded;
        true
    }

    /// Reports a version that failed at a step, and takes it out of use, unless a newer one has replaced it.
    pub(super) fn withdraw(&self, failed: &Arc<Loaded>, back_to: &Arc<Loaded>, error: Diagnostics) {
        let mut ledger = self.ledger();
        if Arc::ptr_eq(&ledger.current, failed) {
            ledger.current = back_to.clone();
        }
        ledger.tell(LiveEvent::Rejected {
            version: failed.version().clone(),
            error,
            still_using: back_to.version().clone(),
            at_step: true,
        });
    }
}
