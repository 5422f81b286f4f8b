//! Reads rollouts from files, and writes them back with the advantage added.
//!
//! Files are lines of JSON, however they hold them ([`lines`]), or tensors. A reader gives the columns of its file as the
//! file has them ([`raw`]); one stage finds out what they mean ([`infer`]).

mod convert;
mod dumps;
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
mod tensor;
mod texts;
mod words;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use convert::convert;
pub(crate) use replace::Replacement;
pub use replace::discard_unfinished;
pub use texts::{Verified, verify_lines};
pub use words::Tokenize;
pub(crate) use words::spans;

use self::json::Type;
use self::names::Names;
use self::raw::{Header, Origin, Raw, RawColumn, Schema, Values};
use self::spread::Spread;
use self::tensor::{Info, Source, Tensor};
use super::{Batch, Computed, Level};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// A kind of file that rollouts are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Lines,
    Safetensors,
    Npz,
}

/// The endings of files, each with what it holds.
const ENDINGS: [(&str, Format); 9] = [
    (".jsonl", Format::Lines),
    (".jsonl.gz", Format::Lines),
    (".jsonl.zst", Format::Lines),
    (".parquet", Format::Lines),
    (".safetensors", Format::Safetensors),
    (".npz", Format::Npz),
    (".ndjson", Format::Lines),
    (".ndjson.gz", Format::Lines),
    (".ndjson.zst", Format::Lines),
];

/// How many of the endings are worth a mention.
const TOLD: usize = 6;

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
    // A pipe is read once, and all of it: see below.
    let is_file = path.is_dir() || path.is_file();
    let options = &ReadOptions {
        columns: options.columns.filter(|_| is_file),
        ..*options
    };
    let schema =
        |fields: &[(String, Type)], header: &Header| Names::new(path, options, fields, header);
    let raw = match format {
        Format::Lines => jsonl::read(path, &schema, &progress),
        Format::Safetensors => safetensors::read(path, &schema, &progress),
        Format::Npz => npz::read(path, &schema, &progress),
    }?;
    if options.columns.is_some() && raw.columns.iter().any(|column| column.is_unusual) {
        // What is wrong or odd in a column is told whether anybody wants it or not.
        let all = ReadOptions {
            columns: None,
            ..*options
        };
        return read(path, &all);
    }
    let rollouts = infer::rollouts(raw, options, &progress, format)?;
    progress.finish();
    Ok(rollouts)
}

/// The rollouts in a folder in the order of the numbers in their names: its files, and the folders in it that have a
/// number and lines of rollouts, each of which is one batch. A file is one by itself.
///
/// # Errors
/// Why the folder cannot be read, or that there are no rollouts in it.
pub fn steps(path: impl AsRef<Path>) -> Result<Vec<PathBuf>, Diagnostics> {
    let path = path.as_ref();
    if !path.is_dir() {
        let matching = matching(path);
        return Ok(if matching.is_empty() {
            vec![path.to_path_buf()]
        } else {
            matching
        });
    }
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?.path();
            let is_step = if entry.is_dir() {
                step_of(&entry).is_some() && !lines::files(&entry)?.is_empty()
            } else {
                Format::of(&entry).is_ok()
            };
            found.extend(is_step.then_some(entry));
        }
        Ok(found)
    };
    let mut found = list().map_err(|error| cannot_be_read(path, &error))?;
    if found.is_empty() {
        let error = Diagnostic::error("there are no rollouts in the folder");
        // TRL's are in `completions`, below the run's folder.
        let below = std::fs::read_dir(path).into_iter().flatten().flatten();
        let mut below = below.map(|entry| entry.path());
        let some = below.find(|entry| lines::files(entry).is_ok_and(|files| !files.is_empty()));
        let help = match some {
            Some(folder) => format!("there are some in {}", folder.display()),
            None => "name the folder that has a file, or a folder with a number, for each step"
                .to_string(),
        };
        return Err(error.in_file(path).with_help(help).into());
    }
    found.sort_by_cached_key(|entry| order(entry));
    Ok(found)
}

/// The files that a name with stars means, as a shell has them, in order; none where it is the name of a file.
fn matching(path: &Path) -> Vec<PathBuf> {
    let pattern = path.file_name().and_then(|name| name.to_str());
    let Some(pattern) = pattern.filter(|name| name.contains('*') && !path.exists()) else {
        return Vec::new();
    };
    let is_match = |name: &str| {
        if name.starts_with('.') && !pattern.starts_with('.') {
            return false;
        }
        let mut parts = pattern.split('*');
        let first = parts.next().unwrap_or_default();
        let last = parts.next_back().unwrap_or_default();
        let inner = name
            .strip_prefix(first)
            .and_then(|rest| rest.strip_suffix(last));
        let find = |rest: &'_ str, part: &str| rest.find(part).map(|at| at + part.len());
        let mut rest = inner;
        for part in parts {
            rest = rest.and_then(|own| find(own, part).map(|end| &own[end..]));
        }
        rest.is_some()
    };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let names = names.filter(|name| name.to_str().is_some_and(is_match));
    let mut found: Vec<PathBuf> = names.map(|name| path.with_file_name(name)).collect();
    found.sort_by_cached_key(|path| order(path));
    found
}

/// The step that the name of a file or a folder ends with a number for, as `step_12.jsonl` does.
pub fn step_of(path: &Path) -> Option<u64> {
    let name = Path::new(path.file_name()?);
    let mut numbers = order(name)
        .into_iter()
        .rev()
        .filter_map(|(_, number)| number);
    numbers.next()
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

    /// Writes a copy of the file with the advantage added: in JSONL the field `advantage`, a number or an array (0
    /// where the mask is 0); in padded files the tensor `advantages` [B, T]. `out` may be the file that was read.
    ///
    /// # Errors
    /// Why it cannot be written; nothing half-written is left, and a file that was at `out` is as it was.
    pub fn write_advantage(
        &self,
        out: impl AsRef<Path>,
        advantage: &Computed,
    ) -> Result<(), Diagnostics> {
        self.write_outputs(out.as_ref(), advantage, None)
    }

    /// As [`Rollouts::write_advantage`], with a critic's `returns` under that name, where there are some.
    ///
    /// # Errors
    /// As [`Rollouts::write_advantage`]; also where lines have a field `returns` already.
    pub fn write_outputs(
        &self,
        out: &Path,
        advantage: &Computed,
        returns: Option<&Computed>,
    ) -> Result<(), Diagnostics> {
        let error = |message: String| Diagnostic::error(message).in_file(out);
        for values in std::iter::once(advantage).chain(returns) {
            let (found, level) = (values.buffer().len(), values.level());
            let expected = self.batch.layout().size(level);
            let is_signal = matches!(level, Level::Response | Level::Token);
            if !is_signal || found != expected {
                let what = format!(
                    "the advantage has {found} values, the batch has {expected} (one for each {level})"
                );
                return Err(error(what).into());
            }
        }
        if returns.is_some() && self.format == Format::Lines && self.batch.has(spread::RETURNS) {
            let what = "the input has a field `returns` already".to_string();
            let help = "take it out, or write another kind of file";
            return Err(error(what).with_help(help).into());
        }
        // A name without an ending may be a pipe; another ending is another kind of file, or somebody's recipe.
        let is_other = match Format::of(out) {
            Ok(format) => format != self.format,
            Err(_) => out.extension().is_some(),
        };
        if is_other {
            let what =
                "the advantage is added to a copy of the input, which is another kind of file";
            let endings = Format::endings(|format| format == self.format);
            let help = format!(
                "give the output a name that ends in {endings}; `advlab convert` makes other kinds"
            );
            let what = what.to_string();
            return Err(error(what).with_help(help).into());
        }
        let returns = returns.map(|values| (spread::RETURNS, values));
        let values = std::iter::once((spread::ADVANTAGES, advantage)).chain(returns);
        let spread = |(name, values)| Spread::new(name, values, self.width, self.is_f64);
        let spreads: Vec<Spread> = values.map(spread).collect();
        if let Some(what) = spreads.iter().find_map(|one| one.misfit(&self.origin)) {
            return Err(error(what).into());
        }
        let mut file = Replacement::new(out)?;
        match self.format {
            Format::Lines => jsonl::write(&self.path, &self.origin, &spreads, out, &mut file),
            Format::Safetensors => {
                safetensors::write(&self.path, &self.origin, &spreads, &mut file)
            }
            Format::Npz => npz::write(&self.path, &self.origin, &spreads, &mut file),
        }?;
        file.finish()
    }
}

impl Format {
    /// The format that the name of a file says.
    fn named(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let mut endings = ENDINGS.iter();
        let known = endings.find(|(ending, _)| name.ends_with(ending));
        known.map(|(_, format)| *format)
    }

    /// The endings of formats, for messages.
    fn endings(is: impl Fn(Format) -> bool) -> String {
        let endings = ENDINGS[..TOLD].iter().filter(|(_, format)| is(*format));
        let endings: Vec<&str> = endings.map(|(ending, _)| *ending).collect();
        endings.join(", ")
    }

    fn of(path: &Path) -> Result<Format, Diagnostic> {
        if let Some(format) = Format::named(path) {
            return Ok(format);
        }
        if path.is_dir() {
            return Ok(Format::Lines);
        }
        // A file that is not there has no format either, and that is the error to report.
        std::fs::metadata(path).map_err(|error| cannot_be_read(path, &error))?;
        let ending = path
            .extension()
            .map(|ending| ending.to_string_lossy().to_lowercase());
        let ending = ending.as_deref();
        let found = match ending {
            Some(ending) => format!("`.{ending}` is no format of rollouts"),
            None => "its name has no ending that says what it is".to_string(),
        };
        let endings = Format::endings(|_| true);
        let error = Diagnostic::error(format!("{found}; rollouts are read from {endings} files"));
        let mut error = error.in_file(path);
        let help = match ending.unwrap_or_default() {
            "json" => "write one object a line: `jq -c '.[]' rollouts.json > rollouts.jsonl`",
            "arrow" | "csv" | "tsv" => {
                "write it as parquet; pandas: `df.to_parquet(\"rollouts.parquet\")`"
            }
            "pt" | "pth" | "bin" | "ckpt" => {
                "write its tensors with `safetensors.torch.save_file(batch, \"rollouts.safetensors\")`"
            }
            "npy" => {
                "put the arrays in one file: `numpy.savez(\"rollouts.npz\", rewards=..., index=...)`"
            }
            "pkl" | "pickle" => "write its arrays with `numpy.savez` or its rows as JSON lines",
            "gz" | "zst" | "xz" | "bz2" | "zip" => "unpack it first",
            _ => return Err(error),
        };
        error.help = Some(help.to_string());
        Err(error)
    }
}

/// How many bytes are there to read, and how many have been read.
#[derive(Default)]
struct Progress<'a> {
    told: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress<'_> {
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

/// What puts files and folders in the order of the numbers in their names: `step_9` before `step_10`.
fn order(path: &Path) -> Vec<(String, Option<u64>)> {
    let name = path.to_string_lossy();
    let mut parts = Vec::new();
    let mut rest = &*name;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| letter.is_ascii_digit());
        let (text, more) = rest.split_at(digits.unwrap_or(rest.len()));
        let end = more.find(|letter: char| !letter.is_ascii_digit());
        let (number, more) = more.split_at(end.unwrap_or(more.len()));
        parts.push((text.to_string(), number.parse().ok()));
        rest = more;
    }
    parts
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
