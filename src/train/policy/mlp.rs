//! The embedded policy: an MLP over the raw features of the prompt and the tokens so far, on the CPU.

mod backward;
mod chunks;
mod network;
mod state;
mod trie;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

use super::{AdamW, AdamWConfig, Arrays, NonFinite, Policy, Responses, Samples, Scorer, Scores};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::random::{Key, Purpose};
use crate::train::task::{Prompt, TaskShape};
use chunks::{Chunk, WAVE, check, check_prompts, chunks, given, grow};
use network::{Network, Sizes};
use trie::{Source, Trie};

/// The forward pass of a batch is remembered up to this many nodes (2 KiB each at a width of 256).
const REMEMBERED_NODES: usize = 1 << 17;

/// Two hidden layers with ReLU; the inputs are the prompt's features, the tokens so far one-hot by position, and the
/// present position one-hot. Trained with AdamW.
///
/// Weights are [inputs, outputs] in its snapshots.
pub struct Mlp {
    network: Arc<Network<f32>>,
    optimizer: AdamW,
    gradient: Vec<f32>,
    /// The last forward pass with the present parameters: an update on the batch that was just sampled or scored finds
    /// its activations here. Recomputing them would give the same bits.
    last: Mutex<Option<Pass>>,
}

/// A forward pass, and the responses that it was for.
#[derive(Default)]
struct Pass {
    prompts: Vec<Prompt>,
    responses: Responses,
    scores: Scores,
    /// One a chunk; none where they have more than [`REMEMBERED_NODES`] nodes.
    tries: Vec<Trie<f32>>,
    nodes: usize,
}

impl Pass {
    fn is_of(&self, prompts: &[Prompt], responses: &Responses) -> bool {
        self.responses == *responses && self.prompts == prompts
    }

    fn keep(&mut self, trie: Trie<f32>) {
        self.nodes += trie.nodes.len();
        if self.is_remembered() {
            self.tries.push(trie);
        } else {
            self.tries.clear();
        }
    }

    fn is_remembered(&self) -> bool {
        self.nodes <= REMEMBERED_NODES
    }
}

impl Mlp {
    /// A policy for a task, `hidden` (at least 1) wide, with PyTorch's default initialization drawn from `seed`.
    pub fn new(task: &TaskShape, hidden: usize, adamw: AdamWConfig, seed: u64) -> Self {
        let sizes = Sizes::new(task, hidden.max(1));
        let key = Key::new(seed, Purpose::Initialization, 0);
        Self {
            network: Arc::new(Network::initial(sizes, &mut key.stream(0))),
            optimizer: AdamW::new(adamw, sizes.count()),
            gradient: vec![0.0; sizes.count()],
            last: Mutex::new(None),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Pass>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scorer for Mlp {
    fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, Diagnostics> {
        check(&self.network.sizes, prompts, responses)?;
        let last = self.last().take();
        if let Some(pass) = last.filter(|pass| pass.is_of(prompts, responses)) {
            let scores = pass.scores.clone();
            *self.last() = Some(pass);
            return Ok(scores);
        }
        let pass = score(&self.network, prompts, responses, true);
        let scores = pass.scores.clone();
        *self.last() = Some(pass).filter(Pass::is_remembered);
        Ok(scores)
    }

    fn parameters(&self) -> Arrays {
        state::parameters(&self.network)
    }
}

impl Policy for Mlp {
    fn sample(
        &self,
        prompts: &[Prompt],
        group_size: usize,
        key: Key,
    ) -> Result<Samples, Diagnostics> {
        check_prompts(&self.network.sizes, prompts)?;
        let owners = (0..prompts.len()).flat_map(|p| std::iter::repeat_n(p, group_size));
        let batch = chunks(prompts, owners);
        let source = |chunk: &Chunk<'_>| {
            let streams = chunk.responses.iter().map(|&r| key.stream(r as u64));
            Source::Sample(streams.collect())
        };
        let mut pass = Pass {
            prompts: prompts.to_vec(),
            ..Pass::default()
        };
        for wave in batch.chunks(WAVE) {
            for (chunk, trie) in wave.iter().zip(grow(&self.network, wave, source)) {
                // Chunks and the responses in them follow the order of the batch, so all can be appended.
                for (index, &response) in chunk.responses.iter().enumerate() {
                    let tokens = &trie.tokens[index];
                    pass.responses.push(response / group_size, tokens);
                    let (logp, entropy) = trie.scores(index);
                    pass.scores.logp.extend(logp);
                    pass.scores.entropy.extend(entropy);
                }
                pass.keep(trie);
            }
        }
        let (responses, scores) = (pass.responses.clone(), pass.scores.clone());
        *self.last() = Some(pass).filter(Pass::is_remembered);
        Ok(Samples { responses, scores })
    }

    fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), Diagnostics> {
        check(&self.network.sizes, prompts, responses)?;
        if dloss_dlogp.len() != responses.tokens().len() {
            let (found, expected) = (dloss_dlogp.len(), responses.tokens().len());
            let message =
                format!("dloss/dlogp has {found} values; the responses have {expected} tokens");
            return Err(Diagnostic::error(message).into());
        }
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref().filter(|pass| pass.is_of(prompts, responses));
        let network = &*self.network;
        let batch = chunks(prompts, responses.prompts().iter().copied());
        for (wave, chunks) in batch.chunks(WAVE).enumerate() {
            let gradients: Vec<Network<f32>> = chunks
                .par_iter()
                .enumerate()
                .map(|(index, chunk)| {
                    let derivatives: Vec<&[f64]> = chunk
                        .responses
                        .iter()
                        .map(|&r| &dloss_dlogp[responses.range(r)])
                        .collect();
                    if let Some(pass) = last {
                        let trie = &pass.tries[wave * WAVE + index];
                        return trie.gradient(network, chunk.prompts, &derivatives);
                    }
                    let source = given(responses)(chunk);
                    let trie = Trie::grow(network, chunk.prompts, &chunk.owners, source);
                    trie.gradient(network, chunk.prompts, &derivatives)
                })
                .collect();
            add_in_order(&mut self.gradient, &gradients);
        }
        Ok(())
    }

    fn update(&mut self, max_grad_norm: Option<f64>) -> Result<f64, NonFinite> {
        let squares = self.gradient.iter().map(|&g| f64::from(g) * f64::from(g));
        let norm = squares.sum::<f64>().sqrt();
        // The optimizer squares in f32: what overflows there would stay infinite in its moments for ever.
        let is_too_large = self.gradient.iter().any(|&g| !(g * g).is_finite());
        if !norm.is_finite() || is_too_large {
            self.gradient.fill(0.0);
            return Err(NonFinite::Gradient { norm });
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
        *self.last() = None;
        Ok(norm)
    }

    fn snapshot(&self) -> Arrays {
        state::snapshot(&self.network, &self.optimizer)
    }

    fn restore(&mut self, state: &Arrays) -> Result<(), Diagnostics> {
        let (network, optimizer) = state::restored(self.network.sizes, &self.optimizer, state)?;
        self.network = Arc::new(network);
        self.optimizer = optimizer;
        self.gradient.fill(0.0);
        *self.last() = None;
        Ok(())
    }

    fn frozen(&self) -> Box<dyn Scorer> {
        Box::new(Arc::clone(&self.network))
    }

    fn frozen_from(&self, parameters: &Arrays) -> Result<Box<dyn Scorer>, Diagnostics> {
        let network = state::network(self.network.sizes, parameters)?;
        Ok(Box::new(Arc::new(network)))
    }
}

/// As a reference: parameters that give log-probs and never change.
impl Scorer for Arc<Network<f32>> {
    fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, Diagnostics> {
        check(&self.sizes, prompts, responses)?;
        Ok(score(self, prompts, responses, false).scores)
    }

    fn parameters(&self) -> Arrays {
        state::parameters(self)
    }
}

/// The forward pass of given responses, with its tries if `is_kept` and they are few enough.
fn score(network: &Network<f32>, prompts: &[Prompt], responses: &Responses, is_kept: bool) -> Pass {
    let zeros = vec![0.0; responses.tokens().len()];
    let mut pass = Pass {
        prompts: prompts.to_vec(),
        responses: responses.clone(),
        scores: Scores {
            logp: zeros.clone(),
            entropy: zeros,
        },
        ..Pass::default()
    };
    let batch = chunks(prompts, responses.prompts().iter().copied());
    for wave in batch.chunks(WAVE) {
        for (chunk, trie) in wave.iter().zip(grow(network, wave, given(responses))) {
            for (index, &response) in chunk.responses.iter().enumerate() {
                let (logp, entropy) = trie.scores(index);
                let tokens = responses.range(response).zip(logp.zip(entropy));
                for (token, (logp, entropy)) in tokens {
                    (pass.scores.logp[token], pass.scores.entropy[token]) = (logp, entropy);
                }
            }
            if is_kept {
                pass.keep(trie);
            }
        }
    }
    pass
}

impl Trie<f32> {
    /// Log-prob and entropy of each token of a response.
    fn scores(&self, response: usize) -> (impl Iterator<Item = f32>, impl Iterator<Item = f32>) {
        let vocabulary = self.logp.len() / self.nodes.len().max(1);
        let visits = &self.visits[response];
        let tokens = visits.iter().zip(&self.tokens[response]);
        let logp =
            tokens.map(move |(&node, &token)| self.logp[node * vocabulary + token as usize] as f32);
        let entropy = visits.iter().map(|&node| self.entropy[node] as f32);
        (logp, entropy)
    }
}

/// Adds the chunks' gradients to `sum`, for each parameter in the order of the chunks.
fn add_in_order(sum: &mut [f32], gradients: &[Network<f32>]) {
    /// Parameters that a thread adds up at a time.
    const BLOCK: usize = 1 << 13;
    sum.par_chunks_mut(BLOCK)
        .enumerate()
        .for_each(|(index, sum)| {
            for gradient in gradients {
                let start = index * BLOCK;
                network::add(sum, &gradient.values[start..start + sum.len()]);
            }
        });
}
