//! Colours where there is a terminal, plain text elsewhere, and numbers as people read them.

use std::io::IsTerminal;

use advlab::paint::Paint;

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

/// What colours standard output.
pub fn paint_on_stdout() -> Paint {
    Paint {
        color: color_on_stdout(),
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
    Paint { color }.with(code, text)
}
