//! The embedded policy: an MLP over the raw features of the prompt and the tokens so far, on the CPU.

mod backward;
mod chunks;
mod forest;
mod network;
mod state;

use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use super::{
    AdamW, AdamWConfig, Decoding, Policy, PolicyError, Responses, Samples, Scorer, Scores, State,
};
use crate::train::random::{Key, Purpose};
use crate::train::task::{Prompt, TaskShape};
use chunks::{Chunk, WAVE, check, check_prompts, chunks, given, grow};
use forest::{Forest, Source};
use network::{Network, Sizes};

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

/// A forward pass with what it was for.
struct Pass {
    prompts: Vec<Prompt>,
    responses: Responses,
    scores: Scores,
    /// One for each chunk.
    forests: Vec<Forest<f32>>,
}

impl Pass {
    fn is_of(&self, prompts: &[Prompt], responses: &Responses) -> bool {
        self.responses == *responses && self.prompts == prompts
    }
}

impl Mlp {
    /// A policy for a task, `hidden` (at least 1) wide, with PyTorch's default initialization drawn from `seed`.
    pub fn new(task: &TaskShape, hidden: usize, adamw: AdamWConfig, seed: u64) -> Self {
        let sizes = Sizes::new(task, hidden.max(1));
        let key = Key {
            seed,
            purpose: Purpose::Initialization,
            step: 0,
        };
        Self {
            network: Arc::new(Network::initial(sizes, &mut key.stream(0))),
            optimizer: AdamW::new(adamw, sizes.count()),
            gradient: vec![0.0; sizes.count()],
            last: Mutex::new(None),
        }
    }

    fn forget(&mut self) {
        *self.last.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn remember(&self, pass: Option<Pass>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = pass;
    }
}

impl Scorer for Mlp {
    fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, PolicyError> {
        check(&self.network.sizes, prompts, responses)?;
        {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(pass) = &*last
                && pass.is_of(prompts, responses)
            {
                return Ok(pass.scores.clone());
            }
        }
        let batch = chunks(prompts, responses.prompts().iter().copied());
        let mut forests = Kept::new();
        let scores = score(&self.network, &batch, responses, &mut forests);
        self.remember(forests.pass(prompts, responses, &scores));
        Ok(scores)
    }

    fn parameters(&self) -> State {
        state::parameters(&self.network)
    }
}

impl Policy for Mlp {
    fn sample(
        &self,
        prompts: &[Prompt],
        group_size: usize,
        decoding: Decoding,
    ) -> Result<Samples, PolicyError> {
        check_prompts(&self.network.sizes, prompts)?;
        let owners = (0..prompts.len()).flat_map(|p| std::iter::repeat_n(p, group_size));
        let batch = chunks(prompts, owners);
        let source = |chunk: &Chunk<'_>| match decoding {
            Decoding::Sample(key) => {
                let streams = chunk.responses.iter().map(|&r| key.stream(r as u64));
                Source::Sample(streams.collect())
            }
            Decoding::Greedy => Source::Greedy,
        };
        let mut forests = Kept::new();
        let mut responses = Responses::new();
        let mut scores = Scores::default();
        for wave in batch.chunks(WAVE) {
            for (chunk, forest) in wave.iter().zip(grow(&self.network, wave, source)) {
                // Chunks and the responses in them follow the order of the batch, so all can be appended.
                for (index, &response) in chunk.responses.iter().enumerate() {
                    responses.push(response / group_size, &forest.tokens[index]);
                    let (logp, entropy) = forest.scores(index);
                    scores.logp.extend(logp);
                    scores.entropy.extend(entropy);
                }
                forests.keep(forest);
            }
        }
        self.remember(forests.pass(prompts, &responses, &scores));
        Ok(Samples { responses, scores })
    }

    fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), PolicyError> {
        check(&self.network.sizes, prompts, responses)?;
        if dloss_dlogp.len() != responses.tokens().len() {
            return Err(PolicyError::GradientLength {
                found: dloss_dlogp.len(),
                expected: responses.tokens().len(),
            });
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
                        let forest = &pass.forests[wave * WAVE + index];
                        return forest.gradient(network, chunk.prompts, &derivatives);
                    }
                    let source = given(responses)(chunk);
                    let forest = Forest::grow(network, chunk.prompts, &chunk.owners, source);
                    forest.gradient(network, chunk.prompts, &derivatives)
                })
                .collect();
            add_in_order(&mut self.gradient, &gradients);
        }
        Ok(())
    }

    fn update(&mut self, max_grad_norm: Option<f64>) -> Result<f64, PolicyError> {
        let squares = self.gradient.iter().map(|&g| f64::from(g) * f64::from(g));
        let norm = squares.sum::<f64>().sqrt();
        // The optimizer squares in f32: what overflows there would stay infinite in its moments for ever.
        let is_too_large = self.gradient.iter().any(|&g| !(g * g).is_finite());
        if !norm.is_finite() || is_too_large {
            self.gradient.fill(0.0);
            return Err(PolicyError::NonFiniteGradient { norm });
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
            return Err(PolicyError::NonFiniteParameters);
        }
        self.forget();
        Ok(norm)
    }

    fn snapshot(&self) -> State {
        state::snapshot(&self.network, &self.optimizer)
    }

    fn restore(&mut self, state: &State) -> Result<(), PolicyError> {
        let (network, optimizer) = state::restored(self.network.sizes, &self.optimizer, state)?;
        self.network = Arc::new(network);
        self.optimizer = optimizer;
        self.gradient.fill(0.0);
        self.forget();
        Ok(())
    }

    fn frozen(&self) -> Box<dyn Scorer> {
        Box::new(FrozenMlp {
            network: Arc::clone(&self.network),
        })
    }

    fn frozen_from(&self, parameters: &State) -> Result<Box<dyn Scorer>, PolicyError> {
        let network = Arc::new(state::network(self.network.sizes, parameters)?);
        Ok(Box::new(FrozenMlp { network }))
    }
}

/// Parameters that give log-probs and never change.
struct FrozenMlp {
    network: Arc<Network<f32>>,
}

impl Scorer for FrozenMlp {
    fn score(&self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, PolicyError> {
        check(&self.network.sizes, prompts, responses)?;
        let batch = chunks(prompts, responses.prompts().iter().copied());
        Ok(score(&self.network, &batch, responses, &mut Kept::none()))
    }

    fn parameters(&self) -> State {
        state::parameters(&self.network)
    }
}

/// The forests of a forward pass, as long as they are few enough to be remembered.
struct Kept {
    forests: Option<Vec<Forest<f32>>>,
    nodes: usize,
}

impl Kept {
    fn new() -> Self {
        Self {
            forests: Some(Vec::new()),
            nodes: 0,
        }
    }

    fn none() -> Self {
        Self {
            forests: None,
            nodes: 0,
        }
    }

    fn keep(&mut self, forest: Forest<f32>) {
        self.nodes += forest.nodes.len();
        if self.nodes > REMEMBERED_NODES {
            self.forests = None;
        }
        if let Some(forests) = &mut self.forests {
            forests.push(forest);
        }
    }

    fn pass(self, prompts: &[Prompt], responses: &Responses, scores: &Scores) -> Option<Pass> {
        self.forests.map(|forests| Pass {
            prompts: prompts.to_vec(),
            responses: responses.clone(),
            scores: scores.clone(),
            forests,
        })
    }
}

fn score(
    network: &Network<f32>,
    batch: &[Chunk<'_>],
    responses: &Responses,
    forests: &mut Kept,
) -> Scores {
    let mut scores = Scores {
        logp: vec![0.0; responses.tokens().len()],
        entropy: vec![0.0; responses.tokens().len()],
    };
    for wave in batch.chunks(WAVE) {
        for (chunk, forest) in wave.iter().zip(grow(network, wave, given(responses))) {
            for (index, &response) in chunk.responses.iter().enumerate() {
                let (logp, entropy) = forest.scores(index);
                let range = responses.range(response);
                let places = scores.logp[range.clone()].iter_mut();
                places.zip(logp).for_each(|(place, value)| *place = value);
                let places = scores.entropy[range].iter_mut();
                places
                    .zip(entropy)
                    .for_each(|(place, value)| *place = value);
            }
            forests.keep(forest);
        }
    }
    scores
}

impl Forest<f32> {
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
