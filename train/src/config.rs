//! The settings of a run: one table with a row for each key: its comment, type, default and bounds.

mod text;

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Result;
use crate::task::{self, TRAINER};
use advlab::diagnostic::Diagnostic;
use advlab::live::LiveOptions;
use advlab::native::{Mode, Native};
use advlab::script::{Builtin, Hook, Host, Limits, Recipe};
use advlab::suggest;

use Bound::{Any, AtLeast0, OneOf, Scalars, Table, Whole};

/// TOML's whole numbers have 63 bits.
const LARGEST: u64 = i64::MAX as u64;
const ANY: Bound = Whole(0..=LARGEST);
const SOME: Bound = Whole(1..=LARGEST);
const MANY: Bound = Whole(1..=1 << 20);
const FEW: Bound = Whole(1..=1 << 16);
/// The sides of mazes; the largest needs a response of 4 * 32 moves.
pub(crate) const MAZE_SIZES: RangeInclusive<u64> = 2..=32;
pub(crate) const MAZE_TURNS: RangeInclusive<u64> = 1..=64;
/// Bounded so that the verifier's arithmetic can hold the sum.
pub(crate) const DIGITS: RangeInclusive<u64> = 1..=18;

/// Responses that are sampled at once; memory suffices for no more.
const RESPONSES: usize = 1 << 24;

const CONSTANT: &str = "constant";
pub(super) const COSINE: &str = "cosine";

/// A row of a table of keys.
struct ConfigKey {
    name: &'static str,
    /// The lines of its comment.
    doc: &'static [&'static str],
    bound: Bound,
}

/// The values that a key may have.
enum Bound {
    Any,
    Whole(RangeInclusive<u64>),
    AtLeast0,
    OneOf(&'static [&'static str]),
    /// A table of parameters: numbers, strings and truth values.
    Scalars,
    /// A table with its own keys.
    Table(&'static [ConfigKey]),
}

impl Bound {
    /// The description of an allowed value, if this one is out of bounds. A number that is not finite is null.
    fn expected(&self, value: &Value) -> Option<String> {
        let (is_in, expected) = match self {
            Any | Table(_) => return None,
            Whole(range) => {
                let is_in = value.as_u64().is_some_and(|number| range.contains(&number));
                match (*range.start(), *range.end()) {
                    (first, LARGEST) => (is_in, format!("a whole number from {first} to 2^63 - 1")),
                    (first, last) => (is_in, format!("from {first} to {last}")),
                }
            }
            AtLeast0 => {
                let is_in = value.as_f64().is_some_and(|number| number >= 0.0);
                (is_in, "a number, at least 0".to_string())
            }
            OneOf(words) => {
                let text = value.as_str().unwrap_or_default();
                // `advlab train` cannot begin the run of another trainer.
                let shown = || words.iter().copied().filter(|word| *word != TRAINER);
                let near = suggest::nearest(text, shown());
                let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                let expected = format!("one of {}{near}", suggest::list(shown()));
                (words.contains(&text), expected)
            }
            Scalars => {
                let mut values = value.as_object().into_iter().flatten();
                let is_in = values.all(|(_, value)| !value.is_object() && !value.is_array());
                (is_in, "numbers, strings, true or false".to_string())
            }
        };
        (!is_in).then_some(expected)
    }
}

/// A table of keys, each with its comment, type, default and bounds: gives the struct, its defaults, and the parts of a
/// configuration's text.
macro_rules! keys {
    (
        $(#[$about:meta])*
        $config:ident;
        $($(#[doc = $doc:literal])* $key:ident: $type:ty = $default:expr, $bound:expr;)*
        $(=> $(#[$attribute:meta])* $other:ident: $other_type:ty;)?
    ) => {
        $(#[$about])*
        #[allow(rustdoc::broken_intra_doc_links)]
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $config {
            $($(#[doc = $doc])* pub $key: $type,)*
            $($(#[$attribute])* pub $other: $other_type,)?
        }

        impl Default for $config {
            fn default() -> Self {
                $config {
                    $($key: $default,)*
                    $($other: Default::default(),)?
                }
            }
        }

        impl $config {
            const KEYS: &[ConfigKey] = &[
                $(ConfigKey { name: stringify!($key), doc: &[$($doc),*], bound: $bound }),*
            ];
        }
    };
}

keys! {
    /// The configuration of a run, as `advlab train --print-config` prints it.
    Config;
    /// "maze" (walk to the goal and stop there), "arithmetic" (add two numbers) or "math" (questions of a file: see [math]).
    task: String = "maze".to_string(), OneOf(&task::NAMES);
    /// The side of the mazes, 2 to 32; a response has at most four moves a side.
    maze_size: usize = 4, Whole(MAZE_SIZES);
    /// The most turns of a walk. Each turn is a response whose prompt shows the maze from the cell reached so far.
    maze_turns: usize = 1, Whole(MAZE_TURNS);
    /// The digits of each of the two numbers, 1 to 18.
    arithmetic_digits: usize = 2, Whole(DIGITS);
    /// The recipe: a built-in's name, or the path of a .rhai file, which the run watches for edits.
    recipe: String = "grpo".to_string(), Any;
    /// The loss for recipes that have none of their own; it sees their advantage as `batch.advantage`.
    loss_recipe: String = "ppo_clip".to_string(), Any;
    /// The seed of all random numbers.
    seed: u64 = 0, ANY;
    /// Training steps.
    steps: u64 = 400, SOME;
    /// Prompts per step.
    rollout_batch_size: usize = 64, MANY;
    /// The size of a fixed pool of prompts: a step draws each at most once, and `group` is its index there. 0: always new prompts.
    prompts: usize = 0, Whole(0..=1 << 20);
    /// Whether groups whose responses all have weight 0 (`weight(batch, p)`) are replaced by groups of other prompts, in up to 8 rounds.
    resample: bool = false, Any;
    /// Responses to each prompt.
    group_size: usize = 16, FEW;
    /// Epochs: passes over the batch of a step.
    epochs: usize = 1, FEW;
    /// Updates per epoch, each on an equal share of whole groups. 1 epoch and 1 minibatch is one on-policy update.
    minibatches: usize = 1, MANY;
    /// "mlp" (a small network that reads the task's features) or "transformer" (a language model, through libtorch: see [transformer]).
    policy: String = "mlp".to_string(), OneOf(&["mlp", "transformer"]);
    /// The width of the mlp's two hidden layers.
    hidden_size: usize = 256, Whole(1..=1 << 14);
    /// Updates of supervised fine-tuning before the first step, on the task's own solutions (only "arithmetic" has them). Each takes
    /// as many prompts as a step has responses. The resulting policy is the reference.
    sft_steps: u64 = 0, ANY;
    /// The learning rate of supervised fine-tuning.
    sft_lr: f64 = 0.001, AtLeast0;
    /// The learning rate of AdamW.
    lr: f64 = 0.001, AtLeast0;
    /// The learning rate after the warm-up: "constant", or "cosine", which falls to 0 at the last step.
    lr_schedule: String = "constant".to_string(), OneOf(&[CONSTANT, COSINE]);
    /// Steps over which the learning rate rises to lr.
    warmup_steps: u64 = 0, ANY;
    /// The decoupled weight decay of AdamW.
    weight_decay: f64 = 0.01, AtLeast0;
    /// Gradients with a larger norm are scaled down to this norm; 0 for no limit.
    max_grad_norm: f64 = 0.0, AtLeast0;
    /// Whether there is a reference policy, whose log-probs are `batch.ref_logp`. Without it a run needs less time and memory.
    reference: bool = true, Any;
    /// The reference policy is replaced by the current one every so many steps; 0 for never.
    reset_reference_every: u64 = 0, ANY;
    /// The policy is evaluated every so many steps; 0: only before the first and after the last.
    eval_every: u64 = 50, ANY;
    /// Prompts of the evaluation set, which training never draws from.
    eval_prompts: usize = 256, MANY;
    /// Responses to each evaluation prompt: pass@k is estimated for k = 1, 2, 4, ... up to this.
    eval_samples: usize = 16, FEW;
    /// A checkpoint is written every so many steps; a crash costs at most so many.
    checkpoint_every: u64 = 50, SOME;
    /// How many checkpoints are kept; with two or more, a run survives a damaged one.
    keep_checkpoints: usize = 2, MANY;
    /// The batch is written to batches/ every so many steps; 0 for none. Batches at which a version failed are always written.
    batch_every: u64 = 10, ANY;
    /// How many of these batches are kept, for `advlab repl RUN --step N`.
    keep_batches: usize = 20, MANY;
    /// The time limit for all checks of a saved version, in milliseconds.
    check_deadline_ms: u64 = 2000, SOME;
    /// The time limit for the hooks of a step together, and for the loss of each update, in seconds; beyond it the version has failed.
    hook_deadline_s: u64 = 60, SOME;
    /// With --native auto, a native kernel (identical bits) is tried for a built-in's hook that takes more than this share of a step.
    native_threshold: f64 = 0.02, AtLeast0;
    /// Whether to write TensorBoard event files.
    tensorboard: bool = true, Any;
    /// The run's folder; if empty, the next free runs/TASK-RECIPE-N.
    out: String = String::new(), Any;
    /// Parameters of the recipe, such as k = 8; every saved version must accept them.
    params: toml::Table = toml::Table::new(), Scalars;
    /// Parameters of the loss recipe, such as clip_high = 0.28 or kl_beta = 0.01.
    loss_params: toml::Table = toml::Table::new(), Scalars;
    /// Bounds of a run's numbers. If the mean of one over ten steps is beyond its bound, the run warns, once; 0 turns the warning off.
    warnings: WarningConfig = WarningConfig::default(), Table(WarningConfig::KEYS);
    /// Keys that only task = "math" uses.
    math: MathConfig = MathConfig::default(), Table(MathConfig::KEYS);
    /// Keys that only policy = "transformer" uses.
    transformer: TransformerConfig = TransformerConfig::default(), Table(TransformerConfig::KEYS);
    =>
    /// When kernels compute hooks of built-ins: `--native`, no key of the file. The numbers of a run do not depend on it.
    #[serde(skip)]
    native: Mode;
}

keys! {
    /// The table `[warnings]`.
    WarningConfig;
    /// Warn if more than this share of the groups has advantage 0.
    groups_without_signal: f64 = 0.95, Any;
    /// Warn if the entropy, in nats, is below this.
    entropy: f64 = 0.02, Any;
    /// Warn if more than this share of the tokens is clipped.
    clip_share: f64 = 0.3, Any;
    /// Warn if the effective number of responses, (sum |A|)^2 / sum A^2, is below this share of all responses.
    effective_responses: f64 = 0.02, Any;
    /// Warn if responses are more than this many times as long as in the first ten steps.
    length_growth: f64 = 4.0, Any;
}

keys! {
    /// The table `[math]`: keys that only `task = "math"` uses.
    MathConfig;
    /// A JSONL file of questions and reference answers.
    data: String = String::new(), Any;
    /// The fields of the question and of the answer; empty to find them by their usual names.
    question_field: String = String::new(), Any;
    answer_field: String = String::new(), Any;
    /// The text of a prompt.
    prompt_template: String = "{question}".to_string(), Any;
    /// Whether the prompt is wrapped as a user's message in the model's chat template, if it has one.
    chat_template: bool = true, Any;
}

keys! {
    /// The table `[transformer]`: keys that only `policy = "transformer"` uses.
    TransformerConfig;
    /// A folder written by save_pretrained of transformers (Qwen2, Qwen3 or Llama); empty for random weights of the sizes below.
    model: String = String::new(), Any;
    /// The sizes of a model with random weights, a Qwen3.
    hidden_size: usize = 128, FEW;
    intermediate_size: usize = 512, MANY;
    num_hidden_layers: usize = 4, FEW;
    num_attention_heads: usize = 4, FEW;
    num_key_value_heads: usize = 4, FEW;
    /// The most tokens of a response; the task may allow fewer.
    max_new_tokens: usize = 1024, MANY;
    /// Sampling: logits are divided by the temperature (0 takes the likeliest token), then the top_k likeliest are kept (0 for
    /// all), then the likeliest whose probabilities add up to top_p. Log-probs are those of temperature 1 without filters.
    temperature: f64 = 1.0, AtLeast0;
    top_k: usize = 0, Whole(0..=1 << 20);
    top_p: f64 = 1.0, Any;
    /// With task = "math", strings that end a response, in addition to the end tokens and stop strings of the model's generation config.
    stop_strings: Vec<String> = Vec::new(), Any;
    /// "cpu", "cuda", or "auto", which is the GPU if there is one.
    device: String = "auto".to_string(), OneOf(&["auto", "cpu", "cuda"]);
    /// Tokens per forward pass in scores and updates, padding included; fewer need less memory.
    tokens_per_forward: usize = 16384, SOME;
    /// Responses sampled at a time, in whole groups; fewer need less memory.
    rows_per_batch: usize = 1024, MANY;
}

/// All keys, including those of tables under the table's name, such as `transformer.temperature`.
fn keys() -> impl Iterator<Item = (String, &'static ConfigKey)> {
    Config::KEYS.iter().flat_map(|key| {
        let inner = match key.bound {
            Table(keys) => keys.iter(),
            _ => [].iter(),
        };
        let inner = inner.map(|own| (format!("{}.{}", key.name, own.name), own));
        std::iter::once((key.name.to_string(), key)).chain(inner)
    })
}

impl Config {
    /// Whether all values are within bounds.
    pub fn check(&self) -> Result<()> {
        if self.is_recorded() {
            let message = "the steps of this run are a trainer's: advlab has recorded them";
            let help = "it goes on where `advlab.watch` is called with this `folder`";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        let problem = self.problem();
        problem.map_or(Ok(()), |(_, problem)| Err(problem.into()))
    }

    /// The first wrong key, alone or in combination with another one, and the problem with it.
    fn problem(&self) -> Option<(String, Diagnostic)> {
        let values = json!(self);
        let value = |key: &str| {
            let value = values.pointer(&format!("/{}", key.replace('.', "/")));
            value.cloned().unwrap_or_default()
        };
        let out_of_bounds = keys().find_map(|(name, key)| {
            let expected = key.bound.expected(&value(&name))?;
            Some((name, expected))
        });
        let (key, expected) = out_of_bounds.or_else(|| self.misfit())?;
        let found = match value(&key) {
            Value::Null => format!("{key} is not finite"),
            found => format!("{key} is {found}"),
        };
        Some((key, Diagnostic::error(found).expected(expected)))
    }

    /// The first key that does not fit another one, and the expected value.
    fn misfit(&self) -> Option<(String, String)> {
        let (prompts, math, model) = (self.rollout_batch_size, &self.math, &self.transformer);
        let (is_math, is_transformer) = (self.task == "math", self.policy == "transformer");
        let mut first = None;
        let mut rule = |key: &str, is_kept: bool, expected: &str| {
            if !is_kept {
                first.get_or_insert((key.to_string(), expected.to_string()));
            }
        };
        let is_share = model.top_p > 0.0 && model.top_p <= 1.0;
        rule("transformer.top_p", is_share, "above 0, and at most 1");
        let (key, strings) = ("transformer.stop_strings", &model.stop_strings);
        rule(key, !strings.contains(&String::new()), "no empty string");
        let expected = "\"transformer\", as task is \"math\"";
        rule("policy", is_transformer || !is_math, expected);
        let (has_model, has_data) = (!model.model.is_empty(), !math.data.is_empty());
        let expected = "a folder of a model with its tokenizer, as task is \"math\"";
        rule("transformer.model", has_model || !is_math, expected);
        let expected = "a JSONL file of questions and answers, as task is \"math\"";
        rule("math.data", has_data || !is_math, expected);
        let expected = format!("at most rollout_batch_size, {prompts}");
        rule("minibatches", self.minibatches <= prompts, &expected);
        let is_kept = self.prompts == 0 || self.prompts >= prompts;
        let expected = format!("0, or at least rollout_batch_size, {prompts}");
        rule("prompts", is_kept, &expected);
        let (evaluated, samples) = (self.eval_prompts, self.eval_samples);
        for (key, count, other, size) in [
            ("rollout_batch_size", prompts, "group_size", self.group_size),
            ("eval_prompts", evaluated, "eval_samples", samples),
        ] {
            let most = RESPONSES / size;
            let expected = format!("at most {most}, as {other} is {size}");
            rule(key, count <= most, &expected);
        }
        // Keys that would have no effect: the user most likely meant another run.
        let is_unset = *model == TransformerConfig::default();
        let expected = "\"transformer\", as [transformer] is set";
        rule("policy", is_transformer || is_unset, expected);
        let expected = "none, as responses have no text unless task is \"math\"";
        rule(key, is_math || strings.is_empty(), expected);
        let is_unset = *math == MathConfig::default();
        rule("task", is_math || is_unset, "\"math\", as [math] is set");
        first
    }

    /// The configuration with the absolute paths of scripts, model and data.
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

    /// The learning rate at a step: it rises to `lr` over the first `warmup_steps`, then it is constant or falls to 0 as half a
    /// cosine over the remaining steps.
    pub(super) fn lr_at(&self, step: u64) -> f64 {
        let share = |of: u64, all: u64| (of as f64 / all.max(1) as f64).min(1.0);
        let warmup = self.warmup_steps;
        if step < warmup {
            return self.lr * share(step + 1, warmup);
        }
        if self.lr_schedule == CONSTANT {
            return self.lr;
        }
        let share = share(step - warmup, self.steps.saturating_sub(warmup));
        self.lr * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
    }

    /// The norm to which a longer gradient is scaled down, if one is set.
    pub(super) fn max_grad_norm(&self) -> Option<f64> {
        Some(self.max_grad_norm).filter(|norm| *norm > 0.0)
    }

    /// Whether another program does the steps.
    pub fn is_recorded(&self) -> bool {
        self.task == TRAINER
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

    /// Whether the recipe and the loss can be loaded and set.
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
            lr_schedule: COSINE.to_string(),
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
