//! What the run and the thread that follows the files share: the version in use, the last batch, and what happened.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::change::VersionChange;
use super::event::LiveEvent;
use super::{LiveOptions, Loaded};
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::{Host, Recipe, State, Version};
use crate::tensor::Guard;

/// Published versions that are kept, to be asked for: more than a person makes in a sitting.
const HISTORY: usize = 256;
/// Events that are kept for a run that does not ask for them; the oldest are lost first.
const EVENTS: usize = 1024;

/// What both threads see.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) options: LiveOptions,
    /// Never held for longer than it takes to read or write a few pointers: the run does not wait.
    ledger: Mutex<Ledger>,
    stop: Mutex<Stop>,
}

/// A batch of the run, and the state that its step began with.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) batch: Batch,
    pub(super) state: State,
    /// The version that the state belongs to.
    pub(super) loaded: Arc<Loaded>,
}

/// The last batch of the run, and the last one on which a version failed at a step.
#[derive(Clone, Debug, Default)]
pub(super) struct Batches {
    pub(super) last: Option<Arc<Observed>>,
    pub(super) failed_on: Option<Arc<Observed>>,
}

/// What is written under one lock: whoever changes the version in use holds it, so that events come in its order.
#[derive(Debug)]
struct Ledger {
    current: Arc<Loaded>,
    observed: Batches,
    events: VecDeque<LiveEvent>,
    history: VecDeque<Arc<Loaded>>,
    /// How many versions have been published.
    published: u64,
    is_polling_said: bool,
}

/// How the end of the live recipe reaches a check that is under way.
#[derive(Debug, Default)]
struct Stop {
    is_stopped: bool,
    check: Option<Arc<Guard>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No lock of this module is held where a panic could leave something half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}

impl Shared {
    pub(super) fn new(host: &Host, options: LiveOptions, first: Arc<Loaded>) -> Shared {
        let ledger = Ledger {
            current: first.clone(),
            observed: Batches::default(),
            events: VecDeque::new(),
            history: [first].into(),
            published: 1,
            is_polling_said: false,
        };
        Shared {
            host: host.clone(),
            options,
            ledger: Mutex::new(ledger),
            stop: Mutex::default(),
        }
    }

    /// A guard with the time of a check, which begins now.
    pub(super) fn guard(&self) -> Arc<Guard> {
        Guard::new(Some(self.options.deadline), self.host.limits().memory)
    }

    /// A guard for a check that [`Shared::stop`] can cancel; `None` where it has been called.
    pub(super) fn begin_check(&self) -> Option<Arc<Guard>> {
        let guard = self.guard();
        let mut stop = lock(&self.stop);
        stop.check = Some(guard.clone());
        (!stop.is_stopped).then_some(guard)
    }

    pub(super) fn stop(&self) {
        let mut stop = lock(&self.stop);
        stop.is_stopped = true;
        if let Some(check) = stop.check.take() {
            check.cancel();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.stop).is_stopped
    }

    /// The newest version that passed its checks.
    pub(super) fn current(&self) -> Arc<Loaded> {
        lock(&self.ledger).current.clone()
    }

    pub(super) fn observe(&self, observed: Observed) {
        lock(&self.ledger).observed.last = Some(Arc::new(observed));
    }

    /// Says that a version failed on the last batch, which is to be redone as `again`.
    pub(super) fn observe_failure(&self, again: impl Fn(Batch) -> Observed) {
        let observed = &mut lock(&self.ledger).observed;
        observed.last = observed
            .last
            .take()
            .map(|last| Arc::new(again(last.batch.clone())));
        observed.failed_on = observed.last.clone();
    }

    pub(super) fn observed(&self) -> Batches {
        lock(&self.ledger).observed.clone()
    }

    pub(super) fn tell(&self, event: LiveEvent) {
        push_bounded(&mut lock(&self.ledger).events, event, EVENTS);
    }

    /// Says that there are no file events, once.
    pub(super) fn say_polling(&self, why: &notify::Error) {
        let mut ledger = lock(&self.ledger);
        if !std::mem::replace(&mut ledger.is_polling_said, true) {
            let why = why.to_string();
            push_bounded(&mut ledger.events, LiveEvent::PollingOnly { why }, EVENTS);
        }
    }

    pub(super) fn drain(&self) -> Vec<LiveEvent> {
        lock(&self.ledger).events.drain(..).collect()
    }

    pub(super) fn published(&self, version: &Version) -> Option<Arc<Loaded>> {
        let ledger = lock(&self.ledger);
        let mut newest_first = ledger.history.iter().rev();
        newest_first
            .find(|loaded| loaded.version() == version)
            .cloned()
    }

    /// How a recipe differs from a version, as the run sets both.
    pub(super) fn change(
        &self,
        from: &Loaded,
        to: &Recipe,
        times: (Duration, Duration),
    ) -> VersionChange {
        VersionChange::between(&from.recipe, to, &self.options.settings, times)
    }

    /// Puts a version into use, unless the one that it was compared with is so no more.
    pub(super) fn publish(
        &self,
        compared_with: &Arc<Loaded>,
        recipe: Recipe,
        times: (Duration, Duration),
    ) -> bool {
        let change = self.change(compared_with, &recipe, times);
        let mut ledger = lock(&self.ledger);
        if !Arc::ptr_eq(&ledger.current, compared_with) {
            return false;
        }
        let serial = ledger.published;
        ledger.published += 1;
        let loaded = Arc::new(Loaded {
            recipe,
            serial,
            times,
        });
        push_bounded(&mut ledger.history, loaded.clone(), HISTORY);
        push_bounded(&mut ledger.events, LiveEvent::Published(change), EVENTS);
        ledger.current = loaded;
        true
    }

    /// Takes a version that failed at a step out of use, unless a newer one has already replaced it.
    pub(super) fn withdraw(&self, failed: &Arc<Loaded>, back_to: &Arc<Loaded>, error: Diagnostics) {
        let mut ledger = lock(&self.ledger);
        if Arc::ptr_eq(&ledger.current, failed) {
            ledger.current = back_to.clone();
        }
        let event = LiveEvent::Rejected {
            version: failed.version().clone(),
            error,
            still_using: back_to.version().clone(),
            at_step: true,
        };
        push_bounded(&mut ledger.events, event, EVENTS);
    }
}
