//! The session on piped lines: for scripts and tests.

use std::io::{self, BufRead, Write};

use super::session::Session;

/// Runs a session on lines, and writes its replies; errors are written too, and the session goes on. Gives the number of
/// inputs that were wrong.
///
/// # Errors
/// Where the lines cannot be read, or the replies not written.
pub fn piped(session: &mut Session, lines: impl BufRead, mut out: impl Write) -> io::Result<usize> {
    let (mut input, mut wrong) = (String::new(), 0);
    for line in lines.split(b'\n') {
        match String::from_utf8(line?) {
            Ok(line) => input.push_str(line.strip_suffix('\r').unwrap_or(&line)),
            Err(error) => {
                input.clear();
                wrong += 1;
                let byte = error.utf8_error().valid_up_to();
                writeln!(out, "Error: this line is not UTF-8: see its byte {byte}")?;
                continue;
            }
        }
        if session.is_incomplete(&input) {
            input.push('\n');
            continue;
        }
        wrong += usize::from(answer(session, &input, &mut out)?);
        input.clear();
        if session.is_over() {
            return Ok(wrong);
        }
    }
    // An input that the end of the lines cuts off is an error with its location, like any other.
    wrong += usize::from(answer(session, input.trim_end(), &mut out)?);
    Ok(wrong)
}

/// Writes the reply to an input, and says whether the input was wrong.
fn answer(session: &mut Session, input: &str, out: &mut impl Write) -> io::Result<bool> {
    if let Some(news) = session.news() {
        writeln!(out, "{news}")?;
    }
    let reply = session.submit(input);
    if !reply.text.is_empty() {
        writeln!(out, "{}", reply.text)?;
    }
    out.flush()?;
    Ok(reply.is_error)
}
