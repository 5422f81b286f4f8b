//! The thread that follows the files: after an event it waits until they are quiet, checks their content, and publishes it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::check::dry_runs;
use super::event::{LiveEvent, VersionChange};
use super::watch::{SETTLE_AT_MOST, Watch};
use super::{Failed, InUse, LiveOptions, Loaded};
use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::native::Native;
use crate::parallel::lock;
use crate::script::{Host, Recipe, SourceFiles, Version, guarded};
use crate::tensor::Guard;

/// The most events kept for a run that does not fetch them; the oldest are dropped first.
const EVENTS: usize = 1024;

/// The state that the run shares with the thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) options: LiveOptions,
    /// Bounds each check of the thread. Cancelling it ends the thread.
    pub(super) guard: Arc<Guard>,
    ledger: Mutex<Ledger>,
}

/// The changing part, under one lock, so that events have the order of the versions. The lock is held only while a few
/// pointers are read or written, so that the run does not wait.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) current: Arc<Loaded>,
    pub(super) last: Option<Arc<Observed>>,
    /// The last batch on which a version failed at a step.
    failed_on: Option<Arc<Observed>>,
    pub(super) events: VecDeque<LiveEvent>,
    published: u64,
    /// Who waits until the files were looked at: the thread then drops the sender.
    pub(super) waiting: Vec<SyncSender<()>>,
}

/// A batch of the run, with the version and the state at the start of its step.
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
            published: 0,
            waiting: Vec::new(),
        };
        Shared {
            guard: options.guard(host),
            host: host.clone(),
            options,
            ledger: Mutex::new(ledger),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(super) fn current(&self) -> Arc<Loaded> {
        self.ledger().current.clone()
    }

    /// Publishes a version, unless the version that it was compared with is no longer the newest.
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
        ledger.published += 1;
        ledger.current = Arc::new(Loaded {
            recipe,
            serial: ledger.published,
            times,
        });
        ledger.tell(LiveEvent::Published(change));
        true
    }

    /// Reports a version that failed at a step, or in its `migrate`, and stops using it, unless a newer one has replaced it.
    pub(super) fn withdraw(&self, failed: &Failed, is_step: bool) {
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
        if is_step {
            ledger.failed_on = ledger.last.clone();
        }
    }

    /// Starts the thread that follows the files, until the guard is cancelled; the bell wakes it. `None` if there are no files.
    ///
    /// A resumed run starts with the version that it used: the files are checked before this returns, so that the first
    /// step uses their content, unless it is rejected.
    pub(super) fn follow(
        self: &Arc<Self>,
        files: SourceFiles,
        is_resumed: bool,
    ) -> Result<Option<SyncSender<Instant>>, Diagnostics> {
        // Pipes and devices cannot be followed.
        let is_other = |path: &PathBuf| path.exists() && !path.is_file();
        if files.main.as_ref().is_none_or(is_other) {
            return Ok(None);
        }
        let (watch, bell) = Watch::new(self.options.poll_only);
        let mut follower = Follower {
            shared: self.clone(),
            watch,
            files,
            reported: None,
            is_polling_reported: false,
        };
        follower.watch_files();
        if is_resumed {
            follower.judge_at_start();
        }
        let thread = std::thread::Builder::new().name("advlab-live".to_string());
        match thread.spawn(move || follower.follow()) {
            Ok(_) => Ok(Some(bell)),
            Err(error) => {
                let message = format!("cannot start a thread to follow the script: {error}");
                Err(Diagnostic::error(message).into())
            }
        }
    }
}

struct Follower {
    shared: Arc<Shared>,
    watch: Watch,
    /// The files when they were last checked.
    files: SourceFiles,
    /// The last report about the files, which is not repeated: the version that was rejected, or `Some(None)` if the script
    /// was missing.
    reported: Option<Option<Version>>,
    is_polling_reported: bool,
}

impl Follower {
    /// Follows the files until the live recipe is dropped.
    fn follow(mut self) {
        // A save may have come after the recipe was read and before its folder was watched.
        self.look(None);
        while !self.shared.guard.is_cancelled() {
            let event = self.watch.wait();
            let waiting = std::mem::take(&mut self.shared.ledger().waiting);
            self.look(event);
            drop(waiting);
        }
    }

    fn judge_at_start(&mut self) {
        let rejected = &self.shared.options.rejected;
        match &self.files.version {
            Some(version) if rejected.iter().any(|old| old == version.as_str()) => {
                self.reported = Some(Some(version.clone()));
            }
            // Without waiting until the file is quiet: a save that is just being written is looked at again.
            _ => self.judge(&self.files.clone(), Instant::now()),
        }
    }

    /// Reads the files, after an event or without one. If their content is new, or if another attempt is requested, waits
    /// until they are quiet, and checks them.
    fn look(&mut self, event: Option<Instant>) {
        let now = self.files.again();
        // Saving a version again that was rejected or failed asks for another try: the batch or the state may have changed.
        let current = self.shared.current();
        let version = self.files.version.as_ref();
        let is_unused = version.is_some_and(|version| version != current.version());
        let is_asked = event.is_some() && is_unused;
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

    /// Waits until nothing has changed for [`SETTLE`](super::watch::SETTLE), but at most [`SETTLE_AT_MOST`].
    fn settle(&self, mut files: SourceFiles) -> SourceFiles {
        let started = Instant::now();
        loop {
            let is_quiet = self.watch.is_quiet();
            let now = files.again();
            let is_settled = is_quiet && now.agrees(&files);
            files = now;
            let is_over = self.shared.guard.is_cancelled();
            if is_settled || is_over || started.elapsed() >= SETTLE_AT_MOST {
                return files;
            }
        }
    }

    /// Publishes or rejects the content of the files.
    fn judge(&mut self, settled: &SourceFiles, since: Instant) {
        while !self.shared.guard.is_cancelled() {
            let decided = guarded("to judge a version", || self.try_publish(settled, since));
            match decided.and_then(|decided| decided) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => return self.reject(error),
            }
        }
    }

    /// Publishes the version in the files if it passes its checks. Returns `false` without a decision if the version that it was
    /// compared with has been taken out of use in the meantime.
    fn try_publish(&mut self, settled: &SourceFiles, since: Instant) -> Result<bool, Diagnostics> {
        let began = Instant::now();
        let shared = self.shared.clone();
        shared.guard.start_clock();
        // The script is checked, not its kernel.
        let host = shared.host.clone().with_native(&Native::default());
        let host = host.with_guard(shared.guard.clone());
        let in_use = shared.current();
        let (loaded, files) = host.load_read(settled);
        let before = std::mem::replace(&mut self.files, files).version;
        self.watch_files();
        let recipe = loaded?;
        let version = recipe.version().clone();
        if version == *in_use.version() {
            self.reported = None;
            if before.is_none_or(|before| before != version) {
                shared.ledger().tell(LiveEvent::Reverted { version });
            }
            return Ok(true);
        }
        let recipe = shared.options.fit(recipe, true)?;
        let ledger = shared.ledger();
        let (last, failed_on) = (ledger.last.clone(), ledger.failed_on.clone());
        drop(ledger);
        let later = dry_runs(&recipe, last.as_ref(), failed_on.as_ref())?;
        let known = in_use.recipe().warnings();
        let is_new =
            |warning: &&Diagnostic| !known.iter().any(|old| old.message == warning.message);
        let found = recipe.warnings().iter().filter(is_new).cloned();
        let warnings: Vec<Diagnostic> = found.chain(later).collect();
        let times = (began.elapsed(), since.elapsed());
        if !shared.publish(&in_use, recipe.on(&shared.host), times) {
            return Ok(false);
        }
        self.reported = None;
        if !warnings.is_empty() {
            let warned = LiveEvent::Warned { version, warnings };
            shared.ledger().tell(warned);
        }
        Ok(true)
    }

    /// Reports why the files' content is not used.
    fn reject(&mut self, error: Diagnostics) {
        let version = self.files.version.clone();
        if self.reported.replace(version.clone()) == Some(version.clone()) {
            return;
        }
        let still_using = self.shared.current().version().clone();
        let main = self.files.main_content();
        let unread = main.and_then(|main| main.as_ref().err());
        self.shared.ledger().tell(match version {
            Some(version) => LiveEvent::Rejected {
                version,
                error,
                still_using,
                at_step: false,
            },
            None => LiveEvent::Missing {
                path: self.files.main.clone().unwrap_or_default(),
                why: unread.map_or(error.to_string(), |(_, why)| why.clone()),
                still_using,
            },
        });
    }

    /// Watches the files. Reports once if there are no events for them.
    fn watch_files(&mut self) {
        let files = self.files.files.keys().map(|path| path.as_path());
        if let Err(error) = self.watch.follow(files)
            && !std::mem::replace(&mut self.is_polling_reported, true)
        {
            let why = error.to_string();
            self.shared.ledger().tell(LiveEvent::PollingOnly { why });
        }
    }
}
