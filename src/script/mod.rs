//! The Rhai host: recipes with their hooks, parameters and state, in a sandbox, with diagnostics.
//!
//! This is the only module that knows Rhai.

mod arrays;
mod batch_type;
mod bind;
mod call;
mod check;
mod compile;
mod engine;
mod error;
mod explain;
mod held;
mod hooks;
mod host;
mod key;
mod library;
mod lint;
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
pub use crate::tensor::ByGroup;
pub use batch_type::MapGroups;
pub(crate) use batch_type::OLD_FOR_LOGP;
pub use check::{CheckResult, Finding, check, groups_are_independent, needed, needs};
pub(crate) use check::{DEGENERATE, Rollouts, flipped_loss};
pub(crate) use explain::help_for_foreign;
pub(crate) use hooks::Placed;
pub use hooks::{Loss, Outcome};
pub use host::{Host, Limits};
pub use library::{BUILTINS, Builtin, Kind};
pub use members::{MEMBERS, Member, Owner};
pub use params::{Parameter, Parameters, Setting};
pub(crate) use reading::Reading;
pub use recipe::{Hook, Reads, Recipe, Version};
pub(crate) use sandbox::guarded;
pub use session::{Answer, Columns, EvaluatedInput, InputTimes, Name, Pairs, Session};
pub(crate) use session::{Defines, is_typed};
pub use state::State;
pub use summary::{Spread, Summary};
pub(crate) use syntax::{Token, TokenKind, Unfinished, lex, unfinished};
pub use test_batch::TEST_BATCH;
