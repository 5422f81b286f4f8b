//! `:watch`: shows at each save of a script what it changes on the session's batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::session::Session;
use super::diff::difference;
use super::{Answered, wrong};
use advlab::Batch;
use advlab::figures::counted;
use advlab::live::{LiveEvent, LiveOptions, LiveRecipe, VersionChange};
use advlab::paint::Paint;
use advlab::script::{Builtin, Recipe};

pub(in crate::prompt) struct Watched {
    pub(in crate::prompt) name: String,
    live: LiveRecipe,
    batch: Arc<Batch>,
    /// The version in use, with the session's settings, with which the next one is compared.
    pub(in crate::prompt) last: Recipe,
    paint: Paint,
}

/// The watched script, if any, shared with the thread that reports its saves.
pub(in crate::prompt) type Watching = Arc<Mutex<Option<Watched>>>;

pub(in crate::prompt) fn lock(watching: &Watching) -> MutexGuard<'_, Option<Watched>> {
    watching.lock().unwrap_or_else(PoisonError::into_inner)
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
        let message = format!("`{file}` is built in, and never changes");
        return Err(wrong(message, help));
    }
    let live = LiveRecipe::watch(&session.host, file, LiveOptions::default())?;
    live.observe(&session.data.batch);
    let last = live.newest().recipe().clone();
    let line = format!(
        "{file} {} is watched: each save shows what it changes here",
        last.version()
    );
    session.watch(Watched {
        name: file.to_string(),
        live,
        batch: session.data.batch.clone(),
        last,
        paint: session.paint,
    });
    Ok(line)
}

impl Watched {
    /// Replaces the batch on which new versions are tried.
    pub(in crate::prompt) fn set_batch(&mut self, batch: Arc<Batch>) {
        self.live.observe(&batch);
        self.batch = batch;
    }

    /// What happened to the file since the last call.
    pub(in crate::prompt) fn poll(&mut self) -> Option<String> {
        let events = self.live.events();
        let lines: Vec<String> = events.iter().map(|event| self.tell(event)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn tell(&mut self, event: &LiveEvent) -> String {
        let name = self.paint.bold(&self.name);
        match event {
            LiveEvent::Published(published) => self.published(published),
            LiveEvent::Rejected {
                error, still_using, ..
            } => {
                let rendered = error.render_within(self.paint);
                format!(
                    "{name}: {still_using} stays in use\n{}",
                    rendered.trim_end()
                )
            }
            LiveEvent::Warned { warnings, .. } => {
                let rendered = warnings.iter().map(|one| one.render_within(self.paint));
                rendered.collect::<String>().trim_end().to_string()
            }
            event => event.to_string(),
        }
    }

    fn published(&mut self, published: &VersionChange) -> String {
        // Versions that came and went since the last look are not told of one by one.
        let mut next = self.live.newest().recipe().clone();
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
