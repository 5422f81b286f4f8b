//! The thread that follows the files: after an event it waits until they are quiet, checks their content, and publishes it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::check::DryRuns;
use super::event::{LiveEvent, VersionChange};
use super::watch::{SETTLE_AT_MOST, Watch, lock, ring};
use super::{InUse, LiveOptions, Loaded};
use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::native::Native;
use crate::script::{Host, Recipe, SourceFiles, Version, guarded};
use crate::tensor::Guard;

/// Events that are kept for a run that does not ask for them; the oldest are lost first.
const EVENTS: usize = 1024;

/// The state that the run shares with the thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) options: LiveOptions,
    ledger: Mutex<Ledger>,
}

/// The changing part, under one lock, so that events come in the order of the versions. It is only held for as long as it
/// takes to read or write a few pointers: the run does not wait.
#[derive(Debug)]
pub(super) struct Ledger {
    current: Arc<Loaded>,
    last: Option<Arc<Observed>>,
    /// The last batch on which a version failed at a step.
    failed_on: Option<Arc<Observed>>,
    pub(super) events: VecDeque<LiveEvent>,
    published: u64,
    is_stopped: bool,
    /// The number of looks at the files that were asked for, and of those that are done.
    looks_asked: u64,
    looks_done: u64,
    /// The running check, so that it can be cancelled.
    check: Option<Arc<Guard>>,
}

/// A batch of the run, and the version and state that its step began with.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) batch: Batch,
    pub(super) in_use: InUse,
}

impl Ledger {
    fn tell(&mut self, event: LiveEvent) {
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
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    fn tell(&self, event: LiveEvent) {
        self.ledger().tell(event);
    }

    pub(super) fn observe(&self, batch: &Batch, in_use: &InUse) {
        self.ledger().last = Some(Arc::new(Observed {
            batch: batch.clone(),
            in_use: in_use.clone(),
        }));
    }

    /// A guard for a check that dropping the [`Thread`] cancels; `None` if it is dropped.
    fn begin_check(&self) -> Option<Arc<Guard>> {
        let guard = self.options.guard(&self.host);
        let mut ledger = self.ledger();
        ledger.check = Some(guard.clone());
        (!ledger.is_stopped).then_some(guard)
    }

    fn is_stopped(&self) -> bool {
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
        let serial = ledger.published;
        ledger.current = Arc::new(Loaded {
            recipe,
            serial,
            times,
        });
        ledger.published += 1;
        ledger.tell(LiveEvent::Published(change));
        true
    }

    /// Reports a version that failed at a step, or in its `migrate`, and takes it out of use, unless a newer one has replaced it.
    pub(super) fn withdraw(
        &self,
        failed: &Arc<Loaded>,
        back_to: &Arc<Loaded>,
        error: &Diagnostics,
        is_step: bool,
    ) {
        let mut ledger = self.ledger();
        if Arc::ptr_eq(&ledger.current, failed) {
            ledger.current = back_to.clone();
        }
        ledger.tell(LiveEvent::Rejected {
            version: failed.version().clone(),
            error: error.clone(),
            still_using: back_to.version().clone(),
            at_step: true,
        });
        if is_step {
            ledger.failed_on = ledger.last.clone();
        }
    }
}

/// The thread ends when this is dropped, also in the middle of a dry run.
#[derive(Debug)]
pub(super) struct Thread {
    shared: Arc<Shared>,
    bell: SyncSender<Instant>,
}

impl Thread {
    /// Starts to follow the files; `None` if there are none.
    ///
    /// A resumed run starts with the version that it used: the files are checked before this returns, so that the first
    /// step uses their content, unless it is rejected.
    pub(super) fn start(
        shared: &Arc<Shared>,
        files: SourceFiles,
        is_resumed: bool,
    ) -> Result<Option<Thread>, Diagnostics> {
        // Pipes and devices cannot be followed.
        let is_other = |path: &PathBuf| path.exists() && !path.is_file();
        if files.main.as_ref().is_none_or(is_other) {
            return Ok(None);
        }
        let (watch, bell) = Watch::new(shared.options.poll_only);
        let mut follower = Follower {
            shared: shared.clone(),
            watch,
            files,
            reported: Reported::Nothing,
            is_polling_reported: false,
        };
        follower.watch_files();
        if is_resumed {
            follower.judge_at_start();
        }
        let thread = std::thread::Builder::new().name("advlab-live".to_string());
        if let Err(error) = thread.spawn(move || follower.follow()) {
            let message = format!("cannot start a thread to follow the script: {error}");
            return Err(Diagnostic::error(message).into());
        }
        let shared = shared.clone();
        Ok(Some(Thread { shared, bell }))
    }

    /// Lets the thread check the files, and waits for its decision; `false` if that takes longer than the time.
    pub(super) fn look(&self, time: Duration) -> bool {
        let started = Instant::now();
        let mut ledger = self.shared.ledger();
        ledger.looks_asked += 1;
        let asked = ledger.looks_asked;
        drop(ledger);
        ring(&self.bell);
        while self.shared.ledger().looks_done < asked {
            if started.elapsed() > time {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let mut ledger = self.shared.ledger();
        ledger.is_stopped = true;
        if let Some(check) = ledger.check.take() {
            check.cancel();
        }
        drop(ledger);
        ring(&self.bell);
    }
}

struct Follower {
    shared: Arc<Shared>,
    watch: Watch,
    /// The files when they were last checked.
    files: SourceFiles,
    reported: Reported,
    is_polling_reported: bool,
}

/// What was last reported of the files, and is not repeated.
#[derive(Debug, PartialEq, Eq)]
enum Reported {
    /// Nothing, or that all is well.
    Nothing,
    Missing,
    Rejected(Version),
}

impl Follower {
    /// Follows the files until the live recipe is dropped.
    fn follow(mut self) {
        // A save may have come after the recipe was read and before its folder was watched.
        self.look(None);
        while !self.shared.is_stopped() {
            let event = self.watch.wait();
            let asked = self.shared.ledger().looks_asked;
            self.look(event);
            self.shared.ledger().looks_done = asked;
        }
    }

    fn judge_at_start(&mut self) {
        let rejected = &self.shared.options.rejected;
        match &self.files.version {
            Some(version) if rejected.iter().any(|old| old == version.as_str()) => {
                self.reported = Reported::Rejected(version.clone());
            }
            // Without waiting until the file is quiet: a save that is just being written is looked at again.
            _ => self.judge(&self.files.clone(), Instant::now()),
        }
    }

    /// Looks at the files, after an event or without one. If their content is new, or if another try is asked for, waits
    /// until they are quiet, and checks them.
    fn look(&mut self, event: Option<Instant>) {
        let now = self.files.again();
        // Saving a version again that was rejected or failed asks for another try: the batch or the state may have changed.
        let is_asked = event.is_some()
            && match self.reported {
                Reported::Rejected(_) => true,
                Reported::Missing => false,
                Reported::Nothing => self.failed_at_step(),
            };
        if now.agrees(&self.files) && !is_asked {
            return;
        }
        if event.is_none() {
            // The folder may have been deleted and made again: all are watched anew below.
            let _ = self.watch.follow(std::iter::empty());
        }
        let since = event.unwrap_or_else(Instant::now);
        let settled = self.settle(now);
        // If the content was saved again unchanged, the change was the truncated file.
        if is_asked || !settled.agrees(&self.files) {
            self.judge(&settled, since);
        }
        self.watch_files();
    }

    /// Whether the files' version passed its checks and then failed at a step.
    fn failed_at_step(&self) -> bool {
        let current = self.shared.current();
        let version = self.files.version.as_ref();
        version.is_some_and(|version| version != current.version())
    }

    /// Waits until nothing has changed for [`SETTLE`](super::watch::SETTLE), but at most [`SETTLE_AT_MOST`].
    fn settle(&self, mut files: SourceFiles) -> SourceFiles {
        let started = Instant::now();
        loop {
            let is_quiet = self.watch.is_quiet();
            let now = files.again();
            let is_settled = is_quiet && now.agrees(&files);
            files = now;
            if is_settled || started.elapsed() >= SETTLE_AT_MOST || self.shared.is_stopped() {
                return files;
            }
        }
    }

    /// Publishes or rejects the content of the files.
    fn judge(&mut self, settled: &SourceFiles, since: Instant) {
        while !self.shared.is_stopped() {
            let decided = guarded("to judge a version", || self.try_publish(settled, since));
            match decided.and_then(|decided| decided) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => return self.reject(error),
            }
        }
    }

    /// Publishes the version in the files, if it passes its checks; `false` without a decision if the version that it was
    /// compared with has been taken out of use in the meantime.
    fn try_publish(&mut self, settled: &SourceFiles, since: Instant) -> Result<bool, Diagnostics> {
        let began = Instant::now();
        if let Some(Err(unread)) = settled.main_content() {
            self.files = settled.clone();
            self.report_missing(unread.why.clone());
            return Ok(true);
        }
        let Some(guard) = self.shared.begin_check() else {
            return Ok(true);
        };
        let host = self.shared.host.clone().with_guard(guard.clone());
        let in_use = self.shared.current();
        let (loaded, files) = host.load_read(settled);
        let before = std::mem::replace(&mut self.files, files).version;
        self.watch_files();
        let recipe = loaded?;
        let version = recipe.version().clone();
        if version == *in_use.version() {
            self.reported = Reported::Nothing;
            if before.is_none_or(|before| before != version) {
                self.shared.tell(LiveEvent::Reverted { version });
            }
            return Ok(true);
        }
        // The script is checked, not its kernel.
        let host = host.with_native(&Native::default());
        let recipe = self.shared.options.fit(recipe, true)?.on(&host);
        let ledger = self.shared.ledger();
        let dry_runs = DryRuns {
            candidate: &recipe,
            host: &host,
            guard: &guard,
            last: ledger.last.clone(),
            failed_on: ledger.failed_on.clone(),
        };
        drop(ledger);
        let later = dry_runs.run()?;
        let known = in_use.recipe().warnings();
        let is_new =
            |warning: &&Diagnostic| !known.iter().any(|old| old.message == warning.message);
        let found = recipe.warnings().iter().filter(is_new).cloned();
        let warnings: Vec<Diagnostic> = found.chain(later).collect();
        let (recipe, times) = (
            recipe.on(&self.shared.host),
            (began.elapsed(), since.elapsed()),
        );
        if !self.shared.publish(&in_use, recipe, times) {
            return Ok(false);
        }
        self.reported = Reported::Nothing;
        if !warnings.is_empty() {
            self.shared.tell(LiveEvent::Warned { version, warnings });
        }
        Ok(true)
    }

    fn reject(&mut self, error: Diagnostics) {
        let Some(version) = self.files.version.clone() else {
            return self.report_missing(error.to_string());
        };
        let rejected = LiveEvent::Rejected {
            version: version.clone(),
            error,
            still_using: self.shared.current().version().clone(),
            at_step: false,
        };
        self.report(Reported::Rejected(version), rejected);
    }

    fn report_missing(&mut self, why: String) {
        let missing = LiveEvent::Missing {
            path: self.files.main.clone().unwrap_or_default(),
            why,
            still_using: self.shared.current().version().clone(),
        };
        self.report(Reported::Missing, missing);
    }

    fn report(&mut self, reported: Reported, event: LiveEvent) {
        if self.reported != reported {
            self.reported = reported;
            self.shared.tell(event);
        }
    }

    /// Watches the files. Reports once if there are no events for them.
    fn watch_files(&mut self) {
        let files = self.files.files.keys().map(|path| path.as_path());
        if let Err(error) = self.watch.follow(files)
            && !std::mem::replace(&mut self.is_polling_reported, true)
        {
            let why = error.to_string();
            self.shared.tell(LiveEvent::PollingOnly { why });
        }
    }
}
