//! The embedded policy: an MLP over the raw features of the prompt and the tokens so far, on the CPU.

mod backward;
mod forward;
mod network;

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::{AdamW, AdamWConfig, Arrays, NonFinite, Policy, Responses, Samples, Scores};
use crate::task::{Prompt, TaskShape};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::random::{Purpose, StreamKey};
use backward::add_gradient;
use forward::{CHUNK, Pass, TokenSource, Trie, parts};
use network::{Network, Sizes};

/// The forward pass of a batch is remembered up to this many tokens (2 KiB each at a width of 256).
const REMEMBERED: usize = 1 << 17;

/// Its files of a checkpoint: the policy with its optimizer, and the reference.
const POLICY: &str = "policy.safetensors";
const REFERENCE: &str = "reference.safetensors";

/// Gradients of a batch that are in memory before they are added up, whatever the threads.
const GRADIENTS: usize = 8;

/// Two hidden layers with ReLU; the inputs are the prompt's features, the tokens so far one-hot by position, and the
/// present position one-hot. Trained with AdamW.
///
/// Weights are [inputs, outputs] in its snapshots. All methods give the same bits for any number of threads.
pub struct Mlp {
    network: Arc<Network<f32>>,
    optimizer: AdamW,
    gradient: Vec<f32>,
    /// The last forward pass with the present parameters, if it has its hidden layers: an update on the batch that was just
    /// sampled or scored finds them here. Recomputing them would give the same bits.
    last: Option<Pass>,
    reference: Arc<Network<f32>>,
    savepoint: Option<(Arc<Network<f32>>, AdamW)>,
}

impl Mlp {
    /// A policy for a task, `hidden` (at least 1) wide, with PyTorch's default initialization drawn from `seed`.
    pub fn new(task: &TaskShape, hidden: usize, adamw: AdamWConfig, seed: u64) -> Self {
        let sizes = Sizes {
            task: *task,
            hidden: hidden.max(1),
        };
        let key = StreamKey::new(seed, Purpose::Initialization, 0);
        let network = Arc::new(Network::initial(sizes, &mut key.stream(0)));
        Self {
            reference: Arc::clone(&network),
            savepoint: None,
            network,
            optimizer: AdamW::new(adamw, sizes.count()),
            gradient: vec![0.0; sizes.count()],
            last: None,
        }
    }

    /// All that training needs to go on to the same numbers: parameters and the optimizer's state, but no gradient that
    /// is still being accumulated.
    pub fn snapshot(&self) -> Arrays {
        network::snapshot(&self.network, Some(&self.optimizer))
    }

    /// Goes back to a snapshot of a policy of the same sizes; a gradient that is being accumulated is dropped.
    ///
    /// # Errors
    /// [`Diagnostics`] if it has other arrays than this policy's; the policy is then as it was.
    pub fn restore(&mut self, state: &Arrays) -> Result<(), Diagnostics> {
        let network = Arc::make_mut(&mut self.network);
        network::restore(network, Some(&mut self.optimizer), state)?;
        self.gradient.fill(0.0);
        self.last = None;
        Ok(())
    }

    /// A forward pass, which is remembered if it is not too large.
    fn pass<'a>(
        &mut self,
        prompts: &[Prompt],
        owners: &[usize],
        source: impl Fn(usize) -> TokenSource<'a> + Sync,
    ) -> Samples {
        // The old one goes before the new one comes.
        self.last = None;
        let pass = Pass::new(&self.network, prompts, owners, source, REMEMBERED);
        let samples = pass.samples.clone();
        self.last = Some(pass).filter(|pass| pass.is_whole);
        samples
    }

    /// Whether the network can read these responses to these prompts.
    fn check(&self, prompts: &[Prompt], responses: &Responses) -> Result<(), Diagnostics> {
        let task = self.network.sizes.task;
        let expected = task.prompt_features;
        let found = prompts.iter().map(|prompt| prompt.features.len());
        if let Some((index, found)) = found.enumerate().find(|(_, found)| *found != expected) {
            let message =
                format!("prompt {index} has {found} features; this policy reads {expected}");
            return Err(Diagnostic::error(message).into());
        }
        responses.check(prompts.len(), task.vocabulary, task.max_response_tokens)
    }
}

impl Policy for Mlp {
    /// Tokens are drawn at temperature 1, those of response i of the batch with stream i of the key.
    fn sample(
        &mut self,
        prompts: &[Prompt],
        group_size: usize,
        key: StreamKey,
    ) -> Result<Samples, Diagnostics> {
        self.check(prompts, &Responses::new())?;
        let owners = (0..prompts.len()).flat_map(|p| std::iter::repeat_n(p, group_size));
        let owners: Vec<usize> = owners.collect();
        let source = |response| TokenSource::Sample(Box::new(key.stream(response as u64)));
        Ok(self.pass(prompts, &owners, source))
    }

    /// The same bits whatever else is in the batch, and whether the tokens were just sampled or are scored again.
    fn score(&mut self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, Diagnostics> {
        self.check(prompts, responses)?;
        let source = |response| TokenSource::Given(responses.response(response));
        Ok(self.pass(prompts, responses.prompts(), source).scores)
    }

    fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), Diagnostics> {
        self.check(prompts, responses)?;
        responses.check_values(dloss_dlogp)?;
        let network = &*self.network;
        let is_same =
            |last: &&Pass| last.samples.responses == *responses && last.prompts == prompts;
        let last = self.last.as_ref().filter(is_same);
        let owners = responses.prompts();
        let parts = parts(prompts.len(), owners, CHUNK);
        let count = GRADIENTS.min(parts.len());
        let sums = (0..count).into_par_iter().with_max_len(1).map(|index| {
            let mut sum = Network::zeros(network.sizes);
            let first = |index: usize| index * parts.len() / count;
            let parts = parts.iter().enumerate();
            for (chunk, part) in parts.take(first(index + 1)).skip(first(index)) {
                let own = chunk * CHUNK..(chunk + 1) * CHUNK;
                let grown;
                let trie = match last {
                    Some(last) => last.trie(own.start),
                    None => {
                        let source = |response| TokenSource::Given(responses.response(response));
                        grown = Trie::grow(network, prompts, owners, part, source, true);
                        &grown
                    }
                };
                add_gradient(
                    &mut sum,
                    trie,
                    network,
                    prompts,
                    own,
                    responses,
                    dloss_dlogp,
                );
            }
            sum
        });
        let sums: Vec<Network<f32>> = sums.collect();
        // For each parameter in the order of the sums.
        let blocks = self.gradient.par_chunks_mut(BLOCK).enumerate();
        blocks.for_each(|(index, sum)| {
            for gradient in &sums {
                network::add(sum, &gradient.values[index * BLOCK..]);
            }
        });
        Ok(())
    }

    fn update(
        &mut self,
        max_grad_norm: Option<f64>,
    ) -> Result<Result<f64, NonFinite>, Diagnostics> {
        let (squares, is_squarable) = sum_of_squares(&self.gradient);
        let norm = squares.sqrt();
        if !norm.is_finite() || !is_squarable {
            self.gradient.fill(0.0);
            return Ok(Err(NonFinite::Gradient(norm)));
        }
        if let Some(max) = max_grad_norm.filter(|&max| norm > max) {
            let scale = (max / norm) as f32;
            self.gradient.iter_mut().for_each(|g| *g *= scale);
        }
        let network = Arc::make_mut(&mut self.network);
        let updated = self.optimizer.update(&mut network.values, &self.gradient);
        self.gradient.fill(0.0);
        if !updated {
            return Ok(Err(NonFinite::Parameters));
        }
        self.last = None;
        Ok(Ok(norm))
    }

    fn set_lr(&mut self, lr: f64) {
        self.optimizer.config.lr = lr;
    }

    /// Nothing is copied until the policy changes.
    fn freeze(&mut self) -> Result<(), Diagnostics> {
        self.reference = Arc::clone(&self.network);
        Ok(())
    }

    fn reference_logp(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
    ) -> Result<Vec<f32>, Diagnostics> {
        self.check(prompts, responses)?;
        let source = |response| TokenSource::Given(responses.response(response));
        let pass = Pass::new(&self.reference, prompts, responses.prompts(), source, 0);
        Ok(pass.samples.scores.logp)
    }

    fn savepoint(&mut self) -> Result<(), Diagnostics> {
        self.savepoint = Some((Arc::clone(&self.network), self.optimizer.clone()));
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), Diagnostics> {
        if let Some((network, optimizer)) = self.savepoint.take() {
            (self.network, self.optimizer) = (network, optimizer);
            self.gradient.fill(0.0);
            self.last = None;
        }
        Ok(())
    }

    fn save(&mut self, folder: &Path) -> Result<(), Diagnostics> {
        let sizes = self.network.sizes;
        network::write(&folder.join(POLICY), sizes, &self.snapshot())?;
        let reference = network::snapshot(&self.reference, None);
        network::write(&folder.join(REFERENCE), sizes, &reference)
    }

    fn load(&mut self, folder: &Path) -> Result<(), Diagnostics> {
        let mut reference = Network::clone(&self.reference);
        let arrays = network::read(&folder.join(REFERENCE))?;
        network::restore(&mut reference, None, &arrays)?;
        self.restore(&network::read(&folder.join(POLICY))?)?;
        self.reference = Arc::new(reference);
        Ok(())
    }
}

/// Parameters that a thread works on at a time.
const BLOCK: usize = 1 << 13;

/// The sum of the squares, and whether the optimizer, which squares in f32, can square each of them too: what overflows
/// there would stay infinite in its moments for ever.
fn sum_of_squares(gradient: &[f32]) -> (f64, bool) {
    let blocks = gradient.par_chunks(BLOCK).map(|block| {
        let is_squarable = block.iter().fold(true, |all, &g| all & (g * g).is_finite());
        // Lanes, so that sums are not one long chain.
        let mut lanes = [0.0; 8];
        for eight in block.chunks(lanes.len()) {
            for (lane, &g) in lanes.iter_mut().zip(eight) {
                *lane += f64::from(g) * f64::from(g);
            }
        }
        (lanes.iter().sum::<f64>(), is_squarable)
    });
    let blocks: Vec<(f64, bool)> = blocks.collect();
    let sum = blocks.iter().map(|(sum, _)| sum).sum();
    (sum, blocks.iter().all(|(_, is_squarable)| *is_squarable))
}
