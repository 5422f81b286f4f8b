//! The settings of a run. `config/config.toml` explains each key and gives its default.

mod bounds;
mod text;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use advlab::diagnostic::Diagnostic;
use advlab::live::LiveOptions;
use advlab::native::{Mode, Native};
use advlab::script::{Builtin, Hook, Host, Limits, Recipe};

pub(crate) use bounds::{DIGITS, MAZE_SIZES, MAZE_TURNS};

/// The configuration of a run, as `advlab train --print-config` prints it:
///
/// ```toml
#[doc = include_str!("config/config.toml")]
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub task: TaskName,
    pub maze_size: usize,
    pub maze_turns: usize,
    pub arithmetic_digits: usize,
    pub recipe: String,
    pub loss_recipe: String,
    pub seed: u64,
    pub steps: u64,
    pub rollout_batch_size: usize,
    pub prompts: usize,
    pub resample: bool,
    pub group_size: usize,
    pub epochs: usize,
    pub minibatches: usize,
    pub policy: PolicyName,
    pub hidden_size: usize,
    pub sft_steps: u64,
    pub sft_lr: f64,
    pub lr: f64,
    pub lr_schedule: Schedule,
    pub warmup_steps: u64,
    pub weight_decay: f64,
    pub max_grad_norm: f64,
    pub reference: bool,
    pub reset_reference_every: u64,
    pub eval_every: u64,
    pub eval_prompts: usize,
    pub eval_samples: usize,
    pub checkpoint_every: u64,
    pub keep_checkpoints: usize,
    pub batch_every: u64,
    pub keep_batches: usize,
    pub check_deadline_ms: u64,
    pub hook_deadline_s: u64,
    pub tensorboard: bool,
    pub out: String,
    pub params: toml::Table,
    pub loss_params: toml::Table,
    pub warnings: WarningConfig,
    pub math: MathConfig,
    pub transformer: TransformerConfig,
    /// When kernels compute the hooks of built-ins: `--native`. It is not a key of the file, because a run's numbers do not
    /// depend on it.
    #[serde(skip)]
    pub native: Mode,
}

/// The table `[warnings]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarningConfig {
    pub groups_without_signal: f64,
    pub entropy: f64,
    pub clip_share: f64,
    pub effective_responses: f64,
    pub length_growth: f64,
}

/// The table `[math]`: keys that only `task = "math"` uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MathConfig {
    pub data: String,
    pub question_field: String,
    pub answer_field: String,
    pub prompt_template: String,
    pub chat_template: bool,
}

/// The table `[transformer]`: keys that only `policy = "transformer"` uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    pub model: String,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub max_new_tokens: usize,
    pub temperature: f64,
    pub top_k: usize,
    pub top_p: f64,
    pub stop_strings: Vec<String>,
    pub device: Device,
    pub tokens_per_forward: usize,
    pub rows_per_batch: usize,
}

/// The task of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskName {
    Maze,
    Arithmetic,
    Math,
}

/// The policy that a run trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    Mlp,
    Transformer,
}

/// The learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    Constant,
    /// The rate falls to 0 at the last step, as half a cosine.
    Cosine,
}

/// The device on which a transformer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The GPU, or the CPU if there is no GPU.
    Auto,
    Cpu,
    Cuda,
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Config {
    /// The configuration with absolute paths for scripts, model and data.
    pub fn with_absolute_paths(&self) -> Config {
        let mut config = self.clone();
        let recipes = [&mut config.recipe, &mut config.loss_recipe].into_iter();
        let scripts = recipes.filter(|name| Builtin::find(name).is_none());
        for path in scripts.chain([&mut config.transformer.model, &mut config.math.data]) {
            let absolute = std::path::absolute(&*path).ok();
            // An empty path stays empty.
            if let Some(absolute) = absolute.as_deref().and_then(Path::to_str) {
                *path = absolute.to_string();
            }
        }
        config
    }

    /// The learning rate at a step: it rises to `lr` over the first `warmup_steps`; after them it is constant, or falls to 0 as
    /// half a cosine.
    pub(super) fn lr_at(&self, step: u64) -> f64 {
        let share = |of: u64, all: u64| (of as f64 / all.max(1) as f64).min(1.0);
        let warmup = self.warmup_steps;
        if step < warmup {
            return self.lr * share(step + 1, warmup);
        }
        if self.lr_schedule == Schedule::Constant {
            return self.lr;
        }
        let share = share(step - warmup, self.steps.saturating_sub(warmup));
        self.lr * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
    }

    /// The norm to which a longer gradient is scaled down, if there is a limit.
    pub(super) fn max_grad_norm(&self) -> Option<f64> {
        Some(self.max_grad_norm).filter(|norm| *norm > 0.0)
    }

    pub fn host(&self) -> Host {
        Host::new()
            .with_seed(self.seed)
            .with_native(&Native::new(self.native))
            .with_limits(Limits {
                time: Duration::from_secs(self.hook_deadline_s),
                ..Limits::default()
            })
    }

    pub(super) fn live_options(&self) -> LiveOptions {
        LiveOptions {
            settings: settings(&self.params),
            deadline: Some(Duration::from_millis(self.check_deadline_ms)),
            ..LiveOptions::default()
        }
    }

    /// A loss recipe with the run's `loss_params`.
    pub fn set_loss(&self, mut recipe: Recipe) -> Result<Recipe> {
        if !recipe.has(Hook::Loss) {
            let name = recipe.name();
            let error = Diagnostic::error(format!("the loss recipe {name} has no `loss`"));
            let help = "`advlab recipes` lists the built-in losses, such as `ppo_clip`";
            return Err(error.with_help(help).into());
        }
        set_all(&mut recipe, "loss_params", &self.loss_params)?;
        Ok(recipe)
    }

    /// Checks that the recipe and the loss can be loaded with their parameters.
    pub fn check_recipes(&self) -> Result<()> {
        let host = self.host();
        set_all(&mut host.load(&self.recipe)?, "params", &self.params)?;
        self.set_loss(host.load(&self.loss_recipe)?).map(drop)
    }
}

fn set_all(recipe: &mut Recipe, key: &str, params: &toml::Table) -> Result<()> {
    for (name, text) in settings(params) {
        let set = recipe.set_text(&name, &text);
        set.map_err(|error| Diagnostic::error(format!("{key}.{name} = {text}: {error}")))?;
    }
    Ok(())
}

/// Parameters by name, with their values in the form that `--set` takes.
pub(super) fn settings(params: &toml::Table) -> Vec<(String, String)> {
    let text = |value: &toml::Value| value.as_str().map_or(value.to_string(), str::to_string);
    let setting = |(name, value): (&String, _)| (name.clone(), text(value));
    params.iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_rate_rises_and_stays_or_falls_to_0() {
        let config = Config {
            lr: 0.5,
            steps: 12,
            warmup_steps: 4,
            ..Config::default()
        };
        let rates =
            |config: &Config| -> Vec<f64> { (0..12).map(|step| config.lr_at(step)).collect() };
        let constant = rates(&config);
        assert_eq!(constant[..5], [0.125, 0.25, 0.375, 0.5, 0.5]);
        assert!(constant[4..].iter().all(|lr| *lr == 0.5));
        let cosine = Config {
            lr_schedule: Schedule::Cosine,
            ..config
        };
        let falling = rates(&cosine);
        assert_eq!(falling[..5], constant[..5]);
        // Halfway through the eight remaining steps.
        assert!((falling[8] - 0.25).abs() < 1e-15);
        assert!(falling[4..].is_sorted_by(|before, after| before > after));
        assert!(cosine.lr_at(12) == 0.0 && falling[11] > 0.0);
        // Without a warm-up, `lr` applies from step 0.
        assert_eq!(Config::default().lr_at(0), Config::default().lr);
    }
}
