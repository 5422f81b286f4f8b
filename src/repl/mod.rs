//! The prompt: a session that turns text into answers, with no terminal in it, and the terminal around it.

mod builtin;
mod command;
mod complete;
mod data;
mod figure;
mod piped;
mod session;
mod show;
mod terminal;

pub use builtin::builtin;
pub use command::{Curve, Point};
pub use complete::Completion;
pub use piped::piped;
pub use session::{Reply, Session};
pub use terminal::terminal;

pub use crate::paint::Paint;
