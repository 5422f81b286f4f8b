//! The thread that follows the files: looks at them after events, waits until they are quiet, checks their content, and
//! publishes what passed.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::check::DryRuns;
use super::event::LiveEvent;
use super::shared::Ledger;
use super::watch::{SETTLE_AT_MOST, Watch, ring};
use super::{Loaded, Shared};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::native::Native;
use crate::script::{Host, Recipe, SourceFiles, Version, guarded};
use crate::tensor::Guard;

/// The longest wait for the end of the thread.
const PATIENCE: Duration = Duration::from_secs(2);

/// The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Thread {
    shared: Arc<Shared>,
    handle: JoinHandle<()>,
    bell: SyncSender<Instant>,
}

impl Thread {
    /// Starts to follow the files of a reading; `None` if there are none.
    ///
    /// A resumed run starts with the version that it used: the files are checked before this returns, so that the first
    /// step uses their content, unless it is rejected.
    pub(super) fn start(
        shared: &Arc<Shared>,
        reading: SourceFiles,
        is_resumed: bool,
    ) -> Result<Option<Thread>, Diagnostics> {
        // Pipes and devices cannot be followed.
        if reading
            .main
            .as_deref()
            .is_none_or(|path| path.exists() && !path.is_file())
        {
            return Ok(None);
        }
        let (watch, bell) = Watch::new(shared.options.poll_only);
        let mut follower = Follower {
            shared: shared.clone(),
            watch,
            reading,
            said: Said::Well,
            is_polling_said: false,
        };
        follower.watch_files();
        if is_resumed {
            follower.judge_at_start();
        }
        let handle = std::thread::Builder::new()
            .name("advlab-live".to_string())
            .spawn(move || follower.follow())
            .map_err(|error| {
                Diagnostic::error(format!(
                    "cannot start a thread to follow the script: {error}"
                ))
            })?;
        Ok(Some(Thread {
            shared: shared.clone(),
            handle,
            bell,
        }))
    }

    /// Lets the thread check the files, and waits for its decision; `false` if that takes longer than the time.
    pub(super) fn look(&self, time: Duration) -> bool {
        let mut ledger = self.shared.ledger();
        ledger.looks_asked += 1;
        let asked = ledger.looks_asked;
        ring(&self.bell);
        let is_due = |ledger: &mut Ledger| ledger.looks_done < asked;
        let looked = &self.shared.looked;
        let waited = looked.wait_timeout_while(ledger, time, is_due);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for Thread {
    /// Stops it, also in the middle of a dry run. A thread that does not end, such as one that waits for a file system that
    /// does not answer, is left behind: it ends with the process.
    fn drop(&mut self) {
        self.shared.stop();
        ring(&self.bell);
        let started = Instant::now();
        while !self.handle.is_finished() && started.elapsed() < PATIENCE {
            std::thread::sleep(PATIENCE / 1000);
        }
    }
}

/// Gives the freed memory of checks back to the system: glibc keeps it in an arena per thread, and the memory of a hostile
/// version's dry runs would stay with the run.
fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: glibc's `malloc_trim(3)` is thread-safe, takes any number, and frees only pages without allocations.
        unsafe { malloc_trim(0) };
    }
}

struct Follower {
    shared: Arc<Shared>,
    watch: Watch,
    /// The files when they were last checked.
    reading: SourceFiles,
    said: Said,
    is_polling_said: bool,
}

/// The last report about the files, so that it is not repeated.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Nothing is wrong.
    Well,
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
            self.shared.looked.notify_all();
        }
    }

    fn judge_at_start(&mut self) {
        let rejected = &self.shared.options.rejected;
        match &self.reading.version {
            Some(version) if rejected.iter().any(|old| old == version.as_str()) => {
                self.said = Said::Rejected(version.clone());
            }
            // Without waiting until the file is quiet: a save that is just being written is looked at again.
            _ => self.judge(&self.reading.clone(), Instant::now()),
        }
    }

    /// Looks at the files, after an event or without one. If their content is new, or if another try is asked for, waits
    /// until they are quiet, and checks them.
    fn look(&mut self, event: Option<Instant>) {
        let now = self.reading.again();
        let is_changed = !now.agrees(&self.reading);
        // Saving a rejected version again asks for another try: the batch or the state may have changed.
        let is_asked =
            event.is_some() && (matches!(self.said, Said::Rejected(_)) || self.is_withdrawn());
        if !is_changed && !is_asked {
            return;
        }
        if event.is_none() {
            // The folder may have been deleted and made again: all are watched anew below.
            let _ = self.watch.follow(std::iter::empty());
        }
        let since = event.unwrap_or_else(Instant::now);
        let settled = self.settle(now);
        // If the content was saved again unchanged, the change was the truncated file.
        if is_asked || !settled.agrees(&self.reading) {
            self.judge(&settled, since);
        }
        self.watch_files();
    }

    /// Whether the file's version passed its checks and then failed at a step.
    fn is_withdrawn(&self) -> bool {
        let current = self.shared.current();
        let held = self.reading.version.as_ref();
        matches!(self.said, Said::Well) && held.is_some_and(|held| held != current.version())
    }

    /// Decides about the content of the files.
    fn judge(&mut self, settled: &SourceFiles, since: Instant) {
        while !self.shared.is_stopped() {
            let decided = guarded("to judge a version", || self.try_publish(settled, since));
            match decided.and_then(|decided| decided) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    self.reject(error);
                    break;
                }
            }
        }
        give_back_memory();
    }

    /// Waits until nothing has changed for [`SETTLE`](super::watch::SETTLE), but at most [`SETTLE_AT_MOST`].
    fn settle(&self, mut reading: SourceFiles) -> SourceFiles {
        let started = Instant::now();
        loop {
            let is_quiet = self.watch.is_quiet();
            let now = reading.again();
            let is_settled = is_quiet && now.agrees(&reading);
            reading = now;
            if is_settled || started.elapsed() >= SETTLE_AT_MOST || self.shared.is_stopped() {
                return reading;
            }
        }
    }

    /// Publishes the version in the files, if it passes its checks; `false` without a decision if the version that it was
    /// compared with has been taken out of use in the meantime.
    fn try_publish(&mut self, settled: &SourceFiles, since: Instant) -> Result<bool, Diagnostics> {
        let began = Instant::now();
        if let Some(Err(unread)) = settled.main_content() {
            self.reading = settled.clone();
            self.say_missing(unread.why.clone());
            return Ok(true);
        }
        let Some(guard) = self.shared.begin_check() else {
            return Ok(true);
        };
        let host = self.shared.host.clone().with_guard(guard.clone());
        let in_use = self.shared.current();
        let (loaded, reading) = host.load_read(settled);
        let before = std::mem::replace(&mut self.reading, reading).version;
        self.watch_files();
        let recipe = loaded?;
        let version = recipe.version().clone();
        if version == *in_use.version() {
            self.said = Said::Well;
            if before.is_none_or(|before| before != version) {
                self.shared.ledger().tell(LiveEvent::Reverted { version });
            }
            return Ok(true);
        }
        let (recipe, warnings) = self.check(recipe, &in_use, &host, &guard)?;
        let times = (began.elapsed(), since.elapsed());
        if !self.shared.publish(&in_use, recipe, times) {
            return Ok(false);
        }
        self.said = Said::Well;
        if !warnings.is_empty() {
            let warned = LiveEvent::Warned { version, warnings };
            self.shared.ledger().tell(warned);
        }
        Ok(true)
    }

    /// The recipe with the run's settings, and warnings.
    fn check(
        &self,
        recipe: Recipe,
        in_use: &Loaded,
        host: &Host,
        guard: &Guard,
    ) -> Result<(Recipe, Vec<Diagnostic>), Diagnostics> {
        // The script is checked, not its kernel.
        let host = &host.clone().with_native(&Native::default());
        let recipe = self.shared.options.fit(recipe, true)?.on(host);
        let ledger = self.shared.ledger();
        let dry_runs = DryRuns {
            candidate: &recipe,
            host,
            guard,
            last: ledger.last.clone(),
            failed_on: ledger.failed_on.clone(),
        };
        drop(ledger);
        let warnings = dry_runs.run()?;
        let known = in_use.recipe().warnings();
        let is_new =
            |warning: &&Diagnostic| !known.iter().any(|old| old.message == warning.message);
        let found = recipe.warnings().iter().filter(is_new).cloned();
        let warnings = found.chain(warnings).collect();
        Ok((recipe.on(&self.shared.host), warnings))
    }

    fn say(&mut self, said: Said, event: LiveEvent) {
        if self.said != said {
            self.said = said;
            self.shared.ledger().tell(event);
        }
    }

    fn reject(&mut self, error: Diagnostics) {
        let Some(version) = self.reading.version.as_ref().cloned() else {
            return self.say_missing(error.to_string());
        };
        let rejected = LiveEvent::Rejected {
            version: version.clone(),
            error,
            still_using: self.shared.current().version().clone(),
            at_step: false,
        };
        self.say(Said::Rejected(version), rejected);
    }

    fn say_missing(&mut self, why: String) {
        let missing = LiveEvent::Missing {
            path: self.reading.main.clone().unwrap_or_default(),
            why,
            still_using: self.shared.current().version().clone(),
        };
        self.say(Said::Missing, missing);
    }

    /// Watches the files of the last reading. Reports once if there are no events for them.
    fn watch_files(&mut self) {
        let files = self.reading.files.keys().map(|path| path.as_path());
        if let Err(error) = self.watch.follow(files)
            && !std::mem::replace(&mut self.is_polling_said, true)
        {
            let why = error.to_string();
            self.shared.ledger().tell(LiveEvent::PollingOnly { why });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LiveOptions;

    #[test]
    fn a_thread_that_does_not_end_is_left_behind() {
        let host = Host::new();
        let first = Loaded {
            recipe: host.load("grpo").unwrap(),
            serial: 0,
            times: Default::default(),
        };
        let shared = Arc::new(Shared::new(&host, LiveOptions::default(), Arc::new(first)));
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = Thread {
            shared,
            // Like one that opens a pipe that nobody writes.
            handle: std::thread::spawn(move || while wait.recv().is_ok() {}),
            bell: std::sync::mpsc::sync_channel(1).0,
        };
        let started = Instant::now();
        drop(thread);
        assert!(started.elapsed() >= PATIENCE && started.elapsed() < 5 * PATIENCE);
        drop(end);
    }
}
