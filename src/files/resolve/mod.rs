//! Finds the meaning of a file's columns: groups, tokens that count, columns of the batch, and unused columns.
//!
//! Lines and tensors are treated alike: a list of numbers or a tensor [B, T] has a value per token; a number or a tensor [B] has
//! a value per response.

mod groups;
mod lengths;
mod level;
mod odd;
mod rewards;
mod summands;

use std::collections::{BTreeSet, HashMap};
use std::mem::take;
use std::sync::Arc;

use super::added::Whole;
use super::messages::{Choice, Choices, TextKind};
use super::options::{Dtype, ReadOptions};
use super::padded;
use super::place::{Place, Result};
use super::schema::{FileKind, REJECTED, Reading, Role, Schema, role};
use super::table::{ColumnData, FileColumn, Table};
use crate::batch::column_names::{self, ADVANTAGES};
use crate::batch::{Batch, BatchBuilder, FloatBuffer, Level, SOLUTIONS, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::number_text::counted;

/// The maximum number of unknown fields that get a note of their own, because each line of a file can have a new unknown field.
const SHOWN: usize = 5;

/// A batch from a file, with the data needed to write an advantage to a copy of that file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rollouts {
    /// The columns and their layout.
    pub batch: Batch,
    /// Notes on the reader's decisions and on the fields that it skipped, because it must not decide anything silently.
    pub notes: Vec<Diagnostic>,
    /// The unit of the batch's tokens: `token`, or `word` if lengths count the words of completions.
    pub unit: &'static str,
    pub(super) place: Arc<Place>,
    /// All responses of the file, if responses were omitted.
    pub(super) whole: Option<Whole>,
    /// Whether the file has tensors [B, T].
    pub(super) is_padded: bool,
    pub(super) is_f64: bool,
}

/// The state of converting the columns of a file to a batch.
#[derive(Default)]
struct Resolving<'a> {
    schema: Arc<Schema>,
    options: ReadOptions<'a>,
    place: Arc<Place>,
    /// The step of a batch that advlab saved.
    saved_step: Option<u64>,
    responses: usize,
    texts: Vec<FileColumn>,
    /// The columns with a number per response.
    numbers: Vec<FileColumn>,
    /// The columns with a number per token.
    arrays: Vec<FileColumn>,
    /// The field whose words would have been counted as lengths, and the reason why they are not counted.
    no_length: Option<(String, String)>,
    /// The unit of lengths: `token`, or `word`.
    unit: &'static str,
    /// Whether the file has tensors [B, T].
    is_padded: bool,
    /// The responses that have no reward.
    unscored: BTreeSet<usize>,
    /// The responses that the trainer rejected.
    rejected: BTreeSet<usize>,
    /// The fields whose sum is the reward.
    summands: Vec<String>,
    notes: Vec<String>,
    /// The number of unknown fields that are not used.
    unknown: usize,
}

/// Makes a batch of a reader's table.
pub(super) fn rollouts(table: Table, options: &ReadOptions) -> Result<Rollouts, Diagnostics> {
    let place = Arc::new(table.place);
    let mut resolving = Resolving {
        schema: table.schema.clone(),
        options: *options,
        place: place.clone(),
        saved_step: table.step,
        unit: "token",
        notes: table.schema.notes.clone(),
        ..Resolving::default()
    };
    let mut columns = resolving.readings(table.columns)?;
    let groups = resolving.groups(&mut columns)?;
    resolving.responses = groups.len();
    for column in columns {
        resolving.sort(column)?;
    }
    let tokens = resolving.tokens()?;
    let (groups, step) = resolving.of_steps(groups)?;
    resolving.find_summands(&groups);
    let mut builder = Batch::builder().groups(groups).step(step);
    if let Some(tokens) = tokens {
        resolving.note_bare(&tokens);
        builder = builder.tokens(tokens);
    }
    let is_wide = |column: &FileColumn| match &column.data {
        ColumnData::Tensor(tensor) => tensor.dtype == safetensors::Dtype::F64,
        ColumnData::Lists(_) => true,
        _ => false,
    };
    // Arrays that are not read count here too, because the precision of the batch must not depend on the recipe.
    let is_column = |column: &&FileColumn| column.reading.role != Role::Mask;
    let mut arrays = resolving.arrays.iter().filter(is_column).peekable();
    let has_arrays = arrays.peek().is_some();
    let is_f64 = match options.dtype {
        Some(dtype) => dtype == Dtype::F64,
        None if has_arrays => arrays.any(is_wide),
        None => resolving.numbers.iter().any(is_wide),
    };
    let (builder, arrays) = resolving.add_columns(builder)?;
    let built = builder.build_located();
    let mut batch = built.map_err(|(response, error)| place.error(response, error))?;
    if has_arrays {
        batch.is_f64 = is_f64;
    }
    resolving.fill_references(&mut batch);
    resolving.note_references(&batch)?;
    if let Some(more @ 1..) = resolving.unknown.checked_sub(SHOWN) {
        let more = counted(more, "more field");
        resolving.notes.push(format!("also left out: {more}"));
    }
    let whole = resolving.without_unscored(&mut batch);
    let mut rollouts = Rollouts {
        notes: Vec::new(),
        unit: resolving.unit,
        is_padded: resolving.is_padded,
        place,
        whole,
        is_f64,
        batch,
    };
    let mut notes = resolving.notes;
    for reading in arrays {
        notes.extend(rollouts.notes_on_values(&reading, table.schema.kind, options.dtype)?);
    }
    rollouts.notes = notes.into_iter().map(Diagnostic::note).collect();
    Ok(rollouts)
}

impl Resolving<'_> {
    /// Returns a column for each name under which the schema reads a field.
    fn readings(&mut self, columns: Vec<FileColumn>) -> Result<Vec<FileColumn>> {
        let names = self.schema.clone();
        let has_newer = names.kind != FileKind::Lines
            && columns.iter().any(|column| column.name() == ADVANTAGES);
        let mut seen: HashMap<String, String> = HashMap::new();
        let mut all = Vec::new();
        for column in columns {
            let name = column.name();
            let readings = names.of(name);
            if readings.is_empty()
                && let Some(Reading { ours, theirs, .. }) = names.reading(names.own(name))
            {
                let is_reference = SOLUTIONS.contains(&&**ours);
                let column = format!("`{ours}`");
                let what = if is_reference {
                    "the reference"
                } else {
                    &column
                };
                self.left_out(name, &format!("{what} is read from `{theirs}`"));
            }
            // A copy of a run's batch has two advantages: the run's, and a newer one that was added to the copy.
            if name == "advantage" && has_newer {
                self.left_out(name, "the newer `advantages` is read instead");
                continue;
            }
            for Reading { ours, .. } in &readings {
                if let Some(first) = seen.insert(ours.clone(), name.to_string()) {
                    let what = format!("tensors `{first}` and `{name}` are both read as `{ours}`");
                    let help =
                        format!("choose one with `--map {ours}={first}` or `--map {ours}={name}`");
                    let error = Diagnostic::error(what).with_help(help);
                    return Err(self.place.error(None, error));
                }
            }
            let columns = std::iter::repeat_n(column, readings.len()).zip(readings);
            all.extend(columns.map(|(column, reading)| FileColumn { reading, ..column }));
        }
        Ok(all)
    }

    fn find(&self, ours: &str) -> Option<&FileColumn> {
        self.numbers
            .iter()
            .find(|column| column.reading.ours == ours)
    }

    fn left_out(&mut self, field: &str, why: &str) {
        let ours = column_names::ours(field).unwrap_or(field);
        if role(ours) == Role::Any {
            self.unknown += 1;
            if self.unknown > SHOWN {
                return;
            }
        }
        self.notes.push(format!("`{field}` is left out: {why}"));
    }

    /// Adds a column to the texts, numbers or arrays. Any other column is an error if it is needed, and is skipped otherwise.
    fn sort(&mut self, column: FileColumn) -> Result<()> {
        let role = column.reading.role;
        let is_kept = matches!(role, Role::Any | Role::Completion) && !self.is_score(&column);
        if column.is_text() && is_kept {
            let mut choices = Choices::default();
            if column.keep.kind == TextKind::Reference && column.first.2 == "an object" {
                choices.add(Choice::FieldOfObject, 1, self.place.name_of(0));
            }
            let is_used = column.keep.counts || self.schema.references.is_some();
            if let Some((first, count)) = column.blank()
                && is_used
                && role == Role::Completion
            {
                choices.add(Choice::NoCompletion, count, self.place.name_of(first));
            }
            self.notes.extend(choices.notes());
            self.texts.push(column);
            return Ok(());
        }
        match self.level(&column)? {
            Some(Level::Token) => self.arrays.push(column),
            Some(_) => self.numbers.push(column),
            None => {}
        }
        Ok(())
    }

    /// Adds the columns to the builder. Also returns the readings of token columns, whose values are checked later.
    fn add_columns(&mut self, mut builder: BatchBuilder) -> Result<(BatchBuilder, Vec<Reading>)> {
        for column in take(&mut self.texts) {
            if let (ColumnData::Texts(texts, _), true) = (column.data, column.keep.values) {
                builder = builder.text_buffer(column.reading.ours, texts.into());
            }
        }
        if let Some(mut rewards) = self.sum_of(&self.summands) {
            let reading = Reading::new("reward", "reward");
            self.score(&reading, &mut rewards)?;
            builder = builder.response("reward", rewards);
        }
        let (numbers, arrays) = (take(&mut self.numbers), take(&mut self.arrays));
        let mut all = numbers.iter().chain(&arrays);
        let has_reward = all.any(|column| column.reading.ours.ends_with("reward"));
        for column in numbers {
            if matches!(column.reading.role, Role::Group | Role::Step) {
                continue;
            }
            let mut reading = column.reading.clone();
            let mut values = column.numbers()?;
            if reading.ours == REJECTED {
                let is_rejected = |&at: &usize| self.schema.rejects(values[at]);
                self.rejected = (0..values.len()).filter(is_rejected).collect();
                continue;
            }
            let is_verdict = reading.ours == "correct";
            let is_unread = has_reward && is_verdict && !self.schema.reads("correct");
            if let Some(at) = values.iter().position(|x| x.is_nan() && is_unread) {
                let at = self.place.name_of(at);
                self.left_out(&reading.theirs, &format!("it has no value in {at}"));
                continue;
            }
            // verl's `acc` is a verdict in some runs, and a fraction in other runs.
            let is_acc = has_reward && is_verdict && reading.theirs == "acc" && !reading.asked;
            if is_acc && values.iter().any(|x| ![0.0, 1.0].contains(x)) {
                reading.ours = "acc".to_string();
            }
            if matches!(&*reading.ours, "reward" | "correct") {
                self.score(&reading, &mut values)?;
            }
            builder = builder.response(reading.ours, values);
        }
        let mut added = Vec::new();
        for column in arrays {
            if column.reading.role != Role::Mask && column.keep.values {
                let values = token_values(column.data, self.options.dtype)?;
                builder = builder.token(column.reading.ours.clone(), values);
                added.push(column.reading);
            }
        }
        Ok((builder, added))
    }
}

/// Returns the numbers of a column of arrays.
fn token_values(data: ColumnData, dtype: Option<Dtype>) -> Result<TokenValues> {
    match data {
        ColumnData::Tensor(tensor) => {
            let shape = (tensor.shape[0], tensor.shape[1]);
            let is_wide = dtype.map_or(padded::is_wide(tensor.dtype), |dtype| dtype == Dtype::F64);
            let numbers: FloatBuffer = if is_wide {
                tensor.numbers::<f64>()?.into()
            } else {
                tensor.numbers::<f32>()?.into()
            };
            let values = TokenValues::padded(numbers, shape, shape.1);
            Ok(values
                .unwrap_or_else(|| unreachable!("there are as many numbers as the shape requires")))
        }
        ColumnData::Lists(lists) => {
            let numbers = if dtype == Some(Dtype::F32) {
                FloatBuffer::F32(lists.values.iter().map(|&value| value as f32).collect())
            } else {
                lists.values.into()
            };
            Ok(TokenValues::ragged(numbers, lists.starts.into()))
        }
        _ => unreachable!("a column of tokens has arrays"),
    }
}
