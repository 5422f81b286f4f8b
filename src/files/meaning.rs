//! Finds what the columns of a file mean: the groups, the tokens that count, the columns of the batch, and what is left out.
//!
//! Lines and tensors are treated alike: a list of numbers and a tensor [B, T] are a value per token, a number and a tensor [B]
//! one per response.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::later::{Later, Pending};
use super::names::{Names, Reading, Role, alias, role};
use super::table::{Column, Content, Data, Origin, Table, in_words};
use super::tensors::Tensor;
use super::values::TokenColumn;
use super::{Dtype, Progress, ReadOptions, Rollouts, changed, read_table};
use crate::batch::layout::Tokens;
use crate::batch::{Batch, BatchBuilder, Buffer, GroupId, Level, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::counted;

/// How many unknown fields are told of: a file may have as many as it has lines.
const SHOWN: usize = 5;

/// A column that becomes part of the batch: its name, and its index in the table.
pub(super) type Bound = (Reading, usize);

/// A file while the meaning of its columns is found.
pub(super) struct Meaning<'a> {
    pub(super) table: Table,
    pub(super) options: &'a ReadOptions<'a>,
    pub(super) notes: Vec<String>,
    /// How many unknown fields are left out.
    unknown: usize,
    pub(super) responses: usize,
    /// The columns of numbers.
    pub(super) bound: Vec<Bound>,
    texts: Vec<Bound>,
    /// The completion whose words would be the lengths, and why they are not.
    pub(super) no_length: Option<(String, String)>,
    pub(super) unit: &'static str,
    /// T, if there are tensors [B, T].
    pub(super) width: Option<usize>,
    later: Vec<Arc<dyn Pending>>,
}

/// Makes a batch of what a reader gives.
pub(super) fn rollouts(table: Table, options: &ReadOptions) -> Result<Rollouts, Diagnostics> {
    let mut meaning = Meaning {
        notes: table.names.note.iter().cloned().collect(),
        unknown: 0,
        responses: 0,
        bound: Vec::new(),
        texts: Vec::new(),
        no_length: None,
        unit: "token",
        width: None,
        later: Vec::new(),
        table,
        options,
    };
    meaning.bind()?;
    let groups = meaning.groups()?;
    meaning.responses = groups.len();
    meaning.check_levels()?;
    let tokens = meaning.tokens()?;
    let (groups, step) = meaning.of_steps(groups)?;
    let mut builder = Batch::builder().groups(groups).step(step);
    if let Some(tokens) = &tokens {
        meaning.note_bare(tokens);
        builder = builder.tokens(tokens.clone());
    }
    let is_f64 = meaning.is_f64();
    builder = meaning.add_texts(builder)?;
    builder = meaning.add_columns(builder, tokens)?;
    let origin = meaning.table.origin.clone();
    let mut batch = builder
        .build_located()
        .map_err(|(response, error)| origin.error(response, error))?;
    let has_tokens = batch.token_columns().next().is_some();
    if has_tokens {
        batch.is_f64 = is_f64;
    }
    meaning.check(&batch)?;
    Ok(Rollouts {
        notes: meaning.notes.into_iter().map(Diagnostic::note).collect(),
        unit: meaning.unit,
        later: meaning.later,
        origin,
        width: meaning.width,
        is_f64,
        batch,
    })
}

/// The kind of values that a column should hold, for messages.
fn expected(reading: &Reading) -> &'static str {
    match (reading.role, reading.ours.as_str()) {
        (Role::Group, _) => "a string or a whole number that names the prompt",
        (Role::Mask, _) => "an array with a 0 or 1 for each token",
        (Role::Token, _) => "an array with a number for each token",
        (Role::Response, "correct") => "true or false (or 1 or 0)",
        (Role::Response, "length") => "a number of tokens",
        (Role::Response, _) => "a number",
        _ => "a number, or an array with a number for each token",
    }
}

impl Meaning<'_> {
    pub(super) fn origin(&self) -> &Origin {
        &self.table.origin
    }

    pub(super) fn data(&self, index: usize) -> &Data {
        &self.table.columns[index].data
    }

    pub(super) fn left_out(&mut self, field: &str, why: &str) {
        if role(alias(field)) == Role::Any {
            self.unknown += 1;
            if self.unknown > SHOWN {
                return;
            }
        }
        self.notes.push(format!("`{field}` is left out: {why}"));
    }

    /// The reading of one of our names, and the index of its column.
    pub(super) fn find(&self, ours: &str) -> Option<Bound> {
        let mut bound = self.bound.iter();
        bound.find(|(reading, _)| reading.ours == ours).cloned()
    }

    /// Finds the names of all columns, and leaves out those that become nothing.
    fn bind(&mut self) -> Result<(), Diagnostic> {
        let names = self.table.names.clone();
        let mut columns = self.table.columns.iter();
        let has_newer =
            !self.origin().has_lines() && columns.any(|column| column.name == "advantages");
        let mut seen: HashMap<String, String> = HashMap::new();
        for index in 0..self.table.columns.len() {
            let name = self.table.columns[index].name.clone();
            if let Some(why) = names.shadowed(&name) {
                self.left_out(&name, &why);
            }
            for reading in names.of(&name) {
                let ours = &reading.ours;
                // A copy that was written of a run's batch has the run's own and a newer one.
                if name == "advantage" && has_newer {
                    self.left_out(&name, "`advantages` was written after it");
                    continue;
                }
                if let Some(first) = seen.insert(ours.clone(), name.clone()) {
                    let what = format!("tensors `{first}` and `{name}` are both read as `{ours}`");
                    let help = format!(
                        "say which it is, with `--map {ours}={first}` or `--map {ours}={name}`"
                    );
                    let error = Diagnostic::error(what).with_help(help);
                    return Err(error.in_file(&self.origin().path));
                }
                if self.fits(&reading, index)? {
                    self.bound.push((reading, index));
                }
            }
        }
        if self.options.tokenizer.is_some() && self.find("completion").is_none() {
            let why =
                "the file says how many tokens a response has, or has no `completion` that is text";
            self.notes
                .push(format!("the tokenizer counts nothing: {why}"));
        }
        Ok(())
    }

    /// Whether a column has a number, or an array of numbers, for every response. Otherwise it is a text, or left out, or that is
    /// an error.
    fn fits(&mut self, reading: &Reading, index: usize) -> Result<bool, Diagnostic> {
        let column = &self.table.columns[index];
        let is_text = column.is_text();
        if is_text && matches!(reading.role, Role::Any | Role::Completion) {
            self.texts.push((reading.clone(), index));
            return Ok(matches!(column.data, Data::Counts(_)));
        }
        let is_right = match (reading.role, &column.data) {
            (Role::Completion, _) => false,
            (_, Data::Tensor(_)) => return Ok(true),
            (Role::Group, Data::Ids(..)) => true,
            (Role::Mask | Role::Token | Role::Any, Data::Lists(_)) => true,
            (Role::Response | Role::Step | Role::Any, Data::Numbers(_)) => true,
            (Role::Response | Role::Step | Role::Any, Data::Ids(_, are_texts)) => !are_texts,
            _ => false,
        };
        let (at, found) = match &column.odd {
            Some(odd) => (odd.response, odd.found.clone()),
            None if is_right && column.filled > 0 => return Ok(true),
            None if column.filled == 0 && !matches!(column.data, Data::Tensor(_)) => {
                (column.null.unwrap_or_default(), "null".to_string())
            }
            None => (0, column.first.clone()),
        };
        // Log-probs that nobody has are null everywhere.
        let is_empty = column.filled == 0 && column.odd.is_none() && !reading.asked;
        let is_array = matches!(reading.role, Role::Mask | Role::Token);
        let why = format!("it is {found} in {}", self.origin().name_of(at));
        if reading.is_needed() && !(is_empty && is_array) {
            let found = if found == "missing" {
                "nothing"
            } else {
                &found
            };
            let at = (Some(at), None);
            return Err(self
                .origin()
                .wrong(&reading.theirs, at, found, expected(reading)));
        }
        // A string or an object is not meant to be a column.
        let is_meant = !matches!(column.data, Data::Null | Data::Other | Data::Texts);
        match reading.role {
            Role::Completion => self.no_length = Some((reading.theirs.clone(), why)),
            Role::Any if !is_meant => {}
            _ => self.left_out(&reading.theirs, &why),
        }
        Ok(false)
    }

    /// The group of each response.
    fn groups(&self) -> Result<Vec<GroupId>, Diagnostic> {
        let Some((reading, index)) = self.find("group") else {
            unreachable!("a file without groups has been refused by its names");
        };
        match self.data(index) {
            Data::Tensor(tensor) => self.groups_of_tensor(&reading, tensor),
            Data::Ids(ids, _) => Ok(ids.clone()),
            _ => unreachable!("`fits` has seen that groups are ids"),
        }
    }

    /// Whole numbers, strings, or indices in a list of names.
    fn groups_of_tensor(
        &self,
        reading: &Reading,
        tensor: &Tensor,
    ) -> Result<Vec<GroupId>, Diagnostic> {
        const EXPECTED: &str = "whole numbers or strings [B], one for each response";
        let wrong = |response, found: String| {
            let at = (response, None);
            self.origin().wrong(&reading.theirs, at, found, EXPECTED)
        };
        let is_column = matches!(tensor.shape.as_slice(), [_] | [_, 1]);
        if is_column && tensor.are_strings() {
            let strings = tensor.strings()?;
            return Ok(strings.into_iter().map(GroupId::from).collect());
        }
        if !is_column || !tensor.is_number() {
            let help = "numpy: `np.array(ids).astype(str)` makes strings of others";
            return Err(wrong(None, tensor.describe()).with_help(help));
        }
        let ids = tensor.ids()?;
        let ids = ids.map_err(|(response, value)| wrong(Some(response), value.to_string()))?;
        let saved = self.table.saved.as_ref();
        let Some(names) = saved.and_then(|saved| saved.group_names.as_ref()) else {
            return Ok(ids);
        };
        let named = ids.iter().map(|id| match id {
            GroupId::Number(number) => names.get(usize::try_from(*number).ok()?).cloned(),
            GroupId::String(_) => None,
        });
        let beyond = || format!("a number beyond the {} names in the header", names.len());
        let named: Option<Vec<GroupId>> = named.collect();
        named.ok_or_else(|| wrong(None, beyond()))
    }

    /// The level of a column, if it is one of numbers.
    pub(super) fn level(&self, (reading, index): &Bound) -> Option<Level> {
        let tensor = match self.data(*index) {
            Data::Lists(_) => return Some(Level::Token),
            Data::Tensor(tensor) => tensor,
            _ => return Some(Level::Response),
        };
        let is_response = matches!(reading.role, Role::Response | Role::Group);
        match *tensor.shape.as_slice() {
            _ if !tensor.is_number() => None,
            [rows] if rows == self.responses => Some(Level::Response),
            // [B, 1] will do for a column that we know.
            [rows, 1] if rows == self.responses && is_response => Some(Level::Response),
            [rows, _] if rows == self.responses => Some(Level::Token),
            // The step of the whole batch.
            [] if reading.role == Role::Step => Some(Level::Response),
            _ => None,
        }
    }

    /// Refuses a tensor that is not of its name's level, or leaves it out.
    fn check_levels(&mut self) -> Result<(), Diagnostic> {
        let rows = self.responses;
        for (reading, index) in std::mem::take(&mut self.bound) {
            let bound = (reading, index);
            let level = self.level(&bound);
            let is_right = match bound.0.role {
                Role::Group => true,
                Role::Mask | Role::Token => level == Some(Level::Token),
                Role::Response | Role::Completion => level == Some(Level::Response),
                Role::Step => level == Some(Level::Response) && self.table.saved.is_none(),
                Role::Any => level.is_some(),
            };
            if is_right {
                self.bound.push(bound);
                continue;
            }
            let found = self.table.columns[index].first.clone();
            let (reading, _) = bound;
            let expected = match reading.role {
                Role::Mask | Role::Token => format!("numbers [{rows}, T], one for each token"),
                Role::Response => format!("numbers [{rows}], one for each response"),
                _ if reading.asked => format!("numbers [{rows}] or [{rows}, T]"),
                _ => {
                    let why = format!("it is {found}, and columns are [{rows}] or [{rows}, T]");
                    self.left_out(&reading.theirs, &why);
                    continue;
                }
            };
            let error = self
                .origin()
                .wrong(&reading.theirs, (None, None), found, expected);
            return Err(match reading.ours.as_str() {
                "token_reward" => error.with_help("a reward for the whole response is `reward`"),
                "reward" if level == Some(Level::Token) => error.with_help(format!(
                    "a reward for each token is `token_reward`: `--map token_reward={}`",
                    reading.theirs
                )),
                _ => error,
            });
        }
        Ok(())
    }

    fn note_bare(&mut self, tokens: &Tokens) {
        let is_bare = |&row: &usize| tokens.row_length(row) > 0 && tokens.runs(row).is_empty();
        let bare: Vec<usize> = (0..tokens.responses()).filter(is_bare).collect();
        if let Some(&first) = bare.first() {
            let (count, first) = (
                counted(bare.len(), "response"),
                self.origin().name_of(first),
            );
            self.notes.push(format!("the mask is 0 for all tokens of {count} (the first: {first}): no token has an advantage there"));
        }
    }

    /// The training step of each response, if there is one.
    fn steps(&self) -> Result<Option<Vec<f64>>, Diagnostic> {
        const EXPECTED: &str = "the training step, a whole number from 0 to below 2^53 (`--map NAME=step` reads it as a column)";
        let Some((reading, index)) = self.find("step") else {
            return Ok(None);
        };
        let Some(steps) = self.numbers(index)? else {
            return Ok(None);
        };
        // From 2^53 on a float no longer tells neighbours apart.
        let is_step =
            |value: f64| value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value);
        match steps.iter().position(|&step| !is_step(step)) {
            None => Ok(Some(steps)),
            Some(at) => {
                let (response, found) = ((steps.len() > 1).then_some(at), in_words(steps[at]));
                let response = response.or_else(|| self.origin().has_lines().then_some(at));
                let error = self
                    .origin()
                    .wrong(&reading.theirs, (response, None), found, EXPECTED);
                Err(error)
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

    /// A number per response.
    fn numbers(&self, index: usize) -> Result<Option<Vec<f64>>, Diagnostic> {
        Ok(match self.data(index) {
            Data::Numbers(numbers) | Data::Counts(numbers) => Some(numbers.clone()),
            Data::Tensor(tensor) => Some(tensor.numbers(|value| value)?),
            Data::Ids(ids, _) => {
                let ids = ids.iter().map(|id| match id {
                    // Exact up to 2^53, as any number of a line.
                    GroupId::Number(number) => Some(*number as f64),
                    GroupId::String(_) => None,
                });
                ids.collect()
            }
            _ => None,
        })
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

    /// Whether token columns are computed with as f64; without any, whether columns of responses are f64.
    fn is_f64(&self) -> bool {
        let of_level = |level: Level| {
            let mut bound = self.bound.iter();
            let is_f64 = move |bound: &Bound| match self.data(bound.1) {
                Data::Tensor(tensor) => self.level(bound) == Some(level) && tensor.is_f64(),
                Data::Lists(_) => level == Level::Token,
                _ => false,
            };
            bound.any(is_f64)
        };
        let mut bound = self
            .bound
            .iter()
            .filter(|(reading, _)| reading.role != Role::Mask);
        let has_tokens = bound.any(|bound| self.level(bound) == Some(Level::Token));
        match self.options.dtype {
            Some(dtype) => dtype == Dtype::F64,
            None => of_level(if has_tokens {
                Level::Token
            } else {
                Level::Response
            }),
        }
    }

    fn add_texts(&mut self, mut builder: BatchBuilder) -> Result<BatchBuilder, Diagnostic> {
        for (reading, index) in std::mem::take(&mut self.texts) {
            let column = &mut self.table.columns[index];
            let texts = match &column.data {
                Data::Tensor(tensor) => tensor.strings()?.into(),
                Data::Ids(ids, _) => ids.iter().map(|id| id.name().into()).collect(),
                _ if column.holds_texts => std::mem::take(&mut column.texts).into(),
                _ => {
                    let (names, origin) = (self.table.names.clone(), self.table.origin.clone());
                    let (name, responses) = (column.name.clone(), self.responses);
                    let read = move || {
                        Ok((
                            texts_of(&names, &origin, &name, responses)?.into(),
                            Vec::new(),
                        ))
                    };
                    let later = Later::new(self.responses, "".into(), read);
                    self.later.push(later.clone());
                    Buffer::new(later)
                }
            };
            builder = builder.text_buffer(reading.ours, texts);
        }
        let saved = self.table.saved.iter_mut();
        for (name, texts) in saved.flat_map(|saved| std::mem::take(&mut saved.texts)) {
            let texts: Vec<Arc<str>> = texts.into_iter().map(Into::into).collect();
            builder = builder.text(name, texts);
        }
        Ok(builder)
    }

    /// Adds the columns of numbers.
    fn add_columns(
        &mut self,
        mut builder: BatchBuilder,
        tokens: Option<Tokens>,
    ) -> Result<BatchBuilder, Diagnostic> {
        if let Some(rewards) = self.sum_of_rewards() {
            builder = builder.response("reward", rewards);
        }
        let tokens = tokens.map(Arc::new);
        let mut bound = std::mem::take(&mut self.bound);
        bound.retain(|(reading, _)| {
            matches!(reading.role, Role::Response | Role::Token | Role::Any)
        });
        for at in 0..bound.len() {
            let (reading, index) = &bound[at];
            let (level, mut ours) = (self.level(&bound[at]), reading.ours.as_str());
            if level == Some(Level::Response) {
                let Some(values) = self.numbers(*index)? else {
                    continue;
                };
                // verl's `acc` is a verdict in some runs, and a share in others.
                let is_acc = (ours, &*reading.theirs, reading.asked) == ("correct", "acc", false);
                let has_reward = || {
                    bound
                        .iter()
                        .any(|(other, _)| other.ours.ends_with("reward"))
                };
                if is_acc && values.iter().any(|x| ![0.0, 1.0].contains(x)) && has_reward() {
                    ours = "acc";
                }
                builder = builder.response(ours, values);
                continue;
            }
            let Some(tokens) = &tokens else { continue };
            // Taken if nothing else is read from them.
            let is_last = bound.get(at + 1).is_none_or(|(_, next)| next != index);
            let data = &mut self.table.columns[*index].data;
            let data = match is_last {
                true => std::mem::take(data),
                false => data.clone(),
            };
            if let Some(values) = self.token_values(reading, data, tokens)? {
                builder = builder.token(ours, values);
            }
        }
        Ok(builder)
    }

    /// A value per token that counts.
    fn token_values(
        &mut self,
        reading: &Reading,
        data: Data,
        tokens: &Arc<Tokens>,
    ) -> Result<Option<TokenValues>, Diagnostic> {
        let column = TokenColumn {
            reading: reading.clone(),
            origin: self.table.origin.clone(),
            tokens: tokens.clone(),
            dtype: self.options.dtype,
            is_saved: self.table.saved.is_some(),
        };
        match data {
            Data::Tensor(tensor) => {
                tensor.bytes()?;
                let (values, later) = column.of_tensor(&tensor);
                self.later.push(later);
                Ok(Some(values))
            }
            Data::Lists(lists) => {
                let (values, notes) = column.of_lists(lists)?;
                self.notes.extend(notes);
                Ok(Some(values))
            }
            _ => Ok(None),
        }
    }

    /// Says what is still to be said of the batch.
    fn check(&mut self, batch: &Batch) -> Result<(), Diagnostic> {
        if self.table.names.compares_answers && !batch.is_verifiable() {
            let what = "nothing says how good a response is: there is no reward, and answers cannot be compared";
            let help = "every response needs a `completion` that is text, and a `solution` (or `answer`): all texts, or all numbers";
            let error = Diagnostic::error(what).with_help(help);
            return Err(error.in_file(&self.origin().path));
        }
        if let Some(more @ 1..) = self.unknown.checked_sub(SHOWN) {
            self.notes
                .push(format!("left out too: {}", counted(more, "more field")));
        }
        Ok(())
    }
}

/// The texts of a column that was passed over when the file was read.
fn texts_of(
    names: &Names,
    origin: &Origin,
    column: &str,
    responses: usize,
) -> Result<Vec<Arc<str>>, Diagnostic> {
    let only = Names {
        only: Some(column.to_string()),
        defers_texts: false,
        count_words: false,
        ..names.clone()
    };
    let path: &Path = &origin.path;
    let table = read_table(path, &|_, _| Ok(only.clone()), &Progress::default())?;
    let sum = |content: &Content| match content {
        Content::Lines { sum, .. } => Some(*sum),
        Content::Tensors(_) => None,
    };
    let found: Option<Column> = table.columns.into_iter().find(|found| found.name == column);
    match found.filter(|found| found.texts.len() == responses) {
        Some(found) if sum(&table.origin.content) == sum(&origin.content) => Ok(found.texts),
        _ => Err(changed(path, "its texts are others")),
    }
}
