//! A run in small: a script in a folder of its own, a live recipe, and a batch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use advlab::diagnostic::Diagnostics;
use advlab::live::{LiveEvent, LiveOptions, Published, VersionChange};
use advlab::{Batch, Host, LiveRecipe};
use tempfile::TempDir;

/// Ends what hangs: far longer than anything here takes, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Long enough for a save to be seen, settled and judged.
pub const A_WHILE: Duration = Duration::from_millis(350);

pub struct Lab {
    pub folder: TempDir,
    pub live: LiveRecipe,
}

/// A valid script: each factor is another version.
pub fn times(factor: u32) -> String {
    format!("fn advantage(batch, p) {{\n    batch.reward * {factor}.0\n}}\n")
}

/// Two groups of two, each with a right and a wrong response.
pub fn batch() -> Batch {
    batch_with(&[1.0, 0.0, 0.0, 1.0])
}

/// Groups of two with these rewards.
pub fn batch_with(rewards: &[f64]) -> Batch {
    let rows = rewards.iter().map(|_| [-0.5, -0.25]);
    let batch = Batch::builder()
        .groups((0..rewards.len()).map(|response| response / 2))
        .response("reward", rewards)
        .ragged("old_logp", rows.clone())
        .ragged("logp", rows);
    batch.build().unwrap()
}

/// A run that sets a parameter.
pub fn set(name: &str, value: &str) -> LiveOptions {
    LiveOptions {
        settings: vec![(name.into(), value.into())],
        ..LiveOptions::default()
    }
}

/// Checks have so many milliseconds.
pub fn within(milliseconds: u64) -> LiveOptions {
    LiveOptions {
        deadline: Some(Duration::from_millis(milliseconds)),
        ..LiveOptions::default()
    }
}

impl Lab {
    pub fn new(script: &str) -> Lab {
        Lab::with(script, LiveOptions::default())
    }

    pub fn with(script: &str, options: LiveOptions) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recipe.rhai");
        std::fs::write(&path, script).unwrap();
        Lab::at(folder, &path, options).unwrap()
    }

    pub fn at(folder: TempDir, path: &Path, options: LiveOptions) -> Result<Lab, Diagnostics> {
        // A save is not rejected because the machine is busy.
        let deadline = options.deadline.or(Some(PATIENCE));
        let options = LiveOptions {
            deadline,
            ..options
        };
        let live = LiveRecipe::watch(&Host::new(), path.to_str().unwrap(), options)?;
        Ok(Lab { folder, live })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn save(&self, text: &str) {
        self.write("recipe.rhai", text);
    }

    pub fn text(&self) -> String {
        self.live.newest().recipe().text().to_string()
    }

    /// All events up to the first one that `is_last` picks.
    pub fn until(&self, is_last: impl Fn(&LiveEvent) -> bool) -> Vec<LiveEvent> {
        let started = Instant::now();
        let mut all = Vec::new();
        loop {
            for event in self.live.events() {
                all.push(event);
                if is_last(&all[all.len() - 1]) {
                    return all;
                }
            }
            assert!(started.elapsed() < PATIENCE, "only these came: {all:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// All events up to the publication of this text.
    pub fn until_text(&self, text: &str) -> Vec<LiveEvent> {
        self.until(|event| match event {
            LiveEvent::Published(published) => {
                let newest = self.live.newest();
                *newest.version() == published.to && newest.recipe().text() == text
            }
            _ => false,
        })
    }

    /// The next event.
    pub fn next(&self) -> LiveEvent {
        self.until(|_| true).remove(0)
    }

    /// The next event, which must be a publication.
    pub fn published(&self) -> VersionChange {
        match self.next() {
            LiveEvent::Published(published) => published,
            other => panic!("not a publication: {other:#?}"),
        }
    }

    /// The next event, which must be a rejection, at a step or before: its first message, with the place.
    fn refused(&self, is_step: bool) -> (String, String) {
        match self.next() {
            LiveEvent::Rejected {
                error,
                still_using,
                at_step,
                ..
            } if at_step == is_step => {
                let message = format!("{} {}", error[0], error[0].notes.join(" "));
                (message, still_using.to_string())
            }
            other => panic!("not such a rejection: {other:#?}"),
        }
    }

    pub fn rejected(&self) -> String {
        self.refused(false).0
    }

    /// The next event says that a version failed at a step: why, and what it went back to.
    pub fn failed_at_step(&self) -> (String, String) {
        self.refused(true)
    }

    /// Saves a version that must be published.
    pub fn publish(&self, text: &str) -> VersionChange {
        self.save(text);
        self.published()
    }

    /// Saves a version that must be rejected, for a reason with these words.
    pub fn reject(&self, text: &str, why: &str) {
        self.save(text);
        let message = self.rejected();
        assert!(message.contains(why), "{message}");
    }

    /// Deletes the script: the next event says that it is gone.
    pub fn delete(&self) {
        std::fs::remove_file(self.path("recipe.rhai")).unwrap();
        self.missing();
    }

    pub fn missing(&self) {
        let event = self.next();
        assert!(matches!(event, LiveEvent::Missing { .. }), "{event:#?}");
    }

    /// Saves the version in use again: the next event says so.
    pub fn revert(&self, text: &str) {
        self.save(text);
        let event = self.next();
        assert!(matches!(event, LiveEvent::Reverted { .. }), "{event:#?}");
    }

    /// Writes a version beside the script, and renames it over that.
    pub fn replace(&self, text: &str) {
        self.write(".recipe.rhai.tmp", text);
        std::fs::rename(self.path(".recipe.rhai.tmp"), self.path("recipe.rhai")).unwrap();
    }

    /// The warnings of the next version, which must be published.
    pub fn warned(&self, text: &str) -> Vec<String> {
        self.save(text);
        match &self.until(|event| matches!(event, LiveEvent::Warned { .. }))[..] {
            [LiveEvent::Published(_), LiveEvent::Warned { warnings, .. }] => {
                warnings.iter().map(|one| one.message.clone()).collect()
            }
            other => panic!("{other:#?}"),
        }
    }

    /// Nothing happens for a while.
    pub fn nothing(&self) {
        std::thread::sleep(A_WHILE);
        let events = self.live.events();
        assert!(events.is_empty(), "{events:#?}");
    }

    /// A step of a run, on this batch.
    ///
    /// Its events are left to be asked for.
    pub fn step_on(&mut self, batch: &Batch) -> Arc<Published> {
        let _ = self.live.begin_step();
        let attempt = (self.live).attempt(batch, |recipe, state| recipe.advantage(batch, state));
        attempt.result.expect("a version that works");
        self.live.in_use().clone()
    }

    pub fn step(&mut self) -> Arc<Published> {
        self.step_on(&batch())
    }
}
