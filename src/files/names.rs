//! Which of the batch's names each field of a file is read under: `--map`, the aliases of padded files, known dumps.

use std::path::Path;
use std::sync::Arc;

use super::added::ADVANTAGES;
use super::json::Type;
use super::words::Tokenize;
use super::{Mapping, ReadOptions};
use crate::batch::{Level, SOLUTIONS, known};
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// Finds the names of a file's fields, once, from those that it begins with.
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
    /// A batch saved under our own names. In a copy of it, `advantages` is what was written last.
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
    /// Nothing but the words of a completion says how long a response is.
    pub(super) count_words: bool,
    /// Counts the tokens of completions; without it, words are counted.
    pub(super) tokenizer: Option<Arc<dyn Tokenize>>,
    /// There is no reward: the answers of completions are compared with references.
    pub(super) compares_answers: bool,
    /// The note on a known dump, if the file is one.
    pub(super) note: Option<String>,
    /// The columns that are asked for; all if it is `None`.
    pub(super) wanted: Option<Vec<String>>,
    pub(super) has_reward: bool,
    /// The columns whose sum is the reward, if there are any.
    pub(super) rewards: Vec<String>,
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
            wanted: options.columns.map(<[String]>::to_vec),
            ..Names::default()
        };
        names.map(path, options.map, fields)?;
        let are_lines = kind == FileKind::Lines;
        if are_lines {
            names.recognise(fields);
        }
        let is_rewarded = REWARDS.iter().any(|ours| names.provides(ours, fields));
        names.compares_answers = are_lines
            && !is_rewarded
            && names.provides("completion", fields)
            && SOLUTIONS.iter().any(|ours| names.provides(ours, fields));
        let checked = names.check(fields, is_rewarded);
        checked.map_err(|error| error.in_file(path))?;
        let says_length = |reading: &Reading| {
            reading.ours == "length" || matches!(reading.role, Role::Mask | Role::Token)
        };
        names.count_words = !fields
            .iter()
            .any(|(field, value)| *value != Type::Null && names.of(field).iter().any(says_length));
        if let Some(wanted) = names.wanted.as_mut().filter(|_| are_lines) {
            // Rewards that the mask takes away are noted.
            wanted.push("token_reward".to_string());
            if !is_rewarded || wanted.iter().any(|name| name == "verified") {
                let texts = ["completion"].into_iter().chain(SOLUTIONS);
                wanted.extend(texts.map(str::to_string));
            }
        }
        names.has_reward = names.provides("reward", fields);
        Ok(names)
    }

    /// Takes the names that the user gives.
    fn map(
        &mut self,
        path: &Path,
        map: &[Mapping],
        fields: &[(String, Type)],
    ) -> Result<(), Diagnostic> {
        for Mapping { ours, theirs } in map {
            if let Some(first) = self.reading(ours) {
                return Err(Diagnostic::error(format!(
                    "`--map`: `{ours}` is mapped twice, from `{}` and from `{theirs}`; a column comes from one field",
                    first.theirs
                )));
            }
            let mut all = fields.iter().map(|(field, _)| field.as_str());
            if !all.clone().any(|field| field == theirs) {
                let near = suggest::did_you_mean(theirs, &mut all);
                let what = format!("`--map {ours}={theirs}`: there is no field `{theirs}`; {near}");
                return Err(Diagnostic::error(what).in_file(path));
            }
            self.readings.push(Reading::new(ours, theirs, true));
        }
        Ok(())
    }

    /// Refuses a file without groups, or without rewards and answers to compare.
    fn check(&self, fields: &[(String, Type)], is_rewarded: bool) -> Result<(), Diagnostic> {
        let (what, wanted, ours, likely) = if !self.provides("group", fields) {
            let wanted = ["`group`", "tensor `index` (or `group`) [B]"];
            let what = "nothing says which responses belong to one prompt";
            (what, wanted, "group", LIKELY_GROUPS)
        } else if !is_rewarded && !self.compares_answers {
            let wanted = [
                "`reward`, `correct` or `token_reward`",
                "tensor `token_level_rewards` (or `token_reward`) [B, T], `rewards` (or `reward`) [B], or `correct` [B]",
            ];
            let what = "nothing says how good a response is";
            (what, wanted, "reward", LIKELY_REWARDS)
        } else {
            return Ok(());
        };
        let wanted = wanted[usize::from(self.kind != FileKind::Lines)];
        let error = Diagnostic::error(format!("{what}: there is no {wanted}"));
        Err(error.with_help(hint(ours, likely, fields)))
    }

    /// The name that a field has by itself.
    fn own<'a>(&self, field: &'a str) -> &'a str {
        match self.kind {
            FileKind::Tensors => alias(field),
            FileKind::Saved if field == ADVANTAGES => alias(field),
            _ => field,
        }
    }

    /// Where one of our names is read from, if it is not from the field of that name.
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

    /// Whether the values of a token column are to be read: it is the mask, or it or a column that follows from it is asked
    /// for.
    pub(super) fn wants(&self, reading: &Reading) -> bool {
        let Some(wanted) = &self.wanted else {
            return true;
        };
        let is_named = |name| wanted.iter().any(|column| column == name);
        match reading.ours.as_str() {
            "mask" => true,
            "token_reward" if !self.has_reward => true,
            "old_logp" if is_named("logp") => true,
            ours => is_named(ours),
        }
    }

    /// Whether the batch is to have the strings of a field: it is a completion or an unknown column. Levels need those of
    /// trajectories.
    pub(super) fn wants_text(&self, reading: &Reading) -> bool {
        let mut wanted = self.wanted.iter().flatten();
        let is_wanted = reading.ours == "trajectory" || self.wanted.is_none();
        matches!(reading.role, Role::Any | Role::Completion)
            && (is_wanted || wanted.any(|column| *column == reading.ours))
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
        let mut mapped = self.readings.clone();
        mapped.retain(|reading| reading.theirs == field);
        let own = self.own(field);
        if mapped.is_empty() && self.reading(own).is_none() {
            mapped.push(Reading::new(own, field, false));
        }
        mapped
    }
}

const LIKELY_GROUPS: &str = "group_id prompt_id prompt_idx uid index question_id problem_id task_id example_id \
    sample_id qid idx id prompt input question problem query instruction messages";

const LIKELY_REWARDS: &str = "rewards score scores token_level_scores total_reward reward_score return acc accuracy \
    is_correct passed success label verified";

/// Help for a file without a column: the likeliest field for it, or all of them.
fn hint(ours: &str, likely: &str, fields: &[(String, Type)]) -> String {
    let all = || fields.iter().map(|(field, _)| field.as_str());
    if fields.is_empty() {
        return "there is nothing at all".to_string();
    }
    let there = format!("there is {}", suggest::list(all()));
    let mut likely = likely.split(' ');
    let candidate = likely
        .find_map(|name| all().find(|field| field.eq_ignore_ascii_case(name)))
        .or_else(|| suggest::nearest(ours, all()));
    match candidate {
        Some("token_level_scores") => format!(
            "{there}: if it is `token_level_scores`, say `--map token_reward=token_level_scores`"
        ),
        Some(field) => format!("{there}: if it is `{field}`, say `--map {ours}={field}`"),
        None => format!("{there}: say which with `--map {ours}=FIELD`"),
    }
}
