//! Makes `examples/rollouts.jsonl`: real rollouts of the maze task, from a small policy after 150 steps of GRPO.
//!
//!     cargo run --release --example rollouts > examples/rollouts.jsonl

use std::error::Error;

use advlab::{Batch, Host};
use advlab_train::policy::{AdamWConfig, Mlp, Policy, Samples};
use advlab_train::random::{Purpose, StreamKey};
use advlab_train::task::{Maze, Prompt, Task, training_prompts};
use serde_json::json;

const SEED: u64 = 0;
const STEPS: u64 = 150;
const MOVES: [&str; 5] = ["up", "down", "left", "right", "stop"];

fn main() -> Result<(), Box<dyn Error>> {
    let task = Maze::new(4)?;
    let mut policy = Mlp::new(&task.shape(), 256, AdamWConfig::default(), SEED);
    let grpo = Host::new().load("grpo")?;
    for step in 0..STEPS {
        let prompts = training_prompts(&task, SEED, step, 64)?;
        let samples = sample(&mut policy, &prompts, 16, step)?;
        let outcome = grpo.advantage(&batch(&task, &samples)?, &mut grpo.init()?)?;
        let tokens = samples.responses.tokens().len() as f64;
        let slope: Vec<f64> = outcome
            .advantage
            .per_token()
            .map(|advantage| -advantage / tokens)
            .collect();
        policy.accumulate(&samples.responses, &slope)?;
        policy.update(None)??;
    }

    let prompts = training_prompts(&task, SEED, STEPS, 32)?;
    let samples = sample(&mut policy, &prompts, 8, STEPS)?;
    let ref_logp = policy.reference_logp(&samples.responses)?;
    for (response, &prompt) in samples.responses.owners().iter().enumerate() {
        let (range, moves) = (
            samples.responses.range(response),
            samples.responses.response(response),
        );
        let words: Vec<&str> = moves.iter().map(|&token| MOVES[token as usize]).collect();
        let line = json!({
            "group": format!("maze-{prompt:02}"),
            "reward": f64::from(u8::from(task.verify(&prompts[prompt], moves))),
            "completion": words.join(" "),
            "old_logp": rounded(&samples.scores.logp[range.clone()]),
            "ref_logp": rounded(&ref_logp[range.clone()]),
            "entropy": rounded(&samples.scores.entropy[range]),
        });
        println!("{line}");
    }
    Ok(())
}

/// Rounds to five decimals, so that people can read the file.
fn rounded(values: &[f32]) -> Vec<f64> {
    values
        .iter()
        .map(|&value| (f64::from(value) * 1e5).round() / 1e5)
        .collect()
}

fn sample(
    policy: &mut Mlp,
    prompts: &[Prompt],
    group_size: usize,
    step: u64,
) -> Result<Samples, Box<dyn Error>> {
    let key = StreamKey::new(SEED, Purpose::Responses, step);
    Ok(policy.sample(prompts, group_size, key)?)
}

fn batch(task: &Maze, samples: &Samples) -> Result<Batch, Box<dyn Error>> {
    let responses = &samples.responses;
    let rewards: Vec<f64> = (0..responses.len())
        .map(|i| {
            let prompt = &responses.prompts()[responses.owners()[i]];
            f64::from(u8::from(task.verify(prompt, responses.response(i))))
        })
        .collect();
    Ok(Batch::builder()
        .groups(responses.owners().iter().map(|&prompt| prompt as i64))
        .lengths((0..responses.len()).map(|i| responses.range(i).len()))
        .response("reward", rewards)
        .build()?)
}
