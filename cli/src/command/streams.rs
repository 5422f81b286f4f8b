//! The standard streams: their colours and widths, printing, and progress bars on standard error.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::paint::{NARROWEST, Paint, WIDTH, printed};
use advlab::diagnostic::Diagnostic;
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// The time after which unfinished reading or writing gets a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// The largest number of messages and updates of the bar that may wait to be printed; any further one is dropped.
const WAITING: usize = 1 << 12;

/// Prints lines to standard output; if that fails, the calling function returns the error. If the reader stops early, as in
/// `advlab doc | head`, the result is an error, and not a panic as with `println!`. Text for people is printed with this macro,
/// `err`, [`lines`], [`tell`] or [`Printer::lines`]. All five escape the text, because names from files could contain terminal
/// control codes.
macro_rules! out {
    ($($text:tt)*) => {
        $crate::command::streams::data(&$crate::paint::printed(&format_args!($($text)*).to_string()))?
    };
}

/// Prints a line to standard error. An error is ignored, because there is no other place to report it.
macro_rules! err {
    ($($text:tt)*) => {{
        use std::io::Write;
        let lines = crate::paint::printed(&format_args!($($text)*).to_string());
        let _ = writeln!(std::io::stderr(), "{lines}");
    }};
}

pub(super) use {err, out};

/// Prints lines to a stream, and escapes them as `out` and `err` do.
pub fn lines(stream: &Term, lines: &str) -> io::Result<()> {
    stream.write_line(&printed(lines))
}

/// Prints text as it is: text for programs, or text that is escaped already.
pub fn data(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Returns the colours and the line width for standard output.
pub fn on_stdout() -> Paint {
    paint(&Term::stdout(), WIDTH)
}

/// Returns the colours and the line width for output that programs may read too: lines are wrapped only on a terminal.
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

/// Prints diagnostics to standard error.
pub fn tell(problems: &[Diagnostic]) {
    let paint = whole(&Term::stderr());
    for problem in problems {
        // The error is ignored, because there is no other place to report it.
        let _ = write!(io::stderr(), "{}", problem.render_within(paint));
    }
}

/// Prints notes to standard error.
pub fn note(notes: &[String]) {
    let notes = notes.iter().map(Diagnostic::note);
    tell(&notes.collect::<Vec<Diagnostic>>());
}

/// Reports that the work was interrupted.
pub fn interrupted() {
    if Term::stderr().is_term() {
        // A newline is written, because a progress bar may be on the current line.
        let _ = writeln!(io::stderr());
    }
    let what = "interrupted; unfinished files are removed";
    tell(&[Diagnostic::error(what)]);
}

fn bar_style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

/// Returns a function that shows a progress bar over bytes. Its arguments are the number of finished bytes and the total number.
pub fn bytes_bar(what: &'static str) -> impl Fn(u64, u64) + Sync {
    let bar = ProgressBar::hidden().with_message(what);
    // With this template, the bar fits into 80 columns for any number of bytes.
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

/// Returns a progress bar over the steps of one or more runs, of which `done` are complete.
pub fn steps_bar(what: &'static str, steps: u64, done: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_prefix(what);
    let speed = |state: &ProgressState, out: &mut dyn fmt::Write| {
        // The error is ignored, because the bar formats into a string, which cannot fail.
        let _ = write!(out, "{:.1} steps/s", state.per_sec());
    };
    // With the message of an MLP's step, the bar fits into 80 columns for up to a million steps.
    let style = bar_style("{prefix} [{bar:8}] {pos}/{len}  {per_sec}  {eta} left  {msg}");
    bar.set_style(style.with_key("per_sec", speed));
    // The speed is measured from here, because the earlier steps were done by another process.
    bar.set_position(done);
    bar.reset_eta();
    bar
}

/// A job in the queue of the printing thread: it prints a message or updates the bar.
type PrintJob = Box<dyn FnOnce(&ProgressBar) + Send>;

/// A thread that prints the reports of a run, so that a step never waits for a paused terminal or a slow reader.
pub struct Printer {
    queue: SyncSender<PrintJob>,
    thread: JoinHandle<()>,
    /// The number of messages that were dropped since the last message that was queued.
    left_out: Cell<usize>,
}

impl Printer {
    pub fn new(bar: ProgressBar) -> Printer {
        let (queue, jobs) = sync_channel::<PrintJob>(WAITING);
        let print = move || {
            jobs.iter().for_each(|job| job(&bar));
            bar.finish_and_clear();
        };
        Printer {
            queue,
            thread: std::thread::spawn(print),
            left_out: Cell::default(),
        }
    }

    /// Prints lines above the bar. The lines are dropped if too many messages wait already; the next printed message says how
    /// many messages were dropped.
    pub fn lines(&self, lines: String) {
        let lines = printed(&format!("{}{lines}", self.note()));
        let print = move |bar: &ProgressBar| {
            // The error is ignored, because the run continues even if its output is closed.
            bar.suspend(|| drop(data(&lines)));
        };
        match self.queue.try_send(Box::new(print)) {
            Ok(()) => self.left_out.set(0),
            Err(_) => self.left_out.set(self.left_out.get() + 1),
        }
    }

    /// Sets the bar's position and message, unless the queue is full.
    pub fn progress(&self, position: u64, message: String) {
        let set = move |bar: &ProgressBar| {
            bar.set_message(message);
            bar.set_position(position);
        };
        let _ = self.queue.try_send(Box::new(set));
    }

    /// Waits until everything is printed, and removes the bar.
    pub fn end(self) {
        let note = self.note();
        drop(self.queue);
        let _ = self.thread.join();
        let _ = write!(io::stdout(), "{note}");
    }

    /// Returns a line with the number of dropped messages, or an empty string if no message was dropped.
    fn note(&self) -> String {
        match self.left_out.get() {
            0 => String::new(),
            n => format!(
                "[messages dropped: {n}, because they came faster than they could be printed]\n"
            ),
        }
    }
}
