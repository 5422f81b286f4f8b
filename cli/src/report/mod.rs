//! Reports on designs, as text, figures and JSON: the same for commands, prompt and page.

pub mod compare;
pub mod draw;
pub mod profile;
pub mod study;
pub mod view;
