//! Reads rollouts from files, and writes them back with the advantage added.
//!
//! A file holds lines of JSON, in some form ([`open`]), rows of parquet ([`mod@parquet`]), or tensors ([`padded`]). A reader
//! makes a [`table`] of its columns, and [`meaning`] makes a batch of the table. [`names`] and [`trainers`] know the formats of
//! trainers' files, [`messages`] which text is an answer. All that is written is [`new_columns`], added to a copy of the file, or a
//! batch that [`padded`] saves.

mod format;
mod json;
mod lines;
mod meaning;
mod messages;
mod names;
mod new_columns;
mod odd;
mod open;
mod origin;
mod padded;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "no_parquet.rs"]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet_columns;
mod room;
mod table;
mod tokens;
mod trainers;
#[cfg(feature = "answers")]
mod verify;
mod words;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

pub use format::{is_rollouts, step_of, steps};
pub use new_columns::AddedColumn;
#[cfg(feature = "answers")]
pub use verify::{Verified, verify_lines};
pub use words::{Tokenize, spans};

use self::format::{Format, is_parquet};
use self::lines::{Blocks, Values};
use self::names::{Names, Schema};
use self::new_columns::{NewColumn, spread};
use self::origin::{FileOrigin, Progress, changed};
use self::parquet::AddedValues;
use self::table::Table;
use crate::batch::{Batch, Computed, Layout, Level};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::replace::Replacement;

type Result<T, E = Diagnostic> = std::result::Result<T, E>;

/// How to read a file.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Names for fields that the file calls otherwise.
    pub map: &'a [Mapping],
    /// The precision of token columns; if it is `None`, the file's (f64 for JSONL).
    pub dtype: Option<Dtype>,
    /// Reads tensors [B, T], arrays and texts of these columns only, such as [`Recipe::columns`](crate::Recipe::columns); of
    /// all columns if it is `None`. The lengths of responses and the precision of the batch do not depend on it.
    pub columns: Option<&'a BTreeSet<String>>,
    /// What a response is without a reward.
    pub unscored: Unscored,
    /// Counts the tokens of completions if nothing else says how long responses are; without it, words are counted.
    pub tokenizer: Option<&'a Arc<dyn Tokenize>>,
    /// Called from time to time with the number of bytes read and the total.
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

/// What becomes of responses whose `reward` or `correct` is null or NaN, as that of a verifier that timed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unscored {
    /// They are an error.
    #[default]
    Error,
    /// Their reward is 0.
    Zero,
    /// They are not in the batch. A copy with columns added has them, with 0.
    LeaveOut,
}

/// A precision of token columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// A batch from a file, with the data needed to write an advantage to a copy of that file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rollouts {
    /// The columns and their layout.
    pub batch: Batch,
    /// Notes on the reader's decisions and on the fields that it left out: it decides nothing silently.
    pub notes: Vec<Diagnostic>,
    /// The unit of the batch's tokens: `token`, or `word` if lengths count the words of completions.
    pub unit: &'static str,
    origin: Arc<FileOrigin>,
    /// If responses were left out: the layout of all, and which of them are in the batch.
    whole: Option<(Arc<Layout>, Vec<usize>)>,
    /// Whether there are tensors [B, T].
    is_padded: bool,
    is_f64: bool,
}

/// Reads a file of rollouts. Its name gives the format: `.jsonl`, which may be compressed (`.jsonl.gz`, `.jsonl.zst`),
/// `.parquet` or `.safetensors`. A folder is read as all its files of lines together.
///
/// # Errors
/// The file, the line or tensor, the field, what was found and what was expected.
pub fn read(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Rollouts, Diagnostics> {
    let path = path.as_ref();
    let progress = Progress::new(options.progress);
    let names = |fields: &[_], kind| Names::new(path, options, fields, kind);
    let rollouts = meaning::rollouts(read_table(path, &names, &progress)?, options)?;
    progress.finish();
    Ok(rollouts)
}

fn read_table(path: &Path, schema: Schema, progress: &Progress) -> Result<Table> {
    match Format::of(path)? {
        Format::Safetensors => padded::read(path, schema),
        Format::Lines if is_parquet(path) => parquet::read(path, schema),
        Format::Lines => lines::read(Blocks::open(path, progress)?, schema),
    }
}

impl Rollouts {
    /// The file that the batch was read from.
    pub fn path(&self) -> &Path {
        &self.origin.path
    }

    /// The line of a response in the file, from 1, if the file has lines.
    pub fn line(&self, response: usize) -> Option<usize> {
        self.origin.line(self.row(response))
    }

    /// The place of a response in the file.
    fn row(&self, response: usize) -> usize {
        (self.whole.as_ref()).map_or(response, |(_, kept)| kept[response])
    }

    /// Writes a copy of the file with the advantage added: in lines the field `advantage`, a number or an array (0
    /// where the mask is 0); in padded files the tensor `advantages` [B, T]. `out` may be the file that was read.
    ///
    /// If a dump holds several responses per line, or in another order (ROLL, NeMo-RL, prime-rl, AReaL), the copy has one line
    /// per response, as they were read.
    ///
    /// # Errors
    /// The copy cannot be written; nothing half-written is left, and an existing file at `out` stays unchanged.
    pub fn write_advantage(
        &self,
        out: impl AsRef<Path>,
        advantage: &Computed,
    ) -> Result<(), Diagnostics> {
        self.write_outputs(
            out.as_ref(),
            &[(AddedColumn::Advantage, advantage)],
            &|_, _| {},
        )
    }

    /// As [`Rollouts::write_advantage`], with any of the columns that a recipe gives. An existing field or tensor of that name
    /// is replaced. `progress` is called from time to time with the numbers of bytes and lines copied so far.
    ///
    /// # Errors
    /// As [`Rollouts::write_advantage`].
    pub fn write_outputs(
        &self,
        out: &Path,
        columns: &[(AddedColumn, &Computed)],
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), Diagnostics> {
        for (column, values) in columns {
            let (found, level) = (values.buffer().len(), values.level());
            let expected = self.batch.layout().size(level);
            if !matches!(level, Level::Response | Level::Token) || found != expected {
                let what = format!(
                    "the {} has {found} values, the batch has {expected} (one for each {level})",
                    column.name()
                );
                return Err(Diagnostic::error(what).in_file(out).into());
            }
        }
        let input = &self.origin.path;
        Format::of(input)?.check_copy("the advantage", out)?;
        format::check_copy("the advantage", input, out)?;
        let origin = &*self.origin;
        let all = columns.iter().map(|(column, values)| match &self.whole {
            Some((layout, kept)) => (*column, Cow::Owned(spread(values, layout, kept))),
            None => (*column, Cow::Borrowed(*values)),
        });
        let all: Vec<(AddedColumn, Cow<Computed>)> = all.collect();
        let added = all.iter().map(|(column, values)| {
            NewColumn::added((*column, values), origin, self.is_padded, self.is_f64)
        });
        let added: Vec<NewColumn> = added.collect();
        for column in &added {
            let checked = column.check(origin);
            checked.map_err(|what| Diagnostic::error(what).in_file(out))?;
        }
        if origin.has_lines() {
            return self.write_lines(out, &added, progress);
        }
        padded::add(origin, &added, out)
    }

    fn write_lines(
        &self,
        out: &Path,
        added: &[NewColumn],
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), Diagnostics> {
        let (input, origin) = (&self.origin.path, &*self.origin);
        if is_parquet(input) {
            origin.check(open::checksum_of_end(input).unwrap_or_default())?;
            let mut file = Replacement::new(out)?;
            let columns = added
                .iter()
                .map(|column| (column.name, AddedValues::Numbers(column)));
            parquet::write_copy(input, &columns.collect::<Vec<_>>(), &mut file)?;
            return file.finish();
        }
        let all = added.first().map_or(0, |column| column.layout.responses());
        let fields: Vec<_> = added
            .iter()
            .map(|column| (column.name, column.shape()))
            .collect();
        let values = |response: usize| -> Values {
            let values = added.iter().map(|column| Some(column.json(response)));
            values.collect()
        };
        let progress = Progress::new(Some(progress));
        let blocks = Blocks::open(input, &progress);
        let mut blocks = blocks.map_err(|error| changed(input, &error.message))?;
        let mut responses = 0..all;
        let values = |_, ()| match responses.next() {
            Some(response) => Ok(values(response)),
            None => Err(changed(input, "it has more lines")),
        };
        blocks.copy(Some(out), &fields, |_| Ok(()), values, Some(origin))?;
        progress.finish();
        Ok(())
    }
}
