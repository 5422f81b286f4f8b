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

use super::outputs::holds;
use super::{end_cleanly, streams, whole};
use crate::{mapping, wrong};

/// How the rollouts of an input are read.
#[derive(Args)]
pub(super) struct ReadArguments {
    /// Read a field of the rollouts under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = mapping)]
    pub(super) map: Vec<Mapping>,
    /// For a run's folder, the batch of this step; the last one if not given
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(super) step: Option<u64>,
}

impl ReadArguments {
    /// The rollouts of a file or of a run's batch, and notes on how they were read.
    pub(super) fn read(&self, input: &Path) -> Result<(Rollouts, Vec<String>)> {
        let options = ReadOptions {
            map: &self.map,
            ..ReadOptions::default()
        };
        rollouts(input, self.step, &options)
    }
}

/// The step, if one was given; only a run's folder has several.
pub(super) fn of_run(step: Option<u64>, input: &Path) -> Result<Option<u64>, Diagnostics> {
    if step.is_some() && !input.is_dir() {
        let error = "`--step` takes a batch of a run's folder, and this is none";
        return Err(Diagnostic::error(error).in_file(input).into());
    }
    Ok(step)
}

/// How the tokens of completions are counted.
#[derive(Args)]
pub(super) struct Tokenizing {
    /// Count the tokens of completions by a model's tokenizer.json, if the rollouts have no lengths; without it,
    /// words are counted
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Also count the special tokens that the tokenizer adds to a text
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

/// As [`read_rollouts`], with a bar.
pub(super) fn rollouts(
    input: &Path,
    step: Option<u64>,
    options: &ReadOptions,
) -> Result<(Rollouts, Vec<String>)> {
    let progress = streams::bytes_bar("reading");
    let options = ReadOptions {
        progress: Some(&progress),
        ..*options
    };
    Ok(read_rollouts(input, step, &options)?)
}

/// The rollouts of a file, or of a batch in a run's folder: that of a step, or the last one; and notes on how they were read.
pub fn read_rollouts(
    input: &Path,
    step: Option<u64>,
    options: &ReadOptions,
) -> Result<(Rollouts, Vec<String>), Diagnostics> {
    let run = RunFolder::open(input);
    let (path, note) = match (of_run(step, input)?, &run) {
        (Some(step), _) => (run.as_ref().map_err(Clone::clone)?.at(step)?, None),
        (None, Ok(run)) => {
            let (folder, path) = (input.display(), run.last().1);
            let note = format!(
                "{folder} is a run's folder: this is its last batch, {} (`--step N` takes another)",
                path.display()
            );
            (path, Some(note))
        }
        (None, Err(_)) => (input, None),
    };
    let rollouts = read(path, options)?;
    let notes = rollouts.notes.iter().map(ToString::to_string);
    let notes = note.into_iter().chain(notes).collect();
    Ok((rollouts, notes))
}

/// Write rollouts as another kind of file: jsonl (.gz, .zst), parquet, safetensors, npz.
#[derive(Args)]
pub struct Convert {
    /// The rollouts; of a folder, all its files of lines together
    input: PathBuf,
    /// The file to write; its ending says what kind it is
    output: PathBuf,
    /// Read a field under another name, as in --map reward=score; for output as tensors, which need groups and rewards
    #[arg(long, value_name = "OURS=THEIRS", value_parser = mapping)]
    map: Vec<Mapping>,
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
            map: &self.map,
            progress: Some(&streams::bytes_bar("reading")),
            ..ReadOptions::default()
        };
        streams::tell(&convert(&self.input, &self.output, &options)?);
        Ok(ExitCode::SUCCESS)
    }
}
