//! The session at a terminal.

use std::io;

use super::piped;
use super::session::Session;

/// Runs a session at the terminal.
///
/// # Errors
/// Where the terminal fails.
pub fn terminal(mut session: Session) -> io::Result<()> {
    piped(&mut session, io::stdin().lock(), io::stdout().lock())
}
