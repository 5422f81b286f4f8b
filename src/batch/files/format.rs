//! The kinds of files, by the endings of their names.

use std::path::Path;

use super::cannot_be_read;
use crate::diagnostic::Diagnostic;

/// A kind of file that rollouts are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Lines,
    Safetensors,
    Npz,
}

/// The endings of files, each with what it holds, and whether messages list it.
const ENDINGS: [(&str, Format, bool); 9] = [
    (".jsonl", Format::Lines, true),
    (".jsonl.gz", Format::Lines, true),
    (".jsonl.zst", Format::Lines, true),
    (".parquet", Format::Lines, true),
    (".safetensors", Format::Safetensors, true),
    (".npz", Format::Npz, true),
    (".ndjson", Format::Lines, false),
    (".ndjson.gz", Format::Lines, false),
    (".ndjson.zst", Format::Lines, false),
];

/// Whether the name of a file says that it holds rollouts.
pub fn is_rollouts(path: &Path) -> bool {
    Format::named(path).is_some()
}

impl Format {
    /// The format that the name of a file says.
    pub(super) fn named(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let mut endings = ENDINGS.iter();
        let known = endings.find(|(ending, ..)| name.ends_with(ending));
        known.map(|(_, format, _)| *format)
    }

    /// The endings of formats, for messages.
    pub(super) fn endings(is: impl Fn(Format) -> bool) -> String {
        let endings = ENDINGS.iter();
        let endings = endings.filter(|(_, format, is_listed)| *is_listed && is(*format));
        let endings: Vec<&str> = endings.map(|(ending, ..)| *ending).collect();
        endings.join(", ")
    }

    /// Refuses the name of another kind of file for a copy to which something is added.
    pub(super) fn check_copy(self, added: &str, out: &Path) -> Result<(), Diagnostic> {
        // A name without an ending may be a pipe; another ending is another kind of file, or somebody's recipe.
        let is_other = match Format::of(out) {
            Ok(format) => format != self,
            Err(_) => out.extension().is_some(),
        };
        if !is_other {
            return Ok(());
        }
        let what =
            format!("{added} is added to a copy of the input, which is another kind of file");
        let endings = Format::endings(|format| format == self);
        let help = format!(
            "give the output a name that ends in {endings}; `advlab convert` makes other kinds"
        );
        Err(Diagnostic::error(what).with_help(help))
    }

    pub(super) fn of(path: &Path) -> Result<Format, Diagnostic> {
        if let Some(format) = Format::named(path) {
            return Ok(format);
        }
        if path.is_dir() {
            return Ok(Format::Lines);
        }
        if path.starts_with("/dev/fd") || matches!(path.to_str(), Some("-" | "/dev/stdin")) {
            let error = Diagnostic::error("rollouts are read from files, not from a stream");
            let help = "write them to a file first: `COMMAND > rollouts.jsonl`";
            return Err(error.in_file(path).with_help(help));
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
