//! The embedded policy: an MLP over the raw features of the prompt and the tokens so far, on the CPU.

mod backward;
mod forward;
mod network;
mod trie;

use std::sync::Arc;

use rayon::prelude::*;

use super::{AdamW, AdamWConfig, Arrays, NonFinite, Responses, Samples, Scores};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::random::{Key, Purpose};
use crate::train::task::{Prompt, TaskShape};
use forward::{CHUNK, ForwardPass, check, parts};
use network::{Network, Sizes};
use trie::{TokenSource, Trie};

/// The forward pass of a batch is remembered up to this many tokens (2 KiB each at a width of 256).
const REMEMBERED: usize = 1 << 17;

/// Chunks whose gradients are in memory at a time.
const WAVE: usize = 64;

/// Two hidden layers with ReLU; the inputs are the prompt's features, the tokens so far one-hot by position, and the
/// present position one-hot. Trained with AdamW.
///
/// Weights are [inputs, outputs] in its snapshots. All methods give the same bits for any number of threads.
pub struct Mlp {
    network: Arc<Network<f32>>,
    optimizer: AdamW,
    gradient: Vec<f32>,
    /// The last forward pass with the present parameters: an update on the batch that was just sampled or scored finds
    /// its activations here. Recomputing them would give the same bits.
    last: Option<ForwardPass>,
}

/// A policy that stays as it was, for log-probs to compare with.
pub struct Reference(Arc<Network<f32>>);

impl Reference {
    /// As [`Mlp::score`].
    ///
    /// # Errors
    /// As [`Mlp::score`].
    pub fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, Diagnostics> {
        Ok(ForwardPass::of(&self.0, prompts, responses, 0)?
            .samples
            .scores)
    }

    /// The parameters, from which [`Mlp::frozen_from`] makes the same reference again.
    pub fn parameters(&self) -> Arrays {
        network::parameters(&self.0)
    }
}

impl Mlp {
    /// A policy for a task, `hidden` (at least 1) wide, with PyTorch's default initialization drawn from `seed`.
    pub fn new(task: &TaskShape, hidden: usize, adamw: AdamWConfig, seed: u64) -> Self {
        let sizes = Sizes {
            task: *task,
            hidden: hidden.max(1),
        };
        let key = Key::new(seed, Purpose::Initialization, 0);
        Self {
            network: Arc::new(Network::initial(sizes, &mut key.stream(0))),
            optimizer: AdamW::new(adamw, sizes.count()),
            gradient: vec![0.0; sizes.count()],
            last: None,
        }
    }

    /// `group_size` responses to each prompt, each until its stop token or the task's longest response; the tokens are
    /// drawn at temperature 1, those of response i of the batch with stream i of the key.
    ///
    /// # Errors
    /// [`Diagnostics`] where a prompt is not of the task's sizes.
    pub fn sample(
        &mut self,
        prompts: &[Prompt],
        group_size: usize,
        key: Key,
    ) -> Result<Samples, Diagnostics> {
        check(&self.network.sizes, prompts, &Responses::new())?;
        let owners = (0..prompts.len()).flat_map(|p| std::iter::repeat_n(p, group_size));
        let owners: Vec<usize> = owners.collect();
        let source = |response| TokenSource::Sample(Box::new(key.stream(response as u64)));
        let pass = ForwardPass::new(&self.network, prompts, &owners, source, REMEMBERED);
        Ok(self.last.insert(pass).samples.clone())
    }

    /// Log-prob (nats, at temperature 1) of each response token given its prompt and the tokens before it, and the
    /// entropy (nats) of the distribution that it was drawn from.
    ///
    /// The same parameters, prompts and responses give the same bits, whatever else is in the batch, and whether the
    /// tokens were just sampled or are scored again.
    ///
    /// # Errors
    /// [`Diagnostics`] where the prompts or responses are not of the task's sizes.
    pub fn score(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
    ) -> Result<Scores, Diagnostics> {
        let pass = ForwardPass::of(&self.network, prompts, responses, REMEMBERED)?;
        Ok(self.last.insert(pass).samples.scores.clone())
    }

    /// Adds the gradient of a loss to what [`Mlp::update`] will follow: `dloss_dlogp` is the derivative of the loss
    /// by the log-prob of each token, `[responses.tokens().len()]`, at the present parameters.
    ///
    /// # Errors
    /// [`Diagnostics`] where the sizes do not fit; the gradient is then as it was.
    pub fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), Diagnostics> {
        let network = &*self.network;
        check(&network.sizes, prompts, responses)?;
        let (found, expected) = (dloss_dlogp.len(), responses.tokens().len());
        if found != expected {
            let message =
                format!("dloss/dlogp has {found} values; the responses have {expected} tokens");
            return Err(Diagnostic::error(message).into());
        }
        let last = self.last.as_ref();
        let last = last.filter(|pass| {
            pass.is_whole && pass.samples.responses == *responses && pass.prompts == prompts
        });
        let (owners, size) = (responses.prompts(), last.map_or(CHUNK, |pass| pass.size));
        let parts = parts(prompts.len(), owners, size);
        let chunks = (0..prompts.len()).step_by(CHUNK);
        let gradient = |&first: &usize| {
            let (part, own) = (first / size, first..first + CHUNK);
            if let Some(pass) = last {
                return pass.tries[part].gradient(network, prompts, own, responses, dloss_dlogp);
            }
            let source = |response| TokenSource::Given(responses.response(response));
            let trie = Trie::grow(network, prompts, owners, parts[part].clone(), source);
            trie.gradient(network, prompts, own, responses, dloss_dlogp)
        };
        for wave in chunks.collect::<Vec<_>>().chunks(WAVE) {
            let gradients: Vec<Network<f32>> = wave.par_iter().map(gradient).collect();
            add_in_order(&mut self.gradient, &gradients);
        }
        Ok(())
    }

    /// One step of the optimizer along the accumulated gradient, scaled down to `max_grad_norm` (L2, all parameters
    /// together) where it is longer; then the gradient is zero again. Gives the norm before scaling.
    ///
    /// # Errors
    /// [`NonFinite`]; the parameters and the optimizer stay as they were, the gradient is dropped.
    pub fn update(&mut self, max_grad_norm: Option<f64>) -> Result<f64, NonFinite> {
        let squares = self.gradient.iter().map(|&g| f64::from(g) * f64::from(g));
        let norm = squares.sum::<f64>().sqrt();
        // The optimizer squares in f32: what overflows there would stay infinite in its moments for ever.
        let is_too_large = self.gradient.iter().any(|&g| !(g * g).is_finite());
        if !norm.is_finite() || is_too_large {
            self.gradient.fill(0.0);
            return Err(NonFinite::Gradient(norm));
        }
        if let Some(max) = max_grad_norm.filter(|&max| norm > max) {
            let scale = (max / norm) as f32;
            self.gradient.iter_mut().for_each(|g| *g *= scale);
        }
        let network = Arc::make_mut(&mut self.network);
        let before = (network.values.clone(), self.optimizer.clone());
        self.optimizer.update(&mut network.values, &self.gradient);
        self.gradient.fill(0.0);
        if network.values.iter().any(|value| !value.is_finite()) {
            (network.values, self.optimizer) = before;
            return Err(NonFinite::Parameters);
        }
        self.last = None;
        Ok(norm)
    }

    /// All that training needs to go on to the same numbers: parameters and the optimizer's state, but no gradient that
    /// is still being accumulated.
    pub fn snapshot(&self) -> Arrays {
        network::snapshot(&self.network, &self.optimizer)
    }

    /// Goes back to a snapshot of a policy of the same sizes; a gradient that is being accumulated is dropped.
    ///
    /// # Errors
    /// [`Diagnostics`] where it has other arrays than this policy's; the policy is then as it was.
    pub fn restore(&mut self, state: &Arrays) -> Result<(), Diagnostics> {
        let network = Arc::make_mut(&mut self.network);
        network::restore(network, &mut self.optimizer, state)?;
        self.gradient.fill(0.0);
        self.last = None;
        Ok(())
    }

    /// The policy as it is now, as a reference; cheap, as nothing is copied until the policy changes.
    pub fn frozen(&self) -> Reference {
        Reference(Arc::clone(&self.network))
    }

    /// A reference of this policy's sizes with the parameters of [`Reference::parameters`].
    ///
    /// # Errors
    /// As [`Mlp::restore`].
    pub fn frozen_from(&self, parameters: &Arrays) -> Result<Reference, Diagnostics> {
        let network = network::with_parameters(&self.network, parameters)?;
        Ok(Reference(Arc::new(network)))
    }
}

/// Adds the chunks' gradients to `sum`, for each parameter in the order of the chunks.
fn add_in_order(sum: &mut [f32], gradients: &[Network<f32>]) {
    /// Parameters that a thread adds up at a time.
    const BLOCK: usize = 1 << 13;
    let blocks = sum.par_chunks_mut(BLOCK).enumerate();
    blocks.for_each(|(index, sum)| {
        for gradient in gradients {
            network::add(sum, &gradient.values[index * BLOCK..]);
        }
    });
}
