//! A transformer language model, through libtorch: the decoder of Qwen2, Qwen3 and Llama, from a folder as transformers
//! saves it.

mod backward;
mod cache;
mod config;
mod decoder;
mod export;
mod files;
mod head;
mod initial;
mod language_model;
mod layers;
mod micro_batch;
mod optimizer;
mod sample;
mod saved;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod weights;

use std::path::Path;

use ndarray::{ArrayD, IxDyn};
use tch::{Device, Kind, Tensor, no_grad_guard};

pub use config::{Architecture, Llama3Scaling, ModelConfig, Rope};
pub use language_model::LanguageModel;
pub use sample::Decoding;
pub use state::Snapshot;
pub use text::{Generation, Message, Text};

use super::{AdamWConfig, Arrays, NonFinite, Responses, Scores};
use advlab::random::{Purpose, StreamKey};
use crate::task::Prompt;
use crate::torch::{self, to_vec};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use backward::Graph;
use decoder::Decoder;
use head::Head;
use initial::Initial;
use micro_batch::{MicroBatch, micro_batches};
use optimizer::Optimizer;
use weights::Weights;

/// Where and how a transformer computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compute {
    /// Of [`torch::start`].
    pub device: Device,
    /// Of the weights and of what is computed with them, float32 or bfloat16: [`torch::dtype`] names it. With bfloat16 the
    /// optimizer keeps the weights in float32 as well.
    pub dtype: Kind,
    /// Up to so many tokens, padding included, are in a forward pass (but always one response).
    pub tokens_per_forward: usize,
    /// Whether [`Transformer::accumulate`] computes each layer a second time instead of keeping all that its gradient needs:
    /// the same bits with less memory, in a third more time.
    pub gradient_checkpointing: bool,
}

/// A decoder: responses, their log-probs and entropies, and the gradient of a loss in them.
///
/// On the CPU the same calls give the same bits with the same number of threads. Other `tokens_per_forward`, or other
/// responses beside them, round otherwise (some 1e-6 of a log-prob), as libtorch's products do with other sizes.
pub struct Transformer {
    config: ModelConfig,
    weights: Weights,
    compute: Compute,
    /// The sum of what was accumulated, for each of the weights' parameters in their order, float32; empty where that is
    /// nothing.
    gradient: Vec<Tensor>,
    optimizer: Optimizer,
}

impl Transformer {
    /// The model of a folder: `config.json`, and `model.safetensors` or the files of `model.safetensors.index.json`.
    ///
    /// # Errors
    /// [`Diagnostics`] where a file is missing, damaged, of a model that is not known, does not fit the others or has a
    /// NaN; and where the weights do not fit into memory.
    pub fn load(folder: &Path, compute: Compute) -> Result<Self, Diagnostics> {
        let config = Transformer::read_config(folder)?;
        let weights = Weights::load(&config, &files::Tensors::open(folder)?, compute)?;
        Ok(Transformer::with(config, weights, compute))
    }

    /// The sizes of a folder's model.
    ///
    /// # Errors
    /// [`Diagnostics`] where it has no `config.json`, or that of a model that is not known.
    pub fn read_config(folder: &Path) -> Result<ModelConfig, Diagnostics> {
        let path = folder.join("config.json");
        if !path.exists() {
            let what = match folder.exists() {
                true => "is not a model's folder: it has no config.json",
                false => "is no folder",
            };
            let message = format!("{} {what}", folder.display());
            let help = "a model's folder is one as `save_pretrained` of transformers writes it; `hf download NAME --local-dir FOLDER` brings one from the hub";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        ModelConfig::read(&path)
    }

    /// A model of these sizes with random weights, drawn from `seed` as transformers draws them: matrices normal with a
    /// standard deviation of 0.02, biases 0.
    ///
    /// # Errors
    /// [`Diagnostics`] where the sizes do not fit each other, and where the weights do not fit into memory.
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
    /// where memory does not suffice.
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

    /// Adds the gradient of a loss to [`Transformer::gradient`]: `dloss_dlogp` is the derivative of the loss by the
    /// log-prob of each token, `[responses.tokens().len()]`, at the present weights.
    ///
    /// # Errors
    /// As [`Transformer::score`], and where the sizes do not fit; the gradient is dropped where memory does not suffice.
    pub fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), Diagnostics> {
        self.check(prompts, responses)?;
        let (found, expected) = (dloss_dlogp.len(), responses.tokens().len());
        if found != expected {
            let message =
                format!("dloss/dlogp has {found} values; the responses have {expected} tokens");
            return Err(Diagnostic::error(message).into());
        }
        for batch in micro_batches(prompts, responses, self.compute.tokens_per_forward) {
            if let Err(error) = self.accumulate_batch(&batch, dloss_dlogp) {
                self.gradient.clear();
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// The accumulated gradient, under the names that transformers gives the weights; a tied head's is in the
    /// embedding's. No arrays where nothing was accumulated.
    ///
    /// # Errors
    /// [`Diagnostics`] where memory does not suffice.
    pub fn gradient(&self) -> Result<Arrays, Diagnostics> {
        let mut arrays = Arrays::new();
        for (parameter, gradient) in self.weights.parameters().zip(&self.gradient) {
            for (name, part) in parameter.split(gradient)? {
                let shape: Vec<usize> = part.size().iter().map(|&size| size as usize).collect();
                let array = ArrayD::from_shape_vec(IxDyn(&shape), to_vec::<f32>(&part)?);
                let array = array.map_err(|error| Diagnostic::error(error.to_string()))?;
                arrays.insert(name, array);
            }
        }
        Ok(arrays)
    }

    /// One step of AdamW along the accumulated gradient, scaled down to `max_grad_norm` (L2, all weights together) where it
    /// is longer; then nothing is accumulated. Gives the norm before scaling, or why the step was left out: the weights and
    /// the optimizer are then as they were.
    ///
    /// # Errors
    /// [`Diagnostics`] where memory does not suffice.
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

    /// Zeros, where nothing was accumulated.
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
        let decoder = Decoder::over(&self.config, &self.weights, &inputs)?;
        let head = Head {
            weight: &self.weights.head().tensor,
            hidden: &decoder.states(|_, heads| inputs.sight.attend(&heads))?,
            tokens: &inputs.targets,
        };
        let (logp, entropy) = head.scores()?;
        Ok((to_vec::<f32>(&logp)?, to_vec::<f32>(&entropy)?))
    }

    fn accumulate_batch(&mut self, batch: &MicroBatch, dloss_dlogp: &[f64]) -> torch::Result<()> {
        self.begin_gradient()?;
        let dlogp = torch::floats(&batch.read(dloss_dlogp), self.compute.device)?;
        let inputs = batch.inputs(self.compute.device)?;
        let decoder = Decoder::over(&self.config, &self.weights, &inputs)?;
        let graph = Graph::new(decoder, &inputs.sight, self.compute.gradient_checkpointing)?;
        let head = Head {
            weight: &self.weights.head().tensor,
            hidden: &graph.hidden.f_detach()?,
            tokens: &inputs.targets,
        };
        let head_index = self.weights.head_index();
        let dhidden = head.gradient(&dlogp, &mut self.gradient[head_index])?;
        graph.backward(dhidden, &mut self.gradient)
    }

    fn check(&self, prompts: &[Prompt], responses: &Responses) -> Result<(), Diagnostics> {
        let vocabulary = self.config.vocabulary;
        let unknown = |tokens: &[u32]| {
            let token = tokens
                .iter()
                .find(|&&token| i64::from(token) >= vocabulary)?;
            Some(format!(
                "has the token {token}; the vocabulary has {vocabulary}"
            ))
        };
        for (index, prompt) in prompts.iter().enumerate() {
            let wrong = match prompt.tokens.is_empty() {
                true => Some("is empty, so nothing gives the first token's log-prob".to_string()),
                false => unknown(&prompt.tokens),
            };
            if let Some(wrong) = wrong {
                return Err(Diagnostic::error(format!("prompt {index} {wrong}")).into());
            }
        }
        for (index, &prompt) in responses.prompts().iter().enumerate() {
            let wrong = match prompt >= prompts.len() {
                true => Some(format!(
                    "belongs to prompt {prompt}; the batch has {}",
                    prompts.len()
                )),
                false => unknown(responses.response(index)),
            };
            if let Some(wrong) = wrong {
                return Err(Diagnostic::error(format!("response {index} {wrong}")).into());
            }
        }
        Ok(())
    }
}
