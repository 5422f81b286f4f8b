//! Which of the batch's names each field of a file is read under: `--map`, the aliases of padded files, known dumps.

use std::path::Path;
use std::sync::Arc;

use super::json::Type;
use super::raw::Header;
use super::spread;
use super::words::Tokenize;
use super::{Mapping, ReadOptions};
use crate::batch::SOLUTIONS;
use crate::batch::known;
use crate::batch::level::Level;
use crate::diagnostic::Diagnostic;
use crate::suggest;

/// The meaning of a column, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The group of a response: a string or a whole number.
    Group,
    Mask,
    Step,
    /// The response as a string, whose words are counted where no length is known.
    Completion,
    /// A number a response.
    Response,
    /// A number a token.
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

/// Our name for a tensor that may have another trainer's.
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

    /// The least and the greatest number that nothing is said of in a token column: log-probs are at most 0.
    pub(super) fn usual(&self) -> (f32, f32) {
        let is_logp = self.ours.ends_with("logp");
        (f32::MIN, if is_logp { 0.0 } else { f32::MAX })
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

/// The names that fields are read under.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Those that are not read from a field of that very name.
    pub(super) readings: Vec<Reading>,
    has_aliases: bool,
    /// A batch of ours, in whose copies `advantages` is what was written last.
    is_saved: bool,
    /// The groups are those of another program's dump, which are told apart by step too.
    pub(super) are_dumped: bool,
    /// Nothing but the words of a completion says how long a response is.
    pub(super) count_words: bool,
    /// Its tokens are counted by this, its words without it.
    pub(super) tokenizer: Option<Arc<dyn Tokenize>>,
    /// There is no reward: the answers of completions are compared with references.
    pub(super) compares_answers: bool,
    /// The note on a known dump, if the file is one.
    pub(super) note: Option<String>,
    /// The token columns that are asked for; all, where it is `None`.
    wanted: Option<Vec<String>>,
    has_reward: bool,
    /// The columns whose sum is the reward, where there are such.
    pub(super) rewards: Vec<String>,
}

impl Names {
    /// Checks what the user asked for against the fields that there are, and that groups and rewards are among them.
    pub(super) fn new(
        path: &Path,
        options: &ReadOptions,
        fields: &[(String, Type)],
        header: &Header,
    ) -> Result<Names, Diagnostic> {
        let are_lines = matches!(header, Header::Lines);
        let mut names = Names {
            has_aliases: matches!(header, Header::Tensors),
            is_saved: matches!(header, Header::Saved { .. }),
            tokenizer: options.tokenizer.cloned(),
            wanted: options.columns.map(<[String]>::to_vec),
            ..Names::default()
        };
        let here = |error: Diagnostic| error.in_file(path);
        names.map(options.map, fields, here)?;
        if are_lines {
            names.recognise(fields);
        }
        let is_rewarded = REWARDS.iter().any(|ours| names.provides(ours, fields));
        let is_verifiable = are_lines
            && names.provides("completion", fields)
            && SOLUTIONS.iter().any(|ours| names.provides(ours, fields));
        names.compares_answers = !is_rewarded && is_verifiable;
        names.check(fields, are_lines).map_err(here)?;
        let says_length = |reading: &Reading| {
            reading.ours == "length" || matches!(reading.role, Role::Mask | Role::Token)
        };
        names.count_words = !fields
            .iter()
            .any(|(field, value)| *value != Type::Null && names.of(field).iter().any(says_length));
        if let Some(wanted) = names.wanted.as_mut().filter(|_| are_lines) {
            // It is told of rewards that the mask takes away.
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
        map: &[Mapping],
        fields: &[(String, Type)],
        here: impl Fn(Diagnostic) -> Diagnostic,
    ) -> Result<(), Diagnostic> {
        let all = || fields.iter().map(|(field, _)| field.as_str());
        for Mapping { ours, theirs } in map {
            if let Some(first) = self.reading(ours) {
                return Err(Diagnostic::error(format!(
                    "`--map`: `{ours}` is mapped twice, from `{}` and from `{theirs}`; a column comes from one field",
                    first.theirs
                )));
            }
            if !all().any(|field| field == theirs) {
                let what = format!(
                    "`--map {ours}={theirs}`: there is no field `{theirs}`; {}",
                    suggest::did_you_mean(theirs, all())
                );
                return Err(here(Diagnostic::error(what)));
            }
            self.readings.push(Reading::new(ours, theirs, true));
        }
        Ok(())
    }

    /// Whether there are groups, and rewards or answers to compare.
    fn check(&self, fields: &[(String, Type)], are_lines: bool) -> Result<(), Diagnostic> {
        let all = || fields.iter().map(|(field, _)| field.as_str());
        let missing = |what: &str, [lines, tensors]: [&str; 2], hint| {
            let wanted = if are_lines { lines } else { tensors };
            Err(Diagnostic::error(format!("{what}: there is no {wanted}")).with_help(hint))
        };
        if !self.provides("group", fields) {
            let wanted = ["`group`", "tensor `index` (or `group`) [B]"];
            let what = "nothing says which responses belong to one prompt";
            return missing(what, wanted, hint("group", LIKELY_GROUPS, all()));
        }
        if !self.compares_answers && !REWARDS.iter().any(|ours| self.provides(ours, fields)) {
            let wanted = [
                "`reward`, `correct` or `token_reward`",
                "tensor `token_level_rewards` (or `token_reward`) [B, T], `rewards` (or `reward`) [B], or `correct` [B]",
            ];
            let what = "nothing says how good a response is";
            return missing(what, wanted, hint("reward", LIKELY_REWARDS, all()));
        }
        Ok(())
    }

    /// The name that a field has by itself.
    fn own<'a>(&self, field: &'a str) -> &'a str {
        if self.has_aliases || (self.is_saved && field == spread::ADVANTAGES) {
            alias(field)
        } else {
            field
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

    /// Whether the values of a token column are to be read: it is asked for, one that is asked for follows from it, or it
    /// is the mask.
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

    /// Whether the batch is to have the strings of a field: it is a column that nobody knows, or the completion. Levels
    /// are of the trajectories.
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

    /// The names that a field is read under: none where its own name is given to another field.
    pub(super) fn of(&self, field: &str) -> Vec<Reading> {
        let mut mapped = self.readings.clone();
        mapped.retain(|reading| reading.theirs == field);
        let own = self.own(field);
        if !mapped.is_empty() || self.reading(own).is_some() {
            return mapped;
        }
        vec![Reading::new(own, field, false)]
    }
}

const LIKELY_GROUPS: &str = "group_id prompt_id prompt_idx uid index question_id problem_id task_id example_id \
    sample_id qid idx id prompt input question problem query instruction messages";

const LIKELY_REWARDS: &str = "rewards score scores token_level_scores total_reward reward_score return acc accuracy \
    is_correct passed success label verified";

/// Help for a file without a column: the likeliest field for it, or all of them.
fn hint<'a>(ours: &str, likely: &str, all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    if all.is_empty() {
        return "there is nothing at all".to_string();
    }
    let there = format!("there is {}", suggest::list(all.iter().copied()));
    let mut likely = likely.split(' ');
    let candidate = likely
        .find_map(|name| all.iter().find(|field| field.eq_ignore_ascii_case(name)))
        .copied()
        .or_else(|| suggest::nearest(ours, all.iter().copied()));
    match candidate {
        Some("token_level_scores") => format!(
            "{there}: if it is `token_level_scores`, say `--map token_reward=token_level_scores`"
        ),
        Some(field) => format!("{there}: if it is `{field}`, say `--map {ours}={field}`"),
        None => format!("{there}: say which with `--map {ours}=FIELD`"),
    }
}
