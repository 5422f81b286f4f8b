//! Finds out what the columns of a file mean: the groups, the tokens that count, the columns of the batch, and what is
//! left out. It is the same for all formats, but for the number of tokens: see [`ragged`] and [`padded`].

mod check;
mod notes;
mod padded;
mod ragged;

use std::collections::HashMap;

use rayon::prelude::*;

use self::notes::Notes;
use super::names::{Reading, Role};
use super::raw::{Header, Origin, Raw, Values, number};
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
        unit: "token",
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
    let batch = inference.batch()?;
    inference.finish(batch, format)
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
    /// What a token is, in a word.
    unit: &'static str,
    /// T of tensors [B, T], and the tensor that says so.
    width: Option<(usize, String)>,
    /// Whether a response column is f64 in the file, or is asked to be.
    is_f64: bool,
    /// Whether one of the token columns that nobody asked for is f64; `None` where there are no such columns.
    unread: Option<bool>,
    /// Whether there are strings that nobody asked for.
    lacks_texts: bool,
}

/// Whether a tensor `acc`, elsewhere the verdict `correct`, has shares, as some reward functions give them.
fn is_share_of_right(reading: &Reading, given: &Given) -> bool {
    let is_acc = (&*reading.ours, &*reading.theirs, reading.asked) == ("correct", "acc", false);
    let is_verdict = |&x: &f64| x == 0.0 || x == 1.0;
    is_acc && matches!(given, Given::Responses(values) if !values.iter().all(is_verdict))
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
                    let why = "`advantages` was written after it";
                    self.notes.left_out(&name, why);
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
                self.bind_text(&reading, index)?;
                if self.is_usable(&reading, index)? {
                    self.readings.push((reading, index));
                }
            }
        }
        if self.options.tokenizer.is_some() && self.find("completion").is_none() {
            let why = match self.raw.names.count_words {
                true => "there is no `completion` that is text everywhere",
                false => "the file itself says how many tokens a response has",
            };
            self.notes
                .add(format!("the tokenizer counts nothing: {why}"));
        }
        Ok(())
    }

    /// Gives the batch a column's strings, where it has them and they are asked for.
    fn bind_text(&mut self, reading: &Reading, index: usize) -> Result<(), Diagnostic> {
        let is_wanted = self.raw.names.wants_text(reading);
        let column = &mut self.raw.columns[index];
        let strings = match &column.values {
            Values::Tensor(tensor) => Some(tensor).filter(|tensor| tensor.info.are_strings()),
            _ => None,
        };
        let are_lines = matches!(
            column.values,
            Values::Strings(_) | Values::Words { .. } | Values::Other(_)
        );
        if !is_wanted {
            let is_open = matches!(reading.role, Role::Any | Role::Completion);
            self.lacks_texts |= is_open && (are_lines || strings.is_some());
            return Ok(());
        }
        let is_text = match strings {
            None => column.is_text(),
            Some(tensor) if tensor.info.shape.len() == 1 => {
                let strings = tensor.strings(self.progress)?.into_iter();
                column.texts = Some(strings.map(Into::into).collect());
                true
            }
            Some(_) => false,
        };
        if is_text {
            self.texts.push((reading.ours.clone(), index));
        }
        Ok(())
    }

    /// Whether a column is one of numbers or of groups.
    fn is_usable(&mut self, reading: &Reading, index: usize) -> Result<bool, Diagnostic> {
        let info = match &self.raw.columns[index].values {
            Values::Tensor(tensor) => &tensor.info,
            _ => return self.is_whole(reading, index),
        };
        match reading.role {
            Role::Any | Role::Completion if info.are_strings() && info.shape.len() == 1 => {
                Ok(false)
            }
            Role::Completion => {
                let why = "strings are read from JSONL alone";
                self.notes.left_out(&reading.theirs, why);
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    fn has_newer_advantage(&self) -> bool {
        let mut columns = self.raw.columns.iter();
        let is_padded = matches!(self.raw.origin, Origin::Tensors(_));
        is_padded && columns.any(|column| column.name == "advantages")
    }

    fn batch(&mut self) -> Result<Batch, Diagnostics> {
        let groups = self.groups()?;
        self.responses = groups.len();
        match self.raw.origin {
            Origin::Lines { .. } => self.ragged_tokens()?,
            Origin::Tensors(_) => self.padded_tokens()?,
        }
        let (groups, step) = self.of_steps(groups)?;
        let mut batch = Batch::builder().step(step);
        if let Some(rewards) = self.sum_of_rewards() {
            batch = batch.response("reward", rewards);
        }
        for (name, given) in self.columns()? {
            batch = batch.column(&name, given);
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

    /// The groups, apart by step where they are those of a dump of several, and the step of the batch.
    fn of_steps(&mut self, groups: Vec<GroupId>) -> Result<(Vec<GroupId>, u64), Diagnostic> {
        let steps = match (self.steps()?, &self.raw.header) {
            (Some(steps), _) => steps,
            (None, &Header::Saved { step, .. }) => return Ok((groups, step)),
            (None, _) => return Ok((groups, 0)),
        };
        if steps.iter().all(|&step| step == steps[0]) {
            return Ok((groups, steps.first().map_or(0, |&step| step as u64)));
        }
        if !self.raw.names.are_dumped {
            self.notes.add("`step` differs from line to line: the batch has no step, and `step` is no column (`--map NAME=step` makes it one)".to_string());
            return Ok((groups, 0));
        }
        // The same prompt may come again in another step: a dump numbers its prompts from 0 in each.
        self.notes.add("the lines come from several steps: responses of one prompt in different steps are different groups".to_string());
        let split = |(id, step): (GroupId, &f64)| format!("step {step}, {}", id.name()).into();
        Ok((groups.into_iter().zip(&steps).map(split).collect(), 0))
    }

    /// The columns of numbers, by our names.
    fn columns(&mut self) -> Result<Vec<(String, Given)>, Diagnostic> {
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
        let mut columns = Vec::new();
        for (at, ((reading, index), given)) in readings.iter().zip(tensors).enumerate() {
            // Those of one column stand together.
            let is_last = readings.get(at + 1).is_none_or(|(_, next)| next != index);
            let Some(given) = given.or_else(|| self.take_lines(*index, is_last)) else {
                continue;
            };
            self.check_tokens(reading, &given)?;
            let is_share = is_share_of_right(reading, &given)
                && readings
                    .iter()
                    .any(|(other, _)| other.ours.ends_with("reward"));
            let ours = if is_share { "acc" } else { &reading.ours };
            columns.push((ours.to_string(), given));
        }
        Ok(columns)
    }

    /// Says what is still to be said of the batch.
    fn finish(mut self, mut batch: Batch, format: Format) -> Result<Rollouts, Diagnostics> {
        if self.raw.names.compares_answers && !batch.is_verifiable() {
            let what = "nothing says how good a response is: there is no reward, and answers cannot be compared";
            let help = "every response needs a `completion` that is text, and a `solution` (or `answer`): all texts, or all numbers";
            let error = Diagnostic::error(what).with_help(help);
            return Err(error.in_file(&self.raw.path).into());
        }
        let has_tokens = !batch.tokens.is_empty();
        if let Some(is_f64) = self.unread {
            // Columns that are not read have a say in the precision all the same.
            batch.is_f64 = is_f64 || has_tokens && batch.is_f64;
        }
        if batch.has("groups") {
            // `batch.groups` is the list of the groups' batches. No file gives a column named `step`.
            let mut map = self.options.map.iter();
            let mapped = map.find(|mapping| mapping.ours == "groups");
            let field = mapped.map_or("groups", |mapping| &mapping.theirs);
            self.notes.add(format!(
                "`{field}` is a column that scripts cannot reach, since `batch.groups` is the list of the groups: `--map other={field}` gives it another name"
            ));
        }
        Ok(Rollouts {
            notes: self.notes.finish(),
            unit: self.unit,
            path: self.raw.path,
            format,
            origin: self.raw.origin,
            width: self.width.map(|(width, _)| width),
            is_f64: match has_tokens || self.unread.is_some() {
                true => batch.is_f64,
                false => self.is_f64,
            },
            is_partial: self.unread.is_some() || self.lacks_texts,
            batch,
        })
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
        if let Values::Tensor(tensor) = &self.raw.columns[index].values {
            return self.groups_of_tensor(&reading, tensor);
        }
        let mut others = self.readings.iter();
        let is_last = others.all(|(other, of)| *of != index || other.ours == reading.ours);
        match &mut self.raw.columns[index].values {
            Values::Ids { ids, .. } if is_last => Ok(std::mem::take(ids)),
            Values::Ids { ids, .. } => Ok(ids.clone()),
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
}
