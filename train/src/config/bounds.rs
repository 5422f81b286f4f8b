//! The bounds of a configuration's values, some of which depend on other values.

use std::ops::RangeInclusive;

use super::text::flat;
use super::{Config, PolicyName, TaskName};
use crate::error::Result;
use advlab::diagnostic::Diagnostic;

/// The largest integer in TOML, whose integers are signed 64-bit numbers.
const LARGEST: u64 = i64::MAX as u64;
/// The bounds of a maze's side; in the largest maze, a response has up to 4 * 32 moves.
pub(crate) const MAZE_SIZES: RangeInclusive<u64> = 2..=32;
pub(crate) const MAZE_TURNS: RangeInclusive<u64> = 1..=64;
/// The bounds of the number of digits: at most 18, so that the sum of two numbers fits in the verifier's u64.
pub(crate) const DIGITS: RangeInclusive<u64> = 1..=18;
/// The maximum number of responses in a step, which bounds the memory that a step takes.
const RESPONSES: usize = 1 << 24;

impl Config {
    /// Checks that all values are within their bounds and do not contradict each other.
    pub fn check(&self) -> Result<()> {
        let problem = self.problem();
        problem.map_or(Ok(()), |(_, problem)| Err(problem.into()))
    }

    /// Returns the first key whose value breaks a rule, and the problem with the value.
    pub(super) fn problem(&self) -> Option<(String, Diagnostic)> {
        let mut rules = self.rules().into_iter();
        let (_, key, expected) = rules.find(|(is_kept, ..)| !is_kept)?;
        let found = toml::Table::try_from(self)
            .map_or("too large".to_string(), |all| flat(all)[&key].to_string());
        let problem = Diagnostic::error(format!("{key} is {found}"));
        Some((key, problem.expected(expected)))
    }

    /// Returns an entry for each rule: whether the value obeys the rule, the value's key, and the expected value in words.
    fn rules(&self) -> Vec<(bool, String, String)> {
        let (math, model, prompts) = (&self.math, &self.transformer, self.rollout_batch_size);
        let (few, many) = (1..=1 << 16, 1..=1 << 20);
        let tokens = model.tokens_per_forward as u64;
        let (inner, layers) = (model.intermediate_size, model.num_hidden_layers);
        let (heads, shared) = (model.num_attention_heads, model.num_key_value_heads);
        let mut rules = Vec::new();
        let mut rule = |is_kept: bool, key: &str, expected: &str| {
            rules.push((is_kept, key.to_string(), expected.to_string()));
        };
        for (key, found, least) in [
            ("seed", self.seed, 0),
            ("steps", self.steps, 1),
            ("sft_steps", self.sft_steps, 0),
            ("warmup_steps", self.warmup_steps, 0),
            ("reset_reference_every", self.reset_reference_every, 0),
            ("eval_every", self.eval_every, 0),
            ("checkpoint_every", self.checkpoint_every, 1),
            ("batch_every", self.batch_every, 0),
            ("check_deadline_ms", self.check_deadline_ms, 1),
            ("hook_deadline_s", self.hook_deadline_s, 1),
            ("transformer.tokens_per_forward", tokens, 1),
        ] {
            let expected = format!("a whole number from {least} to 2^63 - 1");
            rule((least..=LARGEST).contains(&found), key, &expected);
        }
        for (key, found, bounds) in [
            ("maze_size", self.maze_size, &MAZE_SIZES),
            ("maze_turns", self.maze_turns, &MAZE_TURNS),
            ("arithmetic_digits", self.arithmetic_digits, &DIGITS),
            ("rollout_batch_size", self.rollout_batch_size, &many),
            ("prompts", self.prompts, &(0..=1 << 20)),
            ("group_size", self.group_size, &few),
            ("epochs", self.epochs, &few),
            ("minibatches", self.minibatches, &many),
            ("hidden_size", self.hidden_size, &(1..=1 << 14)),
            ("eval_prompts", self.eval_prompts, &many),
            ("eval_samples", self.eval_samples, &few),
            ("keep_checkpoints", self.keep_checkpoints, &many),
            ("keep_batches", self.keep_batches, &many),
            ("transformer.hidden_size", model.hidden_size, &few),
            ("transformer.intermediate_size", inner, &many),
            ("transformer.num_hidden_layers", layers, &few),
            ("transformer.num_attention_heads", heads, &few),
            ("transformer.num_key_value_heads", shared, &few),
            ("transformer.max_new_tokens", model.max_new_tokens, &many),
            ("transformer.top_k", model.top_k, &(0..=1 << 20)),
            ("transformer.rows_per_batch", model.rows_per_batch, &many),
        ] {
            let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
            rule(bounds.contains(&(found as u64)), key, &expected);
        }
        for (key, found) in [
            ("sft_lr", self.sft_lr),
            ("lr", self.lr),
            ("weight_decay", self.weight_decay),
            ("max_grad_norm", self.max_grad_norm),
            ("transformer.temperature", model.temperature),
        ] {
            let is_right = found >= 0.0 && found.is_finite();
            rule(is_right, key, "a finite number, at least 0");
        }
        for (table, params) in [("params", &self.params), ("loss_params", &self.loss_params)] {
            for (name, value) in params {
                let is_single = !value.is_array() && !value.is_table();
                let expected = "a number, a string, true or false";
                rule(is_single, &format!("{table}.{name}"), expected);
            }
        }
        // Values that contradict each other or would have no effect are refused, because they are most likely mistakes.
        let is_math = self.task == TaskName::Math;
        let is_transformer = self.policy == PolicyName::Transformer;
        let is_share = model.top_p > 0.0 && model.top_p <= 1.0;
        rule(is_share, "transformer.top_p", "above 0, and at most 1");
        let strings = "transformer.stop_strings";
        let has_empty = model.stop_strings.contains(&String::new());
        rule(!has_empty, strings, "no empty string");
        if is_math {
            let expected = "\"transformer\", because task is \"math\"";
            rule(is_transformer, "policy", expected);
            let (key, has_model) = ("transformer.model", !model.model.is_empty());
            let expected = "a folder of a model with its tokenizer, because task is \"math\"";
            rule(has_model, key, expected);
            let expected = "a JSONL file of questions and answers, because task is \"math\"";
            rule(!math.data.is_empty(), "math.data", expected);
        }
        let expected = format!("at most {prompts}, the rollout_batch_size");
        rule(self.minibatches <= prompts, "minibatches", &expected);
        let is_large = self.prompts == 0 || self.prompts >= prompts;
        let expected = format!("0, or at least {prompts}, the rollout_batch_size");
        rule(is_large, "prompts", &expected);
        let (evaluated, samples) = (self.eval_prompts, self.eval_samples);
        for (key, count, other, size) in [
            ("rollout_batch_size", prompts, "group_size", self.group_size),
            ("eval_prompts", evaluated, "eval_samples", samples),
        ] {
            let most = RESPONSES / size.max(1);
            let expected = format!(
                "at most {most}, because {other} is {size} and their product can be at most {RESPONSES}"
            );
            rule(count <= most, key, &expected);
        }
        let default = Config::default();
        let is_unset = is_transformer || *model == default.transformer;
        rule(
            is_unset,
            "policy",
            "\"transformer\", because [transformer] is set",
        );
        let is_unset = is_math || model.stop_strings.is_empty();
        let expected = "none, because responses have no text unless task is \"math\"";
        rule(is_unset, strings, expected);
        let is_unset = is_math || *math == default.math;
        rule(is_unset, "task", "\"math\", because [math] is set");
        rules
    }
}
