//! `advlab export RUN DIR`: a run's model as a folder that transformers opens.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::streams::{err, out};

/// Write a run's model as a folder that transformers (Python) opens.
///
/// It is the model of the newest checkpoint. What came with a model from a folder, such as its tokenizer, goes along.
#[derive(Args)]
pub struct Export {
    /// The run's folder
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The folder to write, which must be empty or not exist yet
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Export {
    /// Writes the folder.
    pub fn run(self) -> Result<ExitCode> {
        let (step, notes) = advlab_train::export(&self.run, &self.folder)?;
        for note in notes {
            err!("note: {note}");
        }
        let (run, folder) = (self.run.display(), self.folder.display());
        out!("{folder} has the model of {run} after {step} steps");
        Ok(ExitCode::SUCCESS)
    }
}
