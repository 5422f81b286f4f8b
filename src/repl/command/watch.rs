//! `:watch`: a script that is shown again at each save, with what it changes on the session's batch.

use std::sync::{Arc, Mutex, PoisonError};

use super::super::session::Session;
use super::Answered;
use super::diff::difference;
use crate::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::counted;
use crate::live::{LiveEvent, LiveOptions, LiveRecipe, VersionChange};
use crate::paint::Paint;
use crate::script::{Builtin, Host, Recipe};

/// A script that is followed.
pub(in crate::repl) struct Watched {
    name: String,
    live: LiveRecipe,
    batch: Arc<Batch>,
    /// The version that the next one is compared with, with the session's settings.
    last: Recipe,
    paint: Paint,
}

pub(super) fn watch(session: &mut Session, file: &str) -> Answered {
    let file = file.trim_matches('"');
    if file.is_empty() {
        let none = || "nothing is watched: `:watch FILE` follows a script".to_string();
        return Ok(session.unwatch().unwrap_or_else(none));
    }
    if Builtin::find(file).is_some() {
        let help = format!(
            "`advlab new my.rhai --from {file}` makes a copy to edit, and that can be watched"
        );
        let error = Diagnostic::error(format!("`{file}` is built in, and never changes"));
        return Err(error.with_help(help).into());
    }
    let watched = Watched::start(session.host(), file, session.batch().clone(), session.paint)?;
    let version = watched.last.version();
    let line = format!("{file} {version} is watched: each save shows what it changes here");
    session.watch(watched);
    Ok(line)
}

pub(in crate::repl) fn lock(watched: &Mutex<Watched>) -> std::sync::MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    fn start(
        host: &Host,
        file: &str,
        batch: Arc<Batch>,
        paint: Paint,
    ) -> Result<Watched, Diagnostics> {
        let live = LiveRecipe::watch(host, file, LiveOptions::default())?;
        let last = live.newest().recipe().clone();
        let mut watched = Watched {
            name: file.to_string(),
            live,
            batch: batch.clone(),
            last,
            paint,
        };
        watched.set_batch(batch)?;
        Ok(watched)
    }

    /// The script's path.
    pub(in crate::repl) fn name(&self) -> &str {
        &self.name
    }

    /// Goes on with another batch: new versions are tried on it.
    pub(in crate::repl) fn set_batch(&mut self, batch: Arc<Batch>) -> Result<(), Diagnostics> {
        self.live.observe(&batch);
        self.batch = batch;
        Ok(())
    }

    /// The version in use, with the session's settings.
    pub(in crate::repl) fn recipe(&self) -> &Recipe {
        &self.last
    }

    /// Goes on with other settings.
    pub(in crate::repl) fn set(&mut self, recipe: &Recipe) {
        self.last = recipe.clone();
    }

    /// The news of the file since the last call.
    pub(in crate::repl) fn poll(&mut self) -> Option<String> {
        let events = self.live.events();
        let lines: Vec<String> = events.into_iter().map(|event| self.tell(event)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn tell(&mut self, event: LiveEvent) -> String {
        let name = self.paint.bold(&self.name);
        match event {
            LiveEvent::Published(published) => self.published(&published),
            LiveEvent::Rejected {
                error, still_using, ..
            } => {
                let rendered = error.render_within(self.paint);
                let rendered = rendered.trim_end();
                format!("{name}: {still_using} stays in use\n{rendered}")
            }
            LiveEvent::Missing {
                why, still_using, ..
            } => {
                format!("{name} is gone ({why}): {still_using} stays in use")
            }
            LiveEvent::Reverted { version } => {
                format!("{name} is {version} again, which is in use")
            }
            LiveEvent::Warned { warnings, .. } => {
                let rendered = warnings.iter().map(|one| one.render_within(self.paint));
                rendered.collect::<String>().trim_end().to_string()
            }
            LiveEvent::PollingOnly { why } => {
                format!("{name}: saves are found within a second ({why})")
            }
        }
    }

    fn published(&mut self, published: &VersionChange) -> String {
        // Versions that came and went since the last look are not told of one by one.
        let loaded = self
            .live
            .version(&published.to)
            .unwrap_or_else(|| self.live.newest());
        let mut next = loaded.recipe().clone();
        next.keep_settings(&self.last);
        let changed = match difference(&self.last, &next, &self.batch, self.paint) {
            Ok(text) => text,
            Err(error) => error.render_within(self.paint).trim_end().to_string(),
        };
        self.last = next;
        let more = counted(published.lines_added(), "line");
        let less = counted(published.lines_removed(), "line");
        let name = self.paint.bold(&self.name);
        format!("{name} saved: {more} more, {less} less\n{changed}")
    }
}
