//! Watches a script, and shows the effect of each save on the session's batch.

use std::sync::{Arc, Mutex};

use crate::Result;
use crate::paint::Paint;
use crate::report::study::diff;
use advlab::live::{LiveEvent, LiveOptions};
use advlab::{Batch, Diagnostics, Host, LiveRecipe, Recipe};

pub(super) struct Watched {
    live: LiveRecipe,
    batch: Arc<Batch>,
    /// The newest version, with the session's settings; the next version is compared with this version.
    pub(super) last: Recipe,
    paint: Paint,
}

/// The watched script, if any, shared with the thread that reports its saves.
pub(super) type Watching = Arc<Mutex<Option<Watched>>>;

impl Watched {
    pub(super) fn new(
        host: &Host,
        file: &str,
        batch: &Arc<Batch>,
        paint: Paint,
    ) -> Result<Watched> {
        let live = LiveRecipe::watch(host, file, LiveOptions::default())?;
        live.observe(batch);
        Ok(Watched {
            last: live.newest().recipe().clone(),
            live,
            batch: batch.clone(),
            paint,
        })
    }

    /// Replaces the batch on which new versions are tried.
    pub(super) fn set_batch(&mut self, batch: Arc<Batch>) {
        self.live.observe(&batch);
        self.batch = batch;
    }

    /// Describes the events of the watched file since the last call. Returns `None` if there were no events.
    pub(super) fn poll(&mut self) -> Option<String> {
        let events = self.live.events();
        let lines: Vec<String> = events.iter().map(|event| self.describe(event)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn describe(&mut self, event: &LiveEvent) -> String {
        let (name, paint) = (self.paint.bold(self.last.name()), self.paint);
        let rendered = |error: &Diagnostics| error.render_within(paint).trim_end().to_string();
        match event {
            LiveEvent::Rejected {
                error, still_using, ..
            } => format!("{name}: {still_using} stays in use\n{}", rendered(error)),
            LiveEvent::Published(change) => {
                // The version is put in use, so that the next save is compared with this version. A failed `migrate` is ignored
                // here, because it is reported as an event.
                let _ = self.live.begin_step();
                self.live.observe(&self.batch);
                let mut next = self.live.newest().recipe().clone();
                next.keep_settings(&self.last);
                let difference = diff::report(&self.last, &next, &self.batch, paint);
                let difference = difference.map_or_else(|error| rendered(&error), |one| one.text);
                self.last = next;
                format!("{name} saved: {change}\n{difference}")
            }
            event => format!("{name}: {event}"),
        }
    }
}
