//! Which of the batch's names each field of a file is read under: `--map`, the aliases of padded files, known dumps.

use std::path::Path;
use std::sync::Arc;

use super::dumps;
use super::json::Type;
use super::words::Tokenize;
use super::{Mapping, ReadOptions};
use crate::batch::{Level, SOLUTIONS, known};
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// Finds the names of a file's fields, once, from those of its first response.
pub(super) type Schema<'a> = &'a dyn Fn(&[(String, Type)], FileKind) -> Result<Names, Diagnostic>;

/// The meaning of a column, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The group of a response: a string or a whole number.
    Group,
    Mask,
    Step,
    /// The response as a string, whose words are counted if no length is known.
    Completion,
    /// A number per response.
    Response,
    /// A number per token.
    Token,
    /// An unknown name: `Response` or `Token`, by the values.
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

/// Our name for a tensor that may have a trainer's.
pub(super) fn alias(tensor: &str) -> &str {
    known::ours(tensor).unwrap_or(tensor)
}

/// One of our names, and the field that it is read from.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) role: Role,
    /// The user asked for it, by `--map`.
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

    /// Whether a gap is an error: in a column that we know, or that the user asked for.
    pub(super) fn is_needed(&self) -> bool {
        match self.role {
            Role::Group | Role::Mask | Role::Response | Role::Token => true,
            Role::Any => self.asked,
            Role::Step | Role::Completion => false,
        }
    }
}

/// The tensor of advantages.
pub(super) const ADVANTAGES: &str = "advantages";

/// Our columns that say how good a response is.
pub(super) const REWARDS: [&str; 3] = ["reward", "token_reward", "correct"];

/// The kind of a file, which says how its fields are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Lines of fields, which may be a trainer's dump.
    #[default]
    Lines,
    /// Tensors under the names that trainers give them.
    Tensors,
    /// A batch saved under our own names. In a copy of it, `advantages` was written last.
    Saved,
}

/// The names that fields are read under.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) kind: FileKind,
    /// Those that are not read from a field of that very name.
    pub(super) readings: Vec<Reading>,
    /// The groups are those of a trainer's dump, which are also told apart by step.
    pub(super) are_dumped: bool,
    /// Only the words of a completion say how long a response is.
    pub(super) count_words: bool,
    /// Counts the tokens of completions; without it, words are counted.
    pub(super) tokenizer: Option<Arc<dyn Tokenize>>,
    /// There is no reward: the answers of completions are compared with references.
    pub(super) compares_answers: bool,
    /// The note on a known dump, if the file is one.
    pub(super) note: Option<String>,
    /// The columns whose sum is the reward, if there are any.
    pub(super) rewards: Vec<String>,
    /// Texts are read when they are first used.
    pub(super) defers_texts: bool,
    /// The only column whose values are read.
    pub(super) only: Option<String>,
}

impl Names {
    /// Checks what the user asked for against the fields that there are, and that groups and rewards are among them.
    pub(super) fn new(
        path: &Path,
        options: &ReadOptions,
        fields: &[(String, Type)],
        kind: FileKind,
    ) -> Result<Names, Diagnostic> {
        let mut names = Names {
            kind,
            tokenizer: options.tokenizer.cloned(),
            defers_texts: options.defer,
            ..Names::default()
        };
        let in_file = |error: Diagnostic| error.in_file(path);
        names.map(options.map, fields).map_err(in_file)?;
        let are_lines = kind == FileKind::Lines;
        if are_lines {
            dumps::recognise(&mut names, fields);
        }
        let is_rewarded = REWARDS.iter().any(|ours| names.provides(ours, fields));
        names.compares_answers = are_lines
            && !is_rewarded
            && names.provides("completion", fields)
            && SOLUTIONS.iter().any(|ours| names.provides(ours, fields));
        let is_complete = is_rewarded || names.compares_answers;
        names.check(fields, is_complete).map_err(in_file)?;
        let says_length = |reading: &Reading| {
            reading.ours == "length" || matches!(reading.role, Role::Mask | Role::Token)
        };
        let mut filled = fields.iter().filter(|(_, value)| *value != Type::Null);
        names.count_words = !filled.any(|(field, _)| names.of(field).iter().any(says_length));
        Ok(names)
    }

    /// Takes the names that the user gives.
    fn map(&mut self, map: &[Mapping], fields: &[(String, Type)]) -> Result<(), Diagnostic> {
        for Mapping { ours, theirs } in map {
            let wrong = |what: String| {
                Err(Diagnostic::error(format!(
                    "`--map {ours}={theirs}`: {what}"
                )))
            };
            if let Some(Reading { theirs, .. }) = self.reading(ours) {
                return wrong(format!("`{ours}` is already read from `{theirs}`"));
            }
            let mut all = fields.iter().map(|(field, _)| field.as_str());
            if !all.clone().any(|field| field == theirs) {
                let near = suggest::did_you_mean(theirs, &mut all);
                return wrong(format!("there is no field `{theirs}`; {near}"));
            }
            self.readings.push(Reading::new(ours, theirs, true));
        }
        Ok(())
    }

    /// Refuses a file without groups, or without rewards and answers to compare.
    fn check(&self, fields: &[(String, Type)], is_rewarded: bool) -> Result<(), Diagnostic> {
        let is_padded = self.kind != FileKind::Lines;
        let (ours, what, likely) = if !self.provides("group", fields) {
            let wanted = if is_padded {
                "tensor `index` (or `group`) [B]"
            } else {
                "`group`"
            };
            let what = "nothing says which responses belong to one prompt";
            (
                "group",
                format!("{what}: there is no {wanted}"),
                LIKELY_GROUPS,
            )
        } else if !is_rewarded {
            let wanted = match is_padded {
                true => "tensor `token_level_rewards` [B, T], `rewards` [B] or `correct` [B]",
                false => "`reward`, `correct` or `token_reward`",
            };
            let what = "nothing says how good a response is";
            (
                "reward",
                format!("{what}: there is no {wanted}"),
                LIKELY_REWARDS,
            )
        } else {
            return Ok(());
        };
        let all = || fields.iter().map(|(field, _)| field.as_str());
        let candidate = likely
            .split(' ')
            .find_map(|name| all().find(|field| field.eq_ignore_ascii_case(name)))
            .or_else(|| suggest::nearest(ours, all()));
        let there = match fields {
            [] => "there is nothing at all".to_string(),
            _ => format!("there is {}", suggest::list(all())),
        };
        Err(Diagnostic::error(what).with_help(match candidate {
            Some(field) => {
                let ours = if field.starts_with("token_") {
                    "token_reward"
                } else {
                    ours
                };
                format!("{there}: if it is `{field}`, say `--map {ours}={field}`")
            }
            None => format!("{there}: say which with `--map {ours}=FIELD`"),
        }))
    }

    /// The name that a field has by itself.
    fn own<'a>(&self, field: &'a str) -> &'a str {
        match self.kind {
            FileKind::Tensors => alias(field),
            FileKind::Saved if field == ADVANTAGES => alias(field),
            _ => field,
        }
    }

    /// The source of one of our names, if it is not the field of that name.
    pub(super) fn reading(&self, ours: &str) -> Option<&Reading> {
        self.readings.iter().find(|reading| reading.ours == ours)
    }

    fn provides(&self, ours: &str, fields: &[(String, Type)]) -> bool {
        let is_away = |field: &str| self.readings.iter().any(|reading| reading.theirs == field);
        let mut own = fields.iter().map(|(field, _)| field.as_str());
        self.reading(ours).is_some()
            || ours == "reward" && !self.rewards.is_empty()
            || own.any(|field| self.own(field) == ours && !is_away(field))
    }

    /// Whether the strings of a field are held: those of a completion or an unknown column. Levels need those of trajectories.
    pub(super) fn holds_text(&self, reading: &Reading) -> bool {
        let is_now = !self.defers_texts || reading.ours == "trajectory";
        matches!(reading.role, Role::Any | Role::Completion) && is_now
    }

    /// The remark on a field whose own name is given to another one.
    pub(super) fn shadowed(&self, field: &str) -> Option<String> {
        let own = self.own(field);
        let other = self.reading(own)?;
        let is_read = self.readings.iter().any(|reading| reading.theirs == field);
        (!is_read).then(|| format!("`{own}` is read from `{}`", other.theirs))
    }

    /// The names that a field is read under: none if its own name is given to another field.
    pub(super) fn of(&self, field: &str) -> Vec<Reading> {
        let mapped = self
            .readings
            .iter()
            .filter(|reading| reading.theirs == field);
        let mut mapped: Vec<Reading> = mapped.cloned().collect();
        let own = self.own(field);
        if mapped.is_empty() && self.reading(own).is_none() {
            mapped.push(Reading::new(own, field, false));
        }
        mapped
    }
}

const LIKELY_GROUPS: &str = "group_id prompt_id prompt_idx uid index question_id problem_id task_id example_id \
    sample_id qid idx id prompt input question problem query instruction messages";

const LIKELY_REWARDS: &str = "rewards score scores token_level_scores total_reward reward_score return acc accuracy is_correct passed \
    success label verified";
