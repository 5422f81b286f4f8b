//! The table of known dumps: how to recognise each trainer's dump, and which of its fields hold which columns.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::{Fields, PART, REJECTED, Reading, Role, SPLIT, STEPS, Schema, role};
use crate::batch::SOLUTIONS;
use crate::files::cell::JsonType;

/// A description of a program's dumps: how they are recognised, and which fields hold the columns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dump {
    kind: String,
    /// Fields that the first lines must have, with their allowed types; an empty list allows any type.
    known_by: BTreeMap<String, Vec<JsonType>>,
    /// Pairs of a column's name and the field's name in the dump.
    names: Vec<(String, String)>,
    /// The name of a further array with one entry per token of the response, besides the known columns.
    tokens: Option<String>,
    /// Whether a completion may be the text of a dialogue with an environment, with the tokens of its turns.
    #[serde(default)]
    dialogue: bool,
    /// The name of a field whose values distinguish prompts that have the same group in `names`.
    splits: Option<String>,
    /// Whether each reward function has a column, and the reward is the sum of these columns.
    #[serde(default)]
    adds_rewards: bool,
    /// A field, and the value that it has if the trainer rejected the response.
    rejected_if: Option<(String, f64)>,
}

static DUMPS: LazyLock<Vec<Dump>> = LazyLock::new(|| {
    let dumps = toml::from_str::<BTreeMap<String, Vec<Dump>>>(include_str!("../dumps.toml"));
    let dumps = dumps.unwrap_or_else(|error| unreachable!("dumps.toml: {error}"));
    dumps.into_values().flatten().collect()
});

/// Likely names of the field with the completion, after `completion`, and of the field with the reference. `answer` comes after
/// the names that say so, because it may be what the policy answered, and before those that may hold a verdict or a goal.
const COMPLETIONS: &str =
    "response response.output responses output output_response completions generations";
const REFERENCES: &str = "ground_truth gts expected_answer reference_answer gold_answer golden_answers \
    solution answer target label gold";

/// Returns the fields that may have the completion, or the reference if `ours` is `solution`: those of the known dump, then
/// fields with likely names.
pub(in crate::files) fn likely_texts(ours: &str, fields: Fields) -> Vec<&'static str> {
    let (is_completion, dump) = (ours == "completion", known_dump(fields));
    let of_dump = dump.into_iter().flat_map(|dump| &dump.names);
    let of_dump = of_dump
        .filter(|(name, _)| name == ours)
        .map(|(_, theirs)| theirs.as_str());
    let names = [REFERENCES, COMPLETIONS][usize::from(is_completion)];
    let own = is_completion.then_some("completion");
    let fits = |name: &&str| {
        let is_own = *name == "completion" || SOLUTIONS.contains(name);
        let root = name.split('.').next();
        fields.iter().any(|(field, kind)| {
            Some(&**field) == root
                && match kind {
                    JsonType::String | JsonType::Array => true,
                    // Without values, `answer` does not come before another reference.
                    JsonType::Null => is_own && *name != "answer",
                    JsonType::Object if name.contains('.') => true,
                    // A number in `label` may be a verdict, and an object may be a server's response.
                    _ => is_own || dump.is_some() || !is_completion && *name != "label",
                }
        })
    };
    let last = fields.iter().any(|(field, _)| field == "answer");
    let last = (last && !is_completion).then_some("answer");
    let found = own.into_iter().chain(of_dump).chain(names.split(' '));
    found.filter(fits).chain(last).collect()
}

/// Returns the fields that `fields` lack, and that would be compared instead of the reference `chosen` if they had them.
pub(in crate::files) fn late_references(chosen: &str, fields: Fields) -> Vec<&'static str> {
    let lacks = |name: &&str| fields.iter().all(|(field, _)| field != name);
    let others = REFERENCES.split(' ').filter(lacks);
    let others = others.map(|name| (name.to_string(), JsonType::String));
    let all: Vec<_> = fields.iter().cloned().chain(others).collect();
    let first = likely_texts("solution", &all).into_iter();
    let first = first.take_while(|name| *name != chosen);
    first.filter(lacks).collect()
}

/// Returns the description of the dump that the first lines match. A file with a field `group` is no known dump.
fn known_dump(fields: Fields) -> Option<&'static Dump> {
    let all = fields.iter().map(|(name, found)| (name.as_str(), *found));
    let by_name: BTreeMap<&str, JsonType> = all.collect();
    let dump = DUMPS.iter().find(|dump| dump.fits(&by_name));
    dump.filter(|_| !by_name.contains_key("group"))
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
    fn fits(&self, fields: &BTreeMap<&str, JsonType>) -> bool {
        let is = |(name, types): (&String, &Vec<JsonType>)| {
            let found = fields.get(name.as_str());
            found.is_some_and(|found| types.is_empty() || types.contains(found))
        };
        let is_rewarded = ["reward", "token_reward"]
            .iter()
            .any(|name| fields.contains_key(name));
        self.known_by.iter().all(is) && !(self.adds_rewards && is_rewarded)
    }

    /// Returns the columns that may be rewards: numbers between the completion and the advantage, where TRL writes them; if these
    /// two are not in this order, all unknown numbers. A field that the user reads under the name of another column is no reward.
    fn summands(schema: &Schema, fields: Fields) -> Vec<String> {
        let at = |name: &str| fields.iter().position(|(field, _)| field == name);
        let between = at("completion").zip(at("advantage").or(at("advantages")));
        let between = between.filter(|(completion, advantage)| completion + 1 < *advantage);
        let written = between.map_or(fields, |(first, last)| &fields[first + 1..last]);
        let unknown = written.iter().filter(|(name, found)| {
            let is_number = matches!(found, JsonType::Number | JsonType::Bool | JsonType::Null);
            let is_other = |one: &Reading| {
                one.theirs == *name && one.role != Role::Any && one.ours != "reward"
            };
            let is_known = between.is_none() && role(name) != Role::Any
                || schema.readings.iter().any(is_other);
            let mut others = STEPS
                .split(' ')
                .chain(["step", "epoch", "advantage", "advantages"]);
            is_number && !is_known && others.all(|other| other != name)
        });
        unknown.map(|(name, _)| name.clone()).collect()
    }
}

/// Adds the names of a known dump if the first lines match it. The user's mapping takes precedence, and a field that already has
/// the name of a column keeps that name, unless the dump has a reference, or a score by which it is known.
pub(super) fn recognise(names: &mut Schema, fields: Fields) {
    let all = fields.iter().map(|(name, found)| (name.as_str(), *found));
    let by_name: BTreeMap<&str, JsonType> = all.collect();
    let has = |name: &str| by_name.get(name).copied();
    let Some(dump) = known_dump(fields) else {
        return;
    };
    let mut taken = Vec::new();
    let splits = dump.splits.as_deref().filter(|name| has(name).is_some());
    if let Some(splits) = splits.filter(|_| names.reading("group").is_none()) {
        names.keep_own(splits);
        let mut reading = Reading::new(SPLIT, splits, false);
        reading.role = Role::Group;
        names.readings.push(reading);
    }
    for (ours, theirs) in &dump.names {
        let root = theirs.split('.').next().and_then(has);
        let is_nested = has(theirs).is_none() && root == Some(JsonType::Object);
        let Some(found) = has(theirs).or(root.filter(|_| is_nested)) else {
            continue;
        };
        let is_usable = match (ours.as_str(), role(ours)) {
            // Only a boolean is a verdict, because some reward functions give `acc` as a fraction.
            ("correct", _) => found == JsonType::Bool,
            ("solution", _) => found != JsonType::Null,
            // An array may hold rewards per token. Any other wrong type is accepted here, so that it is reported as an error.
            ("reward", _) => {
                let of_tokens = ("token_reward".to_string(), theirs.clone());
                found != JsonType::Array || !dump.names.contains(&of_tokens)
            }
            (_, Role::Response) => found == JsonType::Number,
            (_, Role::Token | Role::Mask) => found == JsonType::Array,
            _ => true,
        };
        // The score by which a dump is known is the trainer's; another field `reward` is a reward function's.
        let is_score = matches!(found, JsonType::Number | JsonType::Bool);
        let is_trainers = ours == "reward" && is_score && dump.known_by.contains_key(theirs);
        let is_own = ours == theirs || ours == "solution" || has(ours).is_none() || is_trainers;
        let is_free = names.reading(ours).is_none() && is_own;
        if is_usable && is_free {
            if is_trainers && has(ours).is_some() {
                names.keep_own(theirs);
            }
            names.read(ours, theirs);
            names.add_nested(theirs, is_nested);
            if !matches!(ours.as_str(), "prompt" | "solution") {
                taken.push(format!("{ours} = `{theirs}`"));
            }
        }
    }
    for name in ["length", "weight"] {
        let is_listed = dump.adds_rewards || dump.names.iter().any(|(ours, _)| ours == name);
        // advlab adds both to its copy of a dump.
        let is_added = name == "weight" && has("advantage").is_some();
        let is_known = is_listed || is_added || names.reading(name).is_some();
        if has(name).is_some() && !is_known {
            names.foreign.push(name.to_string());
            let kind = &dump.kind;
            names.notes.push(format!("`{name}` is left out, because a dump of {kind} has no such field: `--map {name}={name}` reads it"));
        }
    }
    if let Some((field, value)) = &dump.rejected_if
        && has(field).is_some()
    {
        names.keep_own(field);
        names.read(REJECTED, field);
        names.rejected_if = *value;
    }
    if dump.adds_rewards {
        let parts = Dump::summands(names, fields);
        for part in &parts {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let name = part.replace(|letter| !is_word(letter), "_");
            // The column is also read under the trainer's name, unless that name begins with the prefix, because the reward would
            // then be added twice, or is the name of another column, such as `length`.
            if !part.starts_with(PART) && role(part) == Role::Any {
                names.keep_own(part);
            }
            let name = format!("{PART}{name}");
            let first = names.reading(&name).map(|first| first.theirs.clone());
            match first {
                None => names.read(&name, part),
                Some(first) if first == *part => {}
                Some(first) => names.notes.push(format!(
                    "`{part}` keeps its name, because `{name}` is read from `{first}`"
                )),
            }
        }
        if names.reading("reward").is_none() {
            names.rewards = parts;
        }
    }
    if let Some(tokens) = dump.tokens.as_deref().filter(|name| has(name).is_some())
        && names.reading(tokens).is_none()
    {
        let mut reading = Reading::new(tokens, tokens, false);
        reading.role = Role::Token;
        names.readings.push(reading);
    }
    let (kind, taken) = (&dump.kind, taken.join(", "));
    let note = format!("read as a dump of {kind}: {taken}");
    names.notes.push(note);
}
