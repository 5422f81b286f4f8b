//! Rollouts as commands name and read them, and `advlab convert`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::{Dtype, Mapping, ReadOptions, Rollouts, Tokenize, convert, read};
use advlab_train::RunFolder;
use advlab_train::tokenizer::Tokenizer;
use anyhow::Result;
use clap::Args;

use super::apply::{holds, is_same};
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
            let error =
                Diagnostic::error("`--step` takes a batch of a run's folder, and this is none");
            return Err(error.in_file(input).into());
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
    dtype: Option<Dtype>,
    columns: Option<&[String]>,
    tokenizer: Option<&Arc<dyn Tokenize>>,
) -> Result<(Rollouts, Vec<String>)> {
    let (mut path, mut notes) = (input.to_path_buf(), Vec::new());
    if let Ok(kept) = RunFolder::open(input) {
        path = kept.last().1.to_path_buf();
        let (run, batch) = (input.display(), path.display());
        notes.push(format!(
            "{run} is a run's folder: this is its last batch, {batch} (`--step N` takes another)"
        ));
    }
    let options = ReadOptions {
        map: &mappings(map),
        dtype,
        columns,
        tokenizer,
        progress: Some(&streams::bytes_bar("reading")),
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
        let (input, output) = (self.input.display(), self.output.display());
        if is_same(&self.input, &self.output) {
            let message = format!("{output} is the input itself");
            return Err(wrong(message, "choose another name").into());
        }
        if holds(&self.input, &self.output) {
            let message = format!("{output} lies in {input}, whose files are read");
            return Err(wrong(message, "choose a name outside of the folder").into());
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
