//! The forward pass: responses as a trie of prefixes, each distinct prefix computed once.
//!
//! The responses of a group share their prompt and, most of all once the policy has become sure, the first of their
//! tokens. Equal prefixes give equal inputs, so the network runs once for each node of the trie instead of once for
//! each token. The first layer costs a row or two per node: a child's sum is its parent's plus the row of one token.
//! A trie is walked position by position, so that the network runs for all prefixes of a length at a time. A response gets the
//! same bits whatever else is in its trie, and so for any number of threads.

use std::collections::HashMap;

use ndarray::linalg::general_mat_mul;
use rayon::prelude::*;

use super::network::{Network, Real, Sizes, add_scaled, rows, rows_mut};
use crate::policy::{Responses, Samples, Scores};
use crate::task::Prompt;
use advlab::random::RandomStream;
use advlab::tensor::exponentials;

/// Prompts whose gradients are added up in one go, whatever the threads: the sum of a batch has its bits from this.
pub(super) const CHUNK: usize = 4;

/// The most prompts of one trie: the memory that they need is taken at once.
const LARGEST: usize = 256;

/// The responses of each `size` prompts of a batch in which response i belongs to prompt `owners[i]`.
pub(super) fn parts(prompts: usize, owners: &[usize], size: usize) -> Vec<Vec<usize>> {
    let mut parts = vec![Vec::new(); prompts.div_ceil(size)];
    for (response, owner) in owners.iter().enumerate() {
        parts[owner / size].push(response);
    }
    parts
}

/// A forward pass over a batch.
pub(super) struct Pass {
    pub prompts: Vec<Prompt>,
    pub samples: Samples,
    /// The prompts of each trie.
    size: usize,
    tries: Vec<Trie<f32>>,
    /// Whether the tries have their hidden layers.
    pub is_whole: bool,
}

impl Pass {
    /// Runs for responses with tokens from `source`; hidden layers are kept for up to `remembered` tokens.
    pub fn new<'a>(
        network: &Network<f32>,
        prompts: &[Prompt],
        owners: &[usize],
        source: impl Fn(usize) -> TokenSource<'a> + Sync,
        remembered: usize,
    ) -> Pass {
        // Two tries per thread even out their work; matrix products want as many rows as there can be.
        let size = prompts.len().div_ceil(2 * rayon::current_num_threads());
        let size = size.next_multiple_of(CHUNK).clamp(CHUNK, LARGEST);
        let task = network.sizes.task;
        let is_whole = owners.len() * task.max_response_tokens <= remembered;
        let parts = parts(prompts.len(), owners, size);
        let tries = parts.par_iter().with_max_len(1);
        let tries: Vec<Trie<f32>> = tries
            .map(|part| Trie::grow(network, prompts, owners, part, &source, is_whole))
            .collect();
        Pass {
            prompts: prompts.to_vec(),
            samples: collect(&tries, task.vocabulary, owners),
            size,
            tries,
            is_whole,
        }
    }

    /// The trie that has a prompt.
    pub fn trie(&self, prompt: usize) -> &Trie<f32> {
        &self.tries[prompt / self.size]
    }
}

/// The tokens of all tries with their scores, in the order of the batch.
fn collect(tries: &[Trie<f32>], vocabulary: usize, owners: &[usize]) -> Samples {
    let mut tokens = vec![Vec::new(); owners.len()];
    for trie in tries {
        for choice in &trie.choices {
            let logp = trie.logp[choice.node * vocabulary + choice.token as usize];
            let scores = (logp as f32, trie.entropy[choice.node] as f32);
            tokens[choice.response].push((choice.token, scores));
        }
    }
    let (mut responses, mut scores) = (Responses::new(), Scores::default());
    for (tokens, &owner) in tokens.iter().zip(owners) {
        let (tokens, own): (Vec<u32>, Vec<(f32, f32)>) = tokens.iter().copied().unzip();
        responses.push(owner, &tokens);
        scores.logp.extend(own.iter().map(|(logp, _)| logp));
        scores
            .entropy
            .extend(own.iter().map(|(_, entropy)| entropy));
    }
    Samples { responses, scores }
}

/// The source of a response's tokens.
pub(super) enum TokenSource<'a> {
    Given(&'a [u32]),
    Sample(Box<RandomStream>),
}

/// The token in whose share of [0, 1) `uniform` lies.
fn draw(uniform: f64, probabilities: &[f64]) -> u32 {
    let mut below = 0.0;
    let mut last = 0;
    for (token, &probability) in probabilities.iter().enumerate() {
        below += probability;
        if uniform < below {
            return token as u32;
        }
        if probability > 0.0 {
            last = token;
        }
    }
    // The probabilities may sum to a few 1e-16 less than 1.
    last as u32
}

/// A prefix of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    /// The index of its prompt.
    pub prompt: usize,
    /// The node before its last token, and the input row of this token; none for the empty prefix.
    pub parent: Option<(usize, usize)>,
    /// Number of its tokens.
    pub position: usize,
}

/// A response's token at a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The index of the response in the batch.
    pub response: usize,
    /// The prefix that the token follows.
    pub node: usize,
    pub token: u32,
}

/// All prefixes of some responses, parents before children, with what the network computes from each.
#[derive(Default)]
pub(super) struct Trie<F> {
    /// Those of each position in the order of the responses that come to them first.
    pub nodes: Vec<Prefix>,
    /// Hidden layers behind their ReLU, [nodes, hidden]; unless they are remembered, those of the last position.
    pub h1: Vec<F>,
    pub h2: Vec<F>,
    /// Probabilities and log-probs of the next token, [nodes, vocabulary].
    pub probabilities: Vec<f64>,
    pub logp: Vec<f64>,
    /// Entropy of the next token, [nodes].
    pub entropy: Vec<f64>,
    /// The tokens of all responses, position by position.
    pub choices: Vec<Choice>,
}

/// The prefixes of one position.
struct Front<F> {
    /// The first of these nodes.
    first: usize,
    /// Sums of the first layer except for the row of the position, [nodes of this position, hidden].
    sums: Vec<F>,
    /// The responses that have a token here, by their number in the trie, with their nodes.
    live: Vec<(usize, usize)>,
}

impl<F: Real> Trie<F> {
    /// Walks some of a batch's responses at once, position by position; `owners` has the prompt of each response of the batch,
    /// `source` their tokens.
    pub fn grow<'a>(
        network: &Network<F>,
        prompts: &[Prompt],
        owners: &[usize],
        responses: &[usize],
        source: impl Fn(usize) -> TokenSource<'a>,
        remembers: bool,
    ) -> Trie<F> {
        let mut trie = Trie::default();
        let mut sources: Vec<_> = responses.iter().map(|&index| source(index)).collect();
        let [.., w3, _] = network.tensors();
        let vocabulary = network.sizes.task.vocabulary;
        let columns = (0..vocabulary).flat_map(|token| w3[token..].iter().step_by(vocabulary));
        let transposed: Vec<F> = columns.copied().collect();
        let mut front = trie.plant(network, prompts, owners, responses, &sources);
        while !front.live.is_empty() {
            trie.evaluate(network, &transposed, &front, remembers);
            front = trie.branch(network, &front, responses, &mut sources);
        }
        trie
    }

    /// A node for each prompt that has a response with a token.
    fn plant(
        &mut self,
        network: &Network<F>,
        prompts: &[Prompt],
        owners: &[usize],
        responses: &[usize],
        sources: &[TokenSource<'_>],
    ) -> Front<F> {
        let [w1, b1, ..] = network.tensors();
        let (mut roots, mut sums, mut live) = (HashMap::new(), Vec::new(), Vec::new());
        for (number, source) in sources.iter().enumerate() {
            if matches!(source, TokenSource::Given([])) {
                continue;
            }
            let prompt = owners[responses[number]];
            let root = *roots.entry(prompt).or_insert_with(|| {
                let start = sums.len();
                sums.extend_from_slice(b1);
                let weights = w1.chunks_exact(b1.len());
                for (weights, &x) in weights.zip(&prompts[prompt].features) {
                    if x != 0.0 {
                        add_scaled(&mut sums[start..], F::rounded(x.into()), weights);
                    }
                }
                self.nodes.push(Prefix {
                    prompt,
                    parent: None,
                    position: 0,
                });
                self.nodes.len() - 1
            });
            live.push((number, root));
        }
        Front {
            first: 0,
            sums,
            live,
        }
    }

    /// Runs the network for the nodes of the front; `transposed` are the weights of the last layer, [vocabulary, hidden].
    fn evaluate(
        &mut self,
        network: &Network<F>,
        transposed: &[F],
        front: &Front<F>,
        remembers: bool,
    ) {
        let Sizes { task, hidden } = network.sizes;
        let [w1, _, w2, b2, _, b3] = network.tensors();
        let row = network.sizes.position_row(self.nodes[front.first].position);
        let now = &w1[row * hidden..][..hidden];
        if !remembers {
            self.h1.clear();
            self.h2.clear();
        }
        let start = self.h1.len();
        for sum in front.sums.chunks_exact(hidden) {
            let inputs = sum.iter().zip(now).map(|(&x, &now)| relu(x + now));
            self.h1.extend(inputs);
        }
        self.h2.resize(self.h1.len(), F::zero());
        let (h1, h2) = (&self.h1[start..], &mut self.h2[start..]);
        let (inputs, weights) = (rows(h1, hidden), rows(w2, hidden));
        let mut products = rows_mut(h2, hidden);
        general_mat_mul(F::one(), &inputs, &weights, F::zero(), &mut products);
        let mut logits = Vec::with_capacity(h2.len() / hidden * task.vocabulary);
        for h2 in h2.chunks_exact_mut(hidden) {
            for (h2, &bias) in h2.iter_mut().zip(b2) {
                *h2 = relu(*h2 + bias);
            }
            let weights = transposed.chunks_exact(hidden).zip(b3);
            logits.extend(weights.map(|(weights, &bias)| bias + dot(h2, weights)));
        }
        self.distribute(&logits, task.vocabulary);
    }

    /// Appends the distributions that the logits give, in f64: exact log-probs of a vocabulary this small cost nothing.
    fn distribute(&mut self, logits: &[F], vocabulary: usize) {
        let start = self.logp.len();
        for logits in logits.chunks_exact(vocabulary) {
            let largest = logits.iter().map(|&z| z.into()).fold(f64::MIN, f64::max);
            self.logp.extend(logits.iter().map(|&z| z.into() - largest));
        }
        self.probabilities.resize(self.logp.len(), 0.0);
        let (logp, probabilities) = (&mut self.logp[start..], &mut self.probabilities[start..]);
        exponentials(logp, probabilities);
        let rows = logp.chunks_exact_mut(vocabulary);
        for (logp, probabilities) in rows.zip(probabilities.chunks_exact_mut(vocabulary)) {
            let total: f64 = probabilities.iter().sum();
            let log_total = total.ln();
            let mut entropy = 0.0;
            for (logp, probability) in logp.iter_mut().zip(probabilities) {
                *logp -= log_total;
                *probability /= total;
                // A probability of 0 adds nothing, whatever its log-prob.
                if *probability > 0.0 {
                    entropy -= *probability * *logp;
                }
            }
            self.entropy.push(entropy);
        }
    }

    /// Chooses the next token of each live response, and makes the nodes of the next position.
    fn branch(
        &mut self,
        network: &Network<F>,
        front: &Front<F>,
        responses: &[usize],
        sources: &mut [TokenSource<'_>],
    ) -> Front<F> {
        let Sizes { task, hidden } = network.sizes;
        let [w1, ..] = network.tensors();
        let (first, behind) = (front.first, self.nodes.len());
        let position = self.nodes[first].position;
        // The node behind each token of each node of this position.
        let mut children = vec![None; (behind - first) * task.vocabulary];
        let (mut sums, mut live) = (Vec::new(), Vec::new());
        for &(number, node) in &front.live {
            let (token, is_last) = match &mut sources[number] {
                TokenSource::Given(tokens) => (tokens[position], position + 1 == tokens.len()),
                TokenSource::Sample(stream) => {
                    let probabilities = &self.probabilities[node * task.vocabulary..];
                    let token = draw(stream.uniform(), &probabilities[..task.vocabulary]);
                    let is_longest = position + 1 == task.max_response_tokens;
                    (token, token == task.stop || is_longest)
                }
            };
            self.choices.push(Choice {
                response: responses[number],
                node,
                token,
            });
            if is_last {
                continue;
            }
            let own = node - first;
            let child = &mut children[own * task.vocabulary + token as usize];
            let child = *child.get_or_insert_with(|| {
                let row = network.sizes.token_row(position, token);
                let sum = &front.sums[own * hidden..][..hidden];
                let sum = sum.iter().zip(&w1[row * hidden..]);
                sums.extend(sum.map(|(&x, &weight)| x + weight));
                self.nodes.push(Prefix {
                    prompt: self.nodes[node].prompt,
                    parent: Some((node, row)),
                    position: position + 1,
                });
                self.nodes.len() - 1
            });
            live.push((number, child));
        }
        Front {
            first: behind,
            sums,
            live,
        }
    }
}

/// The scalar product, summed in lanes: a matrix product of so few columns takes twice the time.
#[multiversion::multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn dot<F: Real>(a: &[F], b: &[F]) -> F {
    const LANES: usize = 16;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [F::zero(); LANES];
    for (a, b) in a.iter().zip(b) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane += a[i] * b[i];
        }
    }
    for ((lane, &a), &b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += a * b;
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            let other = lanes[lane + half];
            lanes[lane] += other;
        }
    }
    lanes[0]
}

/// max(x, 0), but a NaN stays one: parameters that have become NaN must show.
#[inline]
fn relu<F: Real>(x: F) -> F {
    if x < F::zero() { F::zero() } else { x }
}
