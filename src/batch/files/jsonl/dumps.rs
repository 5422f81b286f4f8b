//! Dumps of other programs that are known by the fields of their first line, and read without `--map`.

use super::json::{Line, Value};
use crate::batch::files::Note;
use crate::batch::files::names::{self, Names, Role};

/// What one program calls our columns.
struct Dump {
    kind: &'static str,
    /// Fields that the first line has, and which of them are numbers; texts otherwise.
    known_by: &'static [(&'static str, bool)],
    names: &'static [(&'static str, &'static str)],
    /// An array with one entry a token of the response, beside the columns that we know.
    tokens: Option<&'static str>,
}

const DUMPS: [Dump; 2] = [
    // `_dump_generations` of verl's trainers, which writes `trainer.rollout_data_dir`.
    Dump {
        kind: "verl's generations",
        known_by: &[("input", false), ("output", false), ("score", true)],
        names: &[
            ("group", "input"),
            ("reward", "score"),
            ("completion", "output"),
            ("correct", "acc"),
        ],
        tokens: None,
    },
    // The records of open-instruct's `--save_traces`. `prompt_idx` begins at 0 in every step.
    Dump {
        kind: "open-instruct",
        known_by: &[("prompt_idx", true), ("reward", true)],
        names: &[("group", "prompt_idx"), ("old_logp", "logprobs")],
        tokens: Some("response_tokens"),
    },
];

/// Adds the names of a known dump where the first line looks like one. What the user has mapped stays as it is, and so
/// does a field that has one of our names by itself.
pub(super) fn recognise(names: &mut Names, text: &str, first: &Line) -> Option<Note> {
    let value = |name: &str| {
        let field = first.fields.iter().find(|field| field.name(text) == name);
        field.map(|field| &field.value)
    };
    if value("group").is_some() {
        return None;
    }
    let dump = DUMPS.iter().find(|dump| {
        dump.known_by
            .iter()
            .all(|&(name, number)| match value(name) {
                Some(Value::Number(_)) => number,
                Some(Value::Text) => !number,
                _ => false,
            })
    })?;
    let mut taken = Vec::new();
    for &(ours, theirs) in dump.names {
        let usable = match (theirs, value(theirs)) {
            // Some reward functions give `acc` as a share; a boolean alone is a verdict.
            ("acc", found) => matches!(found, Some(Value::Bool(_))),
            (_, found) => found.is_some(),
        };
        if usable && names.reading(ours).is_none() && value(ours).is_none() {
            names.add(ours, theirs, names::role(ours), false);
            taken.push((ours.to_string(), theirs.to_string()));
        }
    }
    if let Some(tokens) = dump.tokens
        && value(tokens).is_some()
        && names.reading(tokens).is_none()
    {
        names.add(tokens, tokens, Role::Token, false);
    }
    Some(Note::Dump {
        kind: dump.kind,
        names: taken,
    })
}
