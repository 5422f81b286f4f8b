//! The state that a run and the thread that follows its files share: the version in use, the events, and the callers that wait.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::change::VersionChange;
use super::event::LiveEvent;
use super::options::LiveOptions;
use super::trial::{DryRuns, Passed, dry_runs, refuse_lacking};
use super::version::{Failed, Observed, Published};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parallel::lock;
use crate::script::{Host, Native, Recipe, SourceFiles};
use crate::tensor::Guard;

/// The maximum number of events that are kept for a run that does not fetch them; the oldest events are dropped.
const EVENTS: usize = 1024;

/// The result of successful checks: the version and the report on it; `None` if it is the version in use.
pub(super) type Checked = Option<(Recipe, Passed)>;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) options: LiveOptions,
    /// The guard that is cancelled when the live recipe is dropped.
    pub(super) guard: Arc<Guard>,
    ledger: Mutex<Ledger>,
    /// The function [`dry_runs`], or another function in tests.
    pub(super) dry_runs: DryRuns,
}

/// The part of the shared state that changes. A single lock protects it, so that the events are in the order of the versions. The
/// lock is held only while a few pointers are read or written, so the run hardly waits for it.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) current: Arc<Published>,
    pub(super) last: Option<Arc<Observed>>,
    /// The last batch on which a version failed at a step.
    failed_on: Option<Arc<Observed>>,
    pub(super) events: VecDeque<LiveEvent>,
    published: u64,
    /// The senders of callers that wait until the files have been read and checked. To end a wait, the thread drops the sender.
    pub(super) waiting: Vec<SyncSender<()>>,
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
    pub(super) fn new(host: &Host, options: LiveOptions, first: Arc<Published>) -> Shared {
        let ledger = Ledger {
            current: first,
            last: None,
            failed_on: None,
            events: VecDeque::new(),
            published: 0,
            waiting: Vec::new(),
        };
        Shared {
            host: host.clone(),
            options,
            guard: Guard::unlimited(),
            ledger: Mutex::new(ledger),
            dry_runs,
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(super) fn current(&self) -> Arc<Published> {
        self.ledger().current.clone()
    }

    /// Publishes a version with its warnings. Returns `false` if `compared_with` is no longer the current version.
    pub(super) fn publish(
        &self,
        compared_with: &Arc<Published>,
        mut loaded: Published,
        warnings: Vec<Diagnostic>,
    ) -> bool {
        let settings = &self.options.settings;
        let change = VersionChange::between(compared_with, &loaded, settings);
        let mut ledger = self.ledger();
        if !Arc::ptr_eq(&ledger.current, compared_with) {
            return false;
        }
        ledger.published += 1;
        loaded.serial = ledger.published;
        let version = loaded.version().clone();
        ledger.current = Arc::new(loaded);
        ledger.tell(LiveEvent::Published(change));
        if !warnings.is_empty() {
            ledger.tell(LiveEvent::Warned { version, warnings });
        }
        true
    }

    /// Compiles a version, and does its dry runs unless it is the version in use. Sets `files` as soon as the imports are known.
    pub(super) fn check(
        &self,
        guard: Arc<Guard>,
        settled: &SourceFiles,
        in_use: &Published,
        files: &OnceLock<SourceFiles>,
    ) -> Result<Checked, Diagnostics> {
        // Native kernels are switched off, because the check must run the script itself.
        let host = self.host.clone().with_native(&Native::default());
        let (recipe, read) = host.with_guard(guard).load_files(settled);
        files.get_or_init(|| read);
        let recipe = recipe?;
        if recipe.version() == in_use.version() {
            return Ok(None);
        }
        let recipe = self.options.fit(recipe, true)?;
        refuse_lacking(&recipe, &self.options)?;
        let ledger = self.ledger();
        let has_its_rows = |observed: &&Arc<Observed>| observed.has_rows_of(&recipe);
        let last = ledger.last.as_ref().filter(has_its_rows).cloned();
        let failed_on = ledger.failed_on.as_ref().filter(has_its_rows).cloned();
        let is_untried = last.is_none() && ledger.last.is_some();
        drop(ledger);
        let (mut later, effect) =
            (self.dry_runs)(&recipe, [last.as_ref(), failed_on.as_ref()], &self.options)?;
        if is_untried {
            let turns = recipe.takes_turns();
            let rows = if turns { "turns" } else { "trajectories" };
            let why =
                format!("not tried on the last batch, because this version takes {rows} as rows");
            later.push(Diagnostic::warning(why));
        }
        let known = in_use.recipe.warnings();
        let is_new =
            |warning: &&Diagnostic| !known.iter().any(|old| old.message == warning.message);
        let found = recipe.warnings().iter().filter(is_new).cloned();
        let warnings = found.chain(later).collect();
        Ok(Some((recipe, (warnings, effect))))
    }

    /// Reports a version that failed at a step or whose `migrate` failed, and takes it out of use unless a newer version has
    /// replaced it. Does nothing if there is no version to fall back to.
    pub(super) fn withdraw(&self, failed: &Failed) {
        let Some(back_to) = &failed.back_to else {
            return;
        };
        let mut ledger = self.ledger();
        if Arc::ptr_eq(&ledger.current, &failed.loaded) {
            ledger.current = back_to.clone();
        }
        ledger.tell(LiveEvent::Rejected {
            version: failed.loaded.version().clone(),
            error: failed.error.clone(),
            still_using: back_to.version().clone(),
            at_step: true,
        });
        if let (Some(at), Some(last)) = (&failed.at, &ledger.last) {
            let (batch, in_use) = (at.batch.clone(), last.in_use.clone());
            let turns = at.turns;
            ledger.failed_on = Some(Arc::new(Observed {
                batch,
                in_use,
                turns,
            }));
        }
    }
}
