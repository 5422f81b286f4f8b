//! The configuration of a run: the keys of its TOML file, with their bounds.

mod math;
mod text;
mod transformer;

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::policy::{AdamWConfig, Mlp, Policy};
use super::task::{Arithmetic, DIGITS, MOST_TURNS, Maze, SIZES, Task};
use super::warnings::WarningConfig;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::live::LiveOptions;
use advlab::native::{Mode, Native};
use advlab::script::{Builtin, Hook, Host, Limits, Recipe};
use advlab::suggest;

pub use math::MathConfig;
pub use transformer::TransformerConfig;

/// The configuration of a run, as `advlab train --print-config` prints it. Its fields are the keys of this file:
///
/// ```toml
#[doc = include_str!("config/default.toml")]
/// ```
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub task: String,
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
    pub policy: String,
    pub hidden_size: usize,
    pub sft_steps: u64,
    pub sft_lr: f64,
    pub lr: f64,
    pub lr_schedule: String,
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
    pub native_threshold: f64,
    pub tensorboard: bool,
    pub out: String,
    pub params: toml::Table,
    pub loss_params: toml::Table,
    pub warnings: WarningConfig,
    pub math: MathConfig,
    pub transformer: TransformerConfig,
    /// Not a key of the file: when kernels answer hooks of built-ins. The numbers of a run are the same.
    #[serde(skip)]
    pub native: Mode,
}

/// The default configuration, with a comment for each key.
const DEFAULTS: &str = include_str!("config/default.toml");

impl Default for Config {
    fn default() -> Self {
        match toml::from_str(DEFAULTS) {
            Ok(config) => config,
            Err(error) => unreachable!("the default configuration is one: {error}"),
        }
    }
}

/// TOML's whole numbers have 63 bits.
const LARGEST: u64 = i64::MAX as u64;

// Bounds of whole numbers.
const ANY: RangeInclusive<u64> = 0..=LARGEST;
const SOME: RangeInclusive<u64> = 1..=LARGEST;
const MANY: RangeInclusive<u64> = 1..=1 << 20;
const FEW: RangeInclusive<u64> = 1..=1 << 16;

/// Responses that are sampled at once; beyond, memory ends before patience does.
const RESPONSES: usize = 1 << 24;

/// The task of a run whose steps are another program's: see [`Record`](super::Record).
pub(super) const TRAINER: &str = "trainer";
const TASKS: [&str; 3] = ["maze", "arithmetic", "math"];
const POLICIES: [&str; 2] = ["mlp", "transformer"];
const CONSTANT: &str = "constant";
const COSINE: &str = "cosine";

/// A key out of its bounds, with what was found and what was expected.
type OutOfBounds = (&'static str, String, String);

impl Config {
    /// Whether all values are within bounds.
    ///
    /// # Errors
    /// [`Diagnostics`] with the first one that is not.
    pub fn check(&self) -> Result<(), Diagnostics> {
        if self.is_recorded() {
            let message = "the steps of this run are a trainer's: advlab has recorded them";
            let help = "it goes on where `advlab.watch` is called with this `folder`";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        let problem = self.problem();
        problem.map_or(Ok(()), |(_, problem)| Err(problem.into()))
    }

    /// The first key that is wrong, alone or beside another one, and what is wrong with it.
    fn problem(&self) -> Option<(&'static str, Diagnostic)> {
        let wrong = |key, found, expected| Some((key, Diagnostic::error(found).expected(expected)));
        if let Some((key, found, expected)) = self.out_of_bounds() {
            return wrong(key, format!("{key} is {found}"), expected);
        }
        if let Some(lacking) = self.lacks_for_math() {
            return Some(lacking);
        }
        let (prompts, minibatches) = (self.rollout_batch_size, self.minibatches);
        if minibatches > prompts {
            let found = format!("minibatches is {minibatches}");
            let expected = format!("at most rollout_batch_size, {prompts}");
            return wrong("minibatches", found, expected);
        }
        if (1..prompts).contains(&self.prompts) {
            let found = format!("prompts is {}", self.prompts);
            let expected = format!("0, or at least rollout_batch_size, {prompts}");
            return wrong("prompts", found, expected);
        }
        let (sampled, evaluated) = (
            self.group_size * prompts,
            self.eval_prompts * self.eval_samples,
        );
        for (key, samples, responses) in [
            ("rollout_batch_size", "group_size", sampled),
            ("eval_prompts", "eval_samples", evaluated),
        ] {
            if responses > RESPONSES {
                let found = format!("{key} times {samples} is {responses} responses");
                return wrong(key, found, format!("at most {RESPONSES}"));
            }
        }
        // Set for nothing: the run would not be the one that is meant.
        let defaults = Config::default();
        if self.policy != "transformer" && self.transformer != defaults.transformer {
            let found = format!("[transformer] is set, and policy is {:?}", self.policy);
            return wrong("policy", found, "\"transformer\"".to_string());
        }
        if self.task != "math" && !self.transformer.stop_strings.is_empty() {
            let found = format!("responses have no text, as task is {:?}", self.task);
            return wrong("transformer.stop_strings", found, "\"math\"".to_string());
        }
        if self.task != "math" && self.math != defaults.math {
            let found = format!("[math] is set, and task is {:?}", self.task);
            return wrong("task", found, "\"math\"".to_string());
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

    /// The first key that is out of its bounds.
    fn out_of_bounds(&self) -> Option<OutOfBounds> {
        let prompts = self.rollout_batch_size as u64;
        one_of("task", &self.task, &TASKS)
            .filter(|_| self.task != TRAINER)
            .or_else(|| one_of("policy", &self.policy, &POLICIES))
            .or_else(|| one_of("lr_schedule", &self.lr_schedule, &[CONSTANT, COSINE]))
            .or_else(|| {
                whole([
                    ("maze_size", self.maze_size as u64, SIZES),
                    ("maze_turns", self.maze_turns as u64, 1..=MOST_TURNS),
                    ("prompts", self.prompts as u64, 0..=1 << 20),
                    ("arithmetic_digits", self.arithmetic_digits as u64, DIGITS),
                    ("seed", self.seed, ANY),
                    ("steps", self.steps, SOME),
                    ("rollout_batch_size", prompts, MANY),
                    ("group_size", self.group_size as u64, FEW),
                    ("epochs", self.epochs as u64, FEW),
                    ("minibatches", self.minibatches as u64, MANY),
                    ("hidden_size", self.hidden_size as u64, 1..=1 << 14),
                    ("sft_steps", self.sft_steps, ANY),
                    ("warmup_steps", self.warmup_steps, ANY),
                    ("reset_reference_every", self.reset_reference_every, ANY),
                    ("eval_every", self.eval_every, ANY),
                    ("eval_prompts", self.eval_prompts as u64, MANY),
                    ("eval_samples", self.eval_samples as u64, FEW),
                    ("checkpoint_every", self.checkpoint_every, SOME),
                    ("keep_checkpoints", self.keep_checkpoints as u64, MANY),
                    ("batch_every", self.batch_every, ANY),
                    ("keep_batches", self.keep_batches as u64, MANY),
                    ("check_deadline_ms", self.check_deadline_ms, SOME),
                    ("hook_deadline_s", self.hook_deadline_s, SOME),
                ])
            })
            .or_else(|| {
                at_least_0([
                    ("lr", self.lr),
                    ("weight_decay", self.weight_decay),
                    ("max_grad_norm", self.max_grad_norm),
                    ("sft_lr", self.sft_lr),
                    ("native_threshold", self.native_threshold),
                ])
            })
            .or_else(|| self.transformer.out_of_bounds())
    }

    /// The configuration with the absolute paths of scripts, model and data.
    pub fn with_absolute_paths(&self) -> Config {
        let recipe = |name: &String| match Builtin::find(name) {
            Some(_) => name.clone(),
            None => absolute(name),
        };
        let mut config = self.clone();
        config.recipe = recipe(&self.recipe);
        config.loss_recipe = recipe(&self.loss_recipe);
        config.transformer.model = absolute(&self.transformer.model);
        config.math.data = absolute(&self.math.data);
        config
    }

    /// The learning rate of a step: it rises to `lr` over the first `warmup_steps`, then stays or falls to 0 as half a
    /// cosine over the steps that are left.
    pub(super) fn lr_at(&self, step: u64) -> f64 {
        let share = |of: u64, all: u64| (of as f64 / all.max(1) as f64).min(1.0);
        if step < self.warmup_steps {
            return self.lr * share(step + 1, self.warmup_steps);
        }
        if self.lr_schedule == CONSTANT {
            return self.lr;
        }
        let (done, left) = (
            step - self.warmup_steps,
            self.steps.saturating_sub(self.warmup_steps),
        );
        self.lr * 0.5 * (1.0 + (std::f64::consts::PI * share(done, left)).cos())
    }

    /// The norm that a gradient is scaled down to, where there is one.
    pub(super) fn max_grad_norm(&self) -> Option<f64> {
        Some(self.max_grad_norm).filter(|norm| *norm > 0.0)
    }

    /// Whether steps depend on how many there are in all.
    pub(super) fn ends_with_its_steps(&self) -> bool {
        self.lr_schedule == COSINE
    }

    /// Whether the steps are another program's.
    pub fn is_recorded(&self) -> bool {
        self.task == TRAINER
    }

    /// Whether the policy is evaluated after a step.
    pub(super) fn is_evaluated(&self, step: u64) -> bool {
        let done = step + 1;
        done == self.steps || self.eval_every > 0 && done.is_multiple_of(self.eval_every)
    }

    pub fn host(&self) -> Host {
        Host::new()
            .with_seed(self.seed)
            .with_native(&Native::with_threshold(self.native, self.native_threshold))
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
    pub(super) fn set_loss(&self, mut recipe: Recipe) -> Result<Recipe, Diagnostics> {
        if !recipe.has(Hook::Loss) {
            let name = recipe.name();
            let error = Diagnostic::error(format!("the loss recipe {name} has no `loss`"));
            let help = "`advlab recipes` lists the built-in losses, such as `ppo_clip`";
            return Err(error.with_help(help).into());
        }
        set_all(&mut recipe, "loss_params", &self.loss_params)?;
        Ok(recipe)
    }

    /// Whether the recipe and the loss can be loaded and set.
    pub fn check_recipes(&self) -> Result<(), Diagnostics> {
        let host = self.host();
        set_all(&mut host.load(&self.recipe)?, "params", &self.params)?;
        self.set_loss(host.load(&self.loss_recipe)?).map(drop)
    }

    pub(super) fn make_task(&self) -> Result<Box<dyn Task>, Diagnostics> {
        Ok(match self.task.as_str() {
            "arithmetic" => Box::new(Arithmetic::new(self.arithmetic_digits)?),
            "math" => self.make_math()?,
            _ => Box::new(Maze::new(self.maze_size)?.in_turns(self.maze_turns)?),
        })
    }

    pub(super) fn make_policy(&self, task: &dyn Task) -> Result<Box<dyn Policy>, Diagnostics> {
        let adamw = AdamWConfig {
            lr: self.lr,
            weight_decay: self.weight_decay,
            ..AdamWConfig::default()
        };
        let shape = task.shape();
        Ok(match self.policy.as_str() {
            "transformer" => self
                .transformer
                .make(task, adamw, self.seed, self.reference)?,
            _ => Box::new(Mlp::new(&shape, self.hidden_size, adamw, self.seed)),
        })
    }
}

#[cfg(not(feature = "torch"))]
fn without_libtorch(what: &str) -> Diagnostics {
    let message = format!("this advlab was built without libtorch, which {what} needs");
    let help =
        "build it with `--features torch`: the README's section \"A language model\" says how";
    Diagnostic::error(message).with_help(help).into()
}

/// Where a key is none of the words that it takes.
fn one_of(key: &'static str, found: &str, words: &[&str]) -> Option<OutOfBounds> {
    if words.contains(&found) {
        return None;
    }
    let near = suggest::nearest(found, words.iter().copied());
    let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    let expected = format!("one of {}{near}", suggest::list(words.iter().copied()));
    Some((key, format!("{found:?}"), expected))
}

/// The first whole number out of its bounds.
fn whole<const N: usize>(
    keys: [(&'static str, u64, RangeInclusive<u64>); N],
) -> Option<OutOfBounds> {
    let mut keys = keys.into_iter();
    let (key, found, bounds) = keys.find(|(_, found, bounds)| !bounds.contains(found))?;
    let expected = match *bounds.end() {
        LARGEST => format!("a whole number from {} to 2^63 - 1", bounds.start()),
        end => format!("from {} to {end}", bounds.start()),
    };
    Some((key, found.to_string(), expected))
}

/// The first number that is negative, infinite or NaN.
fn at_least_0<const N: usize>(keys: [(&'static str, f64); N]) -> Option<OutOfBounds> {
    let mut keys = keys.into_iter();
    let (key, found) = keys.find(|(_, found)| !(0.0..f64::INFINITY).contains(found))?;
    Some((
        key,
        format!("{found:?}"),
        "a number, at least 0".to_string(),
    ))
}

fn set_all(recipe: &mut Recipe, key: &str, params: &toml::Table) -> Result<(), Diagnostics> {
    for (name, text) in settings(params) {
        recipe.set_text(&name, &text).map_err(|error| {
            let problem = Diagnostic::error(format!("{key}.{name} = {text}: {error}"));
            match Config::key(&name).filter(|_| recipe.params().get(&name).is_none()) {
                Some(own) => problem.with_help(format!(
                    "`{own}` is a key of the run: it does not stand below `[{key}]`"
                )),
                None => problem,
            }
        })?;
    }
    Ok(())
}

/// A path from the root; an empty one stays empty.
fn absolute(text: &str) -> String {
    let path = std::path::absolute(text).ok();
    let path = path.as_deref().and_then(Path::to_str);
    path.unwrap_or(text).to_string()
}

/// Parameters by their names, with their values as `--set` takes them.
pub(super) fn settings(params: &toml::Table) -> Vec<(String, String)> {
    let text = |value: &toml::Value| value.as_str().map_or(value.to_string(), str::to_string);
    let params = params.iter();
    params
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
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
            lr_schedule: COSINE.to_string(),
            ..config
        };
        let falling = rates(&cosine);
        assert_eq!(falling[..5], constant[..5]);
        // Halfway of the eight steps that are left.
        assert!((falling[8] - 0.25).abs() < 1e-15);
        assert!(falling[4..].is_sorted_by(|before, after| before > after));
        assert!(cosine.lr_at(12) == 0.0 && falling[11] > 0.0);
        // Without a warm-up, runs are what they were before there was one.
        assert_eq!(Config::default().lr_at(0), Config::default().lr);
    }
}
