//! advlab: the advantage lab.
//!
//! The advantage of reinforcement learning with verifiable rewards, as short scripts over tensors that know which token
//! belongs to which response and which response to which group. This library is what the command line is made of, and
//! what a Rust trainer embeds:
//!
//! - a [`Batch`] is what one training step produced: named columns over a layout, made from arrays that it shares
//!   and does not copy, or read from files ([`batch`]);
//! - a [`Host`] loads a [`Recipe`], a built-in or a script, with its parameters, in a sandbox ([`script`]);
//! - [`Recipe::advantage`] gives the advantage of a batch, [`Recipe::loss`] a loss and its gradient;
//! - where a built-in's hook is hot, a kernel answers it with the bits of its script ([`native`]);
//! - a [`LiveRecipe`] follows its file: each [`LiveRecipe::step`] uses the newest version that works ([`live`]);
//! - a [`script::Session`] evaluates pieces of script one after the other, and `repl` is the prompt around it;
//! - [`verify`] compares the answer of a completion with a reference;
//! - underneath are lazy tensors at five levels, from one table of operations, with gradients ([`tensor`]).
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
//! Without default features there is what a trainer embeds: batches, tensors, scripts and hot reload. `files` adds
//! reading and writing batches, `render` diagnostics with a caret, `cli` the commands, the prompt and training runs.
//!
//! The library prints nothing, keeps no global state but the list of the files that it is writing, and gives the same bits for
//! any number of threads. Its errors say what was found, where, and what to do: [`Diagnostics`] has the script's line.

#![warn(missing_docs)]
// Much of the crate is there for the commands.
#![cfg_attr(not(feature = "cli"), allow(dead_code, unused_imports))]

// The commands name the library as any other program does.
#[cfg(feature = "cli")]
extern crate self as advlab;

pub mod batch;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
pub mod compare;
pub mod diagnostic;
#[cfg(feature = "cli")]
pub mod doc;
#[cfg(feature = "cli")]
pub mod figure;
pub mod figures;
#[cfg(feature = "files")]
pub mod files;
pub mod live;
pub mod native;
#[cfg(feature = "render")]
pub mod paint;
#[cfg(any(feature = "files", feature = "text"))]
mod panics;
#[cfg(feature = "cli")]
pub mod profile;
mod regular_file;
#[cfg(feature = "cli")]
pub mod repl;
pub mod script;
#[cfg(feature = "cli")]
pub mod study;
mod suggest;
pub mod tensor;
#[cfg(feature = "text")]
pub mod tokenizer;
#[cfg(feature = "torch")]
pub mod torch;
#[cfg(feature = "cli")]
pub mod train;
pub mod verify;
#[cfg(feature = "cli")]
pub mod view;

pub use batch::Batch;
#[cfg(feature = "cli")]
pub use cli::command_line;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use live::LiveRecipe;
pub use script::{Host, Recipe};
pub use suggest::nearest;

/// The README's Rust blocks, run as documentation tests.
#[cfg(all(doctest, feature = "cli"))]
#[doc = include_str!("../README.md")]
struct Readme;
