//! Which of the batch's names each field of a file is read under: `--map`, the aliases of padded files, known dumps.

use std::path::Path;

use super::{Mapping, Note, ReadError};
use crate::batch::Level;
use crate::batch::known;
use crate::suggest;

/// What a column of that name is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The group of a response: a text or a whole number.
    Group,
    /// Which tokens count.
    Mask,
    /// The training step.
    Step,
    /// The text of the response, whose words are counted where no length is known.
    Completion,
    /// A number a response.
    Response,
    /// A number a token.
    Token,
    /// Nobody knows: one of the two above, by what is there.
    Any,
}

/// The role of a column by our name for it.
pub(super) fn role(name: &str) -> Role {
    match name {
        "group" => Role::Group,
        "mask" => Role::Mask,
        "step" => Role::Step,
        "completion" => Role::Completion,
        _ => match known::column(name).map(|known| known.level) {
            Some(Level::Token) => Role::Token,
            Some(_) => Role::Response,
            None => Role::Any,
        },
    }
}

/// Our name for a tensor of a padded file, which may have verl's.
pub(super) fn alias(tensor: &str) -> &str {
    match tensor {
        "token_level_rewards" => "token_reward",
        "response_mask" => "mask",
        "old_log_probs" => "old_logp",
        "ref_log_prob" => "ref_logp",
        "log_probs" => "logp",
        "values" => "value",
        "entropys" => "entropy",
        "rewards" => "reward",
        "acc" => "correct",
        "index" => "group",
        "advantages" => "advantage",
        other => other,
    }
}

/// The training step, if a number can be one.
pub(super) fn step(value: f64) -> Option<u64> {
    // From 2^53 on a float no longer tells neighbours apart.
    let whole = value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value);
    whole.then_some(value as u64)
}

/// What a step should be, for messages.
pub(super) const STEP: &str = "the training step, a whole number from 0 to below 2^53 (`--map NAME=step` reads it as a column)";

/// The columns of which one must be there.
pub(super) const REWARDS: [&str; 3] = ["reward", "token_reward", "correct"];

/// Why an advantage in a file is no column.
pub(super) const ADVANTAGE: &str = "an advantage is what a recipe makes (`--map NAME=FIELD` reads one that is there under another name)";

/// One of our names, and the field that it is read from.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) role: Role,
    /// The user asked for it, by `--map`.
    pub(super) asked: bool,
}

/// All names that are not read from a field of that very name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    readings: Vec<Reading>,
}

impl Names {
    /// Checks what the user asked for against the fields that there are.
    pub(super) fn mapped<'a>(
        path: &Path,
        map: &[Mapping],
        fields: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Names, ReadError> {
        let mut names = Names::default();
        for Mapping { ours, theirs } in map {
            if let Some(first) = names.reading(ours) {
                return Err(ReadError::MapTwice {
                    ours: ours.clone(),
                    first: first.theirs.clone(),
                    second: theirs.clone(),
                });
            }
            if !fields.clone().any(|field| field == theirs) {
                return Err(ReadError::Map {
                    path: path.to_path_buf(),
                    ours: ours.clone(),
                    theirs: theirs.clone(),
                    hint: suggest::did_you_mean(theirs, fields),
                });
            }
            names.add(ours, theirs, role(ours), true);
        }
        Ok(names)
    }

    pub(super) fn add(&mut self, ours: &str, theirs: &str, role: Role, asked: bool) {
        self.readings.push(Reading {
            ours: ours.to_string(),
            theirs: theirs.to_string(),
            role,
            asked,
        });
    }

    /// Where one of our names is read from, if it is not from the field of that name.
    pub(super) fn reading(&self, ours: &str) -> Option<&Reading> {
        self.readings.iter().find(|reading| reading.ours == ours)
    }

    /// Whether any field gives a column of that name; `fields` come with the names that they would have by themselves.
    pub(super) fn provides<'a>(
        &self,
        ours: &str,
        mut fields: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> bool {
        let away = |field: &str| self.readings.iter().any(|reading| reading.theirs == field);
        self.reading(ours).is_some() || fields.any(|(field, own)| own == ours && !away(field))
    }

    /// What is to be said of a field whose own name is given to another one.
    pub(super) fn shadowed(&self, field: &str, own: &str) -> Option<Note> {
        let other = self.reading(own)?;
        let read = self.readings.iter().any(|reading| reading.theirs == field);
        (!read).then(|| Note::LeftOut {
            field: field.to_string(),
            why: format!("`{own}` is read from `{}`", other.theirs),
        })
    }

    /// The names that a field is read under: none where its own name is given to another field.
    pub(super) fn of(&self, field: &str, own: &str) -> Vec<Reading> {
        let mapped: Vec<Reading> = self
            .readings
            .iter()
            .filter(|reading| reading.theirs == field)
            .cloned()
            .collect();
        if !mapped.is_empty() || self.reading(own).is_some() {
            return mapped;
        }
        vec![Reading {
            ours: own.to_string(),
            theirs: field.to_string(),
            role: role(own),
            asked: false,
        }]
    }
}

/// What to do about a file without groups: the likeliest field, or all of them.
pub(super) fn group_hint<'a>(fields: impl Iterator<Item = &'a str> + Clone) -> String {
    const LIKELY: [&str; 20] = [
        "group_id",
        "prompt_id",
        "prompt_idx",
        "uid",
        "index",
        "question_id",
        "problem_id",
        "task_id",
        "example_id",
        "sample_id",
        "qid",
        "idx",
        "id",
        "prompt",
        "input",
        "question",
        "problem",
        "query",
        "instruction",
        "messages",
    ];
    hint("group", &LIKELY, fields)
}

/// What to do about a file without rewards: the likeliest field, or all of them.
pub(super) fn reward_hint<'a>(fields: impl Iterator<Item = &'a str> + Clone) -> String {
    const LIKELY: [&str; 14] = [
        "rewards",
        "score",
        "scores",
        "token_level_scores",
        "total_reward",
        "reward_score",
        "return",
        "acc",
        "accuracy",
        "is_correct",
        "passed",
        "success",
        "label",
        "verified",
    ];
    hint("reward", &LIKELY, fields)
}

fn hint<'a>(ours: &str, likely: &[&str], fields: impl Iterator<Item = &'a str> + Clone) -> String {
    let all: Vec<&str> = fields.collect();
    if all.is_empty() {
        return "there is nothing at all".to_string();
    }
    let there = format!("there is {}", suggest::list(all.iter().copied()));
    let candidate = likely
        .iter()
        .find_map(|name| {
            all.iter()
                .find(|field| field.eq_ignore_ascii_case(name))
                .copied()
        })
        .or_else(|| suggest::nearest(ours, all.iter().copied()));
    let ours = match candidate {
        Some("token_level_scores") => "token_reward",
        _ => ours,
    };
    match candidate {
        Some(field) => format!("{there}: if it is `{field}`, say `--map {ours}={field}`"),
        None => format!("{there}: say which with `--map {ours}=FIELD`"),
    }
}
