//! A policy trained with group-normalised rewards gets better at its task.

use advlab_train::policy::{AdamWConfig, Mlp, Policy};
use advlab_train::task::{Arithmetic, Maze, Task, evaluation_prompts};

use super::{key, rewards, step};

fn pass_at_1(task: &dyn Task, policy: &mut Mlp) -> f64 {
    let prompts = evaluation_prompts(task, 128);
    let sampled = policy.sample(&prompts, 4, key(0)).unwrap();
    let rewards = rewards(task, &prompts, &sampled.responses);
    rewards.iter().sum::<f64>() / rewards.len() as f64
}

/// Mean rewards of the first and of the last five of `steps` steps, and the policy that they lead to.
fn learn(task: &dyn Task, lr: f64, steps: u64) -> (f64, f64, Mlp) {
    let config = AdamWConfig {
        lr,
        ..AdamWConfig::default()
    };
    let mut policy = Mlp::new(&task.shape(), 128, config, 1);
    let rewards: Vec<f64> = (0..steps)
        .map(|s| step(task, &mut policy, s, 32, 16))
        .collect();
    let mean = |rewards: &[f64]| rewards.iter().sum::<f64>() / rewards.len() as f64;
    (
        mean(&rewards[..5]),
        mean(&rewards[rewards.len() - 5..]),
        policy,
    )
}

#[test]
fn policy_gradient_learns_to_walk_mazes_that_it_has_not_seen() {
    let task = Maze::new(3).unwrap();
    let (first, last, mut policy) = learn(&task, 3e-3, 60);
    let unseen = pass_at_1(&task, &mut policy);
    assert!(
        last > first + 0.3 && unseen > first + 0.3,
        "{first} -> {last}, unseen {unseen}"
    );
}

#[test]
fn policy_gradient_learns_to_add_digits() {
    let task = Arithmetic::new(1).unwrap();
    let (first, last, _) = learn(&task, 3e-3, 300);
    assert!(last > first + 0.3, "{first} -> {last}");
}
