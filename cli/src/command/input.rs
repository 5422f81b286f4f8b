//! Rollouts as commands name and read them, and `advlab convert`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::{Mapping, ReadOptions, Rollouts, Tokenize, convert, read};
use advlab_train::RunFolder;
use advlab_train::tokenizer::Tokenizer;
use anyhow::Result;
use clap::Args;

use super::apply::holds;
use super::{end_cleanly, pair, streams, whole};
use crate::wrong;

/// One of the batches in a run's folder.
#[derive(Args)]
pub(super) struct AtStep {
    /// Of a run's folder, the batch of this step; the last one if not given
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(super) step: Option<u64>,
}

impl AtStep {
    /// The file that an input names.
    pub(super) fn of(&self, input: &Path) -> Result<PathBuf, Diagnostics> {
        match self.of_run(input)? {
            Some(step) => Ok(RunFolder::open(input)?.at(step)?.to_path_buf()),
            None => Ok(input.to_path_buf()),
        }
    }

    /// The step, if one was given.
    pub(super) fn of_run(&self, input: &Path) -> Result<Option<u64>, Diagnostics> {
        if self.step.is_some() && !input.is_dir() {
            let error = "`--step` takes a batch of a run's folder, and this is none";
            return Err(Diagnostic::error(error).in_file(input).into());
        }
        Ok(self.step)
    }
}

/// How the tokens of completions are counted.
#[derive(Args)]
pub(super) struct Tokenizing {
    /// Count the tokens of completions by a model's tokenizer.json, where nothing else says how long responses are; without it,
    /// words are counted
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Count those tokens too that the tokenizer puts around a text by itself
    #[arg(long, requires = "tokenizer")]
    special_tokens: bool,
}

impl Tokenizing {
    pub(super) fn load(&self) -> Result<Option<Arc<dyn Tokenize>>> {
        let load = |path: &PathBuf| Tokenizer::load(path, self.special_tokens);
        let tokenizer = self.tokenizer.as_ref().map(load).transpose()?;
        Ok(tokenizer.map(|tokenizer| Arc::new(tokenizer) as Arc<dyn Tokenize>))
    }
}

/// The rollouts of a file, or of the last batch in a run's folder, and notes on how they were read.
pub(super) fn rollouts(
    input: &Path,
    map: &[(String, String)],
    options: &ReadOptions,
) -> Result<(Rollouts, Vec<String>)> {
    let (mut path, mut notes) = (input.to_path_buf(), Vec::new());
    if let Ok(run) = RunFolder::open(input) {
        path = run.last().1.to_path_buf();
        notes.push(format!(
            "{} is a run's folder: this is its last batch, {} (`--step N` takes another)",
            input.display(),
            path.display()
        ));
    }
    let options = ReadOptions {
        map: &mappings(map),
        progress: Some(&streams::bytes_bar("reading")),
        ..*options
    };
    let rollouts = read(&path, &options)?;
    notes.extend(rollouts.notes.iter().map(ToString::to_string));
    Ok((rollouts, notes))
}

/// `--map reward=score`, as the readers take it.
pub(super) fn mappings(map: &[(String, String)]) -> Vec<Mapping> {
    let pair = |(ours, theirs)| Mapping { ours, theirs };
    map.iter().cloned().map(pair).collect()
}

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
        if holds(&self.input, &self.output) {
            let (input, output) = (self.input.display(), self.output.display());
            let message = format!("{output} would overwrite what is read, {input}");
            return Err(wrong(message, "choose another name").into());
        }
        let options = ReadOptions {
            map: &mappings(&self.map),
            progress: Some(&streams::bytes_bar("reading")),
            ..ReadOptions::default()
        };
        streams::tell(&convert(&self.input, &self.output, &options)?);
        Ok(ExitCode::SUCCESS)
    }
}
