//! `advlab convert IN OUT`: the same rollouts in another kind of file.

use std::path::PathBuf;
use std::process::ExitCode;

use advlab::batch::{ReadOptions, convert};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use anyhow::Result;
use clap::Args;

use super::{end_cleanly, holds, is_same, mappings, pair, streams};

/// Write rollouts as another kind of file: jsonl (.gz, .zst), parquet, safetensors, npz.
#[derive(Args)]
pub struct Convert {
    /// The rollouts; of a folder, all its files of lines together
    input: PathBuf,
    /// The file to write; its ending says what kind it is
    output: PathBuf,
    /// Read a field under another name, as in --map reward=score, where lines become tensors: these have groups and rewards
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair)]
    map: Vec<(String, String)>,
}

impl Convert {
    pub fn run(self) -> Result<ExitCode> {
        end_cleanly(streams::interrupted)?;
        if is_same(&self.input, &self.output) {
            let message = format!("{} is the input itself", self.output.display());
            let error = Diagnostic::error(message).with_help("choose another name");
            return Err(Diagnostics::from(error).into());
        }
        if self.input.is_dir() && holds(&self.input, &self.output) {
            let (output, input) = (self.output.display(), self.input.display());
            let error =
                Diagnostic::error(format!("{output} lies in {input}, whose files are read"));
            let help = "choose a name outside of the folder";
            return Err(Diagnostics::from(error.with_help(help)).into());
        }
        let options = ReadOptions {
            map: &mappings(&self.map),
            progress: Some(&streams::bytes_bar("reading")),
            ..ReadOptions::default()
        };
        let notes = convert(&self.input, &self.output, &options)?;
        streams::tell(&notes);
        Ok(ExitCode::SUCCESS)
    }
}
