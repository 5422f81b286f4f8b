//! The columns that the batch knows by name: the one table of which level each has.

use crate::batch::Level;

/// A column that lives at one level, wherever it comes from.
pub struct Known {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    /// Help for somebody who gives it at another level, or nothing.
    pub(crate) hint: &'static str,
}

static COLUMNS: [Known; 10] = [
    response("reward", "; a reward for each token is `token_reward`"),
    response("correct", ""),
    response("length", ""),
    response("weight", ""),
    token(
        "token_reward",
        "; a reward for the whole response is `reward`",
    ),
    token("old_logp", ""),
    token("ref_logp", ""),
    token("logp", ""),
    token("value", ""),
    token("entropy", ""),
];

const fn response(name: &'static str, hint: &'static str) -> Known {
    let level = Level::Response;
    Known { name, level, hint }
}

const fn token(name: &'static str, hint: &'static str) -> Known {
    let level = Level::Token;
    Known { name, level, hint }
}

/// The column of this name, if it has a fixed level.
pub fn column(name: &str) -> Option<&'static Known> {
    COLUMNS.iter().find(|known| known.name == name)
}

/// Our name for what verl, TRL or OpenRLHF call otherwise: tensors of padded files, and slips in scripts.
pub(crate) fn ours(theirs: &str) -> Option<&'static str> {
    Some(match theirs {
        "rewards" => "reward",
        "acc" => "correct",
        "token_level_rewards" => "token_reward",
        "old_log_probs" | "old_per_token_logps" | "action_log_probs" => "old_logp",
        "ref_log_prob"
        | "ref_log_probs"
        | "ref_per_token_logps"
        | "ref_logprobs"
        | "base_action_log_probs" => "ref_logp",
        "log_probs" | "per_token_logps" | "logprobs" => "logp",
        "rollout_log_probs" | "sampling_per_token_logps" | "sampling_logp" => "rollout_logp",
        "values" => "value",
        "entropys" | "entropies" => "entropy",
        "advantages" => "advantage",
        "response_mask" | "completion_mask" | "action_mask" => "mask",
        "index" => "group",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;

    #[test]
    fn a_known_column_is_refused_at_any_other_level() {
        for known in &COLUMNS {
            let batch = Batch::builder().groups([1i64]);
            let built = match known.level {
                Level::Token => batch.response(known.name, vec![1.0]),
                _ => batch.ragged::<f64, _>(known.name, [[1.0]]),
            }
            .build();
            let refused = built.unwrap_err().to_string();
            let said = format!("it is a {} column", known.level);
            let is_right = refused.contains(known.name) && refused.contains(&said);
            assert!(is_right, "{}: {refused}", known.name);
        }
    }
}
