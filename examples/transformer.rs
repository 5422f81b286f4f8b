//! Loads a model from a folder, does the work that each line of the input names, and prints the seconds that it took.
//! `examples/peers/transformer.py` compares these times with transformers and PyTorch.

use std::error::Error;
use std::fs;
use std::io::{BufRead, stdin};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use advlab_train::policy::{AdamWConfig, Policy, Responses, Transformer, TransformerOptions};
use advlab_train::random::{Purpose, StreamKey};
use advlab_train::task::Prompt;
use advlab_train::{Config, Device, TransformerConfig, torch};
use serde::Deserialize;
use serde_json::json;

/// `work.json` in the model's folder.
#[derive(Deserialize)]
struct Work {
    device: Device,
    threads: NonZeroUsize,
    prompts: Vec<Vec<u32>>,
    group_size: usize,
    max_tokens: usize,
    /// The tokens that end a response after the line `stops`.
    stops: Vec<u32>,
    /// The responses to score and to train on: `group_size` responses to each prompt.
    responses: Vec<Vec<u32>>,
    tokens_per_forward: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: transformer FOLDER")?;
    let folder = Path::new(&folder);
    let work: Work = serde_json::from_slice(&fs::read(folder.join("work.json"))?)?;
    let options = TransformerOptions {
        device: torch::start(work.device, work.threads)?,
        threads: work.threads,
        config: TransformerConfig {
            tokens_per_forward: work.tokens_per_forward,
            max_new_tokens: work.max_tokens,
            rows_per_batch: work.responses.len(),
            ..Config::default().transformer
        },
        stops: vec![],
        text: None,
        adamw: AdamWConfig::default(),
        reference: false,
    };
    let mut model = Transformer::load(folder, options)?;
    let prompt = |tokens: &Vec<u32>| Prompt {
        tokens: tokens.clone(),
        features: vec![],
    };
    let prompts: Vec<Prompt> = work.prompts.iter().map(prompt).collect();
    let mut responses = Responses::to(prompts.as_slice());
    for (index, tokens) in work.responses.iter().enumerate() {
        responses.push(index / work.group_size, tokens);
    }
    let count = responses.tokens().len();
    // The gradient of some loss: its values do not matter here.
    let slope: Vec<f64> = (0..count)
        .map(|token| (token as f64).sin() / count as f64)
        .collect();
    let apart: Vec<Prompt> = prompts
        .iter()
        .flat_map(|prompt| std::iter::repeat_n(prompt.clone(), work.group_size))
        .collect();
    let (mut logp, mut sampled) = (Vec::new(), Responses::to([]));
    for (step, line) in stdin().lock().lines().enumerate() {
        let key = StreamKey::new(0, Purpose::Responses, step as u64);
        let started = Instant::now();
        match line?.as_str() {
            "score" => logp = model.score(&responses)?.logp,
            "update" => {
                model.accumulate(&responses, &slope)?;
                model.update(Some(1.0))??;
            }
            "sample" => {
                let samples = model.sample(&prompts, work.group_size, key)?;
                sampled = samples.responses;
            }
            // A prompt's forward pass is computed once for each of its responses, not shared.
            "sample apart" => drop(model.sample(&apart, 1, key)?),
            // The times of sampling include the log-probs, so this line times them alone.
            "score sampled" => drop(model.score(&sampled)?),
            // From here on, responses may end before they have the largest length.
            "stops" => model.set_stops(work.stops.clone()),
            "no stops" => model.set_stops(vec![]),
            other => return Err(format!("`{other}` is none of this program's lines").into()),
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{}",
            json!({ "seconds": seconds, "tokens": sampled.tokens().len(), "logp": logp })
        );
        logp.clear();
    }
    Ok(())
}
