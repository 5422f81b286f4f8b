//! Reads rollouts from files, and writes them back with the advantage added: JSONL, safetensors and npz.

mod error;
mod jsonl;
mod names;
mod note;
mod padded;
mod replace;

use std::path::{Path, PathBuf};

pub use error::{ReadError, WriteError};
pub use note::Note;
pub(crate) use replace::Replacement;

use self::padded::{Spread, Tensor};
use super::{Batch, Computed, Level};

/// How to read a file.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Names for fields that the file calls otherwise.
    pub map: &'a [Mapping],
    /// The precision of token columns; that of the file (f64 for JSONL) where it is `None`.
    pub dtype: Option<Dtype>,
    /// Told from time to time how many bytes of how many have been read.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
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
pub struct Rollouts {
    /// The columns and their layout.
    pub batch: Batch,
    /// What the reader decided for itself, and what it left out.
    pub notes: Vec<Note>,
    path: PathBuf,
    format: Format,
    origin: Origin,
}

/// What is remembered of a file: what a copy of it must find there again.
#[derive(Clone, Debug)]
enum Origin {
    /// The line of each response, from 1.
    Lines(Vec<usize>),
    Tensors {
        tensors: Vec<Tensor>,
        /// T, where there are tensors [B, T].
        width: Option<usize>,
        /// Whether an advantage of responses is f64, where no token column says so.
        wide: bool,
    },
}

/// Reads a file of rollouts. Its name says what it is: `.jsonl`, `.safetensors` or `.npz`.
///
/// # Errors
/// [`ReadError`] names the file, the line or tensor, the field, what was found and what was expected.
pub fn read(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Rollouts, ReadError> {
    let path = path.as_ref();
    let format = Format::of(path)?;
    let Parts {
        batch,
        notes,
        origin,
    } = match format {
        Format::Jsonl => jsonl::read(path, options)?,
        Format::Safetensors => padded::read_safetensors(path, options)?,
        Format::Npz => padded::read_npz(path, options)?,
    };
    let mut notes = Note::first_few(notes);
    notes.extend(Note::unreachable(&batch, options.map));
    Ok(Rollouts {
        batch,
        notes,
        path: path.to_path_buf(),
        format,
        origin,
    })
}

/// What a reader of one format gives.
struct Parts {
    batch: Batch,
    notes: Vec<Note>,
    origin: Origin,
}

impl Rollouts {
    /// The file that the batch was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The line of a response in the file, from 1, where the file has lines.
    pub fn line(&self, response: usize) -> Option<usize> {
        match &self.origin {
            Origin::Lines(lines) => lines.get(response).copied(),
            Origin::Tensors { .. } => None,
        }
    }

    /// Writes a copy of the file with the advantage added: in JSONL the field `advantage`, a number or an array (0 where
    /// the mask is 0); in padded files the tensor `advantages` [B, T]. `out` may be the file that was read.
    ///
    /// # Errors
    /// [`WriteError`]; nothing half-written is left, and a file that was at `out` is as it was.
    pub fn write_advantage(
        &self,
        out: impl AsRef<Path>,
        advantage: &Computed,
    ) -> Result<(), WriteError> {
        let out = out.as_ref();
        let layout = self.batch.layout();
        let (found, level) = (advantage.buffer().len(), advantage.level());
        let is_signal = matches!(level, Level::Response | Level::Token);
        if !is_signal || found != layout.size(level) {
            return Err(WriteError::Size {
                path: out.to_path_buf(),
                found,
                expected: layout.size(level),
                level,
            });
        }
        // A name without an ending may be a pipe; one with another ending is another kind of file, or somebody's recipe.
        let is_other = match Format::of(out) {
            Ok(format) => format != self.format,
            Err(_) => out.extension().is_some(),
        };
        if is_other {
            return Err(WriteError::Extension {
                path: out.to_path_buf(),
                expected: self.format.ending(),
            });
        }
        match &self.origin {
            Origin::Lines(lines) => jsonl::write(&self.path, lines, layout, advantage, out),
            Origin::Tensors {
                tensors,
                width,
                wide,
            } => {
                let spread = Spread::new(&self.batch, advantage, *width, *wide);
                spread.check(out)?;
                match self.format {
                    Format::Npz => padded::write_npz(&self.path, tensors, &spread, out),
                    _ => padded::write_safetensors(&self.path, tensors, &spread, out),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Jsonl,
    Safetensors,
    Npz,
}

impl Format {
    fn of(path: &Path) -> Result<Format, ReadError> {
        let ending = path
            .extension()
            .map(|ending| ending.to_string_lossy().to_lowercase());
        let advice = match ending.as_deref() {
            Some("jsonl" | "ndjson") => return Ok(Format::Jsonl),
            Some("safetensors") => return Ok(Format::Safetensors),
            Some("npz") => return Ok(Format::Npz),
            Some("json") => {
                ": write one object a line (`jq -c '.[]' rollouts.json > rollouts.jsonl`)"
            }
            Some("parquet" | "arrow" | "csv" | "tsv") => {
                ": write it as JSON lines (pandas: `df.to_json(\"rollouts.jsonl\", orient=\"records\", lines=True)`)"
            }
            Some("pt" | "pth" | "bin" | "ckpt") => {
                ": write its tensors with `safetensors.torch.save_file(batch, \"rollouts.safetensors\")`"
            }
            Some("npy") => {
                ": put the arrays in one file (`numpy.savez(\"rollouts.npz\", rewards=..., index=...)`)"
            }
            Some("pkl" | "pickle") => {
                ": write its arrays with `numpy.savez` or its rows as JSON lines"
            }
            Some("gz" | "zst" | "xz" | "bz2" | "zip") => ": unpack it first",
            _ => "",
        };
        // What is not there has no format either, and that is what matters.
        if let Err(source) = std::fs::metadata(path) {
            return Err(ReadError::Io {
                path: path.to_path_buf(),
                source,
            });
        }
        let found = match ending {
            Some(ending) => format!("`.{ending}` is no format of rollouts"),
            None => "its name has no ending that says what it is".to_string(),
        };
        Err(ReadError::Extension {
            path: path.to_path_buf(),
            found,
            advice,
        })
    }

    fn ending(self) -> &'static str {
        match self {
            Format::Jsonl => ".jsonl",
            Format::Safetensors => ".safetensors",
            Format::Npz => ".npz",
        }
    }
}
