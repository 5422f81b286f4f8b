//! Finds out what the columns of a file mean: which is the group, which tokens count, what becomes a column of the batch
//! and what is left out. It is the same for all formats, but for how many tokens a response has: see [`ragged`] and
//! [`padded`].

mod notes;
mod padded;
mod ragged;

use std::collections::HashMap;

use rayon::prelude::*;

use self::notes::Notes;
use super::names::{Reading, Role};
use super::raw::{Arrays, Header, Origin, Raw, Values, number};
use super::{Dtype, Format, Progress, ReadOptions, Rollouts};
use crate::batch::layout::Tokens;
use crate::batch::{Batch, BatchBuilder, GroupId, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Makes a batch of what a reader gives.
pub(super) fn rollouts(
    raw: Raw,
    options: &ReadOptions,
    progress: &Progress,
    format: &'static Format,
) -> Result<Rollouts, Diagnostics> {
    let mut inference = Inference {
        responses: 0,
        readings: Vec::new(),
        tokens: None,
        no_length: None,
        width: None,
        is_f64: options.dtype == Some(Dtype::F64),
        notes: Notes::new(raw.names.note.clone()),
        raw,
        options,
        progress,
    };
    inference.bind()?;
    let batch = inference.batch()?;
    if batch.has("groups") {
        // `batch.groups` is the list of the groups' batches. No file gives a column named `step`.
        let mut map = options.map.iter();
        let mapped = map.find(|mapping| mapping.ours == "groups");
        let field = mapped.map_or("groups", |mapping| &mapping.theirs);
        inference.notes.add(format!(
            "`{field}` is a column that scripts cannot reach, since `batch.groups` is the list of the groups: `--map other={field}` gives it another name"
        ));
    }
    Ok(Rollouts {
        batch,
        notes: inference.notes.finish(),
        path: inference.raw.path,
        format,
        origin: inference.raw.origin,
        width: inference.width.map(|(width, _)| width),
        is_f64: inference.is_f64,
    })
}

/// A file while its columns find their meaning.
struct Inference<'a> {
    raw: Raw,
    options: &'a ReadOptions<'a>,
    progress: &'a Progress<'a>,
    notes: Notes,
    responses: usize,
    /// What is still to become part of the batch, each with the index of its raw column.
    readings: Vec<(Reading, usize)>,
    tokens: Option<Tokens>,
    /// The completion whose words would be the lengths, and why they are not.
    no_length: Option<(String, String)>,
    /// T of tensors [B, T], and the tensor that says so.
    width: Option<(usize, String)>,
    /// Whether a response column is f64 in the file, or is asked to be.
    is_f64: bool,
}

/// The values of a raw column under one of our names.
enum Given {
    Responses(Vec<f64>),
    /// Token values, those that do not count included: rows of their own length, or padded ones.
    Tokens(Cells),
    /// It was left out.
    Nothing,
}

impl Inference<'_> {
    /// Finds the names of all columns, and leaves out those that become nothing.
    fn bind(&mut self) -> Result<(), Diagnostic> {
        let mut seen: HashMap<String, String> = HashMap::new();
        for index in 0..self.raw.columns.len() {
            let name = self.raw.columns[index].name.clone();
            if let Some(why) = self.raw.names.shadowed(&name) {
                self.notes.left_out(&name, &why);
            }
            for reading in self.raw.names.of(&name) {
                let ours = &reading.ours;
                // A copy that was written of a run's batch has the run's own and a newer one.
                if name == "advantage" && self.has_newer_advantage() {
                    self.notes
                        .left_out(&name, "`advantage` is read from `advantages`");
                    continue;
                }
                if let Some(first) = seen.insert(ours.clone(), name.clone()) {
                    let what = format!("tensors `{first}` and `{name}` are both read as `{ours}`");
                    let help = format!(
                        "say which it is, with `--map {ours}={first}` or `--map {ours}={name}`"
                    );
                    let error = Diagnostic::error(what).with_help(help);
                    return Err(error.in_file(&self.raw.path));
                }
                let is_usable = match (&self.raw.origin, reading.role) {
                    (Origin::Lines { .. }, _) => self.is_whole(&reading, index)?,
                    (Origin::Tensors(_), Role::Completion) => {
                        self.notes
                            .left_out(&name, "strings are read from JSONL alone");
                        false
                    }
                    (Origin::Tensors(_), _) => true,
                };
                if is_usable {
                    self.readings.push((reading, index));
                }
            }
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<Batch, Diagnostics> {
        let mut groups = self.groups()?;
        self.responses = groups.len();
        match self.raw.origin {
            Origin::Lines { .. } => self.ragged_tokens()?,
            Origin::Tensors(_) => self.padded_tokens()?,
        }
        let mut batch = Batch::builder();
        match (self.steps()?, &self.raw.header) {
            // The same prompt may come again in another step: a dump numbers its prompts from 0 in each.
            (Some(steps), _) if steps.iter().any(|&step| step != steps[0]) => {
                let is_dump = self.raw.names.are_dumped;
                if is_dump {
                    groups = split(groups, &steps);
                }
                self.notes.steps(is_dump);
            }
            (Some(steps), _) => batch = batch.step(steps.first().map_or(0, |&step| step as u64)),
            (None, &Header::Saved { step, .. }) => batch = batch.step(step),
            (None, _) => {}
        }
        let readings = std::mem::take(&mut self.readings);
        for (at, (reading, index)) in readings.iter().enumerate() {
            let is_last = readings[at + 1..].iter().all(|(_, other)| other != index);
            batch = self.column(batch, reading, *index, is_last)?;
        }
        if let Some(tokens) = self.tokens.take() {
            self.notes.no_tokens(&tokens, &self.raw.origin);
            batch = batch.tokens(tokens);
        }
        batch
            .groups(groups)
            .build_located()
            .map_err(|(response, error)| self.raw.error(response, error).into())
    }

    /// The reading of one of our names, and the index of its column.
    fn find(&self, ours: &str) -> Option<(Reading, usize)> {
        let mut readings = self.readings.iter();
        readings.find(|(reading, _)| reading.ours == ours).cloned()
    }

    /// Adds a column to the batch, as what its name and its values make it; `is_last` where nothing else reads it.
    fn column(
        &mut self,
        batch: BatchBuilder,
        reading: &Reading,
        index: usize,
        is_last: bool,
    ) -> Result<BatchBuilder, Diagnostic> {
        if matches!(
            reading.role,
            Role::Group | Role::Mask | Role::Step | Role::Completion
        ) {
            return Ok(batch);
        }
        let given = match &self.raw.columns[index].values {
            Values::Tensor(tensor) => {
                let tensor = tensor.clone();
                self.tensor(reading, &tensor)?
            }
            _ => self.take_lines(index, is_last),
        };
        match given {
            Given::Nothing => Ok(batch),
            Given::Responses(values) => Ok(batch.response(&reading.ours, values)),
            Given::Tokens(cells) => {
                self.check_tokens(reading, &cells)?;
                Ok(cells.add_to(batch, &reading.ours, self.options.dtype))
            }
        }
    }

    /// The group of each response.
    fn groups(&mut self) -> Result<Vec<GroupId>, Diagnostic> {
        let Some((reading, index)) = self.find("group") else {
            unreachable!("a file without groups has been refused by its names");
        };
        match &mut self.raw.columns[index].values {
            Values::Ids { ids, .. } => Ok(ids.clone()),
            Values::Tensor(tensor) => {
                let tensor = tensor.clone();
                self.groups_of_tensor(&reading, &tensor)
            }
            _ => unreachable!("`is_whole` has seen that groups are ids"),
        }
    }

    /// The training step of each response, where there is one.
    fn steps(&mut self) -> Result<Option<Vec<f64>>, Diagnostic> {
        const EXPECTED: &str = "the training step, a whole number from 0 to below 2^53 (`--map NAME=step` reads it as a column)";
        let Some((reading, index)) = self.find("step") else {
            return Ok(None);
        };
        let column = &self.raw.columns[index];
        let (steps, is_one) = match &column.values {
            Values::Numbers(steps) => (steps.clone(), false),
            Values::Tensor(tensor) => {
                let is_saved = matches!(self.raw.header, Header::Saved { .. });
                if is_saved || !tensor.info.is_number() || tensor.info.shape.len() > 1 {
                    let what = tensor.describe();
                    let why = format!("the step is one number, and this is {what}");
                    self.notes.left_out(&reading.theirs, &why);
                    return Ok(None);
                }
                (tensor.numbers(self.progress)?, tensor.info.shape.is_empty())
            }
            _ => return Ok(None),
        };
        // From 2^53 on a float no longer tells neighbours apart.
        let is_step =
            |value: f64| value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value);
        match steps.iter().position(|&step| !is_step(step)) {
            None => Ok(Some(steps)),
            Some(at) => {
                let response = (!is_one).then_some(at);
                let found = number(steps[at]);
                Err(self
                    .raw
                    .wrong(&reading.theirs, response, None, found, EXPECTED))
            }
        }
    }

    fn has_newer_advantage(&self) -> bool {
        let mut columns = self.raw.columns.iter();
        let is_padded = matches!(self.raw.origin, Origin::Tensors(_));
        is_padded && columns.any(|column| column.name == "advantages")
    }

    /// NaN that counts makes every result of its group NaN: better said of the file than of the result.
    fn check_tokens(&mut self, reading: &Reading, cells: &Cells) -> Result<(), Diagnostic> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        let is_f32 = self.options.dtype == Some(Dtype::F32);
        let is_stray = |value: f64| !value.is_finite() || is_f32 && (value as f32).is_infinite();
        // Half precision may round a log-prob of 0 up by as much.
        let most = if reading.ours.ends_with("logp") {
            1e-3
        } else {
            f64::INFINITY
        };
        let is_positive = |value: f64| value > most;
        let is_odd = |value| is_stray(value) | is_positive(value);
        if cells.find(tokens, true, is_odd).is_empty() {
            return self.check_masked(reading, cells);
        }
        let strays = cells.find(tokens, true, is_stray);
        if let Some(&(response, token, _)) = strays.first() {
            let is_saved = matches!(self.raw.header, Header::Saved { .. });
            if reading.role == Role::Token && !is_saved {
                let found = match (cells, cells.get(response, token)) {
                    (Cells::Ragged(_), value) if value.is_nan() => "NaN or null".to_string(),
                    (_, value) if value.is_finite() => format!("{value}, too large for f32,"),
                    (_, value) => value.to_string(),
                };
                let expected = "a finite number where the mask is 1";
                let (response, token) = (Some(response), Some(token));
                return Err(self
                    .raw
                    .wrong(&reading.theirs, response, token, found, expected));
            }
            let count = strays.iter().map(|(.., count)| count).sum();
            let first = format!("{}, token {token}", self.raw.origin.name_of(response));
            self.notes.not_finite(&reading.ours, count, &first);
        }
        let positive = cells.find(tokens, true, is_positive);
        if let Some(&(response, token, _)) = positive.first() {
            let count = positive.iter().map(|(.., count)| count).sum();
            let first = format!("{}, token {token}", self.raw.origin.name_of(response));
            self.notes.positive(&reading.theirs, count, &first);
        }
        self.check_masked(reading, cells)
    }

    /// A reward that does not count was meant to.
    fn check_masked(&mut self, reading: &Reading, cells: &Cells) -> Result<(), Diagnostic> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        if reading.ours == "token_reward" {
            // NaN there is what padding may be.
            let lost = cells.find(tokens, false, |value| value.is_finite() && value != 0.0);
            if let Some(&(response, token, _)) = lost.first() {
                let first = format!("{}, token {token}", self.raw.origin.name_of(response));
                self.notes
                    .masked_reward(&reading.theirs, lost.len(), &first);
            }
        }
        Ok(())
    }
}

/// The groups, those of different steps apart.
fn split(groups: Vec<GroupId>, steps: &[f64]) -> Vec<GroupId> {
    let groups = groups.into_iter().zip(steps);
    groups
        .map(|(id, step)| match id {
            GroupId::Number(number) => format!("step {step}, {number}").into(),
            GroupId::Text(text) => format!("step {step}, {text}").into(),
        })
        .collect()
}

/// Token values as a file has them, those that do not count included.
enum Cells {
    Ragged(Arrays),
    Padded(TokenValues),
}

impl Cells {
    /// Adds the values to a batch; those of lines in the precision that is asked for.
    fn add_to(self, batch: BatchBuilder, name: &str, dtype: Option<Dtype>) -> BatchBuilder {
        match self {
            Cells::Padded(values) => batch.token(name, values),
            Cells::Ragged(Arrays { starts, values }) if dtype == Some(Dtype::F32) => {
                let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
                batch.ragged_rows(name, starts, values.into())
            }
            Cells::Ragged(Arrays { starts, values }) => {
                batch.ragged_rows(name, starts, values.into())
            }
        }
    }

    fn get(&self, response: usize, token: usize) -> f64 {
        match self {
            Cells::Ragged(arrays) => arrays.row(response)[token],
            Cells::Padded(TokenValues::F16(array)) => array.get(response, token).into(),
            Cells::Padded(TokenValues::Bf16(array)) => array.get(response, token).into(),
            Cells::Padded(TokenValues::F32(array)) => array.get(response, token).into(),
            Cells::Padded(TokenValues::F64(array)) => array.get(response, token),
            Cells::Padded(TokenValues::Compact(_)) => f64::NAN,
        }
    }

    /// The responses with values that are `wanted`, among those of tokens that count or among the others: the response,
    /// the column of the first of its values, and how many.
    fn find(
        &self,
        tokens: &Tokens,
        counts: bool,
        wanted: impl Fn(f64) -> bool + Copy + Send + Sync,
    ) -> Vec<(usize, usize, usize)> {
        let of_response = |response: usize| {
            let runs = tokens.runs(response).iter().map(|run| run.columns());
            let mut ranges: Vec<_> = runs.collect();
            if !counts {
                let starts = ranges.iter().map(|range| range.end);
                let starts = std::iter::once(0).chain(starts);
                let ends = ranges.iter().map(|range| range.start);
                let ends = ends.chain([tokens.row_length(response)]);
                ranges = starts.zip(ends).map(|(start, end)| start..end).collect();
            }
            let (mut first, mut count) = (None, 0);
            for range in ranges {
                if let Some((at, found)) = self.scan(response, range.clone(), wanted) {
                    first.get_or_insert(at);
                    count += found;
                }
            }
            Some((response, first?, count))
        };
        let responses = (0..tokens.responses()).into_par_iter();
        responses.filter_map(of_response).collect()
    }

    /// The column of the first value of a response's columns that is `wanted`, and how many are.
    fn scan(
        &self,
        response: usize,
        columns: std::ops::Range<usize>,
        wanted: impl Fn(f64) -> bool + Copy,
    ) -> Option<(usize, usize)> {
        macro_rules! padded {
            ($array:expr) => {
                match $array.row(response, columns.clone()) {
                    Some(row) => scan(row.iter().map(|&value| f64::from(value)), wanted),
                    None => {
                        let row = columns.clone().map(|column| $array.get(response, column));
                        scan(row.map(f64::from), wanted)
                    }
                }
            };
        }
        let (first, count) = match self {
            Cells::Ragged(arrays) => scan(
                arrays.row(response)[columns.clone()].iter().copied(),
                wanted,
            ),
            Cells::Padded(TokenValues::F16(array)) => padded!(array),
            Cells::Padded(TokenValues::Bf16(array)) => padded!(array),
            Cells::Padded(TokenValues::F32(array)) => padded!(array),
            Cells::Padded(TokenValues::F64(array)) => padded!(array),
            Cells::Padded(TokenValues::Compact(_)) => None,
        }?;
        Some((columns.start + first, count))
    }
}

/// The index of the first value that is `wanted`, and how many are. Most often none is: that pass has no branches.
fn scan(
    values: impl Iterator<Item = f64> + Clone,
    wanted: impl Fn(f64) -> bool,
) -> Option<(usize, usize)> {
    if !values.clone().fold(false, |any, value| any | wanted(value)) {
        return None;
    }
    let first = values.clone().position(&wanted)?;
    Some((first, values.filter(|&value| wanted(value)).count()))
}
