//! `advlab repl [INPUT]`: formulas at a prompt, on a real batch.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use advlab::Batch;
use advlab::batch::{ReadOptions, read};
use advlab::repl::{Paint, Session, piped};
use advlab::script::Host;
use anyhow::Result;
use clap::Args;

use super::style;

/// Try formulas at a prompt, on a real batch.
#[derive(Args)]
pub struct Repl {
    /// Rollouts (.jsonl, .safetensors or .npz); a small built-in batch if not given
    input: Option<PathBuf>,
    /// Read the inputs from standard input, line by line
    #[arg(long)]
    stdin: bool,
}

impl Repl {
    /// Reads the batch, and starts the session.
    pub fn run(self) -> Result<ExitCode> {
        let batch = match &self.input {
            Some(path) => read(path, &ReadOptions::default())?.batch,
            None => Batch::example(),
        };
        let paint = Paint {
            color: style::color_on_stdout(),
        };
        let mut session = Session::new(&Host::new(), &batch, paint);
        piped(&mut session, io::stdin().lock(), io::stdout().lock())?;
        Ok(ExitCode::SUCCESS)
    }
}
