//! The standard streams: the colours and the width of the terminal that each may be, what is printed on them, and bars of
//! progress on standard error, where that is a terminal.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use super::apply::is_same;
use crate::wrong;
use advlab::batch::Unfinished;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::paint::{NARROWEST, Paint, WIDTH};
use anyhow::Result;
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Work faster than this needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prints a line to standard output; where that fails, the function ends with the error. Its reader may leave before the
/// end, as in `advlab doc | head`: an error like any other, no panic.
macro_rules! out {
    ($($text:tt)*) => {{
        use std::io::Write;
        writeln!(std::io::stdout(), $($text)*)?;
    }};
}

/// Prints a line to standard error, where nobody may be left to read it.
macro_rules! err {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub(super) use {err, out};

/// Whether what went wrong is that nobody reads standard output any more: they have seen enough.
pub(super) fn reader_left(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Colours and lines for standard output.
pub fn on_stdout() -> Paint {
    paint(&Term::stdout(), WIDTH)
}

/// Colours and lines for what programs read as well: whole lines where there is no terminal.
pub fn whole(stream: &Term) -> Paint {
    paint(stream, usize::MAX)
}

fn paint(stream: &Term, width_of_files: usize) -> Paint {
    let is_terminal = stream.is_term();
    let wants_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Paint {
        color: wants_color && is_terminal,
        width: if is_terminal {
            usize::from(stream.size().1).max(NARROWEST)
        } else {
            width_of_files
        },
    }
}

/// Prints problems on standard error.
pub fn tell(problems: &[Diagnostic]) {
    let paint = whole(&Term::stderr());
    for problem in problems {
        // Of an error that nobody reads the exit status tells.
        let _ = write!(io::stderr(), "{}", problem.render_within(paint));
    }
}

/// Says that the work was ended before its time.
pub fn interrupted() {
    if Term::stderr().is_term() {
        // Behind a bar of progress.
        let _ = writeln!(io::stderr());
    }
    let what = "interrupted; nothing is left half written";
    tell(&[Diagnostic::error(what)]);
}

/// Refuses an output that is the input, also by way of a link, unless it is `forced`.
pub fn spare_the_input(input: &Path, output: &Path, forced: bool) -> Result<(), Diagnostics> {
    if forced || !is_same(input, output) {
        return Ok(());
    }
    let message = format!("{} is the input itself", output.display());
    Err(wrong(
        message,
        "choose another name, or `--force` to replace it",
    ))
}

pub fn is_stdout(output: &Path) -> bool {
    output == Path::new("-")
}

/// Has a copy of the input written; to standard output, `-`, by way of a file: who reads the pipe gets all of it or
/// nothing.
pub fn written<R>(
    output: &Path,
    input: &Path,
    write: impl FnOnce(&Path) -> Result<R>,
) -> Result<R> {
    if !is_stdout(output) {
        return write(output);
    }
    // Its name says what kind of file it is.
    let file = Unfinished::passing(input.file_name().unwrap_or_default())?;
    let result = write(file.path())?;
    let mut out = io::stdout().lock();
    io::copy(&mut File::open(file.path())?, &mut out)?;
    // At the exit nobody would be told of what cannot be written.
    out.flush()?;
    Ok(result)
}

fn bar_style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

/// A bar over bytes that are read or written: it is told how many of how many.
pub fn bytes_bar(what: &'static str) -> impl Fn(u64, u64) + Sync {
    let bar = ProgressBar::hidden().with_message(what);
    // 80 columns have room for any number of bytes.
    let template = "{msg} [{bar:16}] {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
    bar.set_style(bar_style(template));
    move |done, total| {
        if bar.is_hidden() && bar.elapsed() > PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// A bar over the steps of a run, `done` of which were done before.
pub fn steps_bar(what: &'static str, steps: u64, done: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_prefix(what);
    let speed = |state: &ProgressState, out: &mut dyn fmt::Write| {
        // A speed that cannot be written is not shown.
        let _ = write!(out, "{:.1} steps/s", state.per_sec());
    };
    // 80 columns have room for a million steps.
    let style = bar_style("{prefix} [{bar:8}] {pos}/{len}  {per_sec}  {eta} left  {msg}");
    bar.set_style(style.with_key("per_sec", speed));
    // The steps done before say nothing of the speed.
    bar.set_position(done);
    bar.reset_eta();
    bar
}
