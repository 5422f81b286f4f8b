//! Finds the name under which each field of a file is read. The name comes from `--map`, from `batch/column_names` (which has
//! trainers' names of tensors), or from `dumps.toml`, a table that says how to recognise each trainer's dump and which of its
//! fields hold which columns.

mod dumps;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use self::dumps::recognise;
pub(super) use self::dumps::{has_spare, is_dialogue, late_references, likely_texts};
use super::cell::JsonType;
use super::json;
use super::keep::Keep;
use super::messages::TextKind;
use super::options::{Mapping, ReadOptions};
use super::place::Result;
use super::words::Tokenize;
use crate::batch::{Level, SOLUTIONS, column_names};
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// The fields of the first responses, with the types of their values; `Null` if all values of a field are null.
pub(super) type Fields<'a> = &'a [(String, JsonType)];

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
    pub(super) fn new(ours: &str, theirs: &str, asked: bool) -> Self {
        Reading {
            ours: ours.to_string(),
            theirs: theirs.to_string(),
            role: role(ours),
            asked,
        }
    }
}

/// The prefix of a column that holds the rewards of one of several reward functions.
pub(super) const PART: &str = "reward_";

/// The name of a column that distinguishes prompts whose groups have the same name.
pub(super) const SPLIT: &str = "prompt number";

/// The name of a column that says which responses the trainer rejected.
pub(super) const REJECTED: &str = "rejected";

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
    /// Whether a completion may be the text of a dialogue with an environment.
    pub(super) is_dialogue: bool,
    /// Notes on names that were chosen without `--map`.
    pub(super) notes: Vec<String>,
    /// The paths of the fields inside objects that are read as columns, such as `rewards.correct`.
    pub(super) nested: Vec<String>,
    /// The columns whose sum is the reward; empty if the reward is not a sum.
    pub(super) rewards: Vec<String>,
    /// The value of the column [`REJECTED`] for a rejected response.
    pub(super) rejected_if: f64,
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
            is_dialogue: is_dialogue(fields),
            ..Schema::default()
        };
        let in_file = |error: Diagnostic| error.in_file(path);
        schema.map(options.map, fields).map_err(in_file)?;
        if kind == FileKind::Lines {
            recognise(&mut schema, fields);
            schema.find_step(fields);
            schema.find_reference(fields);
        }
        if !schema.provides("group", fields) && fields.iter().any(|(field, _)| field == "uid") {
            schema.read("group", "uid");
            schema.notes.push("`group` is read from `uid`".to_string());
        }
        let is_rewarded = REWARDS.iter().any(|ours| schema.provides(ours, fields));
        let all: Vec<(JsonType, Reading)> = schema.readings_of(fields).collect();
        let has = |ours: &str, may_be_null: bool| {
            let mut all = all.iter();
            all.any(|(kind, one)| one.ours == ours && (may_be_null || *kind != JsonType::Null))
        };
        if !is_rewarded && has("completion", true) {
            let found = |may_be_null| SOLUTIONS.into_iter().find(|name| has(name, may_be_null));
            schema.references = found(false).or_else(|| found(true));
        }
        let has_parts = all.iter().any(|(_, one)| one.ours.starts_with(PART));
        let is_read = |reads: &BTreeSet<String>| {
            REWARDS.iter().any(|name| reads.contains(*name)) || reads.contains("verified")
        };
        let is_needed = !options.unrewarded && options.columns.map_or(!has_parts, is_read);
        schema
            .check(fields, is_rewarded || !is_needed)
            .map_err(in_file)?;
        schema.count_words = !all.iter().any(|(found, one)| {
            let is_array = *found != JsonType::Number || kind != FileKind::Lines;
            let is_of_tokens = matches!(one.role, Role::Mask | Role::Token) && is_array;
            *found != JsonType::Null && (one.ours == "length" || is_of_tokens)
        });
        Ok(schema)
    }

    /// Returns the reward functions or the columns that decide this call's result and that `other` does not read from the same
    /// fields. References count only if completions are compared, and other columns only if the recipe reads them.
    pub(super) fn changes_result_of(&self, other: &Schema, fields: Fields) -> bool {
        let is_compared = self.references.or(other.references).is_some();
        let counts = |one: &Reading| match one.role {
            Role::Group | Role::Mask | Role::Step => true,
            Role::Completion => is_compared || other.count_words,
            _ if is_compared && (one.ours == "correct" || SOLUTIONS.contains(&&*one.ours)) => true,
            _ => matches!(&*one.ours, "reward" | "token_reward" | "length" | REJECTED),
        };
        let is_read = |one: &Reading| {
            let columns = self.columns.as_ref();
            columns.is_some_and(|all| all.contains(&one.ours))
        };
        let mut decide = self.readings_of(fields).map(|(_, one)| one);
        self.rewards != other.rewards
            || decide
                .any(|one| (counts(&one) || is_read(&one)) && !other.of(&one.theirs).contains(&one))
    }

    /// Returns whether a field has a name that `other` does not give it; references count only if completions are compared.
    pub(super) fn renames(&self, field: &str, other: &Schema) -> bool {
        let is_compared = self.references.or(other.references).is_some();
        let before = other.of(field);
        let counts = |one: &Reading| is_compared || !SOLUTIONS.contains(&&*one.ours);
        self.of(field)
            .iter()
            .any(|one| counts(one) && !before.contains(one))
    }

    /// Applies the user's mapping.
    fn map(&mut self, map: &[Mapping], fields: Fields) -> Result<()> {
        let all = || fields.iter().map(|(field, _)| field.as_str());
        for Mapping { ours, theirs } in map {
            let is_own = all().any(|field| field == theirs);
            let is_above = |field: &str| json::is_inside(theirs, field);
            let is_nested = !is_own && self.kind == FileKind::Lines && all().any(is_above);
            let what = if let Some(Reading { theirs, .. }) = self.reading(ours) {
                format!("`{ours}` is already read from `{theirs}`")
            } else if !is_own && !is_nested {
                let near = suggest::did_you_mean(theirs, all());
                format!("there is no field `{theirs}`; {near}")
            } else {
                self.readings.push(Reading::new(ours, theirs, true));
                self.add_nested(theirs, is_nested);
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
            if !is_other && !self.nested.contains(theirs) {
                self.keep_own(theirs);
            }
        }
        Ok(())
    }

    /// Reads a field as a column.
    fn read(&mut self, ours: &str, theirs: &str) {
        self.readings.push(Reading::new(ours, theirs, false));
    }

    /// Notes that a path leads to a field inside an object.
    fn add_nested(&mut self, path: &str, is_nested: bool) {
        if is_nested && self.nested.iter().all(|known| known != path) {
            self.nested.push(path.to_string());
        }
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
        let is = |name: &str, kind| fields.contains(&(name.to_string(), kind));
        let is_text = |name: &&str| name.contains("step") && is(name, JsonType::String);
        let step = || STEPS.split(' ').find(|name| is(name, JsonType::Number));
        if self.reading("step").is_none()
            && !self.provides("step", fields)
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
        let is_rewarded = REWARDS.iter().any(|ours| self.provides(ours, fields));
        self.has_spare = likely.is_some() && !is_rewarded && has_spare(fields);
        for ours in SOLUTIONS {
            let is_wanted = !self.has_spare && self.provides(ours, fields);
            if self.reading(ours).is_none() && (ours == "solution" || is_wanted) {
                self.read(ours, &theirs);
            }
        }
        if likely.is_some() {
            self.keep_own(&theirs);
        }
    }

    /// Refuses a file that has no groups, or that has neither rewards nor answers to compare.
    fn check(&self, fields: Fields, is_rewarded: bool) -> Result<()> {
        let kind = usize::from(self.kind != FileKind::Lines);
        let is_grouped = self.provides("group", fields);
        // A saved batch is accepted, because it may have had no rewards.
        let lacks_rewards =
            !is_rewarded && self.references.is_none() && self.kind != FileKind::Saved;
        let (ours, likely, what, wanted) = if !is_grouped {
            let wanted = ["`group`", "tensor `index` (or `group`) [B]"];
            let what = "nothing says which responses belong to one prompt";
            ("group", LIKELY_GROUPS, what, wanted)
        } else if lacks_rewards {
            let wanted = [
                "`reward`, `correct` or `token_reward`",
                "tensor `token_level_rewards` [B, T], `rewards` [B] or `correct` [B]",
            ];
            let what = "nothing says how good a response is";
            ("reward", LIKELY_REWARDS, what, wanted)
        } else {
            return Ok(());
        };
        let what = format!("{what}: there is no {}", wanted[kind]);
        let all = || fields.iter().map(|(field, _)| field.as_str());
        // verl's `reward_model` holds the reference.
        let candidate = likely
            .split(' ')
            .find_map(|name| all().find(|field| field.eq_ignore_ascii_case(name)))
            .or_else(|| suggest::nearest(ours, all().filter(|name| *name != "reward_model")));
        let there = match fields {
            [] => "the file has no fields".to_string(),
            _ => format!("there is {}", suggest::list(all())),
        };
        let second = if lacks_rewards && !is_grouped {
            ", and add `--map reward=FIELD` for the rewards"
        } else {
            ""
        };
        let first = match candidate {
            Some(field) => {
                let is_token = field.starts_with("token_");
                let ours = if is_token { "token_reward" } else { ours };
                let is_object = fields.contains(&(field.to_string(), JsonType::Object));
                let below = if is_object { ".FIELD" } else { "" };
                format!(
                    "{there}: if `{ours}` is in `{field}{below}`, add `--map {ours}={field}{below}`"
                )
            }
            None => format!("{there}: name the field with `--map {ours}=FIELD`"),
        };
        Err(Diagnostic::error(what).with_help(first + second))
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
        let nested = self.nested.iter().map(|path| (path, JsonType::Object));
        let fields = fields
            .iter()
            .map(|(field, kind)| (field, *kind))
            .chain(nested);
        fields.flat_map(|(field, kind)| self.of(field).into_iter().map(move |one| (kind, one)))
    }

    fn provides(&self, ours: &str, fields: Fields) -> bool {
        ours == "reward" && !self.rewards.is_empty()
            || self.readings_of(fields).any(|(_, one)| one.ours == ours)
    }

    /// Returns the readings of a field. A field that no reading names is read under its own name; if another field is read under
    /// that name, the result is empty.
    pub(super) fn of(&self, field: &str) -> Vec<Reading> {
        let readings = self.readings.iter().filter(|one| one.theirs == field);
        let mut readings: Vec<Reading> = readings.cloned().collect();
        let own = self.own(field);
        let is_foreign = self.foreign.iter().any(|foreign| foreign == field);
        if readings.is_empty() && !is_foreign && self.reading(own).is_none() {
            readings.push(Reading::new(own, field, false));
        }
        readings
    }

    /// Returns whether a field is read under more than one name.
    pub(super) fn is_read_twice(&self, field: &str) -> bool {
        let readings = self.readings.iter();
        readings.filter(|reading| reading.theirs == field).count() > 1
    }

    /// Returns which parts of a field's values are kept in memory.
    pub(super) fn keep(&self, field: &str) -> Keep {
        let readings = self.of(field);
        let any = |is: &dyn Fn(&Reading) -> bool| readings.iter().any(is);
        let has = |role: Role| any(&|one| one.role == role);
        let is_read = |one: &Reading| {
            let columns = self.columns.as_ref();
            columns.is_none_or(|all| all.contains(&one.ours))
        };
        let is_epoch = any(&|one| one.ours == "epoch");
        let is_reference = any(&|one| SOLUTIONS.contains(&&*one.ours));
        let is_text = has(Role::Completion) || is_reference;
        let is_compared = is_text && self.references.is_some();
        let is_score = |one: &Reading| {
            matches!(&*one.ours, "reward" | "correct") || one.ours.starts_with(PART)
        };
        let scores = any(&is_score) || self.rewards.iter().any(|reward| reward == field);
        // Some columns are needed even if the recipe does not read them: completions and references may give the reward, the
        // names of trajectories determine the levels, and the correct responses may be derived from `token_reward`.
        let is_needed = any(&|one| matches!(&*one.ours, "trajectory" | "token_reward"));
        Keep {
            ids: has(Role::Group),
            values: any(&is_read)
                || has(Role::Group)
                || has(Role::Mask)
                || is_needed
                || is_compared,
            nulls: scores
                || has(Role::Step)
                || has(Role::Completion)
                || is_epoch
                || is_compared
                || any(&|one| one.role == Role::Any && is_read(one)),
            scores,
            unknown: !scores
                && !is_text
                && !is_epoch
                && !any(&|one| one.role != Role::Any || one.asked),
            digits: has(Role::Step),
            kind: if has(Role::Completion) {
                TextKind::Completion(self.is_dialogue)
            } else if is_reference {
                TextKind::Reference
            } else {
                TextKind::Any
            },
            counts: self.count_words && has(Role::Completion),
            tokenizer: self.tokenizer.clone(),
        }
    }
}

const LIKELY_GROUPS: &str = "group_id prompt_id prompt_idx index question_id problem_id task_id example_id \
    sample_id qid idx id prompt input question problem query instruction";

const LIKELY_REWARDS: &str = "rewards score scores token_level_scores total_reward reward_score return acc accuracy is_correct passed \
    success label verified";
