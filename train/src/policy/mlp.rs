//! The built-in policy: an MLP over the raw features of the prompt and the tokens so far, on the CPU.

mod network;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::Path;

use rayon::prelude::*;
use serde_json::json;

use super::adamw::AdamW;
use super::tensor_file::{self, TensorFile};
use super::{AdamWConfig, NonFinite, POLICY, Policy, REFERENCE, Responses, Samples, Scores};
use crate::error::Result;
use crate::random::{Purpose, RandomStream, StreamKey};
use crate::task::{Prompt, TaskShape};
use advlab::diagnostic::Diagnostic;
use network::{Forward, Network, draw};

/// The number of responses per pass. It must not depend on the number of threads, because it determines the order in which
/// gradients are summed.
const PART: usize = 256;

/// The maximum number of passes that the policy and the reference each keep in memory, and the maximum number of bytes that these
/// passes may take together if no two responses share a prefix. A single pass may take more bytes. The memory is reused in the
/// next step.
const PASSES: usize = 64;
const MEMORY: usize = 1 << 30;

/// An MLP with two hidden layers and ReLU, trained with AdamW.
///
/// All methods give results with the same bits for any number of threads.
pub struct Mlp {
    network: Network,
    optimizer: AdamW,
    gradient: Vec<f32>,
    reference: Network,
    savepoint: Option<(Network, AdamW)>,
    /// The last passes of the network, and the last passes of the reference.
    passes: [Vec<Forward>; 2],
    /// The responses of the last forward passes; set only if all these passes are in memory. In that case, the gradient needs no
    /// new forward pass.
    last: Option<Responses>,
}

impl Mlp {
    /// Returns a policy for a task, with hidden layers of `hidden` (at least 1) units. The parameters are initialized as PyTorch
    /// does by default, with random numbers from `seed`.
    pub fn new(task: &TaskShape, hidden: usize, adamw: AdamWConfig, seed: u64) -> Self {
        let key = StreamKey::new(seed, Purpose::Initialization, 0);
        let network = Network::new(*task, hidden.max(1), &mut key.stream(0));
        Self {
            reference: network.clone(),
            savepoint: None,
            optimizer: AdamW::new(adamw, network.parameters.len()),
            gradient: vec![0.0; network.parameters.len()],
            network,
            passes: Default::default(),
            last: None,
        }
    }

    /// Checks that the network can read these responses.
    fn check(&self, responses: &Responses) -> Result<()> {
        let task = self.network.task;
        let expected = task.prompt_features;
        let found = responses.prompts().iter().map(|own| own.features.len());
        if let Some((index, found)) = found.enumerate().find(|(_, found)| *found != expected) {
            let message =
                format!("prompt {index} has {found} features; this policy reads {expected}");
            return Err(Diagnostic::error(message).into());
        }
        responses.check(task.vocabulary, task.max_response_tokens)
    }
}

/// Divides responses into parts. Calls `run` for each part with a separate pass, and then `take` with each pass and the result of
/// `run`, in the order of the parts. Returns whether the passes of all parts are still in memory.
fn each_part<T: Send>(
    network: &Network,
    passes: &mut Vec<Forward>,
    responses: &[usize],
    run: impl Fn(&mut Forward, &[usize]) -> T + Sync,
    mut take: impl FnMut(&Forward, T),
) -> bool {
    let parts: Vec<&[usize]> = responses.chunks(PART).collect();
    let at_a_time = (MEMORY / network.most_bytes(PART)).clamp(1, PASSES);
    for parts in parts.chunks(at_a_time) {
        passes.resize_with(parts.len().max(passes.len()), Forward::default);
        let results = passes.par_iter_mut().zip(parts);
        let results = results.map(|(pass, part)| run(pass, part));
        let results: Vec<T> = results.collect();
        let results = passes.iter().zip(results);
        results.for_each(|(pass, result)| take(pass, result));
    }
    parts.len() <= at_a_time
}

/// Returns the indices of the responses that have tokens.
fn with_tokens(responses: &Responses) -> Vec<usize> {
    let has_tokens = |&index: &usize| !responses.range(index).is_empty();
    (0..responses.len()).filter(has_tokens).collect()
}

/// Runs the network for some of the responses.
fn read(pass: &mut Forward, network: &Network, responses: &Responses, part: &[usize]) {
    let owners = part.iter().map(|&index| responses.owners()[index]);
    let next = |at: usize, position: usize, _: &[f64]| {
        let tokens = responses.response(part[at]);
        (tokens[position], position + 1 == tokens.len())
    };
    pass.run(network, responses.prompts(), owners, false, next);
}

/// Returns the scores of responses, and whether the passes of all responses are still in memory.
fn score(network: &Network, passes: &mut Vec<Forward>, responses: &Responses) -> (Scores, bool) {
    let mut scores = Scores::default();
    let run = |pass: &mut Forward, part: &[usize]| read(pass, network, responses, part);
    let take = |pass: &Forward, ()| pass.add_scores(network, &mut scores);
    let is_whole = each_part(network, passes, &with_tokens(responses), run, take);
    (scores, is_whole)
}

/// The names that the parameters, the moments and the number of updates have in files.
const PARAMETERS: &str = "policy";
const FIRST: &str = "adamw.first";
const SECOND: &str = "adamw.second";
const UPDATES: &str = "adamw.updates";

/// The base in which the number of updates is stored as two digits, each of which is exact in f32.
const BASE: u64 = 1 << 24;

fn borrowed<'a>(values: &'a &[f32]) -> Result<Cow<'a, [f32]>> {
    Ok(Cow::Borrowed(values))
}

/// Splits values, which are in the order of the network's parameters, into tensors with their names and shapes in files.
fn named<'a>(
    group: &str,
    network: &Network,
    values: &'a [f32],
) -> Vec<(String, Vec<usize>, &'a [f32])> {
    let tensors = network.matrices(values).into_iter().flatten();
    let named = tensors.enumerate().map(|(index, tensor)| {
        let (layer, is_bias) = (index / 2 + 1, index % 2);
        let kind = ["weight", "bias"][is_bias];
        let values = tensor.to_slice().expect("tensors are contiguous");
        let shape = tensor.shape()[is_bias..].to_vec();
        (format!("{group}.layer{layer}.{kind}"), shape, values)
    });
    named.collect()
}

/// Reads tensors from a file and concatenates their values in the order of the network's parameters.
fn load(file: &TensorFile, group: &str, network: &Network) -> Result<Vec<f32>> {
    let tensors = named(group, network, &network.parameters).into_iter();
    let read = tensors.map(|(name, shape, _)| file.read(&name, &shape));
    Ok(read.collect::<Result<Vec<_>>>()?.concat())
}

impl Policy for Mlp {
    /// Tokens are drawn at temperature 1; response i of the batch uses stream i of the key.
    fn sample(&mut self, prompts: &[Prompt], group_size: usize, key: StreamKey) -> Result<Samples> {
        let mut responses = Responses::to(prompts);
        self.check(&responses)?;
        let (network, task) = (&self.network, self.network.task);
        let all: Vec<usize> = (0..prompts.len() * group_size).collect();
        let run = |pass: &mut Forward, part: &[usize]| {
            let streams = part.iter().map(|&index| key.stream(index as u64));
            let mut streams: Vec<RandomStream> = streams.collect();
            let owners = part.iter().map(|index| index / group_size);
            let choose = |index: usize, position, probabilities: &[f64]| {
                let token = draw(streams[index].uniform(), probabilities);
                let is_longest = position + 1 == task.max_response_tokens;
                (token, token == task.stop || is_longest)
            };
            pass.run(network, prompts, owners, true, choose);
        };
        let mut scores = Scores::default();
        let take = |pass: &Forward, ()| {
            for tokens in pass.tokens() {
                responses.push(responses.len() / group_size, &tokens);
            }
            pass.add_scores(network, &mut scores);
        };
        let is_whole = each_part(network, &mut self.passes[0], &all, run, take);
        self.last = is_whole.then(|| responses.clone());
        Ok(Samples { responses, scores })
    }

    /// Returns the scores of responses. A response's scores have the same bits in every batch, whether its tokens were just
    /// sampled or are scored again.
    fn score(&mut self, responses: &Responses) -> Result<Scores> {
        self.check(responses)?;
        let (scores, is_whole) = score(&self.network, &mut self.passes[0], responses);
        self.last = is_whole.then(|| responses.clone());
        Ok(scores)
    }

    fn accumulate(&mut self, responses: &Responses, dloss_dlogp: &[f64]) -> Result<()> {
        self.check(responses)?;
        responses.check_derivatives(dloss_dlogp)?;
        let own = |index: usize| &dloss_dlogp[responses.range(index)];
        // Groups without a signal are skipped to save time.
        let (prompts, owners) = (responses.prompts(), responses.owners());
        let mut has_signal = vec![false; prompts.len()];
        for (index, &prompt) in owners.iter().enumerate() {
            has_signal[prompt] |= own(index).iter().any(|&derivative| derivative != 0.0);
        }
        let last = self.last.take().filter(|last| last == responses);
        let is_there = last.is_some();
        let network = &self.network;
        let run = |pass: &mut Forward, part: &[usize]| {
            // Skipping groups without a signal does not change the gradient's bits, because prompts share no prefixes, so the
            // prefixes of the other groups keep their order.
            let ran = |index: &usize| is_there || has_signal[owners[*index]];
            let part: Vec<usize> = part.iter().copied().filter(ran).collect();
            if !is_there {
                read(pass, network, responses, &part);
            }
            let derivatives = part.iter().map(|&index| own(index));
            pass.gradient(network, prompts, &has_signal, derivatives)
        };
        let [passes, _] = &mut self.passes;
        let add = |_: &Forward, gradient: Vec<f32>| {
            let sums = self.gradient.iter_mut().zip(&gradient);
            sums.for_each(|(sum, own)| *sum += own);
        };
        each_part(network, passes, &with_tokens(responses), run, add);
        self.last = last;
        Ok(())
    }

    fn update(&mut self, max_grad_norm: Option<f64>) -> Result<Result<f64, NonFinite>> {
        let zeros = vec![0.0; self.gradient.len()];
        let mut gradient = std::mem::replace(&mut self.gradient, zeros);
        let squares = gradient.iter().map(|&g| f64::from(g).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        // The optimizer squares the gradient in f32, and an overflow would stay in the optimizer's moments for ever.
        let is_squarable = gradient.iter().all(|g| (g * g).is_finite());
        if !norm.is_finite() || !is_squarable {
            return Ok(Err(NonFinite::Gradient(norm)));
        }
        if let Some(max) = max_grad_norm.filter(|&max| norm > max) {
            let scale = (max / norm) as f32;
            gradient.iter_mut().for_each(|own| *own *= scale);
        }
        self.last = None;
        let parameters = &mut self.network.parameters;
        let is_done = self.optimizer.update(parameters, &gradient);
        Ok(is_done.then_some(norm).ok_or(NonFinite::Parameters))
    }

    fn set_lr(&mut self, lr: f64) {
        self.optimizer.config.lr = lr;
    }

    fn freeze(&mut self) -> Result<()> {
        self.reference = self.network.clone();
        Ok(())
    }

    fn reference_logp(&mut self, responses: &Responses) -> Result<Vec<f32>> {
        self.check(responses)?;
        Ok(score(&self.reference, &mut self.passes[1], responses)
            .0
            .logp)
    }

    fn savepoint(&mut self) -> Result<()> {
        self.savepoint = Some((self.network.clone(), self.optimizer.clone()));
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        if let Some((network, optimizer)) = self.savepoint.take() {
            (self.network, self.optimizer) = (network, optimizer);
            self.gradient.fill(0.0);
            self.last = None;
        }
        Ok(())
    }

    fn save(&mut self, folder: &Path) -> Result<()> {
        let (network, optimizer) = (&self.network, &self.optimizer);
        let digits = [optimizer.updates % BASE, optimizer.updates / BASE].map(|digit| digit as f32);
        let mut tensors = named(PARAMETERS, network, &network.parameters);
        tensors.extend(named(FIRST, network, &optimizer.first));
        tensors.extend(named(SECOND, network, &optimizer.second));
        tensors.push((UPDATES.to_string(), vec![digits.len()], &digits));
        let write = |file, tensors: &[_]| {
            tensor_file::write(&folder.join(file), json!({}), tensors, borrowed)
        };
        write(POLICY, &tensors)?;
        let reference = &self.reference.parameters;
        write(REFERENCE, &named(PARAMETERS, network, reference))
    }

    fn load(&mut self, folder: &Path) -> Result<()> {
        let file = TensorFile::open(&folder.join(POLICY))?;
        let reference = TensorFile::open(&folder.join(REFERENCE))?;
        let digits = file.read(UPDATES, &[2])?;
        self.reference.parameters = load(&reference, PARAMETERS, &self.network)?;
        self.network.parameters = load(&file, PARAMETERS, &self.network)?;
        self.optimizer.first = load(&file, FIRST, &self.network)?;
        self.optimizer.second = load(&file, SECOND, &self.network)?;
        self.optimizer.updates = digits[0] as u64 + digits[1] as u64 * BASE;
        self.gradient.fill(0.0);
        self.last = None;
        Ok(())
    }
}
