//! A transformer language model, through libtorch: the decoder of Qwen2, Qwen3 and Llama, from a folder as transformers
//! saves it.

mod config;
mod decoder;
mod files;
mod head;
mod language_model;
mod micro_batch;
mod optimizer;
mod sample;
#[cfg(test)]
pub(crate) mod tests;
mod weights;

use std::collections::BTreeMap;
use std::path::Path;

use tch::{Device, Kind, Tensor, no_grad_guard};

pub use config::{Architecture, Llama3Scaling, ModelConfig, Rope};
pub use language_model::LanguageModel;
pub use sample::Decoding;

use super::{AdamWConfig, NonFinite, Responses, Scores};
use crate::task::Prompt;
use crate::text::config_file;
use crate::torch::{self, TorchError, to_vec};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::random::{Purpose, StreamKey};
use decoder::{Decoder, Turns};
use files::Initial;
use head::Head;
use micro_batch::{Inputs, MicroBatch, micro_batches};
use optimizer::Optimizer;
use weights::Weights;

/// Where and how a transformer computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compute {
    /// Of [`torch::start`].
    pub device: Device,
    /// The most tokens of a forward pass, padding included (but always one response).
    pub tokens_per_forward: usize,
}

/// Weights and optimizer as they were, on the model's device.
pub struct Snapshot {
    weights: Vec<Tensor>,
    optimizer: Optimizer,
}

/// A decoder: responses, their log-probs and entropies, and the gradient of a loss in them.
///
/// On the CPU the same calls give the same bits with the same number of threads. Other `tokens_per_forward`, or other
/// responses beside them, round otherwise (some 1e-6 of a log-prob), as libtorch's products do with other sizes.
pub struct Transformer {
    config: ModelConfig,
    weights: Weights,
    compute: Compute,
    /// The sum of what was accumulated, for each of the weights' parameters in their order, float32; empty if that is
    /// nothing.
    gradient: Vec<Tensor>,
    optimizer: Optimizer,
}

impl Transformer {
    /// The model of a folder: `config.json`, and `model.safetensors` or the files of `model.safetensors.index.json`.
    ///
    /// # Errors
    /// [`Diagnostics`] if a file is missing, damaged, of a model that is not known, does not fit the others or has a
    /// NaN; and if the weights do not fit into memory.
    pub fn load(folder: &Path, compute: Compute) -> Result<Self, Diagnostics> {
        let config = Transformer::read_config(folder)?;
        let weights = Weights::load(&config, &files::Tensors::open(folder)?, compute)?;
        Ok(Transformer::with(config, weights, compute))
    }

    /// The sizes of a folder's model.
    ///
    /// # Errors
    /// [`Diagnostics`] if it has no `config.json`, or that of a model that is not known.
    pub fn read_config(folder: &Path) -> Result<ModelConfig, Diagnostics> {
        ModelConfig::read(&config_file(folder)?)
    }

    /// A model of these sizes with random weights, drawn from `seed` as transformers draws them: matrices normal with a
    /// standard deviation of 0.02, biases 0.
    ///
    /// # Errors
    /// [`Diagnostics`] if the sizes do not fit each other, and if the weights do not fit into memory.
    pub fn new(config: ModelConfig, seed: u64, compute: Compute) -> Result<Self, Diagnostics> {
        config.check()?;
        let initial = Initial::new(StreamKey::new(seed, Purpose::Initialization, 0));
        let weights = Weights::load(&config, &initial, compute)?;
        Ok(Transformer::with(config, weights, compute))
    }

    fn with(config: ModelConfig, weights: Weights, compute: Compute) -> Self {
        Transformer {
            config,
            weights,
            compute,
            gradient: Vec::new(),
            optimizer: Optimizer::default(),
        }
    }

    /// The sizes of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Log-prob (nats, at temperature 1) of each response token given its prompt and the tokens before it, and the
    /// entropy (nats) of the distribution that it is from.
    ///
    /// # Errors
    /// [`Diagnostics`] for a token that the vocabulary does not have, a response without a prompt, an empty prompt, and
    /// if memory does not suffice.
    pub fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, Diagnostics> {
        self.check(prompts, responses)?;
        let count = responses.tokens().len();
        let mut scores = Scores {
            logp: vec![0.0; count],
            entropy: vec![0.0; count],
        };
        for batch in micro_batches(prompts, responses, self.compute.tokens_per_forward) {
            let (logp, entropy) = self.score_batch(&batch)?;
            batch.write(&logp, &mut scores.logp);
            batch.write(&entropy, &mut scores.entropy);
        }
        Ok(scores)
    }

    /// Adds the gradient of a loss to what [`Transformer::update`] will follow: `dloss_dlogp` is the derivative of the loss with respect to the
    /// log-prob of each token, `[responses.tokens().len()]`, at the present weights.
    ///
    /// # Errors
    /// As [`Transformer::score`], and if the sizes do not fit; the gradient is dropped if memory does not suffice.
    pub fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), Diagnostics> {
        self.check(prompts, responses)?;
        responses.check_values(dloss_dlogp)?;
        for batch in micro_batches(prompts, responses, self.compute.tokens_per_forward) {
            if let Err(error) = self.accumulate_batch(&batch, dloss_dlogp) {
                self.gradient.clear();
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// One step of AdamW along the accumulated gradient, scaled down to `max_grad_norm` (L2, all weights together) where it
    /// is longer; then nothing is accumulated. Gives the norm before scaling, or why the step was left out: the weights and
    /// the optimizer are then as they were.
    ///
    /// # Errors
    /// [`Diagnostics`] if memory does not suffice.
    pub fn update(
        &mut self,
        config: &AdamWConfig,
        max_grad_norm: Option<f64>,
    ) -> Result<Result<f64, NonFinite>, Diagnostics> {
        self.begin_gradient()?;
        let mut gradient = std::mem::take(&mut self.gradient);
        let parameters: Vec<&Tensor> = self.weights.parameters().map(|p| &p.tensor).collect();
        let updated = self
            .optimizer
            .update(config, &parameters, &mut gradient, max_grad_norm);
        Ok(updated?)
    }

    /// Zeros, if nothing was accumulated.
    fn begin_gradient(&mut self) -> torch::Result<()> {
        if self.gradient.is_empty() {
            let all = self.weights.parameters();
            let zeros = all.map(|parameter| optimizer::zeros(&parameter.tensor));
            self.gradient = zeros.collect::<torch::Result<_>>()?;
        }
        Ok(())
    }

    /// Log-probs and entropies of a micro-batch's targets.
    fn score_batch(&self, batch: &MicroBatch) -> torch::Result<(Vec<f32>, Vec<f32>)> {
        let _guard = no_grad_guard();
        let inputs = batch.inputs(self.compute.device)?;
        let head = Head {
            weight: &self.weights.head().tensor,
            hidden: &self.states(&inputs)?,
            tokens: &inputs.targets,
        };
        let (logp, entropy) = head.scores()?;
        Ok((to_vec::<f32>(&logp)?, to_vec::<f32>(&entropy)?))
    }

    /// The hidden states `[targets, hidden]` that give the targets of a micro-batch.
    fn states(&self, inputs: &Inputs) -> torch::Result<Tensor> {
        let decoder = Decoder {
            config: &self.config,
            weights: &self.weights,
            tokens: &inputs.tokens,
            turns: Turns::new(&self.config, &inputs.positions)?,
            places: Some(&inputs.places),
        };
        decoder.states(|_, heads| inputs.attention.attend(&heads))
    }

    fn accumulate_batch(&mut self, batch: &MicroBatch, dloss_dlogp: &[f64]) -> torch::Result<()> {
        self.begin_gradient()?;
        let dlogp = torch::floats(&batch.read(dloss_dlogp), self.compute.device)?;
        let inputs = batch.inputs(self.compute.device)?;
        let hidden = self.states(&inputs)?;
        let head = Head {
            weight: &self.weights.head().tensor,
            hidden: &hidden.f_detach()?,
            tokens: &inputs.targets,
        };
        let head_index = self.weights.head_index();
        let dhidden = head.gradient(&dlogp, &mut self.gradient[head_index])?;
        // The derivative of this product's sum with respect to the hidden states is dhidden; from there on it is autograd's.
        let product = hidden.f_mul(&dhidden)?.f_sum(Kind::Float)?;
        let parameters: Vec<&Tensor> = self.weights.parameters().map(|p| &p.tensor).collect();
        let gradients = Tensor::f_run_backward(&[product], &parameters, false, false)?;
        for (sum, gradient) in self.gradient.iter_mut().zip(gradients) {
            // An untied head has no part in it.
            if gradient.defined() {
                let _ = sum.f_add_(&gradient)?;
            }
        }
        Ok(())
    }

    /// A copy of the weights, which keeps its numbers while this one is trained: a reference.
    ///
    /// # Errors
    /// [`Diagnostics`] if memory does not suffice.
    pub fn frozen(&self) -> Result<Transformer, Diagnostics> {
        let all: BTreeMap<_, _> = self.weights.split()?.into_iter().collect();
        let weights = Weights::load(&self.config, &all, self.compute)?;
        let config = self.config.clone();
        Ok(Transformer::with(config, weights, self.compute))
    }

    /// Weights and optimizer, to come back to.
    ///
    /// # Errors
    /// [`Diagnostics`] if memory does not suffice.
    pub fn snapshot(&self) -> Result<Snapshot, Diagnostics> {
        let _guard = no_grad_guard();
        let weights = self
            .weights
            .parameters()
            .map(|p| optimizer::copy(&p.tensor));
        Ok(Snapshot {
            weights: weights.collect::<torch::Result<_>>()?,
            optimizer: self.optimizer.copied()?,
        })
    }

    /// Back to a snapshot of this model.
    ///
    /// # Errors
    /// [`Diagnostics`] if memory does not suffice.
    pub fn go_back(&mut self, to: Snapshot) -> Result<(), Diagnostics> {
        let _guard = no_grad_guard();
        self.gradient.clear();
        for (parameter, kept) in self.weights.parameters().zip(&to.weights) {
            let copied = parameter.tensor.shallow_clone().f_copy_(kept);
            copied.map_err(TorchError::from)?;
        }
        self.optimizer = to.optimizer;
        Ok(())
    }

    fn check(&self, prompts: &[Prompt], responses: &Responses) -> Result<(), Diagnostics> {
        let vocabulary = self.config.vocabulary as usize;
        for (index, prompt) in prompts.iter().enumerate() {
            let token = prompt.tokens.iter();
            let token = token.copied().find(|&token| token as usize >= vocabulary);
            let wrong = match token {
                Some(token) => {
                    format!("has the token {token}; the vocabulary has {vocabulary} tokens")
                }
                None if prompt.tokens.is_empty() => {
                    "is empty, so nothing gives the first token's log-prob".to_string()
                }
                None => continue,
            };
            return Err(Diagnostic::error(format!("prompt {index} {wrong}")).into());
        }
        responses.check(prompts.len(), vocabulary, usize::MAX)
    }
}
