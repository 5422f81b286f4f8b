//! advlab: the advantage lab.
//!
//! This library computes advantages for reinforcement learning with verifiable rewards, with short scripts over tensors that know
//! the response of each token and the group of each response. A Rust trainer can embed the library, whose parts are:
//!
//! - a [`Batch`] holds the data of one training step: named columns over a layout, made from arrays, whose memory it can share,
//!   or read from files ([`batch`]);
//! - a [`Host`] loads a [`Recipe`] (a built-in recipe or a script) with its parameters, in a sandbox ([`script`]);
//! - [`Recipe::advantage`] computes the advantage of a batch, and [`Recipe::loss`] computes a loss and its gradient;
//! - for the losses of some built-ins, a native kernel gives the same bits as the script ([`native`]);
//! - a [`LiveRecipe`] follows its file: an edit takes effect at the next [`LiveRecipe::step`] after its checks ([`live`]);
//! - a [`session::Session`] evaluates pieces of script one after the other, as the prompt does;
//! - [`check`] tries a recipe on degenerate batches;
//! - `answers`, which needs the feature of that name, compares the answer of a completion with a reference;
//! - recipes compute with lazy, differentiable tensors at six levels; one table lists their operations ([`tensor`]).
//!
//! ```
//! use advlab::{Batch, Host};
//!
//! let mut passk = Host::new().load("passk")?;
//! passk.set_text("k", "2")?;
//! let batch = Batch::builder()
//!     .groups(["q1", "q1", "q1", "q1"])
//!     .response("reward", vec![1.0, 0.0, 0.0, 0.0])
//!     .build()?;
//! let outcome = passk.advantage(&batch, &mut passk.init()?)?;
//! assert!((outcome.advantage.at(0, 0) - 1.0).abs() < 1e-12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The feature `files` adds reading and writing batches, `answers` adds rewards from texts, and `render` adds diagnostics with a
//! caret. Training runs are in the package `advlab-train`; the commands, the prompt and the reports are in `advlab-cli`.
//!
//! The library prints nothing and gives the same bits for any number of threads. Its only mutable global state is the list of the
//! files that it is writing and, for each thread, the count of the allocated bytes and two flags. An error says what was found
//! and, if known, the place and a remedy; [`Diagnostics`] can quote the line of the script.

#![warn(missing_docs)]

pub mod allocation;
pub mod batch;
pub mod check;
pub mod deep_stack;
pub mod diagnostic;
#[cfg(feature = "files")]
pub mod files;
pub mod live;
pub mod native;
pub mod number_text;
#[cfg(feature = "render")]
pub mod paint;
#[doc(hidden)]
pub mod panics;
mod parallel;
pub mod plan;
#[doc(hidden)]
pub mod regular_file;
#[cfg(feature = "files")]
pub mod replace;
pub mod script;
pub mod session;
#[doc(hidden)]
pub mod suggest;
pub mod tensor;
#[cfg(feature = "files")]
pub mod tensor_file;

#[cfg(feature = "answers")]
pub use advlab_answers as answers;
pub use batch::Batch;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use live::LiveRecipe;
pub use script::{Host, Recipe};

/// The Rust block of docs/embedding.md, which is run as a documentation test.
#[cfg(all(doctest, feature = "files"))]
#[doc = include_str!("../docs/embedding.md")]
struct Embedding;
