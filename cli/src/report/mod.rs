//! What a design does, as text, figures and JSON: for commands, prompt and page alike.

pub mod compare;
pub mod draw;
pub mod profile;
pub mod study;
pub mod view;
