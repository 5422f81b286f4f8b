//! Progress bars: over the bytes of what takes longer than a second, and over the steps of a run.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Work faster than this needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar over bytes on standard error that appears after a second; without a terminal it never does.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: AtomicBool,
}

impl Progress {
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
            shown: AtomicBool::new(false),
        }
    }

    pub fn at(&self, done: u64, total: u64) {
        let is_shown = self.started.elapsed() > PATIENCE;
        if is_shown && !self.shown.swap(true, Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if is_shown {
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

/// A bar over the steps of a run on standard error; without a terminal there is none.
pub struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// A bar named `what`; `done` steps of all were done before.
    pub fn new(what: &str, steps: u64, done: u64) -> Steps {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        // 80 columns have room for a million steps.
        let style = "{prefix} [{bar:8}] {pos}/{len}  {per_sec}  {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            let speed = |state: &ProgressState, out: &mut dyn fmt::Write| {
                // A speed that cannot be written is not shown.
                let _ = write!(out, "{:.1} steps/s", state.per_sec());
            };
            bar.set_style(style.with_key("per_sec", speed).progress_chars("=> "));
        }
        bar.set_prefix(what.to_string());
        // The steps done before say nothing of the speed.
        bar.set_position(done);
        bar.reset_eta();
        Steps { bar }
    }

    /// Tells how many steps are done, with a few words on the last one.
    pub fn at(&self, done: u64, what: String) {
        self.bar.set_message(what);
        self.bar.set_position(done);
    }

    /// Prints lines on standard output, above the bar. A run goes on where nobody reads them any more.
    pub fn say(&self, lines: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stdout(), "{}", lines.trim_end());
        });
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
