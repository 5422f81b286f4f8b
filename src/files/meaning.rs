//! Gives the columns of a file their meaning: the groups, the tokens that count, the batch's columns, and the unused rest.
//!
//! Lines and tensors are treated alike: a list of numbers and a tensor [B, T] are a value per token, a number and a tensor [B]
//! one per response.

use std::collections::HashMap;
use std::mem::discriminant;
use std::path::Path;
use std::sync::Arc;

use super::later::{Later, Pending, read_all};
use super::names::{ADVANTAGES, FileKind, Names, Reading, Role, role};
use super::table::{ColumnData, Content, FileColumn, FileOrigin, Table};
use super::tensors::FileTensor;
use super::values::TokenColumn;
use super::{Dtype, Progress, ReadOptions, Result, Rollouts, changed, read_table};
use crate::batch::layout::Tokens;
use crate::batch::{Batch, BatchBuilder, Buffer, GroupId, Level, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::number_text::counted;

/// The most unknown fields that a note lists: a file may have as many as it has lines.
const SHOWN: usize = 5;

/// A column of numbers that becomes part of the batch.
#[derive(Clone)]
pub(super) struct BoundColumn {
    pub(super) reading: Reading,
    pub(super) column: Arc<FileColumn>,
    /// Token or response.
    pub(super) level: Level,
}

impl BoundColumn {
    /// Whether the column has a known role, or the user asked for it. Such a token column says which tokens there are.
    pub(super) fn is_known(&self) -> bool {
        self.reading.role != Role::Any || self.reading.asked
    }
}

/// A file while the meaning of its columns is found.
pub(super) struct Meaning<'a> {
    pub(super) table: Table,
    options: &'a ReadOptions<'a>,
    pub(super) notes: Vec<String>,
    /// How many unknown fields are left out.
    unknown: usize,
    pub(super) responses: usize,
    pub(super) bound: Vec<BoundColumn>,
    texts: Vec<(Reading, Arc<FileColumn>)>,
    /// The field of completions whose words or tokens are counted, if nothing else says how long responses are.
    pub(super) counted: Option<(String, Arc<FileColumn>)>,
    /// The completion whose words would be the lengths, and why they are not.
    pub(super) no_length: Option<(String, String)>,
    pub(super) unit: &'static str,
    /// T, if there are tensors [B, T].
    pub(super) width: Option<usize>,
    /// The columns to read now, and the columns to read on first use.
    pending: [Vec<Arc<dyn Pending>>; 2],
}

/// Makes a batch of a reader's table.
pub(super) fn rollouts(table: Table, options: &ReadOptions) -> Result<Rollouts, Diagnostics> {
    let mut meaning = Meaning {
        notes: table.names.note.iter().cloned().collect(),
        unknown: 0,
        responses: 0,
        bound: Vec::new(),
        texts: Vec::new(),
        counted: None,
        no_length: None,
        unit: "token",
        width: None,
        pending: Default::default(),
        table,
        options,
    };
    let readings = meaning.readings()?;
    let groups = meaning.groups(&readings)?;
    meaning.responses = groups.len();
    meaning.bind(readings)?;
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
    let built = builder.build_located();
    let mut batch = built.map_err(|(response, error)| origin.error(response, error))?;
    if batch.token_columns().next().is_some() {
        batch.is_f64 = is_f64;
    }
    meaning.check(&batch)?;
    let [now, later] = meaning.pending;
    read_all(&now);
    let notes = meaning.notes.into_iter().map(Diagnostic::note);
    Ok(Rollouts {
        notes: notes.chain(super::later::notes(&now)?).collect(),
        unit: meaning.unit,
        later,
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

/// A number as text: a very large or small one with an exponent.
fn in_words(value: f64) -> String {
    let text = format!("{value:?}");
    text.strip_suffix(".0").unwrap_or(&text).to_string()
}

impl Meaning<'_> {
    pub(super) fn origin(&self) -> &FileOrigin {
        &self.table.origin
    }

    pub(super) fn left_out(&mut self, field: &str, why: &str) {
        let ours = crate::batch::column_names::ours(field).unwrap_or(field);
        if role(ours) == Role::Any {
            self.unknown += 1;
            if self.unknown > SHOWN {
                return;
            }
        }
        self.notes.push(format!("`{field}` is left out: {why}"));
    }

    pub(super) fn find(&self, ours: &str) -> Option<&BoundColumn> {
        self.bound.iter().find(|bound| bound.reading.ours == ours)
    }

    fn readings(&mut self) -> Result<Vec<(Reading, Arc<FileColumn>)>> {
        let (names, columns) = (self.table.names.clone(), self.table.columns.clone());
        let are_tensors = names.kind != FileKind::Lines;
        let has_newer = are_tensors && columns.iter().any(|column| column.name == ADVANTAGES);
        let mut seen: HashMap<String, String> = HashMap::new();
        let mut readings = Vec::new();
        for column in columns {
            let name = &column.name;
            if let Some(why) = names.shadowed(name) {
                self.left_out(name, &why);
            }
            for reading in names.of(name) {
                // A copy that was written of a run's batch has the run's own and a newer one.
                if name == "advantage" && has_newer {
                    self.left_out(name, "`advantages` was written after it");
                    continue;
                }
                let ours = &reading.ours;
                if let Some(first) = seen.insert(ours.clone(), name.clone()) {
                    let what = format!("tensors `{first}` and `{name}` are both read as `{ours}`");
                    let help = format!(
                        "say which it is, with `--map {ours}={first}` or `--map {ours}={name}`"
                    );
                    let error = Diagnostic::error(what).with_help(help);
                    return Err(self.origin().error(None, error));
                }
                readings.push((reading, column.clone()));
            }
        }
        Ok(readings)
    }

    /// Sorts the columns into numbers, with their levels, and texts; any other column is left out, or is an error.
    fn bind(&mut self, readings: Vec<(Reading, Arc<FileColumn>)>) -> Result<()> {
        for (reading, column) in readings {
            if column.is_text() && matches!(reading.role, Role::Any | Role::Completion) {
                if column.keep.counts && reading.role == Role::Completion {
                    self.counted = Some((reading.theirs.clone(), column.clone()));
                }
                self.texts.push((reading, column));
                continue;
            }
            let level = self.level(&reading, &column)?;
            self.bound.extend(level.map(|level| BoundColumn {
                reading,
                column,
                level,
            }));
        }
        if self.options.tokenizer.is_some() && self.counted.is_none() {
            let why =
                "the file says how many tokens a response has, or has no `completion` that is text";
            self.notes
                .push(format!("the tokenizer counts nothing: {why}"));
        }
        Ok(())
    }

    /// The level of a column that has a number, or an array of numbers, for every response. A column of another kind is left
    /// out, or is an error.
    fn level(&mut self, reading: &Reading, column: &FileColumn) -> Result<Option<Level>> {
        let tensor = match &column.data {
            ColumnData::Tensor(tensor) => Some(tensor),
            _ => None,
        };
        let (rows, is_saved) = (self.responses, self.table.saved.is_some());
        let level = match (&column.data, reading.role) {
            // `groups` has read a tensor.
            (ColumnData::Ids(_) | ColumnData::Texts(..) | ColumnData::Tensor(_), Role::Group) => {
                Some(Level::Response)
            }
            (ColumnData::Lists(_), Role::Mask | Role::Token | Role::Any) => Some(Level::Token),
            (
                ColumnData::Numbers(_) | ColumnData::Ids(_),
                Role::Response | Role::Step | Role::Any,
            ) => Some(Level::Response),
            (ColumnData::Tensor(tensor), role) if tensor.is_number() => {
                match (role, tensor.shape.as_slice()) {
                    (Role::Mask | Role::Token | Role::Any, [n, _]) if *n == rows => {
                        Some(Level::Token)
                    }
                    (Role::Response | Role::Any, [n]) if *n == rows => Some(Level::Response),
                    // [B, 1] will do for a column that we know.
                    (Role::Response, [n, 1]) if *n == rows => Some(Level::Response),
                    // The step of the whole batch is one number.
                    (Role::Step, []) if !is_saved => Some(Level::Response),
                    (Role::Step, [n]) if *n == rows && !is_saved => Some(Level::Response),
                    _ => None,
                }
            }
            _ => None,
        };
        let (at, found) = match &column.odd {
            Some((at, found)) => (*at, found.as_str()),
            None if column.filled > 0 && level.is_some() => return Ok(level),
            None if column.filled > 0 || column.null.is_none() => (0, column.first.as_str()),
            None => (column.null.unwrap_or_default(), "null"),
        };
        // Log-probs that nobody has are null everywhere.
        let is_empty = column.filled == 0 && column.odd.is_none() && !reading.asked;
        let is_array = matches!(reading.role, Role::Mask | Role::Token);
        if reading.is_needed() && !(is_empty && is_array) {
            let found = if found == "missing" { "nothing" } else { found };
            let at = (Some(at).filter(|_| tensor.is_none()), None);
            let expected = match reading.role {
                _ if tensor.is_none() => expected(reading).to_string(),
                Role::Mask | Role::Token => format!("numbers [{rows}, T], one for each token"),
                Role::Response => format!("numbers [{rows}], one for each response"),
                _ => format!("numbers [{rows}] or [{rows}, T]"),
            };
            let field = &reading.theirs;
            let error = self.origin().wrong(field, at, found, expected);
            let shape = tensor.map(|tensor| tensor.shape.as_slice());
            return Err(match (reading.ours.as_str(), shape) {
                ("token_reward", Some(_)) => {
                    error.with_help("a reward for the whole response is `reward`")
                }
                ("reward", Some([n, _]))
                    if *n == rows && tensor.is_some_and(FileTensor::is_number) =>
                {
                    error.with_help(format!(
                        "a reward for each token is `token_reward`: `--map token_reward={field}`"
                    ))
                }
                _ => error,
            });
        }
        let why = match tensor {
            Some(_) => format!("it is {found}, and columns are [{rows}] or [{rows}, T]"),
            None => format!("it is {found} in {}", self.origin().name_of(at)),
        };
        // A string or an object is not meant to be a column.
        let is_meant = !matches!(
            column.data,
            ColumnData::Null | ColumnData::Other | ColumnData::Texts(..)
        );
        match reading.role {
            Role::Completion => self.no_length = Some((reading.theirs.clone(), why)),
            Role::Any if !is_meant => {}
            _ => self.left_out(&reading.theirs, &why),
        }
        Ok(None)
    }

    fn groups(&mut self, readings: &[(Reading, Arc<FileColumn>)]) -> Result<Vec<GroupId>> {
        let mut readings = readings.iter();
        let Some((reading, column)) = readings.find(|(reading, _)| reading.role == Role::Group)
        else {
            unreachable!("a file without groups has been refused by its names");
        };
        if let ColumnData::Tensor(tensor) = &column.data {
            return self.groups_of_tensor(reading, tensor);
        }
        // Reports a value that is no id as an error.
        self.level(reading, column)?;
        Ok(match &column.data {
            ColumnData::Ids(ids) => ids.clone(),
            ColumnData::Texts(texts, _) => texts.iter().map(|text| text.clone().into()).collect(),
            _ => Vec::new(),
        })
    }

    /// Whole numbers, strings, or indices in a list of names.
    fn groups_of_tensor(&self, reading: &Reading, tensor: &FileTensor) -> Result<Vec<GroupId>> {
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

    fn steps(&self) -> Result<Option<Vec<f64>>> {
        const EXPECTED: &str = "the training step, a whole number from 0 to below 2^53 (`--map NAME=step` reads it as a column)";
        let Some(BoundColumn {
            reading, column, ..
        }) = self.find("step")
        else {
            return Ok(None);
        };
        let steps = numbers(column)?;
        // From 2^53 on, neighbouring integers are the same float.
        let is_step =
            |value: f64| value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value);
        let Some(at) = steps.iter().position(|&step| !is_step(step)) else {
            return Ok(Some(steps));
        };
        let is_of_response = steps.len() > 1 || self.origin().has_lines();
        let place = (is_of_response.then_some(at), None);
        let found = in_words(steps[at]);
        Err(self.origin().wrong(&reading.theirs, place, found, EXPECTED))
    }

    /// The groups and the step of the batch. The groups of a dump of several steps are told apart by step.
    fn of_steps(&mut self, groups: Vec<GroupId>) -> Result<(Vec<GroupId>, u64)> {
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

    /// The sum of the rewards of several reward functions; one of them may have no reward for a response.
    fn sum_of_rewards(&self) -> Option<Vec<f64>> {
        let names = &self.table.names.rewards;
        let mut sums: Option<Vec<f64>> = None;
        for column in &self.table.columns {
            if let ColumnData::Numbers(rewards) = &column.data
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
        let is_wide = |bound: &BoundColumn| match &bound.column.data {
            ColumnData::Tensor(tensor) => tensor.is_f64(),
            ColumnData::Lists(_) => true,
            _ => false,
        };
        let is_token = |bound: &&BoundColumn| bound.level == Level::Token;
        let has_tokens = self
            .bound
            .iter()
            .filter(is_token)
            .any(|one| one.reading.role != Role::Mask);
        let mut bound = self
            .bound
            .iter()
            .filter(|bound| is_token(bound) == has_tokens);
        match self.options.dtype {
            Some(dtype) => dtype == Dtype::F64,
            None => bound.any(is_wide),
        }
    }

    fn add_texts(&mut self, mut builder: BatchBuilder) -> Result<BatchBuilder> {
        for (reading, column) in std::mem::take(&mut self.texts) {
            let texts = match &column.data {
                ColumnData::Tensor(tensor) => tensor.strings()?.into(),
                ColumnData::Texts(texts, _) if texts.len() == self.responses => {
                    texts.clone().into()
                }
                _ => {
                    let (read, responses) = (self.read_again(&column), self.responses);
                    let later = Later::new(responses, "".into(), || match read()? {
                        ColumnData::Texts(texts, _) => Ok((texts.into(), Vec::new())),
                        _ => unreachable!("the column is the same as when it was read first"),
                    });
                    self.pending[1].push(later.clone());
                    Buffer::new(later)
                }
            };
            builder = builder.text_buffer(reading.ours, texts);
        }
        let saved = self.table.saved.iter_mut();
        for (name, texts) in saved.flat_map(|saved| std::mem::take(&mut saved.texts)) {
            builder = builder.text(name, texts);
        }
        Ok(builder)
    }

    fn add_columns(
        &mut self,
        mut builder: BatchBuilder,
        tokens: Option<Tokens>,
    ) -> Result<BatchBuilder> {
        if let Some(rewards) = self.sum_of_rewards() {
            builder = builder.response("reward", rewards);
        }
        let tokens = tokens.map(Arc::new);
        let bound = std::mem::take(&mut self.bound);
        let has_reward = bound.iter().any(|one| one.reading.ours.ends_with("reward"));
        // From here on `bound` is the only owner of the columns' data, unless a column is read under two names.
        self.table.columns.clear();
        for BoundColumn {
            reading,
            column,
            level,
        } in bound
        {
            if matches!(reading.role, Role::Group | Role::Mask | Role::Step) {
                continue;
            }
            if level == Level::Response {
                let values = numbers(&column)?;
                // verl's `acc` is a verdict in some runs, and a share in others.
                let is_acc = reading.ours == "correct" && reading.theirs == "acc" && !reading.asked;
                let is_share = has_reward && values.iter().any(|x| ![0.0, 1.0].contains(x));
                let acc = (is_acc && is_share).then(|| "acc".to_string());
                builder = builder.response(acc.unwrap_or(reading.ours), values);
            } else if let Some(tokens) = &tokens {
                let ours = reading.ours.clone();
                let values = self.token_values(reading, column, tokens.clone())?;
                builder = builder.token(ours, values);
            }
        }
        Ok(builder)
    }

    fn token_values(
        &mut self,
        reading: Reading,
        column: Arc<FileColumn>,
        tokens: Arc<Tokens>,
    ) -> Result<TokenValues> {
        let values = TokenColumn {
            reading,
            tokens,
            origin: self.table.origin.clone(),
            dtype: self.options.dtype,
            is_saved: self.table.saved.is_some(),
        };
        let ((values, pending), is_later) = match &column.data {
            ColumnData::Tensor(tensor) => {
                tensor.bytes()?;
                (values.of_tensor(tensor), self.options.defer.is_some())
            }
            ColumnData::Lists(lists) if lists.are_left() => {
                let (read, starts) = (self.read_again(&column), lists.starts.clone());
                let read = || Ok(read()?.into_lists().values);
                (values.of_lists(starts, read), true)
            }
            _ => {
                let lists = Arc::unwrap_or_clone(column).data.into_lists();
                (values.of_lists(lists.starts, || Ok(lists.values)), false)
            }
        };
        self.pending[usize::from(is_later)].push(pending);
        Ok(values)
    }

    /// A function that reads a column left in the file, after a check that the file is unchanged.
    fn read_again(
        &self,
        column: &FileColumn,
    ) -> impl FnOnce() -> Result<ColumnData> + Send + use<> {
        let (origin, name) = (self.table.origin.clone(), column.name.clone());
        let (filled, kind) = (column.filled, discriminant(&column.data));
        let only = Names {
            only: Some(name.clone()),
            deferred: None,
            // Whether words are counted decides what an empty array is; tokens take longer.
            tokenizer: None,
            ..(*self.table.names).clone()
        };
        let sum = |origin: &FileOrigin| match origin.content {
            Content::Lines { sum, .. } => Some(sum),
            Content::Tensors(_) => None,
        };
        move || {
            let path: &Path = &origin.path;
            let table = read_table(path, &|_, _| Ok(only.clone()), &Progress::default())?;
            let mut columns = table.columns.into_iter();
            let found = columns.find(|found| found.name == name);
            let is_same = |found: &FileColumn| {
                let is_whole = found.filled == filled && discriminant(&found.data) == kind;
                is_whole && sum(&table.origin) == sum(&origin)
            };
            match found.and_then(Arc::into_inner) {
                Some(found) if is_same(&found) => Ok(found.data),
                _ => Err(changed(path, "its bytes are others")),
            }
        }
    }

    fn check(&mut self, batch: &Batch) -> Result<()> {
        if self.table.names.compares_answers && !batch.is_verifiable() {
            let what = "nothing says how good a response is: there is no reward, and answers cannot be compared";
            let help = "every response needs a `completion` that is text, and a `solution` (or `answer`): all texts, or all numbers";
            let error = Diagnostic::error(what).with_help(help);
            return Err(self.origin().error(None, error));
        }
        if let Some(more @ 1..) = self.unknown.checked_sub(SHOWN) {
            let more = counted(more, "more field");
            self.notes.push(format!("left out too: {more}"));
        }
        Ok(())
    }
}

fn numbers(column: &FileColumn) -> Result<Vec<f64>> {
    Ok(match &column.data {
        ColumnData::Numbers(numbers) | ColumnData::Texts(_, numbers) => numbers.clone(),
        ColumnData::Tensor(tensor) => tensor.numbers()?,
        ColumnData::Ids(ids) => {
            let ids = ids.iter().map(|id| match id {
                // Exact up to 2^53, like any number in a line.
                GroupId::Number(number) => *number as f64,
                GroupId::String(digits) => super::json::number(digits),
            });
            ids.collect()
        }
        _ => Vec::new(),
    })
}
