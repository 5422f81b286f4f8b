//! The state that the run and the thread that follows the files share: the version in use, the last batch, and what happened.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// The check that is under way, for whoever ends it.
    check: Option<Arc<Guard>>,
}

/// A batch of the run, and the state that its step began with.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) batch: Batch,
    pub(super) in_use: InUse,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No lock of this module is held where a panic could leave something half done.
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
            check: None,
        };
        Shared {
            host: host.clone(),
            options,
            ledger: Mutex::new(ledger),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// A guard for a check that [`Shared::stop`] can cancel; `None` where it has been called.
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

    /// Puts a version into use, unless the one that it was compared with is so no more.
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

    /// Takes a version that failed at a step out of use, unless a newer one has already replaced it.
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
