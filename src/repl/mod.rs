//! The prompt: a session that turns text into answers, with no terminal in it, and the terminal around it.

mod paint;
mod piped;
mod session;
mod show;

pub use paint::Paint;
pub use piped::piped;
pub use session::{Outcome, Session};
