//! The configuration of a run: the keys of its TOML file, each with a default, a comment and bounds.

mod text;

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::policy::{AdamWConfig, Mlp};
use super::task::{Arithmetic, DIGITS, Maze, SIZES, Task, TaskShape};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::live::LiveOptions;
use crate::script::{Hook, Host, Limits, Recipe};
use crate::suggest;

/// The keys with their comments, defaults and bounds, in the order in which they are printed.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr, $bounds:expr;)+) => {
        /// The configuration of a run; `advlab train --print-config` prints it with these comments.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Config { $($name: $default,)+ }
            }
        }

        /// Each key with the lines of its comment.
        const KEYS: &[(&str, &[&str])] = &[$((stringify!($name), &[$($doc),+]),)+];

        impl Config {
            /// The first key that is out of its bounds, and what is wrong with it.
            fn out_of_bounds(&self) -> Option<(&'static str, Diagnostic)> {
                $(if let Some(expected) = ($bounds)(&self.$name) {
                    let found = format!("{} is {:?}", stringify!($name), self.$name);
                    return Some((stringify!($name), Diagnostic::error(found).expected(expected)));
                })+
                None
            }
        }
    };
}

keys! {
    /// The task: "maze" (walk to the goal and stop there) or "arithmetic" (add two numbers).
    task: String = "maze".to_string(), task;
    /// The side of the mazes, 2 to 32; a response has at most four moves a side.
    maze_size: usize = 4, within(*SIZES.start(), *SIZES.end());
    /// The digits of each of the two numbers, 1 to 18.
    arithmetic_digits: usize = 2, within(*DIGITS.start(), *DIGITS.end());
    /// The recipe: a built-in's name, or the path of a .rhai file, which the run follows as it is edited.
    recipe: String = "grpo".to_string(), anything;
    /// The loss for recipes that have none of their own; it sees their advantage as `batch.advantage`.
    loss_recipe: String = "ppo_clip".to_string(), anything;
    /// The seed of everything that is drawn.
    seed: u64 = 0, at_least(0);
    /// Training steps.
    steps: u64 = 400, at_least(1);
    /// Prompts a step.
    rollout_batch_size: usize = 64, within(1, 1 << 20);
    /// Responses to each prompt.
    group_size: usize = 16, within(1, 1 << 16);
    /// How often a step goes through its batch.
    epochs: usize = 1, within(1, 1 << 16);
    /// Updates an epoch; each takes its share of whole groups. 1 epoch and 1 minibatch is one on-policy update.
    minibatches: usize = 1, within(1, 1 << 20);
    /// The width of the policy's two hidden layers.
    hidden_size: usize = 256, within(1, 1 << 14);
    /// The learning rate of AdamW.
    lr: f64 = 1e-3, not_negative;
    /// The decoupled weight decay of AdamW.
    weight_decay: f64 = 0.01, not_negative;
    /// The norm that a gradient is scaled down to; 0 for none.
    max_grad_norm: f64 = 0.0, not_negative;
    /// After how many steps the reference policy becomes the present one; 0 for never, so that it stays the initial one.
    reset_reference_every: u64 = 0, at_least(0);
    /// After how many steps the policy is evaluated; 0 for before the first and after the last alone.
    eval_every: u64 = 50, at_least(0);
    /// Prompts of the evaluation set, which training never draws from.
    eval_prompts: usize = 256, within(1, 1 << 20);
    /// Responses to each of them: pass@k is estimated for k = 1, 2, 4, ... up to this.
    eval_samples: usize = 16, within(1, 1 << 16);
    /// After how many steps a checkpoint is written: what a crash can cost.
    checkpoint_every: u64 = 50, at_least(1);
    /// How many checkpoints are kept; with more than one, a damaged one is not the end.
    keep_checkpoints: usize = 2, within(1, 1 << 20);
    /// Every how many steps the batch is written to batches/; 0 for none. Those that made a version fail always are.
    batch_every: u64 = 10, at_least(0);
    /// How many of these batches are kept: as far as `advlab repl RUN` can look back.
    keep_batches: usize = 20, within(1, 1 << 20);
    /// The milliseconds that a saved version has for all its checks before the run uses it.
    check_deadline_ms: u64 = 2000, at_least(1);
    /// The seconds that the hooks of one step have before they are stopped, and the version counts as failed.
    hook_deadline_s: u64 = 60, at_least(1);
    /// Whether to write TensorBoard event files.
    tensorboard: bool = true, anything;
    /// The run's folder; empty for the next free runs/TASK-RECIPE-N.
    out: String = String::new(), anything;
    /// Parameters of the recipe, such as k = 8; every version of it must take them.
    params: toml::Table = toml::Table::new(), anything;
    /// Parameters of the loss recipe, such as clip_high = 0.28 or kl_beta = 0.01.
    loss_params: toml::Table = toml::Table::new(), anything;
}

/// Responses that are sampled at once; beyond, memory ends before patience does.
const RESPONSES: usize = 1 << 24;

impl Config {
    /// Whether all values are within bounds.
    ///
    /// # Errors
    /// [`Diagnostics`] with the first one that is not.
    pub fn check(&self) -> Result<(), Diagnostics> {
        match self.problem() {
            Some((_, problem)) => Err(problem.into()),
            None => Ok(()),
        }
    }

    /// The first key that is wrong, alone or beside another one, and what is wrong with it.
    fn problem(&self) -> Option<(&'static str, Diagnostic)> {
        let wrong = |key, found, expected| Some((key, Diagnostic::error(found).expected(expected)));
        if let Some(problem) = self.out_of_bounds() {
            return Some(problem);
        }
        if self.minibatches > self.rollout_batch_size {
            let found = format!("minibatches is {}", self.minibatches);
            let expected = format!("at most rollout_batch_size, {}", self.rollout_batch_size);
            return wrong("minibatches", found, expected);
        }
        let too_many = |key, times, found: usize| {
            if found <= RESPONSES {
                return None;
            }
            let found = format!("{key} times {times} is {found} responses");
            wrong(key, found, format!("at most {RESPONSES}"))
        };
        let sampled = self.rollout_batch_size * self.group_size;
        let evaluated = self.eval_prompts * self.eval_samples;
        if let Some(problem) = too_many("rollout_batch_size", "group_size", sampled)
            .or_else(|| too_many("eval_prompts", "eval_samples", evaluated))
        {
            return Some(problem);
        }
        for (key, values) in [("params", &self.params), ("loss_params", &self.loss_params)] {
            let is_wrong =
                |value: &toml::Value| value.is_table() || value.is_array() || value.is_datetime();
            if let Some((name, value)) = values.iter().find(|(_, value)| is_wrong(value)) {
                let expected = "a number, a string, true or false".to_string();
                return wrong(key, format!("{key}.{name} is {value}"), expected);
            }
        }
        None
    }

    /// Sets a parameter of the recipe, as in `--set k=8`.
    pub fn set(&mut self, name: &str, text: &str) {
        let value = if let Ok(whole) = text.parse::<i64>() {
            whole.into()
        } else if let Ok(number) = text.parse::<f64>() {
            number.into()
        } else if let Ok(truth) = text.parse::<bool>() {
            truth.into()
        } else {
            text.into()
        };
        self.params.insert(name.to_string(), value);
    }

    /// Whether the policy is evaluated after a step.
    pub(super) fn is_evaluated(&self, step: u64) -> bool {
        let done = step + 1;
        done == self.steps || self.eval_every > 0 && done.is_multiple_of(self.eval_every)
    }

    pub(super) fn host(&self) -> Host {
        Host::new().with_seed(self.seed).with_limits(Limits {
            time: Duration::from_secs(self.hook_deadline_s),
            ..Limits::default()
        })
    }

    pub(super) fn live_options(&self) -> LiveOptions {
        let deadline = Duration::from_millis(self.check_deadline_ms);
        let settings = settings(&self.params).into_iter();
        let set = |options: LiveOptions, (name, value)| options.set(name, value);
        settings.fold(LiveOptions::default().deadline(deadline), set)
    }

    /// A loss recipe with the run's `loss_params`.
    pub(super) fn set_loss(&self, mut recipe: Recipe) -> Result<Recipe, Diagnostics> {
        if !recipe.has(Hook::Loss) {
            let name = recipe.name();
            let error = Diagnostic::error(format!("the loss recipe {name} has no `loss`"));
            let help = "the built-in losses are `ppo_clip` and `policy_gradient`";
            return Err(error.with_help(help).into());
        }
        for (name, text) in settings(&self.loss_params) {
            recipe.set_text(&name, &text).map_err(|error| {
                Diagnostic::error(format!("loss_params.{name} = {text}: {error}"))
            })?;
        }
        Ok(recipe)
    }

    pub(super) fn make_task(&self) -> Result<Box<dyn Task>, Diagnostics> {
        Ok(match self.task.as_str() {
            "arithmetic" => Box::new(Arithmetic::new(self.arithmetic_digits)?),
            _ => Box::new(Maze::new(self.maze_size)?),
        })
    }

    /// The policy before the first step.
    pub(super) fn make_policy(&self, shape: &TaskShape) -> Mlp {
        let adamw = AdamWConfig {
            lr: self.lr,
            weight_decay: self.weight_decay,
            ..AdamWConfig::default()
        };
        Mlp::new(shape, self.hidden_size, adamw, self.seed)
    }
}

/// Parameters by their names, with their values as `--set` takes them.
pub(super) fn settings(params: &toml::Table) -> Vec<(String, String)> {
    let text = |value: &toml::Value| value.as_str().map_or(value.to_string(), str::to_string);
    let params = params.iter();
    params
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
}

// The bounds of keys: what is expected, where a value is something else.

fn anything<T>(_: &T) -> Option<String> {
    None
}

fn task(found: &str) -> Option<String> {
    const KNOWN: [&str; 2] = ["maze", "arithmetic"];
    (!KNOWN.contains(&found)).then(|| {
        let all = format!("one of {}", suggest::list(KNOWN));
        suggest::nearest(found, KNOWN)
            .map_or(all.clone(), |near| format!("{all}; did you mean `{near}`?"))
    })
}

fn within<T: PartialOrd + Display>(min: T, max: T) -> impl Fn(&T) -> Option<String> {
    move |found| (*found < min || *found > max).then(|| format!("from {min} to {max}"))
}

/// TOML's whole numbers have 63 bits.
fn at_least(min: u64) -> impl Fn(&u64) -> Option<String> {
    move |found| {
        let is_wrong = *found < min || *found > i64::MAX as u64;
        is_wrong.then(|| format!("a whole number from {min} to 2^63 - 1"))
    }
}

fn not_negative(found: &f64) -> Option<String> {
    let is_wrong = !(found.is_finite() && *found >= 0.0);
    is_wrong.then(|| "a number, at least 0".to_string())
}
