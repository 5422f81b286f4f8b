//! Reads rollouts from files, and writes them back with the advantage added.
//!
//! Files are lines of JSON, however they hold them ([`lines`]), or tensors. A reader gives the columns of its file as the
//! file has them ([`raw`]); one stage finds out what they mean ([`infer`]).

mod convert;
mod dumps;
mod eight;
mod format;
mod infer;
mod json;
mod jsonl;
mod lines;
mod names;
mod npy;
mod npz;
mod raw;
mod replace;
mod safetensors;
mod saved;
mod spread;
mod steps;
mod tensor;
mod texts;
mod words;
mod written;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use convert::convert;
pub use replace::discard_unfinished;
pub use replace::{Replacement, Unfinished, cannot_be_written};
pub use spread::Column;
pub use steps::{step_of, steps};
pub use texts::{Verified, verify_lines};
pub use words::Tokenize;
pub use words::spans;

use self::format::Format;
pub use self::format::is_rollouts;
use self::json::Type;
use self::names::Names;
use self::raw::{Header, Origin, Raw, RawColumn, Schema, Values};
use self::spread::Spread;
use self::tensor::{Info, Source, Tensor};
use super::{Batch, Computed, Level};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// How to read a file.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Names for fields that the file calls otherwise.
    pub map: &'a [Mapping],
    /// The precision of token columns; that of the file (f64 for JSONL) where it is `None`.
    pub dtype: Option<Dtype>,
    /// Of token columns, only these and those that they follow from are read; all, where it is `None`.
    pub columns: Option<&'a [String]>,
    /// What counts the tokens of completions where nothing else says how long responses are; without it, words are.
    pub tokenizer: Option<&'a Arc<dyn Tokenize>>,
    /// Told from time to time how many bytes of how many have been read.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// A field of a file is read under another name: `--map reward=score`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Our name for it, such as `reward`.
    pub ours: String,
    /// The file's name for it, such as `score`.
    pub theirs: String,
}

/// A precision of token columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// A batch from a file, and what writing an advantage back to a copy of that file takes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rollouts {
    /// The columns and their layout.
    pub batch: Batch,
    /// The decisions of the reader and the fields that it left out: nothing of that happens in silence.
    pub notes: Vec<Diagnostic>,
    /// What the tokens of the batch are: `token`, or `word` where lengths are those of completions in words.
    pub unit: &'static str,
    path: PathBuf,
    format: Format,
    origin: Origin,
    /// T, where there are tensors [B, T].
    width: Option<usize>,
    /// Whether an advantage is written to a tensor as f64.
    is_f64: bool,
    is_partial: bool,
}

/// Reads a file of rollouts. Its name says what it is: `.jsonl`, which may be compressed (`.jsonl.gz`, `.jsonl.zst`),
/// `.parquet`, `.safetensors` or `.npz`. A folder is read as all its files of lines together.
///
/// # Errors
/// The file, the line or tensor, the field, what was found and what was expected.
pub fn read(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Rollouts, Diagnostics> {
    let path = path.as_ref();
    let format = Format::of(path)?;
    let progress = Progress {
        told: options.progress,
        ..Progress::default()
    };
    let schema =
        |fields: &[(String, Type)], header: &Header| Names::new(path, options, fields, header);
    let raw = match format {
        Format::Lines => jsonl::read(path, &schema, &progress),
        Format::Safetensors => safetensors::read(path, &schema, &progress),
        Format::Npz => npz::read(path, &schema, &progress),
    }?;
    let rollouts = infer::rollouts(raw, options, &progress, format)?;
    progress.finish();
    Ok(rollouts)
}

impl Rollouts {
    /// The file that the batch was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether columns of the file were not read, since [`ReadOptions::columns`] does not name them.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// The line of a response in the file, from 1, where the file has lines.
    pub fn line(&self, response: usize) -> Option<usize> {
        self.origin.line(response)
    }

    /// Writes a copy of the file with the advantage added: in lines the field `advantage`, a number or an array (0
    /// where the mask is 0); in padded files the tensor `advantages` [B, T]. `out` may be the file that was read.
    ///
    /// Of dumps that hold several responses a line, or count them otherwise (ROLL, NeMo-RL, prime-rl, AReaL), the copy has the
    /// lines that were read, one a response.
    ///
    /// # Errors
    /// Why it cannot be written; nothing half-written is left, and a file that was at `out` is as it was.
    pub fn write_advantage(
        &self,
        out: impl AsRef<Path>,
        advantage: &Computed,
    ) -> Result<(), Diagnostics> {
        self.write_outputs(out.as_ref(), &[(Column::Advantage, advantage)], &|_, _| {})
    }

    /// As [`Rollouts::write_advantage`], with any of the columns that a recipe gives. A field or tensor of that name that is
    /// there is replaced. Of lines, `progress` is told from time to time how many bytes of how many are copied.
    ///
    /// # Errors
    /// As [`Rollouts::write_advantage`].
    pub fn write_outputs(
        &self,
        out: &Path,
        columns: &[(Column, &Computed)],
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), Diagnostics> {
        let here = |error: Diagnostic| error.in_file(out);
        self.check_outputs(out, columns).map_err(here)?;
        let are_lines = self.format == Format::Lines;
        let spread = |given| Spread::new(given, are_lines, self.width, self.is_f64);
        let spreads: Vec<Spread> = columns.iter().copied().map(spread).collect();
        if let Some(what) = spreads.iter().find_map(|one| one.misfit(&self.origin)) {
            return Err(here(Diagnostic::error(what)).into());
        }
        let mut file = Replacement::new(out)?;
        let tensors = || spreads.iter().map(Spread::written).collect::<Vec<_>>();
        let (input, origin) = (&self.path, &self.origin);
        let progress = Progress::told(progress);
        match self.format {
            Format::Lines => jsonl::write(input, origin, &spreads, out, &mut file, &progress),
            Format::Safetensors => safetensors::write(input, origin, tensors(), &mut file),
            Format::Npz => npz::write(input, origin, &tensors(), &mut file),
        }?;
        file.finish()
    }

    /// Refuses values of another batch, and what the copy has no place for.
    fn check_outputs(&self, out: &Path, columns: &[(Column, &Computed)]) -> Result<(), Diagnostic> {
        for (column, values) in columns {
            let (found, level) = (values.buffer().len(), values.level());
            let expected = self.batch.layout().size(level);
            let is_signal = matches!(level, Level::Response | Level::Token);
            if !is_signal || found != expected {
                return Err(Diagnostic::error(format!(
                    "the {} has {found} values, the batch has {expected} (one for each {level})",
                    column.name()
                )));
            }
        }
        self.format.check_copy("the advantage", out)
    }
}

/// How many bytes are there to read, and how many have been read.
#[derive(Default)]
struct Progress<'a> {
    told: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    done: AtomicU64,
    total: AtomicU64,
}

impl<'a> Progress<'a> {
    fn told(told: &'a (dyn Fn(u64, u64) + Sync)) -> Self {
        Progress {
            told: Some(told),
            ..Progress::default()
        }
    }

    /// Bytes between two reports to the caller.
    const STEP: u64 = 4 << 20;

    fn expect(&self, total: u64) {
        self.total.store(total, Relaxed);
    }

    fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Relaxed);
        let (done, total) = (before + bytes, self.total.load(Relaxed));
        if let Some(told) = self.told
            && before / Self::STEP != done / Self::STEP
        {
            told(done.min(total), total);
        }
    }

    /// All is read, whatever was passed over.
    fn finish(&self) {
        if let Some(told) = self.told {
            let total = self.total.load(Relaxed);
            told(total, total);
        }
    }
}

fn read_tensors(
    path: &Path,
    header: Header,
    tensors: Vec<Info>,
    source: Source,
    schema: Schema,
    progress: &Progress,
) -> Result<Raw, Diagnostic> {
    let fields = tensors
        .iter()
        .map(|tensor| (tensor.name.clone(), Type::Array));
    let names = schema(&fields.collect::<Vec<_>>(), &header)?;
    progress.expect(tensors.iter().map(|tensor| tensor.most).sum());
    let columns = tensors.iter().map(|info| {
        let tensor = Tensor {
            info: info.clone(),
            path: path.to_path_buf(),
            source: source.clone(),
        };
        RawColumn::new(info.name.clone(), Values::Tensor(tensor))
    });
    Ok(Raw {
        path: path.to_path_buf(),
        header,
        names,
        columns: columns.collect(),
        origin: Origin::Tensors(tensors),
    })
}

fn cannot_be_read(path: &Path, error: &io::Error) -> Diagnostic {
    Diagnostic::error(format!("it cannot be read: {error}")).in_file(path)
}

fn damaged(path: &Path, what: String) -> Diagnostic {
    Diagnostic::error(what).in_file(path)
}

/// The input is not what it was when it was read.
fn changed(input: &Path, what: impl fmt::Display) -> Diagnostic {
    Diagnostic::error(format!(
        "the file changed after it was read ({what}); run it again"
    ))
    .in_file(input)
}
