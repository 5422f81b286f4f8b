//! The one reader of script text: its tokens, its parts, and the kinds of its values.
//!
//! Explanations, lint, completion, colours and saved sessions all ask here. A script that compiles has the engine's tree
//! besides; one that is wrong, or is still being typed, has its tokens alone.

mod items;
mod kind;
mod token;

pub(crate) use items::{Item, ItemKind, Rewriting, is_pure, items, last_values, names};
pub(crate) use kind::{ValueKind, rows};
pub(crate) use token::code;
pub use token::{Token, TokenKind, Unfinished, lex, unfinished};
