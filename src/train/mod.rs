//! An embedded RLVR run: tasks that give prompts and verify responses, policies that learn, and the loop between them.

mod config;
mod error;
mod estimate;
mod event;
mod folder;
pub mod policy;
pub mod random;
mod replay;
mod rollout;
mod row;
mod run;
pub mod task;
mod trainer;
mod update;

pub use config::{Config, ConfigError};
pub use error::TrainError;
pub use estimate::PassAt;
pub use event::{Event, Observer};
pub use replay::{Agreement, Difference, Replay};
pub use row::{Evaluation, Milliseconds, Row};
pub use run::{Ending, Run};
pub use trainer::{Snapshot, Trainer};
