//! The dumps of trainers that are read without `--map`: `dumps.toml` has how each is known, and what it calls our columns.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::json::Type;
use super::names::{Fields, Names, REWARDS, Reading, Role, role};

/// The names of our columns in one program's dumps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dump {
    kind: String,
    /// Fields that the first line has, each of one of these types.
    known_by: BTreeMap<String, Vec<Type>>,
    /// Ours, and theirs.
    names: Vec<(String, String)>,
    /// An array with one entry per token of the response, beside the columns that we know.
    tokens: Option<String>,
    /// Each reward function has a column, and the reward is their sum.
    #[serde(default)]
    adds_rewards: bool,
}

static DUMPS: LazyLock<Vec<Dump>> = LazyLock::new(|| {
    let dumps = toml::from_str::<BTreeMap<String, Vec<Dump>>>(include_str!("dumps.toml"));
    let dumps = dumps.unwrap_or_else(|error| unreachable!("dumps.toml: {error}"));
    dumps.into_values().flatten().collect()
});

fn type_of(fields: Fields, name: &str) -> Option<Type> {
    let mut fields = fields.iter();
    Some(fields.find(|(field, _)| field == name)?.1)
}

impl Dump {
    fn fits(&self, fields: Fields) -> bool {
        let has = |name: &str| type_of(fields, name);
        let mut known_by = self.known_by.iter();
        known_by.all(|(name, types)| has(name).is_some_and(|found| types.contains(&found)))
            && !(self.adds_rewards && REWARDS.iter().any(|name| has(name).is_some()))
    }

    /// The columns whose sum is the reward: those with `reward` in their name, or else all unknown numbers, since a model that
    /// judges is called by its name.
    fn summands(fields: Fields) -> Vec<String> {
        let is_unknown = |(name, found): &&(String, Type)| {
            matches!(found, Type::Number | Type::Null)
                && role(name) == Role::Any
                && name != "advantage"
        };
        let unknown = fields.iter().filter(is_unknown);
        let mut rewards: Vec<String> = unknown.map(|(name, _)| name.clone()).collect();
        if rewards.iter().any(|name| name.contains("reward")) {
            rewards.retain(|name| name.contains("reward"));
        }
        rewards
    }
}

/// Adds the names of a known dump if the first line looks like one. What the user has mapped stays as it is, and so does a
/// field that has one of our names by itself.
pub(super) fn recognise(names: &mut Names, fields: Fields) {
    let has = |name: &str| type_of(fields, name);
    let dump = DUMPS.iter().find(|dump| dump.fits(fields));
    let Some(dump) = dump.filter(|_| has("group").is_none()) else {
        return;
    };
    let mut taken = Vec::new();
    for (ours, theirs) in &dump.names {
        let Some(found) = has(theirs) else { continue };
        let is_usable = match (ours.as_str(), role(ours)) {
            // Some reward functions give `acc` as a share; only a boolean is a verdict.
            ("correct", _) => found == Type::Bool,
            (_, Role::Response) => found == Type::Number,
            (_, Role::Token | Role::Mask) => found == Type::Array,
            _ => true,
        };
        let is_free = names.reading(ours).is_none() && (ours == theirs || has(ours).is_none());
        if is_usable && is_free {
            names.are_dumped |= ours == "group";
            names.readings.push(Reading::new(ours, theirs, false));
            if !matches!(ours.as_str(), "prompt" | "solution") {
                taken.push(format!("{ours} = `{theirs}`"));
            }
        }
    }
    if dump.adds_rewards && names.reading("reward").is_none() {
        names.rewards = Dump::summands(fields);
        taken.push(format!("reward = `{}`", names.rewards.join("` + `")));
    }
    if let Some(tokens) = dump.tokens.as_deref().filter(|name| has(name).is_some())
        && names.reading(tokens).is_none()
    {
        let mut reading = Reading::new(tokens, tokens, false);
        reading.role = Role::Token;
        names.readings.push(reading);
    }
    let taken = taken.join(", ");
    names.note = Some(format!("read as a dump of {}: {taken}", dump.kind));
}
