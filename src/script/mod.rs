//! Hosts Rhai: compiles recipes, runs their hooks in a sandbox, keeps their state, and explains their errors.
//!
//! Only this module and `session` use Rhai.

pub(crate) mod bindings;
pub(crate) mod call;
pub(crate) mod compile;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod functions;
mod hook;
pub(crate) mod hooks;
mod host;
pub(crate) mod imports;
mod kernels;
mod library;
pub(crate) mod limits;
mod lint;
mod load;
pub(crate) mod misread;
mod outcome;
mod params;
mod recipe;
mod reference;
mod remembered;
pub(crate) mod sandbox;
mod source_files;
pub(crate) mod state;
pub(crate) mod syntax;
pub(crate) mod value;
mod version;

pub use crate::batch::Computed;
pub(crate) use bindings::batch::{OLD_FOR_LOGP, ScriptBatch};
pub use explain::habits::help_for_foreign;
pub use hook::Hook;
pub use host::Host;
pub(crate) use kernels::{HookInputs, Kernel};
pub use kernels::{Mode, Native};
pub use library::{BUILTINS, Builtin, RECIPE_KINDS};
pub use limits::Limits;
pub use outcome::{Loss, LossAtStart, MapGroupsNote, Outcome, Reports, Statistics, Summary};
pub use params::{ParamSpec, ParamValue, Params};
pub use recipe::Recipe;
pub use reference::{MEMBERS, Member, Owner};
pub(crate) use sandbox::guarded;
pub use source_files::SourceFiles;
pub(crate) use source_files::folder_of;
pub use state::State;
pub use syntax::{Token, TokenKind, Unfinished, lex, unfinished};
pub use version::Version;
