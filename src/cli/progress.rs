//! Progress bars on standard error, where that is a terminal: over the bytes of a file, and over the steps of a run.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Work faster than this needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

/// A bar over the bytes that are read: it is told how many of how many.
pub fn reading() -> impl Fn(u64, u64) + Sync {
    let bar = ProgressBar::hidden().with_message("reading");
    bar.set_style(style(
        "{msg} [{bar:30}] {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left",
    ));
    move |done, total| {
        if bar.is_hidden() && bar.elapsed() > PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// A bar over the steps of a run, `done` of which were done before.
pub fn steps(what: &'static str, steps: u64, done: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_prefix(what);
    let speed = |state: &ProgressState, out: &mut dyn fmt::Write| {
        // A speed that cannot be written is not shown.
        let _ = write!(out, "{:.1} steps/s", state.per_sec());
    };
    // 80 columns have room for a million steps.
    let style = style("{prefix} [{bar:8}] {pos}/{len}  {per_sec}  {eta} left  {msg}");
    bar.set_style(style.with_key("per_sec", speed));
    // The steps done before say nothing of the speed.
    bar.set_position(done);
    bar.reset_eta();
    bar
}
