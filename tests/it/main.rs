//! All integration tests in one binary, a module per topic; what has to be alone in its process is a binary beside it.

mod cases;
mod cli;
mod docs;
mod files;
mod gallery;
mod golden;
mod host;
mod invariance;
mod live;
mod lsp;
mod memory;
mod native;
#[path = "../parquet_rows.rs"]
mod parquet_rows;
mod plan;
mod precision;
mod readme;
mod recipes;
mod repl;
mod run;
mod train;
mod view;

/// The root of the repository, where the README's commands are typed.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
