//! The error for a file in which nothing says which responses belong together, or how good they are.

use super::{Fields, FileKind, Schema};
use crate::diagnostic::Diagnostic;
use crate::files::cell::JsonType;
use crate::files::place::Result;
use crate::suggest;

const LIKELY_GROUPS: &str = "group_id prompt_id prompt_idx index question_id problem_id task_id example_id \
    sample_id qid idx id prompt input question problem query instruction";

const LIKELY_REWARDS: &str = "rewards score scores token_level_scores total_reward reward_score return acc accuracy is_correct passed \
    success label verified";

impl Schema {
    /// Refuses a file that has no groups, or that has neither rewards nor answers to compare.
    pub(super) fn check(&self, fields: Fields, is_rewarded: bool) -> Result<()> {
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
        let wanted = wanted[usize::from(self.kind != FileKind::Lines)];
        let all = || fields.keys().map(String::as_str);
        // verl's `reward_model` holds the reference.
        let candidate = likely
            .split(' ')
            .find_map(|name| all().find(|field| field.eq_ignore_ascii_case(name)))
            .or_else(|| suggest::nearest(ours, all().filter(|name| *name != "reward_model")));
        let there = match fields.is_empty() {
            true => "the file has no fields".to_string(),
            false => format!("there is {}", suggest::list(all())),
        };
        let first = match candidate {
            Some(field) => {
                let is_token = field.starts_with("token_");
                let ours = if is_token { "token_reward" } else { ours };
                let is_object = fields.get(field) == Some(&JsonType::Object);
                let below = if is_object { ".FIELD" } else { "" };
                format!("if `{ours}` is in `{field}{below}`, add `--map {ours}={field}{below}`")
            }
            None => format!("name the field with `--map {ours}=FIELD`"),
        };
        let second = if lacks_rewards && !is_grouped {
            ", and add `--map reward=FIELD` for the rewards"
        } else {
            ""
        };
        let error = Diagnostic::error(format!("{what}: there is no {wanted}"));
        Err(error.with_help(format!("{there}: {first}{second}")))
    }
}
