//! RLVR training on a small scale: tasks that give prompts and verify responses, policies that learn, and the training loop.
//!
//! - A [`task`] draws prompts and verifies responses; a [`policy`] samples and scores responses and follows a gradient.
//! - [`Run`] is the training loop with its folder. Each step samples groups of responses, verifies them, builds the batch,
//!   computes the advantage with the newest version of the recipe that succeeds, and updates the policy in epochs of minibatches;
//!   some steps end with an evaluation. A run can be stopped at any moment and resumed with the same numbers; [`Replay`] repeats it.
//! - [`Config`] has the settings of a run, and an [`Event`] is a report of a run to its observer.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use advlab_train::{Config, Event, Run};
//!
//! let folder = tempfile::tempdir()?;
//! let config = Config {
//!     recipe: "rloo".to_string(),
//!     steps: 2,
//!     out: folder.path().join("run").display().to_string(),
//!     ..Config::default()
//! };
//! let mut run = Run::create(config)?;
//! run.go(&AtomicBool::new(false), &mut |event: &Event<'_>| {
//!     if let Event::Step { row, .. } = event {
//!         println!("{} {:?}", row.step, row.sampled.pass_at.at(1));
//!     }
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod error;
mod folder;
pub mod policy;
pub mod random;
mod replay;
mod row;
mod run;
pub mod task;
#[cfg(feature = "torch")]
pub mod text;
#[cfg(feature = "tokenizer")]
pub mod tokenizer;
#[cfg(not(feature = "tokenizer"))]
#[path = "no_tokenizer.rs"]
pub mod tokenizer;
#[cfg(feature = "torch")]
pub mod torch;
mod trainer_run;
mod warnings;

pub use config::{
    Config, Device, MathConfig, PolicyName, Schedule, TaskName, TransformerConfig, WarningConfig,
};
pub use folder::{KeptVersion, LogEvent, LogLine, Notice, RunFolder, RunKind, RunLog, is_stopped};
pub use replay::{Difference, Replay};
pub use row::{Evaluation, PassAt, Row, Stage};
pub use run::{Ending, Event, Run, export};
pub use trainer_run::TrainerRun;
