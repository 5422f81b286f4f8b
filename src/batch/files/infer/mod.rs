//! Finds out what the columns of a file mean: the groups, the tokens that count, the columns of the batch, and what is
//! left out. It is the same for all formats, but for the number of tokens: see [`ragged`] and [`padded`].

mod notes;
mod padded;
mod ragged;

use std::array;
use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use self::notes::Notes;
use super::names::{Reading, Role};
use super::raw::{Header, Origin, Raw, Values, number};
use super::tensor::Kind;
use super::{Dtype, Format, Progress, ReadOptions, Rollouts};
use crate::batch::column::Given;
use crate::batch::layout::Tokens;
use crate::batch::{Batch, GroupId};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::counted;

const MASK: &str = "1 for a token that counts or 0 for one that does not";

/// Makes a batch of what a reader gives.
pub(super) fn rollouts(
    raw: Raw,
    options: &ReadOptions,
    progress: &Progress,
    format: Format,
) -> Result<Rollouts, Diagnostics> {
    let mut inference = Inference {
        responses: 0,
        readings: Vec::new(),
        texts: Vec::new(),
        tokens: None,
        no_length: None,
        width: None,
        is_f64: options.dtype == Some(Dtype::F64),
        unread: None,
        lacks_texts: false,
        notes: Notes::default(),
        raw,
        options,
        progress,
    };
    inference.bind()?;
    if options.tokenizer.is_some() && inference.find("completion").is_none() {
        let why = match inference.raw.names.count_words {
            true => "there is no `completion` that is text everywhere",
            false => "the file itself says how many tokens a response has",
        };
        inference
            .notes
            .add(format!("the tokenizer counts nothing: {why}"));
    }
    let mut batch = inference.batch()?;
    if inference.raw.names.compares_answers && !batch.is_verifiable() {
        let what = "nothing says how good a response is: there is no reward, and answers cannot be compared";
        let help = "every response needs a `completion` that is text, and a `solution` (or `answer`): all texts, or all numbers";
        let error = Diagnostic::error(what).with_help(help);
        return Err(error.in_file(&inference.raw.path).into());
    }
    let has_tokens = !batch.tokens.is_empty();
    if let Some(is_f64) = inference.unread {
        // Columns that are not read have a say in the precision all the same.
        batch.is_f64 = is_f64 || has_tokens && batch.is_f64;
    }
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
        notes: inference.notes.finish(),
        path: inference.raw.path,
        format,
        origin: inference.raw.origin,
        width: inference.width.map(|(width, _)| width),
        is_f64: if has_tokens || inference.unread.is_some() {
            batch.is_f64
        } else {
            inference.is_f64
        },
        is_partial: inference.unread.is_some() || inference.lacks_texts,
        batch,
    })
}

/// A file while its columns find their meaning.
struct Inference<'a> {
    raw: Raw,
    options: &'a ReadOptions<'a>,
    progress: &'a Progress<'a>,
    notes: Notes,
    responses: usize,
    /// The columns still to become part of the batch, each with the index of its raw column.
    readings: Vec<(Reading, usize)>,
    /// The text columns, each with the index of its raw column.
    texts: Vec<(String, usize)>,
    tokens: Option<Tokens>,
    /// The completion whose words would be the lengths, and why they are not.
    no_length: Option<(String, String)>,
    /// T of tensors [B, T], and the tensor that says so.
    width: Option<(usize, String)>,
    /// Whether a response column is f64 in the file, or is asked to be.
    is_f64: bool,
    /// Whether one of the token columns that nobody asked for is f64; `None` where there are no such columns.
    unread: Option<bool>,
    /// Whether there are strings that nobody asked for.
    lacks_texts: bool,
}

impl Inference<'_> {
    /// Finds the names of all columns, and leaves out those that become nothing.
    fn bind(&mut self) -> Result<(), Diagnostic> {
        if let Some(note) = self.raw.names.note.take() {
            self.notes.add(note);
        }
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
                self.lacks_texts |= self.leaves_out_text(&reading, index);
                if self.raw.columns[index].is_text() && self.raw.names.wants_text(&reading) {
                    self.texts.push((reading.ours.clone(), index));
                }
                if let Values::Tensor(tensor) = &self.raw.columns[index].values
                    && matches!(tensor.info.kind, Kind::String(_))
                    && matches!(tensor.info.shape[..], [_])
                    && matches!(reading.role, Role::Any | Role::Completion)
                {
                    if self.raw.names.wants_text(&reading) {
                        let strings = tensor.strings(self.progress)?.into_iter();
                        let strings = strings.map(Into::into).collect();
                        self.raw.columns[index].texts = Some(strings);
                        self.texts.push((reading.ours.clone(), index));
                    }
                    continue;
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

    /// Whether the batch would have the strings of a column if they were asked for.
    fn leaves_out_text(&self, reading: &Reading, index: usize) -> bool {
        let is_text = match &self.raw.columns[index].values {
            Values::Strings(_) | Values::Words { .. } | Values::Other(_) => true,
            Values::Tensor(tensor) => matches!(tensor.info.kind, Kind::String(_)),
            _ => false,
        };
        is_text
            && matches!(reading.role, Role::Any | Role::Completion)
            && !self.raw.names.wants_text(reading)
    }

    fn has_newer_advantage(&self) -> bool {
        let mut columns = self.raw.columns.iter();
        let is_padded = matches!(self.raw.origin, Origin::Tensors(_));
        is_padded && columns.any(|column| column.name == "advantages")
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
                if self.raw.names.are_dumped {
                    let split = |(id, step): (GroupId, &f64)| {
                        GroupId::from(format!("step {step}, {}", id.name()))
                    };
                    groups = groups.into_iter().zip(&steps).map(split).collect();
                    self.notes.add("the lines come from several steps: responses of one prompt in different steps are different groups".to_string());
                } else {
                    self.notes.add("`step` differs from line to line: the batch has no step, and `step` is no column (`--map NAME=step` makes it one)".to_string());
                }
            }
            (Some(steps), _) => batch = batch.step(steps.first().map_or(0, |&step| step as u64)),
            (None, &Header::Saved { step, .. }) => batch = batch.step(step),
            (None, _) => {}
        }
        let mut readings = std::mem::take(&mut self.readings);
        let roles = [Role::Response, Role::Token, Role::Any];
        readings.retain(|(reading, _)| roles.contains(&reading.role));
        readings = match self.raw.origin {
            Origin::Tensors(_) => self.fitting(readings)?,
            Origin::Lines { .. } => self.wanted(readings),
        };
        let tensors = readings.par_iter();
        let tensors: Vec<Option<Given>> = tensors
            .map(|(reading, index)| self.tensor(reading, *index))
            .collect::<Result<_, Diagnostic>>()?;
        for (at, ((reading, index), given)) in readings.iter().zip(tensors).enumerate() {
            let is_last = readings[at + 1..].iter().all(|(_, other)| other != index);
            let Some(given) = given.or_else(|| self.take_lines(*index, is_last)) else {
                continue;
            };
            self.check_tokens(reading, &given)?;
            batch = batch.column(&reading.ours, given);
        }
        if let Some(rewards) = self.sum_of_rewards() {
            batch = batch.response("reward", rewards);
        }
        if let Some(tokens) = self.tokens.take() {
            let is_bare = |&row: &usize| tokens.row_length(row) > 0 && tokens.runs(row).is_empty();
            let bare: Vec<usize> = (0..tokens.responses()).filter(is_bare).collect();
            if let Some(&first) = bare.first() {
                self.notes.add(format!(
                    "the mask is 0 for all tokens of {} (the first: {}): no token has an advantage there",
                    counted(bare.len(), "response"),
                    self.raw.origin.name_of(first)
                ));
            }
            batch = batch.tokens(tokens);
        }
        for (name, index) in std::mem::take(&mut self.texts) {
            let texts = self.raw.columns[index].texts.iter().flatten();
            batch = batch.text(name, texts.cloned());
        }
        if let Header::Saved { texts, .. } = &mut self.raw.header {
            for (name, texts) in std::mem::take(texts) {
                batch = batch.text(name, texts);
            }
        }
        batch
            .groups(groups)
            .build_located()
            .map_err(|(response, error)| self.raw.error(response, error).into())
    }

    /// The sum of the rewards of several functions, of which one may have none to give for a response.
    fn sum_of_rewards(&self) -> Option<Vec<f64>> {
        let names = &self.raw.names.rewards;
        let mut sums: Option<Vec<f64>> = None;
        for column in &self.raw.columns {
            if let Values::Numbers(rewards) = &column.values
                && names.contains(&column.name)
            {
                let sums = sums.get_or_insert_with(|| vec![0.0; self.responses]);
                let pairs = sums.iter_mut().zip(rewards);
                pairs.for_each(|(sum, reward)| *sum += if reward.is_nan() { 0.0 } else { *reward });
            }
        }
        sums
    }

    /// The reading of one of our names, and the index of its column.
    fn find(&self, ours: &str) -> Option<(Reading, usize)> {
        let mut readings = self.readings.iter();
        readings.find(|(reading, _)| reading.ours == ours).cloned()
    }

    /// The group of each response.
    fn groups(&mut self) -> Result<Vec<GroupId>, Diagnostic> {
        let Some((reading, index)) = self.find("group") else {
            unreachable!("a file without groups has been refused by its names");
        };
        match &self.raw.columns[index].values {
            Values::Ids { ids, .. } => Ok(ids.clone()),
            Values::Tensor(tensor) => self.groups_of_tensor(&reading, tensor),
            _ => unreachable!("`is_whole` has seen that groups are ids"),
        }
    }

    /// The training step of each response, where there is one.
    fn steps(&mut self) -> Result<Option<Vec<f64>>, Diagnostic> {
        const EXPECTED: &str = "the training step, a whole number from 0 to below 2^53 (`--map NAME=step` reads it as a column)";
        let Some((reading, index)) = self.find("step") else {
            return Ok(None);
        };
        let (steps, is_one) = match &self.raw.columns[index].values {
            Values::Numbers(steps) => (steps.clone(), false),
            Values::Tensor(tensor) => {
                let is_saved = matches!(self.raw.header, Header::Saved { .. });
                if is_saved || !tensor.info.is_number() || tensor.info.shape.len() > 1 {
                    let what = tensor.info.describe();
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

    /// NaN that counts makes every result of its group NaN: better said of the file than of the result.
    fn check_tokens(&mut self, reading: &Reading, given: &Given) -> Result<(), Diagnostic> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        let origin = &self.raw.origin;
        let first = |found: &Found| {
            let line = origin.name_of(found.response);
            format!("{line}, token {}", found.column)
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
        let columns = |response| tokens.runs(response).iter().map(|run| run.columns());
        let kinds = |value| [is_stray(value), is_positive(value)];
        let [stray, positive] = Found::among(given, tokens, columns, reading.usual(), kinds);
        if let Some(found) = stray {
            let is_saved = matches!(self.raw.header, Header::Saved { .. });
            if reading.role == Role::Token && !is_saved {
                let value = match found.value {
                    value if value.is_nan() && matches!(given, Given::Rows(_)) => {
                        "NaN or null".to_string()
                    }
                    value if value.is_finite() => format!("{value}, too large for f32,"),
                    value => value.to_string(),
                };
                let (response, token) = (Some(found.response), Some(found.column));
                let expected = "a finite number where the mask is 1";
                return Err(self
                    .raw
                    .wrong(&reading.theirs, response, token, value, expected));
            }
            let (count, first) = (found.values, first(&found));
            self.notes.not_finite(&reading.ours, count, &first);
        }
        if let Some(found) = positive {
            self.notes.add(format!(
                "`{}` is above 0 at {}, the first in {}: no log-prob is; are these probabilities, or -logp?",
                reading.theirs,
                counted(found.values, "token"),
                first(&found)
            ));
        }
        // A reward that does not count was meant to. NaN there is what padding may be.
        let is_lost = |value: f64| [value.is_finite() && value != 0.0];
        if reading.ours == "token_reward"
            && let [Some(found)] =
                Found::among(given, tokens, |at| tokens.gaps(at), (0.0, 0.0), is_lost)
        {
            self.notes.add(format!(
                "`{}` holds rewards where the mask is 0, in {} (the first in {}): they do not count",
                reading.theirs,
                counted(found.responses, "response"),
                first(&found)
            ));
        }
        Ok(())
    }
}

/// The first of some values of a column, and how many they are.
#[derive(Clone, Copy)]
struct Found {
    response: usize,
    column: usize,
    value: f64,
    values: usize,
    responses: usize,
}

impl Found {
    /// The values of each of `N` kinds among those of the `columns` of each response; none of those from `usual.0` to
    /// `usual.1` is of any. One pass finds the responses that have any: most often there are none.
    fn among<const N: usize, C: Iterator<Item = Range<usize>>>(
        given: &Given,
        tokens: &Tokens,
        columns: impl Fn(usize) -> C + Sync,
        usual: (f32, f32),
        kinds: impl Fn(f64) -> [bool; N] + Sync,
    ) -> [Option<Found>; N] {
        let is_any = |value| kinds(value).into_iter().fold(false, |any, is| any | is);
        let has_any = |&response: &usize| {
            columns(response).any(|run| given.scan(response, run, usual, is_any).is_some())
        };
        let of_kind = |response: usize, kind: usize| {
            let is = |value| kinds(value)[kind];
            let found = columns(response).filter_map(|run| given.scan(response, run, usual, is));
            found
                .map(|(column, value, values)| Found {
                    response,
                    column,
                    value,
                    values,
                    responses: 1,
                })
                .reduce(|first, next| Found {
                    values: first.values + next.values,
                    ..first
                })
        };
        let responses = (0..tokens.responses()).into_par_iter().filter(has_any);
        let found = responses.map(|response| array::from_fn(|kind| of_kind(response, kind)));
        let found: Vec<[Option<Found>; N]> = found.collect();
        array::from_fn(|kind| {
            let found = found.iter().filter_map(|found| found[kind]);
            found.reduce(|first, next| Found {
                values: first.values + next.values,
                responses: first.responses + 1,
                ..first
            })
        })
    }
}
