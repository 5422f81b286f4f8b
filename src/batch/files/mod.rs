//! Reads rollouts from files, and writes them back with the advantage added: JSONL, safetensors and npz.
//!
//! A reader gives the columns of its file as the file has them ([`raw`]); one stage finds out what they mean
//! ([`infer`]). A format is one module and one line of [`FORMATS`].

mod infer;
mod json;
mod jsonl;
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

pub(crate) use replace::Replacement;
pub use texts::{Verified, verify_lines};
pub use words::Tokenize;

use self::json::Type;
use self::names::Names;
use self::raw::{Header, Origin, Raw, RawColumn, Schema, Values};
use self::spread::Spread;
use self::tensor::{Info, Source, Tensor};
use super::{Batch, Computed, Level};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// A kind of file that rollouts are read from.
#[derive(Debug)]
struct Format {
    endings: &'static [&'static str],
    read: fn(&Path, Schema, &Progress) -> Result<Raw, Diagnostic>,
    /// Writes a copy of a file that was read, with the advantage added.
    write: fn(&Path, &Origin, &Spread, &mut Replacement) -> Result<(), Diagnostic>,
}

static FORMATS: [Format; 3] = [
    Format {
        endings: &["jsonl", "ndjson"],
        read: jsonl::read,
        write: jsonl::write,
    },
    Format {
        endings: &["safetensors"],
        read: safetensors::read,
        write: safetensors::write,
    },
    Format {
        endings: &["npz"],
        read: npz::read,
        write: npz::write,
    },
];

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
    format: &'static Format,
    origin: Origin,
    /// T, where there are tensors [B, T].
    width: Option<usize>,
    /// Whether an advantage is written to a tensor as f64.
    is_f64: bool,
    is_partial: bool,
}

/// Reads a file of rollouts. Its name says what it is: `.jsonl`, `.safetensors` or `.npz`.
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
    let is_file = std::fs::metadata(path).is_ok_and(|file| file.is_file());
    let options = &ReadOptions {
        columns: options.columns.filter(|_| is_file),
        ..*options
    };
    let schema =
        |fields: &[(String, Type)], header: &Header| Names::new(path, options, fields, header);
    let raw = (format.read)(path, &schema, &progress)?;
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
        let out = out.as_ref();
        let error = |message: String| Diagnostic::error(message).in_file(out);
        let (found, level) = (advantage.buffer().len(), advantage.level());
        let expected = self.batch.layout().size(level);
        let is_signal = matches!(level, Level::Response | Level::Token);
        if !is_signal || found != expected {
            let what = format!(
                "the advantage has {found} values, the batch has {expected} (one for each {level})"
            );
            return Err(error(what).into());
        }
        // A name without an ending may be a pipe; another ending is another kind of file, or somebody's recipe.
        let is_other = match Format::of(out) {
            Ok(format) => !std::ptr::eq(format, self.format),
            Err(_) => out.extension().is_some(),
        };
        if is_other {
            let ending = self.format.endings[0];
            let what = format!("the advantage is added to a copy of the input, which is .{ending}");
            let help = format!("give the output a name that ends in .{ending} too");
            return Err(error(what).with_help(help).into());
        }
        let spread = Spread::new(advantage, self.width, self.is_f64);
        if let Some(what) = spread.misfit(&self.origin) {
            return Err(error(what).into());
        }
        let mut file = Replacement::new(out)?;
        (self.format.write)(&self.path, &self.origin, &spread, &mut file)?;
        file.finish()
    }
}

impl Format {
    fn of(path: &Path) -> Result<&'static Format, Diagnostic> {
        let ending = path
            .extension()
            .map(|ending| ending.to_string_lossy().to_lowercase());
        let ending = ending.as_deref();
        let is = |format: &&Format| ending.is_some_and(|ending| format.endings.contains(&ending));
        if let Some(format) = FORMATS.iter().find(is) {
            return Ok(format);
        }
        // A file that is not there has no format either, and that is the error to report.
        std::fs::metadata(path).map_err(|error| cannot_be_read(path, &error))?;
        let found = match ending {
            Some(ending) => format!("`.{ending}` is no format of rollouts"),
            None => "its name has no ending that says what it is".to_string(),
        };
        let endings = FORMATS
            .each_ref()
            .map(|format| format!(".{}", format.endings[0]));
        let endings = endings.join(", ");
        let error = Diagnostic::error(format!("{found}; rollouts are read from {endings} files"));
        let mut error = error.in_file(path);
        let help = match ending.unwrap_or_default() {
            "json" => "write one object a line: `jq -c '.[]' rollouts.json > rollouts.jsonl`",
            "parquet" | "arrow" | "csv" | "tsv" => {
                "write it as JSON lines; pandas: `df.to_json(\"rollouts.jsonl\", orient=\"records\", lines=True)`"
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
