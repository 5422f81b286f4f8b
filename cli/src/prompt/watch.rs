//! `:watch`: shows at each save of a script what it changes on the session's batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::command::Arguments;
use super::diff::difference;
use super::{Answered, Session};
use crate::wrong;
use advlab::Batch;
use advlab::live::{LiveEvent, LiveOptions, LiveRecipe};
use advlab::paint::Paint;
use advlab::script::{Builtin, Recipe};

pub(super) struct Watched {
    live: LiveRecipe,
    batch: Arc<Batch>,
    /// The newest version, with the session's settings: the next one is compared with it.
    pub(super) last: Recipe,
    paint: Paint,
}

/// The watched script, if any, shared with the thread that reports its saves.
pub(super) type Watching = Arc<Mutex<Option<Watched>>>;

pub(super) fn lock(watching: &Watching) -> MutexGuard<'_, Option<Watched>> {
    watching.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn watch(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    let file = arguments.text.trim_matches('"');
    if file.is_empty() {
        let ended = lock(&session.watched).take();
        return Ok(match ended {
            Some(ended) => format!("{} is not watched any more", ended.last.name()),
            None => "nothing is watched: `:watch FILE` follows a script".to_string(),
        });
    }
    if Builtin::find(file).is_some() {
        let help = format!("`advlab new my.rhai --from {file}` makes a copy to edit and watch");
        return Err(wrong(
            format!("`{file}` is built in, and never changes"),
            help,
        ));
    }
    let live = LiveRecipe::watch(&session.host, file, LiveOptions::default())?;
    live.observe(&session.data.batch);
    let last = live.newest().recipe().clone();
    let version = last.version();
    let line = format!("{file} {version} is watched: each save shows what it changes here");
    session.use_recipe(last.clone());
    *lock(&session.watched) = Some(Watched {
        live,
        batch: session.data.batch.clone(),
        last,
        paint: session.paint,
    });
    Ok(line)
}

impl Watched {
    /// Replaces the batch on which new versions are tried.
    pub(super) fn set_batch(&mut self, batch: Arc<Batch>) {
        self.live.observe(&batch);
        self.batch = batch;
    }

    /// What happened to the file since the last call.
    pub(super) fn poll(&mut self) -> Option<String> {
        let events = self.live.events();
        let lines: Vec<String> = events.iter().map(|event| self.describe(event)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn describe(&mut self, event: &LiveEvent) -> String {
        let name = self.paint.bold(self.last.name());
        let changed = match event {
            LiveEvent::Rejected {
                error, still_using, ..
            } => {
                let error = error.render_within(self.paint);
                return format!("{name}: {still_using} stays in use\n{}", error.trim_end());
            }
            LiveEvent::Published(change) => change,
            event => return format!("{name}: {event}"),
        };
        let mut next = self.live.newest().recipe().clone();
        next.keep_settings(&self.last);
        let difference = match difference(&self.last, &next, &self.batch, self.paint) {
            Ok(text) => text,
            Err(error) => error.render_within(self.paint).trim_end().to_string(),
        };
        self.last = next;
        format!("{name} saved: {changed}\n{difference}")
    }
}
