//! Colours where there is a terminal, plain text elsewhere, and numbers as people read them.

use std::io::IsTerminal;

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

fn paint(text: &str, code: &str, on: bool) -> String {
    if on {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_string()
    }
}

/// A count with a space between thousands: `451 234`.
pub fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A share of a whole: `44.6 %`.
pub fn share(part: usize, whole: usize) -> String {
    // Counts are far below 2^53.
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// A duration in the unit that fits.
pub fn time(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
