//! The inputs and outputs of commands, and the options for reading rollouts. An output replaces its input only if the user allows
//! this, and an output to standard output is printed only when it is complete.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use console::Term;
use same_file::is_same_file;

use super::{streams, whole};
use crate::{mapping, unscored, wrong};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::{Mapping, ReadOptions, Rollouts, Tokenize, Unscored, read};
use advlab::replace::TemporaryFile;
use advlab_train::RunFolder;
use advlab_train::tokenizer::Tokenizer;

/// The options that say how the fields of rollouts are read.
#[derive(Args)]
pub(super) struct Fields {
    /// Read a field under another name, as in --map reward=score, or a field in objects and arrays, as in --map
    /// completion=choices[0].message.content
    #[arg(long, value_name = "OURS=THEIRS", value_parser = mapping)]
    pub(super) map: Vec<Mapping>,
    /// What to do with responses whose `reward` or `correct` is null, NaN or missing: leave-out, zero, or error
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = unscored)]
    pub(super) unscored: Unscored,
}

impl Fields {
    pub(super) fn options(&self) -> ReadOptions<'_> {
        ReadOptions {
            map: &self.map,
            unscored: self.unscored,
            ..ReadOptions::default()
        }
    }
}

/// The options that say how the rollouts of an input are read.
#[derive(Args)]
pub(super) struct ReadArguments {
    #[command(flatten)]
    pub(super) fields: Fields,
    /// For a run's folder, the batch of this step; the last batch if not given
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(super) step: Option<u64>,
}

impl ReadArguments {
    /// Reads the rollouts of a file, of a folder of files or of a run's batch. Also returns notes on how they were read.
    pub(super) fn read(&self, input: &Path) -> Result<(Rollouts, Vec<String>)> {
        let options = ReadOptions {
            progress: Some(&streams::bytes_bar("reading")),
            ..self.fields.options()
        };
        Ok(read_rollouts(input, self.step, &options)?)
    }
}

/// Returns `step`. A step for an input that is not a folder is an error, because only a run's folder has batches of several steps.
pub(super) fn of_run(step: Option<u64>, input: &Path) -> Result<Option<u64>, Diagnostics> {
    if step.is_some() && !input.is_dir() {
        let error = "`--step` selects a batch of a run's folder, but this input is not a folder";
        return Err(Diagnostic::error(error).in_file(input).into());
    }
    Ok(step)
}

/// The options that say how the tokens of completions are counted.
#[derive(Args)]
pub(super) struct Tokenizing {
    /// Count the tokens of completions with a model's tokenizer.json, if the rollouts have no lengths; without a
    /// tokenizer, words are counted
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

/// Reads the rollouts of a file or a folder of files, or of a batch in a run's folder (the batch of `step`, or the last batch).
/// Also returns notes on how the rollouts were read.
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
                "{folder} is a run's folder: its last batch is read, {} (`--step N` reads another)",
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

/// Returns whether two paths lead to the same file; links are followed, and the file need not exist. Folders, devices and pipes
/// always count as different: a device may be used twice, and opening a pipe to compare it would break the pipe.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let is_no_file = |path: &Path| path.metadata().is_ok_and(|there| !there.is_file());
    if is_no_file(one) || is_no_file(other) {
        return false;
    }
    is_same_file(one, other).unwrap_or(false) || resolved(one) == resolved(other)
}

/// Returns whether a path is the input, or is inside the input if the input is a folder.
pub fn holds(input: &Path, path: &Path) -> bool {
    is_same(input, path) || input.is_dir() && resolved(path).starts_with(resolved(input))
}

/// Returns the path with its links resolved. If the file does not exist yet, only its folder's links are resolved; if the folder
/// does not exist either, the path is returned unchanged.
pub fn resolved(path: &Path) -> PathBuf {
    let to_come = || {
        let path = std::path::absolute(path).ok()?;
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    };
    let found = path.canonicalize().ok().or_else(to_come);
    found.unwrap_or_else(|| path.to_path_buf())
}

/// Refuses an output that is the input itself, directly or through a link, unless `forced`.
pub fn spare_the_input(input: &Path, output: &Path, forced: bool) -> Result<(), Diagnostics> {
    if forced || !is_same(input, output) {
        return Ok(());
    }
    let message = format!("{} is the input itself", output.display());
    let help = "choose another name, or `--force` to replace it";
    Err(wrong(message, help))
}

pub fn is_stdout(output: &Path) -> bool {
    output == Path::new("-")
}

/// Returns the stream for a command's report: standard error if the command's output goes to standard output, else standard
/// output.
pub fn report_stream(output: Option<&Path>) -> Term {
    if output.is_some_and(is_stdout) {
        Term::stderr()
    } else {
        Term::stdout()
    }
}

/// Calls `write` to write a copy of the input. For standard output (`-`), the copy is first written to a temporary file, so that
/// the reader of a pipe gets nothing if writing fails.
pub fn written<R>(
    output: &Path,
    input: &Path,
    write: impl FnOnce(&Path) -> Result<R>,
) -> Result<R> {
    if !is_stdout(output) {
        return write(output);
    }
    // The temporary file has the input's name, because the name's extension determines the format.
    let file = TemporaryFile::passing(input.file_name().unwrap_or_default())?;
    let result = write(file.path())?;
    let mut out = io::stdout().lock();
    io::copy(&mut File::open(file.path())?, &mut out)?;
    // The output is flushed here, because an error at exit would not be reported.
    out.flush()?;
    Ok(result)
}

#[cfg(test)]
#[cfg(not(any(feature = "parquet", feature = "tokenizer")))]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_in_says_how_to_build_it() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data"));
        let options = ReadOptions::default();
        let parquet = data.join("dumps/trl_plain.parquet");
        let folder = data.join("dumps/trl");
        let tokenizing = Tokenizing {
            tokenizer: Some(data.join("tokenizers/gpt.json")),
            special_tokens: false,
        };
        for error in [
            read_rollouts(&parquet, None, &options)
                .unwrap_err()
                .to_string(),
            read_rollouts(&folder, None, &options)
                .unwrap_err()
                .to_string(),
            tokenizing.load().unwrap_err().to_string(),
        ] {
            assert!(error.contains("built without"), "{error}");
            assert!(
                error.contains("cargo build --release --features full"),
                "{error}"
            );
            assert!(
                error.contains("cargo install --path cli --features full"),
                "{error}"
            );
        }
        assert!(read_rollouts(&data.join("verl.jsonl"), None, &options).is_ok());
    }
}
