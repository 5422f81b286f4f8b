//! The thread that follows the files: if they change, it waits until they stop changing, and checks and publishes their content.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::event::LiveEvent;
use super::shared::{Checked, Shared};
use super::version::Published;
use super::watch::{SETTLE, SETTLE_AT_MOST, Watch};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{SourceFiles, Version, guarded};

/// A check is abandoned after this many times its time limit. The factor is large because the comparison of answers with
/// references does not count as the script's time, and because a busy machine may stall.
const PATIENCE: u32 = 6;

impl Shared {
    /// Runs [`Shared::check`] in a separate thread, and returns its result. A check that does not end is abandoned, because a
    /// thread cannot be ended from outside.
    fn checked(
        self: &Arc<Self>,
        settled: &SourceFiles,
        in_use: &Arc<Published>,
        files: &Arc<OnceLock<SourceFiles>>,
    ) -> Result<Checked, Diagnostics> {
        let (guard, (sender, answer)) = (self.options.guard(&self.host), sync_channel(1));
        let until = Instant::now() + PATIENCE * self.options.time();
        let (shared, bound, files) = (self.clone(), guard.clone(), files.clone());
        let (settled, in_use) = (settled.clone(), in_use.clone());
        start("advlab-check", move || {
            let check = || shared.check(bound, &settled, &in_use, &files);
            let checked = guarded("to judge a version", check);
            // An error means that the check was abandoned. It is ignored, because nobody waits for the result.
            let _ = sender.send(checked.and_then(|checked| checked));
        })?;
        let may_wait = || Instant::now() < until && !self.guard.is_cancelled();
        loop {
            match answer.recv_timeout(SETTLE) {
                Ok(checked) => return checked,
                Err(RecvTimeoutError::Timeout) if may_wait() => {}
                Err(_) => break,
            }
        }
        guard.cancel();
        let message = "the check of this version did not end, and was abandoned";
        let help = "this is a defect of advlab: please report it with the script";
        Err(Diagnostic::error(message).with_help(help).into())
    }

    /// Starts the thread that follows the files until the live recipe is dropped, and returns the sender that wakes it. Returns
    /// `None` if there is no file to follow.
    ///
    /// For a resumed run, which starts with the version that it used before, the files are checked before this function returns,
    /// so that the first step uses their content unless it is rejected.
    pub(super) fn follow(
        self: &Arc<Self>,
        files: SourceFiles,
        is_resumed: bool,
    ) -> Result<Option<SyncSender<Instant>>, Diagnostics> {
        // Pipes and devices cannot be followed, only regular files.
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
            waiting: Vec::new(),
        };
        follower.watch_files();
        if is_resumed {
            follower.judge_at_start();
        }
        start("advlab-live", move || follower.follow())?;
        Ok(Some(bell))
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Diagnostics> {
    let thread = std::thread::Builder::new().name(name.to_string());
    let started = thread.spawn(run).map(drop);
    let message = |error| format!("cannot start a thread to follow the script: {error}");
    started.map_err(|error| Diagnostic::error(message(error)).into())
}

struct Follower {
    shared: Arc<Shared>,
    watch: Watch,
    /// The files when they were last checked.
    files: SourceFiles,
    /// The last report about the files, which must not be repeated: the rejected version, or `Some(None)` for an unreadable
    /// script.
    reported: Option<Option<Version>>,
    is_polling_reported: bool,
    /// The senders of callers that began to wait before the files were last read.
    waiting: Vec<SyncSender<()>>,
}

impl Follower {
    fn follow(mut self) {
        // The first reading does not wait for an event, because a save may have happened after the recipe was read and before its
        // folder was watched.
        let mut event = None;
        while !self.shared.guard.is_cancelled() {
            self.look(event);
            self.waiting.clear();
            // The wake-up of a caller that began to wait after the last reading may have been consumed while the files settled.
            let is_awaited = !self.shared.ledger().waiting.is_empty();
            event = if is_awaited {
                Some(Instant::now())
            } else {
                self.watch.wait()
            };
        }
    }

    fn read(&mut self, files: &SourceFiles) -> SourceFiles {
        self.waiting.append(&mut self.shared.ledger().waiting);
        files.again()
    }

    fn judge_at_start(&mut self) {
        let rejected = &self.shared.options.rejected;
        match &self.files.version {
            Some(version) if rejected.iter().any(|old| old == version.as_str()) => {
                self.reported = Some(Some(version.clone()));
            }
            // The files are checked at once, even if a save is unfinished, because the end of the save is noticed later.
            _ => self.judge(&self.files.clone(), Instant::now()),
        }
    }

    /// Reads the files, because of an event or because of the polling interval. If their content is new, or if a save asks for
    /// another attempt, waits until the files stay unchanged, and checks them.
    fn look(&mut self, event: Option<Instant>) {
        let now = self.read(&self.files.clone());
        // A rejected or failed version is tried again if it is saved again, because the batch or the state may have changed.
        let current = self.shared.current();
        let version = self.files.version.as_ref();
        let is_unused = version.is_some_and(|version| version != current.version());
        let is_asked = event.is_some() && is_unused;
        if now.agrees(&self.files) && !is_asked {
            return;
        }
        if event.is_none() {
            // All watches are removed here and set again below, because a folder may have been deleted and made again. An error
            // is ignored, because watching nothing cannot fail.
            let _ = self.watch.follow(std::iter::empty());
        }
        let since = event.unwrap_or_else(Instant::now);
        let settled = self.settle(now);
        // If the files have their old content again, a file was only truncated for a moment, and there is nothing to check.
        if is_asked || !settled.agrees(&self.files) {
            self.judge(&settled, since);
        }
        self.watch_files();
    }

    /// Waits until the files have been unchanged for [`SETTLE`](super::watch::SETTLE), but not longer than [`SETTLE_AT_MOST`].
    fn settle(&mut self, mut files: SourceFiles) -> SourceFiles {
        let started = Instant::now();
        loop {
            let is_quiet = self.watch.is_quiet();
            let now = self.read(&files);
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
            match self.try_publish(settled, since) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => return self.reject(error),
            }
        }
    }

    /// Publishes the version in the files if it passes its checks. Returns `false`, without a decision, if the version with which
    /// it was compared has been replaced in the meantime.
    fn try_publish(&mut self, settled: &SourceFiles, since: Instant) -> Result<bool, Diagnostics> {
        let (began, shared) = (Instant::now(), self.shared.clone());
        let in_use = shared.current();
        let files = Arc::default();
        let checked = shared.checked(settled, &in_use, &files);
        let files = files.get().unwrap_or(settled).clone();
        let before = std::mem::replace(&mut self.files, files).version;
        // The watches are set before the publication, so that a save immediately after it is noticed.
        self.watch_files();
        let Some((recipe, (warnings, effect))) = checked? else {
            self.reported = None;
            let version = in_use.version().clone();
            if before.is_none_or(|before| before != version) {
                shared.ledger().tell(LiveEvent::Reverted { version });
            }
            return Ok(true);
        };
        let loaded = Published {
            times: (began.elapsed(), since.elapsed()),
            effect,
            ..Published::of(recipe.on(&shared.host))
        };
        let is_published = shared.publish(&in_use, loaded, warnings);
        if is_published {
            self.reported = None;
        }
        Ok(is_published)
    }

    /// Reports why the content of the files is not used, unless the last report was about the same version.
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

    /// Watches the files. If the system gives no events for them, reports this once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::options::LiveOptions;
    use crate::live::trial::dry_runs;
    use crate::live::watch::ring;
    use crate::{Host, LiveRecipe};
    use std::path::Path;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(3600);

    fn times(factor: u32) -> String {
        format!("fn advantage(batch, p) {{ batch.reward * {factor}.0 }}\n")
    }

    /// Writes a file beside the script and renames it, because a reader may see a file that `write` has truncated as empty.
    fn save(path: &Path, text: String) {
        let beside = path.with_extension("tmp");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, path).unwrap();
    }

    /// A script in a folder of its own, and a live recipe that does not follow it yet.
    fn live() -> (tempfile::TempDir, PathBuf, LiveRecipe) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recipe.rhai");
        std::fs::write(&path, times(1)).unwrap();
        let recipe = Host::new().load(path.to_str().unwrap()).unwrap();
        let live = LiveRecipe::without_file(&Host::new(), recipe, LiveOptions::default());
        (folder, path, live.unwrap())
    }

    #[test]
    fn a_check_that_never_ends_loses_no_later_save() {
        let (_folder, path, mut live) = live();
        let shared = Arc::get_mut(&mut live.shared).unwrap();
        shared.options.deadline = Some(Duration::from_millis(50));
        // This check never looks at its guard, like a function of the script engine that never returns.
        shared.dry_runs = |recipe, observed, options| {
            while recipe.text() == times(2) || recipe.text() == times(3) {
                std::thread::sleep(LONG);
            }
            dry_runs(recipe, observed, options)
        };
        live.follow(path.to_str().unwrap()).unwrap();
        for (factor, is_good) in [(2, false), (3, false), (4, true), (2, false), (5, true)] {
            save(&path, times(factor));
            assert!(live.refresh(LONG));
            match &live.events()[..] {
                [LiveEvent::Published(change)] if is_good => {
                    assert_eq!(change.to, *live.newest().version());
                }
                [LiveEvent::Rejected { version, error, .. }] if !is_good => {
                    assert!(error.to_string().contains("did not end"), "{error}");
                    assert_ne!(version, live.newest().version());
                }
                other => panic!("{factor}: {other:#?}"),
            }
        }
        assert_eq!(live.newest().recipe().text(), times(5));
    }

    /// While the files settle, the wake-up of a caller is consumed; the caller is answered nevertheless.
    #[test]
    fn a_refresh_beside_a_save_is_answered_by_it() {
        let (_folder, path, live) = live();
        let (watch, bell) = Watch::new(true);
        let mut follower = Follower {
            shared: live.shared.clone(),
            watch,
            files: SourceFiles::of(path.to_str().unwrap()),
            reported: None,
            is_polling_reported: false,
            waiting: Vec::new(),
        };
        save(&path, times(2));
        let (sender, _answer) = sync_channel(1);
        let shared = live.shared.clone();
        let asking = std::thread::spawn(move || {
            std::thread::sleep(SETTLE / 3);
            shared.ledger().waiting.push(sender);
            ring(&bell);
        });
        follower.look(Some(Instant::now()));
        asking.join().unwrap();
        assert_eq!(live.newest().recipe().text(), times(2));
        // Either this call of `look` answers, or the next call follows immediately.
        let is_left = !live.shared.ledger().waiting.is_empty();
        assert!(follower.waiting.len() == 1 || is_left && follower.watch.wait().is_some());
    }

    #[test]
    fn a_second_file_is_not_followed() {
        let (_folder, path, mut live) = live();
        live.follow(path.to_str().unwrap()).unwrap();
        let error = live.follow(path.to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("follows a file already"));
        save(&path, times(2));
        assert!(live.refresh(LONG));
        assert_eq!(live.newest().recipe().text(), times(2));
    }
}
