//! The session on piped lines: for scripts and tests.

use std::io::{self, BufRead, Write};

use super::session::Session;

/// Runs a session on lines, and writes what it answers; errors are written too, and the session goes on.
///
/// # Errors
/// Where the lines cannot be read, or the answers not written.
pub fn piped(session: &mut Session, lines: impl BufRead, mut out: impl Write) -> io::Result<()> {
    let mut open = String::new();
    for line in lines.split(b'\n') {
        match String::from_utf8(line?) {
            Ok(line) => open.push_str(line.strip_suffix('\r').unwrap_or(&line)),
            Err(error) => {
                open.clear();
                let place = error.utf8_error().valid_up_to();
                writeln!(
                    out,
                    "Error: this line is not text: its byte {place} is not UTF-8"
                )?;
                continue;
            }
        }
        if session.is_incomplete(&open) {
            open.push('\n');
            continue;
        }
        answer(session, &std::mem::take(&mut open), &mut out)?;
        if session.is_over() {
            return Ok(());
        }
    }
    // What the end of the lines cuts off is an error with its place, like any other.
    answer(session, open.trim_end(), &mut out)
}

fn answer(session: &mut Session, input: &str, out: &mut impl Write) -> io::Result<()> {
    if let Some(news) = session.news() {
        writeln!(out, "{news}")?;
    }
    let outcome = session.submit(input);
    if !outcome.text.is_empty() {
        writeln!(out, "{}", outcome.text)?;
    }
    out.flush()
}
