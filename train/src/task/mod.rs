//! Tasks with verifiable rewards: a task draws prompts, verifies responses and returns their texts.

mod arithmetic;
#[cfg(feature = "torch")]
mod math;
mod maze;

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
#[cfg(feature = "torch")]
use std::sync::Arc;

use hmac_sha256::Hash as Sha256;
use rayon::prelude::*;

pub use arithmetic::Arithmetic;
#[cfg(feature = "torch")]
pub use math::Math;
pub use maze::Maze;

use super::config::{Config, TaskName};
use super::error::Result;
#[cfg(not(feature = "torch"))]
use super::error::without_libtorch;
#[cfg(feature = "torch")]
use super::text::Text;
use crate::random::{Purpose, RandomStream, StreamKey};
use advlab::diagnostic::Diagnostic;

/// About one prompt in this many is held out of training, for evaluation.
pub const EVALUATION_SHARE: u8 = 16;

/// If this many draws in a row are held out, an error says that the task has no training prompts. This can hardly be chance,
/// because only about a sixteenth of the prompts is held out.
const DRAWS: usize = 1000;

/// Returns the task that a configuration describes.
pub(super) fn of_config(config: &Config) -> Result<Box<dyn Task>> {
    Ok(match config.task {
        TaskName::Maze => Box::new(Maze::new(config.maze_size)?.in_turns(config.maze_turns)?),
        TaskName::Arithmetic => Box::new(Arithmetic::new(config.arithmetic_digits)?),
        #[cfg(feature = "torch")]
        TaskName::Math => Box::new(Math::of_config(config)?),
        #[cfg(not(feature = "torch"))]
        TaskName::Math => return Err(without_libtorch("`task = \"math\"`")),
    })
}

/// The sizes of a task that a policy needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskShape {
    /// The number of raw features of a prompt.
    pub prompt_features: usize,
    /// The number of different response tokens, which come first in the alphabet.
    pub vocabulary: usize,
    /// The number of different tokens, including tokens that occur only in prompts.
    pub alphabet: usize,
    /// The length of the longest response, including its stop token.
    pub max_response_tokens: usize,
    /// The response token that ends a response.
    pub stop: u32,
}

/// A prompt in the two forms that policies read, with the same content.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The prompt's tokens, each below the task's `alphabet`; a token means the same in prompts and responses.
    pub tokens: Vec<u32>,
    /// The raw features, `[prompt_features]`, for policies that read a vector. A feature that is 0 costs little time.
    pub features: Vec<f32>,
}

impl Prompt {
    /// Returns a prompt whose features encode each token of `shown` one-hot over `kinds`.
    fn one_hot(tokens: Vec<u32>, shown: impl Iterator<Item = u32>, kinds: Range<u32>) -> Prompt {
        let hot = |token| kinds.clone().map(move |kind| f32::from(token == kind));
        let features = shown.flat_map(hot).collect();
        Prompt { tokens, features }
    }
}

/// Texts with the names of their columns.
pub type Texts = Vec<(&'static str, String)>;

/// A task with verifiable rewards.
pub trait Task: Send + Sync {
    /// Returns the sizes of prompts and responses; they never change.
    fn shape(&self) -> TaskShape;

    /// Returns the tokenizer with the tokens and strings that end a response; `None` if the task's tokens are not text.
    #[cfg(feature = "torch")]
    fn text(&self) -> Option<Arc<Text>> {
        None
    }

    /// Draws a prompt from the whole distribution; [`training_prompts`] and [`evaluation_prompts`] divide this distribution
    /// between them.
    fn draw(&self, stream: &mut RandomStream) -> Prompt;

    /// Returns the identity of a prompt. Prompts with the same identity are either all for training or all for evaluation. By
    /// default it is the prompt's tokens; a task overrides this method if one prompt gives away the answer of another. The
    /// identity must be the same in every version of the task, so that held-out prompts stay held out.
    fn identity(&self, prompt: &Prompt) -> Vec<u32> {
        prompt.tokens.clone()
    }

    /// Returns whether a response solves its prompt. The reward is 1 if any turn of the trajectory does, otherwise 0. Tokens
    /// after the stop token do not count; a prompt or a token that does not belong to this task makes the response wrong.
    fn verify(&self, prompt: &Prompt, response: &[u32]) -> bool;

    /// Returns the maximum number of turns of a trajectory; at most 64. Each turn is a response to a separate prompt.
    fn turns(&self) -> u8 {
        1
    }

    /// Returns the prompt of the turn after a response, or `None` if the trajectory ends with the response.
    fn next(&self, _prompt: &Prompt, _response: &[u32]) -> Option<Prompt> {
        None
    }

    /// Returns a response that solves the prompt, including the stop token, or `None` if the task knows no such response.
    fn solution(&self, _prompt: &Prompt) -> Option<Vec<u32>> {
        None
    }

    /// Returns a response as text for a person who reads the batch: its `prompt`, `completion` and `solution`, if they are text.
    fn texts(&self, _prompt: &Prompt, _response: &[u32]) -> Result<Texts> {
        Ok(Vec::new())
    }

    /// Formats a response for the user: its texts, and a mark that says whether it is right.
    fn show(&self, prompt: &Prompt, response: &[u32]) -> Result<String> {
        let texts = self.texts(prompt, response)?.into_iter();
        let texts: Vec<String> = texts.map(|(_, text)| text).collect();
        let is_right = self.verify(prompt, response);
        let mark = if is_right { "✓" } else { "✗" };
        Ok(format!("{}  {mark}", texts.join("\n")))
    }
}

/// Returns whether a prompt is held out for evaluation. The decision depends only on a hash of the prompt's identity, so it is
/// the same in every run. Held-out prompts are about as hard as the others, because a hash does not depend on difficulty.
pub fn is_held_out(task: &dyn Task, prompt: &Prompt) -> bool {
    let mut hash = Sha256::new();
    for token in task.identity(prompt) {
        hash.update(token.to_le_bytes());
    }
    hash.finalize()[0].is_multiple_of(EVALUATION_SHARE)
}

/// Returns the prompts of one training step: prompt `i` is a function of (`seed`, `step`, `i`) and never a prompt of the
/// evaluation set.
pub fn training_prompts(
    task: &dyn Task,
    seed: u64,
    step: u64,
    count: usize,
) -> Result<Vec<Prompt>> {
    let key = StreamKey::new(seed, Purpose::TrainingPrompts, step);
    drawn_prompts(task, key, 0..count)
}

/// Draws one prompt from each of the key's streams listed in `streams`; a held-out prompt is drawn again.
pub(super) fn drawn_prompts(
    task: &dyn Task,
    key: StreamKey,
    streams: impl IntoParallelIterator<Item = usize>,
) -> Result<Vec<Prompt>> {
    let drawn = streams.into_par_iter().map(|index| {
        let mut stream = key.stream(index as u64);
        let mut draws = (0..DRAWS).map(|_| task.draw(&mut stream));
        draws.find(|prompt| !is_held_out(task, prompt))
    });
    drawn.collect::<Option<_>>().ok_or_else(|| {
        let message = format!("no prompt for training among {DRAWS} draws");
        let help = "all drawn prompts are held out for evaluation: choose a larger task";
        Diagnostic::error(message).with_help(help).into()
    })
}

/// Draws `count` different prompts from a pool of `pool` prompts, or fewer if the pool has no more; skips the prompts in `taken`.
/// Also returns the prompts' indices in the pool. The pool is drawn with the streams of step 0 at every step, so that prompts
/// recur.
pub(super) fn pooled_prompts(
    task: &dyn Task,
    key: StreamKey,
    pool: usize,
    taken: &[usize],
    count: usize,
) -> Result<(Vec<usize>, Vec<Prompt>)> {
    let taken: HashSet<&usize> = taken.iter().collect();
    let mut order: Vec<usize> = (0..pool).filter(|index| !taken.contains(index)).collect();
    // The order is drawn from a stream from which no prompt is drawn.
    let mut stream = key.stream(u64::MAX);
    for next in 0..count.min(order.len()) {
        let left = (order.len() - next) as u64;
        order.swap(next, next + stream.below(left) as usize);
    }
    order.truncate(count);
    let key = StreamKey::new(key.seed, key.purpose, 0);
    let prompts = drawn_prompts(task, key, order.clone())?;
    Ok((order, prompts))
}

/// Returns the characters that show tokens, separated by spaces so that each character counts as a token.
fn words(tokens: &[u32], signs: &[char]) -> String {
    let sign = |token: &u32| signs.get(*token as usize).unwrap_or(&'?').to_string();
    tokens.iter().map(sign).collect::<Vec<_>>().join(" ")
}

/// Returns an error if a size of a task is outside its bounds.
fn within(size: &str, found: usize, bounds: RangeInclusive<u64>) -> Result<()> {
    if bounds.contains(&(found as u64)) {
        return Ok(());
    }
    let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
    let problem = Diagnostic::error(format!("{size} is {found}"));
    Err(problem.expected(expected).into())
}

/// Returns the first `count` different prompts of the evaluation set; fewer if a small task has no more. The prompts do not
/// depend on a seed, so that runs with different seeds are compared on the same prompts.
pub fn evaluation_prompts(task: &dyn Task, count: usize) -> Vec<Prompt> {
    let key = StreamKey::new(0, Purpose::EvaluationPrompts, 0);
    let mut stream = key.stream(0);
    let mut seen = HashSet::new();
    // The number of draws is eight times the number that suffices if hardly any prompt repeats. With so many draws, only a
    // small task gives fewer prompts than `count`.
    let draws = (8 * count * usize::from(EVALUATION_SHARE)).max(DRAWS);
    (0..draws)
        .map(|_| task.draw(&mut stream))
        .filter(|prompt| is_held_out(task, prompt))
        .filter(|prompt| seen.insert(prompt.tokens.clone()))
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> Vec<Box<dyn Task>> {
        let mazes = (2..=5).map(|size| Box::new(Maze::new(size).unwrap()) as Box<dyn Task>);
        let sums = (1..=4).map(|digits| Box::new(Arithmetic::new(digits).unwrap()) as _);
        mazes.chain(sums).collect()
    }

    #[test]
    fn training_never_draws_from_the_evaluation_set() {
        for task in tasks() {
            let evaluation: HashSet<Vec<u32>> = evaluation_prompts(&*task, 1000)
                .iter()
                .map(|prompt| task.identity(prompt))
                .collect();
            assert!(!evaluation.is_empty());
            for step in 0..10 {
                for prompt in training_prompts(&*task, 7, step, 64).unwrap() {
                    assert!(!evaluation.contains(&task.identity(&prompt)));
                }
            }
        }
    }

    #[test]
    fn a_sixteenth_of_a_large_task_is_held_out() {
        let maze = Maze::new(4).unwrap();
        let key = StreamKey::new(3, Purpose::TrainingPrompts, 0);
        let held_out = (0..8000)
            .filter(|&index| is_held_out(&maze, &maze.draw(&mut key.stream(index))))
            .count();
        assert!((400..600).contains(&held_out), "{held_out} of 8000");
    }

    #[test]
    fn a_prompt_is_a_function_of_seed_step_and_index() {
        let maze = Maze::new(4).unwrap();
        let eight = training_prompts(&maze, 1, 5, 8).unwrap();
        let sixteen = training_prompts(&maze, 1, 5, 16).unwrap();
        assert_eq!(eight, sixteen[..8]);
        assert_ne!(eight, training_prompts(&maze, 1, 6, 8).unwrap());
        assert_ne!(eight, training_prompts(&maze, 2, 5, 8).unwrap());
    }

    #[test]
    fn prompts_of_a_pool_recur_with_their_indices() {
        let maze = Maze::new(4).unwrap();
        let all = training_prompts(&maze, 1, 0, 8).unwrap();
        let of_step = |step| {
            let key = StreamKey::new(1, Purpose::TrainingPrompts, step);
            pooled_prompts(&maze, key, 8, &[], 5).unwrap()
        };
        let mut seen = HashSet::new();
        for step in 0..20 {
            let (indices, prompts) = of_step(step);
            for (index, prompt) in indices.iter().zip(&prompts) {
                assert_eq!(*prompt, all[*index]);
            }
            let different: HashSet<usize> = indices.into_iter().collect();
            assert_eq!(different.len(), 5);
            seen.extend(different);
        }
        assert_eq!(seen.len(), 8);
        // No prompt that is already in the batch is drawn, and no more prompts than exist.
        for (taken, count) in [(0..3, 5), (0..6, 2), (0..8, 0)] {
            let taken: Vec<usize> = taken.collect();
            let key = StreamKey::new(1, Purpose::TrainingPrompts, 0).again(0, 1);
            let drawn = pooled_prompts(&maze, key, 8, &taken, 5).unwrap();
            let other: HashSet<usize> = drawn.0.iter().copied().collect();
            assert_eq!((drawn.1.len(), other.len()), (count, count));
            assert!(taken.iter().all(|index| !other.contains(index)));
        }
    }

    #[test]
    fn evaluation_prompts_differ_from_each_other_and_start_alike() {
        let maze = Maze::new(4).unwrap();
        let prompts = evaluation_prompts(&maze, 256);
        let different: HashSet<_> = prompts.iter().map(|prompt| &prompt.tokens).collect();
        assert_eq!((prompts.len(), different.len()), (256, 256));
        assert_eq!(prompts[..100], evaluation_prompts(&maze, 100));
    }

    #[test]
    fn prompts_have_the_sizes_that_their_task_states() {
        for task in tasks() {
            let shape = task.shape();
            let prompts = training_prompts(&*task, 0, 0, 20).unwrap();
            for prompt in &prompts {
                assert_eq!(prompt.tokens.len(), prompts[0].tokens.len());
                assert_eq!(prompt.features.len(), shape.prompt_features);
            }
        }
    }

    #[test]
    fn sizes_outside_the_bounds_are_refused() {
        let mazes = [1, 33].map(|size| Maze::new(size).unwrap_err());
        let sums = [0, 19].map(|digits| Arithmetic::new(digits).unwrap_err());
        let errors: Vec<String> = mazes
            .iter()
            .chain(&sums)
            .map(|error| error.to_string())
            .collect();
        let (maze, sum) = (
            "expected a whole number from 2 to 32",
            "expected a whole number from 1 to 18",
        );
        let expected = [
            format!("maze: size is 1: {maze}"),
            format!("maze: size is 33: {maze}"),
            format!("arithmetic: digits is 0: {sum}"),
            format!("arithmetic: digits is 19: {sum}"),
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_task_without_training_prompts_says_so() {
        struct Fixed(u32);
        impl Task for Fixed {
            fn shape(&self) -> TaskShape {
                Maze::new(4).unwrap().shape()
            }
            fn draw(&self, _: &mut RandomStream) -> Prompt {
                Prompt {
                    tokens: vec![self.0],
                    features: vec![],
                }
            }
            fn verify(&self, _: &Prompt, _: &[u32]) -> bool {
                false
            }
        }
        let mut stream = StreamKey::new(0, Purpose::TrainingPrompts, 0).stream(0);
        let mut tasks = (0..).map(Fixed);
        let task = tasks.find(|task| is_held_out(task, &task.draw(&mut stream)));
        let task = task.unwrap();
        assert_eq!(
            training_prompts(&task, 0, 0, 1).unwrap_err()[0].message,
            "no prompt for training among 1000 draws"
        );
    }
}
