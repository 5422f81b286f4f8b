//! What every training run relies on: exact log-probs, and the same bits for any number of threads and after a restore.

mod exact;
mod refused;
mod state;

use std::collections::BTreeMap;

use advlab_train::policy::{AdamWConfig, Mlp, Policy, Responses, Samples};
use advlab_train::random::{Purpose, StreamKey};
use advlab_train::task::{Maze, Task, training_prompts};
use safetensors::SafeTensors;

const GROUP: usize = 8;
const POLICY: &str = "policy.safetensors";

fn key(step: u64) -> StreamKey {
    StreamKey::new(1, Purpose::Responses, step)
}

fn policy(task: &dyn Task, seed: u64) -> Mlp {
    Mlp::new(&task.shape(), 64, AdamWConfig::default(), seed)
}

fn maze() -> Maze {
    Maze::new(4).unwrap()
}

/// Prompts of a step, with these responses to them.
fn responses(task: &dyn Task, prompts: usize, all: &[(usize, &[u32])]) -> Responses {
    let mut responses = Responses::to(training_prompts(task, 1, 0, prompts).unwrap());
    all.iter()
        .for_each(|(prompt, tokens)| responses.push(*prompt, tokens));
    responses
}

/// A group's responses to each of so many prompts of a step.
fn sampled(task: &dyn Task, policy: &mut Mlp, step: u64, prompts: usize) -> Samples {
    let prompts = training_prompts(task, 1, step, prompts).unwrap();
    policy.sample(&prompts, GROUP, key(step)).unwrap()
}

/// One step of policy gradient with group-normalised rewards, weighing tokens alike; gives the mean reward.
fn step(task: &dyn Task, policy: &mut Mlp, step: u64) -> f64 {
    let Samples { responses, .. } = sampled(task, policy, step, 8);
    let prompt = |row: usize| &responses.prompts()[responses.owners()[row]];
    let is_right = |row| task.verify(prompt(row), responses.response(row));
    let rewards: Vec<f64> = (0..responses.len())
        .map(|row| is_right(row).into())
        .collect();
    let tokens = responses.tokens().len() as f64;
    let mut derivatives = vec![0.0; responses.tokens().len()];
    for (group, rewards) in rewards.chunks(GROUP).enumerate() {
        let mean = rewards.iter().sum::<f64>() / GROUP as f64;
        let squares = rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>();
        let std = (squares / (GROUP - 1) as f64).sqrt();
        for (index, reward) in rewards.iter().enumerate() {
            let advantage = (reward - mean) / (std + 1e-6);
            derivatives[responses.range(group * GROUP + index)].fill(-advantage / tokens);
        }
    }
    policy.accumulate(&responses, &derivatives).unwrap();
    policy.update(Some(1.0)).unwrap().unwrap();
    rewards.iter().sum::<f64>() / rewards.len() as f64
}

/// Parameters and optimizer: the tensors of the policy's file by name.
fn state(policy: &mut Mlp) -> BTreeMap<String, Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    policy.save(folder.path()).unwrap();
    let bytes = std::fs::read(folder.path().join(POLICY)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let tensors = file.iter().map(|(name, tensor)| {
        let values = tensor.data().chunks(4).map(number).collect();
        (name.to_string(), values)
    });
    tensors.collect()
}
