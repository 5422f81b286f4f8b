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

/// The names of our columns in one program's dumps, which are read without `--map`.
struct Dump {
    kind: &'static str,
    /// Fields that the first line has, each of one of these types.
    known_by: &'static [(&'static str, &'static [Type])],
    names: &'static [(&'static str, &'static str)],
    /// An array with one entry a token of the response, beside the columns that we know.
    tokens: Option<&'static str>,
    /// Each reward function has a column, and the reward is their sum.
    adds_rewards: bool,
}

const NUMBER: &[Type] = &[Type::Number];
const STRING: &[Type] = &[Type::String];
const TEXT: &[Type] = &[Type::String, Type::Array];

const DUMP: Dump = Dump {
    kind: "",
    known_by: &[],
    names: &[],
    tokens: None,
    adds_rewards: false,
};

static DUMPS: [Dump; 8] = [
    // `_dump_generations` of verl's trainers, which writes `trainer.rollout_data_dir` and `validation_data_dir`.
    Dump {
        kind: "verl's generations",
        known_by: &[("input", STRING), ("output", STRING), ("score", NUMBER)],
        names: &[
            ("group", "input"),
            ("prompt", "input"),
            ("reward", "score"),
            ("completion", "output"),
            ("correct", "acc"),
            ("solution", "gts"),
        ],
        ..DUMP
    },
    // The records of open-instruct's `--save_traces`. `prompt_idx` begins at 0 in every step.
    Dump {
        kind: "open-instruct",
        known_by: &[("prompt_idx", NUMBER), ("reward", NUMBER)],
        names: &[("group", "prompt_idx"), ("old_logp", "logprobs")],
        tokens: Some("response_tokens"),
        ..DUMP
    },
    // `GRPOTrainer.log` with `log_completions`.
    Dump {
        kind: "TRL's completions",
        known_by: &[
            ("step", NUMBER),
            ("prompt", TEXT),
            ("completion", TEXT),
            ("advantage", NUMBER),
        ],
        names: &[("group", "prompt"), ("prompt", "prompt")],
        adds_rewards: true,
        ..DUMP
    },
    // `dump_per_dataset_eval_results`; a score is one for the response or one for each of its tokens.
    Dump {
        kind: "SkyRL's evaluations",
        known_by: &[("input_prompt", STRING), ("output_response", STRING)],
        names: &[
            ("group", "input_prompt"),
            ("prompt", "input_prompt"),
            ("completion", "output_response"),
            ("reward", "score"),
            ("token_reward", "score"),
        ],
        ..DUMP
    },
    // The lines of columns that ROLL's `rollout_dump_dir` has, unfolded.
    Dump {
        kind: "ROLL's rollouts",
        known_by: &[("responses", STRING), ("scores", NUMBER)],
        names: &[
            ("group", "prompt"),
            ("prompt", "prompt"),
            ("completion", "responses"),
            ("reward", "scores"),
            ("step", "global_step"),
            ("solution", "ground_truth"),
        ],
        ..DUMP
    },
    // The lines of `train_data_step*.jsonl`, unfolded, with a name for the tokens of the prompt.
    Dump {
        kind: "NeMo-RL's train data",
        known_by: &[("prompt_hash", STRING), ("rewards", NUMBER)],
        names: &[
            ("group", "prompt_hash"),
            ("reward", "rewards"),
            ("mask", "token_loss_mask"),
            ("old_logp", "prev_logprobs"),
            ("rollout_logp", "generation_logprobs"),
            ("advantage", "advantages"),
        ],
        ..DUMP
    },
    // `_dump_trajectory` of AReaL's workflow executor: a task is what a prompt's responses have in common.
    Dump {
        kind: "AReaL's trajectories",
        known_by: &[
            ("task_id", NUMBER),
            ("tail_version", NUMBER),
            ("reward", NUMBER),
        ],
        names: &[("group", "task_id"), ("step", "tail_version")],
        ..DUMP
    },
    // The traces of prime-rl's episodes, unfolded.
    Dump {
        kind: "prime-rl's traces",
        known_by: &[("group_id", STRING), ("episode", STRING), ("agent", STRING)],
        names: &[("group", "group_id")],
        ..DUMP
    },
];

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
    fn new(ours: &str, theirs: &str, asked: bool) -> Self {
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

/// The names that fields are read under.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Those that are not read from a field of that very name.
    readings: Vec<Reading>,
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
        let mut names = Names {
            has_aliases: matches!(header, Header::Tensors),
            is_saved: matches!(header, Header::Saved { .. }),
            tokenizer: options.tokenizer.cloned(),
            ..Names::default()
        };
        let all = || fields.iter().map(|(field, _)| field.as_str());
        for Mapping { ours, theirs } in options.map {
            if let Some(first) = names.reading(ours) {
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
                return Err(Diagnostic::error(what).in_file(path));
            }
            names.readings.push(Reading::new(ours, theirs, true));
        }
        if matches!(header, Header::Lines) {
            names.recognise(fields);
        }
        let missing = |what: &str, wanted: &str, hint| {
            Err(Diagnostic::error(format!("{what}: there is no {wanted}"))
                .with_help(hint)
                .in_file(path))
        };
        let wanted = |lines, tensors| match header {
            Header::Lines => lines,
            _ => tensors,
        };
        if !names.provides("group", fields) {
            let wanted = wanted("`group`", "tensor `index` (or `group`) [B]");
            let what = "nothing says which responses belong to one prompt";
            return missing(what, wanted, hint("group", LIKELY_GROUPS, all()));
        }
        let rewards = ["reward", "token_reward", "correct"];
        let provides = |ours: &&str| names.provides(ours, fields);
        let is_verifiable = matches!(header, Header::Lines)
            && provides(&"completion")
            && SOLUTIONS.iter().any(provides);
        let is_rewarded = rewards.iter().any(|ours| names.provides(ours, fields));
        names.compares_answers = !is_rewarded && is_verifiable;
        if !is_rewarded && !is_verifiable {
            let wanted = wanted(
                "`reward`, `correct` or `token_reward`",
                "tensor `token_level_rewards` (or `token_reward`) [B, T], `rewards` (or `reward`) [B], or `correct` [B]",
            );
            let what = "nothing says how good a response is";
            return missing(what, wanted, hint("reward", LIKELY_REWARDS, all()));
        }
        let says_length = |reading: &Reading| {
            reading.ours == "length" || matches!(reading.role, Role::Mask | Role::Token)
        };
        names.count_words = !fields
            .iter()
            .any(|(field, value)| *value != Type::Null && names.of(field).iter().any(says_length));
        names.wanted = options.columns.map(<[String]>::to_vec);
        if let (Header::Lines, Some(wanted)) = (header, &mut names.wanted) {
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

    /// Adds the names of a known dump where the first line looks like one. What the user has mapped stays as it is, and
    /// so does a field that has one of our names by itself.
    fn recognise(&mut self, fields: &[(String, Type)]) {
        let kind = |name: &str| {
            let mut fields = fields.iter();
            Some(fields.find(|(field, _)| field == name)?.1)
        };
        let is_known = |dump: &&Dump| {
            let mut known_by = dump.known_by.iter();
            let has_rewards = ["reward", "token_reward", "correct"].map(kind);
            let is_any =
                known_by.all(|(name, types)| kind(name).is_some_and(|of| types.contains(&of)));
            is_any && !(dump.adds_rewards && has_rewards.iter().any(Option::is_some))
        };
        let dump = DUMPS.iter().find(is_known);
        let Some(dump) = dump.filter(|_| kind("group").is_none()) else {
            return;
        };
        let mut taken = Vec::new();
        for &(ours, theirs) in dump.names {
            let Some(found) = kind(theirs) else { continue };
            let is_usable = match (ours, role(ours)) {
                // Some reward functions give `acc` as a share; a boolean alone is a verdict.
                ("correct", _) => found == Type::Bool,
                (_, Role::Response) => found == Type::Number,
                (_, Role::Token | Role::Mask) => found == Type::Array,
                _ => true,
            };
            let is_free = self.reading(ours).is_none() && (ours == theirs || kind(ours).is_none());
            if is_usable && is_free {
                self.are_dumped |= ours == "group";
                self.readings.push(Reading::new(ours, theirs, false));
                if !matches!(ours, "prompt" | "solution") {
                    taken.push(format!("{ours} = `{theirs}`"));
                }
            }
        }
        if dump.adds_rewards && self.reading("reward").is_none() {
            let is_number = |(_, of): &&(String, Type)| matches!(of, Type::Number | Type::Null);
            let numbers = fields.iter().filter(is_number).map(|(name, _)| name);
            let known =
                |name: &&String| *name != "step" && role(name) == Role::Any && *name != "advantage";
            let numbers: Vec<&String> = numbers.filter(known).collect();
            // A model that judges is called by its name; what else a trainer was told to log is no reward.
            let named: Vec<&String> = numbers
                .iter()
                .copied()
                .filter(|name| name.contains("reward"))
                .collect();
            let rewards = if named.is_empty() { numbers } else { named };
            self.rewards = rewards.into_iter().cloned().collect();
            let rewards: Vec<String> = self
                .rewards
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            taken.push(format!("reward = {}", rewards.join(" + ")));
        }
        if let Some(tokens) = dump.tokens
            && kind(tokens).is_some()
            && self.reading(tokens).is_none()
        {
            let mut reading = Reading::new(tokens, tokens, false);
            reading.role = Role::Token;
            self.readings.push(reading);
        }
        let taken = taken.join(", ");
        self.note = Some(format!("read as a dump of {}: {taken}", dump.kind));
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
    fn reading(&self, ours: &str) -> Option<&Reading> {
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
