//! The table of known dumps: how to recognise each trainer's dump, and which of its fields hold which columns.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::{Fields, PART, REJECTED, Reading, Role, SPLIT, STEPS, Schema, role};
use crate::batch::SOLUTIONS;
use crate::files::cell::JsonType::{self, Array, Bool, Null, Number, Object};

/// A description of a program's dumps: how they are recognised, and which fields hold the columns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::files) struct Dump {
    kind: String,
    /// Fields that the first lines must have, with their allowed types; an empty list allows any type.
    known_by: BTreeMap<String, Vec<JsonType>>,
    /// Pairs of a column's name and the field's name in the dump.
    names: Vec<(String, String)>,
    /// The name of a further array with one entry per token of the response, besides the known columns.
    tokens: Option<String>,
    /// Whether a completion may be the text of a dialogue with an environment, with the tokens of its turns.
    #[serde(default)]
    pub(in crate::files) dialogue: bool,
    /// The name of a field whose values distinguish prompts that have the same group in `names`.
    splits: Option<String>,
    /// Whether each reward function has a column, and the reward is the sum of these columns.
    #[serde(default)]
    adds_rewards: bool,
    /// A field, and the value that it has if the trainer rejected the response.
    pub(super) rejected_if: Option<(String, f64)>,
}

/// The content of `dumps.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    dump: Vec<Dump>,
    /// For a column of texts, the likely names of its field, each with the types of values with which such a field is taken.
    likely: BTreeMap<String, Vec<(String, Vec<JsonType>)>>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let known = toml::from_str(include_str!("../dumps.toml"));
    known.unwrap_or_else(|error| unreachable!("dumps.toml: {error}"))
});

/// Returns the fields that may have the completion, or the reference if `ours` is `solution`: those of the known dump, then
/// fields with likely names, whose values may have any type in a known dump.
pub(in crate::files) fn likely_texts(ours: &str, fields: Fields) -> Vec<&'static str> {
    let dump = known_dump(fields);
    let fits = |name: &str, types: &[JsonType]| {
        let root = name.split('.').next().unwrap_or_default();
        let is_right = |kind| match name.contains('.') {
            true => kind == Object,
            false => types.contains(&kind) || dump.is_some() && kind != Null,
        };
        fields.get(root).copied().is_some_and(is_right)
    };
    let own = Some("completion").filter(|own| *own == ours && fields.contains_key(*own));
    let of_dump = dump.into_iter().flat_map(|dump| &dump.names);
    let of_dump = of_dump.filter(|(name, theirs)| name == ours && fits(theirs, &[]));
    let likely = KNOWN.likely[ours]
        .iter()
        .filter(|(name, types)| fits(name, types));
    let found = of_dump
        .map(|(_, theirs)| theirs)
        .chain(likely.map(|(name, _)| name));
    own.into_iter().chain(found.map(String::as_str)).collect()
}

/// Returns the fields without a value in `fields` that would be compared instead of the reference `chosen` if they had values.
/// `solution` and `answer` are not among them, because they may come late.
pub(in crate::files) fn late_references(chosen: &str, fields: Fields) -> Vec<&'static str> {
    let has_value = |name: &str| fields.get(name).is_some_and(|kind| *kind != Null);
    let mut all = fields.clone();
    for (name, _) in &KNOWN.likely["solution"] {
        if !has_value(name) {
            all.insert(name.clone(), JsonType::String);
        }
    }
    let first = likely_texts("solution", &all).into_iter();
    let first = first.take_while(|name| *name != chosen);
    first
        .filter(|name| !has_value(name) && !SOLUTIONS.contains(name))
        .collect()
}

/// Returns the description of the dump that the first lines match. A file with a field `group` is no known dump.
pub(super) fn known_dump(fields: Fields) -> Option<&'static Dump> {
    let dump = KNOWN.dump.iter().find(|dump| dump.fits(fields));
    dump.filter(|_| !fields.contains_key("group"))
}

/// Returns whether `answer` is the reference of a response that has no other: in the dump of a trainer, it is what the policy
/// answered.
pub(in crate::files) fn has_spare(fields: Fields) -> bool {
    known_dump(fields).is_none()
}

/// Returns whether a completion may be the text of a dialogue with an environment.
pub(in crate::files) fn is_dialogue(fields: Fields) -> bool {
    known_dump(fields).is_some_and(|dump| dump.dialogue)
}

impl Dump {
    fn fits(&self, fields: Fields) -> bool {
        let is = |(name, types): (&String, &Vec<JsonType>)| {
            let found = fields.get(name);
            found.is_some_and(|found| types.is_empty() || types.contains(found))
        };
        let mut rewards = ["reward", "token_reward"].into_iter();
        let is_rewarded = rewards.any(|name| fields.contains_key(name));
        self.known_by.iter().all(is) && !(self.adds_rewards && is_rewarded)
    }
}

impl Schema {
    /// Adds the names of a known dump if the first lines match it. The user's mapping takes precedence, and a field that already
    /// has the name of a column keeps that name, unless the dump has a reference, or a score by which it is known.
    pub(super) fn recognise(&mut self, fields: Fields) {
        self.dump = known_dump(fields);
        let Some(dump) = self.dump else {
            return;
        };
        let has = |name: &str| fields.get(name).copied();
        let given = |name: &&str| has(name).is_some();
        if let Some(splits) = dump.splits.as_deref().filter(given)
            && self.reading("group").is_none()
        {
            self.keep_own(splits);
            self.read_as(SPLIT, splits, Role::Group);
        }
        if let Some(tokens) = dump.tokens.as_deref().filter(given)
            && self.reading(tokens).is_none()
        {
            self.read_as(tokens, tokens, Role::Token);
        }
        let mut taken = Vec::new();
        for (ours, theirs) in &dump.names {
            let root = theirs.split('.').next().and_then(has);
            let Some(found) = has(theirs).or(root.filter(|kind| *kind == Object)) else {
                continue;
            };
            let is_usable = match (ours.as_str(), role(ours)) {
                // Only a boolean is a verdict, because some reward functions give `acc` as a fraction.
                ("correct", _) => found == Bool,
                ("solution", _) => found != Null,
                // An array may hold rewards per token. Any other wrong type is accepted here, so that it is reported as an error.
                ("reward", _) => {
                    let of_tokens = ("token_reward".to_string(), theirs.clone());
                    found != Array || !dump.names.contains(&of_tokens)
                }
                (_, Role::Response) => found == Number,
                (_, Role::Token | Role::Mask) => found == Array,
                _ => true,
            };
            // The score by which a dump is known is the trainer's; another field `reward` is a reward function's.
            let is_score = matches!(found, Number | Bool);
            let is_trainers = ours == "reward" && is_score && dump.known_by.contains_key(theirs);
            let is_own = ours == theirs || ours == "solution" || has(ours).is_none() || is_trainers;
            if !is_usable || !is_own || self.reading(ours).is_some() {
                continue;
            }
            if is_trainers && has(ours).is_some() {
                self.keep_own(theirs);
            }
            self.read(ours, theirs);
            if !matches!(ours.as_str(), "prompt" | "solution") {
                taken.push(format!("{ours} = `{theirs}`"));
            }
        }
        let kind = &dump.kind;
        for name in ["length", "weight"] {
            let is_listed = dump.adds_rewards || dump.names.iter().any(|(ours, _)| ours == name);
            // advlab adds both to its copy of a dump.
            let is_added = name == "weight" && has("advantage").is_some();
            let is_known = is_listed || is_added || self.reading(name).is_some();
            if has(name).is_some() && !is_known {
                self.foreign.push(name.to_string());
                self.notes.push(format!("`{name}` is left out, because a dump of {kind} has no such field: `--map {name}={name}` reads it"));
            }
        }
        if let Some((field, _)) = &dump.rejected_if
            && has(field).is_some()
        {
            self.keep_own(field);
            self.read(REJECTED, field);
        }
        if dump.adds_rewards {
            self.read_rewards(fields);
        }
        let taken = taken.join(", ");
        let note = format!("read as a dump of {kind}: {taken}");
        self.notes.push(note);
    }

    /// Reads each reward function's field as a column, and the sum of these columns as the reward unless the user names the reward.
    fn read_rewards(&mut self, fields: Fields) {
        let parts = self.summands(fields);
        for part in &parts {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let name = format!("{PART}{}", part.replace(|letter| !is_word(letter), "_"));
            // The column is also read under the trainer's name, unless that name begins with the prefix, because the reward would
            // then be added twice, or is the name of another column, such as `length`.
            if !part.starts_with(PART) && role(part) == Role::Any {
                self.keep_own(part);
            }
            match self.reading(&name).map(|first| &first.theirs) {
                None => self.read(&name, part),
                Some(first) if first == part => {}
                Some(first) => self.notes.push(format!(
                    "`{part}` keeps its name, because `{name}` is read from `{first}`"
                )),
            }
        }
        if self.reading("reward").is_none() {
            self.rewards = parts;
        }
    }

    /// Returns the columns that may be rewards: numbers between the completion and the advantage, where TRL writes them; if these
    /// two are not in this order, all unknown numbers. A field that the user reads under the name of another column is no reward.
    fn summands(&self, fields: Fields) -> Vec<String> {
        let at = |name: &str| fields.get_index_of(name);
        let between = at("completion").zip(at("advantage").or(at("advantages")));
        let between = between.filter(|(completion, advantage)| completion + 1 < *advantage);
        let written = between.map_or(0..fields.len(), |(first, last)| first + 1..last);
        let written = written.filter_map(|at| fields.get_index(at));
        let unknown = written.filter(|(name, found)| {
            let is_number = matches!(found, Number | Bool | Null);
            let is_other = |one: &Reading| {
                one.theirs == **name && one.role != Role::Any && one.ours != "reward"
            };
            let is_known =
                between.is_none() && role(name) != Role::Any || self.readings.iter().any(is_other);
            let mut others = STEPS
                .split(' ')
                .chain(["step", "epoch", "advantage", "advantages"]);
            is_number && !is_known && others.all(|other| other != *name)
        });
        unknown.map(|(name, _)| name.clone()).collect()
    }
}
