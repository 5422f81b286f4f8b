//! The settings of a run. `config/defaults.toml` explains each key and gives its default.

mod bounds;
mod schedule;
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
pub use schedule::Schedule;

/// The configuration of a run, as `advlab train --print-config` prints it:
///
/// ```toml
#[doc = include_str!("config/defaults.toml")]
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
    pub terms: bool,
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
    /// When native kernels compute the hooks of built-ins (`--native`). The configuration file has no such key, because a run's
    /// numbers do not depend on the mode.
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
    /// Returns the configuration with absolute paths for scripts, model and data.
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

    /// Returns the norm to which gradients with a larger norm are scaled down, or `None` if there is no limit.
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

    /// Sets the run's `loss_params` in a loss recipe, and returns the recipe. It is an error if the recipe has no `loss`.
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

/// Returns the parameters' names, with their values in the form that `--set` takes.
pub(super) fn settings(params: &toml::Table) -> Vec<(String, String)> {
    let text = |value: &toml::Value| value.as_str().map_or(value.to_string(), str::to_string);
    let setting = |(name, value): (&String, _)| (name.clone(), text(value));
    params.iter().map(setting).collect()
}
