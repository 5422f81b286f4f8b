//! Compares tiny models with random weights with the results of transformers (`tests/golden/transformers`).

mod loading;
mod sampling;
mod scores;
mod state;
mod updates;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;

use super::config::views;
use super::{Transformer, TransformerOptions};
use crate::error::Result;
use crate::policy::{AdamWConfig, Policy, Responses};
use crate::task::Prompt;
use crate::torch::{self, to_vec};
use crate::{Config, TransformerConfig};

pub(crate) const MODELS: [&str; 3] = ["qwen2", "qwen3", "llama"];

pub(crate) fn folder(model: &str) -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    root.join("tests/golden/transformers").join(model)
}

/// Returns options for greedy sampling of responses that end only at the length limit, without a reference.
fn options(tokens_per_forward: usize) -> TransformerOptions {
    let threads = NonZeroUsize::MIN;
    TransformerOptions {
        device: torch::start(crate::Device::Cpu, threads).unwrap(),
        threads,
        config: TransformerConfig {
            temperature: 0.0,
            max_new_tokens: 48,
            rows_per_batch: 64,
            tokens_per_forward,
            ..Config::default().transformer
        },
        stops: vec![],
        text: None,
        adamw: AdamWConfig::default(),
        reference: false,
    }
}

fn load(folder: &Path, tokens_per_forward: usize) -> Result<Transformer> {
    Transformer::load(folder, options(tokens_per_forward))
}

impl Transformer {
    /// Returns the accumulated gradient under the names that transformers gives the weights; it is empty if nothing was
    /// accumulated. The gradient of a tied head is part of the embedding's gradient.
    fn gradient(&self) -> BTreeMap<String, Vec<f32>> {
        let views = views(&self.layout, &self.gradient).unwrap().into_iter();
        let named = views.map(|(name, _, view)| (name, to_vec(&view).unwrap()));
        named.collect()
    }
}

/// The results of transformers, in a safetensors file.
struct Expected(Vec<u8>);

impl Expected {
    fn of(model: &str) -> Self {
        Expected::read(&folder(model).join("expected.safetensors"))
    }

    fn read(file: &Path) -> Self {
        Expected(fs::read(file).unwrap())
    }

    fn has(&self, name: &str) -> bool {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        file.tensor(name).is_ok()
    }

    fn view<R>(&self, name: &str, read: impl Fn(&[usize], &[u8]) -> R) -> R {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap();
        read(tensor.shape(), tensor.data())
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        self.view(name, |_, data| data.chunks(4).map(number).collect())
    }

    /// Returns the rows of an integer tensor.
    fn integers(&self, name: &str) -> Vec<Vec<i64>> {
        let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
        self.view(name, |shape, data| {
            let rows = data.chunks(8 * shape[1]);
            rows.map(|row| row.chunks(8).map(number).collect())
                .collect()
        })
    }

    /// Returns the tokens of each row for which the mask is 1.
    fn kept(&self, tokens: &[Vec<i64>], mask: &str) -> Vec<Vec<u32>> {
        let masks = self.integers(mask);
        let rows = tokens.iter().zip(&masks);
        let keep = |(row, mask): (&Vec<i64>, &Vec<i64>)| {
            let tokens = row.iter().zip(mask).filter(|(_, mask)| **mask == 1);
            tokens.map(|(token, _)| *token as u32).collect()
        };
        rows.map(keep).collect()
    }

    fn prompts(&self) -> Vec<Prompt> {
        let prompts = self.kept(&self.integers("prompt_ids"), "prompt_mask");
        prompts.iter().map(|tokens| prompt(tokens)).collect()
    }

    fn responses(&self) -> Responses {
        let width = self.integers("prompt_ids")[0].len();
        let rows = self.integers("input_ids").into_iter();
        let behind: Vec<Vec<i64>> = rows.map(|row| row[width..].to_vec()).collect();
        let mut responses = Responses::to(self.prompts());
        for (index, tokens) in self.kept(&behind, "completion_mask").iter().enumerate() {
            responses.push(index, tokens);
        }
        responses
    }

    /// Returns the values for the response tokens, one response after the other.
    fn by_token(&self, name: &str) -> Vec<f32> {
        let mask = self.integers("completion_mask").concat();
        let values = self.floats(name).into_iter().zip(mask);
        let kept = values.filter(|(_, mask)| *mask == 1);
        kept.map(|(value, _)| value).collect()
    }
}

fn prompt(tokens: &[u32]) -> Prompt {
    Prompt {
        tokens: tokens.to_vec(),
        features: vec![],
    }
}

/// Returns a model's fixture and the responses in it.
fn given(model: &str) -> (Expected, Responses) {
    let expected = Expected::of(model);
    let responses = expected.responses();
    (expected, responses)
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    // A NaN on either side counts as more than any tolerance.
    let worst = worst.fold(0.0, |worst: f32, d| if d <= worst { worst } else { d });
    assert!(worst <= tolerance, "{what}: {worst} apart");
}

pub(crate) fn error_of<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("there is an error"),
        Err(error) => error[0].to_string(),
    }
}
