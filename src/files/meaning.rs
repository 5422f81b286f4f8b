//! Finds what the columns of a file mean: the groups, the tokens that count, the columns of the batch, and what is left out. All
//! formats are treated alike but for the number of tokens: see [`super::ragged`] and [`super::padded`].

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use super::format::Format;
use super::names::{Reading, Role, alias, role};
use super::table::{Data, Origin, Table, in_words};
use super::{Dtype, Progress, ReadOptions, Rollouts};
use crate::batch::layout::Tokens;
use crate::batch::{Batch, Given, GroupId};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::counted;

pub(super) const MASK: &str = "1 for a token that counts or 0 for one that does not";

/// How many unknown fields are told of: a file may have as many as it has lines.
const SHOWN: usize = 5;

/// A file while the meaning of its columns is found.
pub(super) struct Meaning<'a> {
    pub(super) table: Table,
    pub(super) options: &'a ReadOptions<'a>,
    pub(super) progress: &'a Progress<'a>,
    pub(super) notes: Vec<String>,
    /// How many unknown fields are left out, and so on.
    unknown: BTreeMap<&'static str, usize>,
    pub(super) responses: usize,
    /// The columns still to become part of the batch, each with the index of its column in the table.
    pub(super) readings: Vec<(Reading, usize)>,
    /// The text columns, each with the index of its column.
    texts: Vec<(String, usize)>,
    pub(super) tokens: Option<Tokens>,
    /// The completion whose words would be the lengths, and why they are not.
    pub(super) no_length: Option<(String, String)>,
    /// What a token is, in a word.
    pub(super) unit: &'static str,
    /// T of tensors [B, T], and the tensor that says so.
    pub(super) width: Option<(usize, String)>,
    /// Whether a response column is f64 in the file, or is asked to be.
    pub(super) is_f64: bool,
    /// Whether one of the token columns that nobody asked for is f64; `None` if there are no such columns.
    pub(super) unread: Option<bool>,
    /// Whether there are strings that nobody asked for.
    lacks_texts: bool,
}

/// Makes a batch of what a reader gives.
pub(super) fn rollouts(
    table: Table,
    options: &ReadOptions,
    progress: &Progress,
    format: Format,
) -> Result<Rollouts, Diagnostics> {
    let mut meaning = Meaning {
        notes: table.names.note.iter().cloned().collect(),
        unknown: BTreeMap::new(),
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
        table,
        options,
        progress,
    };
    meaning.bind()?;
    let batch = meaning.batch()?;
    meaning.finish(batch, format)
}

impl Meaning<'_> {
    pub(super) fn left_out(&mut self, field: &str, why: &str) {
        let what = format!("`{field}` is left out: {why}");
        self.note_field("left out", field, what);
    }

    /// A note on a field; of unknown ones only the first are told.
    fn note_field(&mut self, state: &'static str, field: &str, what: String) {
        if role(alias(field)) == Role::Any {
            let fields = self.unknown.entry(state).or_default();
            *fields += 1;
            if *fields > SHOWN {
                return;
            }
        }
        self.notes.push(what);
    }

    /// The reading of one of our names, and the index of its column.
    pub(super) fn find(&self, ours: &str) -> Option<(Reading, usize)> {
        let mut readings = self.readings.iter();
        readings.find(|(reading, _)| reading.ours == ours).cloned()
    }

    /// Finds the names of all columns, and leaves out those that become nothing.
    fn bind(&mut self) -> Result<(), Diagnostic> {
        let names = self.table.names.clone();
        let is_padded = matches!(self.table.origin, Origin::Tensors(_));
        let mut columns = self.table.columns.iter();
        let has_newer_advantage = is_padded && columns.any(|column| column.name == "advantages");
        let mut seen: HashMap<String, String> = HashMap::new();
        for index in 0..self.table.columns.len() {
            let name = self.table.columns[index].name.clone();
            if let Some(why) = names.shadowed(&name) {
                self.left_out(&name, &why);
            }
            for reading in names.of(&name) {
                let ours = &reading.ours;
                // A copy that was written of a run's batch has the run's own and a newer one.
                if name == "advantage" && has_newer_advantage {
                    self.left_out(&name, "`advantages` was written after it");
                    continue;
                }
                if let Some(first) = seen.insert(ours.clone(), name.clone()) {
                    let what = format!("tensors `{first}` and `{name}` are both read as `{ours}`");
                    let help = format!(
                        "say which it is, with `--map {ours}={first}` or `--map {ours}={name}`"
                    );
                    let error = Diagnostic::error(what).with_help(help);
                    return Err(error.in_file(&self.table.path));
                }
                self.bind_text(&reading, index)?;
                let is_usable = match is_padded {
                    true => self.is_usable_tensor(&reading, index),
                    false => self.is_whole(&reading, index)?,
                };
                if is_usable {
                    self.readings.push((reading, index));
                }
            }
        }
        if self.options.tokenizer.is_some() && self.find("completion").is_none() {
            let why = match names.count_words {
                true => "there is no `completion` that is text everywhere",
                false => "the file itself says how many tokens a response has",
            };
            self.notes
                .push(format!("the tokenizer counts nothing: {why}"));
        }
        Ok(())
    }

    /// Gives the batch a column's strings, if it has any and they are asked for.
    fn bind_text(&mut self, reading: &Reading, index: usize) -> Result<(), Diagnostic> {
        let is_wanted = self.table.names.wants_text(reading);
        let column = &mut self.table.columns[index];
        let strings = match &column.data {
            Data::Tensor(tensor) if tensor.are_strings() => Some(tensor),
            _ => None,
        };
        if !is_wanted {
            let is_open = matches!(reading.role, Role::Any | Role::Completion);
            let may_be_text = matches!(
                column.data,
                Data::Texts(_) | Data::Words(_) | Data::Other(_)
            );
            self.lacks_texts |= is_open && (may_be_text || strings.is_some());
            return Ok(());
        }
        let is_text = match strings {
            None => column.is_text(),
            Some(tensor) if tensor.shape.len() == 1 => {
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

    fn batch(&mut self) -> Result<Batch, Diagnostics> {
        let groups = self.groups()?;
        self.responses = groups.len();
        match self.table.origin {
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
                self.notes.push(format!(
                    "the mask is 0 for all tokens of {} (the first: {}): no token has an advantage there",
                    counted(bare.len(), "response"),
                    self.table.origin.name_of(first)
                ));
            }
            batch = batch.tokens(tokens);
        }
        for (name, index) in std::mem::take(&mut self.texts) {
            let texts = self.table.columns[index].texts.iter().flatten();
            batch = batch.text(name, texts.cloned());
        }
        if let Some(saved) = &mut self.table.saved {
            for (name, texts) in std::mem::take(&mut saved.texts) {
                batch = batch.text(name, texts);
            }
        }
        batch
            .groups(groups)
            .build_located()
            .map_err(|(response, error)| self.table.error(response, error).into())
    }

    /// The group of each response.
    fn groups(&mut self) -> Result<Vec<GroupId>, Diagnostic> {
        let Some((reading, index)) = self.find("group") else {
            unreachable!("a file without groups has been refused by its names");
        };
        match &self.table.columns[index].data {
            Data::Tensor(tensor) => self.groups_of_tensor(&reading, tensor),
            Data::Ids(ids, _) => Ok(ids.clone()),
            _ => unreachable!("`is_whole` has seen that groups are ids"),
        }
    }

    /// The training step of each response, if there is one.
    fn steps(&mut self) -> Result<Option<Vec<f64>>, Diagnostic> {
        const EXPECTED: &str = "the training step, a whole number from 0 to below 2^53 (`--map NAME=step` reads it as a column)";
        let Some((reading, index)) = self.find("step") else {
            return Ok(None);
        };
        let (steps, is_one) = match &self.table.columns[index].data {
            Data::Numbers(steps) => (steps.clone(), false),
            Data::Tensor(tensor) => {
                let is_saved = self.table.saved.is_some();
                if is_saved || !tensor.is_number() || tensor.shape.len() > 1 {
                    let what = tensor.describe();
                    let why = format!("the step is one number, and this is {what}");
                    self.left_out(&reading.theirs, &why);
                    return Ok(None);
                }
                (tensor.numbers(self.progress)?, tensor.shape.is_empty())
            }
            _ => return Ok(None),
        };
        // From 2^53 on a float no longer tells neighbours apart.
        let is_step =
            |value: f64| value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value);
        match steps.iter().position(|&step| !is_step(step)) {
            None => Ok(Some(steps)),
            Some(at) => {
                let (response, found) = ((!is_one).then_some(at), in_words(steps[at]));
                let theirs = &reading.theirs;
                Err(self.table.wrong(theirs, response, None, found, EXPECTED))
            }
        }
    }

    /// The groups, told apart by step if they are those of a dump of several, and the step of the batch.
    fn of_steps(&mut self, groups: Vec<GroupId>) -> Result<(Vec<GroupId>, u64), Diagnostic> {
        let Some(steps) = self.steps()? else {
            let step = self.table.saved.as_ref().map_or(0, |saved| saved.step);
            return Ok((groups, step));
        };
        if steps.iter().all(|&step| step == steps[0]) {
            return Ok((groups, steps.first().map_or(0, |&step| step as u64)));
        }
        if !self.table.names.are_dumped {
            self.notes.push("`step` differs from line to line: the batch has no step, and `step` is no column (`--map NAME=step` makes it one)".to_string());
            return Ok((groups, 0));
        }
        // The same prompt may come again in another step: a dump numbers its prompts from 0 in each.
        self.notes.push("the lines come from several steps: responses of one prompt in different steps are different groups".to_string());
        let split = |(id, step): (GroupId, &f64)| format!("step {step}, {}", id.name()).into();
        Ok((groups.into_iter().zip(&steps).map(split).collect(), 0))
    }

    /// The sum of the rewards of several functions, of which one may have none to give for a response.
    fn sum_of_rewards(&self) -> Option<Vec<f64>> {
        let names = &self.table.names.rewards;
        let mut sums: Option<Vec<f64>> = None;
        for column in &self.table.columns {
            if let Data::Numbers(rewards) = &column.data
                && names.contains(&column.name)
            {
                let sums = sums.get_or_insert_with(|| vec![0.0; self.responses]);
                for (sum, reward) in sums.iter_mut().zip(rewards) {
                    *sum += if reward.is_nan() { 0.0 } else { *reward };
                }
            }
        }
        sums
    }

    /// The columns of numbers, by our names.
    fn columns(&mut self) -> Result<Vec<(String, Given)>, Diagnostic> {
        let mut readings = std::mem::take(&mut self.readings);
        let roles = [Role::Response, Role::Token, Role::Any];
        readings.retain(|(reading, _)| roles.contains(&reading.role));
        readings = match self.table.origin {
            Origin::Tensors(_) => self.fitting(readings)?,
            Origin::Lines { .. } => self.wanted(readings),
        };
        let tensors = readings.par_iter();
        let tensors: Vec<Option<Given>> = tensors
            .map(|(reading, index)| self.values_of_tensor(reading, *index))
            .collect::<Result<_, Diagnostic>>()?;
        let mut columns = Vec::new();
        for (at, ((reading, index), given)) in readings.iter().zip(tensors).enumerate() {
            // Those of one column stand together.
            let is_last = readings.get(at + 1).is_none_or(|(_, next)| next != index);
            let Some(given) = given.or_else(|| self.values_of_lines(*index, is_last)) else {
                continue;
            };
            self.check_tokens(reading, &given)?;
            // verl's `acc` is a verdict in some runs, and a share in others.
            let is_acc = (&*reading.ours, &*reading.theirs, reading.asked);
            let is_share = is_acc == ("correct", "acc", false)
                && matches!(&given, Given::Responses(values) if values.iter().any(|x| ![0.0, 1.0].contains(x)))
                && readings
                    .iter()
                    .any(|(other, _)| other.ours.ends_with("reward"));
            let ours = if is_share { "acc" } else { &reading.ours };
            columns.push((ours.to_string(), given));
        }
        Ok(columns)
    }

    /// Looks for odd values of tokens. NaN that counts makes every result of its group NaN: better said of the file than of the
    /// result.
    fn check_tokens(&mut self, reading: &Reading, given: &Given) -> Result<(), Diagnostic> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        let is_f32 = self.options.dtype == Some(Dtype::F32);
        let is_stray = |value: f64| !value.is_finite() || is_f32 && (value as f32).is_infinite();
        // Half precision may round a log-prob of 0 up by as much.
        let is_logp = reading.ours.ends_with("logp");
        let is_positive = |value: f64| is_logp && value > 1e-3;
        // NaN under the mask is what padding may be.
        let is_lost = |value: f64| value.is_finite() && value != 0.0;
        let usual = (f32::MIN, if is_logp { 0.0 } else { f32::MAX });
        let runs = |at: usize| tokens.runs(at).iter().map(|run| run.columns()).collect();
        let gaps = |at: usize| tokens.gaps(at).collect();
        let all = tokens.responses();
        let counts = |is: &Is| Found::among(given, all, &runs, usual, is);
        // Most often there is nothing odd, which one pass finds.
        let (stray, positive) = match counts(&|value| is_stray(value) || is_positive(value)) {
            Some(_) => (counts(&is_stray), counts(&is_positive)),
            None => (None, None),
        };
        let lost = Some(&reading.ours).filter(|ours| *ours == "token_reward");
        let lost = lost.and_then(|_| Found::among(given, all, &gaps, (0.0, 0.0), &is_lost));
        let named = |found: Option<Found>| {
            let found = found?;
            let name = self.table.origin.name_of(found.response);
            let first = format!("{name}, token {}", found.column);
            Some((found, first))
        };
        let [stray, positive, lost] = [stray, positive, lost].map(named);
        if let Some((stray, first)) = stray {
            if reading.role == Role::Token && self.table.saved.is_none() {
                return Err(self.stray(reading, given, &stray));
            }
            let (ours, values) = (&reading.ours, stray.values);
            let plural = if values == 1 {
                " that counts"
            } else {
                "s that count"
            };
            let what = format!(
                "`{ours}` is NaN or infinite at {values} token{plural}, the first in {first}"
            );
            self.note_field("NaN or infinite", ours, what);
        }
        if let Some((positive, first)) = positive {
            self.notes.push(format!(
                "`{}` is above 0 at {}, the first in {}: no log-prob is; are these probabilities, or -logp?",
                reading.theirs,
                counted(positive.values, "token"),
                first
            ));
        }
        if let Some((lost, first)) = lost {
            self.notes.push(format!(
                "`{}` holds rewards where the mask is 0, in {} (the first in {}): they do not count",
                reading.theirs,
                counted(lost.responses, "response"),
                first
            ));
        }
        Ok(())
    }

    /// The error for a value that counts and is no number, or none in the precision that is asked for.
    fn stray(&self, reading: &Reading, given: &Given, found: &Found) -> Diagnostic {
        let value = match found.value {
            value if value.is_nan() && matches!(given, Given::Rows(_)) => "NaN or null".to_string(),
            value if value.is_finite() => format!("{value}, too large for f32,"),
            value => value.to_string(),
        };
        let (response, token) = (Some(found.response), Some(found.column));
        let expected = "a finite number where the mask is 1";
        self.table
            .wrong(&reading.theirs, response, token, value, expected)
    }

    /// Says what is still to be said of the batch.
    fn finish(mut self, mut batch: Batch, format: Format) -> Result<Rollouts, Diagnostics> {
        if self.table.names.compares_answers && !batch.is_verifiable() {
            let what = "nothing says how good a response is: there is no reward, and answers cannot be compared";
            let help = "every response needs a `completion` that is text, and a `solution` (or `answer`): all texts, or all numbers";
            let error = Diagnostic::error(what).with_help(help);
            return Err(error.in_file(&self.table.path).into());
        }
        let has_tokens = batch.token_columns().next().is_some();
        if let Some(is_f64) = self.unread {
            // The precision is that of all columns, read or not.
            batch.is_f64 = is_f64 || has_tokens && batch.is_f64;
        }
        if batch.has("groups") {
            let mut map = self.options.map.iter();
            let mapped = map.find(|mapping| mapping.ours == "groups");
            let field = mapped.map_or("groups", |mapping| &mapping.theirs);
            self.notes.push(format!(
                "`{field}` is a column that scripts cannot reach, since `batch.groups` is the list of the groups: `--map other={field}` gives it another name"
            ));
        }
        let more = self.unknown.iter().filter(|(_, fields)| **fields > SHOWN);
        self.notes.extend(more.map(|(state, fields)| {
            format!("{state} too: {}", counted(fields - SHOWN, "more field"))
        }));
        Ok(Rollouts {
            notes: self.notes.into_iter().map(Diagnostic::note).collect(),
            unit: self.unit,
            path: self.table.path,
            format,
            origin: self.table.origin,
            width: self.width.map(|(width, _)| width),
            is_f64: match has_tokens || self.unread.is_some() {
                true => batch.is_f64,
                false => self.is_f64,
            },
            is_partial: self.unread.is_some() || self.lacks_texts,
            batch,
        })
    }
}

type Is<'a> = dyn Fn(f64) -> bool + Sync + 'a;

/// The first of some values of a column, and how many they are.
struct Found {
    response: usize,
    column: usize,
    value: f64,
    values: usize,
    responses: usize,
}

impl Found {
    /// The values for which `is` holds in the `columns` of each response; it holds for none from `usual.0` to `usual.1`.
    fn among(
        given: &Given,
        responses: usize,
        columns: &(dyn Fn(usize) -> Vec<Range<usize>> + Sync),
        usual: (f32, f32),
        is: &Is,
    ) -> Option<Found> {
        let sum = |first: Found, next: Found| Found {
            values: first.values + next.values,
            responses: first.responses + next.responses,
            ..first
        };
        let of_response = |response: usize| {
            let runs = columns(response).into_iter();
            let found = runs.filter_map(|run| given.scan(response, run, usual, is));
            let found = found.map(|(column, value, values)| Found {
                response,
                column,
                value,
                values,
                responses: 1,
            });
            found.reduce(|first, next| Found {
                values: first.values + next.values,
                ..first
            })
        };
        let found = (0..responses).into_par_iter().filter_map(of_response);
        found.collect::<Vec<Found>>().into_iter().reduce(sum)
    }
}
