//! The Rhai host: recipes with their hooks, parameters and state, in a sandbox, with diagnostics.
//!
//! This is the only module that knows Rhai.

mod batch_type;
mod bind;
mod builtin;
mod call;
mod check;
mod compile;
mod engine;
mod error;
mod explain;
mod hook;
mod hooks;
mod host;
mod key;
mod library;
mod lint;
mod load;
mod members;
mod memory;
mod numbers;
mod params;
mod reading;
mod recipe;
mod sandbox;
mod session;
mod state;
mod state_json;
mod summary;
mod syntax;
mod test_batch;

pub use crate::batch::Computed;
pub use batch_type::{ByGroup, MapGroups};
pub(crate) use batch_type::{OLD_FOR_LOGP, ScriptBatch};
pub use builtin::{BUILTINS, Builtin, Kind};
pub(crate) use check::DEGENERATE;
pub use check::{CheckResult, Finding, check, groups_are_independent, needed, needs};
pub use check::{Rollouts, flipped_loss};
pub use explain::help_for_foreign;
pub use hook::{Hook, Reads, Version};
pub(crate) use hooks::Computation;
pub use hooks::{Loss, Outcome};
pub use host::{Host, Limits};
pub use members::{MEMBERS, Member, Owner};
pub use params::{Parameter, Parameters, Setting};
pub use reading::Reading;
pub use recipe::Recipe;
pub(crate) use sandbox::guarded;
pub use session::{Answer, Columns, EvaluatedInput, InputTimes, Name, Pairs, Session};
pub use session::{Defines, is_typed};
pub use state::State;
pub use summary::{Spread, Summary};
pub use syntax::{Token, TokenKind, Unfinished, lex, unfinished};
pub use test_batch::TEST_BATCH;
