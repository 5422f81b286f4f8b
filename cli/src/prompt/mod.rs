//! The prompt: a session that turns text into answers, with no terminal in it, and the terminal around it.

mod command;
mod complete;
mod data;
mod recipe;
mod session;
mod show;
mod terminal;

pub use data::builtin;
pub use session::{Reply, Session};
pub use terminal::{piped, terminal};

pub use advlab::paint::Paint;
