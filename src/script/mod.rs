//! The Rhai host: recipes with their hooks, parameters and state, in a sandbox, with diagnostics.
//!
//! This is the only module that knows Rhai.

pub(crate) mod batch_type;
pub(crate) mod bind;
pub(crate) mod call;
pub(crate) mod compile;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod hooks;
pub(crate) mod host;
pub(crate) mod key;
pub(crate) mod library;
pub(crate) mod lint;
mod members;
mod memory;
mod numbers;
mod params;
mod recipe;
pub(crate) mod sandbox;
mod source_files;
pub(crate) mod state;
pub(crate) mod syntax;
pub(crate) mod value;

pub use crate::batch::Computed;
pub(crate) use batch_type::{OLD_FOR_LOGP, ScriptBatch};
pub use call::MapGroups;
pub use explain::help_for_foreign;
pub use hooks::{Loss, Outcome, Statistics, Summary};
pub use host::{Host, Limits};
pub use library::{BUILTINS, Builtin, RECIPE_KINDS};
pub use members::{MEMBERS, Member, Owner};
pub use params::{Parameter, Parameters, Setting};
pub use recipe::{Hook, Recipe, Version};
pub(crate) use sandbox::guarded;
pub use source_files::SourceFiles;
pub(crate) use source_files::folder_of;
pub use state::State;
pub use syntax::{Token, TokenKind, Unfinished, lex, unfinished};
