//! Colours and the terminal's width where there is one, plain text elsewhere, and numbers as people read them.

use std::io::IsTerminal;

pub use advlab::figures::{count, time};
use advlab::paint::{Paint, WIDTH};
use console::Term;

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether standard error takes colours.
pub fn color_on_stderr() -> bool {
    wanted() && std::io::stderr().is_terminal()
}

/// Whether standard output takes colours.
pub fn color_on_stdout() -> bool {
    wanted() && std::io::stdout().is_terminal()
}

/// The columns of standard output or standard error, `Term::stdout()` or `Term::stderr()`; 80 where that is no terminal.
pub fn width_of(terminal: &Term) -> usize {
    let size = terminal.is_term().then(|| terminal.size_checked());
    size.flatten()
        .map_or(WIDTH, |(_, columns)| usize::from(columns))
}

/// Colours and lines for standard output.
pub fn paint_on_stdout() -> Paint {
    Paint {
        color: color_on_stdout(),
        width: width_of(&Term::stdout()),
    }
}

/// A text for standard error in red.
pub fn red(text: &str) -> String {
    paint(text, "31;1", color_on_stderr())
}

/// A text for standard output in bold.
pub fn bold(text: &str) -> String {
    paint(text, "1", color_on_stdout())
}

/// A text for standard output that stands back.
pub fn dim(text: &str) -> String {
    paint(text, "2", color_on_stdout())
}

/// A text for standard output in the colour of success, of failure, or of something to know.
pub fn verdict(text: &str, color: &str) -> String {
    paint(text, color, color_on_stdout())
}

fn paint(text: &str, code: &str, color: bool) -> String {
    let paint = Paint {
        color,
        ..Paint::PLAIN
    };
    paint.with(code, text)
}
