//! Finds the name under which each field of a file is read. The name comes from `--map`, from `batch/column_names` (which has
//! trainers' names of tensors), or from `dumps.toml`, a table that says how to recognise each trainer's dump and which of its
//! fields hold which columns.

mod dumps;
mod missing;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use self::dumps::Dump;
pub(super) use self::dumps::{has_spare, is_dialogue, late_references, likely_texts};
use super::cell::JsonType;
use super::json;
use super::options::{Mapping, ReadOptions};
use super::place::Result;
use super::words::Tokenize;
use crate::batch::{Level, SOLUTIONS, column_names};
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// The fields of the first responses, with the types of their values; `Null` if all values of a field are null.
pub(super) type Fields<'a> = &'a IndexMap<String, JsonType>;

/// The meaning of a column, which its name determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The group of a response: a string or an integer.
    Group,
    Mask,
    Step,
    /// The text of the response, whose words are counted if no length is known.
    Completion,
    /// A number per response.
    Response,
    /// A number per token.
    Token,
    /// An unknown name: the values decide between `Response` and `Token`.
    Any,
}

/// Returns the role of a column with this name.
pub(super) fn role(name: &str) -> Role {
    match name {
        "group" => Role::Group,
        "mask" => Role::Mask,
        "step" => Role::Step,
        "completion" => Role::Completion,
        _ => match column_names::column(name).map(|known| known.level) {
            Some(Level::Token) => Role::Token,
            Some(_) => Role::Response,
            None => Role::Any,
        },
    }
}

/// The name of a column, and the field from which the column is read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) role: Role,
    /// Whether the user asked for this reading with `--map`.
    pub(super) asked: bool,
}

impl Reading {
    pub(super) fn new(ours: &str, theirs: &str) -> Self {
        Reading {
            ours: ours.to_string(),
            theirs: theirs.to_string(),
            role: role(ours),
            asked: false,
        }
    }

    /// Returns whether the column holds references.
    pub(super) fn is_reference(&self) -> bool {
        SOLUTIONS.contains(&&*self.ours)
    }
}

/// The prefix of a column that holds the rewards of one of several reward functions.
pub(super) const PART: &str = "reward_";

/// The name of a column that distinguishes prompts whose groups have the same name.
pub(super) const SPLIT: &str = "prompt number";

/// The name of a column that says which responses the trainer rejected. It has spaces, so that a field `rejected` is not taken for
/// this column.
pub(super) const REJECTED: &str = "rejected by the trainer";

/// Names of the training step in logs that have no `step`.
const STEPS: &str = "global_step global_steps training_step train_step trainer_step optimizer_step iteration update";

/// The columns that say how good a response is.
pub(super) const REWARDS: [&str; 3] = ["reward", "token_reward", "correct"];

/// The kind of a file, which determines the names of its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FileKind {
    /// JSONL or parquet, which may be a trainer's dump.
    #[default]
    Lines,
    /// Tensors under trainers' names.
    Tensors,
    /// A batch that advlab saved. A copy of such a file can have the tensor `advantages`, which `apply` added.
    Saved,
}

/// The names under which a file's fields are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Schema {
    pub(super) kind: FileKind,
    /// The columns whose fields were chosen by `--map`, by the table of known dumps, or by a guess.
    pub(super) readings: Vec<Reading>,
    /// Whether the words or tokens of completions are counted, because no field gives the lengths of responses.
    pub(super) count_words: bool,
    /// The tokenizer that counts the tokens of completions; `None` if their words are counted.
    pub(super) tokenizer: Option<Arc<dyn Tokenize>>,
    /// The column with which completions are compared; set if there is no reward.
    pub(super) references: Option<&'static str>,
    /// Whether `answer` is the reference of responses whose `solution`, read from a field with another name, is blank.
    pub(super) has_spare: bool,
    /// The known dump that the first lines match.
    pub(super) dump: Option<&'static Dump>,
    /// Notes on names that were chosen without `--map`.
    pub(super) notes: Vec<String>,
    /// The paths of the fields inside objects that are read as columns, such as `rewards.correct`.
    pub(super) nested: IndexSet<String>,
    /// The columns whose sum is the reward; empty if the reward is not a sum.
    pub(super) rewards: Vec<String>,
    /// The fields that would be read as lengths or weights by their names alone, although a known dump has no such fields.
    pub(super) foreign: Vec<String>,
    /// If set, texts and arrays are read only for these columns.
    pub(super) columns: Option<BTreeSet<String>>,
}

impl Schema {
    /// Decides under which names the fields are read. Fails if a field that the user names does not exist, if there are no
    /// groups, or if rewards are needed and there are none.
    pub(super) fn new(
        path: &Path,
        options: &ReadOptions,
        fields: Fields,
        kind: FileKind,
    ) -> Result<Schema> {
        let mut schema = Schema {
            kind,
            tokenizer: options.tokenizer.cloned(),
            columns: options.columns.cloned(),
            ..Schema::default()
        };
        let in_file = |error: Diagnostic| error.in_file(path);
        schema.map(options.map, fields).map_err(in_file)?;
        if kind == FileKind::Lines {
            schema.recognise(fields);
            schema.find_step(fields);
            schema.find_reference(fields);
        }
        if !schema.provides("group", fields) && fields.contains_key("uid") {
            schema.read("group", "uid");
            schema.notes.push("`group` is read from `uid`".to_string());
        }
        let paths = schema.readings.iter().map(|one| &one.theirs);
        let paths = paths.filter(|path| !fields.contains_key(*path));
        schema.nested = paths.cloned().collect();
        let is_rewarded = schema.is_rewarded(fields);
        let all: Vec<(JsonType, Reading)> = schema.readings_of(fields).collect();
        let has =
            |is: &dyn Fn(JsonType, &Reading) -> bool| all.iter().any(|(kind, one)| is(*kind, one));
        if !is_rewarded && has(&|_, one| one.ours == "completion") {
            let given = |is: fn(JsonType) -> bool| {
                SOLUTIONS
                    .into_iter()
                    .find(|name| has(&|kind, one| one.ours == *name && is(kind)))
            };
            schema.references = given(|kind| kind != JsonType::Null).or(given(|_| true));
        }
        let has_parts = has(&|_, one| one.ours.starts_with(PART));
        let is_read = |reads: &BTreeSet<String>| {
            let mut names = REWARDS.iter().chain(&["verified"]);
            names.any(|name| reads.contains(*name))
        };
        let is_needed = !options.unrewarded && options.columns.map_or(!has_parts, is_read);
        schema
            .check(fields, is_rewarded || !is_needed)
            .map_err(in_file)?;
        schema.count_words = !has(&|found, one| {
            let is_array = found != JsonType::Number || kind != FileKind::Lines;
            let is_of_tokens = matches!(one.role, Role::Mask | Role::Token) && is_array;
            found != JsonType::Null && (one.ours == "length" || is_of_tokens)
        });
        Ok(schema)
    }

    /// Returns the fields that this schema reads under a name that `before` does not give them, each with whether this changes the
    /// call's result. References count only if completions are compared or the recipe reads them.
    pub(super) fn changes(&self, before: &Schema, fields: Fields) -> Vec<(String, bool)> {
        let is_compared = self.references.or(before.references).is_some();
        let decides = |one: &Reading| match one.role {
            _ if self.columns.is_some() && self.reads(&one.ours) => true,
            Role::Group | Role::Mask | Role::Step => true,
            Role::Completion => is_compared || before.count_words,
            _ if is_compared && (one.ours == "correct" || one.is_reference()) => true,
            _ if self.rewards.contains(&one.theirs) && !before.rewards.contains(&one.theirs) => {
                true
            }
            _ => matches!(&*one.ours, "reward" | "token_reward" | "length" | REJECTED),
        };
        let mut changes = Vec::new();
        for (_, one) in self.readings_of(fields) {
            let (decides, is_known) = (decides(&one), before.of(&one.theirs).contains(&one));
            if !is_known && (decides || is_compared || !one.is_reference()) {
                changes.push((one.theirs, decides));
            }
        }
        changes
    }

    /// Applies the user's mapping.
    fn map(&mut self, map: &[Mapping], fields: Fields) -> Result<()> {
        let all = || fields.keys().map(String::as_str);
        for Mapping { ours, theirs } in map {
            let is_own = fields.contains_key(theirs);
            let is_above = |field: &str| json::is_inside(theirs, field);
            let is_nested = self.kind == FileKind::Lines && all().any(is_above);
            let what = if let Some(Reading { theirs, .. }) = self.reading(ours) {
                format!("`{ours}` is already read from `{theirs}`")
            } else if !is_own && !is_nested {
                let near = suggest::did_you_mean(theirs, all());
                format!("there is no field `{theirs}`; {near}")
            } else {
                let reading = Reading::new(ours, theirs);
                self.readings.push(Reading {
                    asked: true,
                    ..reading
                });
                continue;
            };
            return Err(Diagnostic::error(format!(
                "`--map {ours}={theirs}`: {what}"
            )));
        }
        for Mapping { ours, theirs } in map {
            // A completion in a field `answer` must not be read as a reference too.
            let is_text = |name: &str| name == "completion" || SOLUTIONS.contains(&name);
            let is_other = is_text(ours) && is_text(self.own(theirs));
            if !is_other && fields.contains_key(theirs) {
                self.keep_own(theirs);
            }
        }
        Ok(())
    }

    /// Reads a field as a column, whose name determines its role.
    fn read(&mut self, ours: &str, theirs: &str) {
        self.read_as(ours, theirs, role(ours));
    }

    fn read_as(&mut self, ours: &str, theirs: &str, role: Role) {
        let reading = Reading::new(ours, theirs);
        self.readings.push(Reading { role, ..reading });
    }

    /// Also reads a field under its own name, unless another field is already read under that name.
    fn keep_own(&mut self, field: &str) {
        let own = self.own(field);
        if self.reading(own).is_none() {
            self.read(own, field);
        }
    }

    /// Finds the training step under one of the names that loggers use.
    fn find_step(&mut self, fields: Fields) {
        let is = |name: &str, kind| fields.get(name) == Some(&kind);
        let is_text = |name: &&str| name.contains("step") && is(name, JsonType::String);
        let step = || STEPS.split(' ').find(|name| is(name, JsonType::Number));
        if !self.provides("step", fields)
            && let Some(theirs) = step().or_else(|| STEPS.split(' ').find(is_text))
        {
            self.read("step", theirs);
            self.keep_own(theirs);
            self.notes.push(format!("`step` is read from `{theirs}`"));
        }
    }

    /// Finds the reference under a name other than `solution` and `answer`. Beside such a reference, `answer` is what the policy
    /// answered, so the reference is read under both names.
    fn find_reference(&mut self, fields: Fields) {
        let asked = self.reading("solution").map(|one| one.theirs.clone());
        let likely = likely_texts("solution", fields).first().copied();
        let likely = likely.filter(|_| asked.is_none() && self.provides("completion", fields));
        let theirs = likely.map(str::to_string).or(asked);
        let Some(theirs) = theirs.filter(|theirs| !SOLUTIONS.contains(&&**theirs)) else {
            return;
        };
        self.has_spare = likely.is_some() && self.dump.is_none() && !self.is_rewarded(fields);
        if likely.is_some() {
            self.read("solution", &theirs);
            self.keep_own(&theirs);
        }
        let is_wanted = !self.has_spare && self.provides("answer", fields);
        if is_wanted && self.reading("answer").is_none() {
            self.read("answer", &theirs);
        }
    }

    /// Returns the name under which a field is read without `--map`: trainers' names of tensors are translated.
    pub(super) fn own<'a>(&self, field: &'a str) -> &'a str {
        match self.kind {
            FileKind::Lines => field,
            FileKind::Tensors => column_names::ours(field).unwrap_or(field),
            FileKind::Saved => column_names::of_saved(field),
        }
    }

    /// Returns the reading of a column among [`Schema::readings`].
    pub(super) fn reading(&self, ours: &str) -> Option<&Reading> {
        self.readings.iter().find(|reading| reading.ours == ours)
    }

    /// Returns the readings of all fields, with the types of the fields.
    fn readings_of<'a>(
        &'a self,
        fields: Fields<'a>,
    ) -> impl Iterator<Item = (JsonType, Reading)> + 'a {
        let readings = |(field, kind): (&String, &'a JsonType)| {
            self.of(field).into_iter().map(|one| (*kind, one))
        };
        let is_nested = |one: &&Reading| !fields.contains_key(&one.theirs);
        let nested = self.readings.iter().filter(is_nested);
        let nested = nested.map(|one| (JsonType::Object, one.clone()));
        fields.iter().flat_map(readings).chain(nested)
    }

    fn provides(&self, ours: &str, fields: Fields) -> bool {
        ours == "reward" && !self.rewards.is_empty()
            || self.readings_of(fields).any(|(_, one)| one.ours == ours)
    }

    fn is_rewarded(&self, fields: Fields) -> bool {
        REWARDS.iter().any(|ours| self.provides(ours, fields))
    }

    /// Returns the readings of a field. A field that no reading names is read under its own name; if another field is read under
    /// that name, the result is empty.
    pub(super) fn of(&self, field: &str) -> Vec<Reading> {
        let readings = self.readings.iter().filter(|one| one.theirs == field);
        let mut readings: Vec<Reading> = readings.cloned().collect();
        let own = self.own(field);
        let is_foreign = self.foreign.iter().any(|foreign| foreign == field);
        if readings.is_empty() && !is_foreign && self.reading(own).is_none() {
            readings.push(Reading::new(own, field));
        }
        readings
    }

    /// Returns whether a field is read under more than one name.
    pub(super) fn is_read_twice(&self, field: &str) -> bool {
        let readings = self.readings.iter();
        readings.filter(|reading| reading.theirs == field).count() > 1
    }

    /// Returns whether the caller reads a column.
    pub(super) fn reads(&self, ours: &str) -> bool {
        let columns = self.columns.as_ref();
        columns.is_none_or(|all| all.contains(ours))
    }

    /// Returns whether the trainer rejected a response, by the response's value of the column [`REJECTED`].
    pub(super) fn rejects(&self, value: f64) -> bool {
        let rejected = self.dump.and_then(|dump| dump.rejected_if.as_ref());
        rejected.is_some_and(|(_, rejected)| value == *rejected)
    }
}
