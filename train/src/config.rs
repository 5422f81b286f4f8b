//! The configuration of a run: a row per key with its default, its bounds and what it is for.

mod text;

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::live::LiveOptions;
use advlab::native::{Mode, Native};
use advlab::script::{Builtin, Hook, Host, Limits, Recipe};
use advlab::suggest;

/// TOML's whole numbers have 63 bits.
const LARGEST: u64 = i64::MAX as u64;

// Bounds of whole numbers.
const ANY: RangeInclusive<u64> = 0..=LARGEST;
const SOME: RangeInclusive<u64> = 1..=LARGEST;
const MANY: RangeInclusive<u64> = 1..=1 << 20;
const FEW: RangeInclusive<u64> = 1..=1 << 16;
/// The sides of mazes, up to a response of 4 * 32 moves.
pub(crate) const MAZE_SIZES: RangeInclusive<u64> = 2..=32;
pub(crate) const MAZE_TURNS: RangeInclusive<u64> = 1..=64;
/// Up to the longest numbers whose sum fits the arithmetic of the verifier.
pub(crate) const DIGITS: RangeInclusive<u64> = 1..=18;

/// Responses that are sampled at once; beyond, memory ends before patience does.
const RESPONSES: usize = 1 << 24;

/// The task of a run whose steps are another program's: see [`Record`](super::Record).
pub(super) const TRAINER: &str = "trainer";
const CONSTANT: &str = "constant";
const COSINE: &str = "cosine";

/// A key out of its bounds, with what was found and what was expected.
type OutOfBounds = (&'static str, String, String);

/// A key as the file has it.
struct Key {
    name: &'static str,
    /// The lines of its comment.
    doc: &'static [&'static str],
}

/// What the value of a key must be.
trait Bound<T> {
    /// What was found and what was expected, if they differ.
    fn refuse(&self, value: &T) -> Option<(String, String)>;
}

struct Any;

impl<T> Bound<T> for Any {
    fn refuse(&self, _: &T) -> Option<(String, String)> {
        None
    }
}

impl Bound<u64> for RangeInclusive<u64> {
    fn refuse(&self, value: &u64) -> Option<(String, String)> {
        let expected = match *self.end() {
            LARGEST => format!("a whole number from {} to 2^63 - 1", self.start()),
            end => format!("from {} to {end}", self.start()),
        };
        (!self.contains(value)).then(|| (value.to_string(), expected))
    }
}

impl Bound<usize> for RangeInclusive<u64> {
    fn refuse(&self, value: &usize) -> Option<(String, String)> {
        self.refuse(&(*value as u64))
    }
}

/// Not negative, infinite or NaN.
struct AtLeast0;

impl Bound<f64> for AtLeast0 {
    fn refuse(&self, value: &f64) -> Option<(String, String)> {
        let expected = "a number, at least 0".to_string();
        let is_in = (0.0..f64::INFINITY).contains(value);
        (!is_in).then(|| (format!("{value:?}"), expected))
    }
}

/// A share that is not nothing.
struct Share;

impl Bound<f64> for Share {
    fn refuse(&self, value: &f64) -> Option<(String, String)> {
        let is_in = *value > 0.0 && *value <= 1.0;
        (!is_in).then(|| (format!("{value:?}"), "above 0, and at most 1".to_string()))
    }
}

struct OneOf(&'static [&'static str]);

impl Bound<String> for OneOf {
    fn refuse(&self, value: &String) -> Option<(String, String)> {
        if self.0.contains(&value.as_str()) {
            return None;
        }
        // No run is begun with it.
        let words = || self.0.iter().copied().filter(|word| *word != TRAINER);
        let near = suggest::nearest(value, words());
        let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        let expected = format!("one of {}{near}", suggest::list(words()));
        Some((format!("{value:?}"), expected))
    }
}

struct NoEmptyText;

impl Bound<Vec<String>> for NoEmptyText {
    fn refuse(&self, texts: &Vec<String>) -> Option<(String, String)> {
        let has_empty = texts.iter().any(String::is_empty);
        has_empty.then(|| ("\"\"".to_string(), "no empty string".to_string()))
    }
}

/// A table of keys, each with its comment, its type, its default and its bounds: the struct, its defaults, and what the text of
/// a configuration is made of.
macro_rules! keys {
    (
        $(#[$about:meta])*
        $config:ident, $table:literal;
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
            const KEYS: &[Key] = &[$(Key { name: stringify!($key), doc: &[$($doc),*] }),*];

            /// The first key that is out of its bounds.
            fn out_of_bounds(&self) -> Option<OutOfBounds> {
                $(if let Some((found, expected)) = ($bound).refuse(&self.$key) {
                    return Some((concat!($table, stringify!($key)), found, expected));
                })*
                None
            }
        }
    };
}

keys! {
    /// The configuration of a run, as `advlab train --print-config` prints it.
    Config, "";
    /// The task: "maze" (walk to the goal and stop there), "arithmetic" (add two numbers) or "math" (questions of a file, for a
    /// transformer with a tokenizer: the keys below [math]).
    task: String = "maze".to_string(), OneOf(&["maze", "arithmetic", "math", TRAINER]);
    /// The side of the mazes, 2 to 32; a response has at most four moves a side.
    maze_size: usize = 4, MAZE_SIZES;
    /// The turns in which a maze is walked at the most: with more than one, each turn is a response to a prompt of its own (the maze from
    /// the cell that was reached), and the turns of a walk are a trajectory.
    maze_turns: usize = 1, MAZE_TURNS;
    /// The digits of each of the two numbers, 1 to 18.
    arithmetic_digits: usize = 2, DIGITS;
    /// The recipe: a built-in's name, or the path of a .rhai file, which the run follows as it is edited.
    recipe: String = "grpo".to_string(), Any;
    /// The loss for recipes that have none of their own; it sees their advantage as `batch.advantage`.
    loss_recipe: String = "ppo_clip".to_string(), Any;
    /// The seed of everything that is drawn.
    seed: u64 = 0, ANY;
    /// Training steps.
    steps: u64 = 400, SOME;
    /// Prompts per step.
    rollout_batch_size: usize = 64, MANY;
    /// Prompts that recur: each step draws its own from a pool of so many, and `group` is the prompt's index there; 0 for new ones in
    /// every step. At least rollout_batch_size, as a step has each at most once.
    prompts: usize = 0, 0..=1_u64 << 20;
    /// Whether groups in which no response has weight (`weight(batch, p)`) are drawn again, with other prompts, up to 8 times:
    /// as many as the pool still has, if there is one.
    resample: bool = false, Any;
    /// Responses to each prompt.
    group_size: usize = 16, FEW;
    /// How often a step goes through its batch.
    epochs: usize = 1, FEW;
    /// Updates per epoch; each takes its share of whole groups. 1 epoch and 1 minibatch is one on-policy update.
    minibatches: usize = 1, MANY;
    /// What is trained: "mlp" (an embedded network that reads the task's features) or "transformer" (a language model, through
    /// libtorch: the keys below [transformer]).
    policy: String = "mlp".to_string(), OneOf(&["mlp", "transformer"]);
    /// The width of the mlp's two hidden layers.
    hidden_size: usize = 256, 1..=1_u64 << 14;
    /// Updates of supervised fine-tuning before the first step, each on the task's own solutions of as many prompts as a step has
    /// responses ("arithmetic" has solutions). A policy of random weights that is never right has nothing to learn from; what
    /// comes of them is the reference.
    sft_steps: u64 = 0, ANY;
    /// Their learning rate.
    sft_lr: f64 = 0.001, AtLeast0;
    /// The learning rate of AdamW.
    lr: f64 = 0.001, AtLeast0;
    /// How it goes on after the warm-up: "constant", or "cosine", which falls to 0 at the last step.
    lr_schedule: String = "constant".to_string(), OneOf(&[CONSTANT, COSINE]);
    /// Steps over which the learning rate rises to lr.
    warmup_steps: u64 = 0, ANY;
    /// The decoupled weight decay of AdamW.
    weight_decay: f64 = 0.01, AtLeast0;
    /// The norm that a gradient is scaled down to; 0 for none.
    max_grad_norm: f64 = 0.0, AtLeast0;
    /// Whether there is a reference policy: hooks read its log-probs as `batch.ref_logp`. If none does, a run without it needs less
    /// time and memory.
    reference: bool = true, Any;
    /// After how many steps the reference policy becomes the present one; 0 for never, so that it stays the initial one.
    reset_reference_every: u64 = 0, ANY;
    /// After how many steps the policy is evaluated; 0 for only before the first and after the last.
    eval_every: u64 = 50, ANY;
    /// Prompts of the evaluation set, which training never draws from.
    eval_prompts: usize = 256, MANY;
    /// Responses to each of them: pass@k is estimated for k = 1, 2, 4, ... up to this.
    eval_samples: usize = 16, FEW;
    /// After how many steps a checkpoint is written: what a crash can cost.
    checkpoint_every: u64 = 50, SOME;
    /// How many checkpoints are kept; with more than one, a damaged one is not the end.
    keep_checkpoints: usize = 2, MANY;
    /// Every how many steps the batch is written to batches/; 0 for none. Those that made a version fail always are.
    batch_every: u64 = 10, ANY;
    /// How many of these batches are kept: as far as `advlab repl RUN` can look back.
    keep_batches: usize = 20, MANY;
    /// The milliseconds that a saved version has for all its checks before the run uses it.
    check_deadline_ms: u64 = 2000, SOME;
    /// The seconds that reward, weight and advantage of a step have together, and the loss of each update, before they are
    /// stopped, and the version counts as failed.
    hook_deadline_s: u64 = 60, SOME;
    /// The share of the time between two of its calls from which on a built-in's hook is answered by a kernel with the bits of its
    /// script (--native auto).
    native_threshold: f64 = 0.02, AtLeast0;
    /// Whether to write TensorBoard event files.
    tensorboard: bool = true, Any;
    /// The run's folder; empty for the next free runs/TASK-RECIPE-N.
    out: String = String::new(), Any;
    /// Parameters of the recipe, such as k = 8; every version of it must take them.
    params: toml::Table = toml::Table::new(), Any;
    /// Parameters of the loss recipe, such as clip_high = 0.28 or kl_beta = 0.01.
    loss_params: toml::Table = toml::Table::new(), Any;
    /// What a run warns of, once each, by the mean of ten steps; 0 for never.
    warnings: WarningConfig = WarningConfig::default(), Any;
    /// What task = "math" reads beside the keys above.
    math: MathConfig = MathConfig::default(), Any;
    /// What policy = "transformer" reads beside the keys above; the mlp reads none of it.
    transformer: TransformerConfig = TransformerConfig::default(), Any;
    =>
    /// When kernels answer hooks of built-ins; the file does not have it. The numbers of a run are the same.
    #[serde(skip)]
    native: Mode;
}

keys! {
    /// The table `[warnings]`: the bounds beyond which a run warns; 0 for never.
    WarningConfig, "warnings.";
    /// More than this share of the groups has no signal.
    groups_without_signal: f64 = 0.95, Any;
    /// The entropy is below so many nats.
    entropy: f64 = 0.02, Any;
    /// More than this share of the tokens is clipped.
    clip_share: f64 = 0.3, Any;
    /// The sum of |A| is spread as over less than this share of the responses.
    effective_responses: f64 = 0.02, Any;
    /// Responses are more than so many times as long as in the first ten steps.
    length_growth: f64 = 4.0, Any;
}

keys! {
    /// The table `[math]`: what a run with `task = "math"` reads beside the other keys.
    MathConfig, "math.";
    /// A JSONL file of questions and reference answers.
    data: String = String::new(), Any;
    /// The fields of its lines; empty for those that are known by their names.
    question_field: String = String::new(), Any;
    answer_field: String = String::new(), Any;
    /// The text of a prompt.
    prompt_template: String = "{question}".to_string(), Any;
    /// Whether that text is a user's message in the model's chat template, if it has one.
    chat_template: bool = true, Any;
}

keys! {
    /// The table `[transformer]`: what a run with `policy = "transformer"` reads beside the other keys.
    TransformerConfig, "transformer.";
    /// A folder as save_pretrained of transformers writes it (Qwen2, Qwen3 or Llama); empty for random weights of the sizes below, with
    /// the task's own alphabet.
    model: String = String::new(), Any;
    /// The sizes of a model of random weights, which is a Qwen3.
    hidden_size: usize = 128, FEW;
    intermediate_size: usize = 512, MANY;
    num_hidden_layers: usize = 4, FEW;
    num_attention_heads: usize = 4, FEW;
    num_key_value_heads: usize = 4, FEW;
    /// The most tokens of a response, if the task allows as many.
    max_new_tokens: usize = 1024, MANY;
    /// How tokens are drawn, in training and evaluation: logits are divided by the temperature (at 0 the likeliest token is taken), then
    /// only the top_k likeliest are kept (0 for all), then the likeliest with the probability top_p together. The log-probs of responses
    /// are those of temperature 1 without filters.
    temperature: f64 = 1.0, AtLeast0;
    top_k: usize = 0, 0..=1_u64 << 20;
    top_p: f64 = 1.0, Share;
    /// With task = "math", strings that end a response beside the end tokens and the stop strings of the model's own generation config.
    stop_strings: Vec<String> = Vec::new(), NoEmptyText;
    /// "cpu", "cuda", or "auto", which is the GPU if there is one.
    device: String = "auto".to_string(), OneOf(&["auto", "cpu", "cuda"]);
    /// Tokens that are scored or learned from at a time, padding included: less needs less memory.
    tokens_per_forward: usize = 16384, SOME;
    /// Responses that are sampled at a time, in whole groups: less needs less memory.
    rows_per_batch: usize = 1024, MANY;
}

/// The tables that have keys of their own.
const TABLES: [(&str, &[Key]); 3] = [
    ("warnings", WarningConfig::KEYS),
    ("math", MathConfig::KEYS),
    ("transformer", TransformerConfig::KEYS),
];

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

    /// The first key that is wrong, by itself or beside another one, and what is wrong with it.
    fn problem(&self) -> Option<(&'static str, Diagnostic)> {
        let out_of_bounds = self
            .out_of_bounds()
            .or_else(|| self.warnings.out_of_bounds())
            .or_else(|| self.math.out_of_bounds())
            .or_else(|| self.transformer.out_of_bounds());
        let (key, found, expected) = match out_of_bounds {
            Some((key, found, expected)) => (key, format!("{key} is {found}"), expected),
            None => self.misfit()?,
        };
        Some((key, Diagnostic::error(found).expected(expected)))
    }

    /// The first key that does not fit another one.
    fn misfit(&self) -> Option<OutOfBounds> {
        let (prompts, minibatches) = (self.rollout_batch_size, self.minibatches);
        let is_math = self.task == "math";
        let is_transformer = self.policy == "transformer";
        let found = |key: &str, value: &str| format!("{key} is {value:?}, and the task is math");
        let wrong = |key, found: String, expected: &str| Some((key, found, expected.to_string()));
        if is_math && !is_transformer {
            let expected = "`transformer`, which reads text";
            return wrong("policy", found("policy", &self.policy), expected);
        }
        let (model, data) = ("transformer.model", "math.data");
        if is_math && self.transformer.model.is_empty() {
            let expected = "a folder of a model with its tokenizer";
            return wrong(model, found(model, ""), expected);
        }
        if is_math && self.math.data.is_empty() {
            return wrong(
                data,
                found(data, ""),
                "a JSONL file of questions and answers",
            );
        }
        if minibatches > prompts {
            let expected = format!("at most rollout_batch_size, {prompts}");
            return wrong(
                "minibatches",
                format!("minibatches is {minibatches}"),
                &expected,
            );
        }
        if (1..prompts).contains(&self.prompts) {
            let expected = format!("0, or at least rollout_batch_size, {prompts}");
            return wrong("prompts", format!("prompts is {}", self.prompts), &expected);
        }
        let sampled = self.group_size * prompts;
        let evaluated = self.eval_prompts * self.eval_samples;
        for (key, samples, responses) in [
            ("rollout_batch_size", "group_size", sampled),
            ("eval_prompts", "eval_samples", evaluated),
        ] {
            if responses > RESPONSES {
                let found = format!("{key} times {samples} is {responses} responses");
                return wrong(key, found, &format!("at most {RESPONSES}"));
            }
        }
        // Keys that would have no effect: the run would not be the one that is meant.
        if !is_transformer && self.transformer != TransformerConfig::default() {
            let found = format!("[transformer] is set, and policy is {:?}", self.policy);
            return wrong("policy", found, "\"transformer\"");
        }
        if !is_math && !self.transformer.stop_strings.is_empty() {
            let found = format!("responses have no text, as task is {:?}", self.task);
            return wrong("transformer.stop_strings", found, "\"math\"");
        }
        if !is_math && self.math != MathConfig::default() {
            let found = format!("[math] is set, and task is {:?}", self.task);
            return wrong("task", found, "\"math\"");
        }
        for (key, values) in [("params", &self.params), ("loss_params", &self.loss_params)] {
            let is_wrong =
                |value: &toml::Value| value.is_table() || value.is_array() || value.is_datetime();
            if let Some((name, value)) = values.iter().find(|(_, value)| is_wrong(value)) {
                let expected = "a number, a string, true or false";
                return wrong(key, format!("{key}.{name} is {value}"), expected);
            }
        }
        None
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

    /// The norm that a gradient is scaled down to, if there is one.
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
    pub fn set_loss(&self, mut recipe: Recipe) -> Result<Recipe, Diagnostics> {
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
