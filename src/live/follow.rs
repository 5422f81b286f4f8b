//! The thread that follows the files: looks at them when there is a reason to, waits until they are quiet, checks what
//! they hold, and publishes what passed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::check::{DryRuns, has_hooks, set};
use super::event::LiveEvent;
use super::watch::{SETTLE_AT_MOST, Wake, Watch};
use super::{Loaded, Shared};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Content, Host, Reading, Recipe, Version};
use crate::tensor::Guard;

/// Follows the files of one recipe.
pub(super) struct Follower {
    pub(super) shared: Arc<Shared>,
    pub(super) watch: Watch,
    pub(super) path: PathBuf,
    /// The files, as they were when they were last judged.
    pub(super) reading: Reading,
    /// What was said of them.
    pub(super) said: Said,
}

/// What was last said of the files, so as not to say it twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing that needs mending.
    Well,
    /// That the script is missing.
    Missing,
    /// That this version was rejected.
    Rejected(Version),
}

/// A version that has passed its checks.
struct Passed {
    recipe: Recipe,
    warnings: Vec<Diagnostic>,
}

/// The files as they are once they are quiet.
struct Settled {
    reading: Reading,
    /// Whether they would not become quiet.
    is_restless: bool,
}

impl Follower {
    /// Follows the files until the live recipe is dropped. `is_new` where they have never been judged.
    pub(super) fn follow(mut self, is_new: bool) {
        if is_new {
            self.settle_and_judge(Instant::now(), true);
        } else {
            // What was saved after the recipe was read and before its folder was watched.
            self.look(Wake::Poll(Instant::now()));
        }
        while !self.shared.is_stopped() {
            let wake = self.watch.wait();
            self.look(wake);
        }
    }

    fn look(&mut self, wake: Wake) {
        let is_changed = !self.reading.again().agrees(&self.reading);
        match wake {
            Wake::Event(at) => {
                // Saving a rejected version again asks for another try: the batch or the state may be another by now.
                let is_asked = matches!(self.said, Said::Rejected(_)) || self.is_withdrawn();
                if is_changed || is_asked {
                    self.settle_and_judge(at, is_asked);
                }
            }
            Wake::Poll(at) if is_changed => {
                // There was no event: the watch may be on a folder that is no more.
                self.watch.forget();
                self.settle_and_judge(at, false);
                self.watch_files();
            }
            Wake::Poll(_) => {}
        }
    }

    /// Whether the file's version passed its checks and then failed at a step.
    fn is_withdrawn(&self) -> bool {
        let current = self.shared.current.load();
        let held = self.reading.version();
        matches!(self.said, Said::Well) && held.is_some_and(|held| held != current.version())
    }

    /// Judges what the files hold once they are quiet, where it is not what they held before, or where that is asked for.
    fn settle_and_judge(&mut self, since: Instant, mut is_asked: bool) {
        while !self.shared.is_stopped() {
            let settled = self.settle();
            // Saved again as it was: the change that was seen was the file being truncated for it.
            let is_same = settled.reading.agrees(&self.reading);
            if is_same && !is_asked || self.judge(settled, since) {
                return;
            }
            is_asked = true;
        }
    }

    /// Waits until the files hold the same as [`SETTLE`](super::watch::SETTLE) before, without an event in between.
    fn settle(&self) -> Settled {
        let started = Instant::now();
        let mut reading = self.reading.again();
        loop {
            let is_quiet = self.watch.is_quiet();
            let now = reading.again();
            let is_settled = is_quiet && now.agrees(&reading);
            let is_restless = !is_settled && started.elapsed() >= SETTLE_AT_MOST;
            reading = now;
            if is_settled || is_restless || self.shared.is_stopped() {
                return Settled {
                    reading,
                    is_restless,
                };
            }
        }
    }

    /// Decides about what the files hold; `false` where they have changed meanwhile, and nothing was decided.
    fn judge(&mut self, settled: Settled, since: Instant) -> bool {
        let began = Instant::now();
        match settled.reading.main_content() {
            None | Some(Content::Bytes(_)) => {}
            Some(Content::Missing | Content::Unreadable(_)) => {
                self.reading = settled.reading;
                self.say_missing();
                return true;
            }
        }
        let Some(guard) = self.shared.begin_check() else {
            return true;
        };
        let host = self.shared.host.clone().with_guard(guard.clone());
        let in_use = self.shared.current.load_full();
        let (loaded, reading) = host.load_file(&self.path);
        if !settled.is_restless && !reading.agrees(&settled.reading) {
            return false;
        }
        let passed = match loaded {
            Ok(recipe) if recipe.version() == in_use.version() => Ok(None),
            Ok(recipe) => self.check(recipe, &in_use, &host, &guard).map(Some),
            Err(error) => Err(error),
        };
        if self.shared.is_stopped() {
            return true;
        }
        let before = std::mem::replace(&mut self.reading, reading);
        self.watch_files();
        match (passed, self.reading.version().cloned()) {
            (Ok(None), _) => self.say_reverted(&in_use, before.version()),
            (Ok(Some(passed)), _) => return self.publish(&in_use, passed, began, since),
            (Err(error), Some(version)) => self.say_rejected(version, error),
            // It was there when it was quiet, and gone when it was read.
            (Err(_), None) => self.say_missing(),
        }
        true
    }

    fn check(
        &self,
        mut recipe: Recipe,
        in_use: &Loaded,
        host: &Host,
        guard: &Guard,
    ) -> Result<Passed, Diagnostics> {
        let options = &self.shared.options;
        has_hooks(&recipe, &options.requires)?;
        set(&mut recipe, &options.settings, true)?;
        let last = self.shared.observed.load_full();
        let failed_on = self.shared.failed_on.load_full();
        let dry_runs = DryRuns {
            candidate: &recipe,
            host,
            guard,
            last: last.as_deref(),
            failed_on: failed_on.as_deref(),
        };
        let warnings = catch_unwind(AssertUnwindSafe(|| dry_runs.run())).unwrap_or_else(|_| {
            Err(Diagnostic::error("advlab itself failed in a dry run")
                .with_help("this is a defect of advlab: please report it with the script")
                .into())
        })?;
        let known = in_use.recipe().warnings();
        let is_new =
            |warning: &&Diagnostic| !known.iter().any(|old| old.message == warning.message);
        let found: Vec<Diagnostic> = recipe.warnings().iter().filter(is_new).cloned().collect();
        Ok(Passed {
            recipe: recipe.on(&self.shared.host),
            warnings: found.into_iter().chain(warnings).collect(),
        })
    }

    /// Puts a version into use; `false` where the one that it was compared with has been taken out of use meanwhile.
    fn publish(
        &mut self,
        in_use: &Arc<Loaded>,
        passed: Passed,
        began: Instant,
        since: Instant,
    ) -> bool {
        let Passed { recipe, warnings } = passed;
        let version = recipe.version().clone();
        let times = (began.elapsed(), since.elapsed());
        if !self.shared.publish(in_use, recipe, times) {
            return false;
        }
        self.said = Said::Well;
        if !warnings.is_empty() {
            self.shared.tell(LiveEvent::Warned { version, warnings });
        }
        true
    }

    fn say_rejected(&mut self, version: Version, error: Diagnostics) {
        let said = Said::Rejected(version.clone());
        if self.said == said {
            return;
        }
        self.said = said;
        self.shared.tell(LiveEvent::Rejected {
            version,
            error,
            still_using: self.shared.current.load().version().clone(),
            at_step: false,
        });
    }

    fn say_missing(&mut self) {
        if self.said == Said::Missing {
            return;
        }
        self.said = Said::Missing;
        let why = match std::fs::File::open(&self.path) {
            Err(error) => error.to_string(),
            Ok(_) => "it is not a file".to_string(),
        };
        self.shared.tell(LiveEvent::Missing {
            path: self.path.clone(),
            why,
            still_using: self.shared.current.load().version().clone(),
        });
    }

    /// `before` is what the file held when it was last judged: another version, or nothing.
    fn say_reverted(&mut self, in_use: &Loaded, before: Option<&Version>) {
        self.said = Said::Well;
        if before != Some(in_use.version()) {
            self.shared.tell(LiveEvent::Reverted {
                version: in_use.version().clone(),
            });
        }
    }

    fn watch_files(&mut self) {
        if let Err(error) = self.watch.follow(self.reading.files()) {
            self.shared.say_polling(&error);
        }
    }
}
