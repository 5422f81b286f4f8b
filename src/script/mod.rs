//! The Rhai host: recipes with their hooks, parameters and state, in a sandbox, with diagnostics.
//!
//! This is the only module that knows Rhai.

pub(crate) mod batch_type;
pub(crate) mod bind;
pub(crate) mod bounds;
pub(crate) mod builtin;
pub(crate) mod call;
pub(crate) mod compile;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod hook;
pub(crate) mod hooks;
pub(crate) mod host;
pub(crate) mod key;
pub(crate) mod library;
pub(crate) mod lint;
pub(crate) mod load;
mod members;
mod memory;
mod numbers;
mod params;
mod recipe;
pub(crate) mod sandbox;
mod source_files;
pub(crate) mod state;
mod summary;
pub(crate) mod syntax;
mod test_batch;
pub(crate) mod value;

pub use crate::batch::Computed;
pub(crate) use batch_type::{OLD_FOR_LOGP, ScriptBatch};
pub use builtin::{BUILTINS, Builtin, BuiltinKind};
pub use call::MapGroups;
pub use explain::help_for_foreign;
pub use hook::{Hook, Version};
pub use hooks::{Loss, Outcome};
pub use host::{Host, Limits};
pub use members::{MEMBERS, Member, Owner};
pub use params::{Parameter, Parameters, Setting};
pub use recipe::Recipe;
pub(crate) use sandbox::guarded;
pub use source_files::SourceFiles;
pub use state::State;
pub use summary::{Statistics, Summary};
pub use syntax::{Token, TokenKind, Unfinished, lex, unfinished};
pub use test_batch::TEST_BATCH;
