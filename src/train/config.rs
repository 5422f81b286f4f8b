//! What a run is set to: the keys of its TOML file, each with a default, a comment and bounds.

mod text;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::policy::{AdamWConfig, Mlp, Policy};
use super::task::{Arithmetic, Maze, Task, TaskError, TaskShape};
use crate::suggest;

/// The keys with their comments and defaults, in the order in which they are printed.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr,)+) => {
        /// What a run is set to; `advlab train --print-config` prints it with these comments.
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
    };
}

keys! {
    /// What is learned: "maze" (walk to the goal and stop there) or "arithmetic" (add two numbers).
    task: String = "maze".to_string(),
    /// The side of the mazes, 2 to 32; a response has at most four moves a side.
    maze_size: usize = 4,
    /// The digits of each of the two numbers, 1 to 18.
    arithmetic_digits: usize = 2,
    /// The recipe: a built-in's name, or the path of a .rhai file, which the run follows as it is edited.
    recipe: String = "grpo".to_string(),
    /// The loss for recipes that have none of their own; it sees their advantage as `batch.advantage`.
    loss_recipe: String = "ppo_clip".to_string(),
    /// The seed of everything that is drawn.
    seed: u64 = 0,
    /// Training steps.
    steps: u64 = 400,
    /// Prompts a step.
    rollout_batch_size: usize = 64,
    /// Responses to each prompt.
    group_size: usize = 16,
    /// How often a step goes through its batch.
    epochs: usize = 1,
    /// Updates an epoch; each takes its share of whole groups. 1 epoch and 1 minibatch is one on-policy update.
    minibatches: usize = 1,
    /// The width of the policy's two hidden layers.
    hidden_size: usize = 256,
    /// The learning rate of AdamW.
    lr: f64 = 1e-3,
    /// The decoupled weight decay of AdamW.
    weight_decay: f64 = 0.01,
    /// The norm that a gradient is scaled down to; 0 for none.
    max_grad_norm: f64 = 0.0,
    /// The weight of a KL to the reference policy that is added to whatever loss there is, averaged over tokens.
    kl_beta: f64 = 0.0,
    /// The estimator of that KL: "k2" or "k3".
    kl: String = "k3".to_string(),
    /// After how many steps the reference policy becomes the present one; 0 for never, so that it stays the initial one.
    reset_reference_every: u64 = 0,
    /// After how many steps the policy is evaluated; 0 for at the end alone.
    eval_every: u64 = 50,
    /// Prompts of the evaluation set, which training never draws from.
    eval_prompts: usize = 256,
    /// Responses to each of them: pass@k is estimated for k = 1, 2, 4, ... up to this.
    eval_samples: usize = 16,
    /// After how many steps a checkpoint is written: what a crash can cost.
    checkpoint_every: u64 = 50,
    /// How many checkpoints are kept; with more than one, a damaged one is not the end.
    keep_checkpoints: usize = 2,
    /// Every how many steps the batch is written to batches/; 0 for none. Those that made a version fail always are.
    batch_every: u64 = 10,
    /// How many of these batches are kept: as far as `advlab repl RUN` can look back.
    keep_batches: usize = 20,
    /// The milliseconds that a saved version has for all its checks before the run uses it.
    check_deadline_ms: u64 = 2000,
    /// The seconds that the hooks of one step have before they are stopped, and the version counts as failed.
    hook_deadline_s: u64 = 60,
    /// Whether to write TensorBoard event files.
    tensorboard: bool = true,
    /// The run's folder; empty for the next free runs/TASK-RECIPE-N.
    out: String = String::new(),
    /// Parameters of the recipe, such as k = 8; every version of it must take them.
    params: toml::Table = toml::Table::new(),
    /// Parameters of the loss recipe, such as clip_high = 0.28.
    loss_params: toml::Table = toml::Table::new(),
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no such key.
    #[error("{}:{line}: there is no key `{key}`: {hint}", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The nearest one, or all.
        hint: String,
    },
    /// The file is no TOML, or a value has another type than its key.
    #[error("{}:{line}: {message}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value is out of bounds.
    #[error("{place}{key} is {found}: it must be {expected}")]
    Value {
        /// The file and line with a colon behind them; empty where the value came from a flag.
        place: String,
        /// The key.
        key: &'static str,
        /// What was given.
        found: String,
        /// What it can be.
        expected: String,
    },
}

impl Config {
    /// Whether all values are within bounds.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for the first one that is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        one_of("task", &self.task, &["maze", "arithmetic"])?;
        one_of("kl", &self.kl, &["k2", "k3"])?;
        within("maze_size", self.maze_size, 2, 32)?;
        within("arithmetic_digits", self.arithmetic_digits, 1, 18)?;
        for (key, found, min) in [
            ("steps", self.steps, 1),
            ("seed", self.seed, 0),
            ("reset_reference_every", self.reset_reference_every, 0),
            ("eval_every", self.eval_every, 0),
            ("checkpoint_every", self.checkpoint_every, 1),
            ("batch_every", self.batch_every, 0),
            ("check_deadline_ms", self.check_deadline_ms, 1),
            ("hook_deadline_s", self.hook_deadline_s, 1),
        ] {
            // What TOML can write.
            if !(min..=i64::MAX as u64).contains(&found) {
                return Err(wrong(key, found, format!("from {min} to {}", i64::MAX)));
            }
        }
        within("rollout_batch_size", self.rollout_batch_size, 1, 1 << 20)?;
        within("group_size", self.group_size, 1, 1 << 16)?;
        within("epochs", self.epochs, 1, 1 << 16)?;
        within("minibatches", self.minibatches, 1, self.rollout_batch_size)?;
        within("hidden_size", self.hidden_size, 1, 1 << 14)?;
        within("eval_prompts", self.eval_prompts, 1, 1 << 20)?;
        within("eval_samples", self.eval_samples, 1, 1 << 16)?;
        within("keep_checkpoints", self.keep_checkpoints, 1, 1 << 20)?;
        within("keep_batches", self.keep_batches, 1, 1 << 20)?;
        for (keys, found) in [
            (
                "rollout_batch_size",
                self.rollout_batch_size * self.group_size,
            ),
            ("eval_prompts", self.eval_prompts * self.eval_samples),
        ] {
            if found > RESPONSES {
                let expected = format!("fewer: at most {RESPONSES} responses at once");
                return Err(wrong(keys, format!("{found} responses in all"), expected));
            }
        }
        for (key, number) in [
            ("lr", self.lr),
            ("weight_decay", self.weight_decay),
            ("max_grad_norm", self.max_grad_norm),
            ("kl_beta", self.kl_beta),
        ] {
            if !(number.is_finite() && number >= 0.0) {
                return Err(wrong(key, number, "a number, at least 0"));
            }
        }
        settings("params", &self.params)?;
        settings("loss_params", &self.loss_params)?;
        Ok(())
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

    /// The recipe's parameters as names and texts.
    pub(super) fn settings(&self) -> Result<Vec<(String, String)>, ConfigError> {
        settings("params", &self.params)
    }

    /// The loss recipe's parameters as names and texts.
    pub(super) fn loss_settings(&self) -> Result<Vec<(String, String)>, ConfigError> {
        settings("loss_params", &self.loss_params)
    }

    /// The task.
    pub(super) fn make_task(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(match self.task.as_str() {
            "arithmetic" => Box::new(Arithmetic::new(self.arithmetic_digits)?),
            _ => Box::new(Maze::new(self.maze_size)?),
        })
    }

    /// The policy before the first step.
    pub(super) fn make_policy(&self, shape: &TaskShape) -> Box<dyn Policy> {
        let adamw = AdamWConfig {
            lr: self.lr,
            weight_decay: self.weight_decay,
            ..AdamWConfig::default()
        };
        Box::new(Mlp::new(shape, self.hidden_size, adamw, self.seed))
    }
}

fn wrong(
    key: &'static str,
    found: impl std::fmt::Display,
    expected: impl Into<String>,
) -> ConfigError {
    ConfigError::Value {
        place: String::new(),
        key,
        found: found.to_string(),
        expected: expected.into(),
    }
}

fn one_of(key: &'static str, found: &str, known: &[&str]) -> Result<(), ConfigError> {
    if known.contains(&found) {
        return Ok(());
    }
    let all = suggest::list(known.iter().copied());
    let expected = match suggest::nearest(found, known.iter().copied()) {
        Some(near) => format!("one of {all}; did you mean `{near}`?"),
        None => format!("one of {all}"),
    };
    Err(wrong(key, format!("\"{found}\""), expected))
}

/// Responses that are sampled at once; beyond, memory ends before patience does.
const RESPONSES: usize = 1 << 24;

fn within(key: &'static str, found: usize, min: usize, max: usize) -> Result<(), ConfigError> {
    match (min..=max).contains(&found) {
        true => Ok(()),
        false => Err(wrong(key, found, format!("from {min} to {max}"))),
    }
}

fn settings(
    table: &'static str,
    values: &toml::Table,
) -> Result<Vec<(String, String)>, ConfigError> {
    let text = |(name, value): (&String, &toml::Value)| match value {
        toml::Value::String(text) => Ok((name.clone(), text.clone())),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
            Ok((name.clone(), value.to_string()))
        }
        _ => Err(wrong(
            table,
            format!("{name} = {value}"),
            "numbers, texts, true or false",
        )),
    };
    values.iter().map(text).collect()
}
