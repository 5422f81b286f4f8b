//! A progress bar for what takes longer than a second.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work faster than this needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar over bytes on standard error that appears after a second; without a terminal it never does.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: Cell<bool>,
}

impl Progress {
    /// A bar that says what is going on.
    pub fn new(what: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let style = "{msg} [{bar:30}] {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_string());
        Progress {
            bar,
            started: Instant::now(),
            shown: Cell::new(false),
        }
    }

    /// Tells how many bytes of how many are done.
    pub fn at(&self, done: u64, total: u64) {
        if !self.shown.get() && self.started.elapsed() > PATIENCE {
            self.shown.set(true);
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.shown.get() {
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
