//! The forward pass: responses as a trie of prefixes, each distinct prefix computed once.
//!
//! The responses of a group share their prompt and, most of all once the policy has become sure, the first of their
//! tokens. Equal prefixes give equal inputs, so the network runs once for each node of the trie instead of once for
//! each token. The first layer costs a row or two a node: a child's sum is its parent's plus the row of one token.
//! Given responses make the whole trie before the network runs, for many nodes at a time.

use std::collections::HashMap;

use ndarray::linalg::general_mat_mul;

use super::network::{Network, Real, Sizes, add, add_scaled, rows, rows_mut};
use crate::train::random::Stream;
use crate::train::task::Prompt;

/// The source of a response's tokens.
pub(super) enum TokenSource<'a> {
    Given(&'a [u32]),
    Sample(Box<Stream>),
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
    /// The node before its last token, and the input that says this token; none where no token came before it.
    pub parent: Option<(usize, usize)>,
    /// Number of tokens before it.
    pub position: usize,
}

/// All prefixes of some responses, parents before children, with what the network computes from each.
#[derive(Default)]
pub(super) struct Trie<F> {
    pub nodes: Vec<Prefix>,
    /// Hidden layers behind their ReLU, [nodes, hidden].
    pub h1: Vec<F>,
    pub h2: Vec<F>,
    /// Probabilities and log-probs of the next token, [nodes, vocabulary].
    pub probabilities: Vec<f64>,
    pub logp: Vec<f64>,
    /// Entropy of the next token, [nodes].
    pub entropy: Vec<f64>,
    /// The index of each response in the batch.
    pub responses: Vec<usize>,
    pub tokens: Vec<Vec<u32>>,
    /// The node from which each token of each response was chosen.
    pub visits: Vec<Vec<usize>>,
}

impl<F: Real> Trie<F> {
    /// Walks some of a batch's responses at once, position by position; `owners` has the prompt of each of the batch,
    /// `source` their tokens.
    pub fn grow<'a>(
        network: &Network<F>,
        prompts: &[Prompt],
        owners: &[usize],
        responses: Vec<usize>,
        source: impl Fn(usize) -> TokenSource<'a>,
    ) -> Self {
        let mut sources: Vec<TokenSource<'a>> =
            responses.iter().map(|&index| source(index)).collect();
        let mut trie = Self {
            tokens: vec![Vec::new(); responses.len()],
            visits: vec![Vec::new(); responses.len()],
            responses,
            ..Self::default()
        };
        let mut sums = Vec::new();
        let mut live = trie.plant(network, prompts, owners, &sources, &mut sums);
        let is_sampled = matches!(sources.first(), Some(TokenSource::Sample(_)));
        while !live.is_empty() {
            if is_sampled {
                trie.evaluate(network, &sums);
            }
            live = trie.branch(network, &live, &mut sources, &mut sums);
        }
        trie.evaluate(network, &sums);
        trie
    }

    /// A node for each prompt that has a response; gives (response, node) for each response that has a token. `sums`
    /// are those of the first layer, but for the row of the position.
    fn plant(
        &mut self,
        network: &Network<F>,
        prompts: &[Prompt],
        owners: &[usize],
        sources: &[TokenSource<'_>],
        sums: &mut Vec<F>,
    ) -> Vec<(usize, usize)> {
        let [w1, b1, ..] = network.tensors();
        let mut roots = HashMap::new();
        let mut live = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            if matches!(source, TokenSource::Given([])) {
                continue;
            }
            let prompt = owners[self.responses[index]];
            let root = roots.entry(prompt).or_insert_with(|| {
                let start = sums.len();
                sums.extend_from_slice(b1);
                let weights = w1.chunks_exact(b1.len());
                for (weights, &x) in weights.zip(&prompts[prompt].features) {
                    if x != 0.0 {
                        add_scaled(&mut sums[start..], F::rounded(x.into()), weights);
                    }
                }
                self.add_node(prompt, None, 0)
            });
            live.push((index, *root));
        }
        live
    }

    fn add_node(
        &mut self,
        prompt: usize,
        parent: Option<(usize, usize)>,
        position: usize,
    ) -> usize {
        self.nodes.push(Prefix {
            prompt,
            parent,
            position,
        });
        self.nodes.len() - 1
    }

    /// Runs the network for the nodes that it has not been run for.
    fn evaluate(&mut self, network: &Network<F>, sums: &[F]) {
        let Sizes { task, hidden } = network.sizes;
        let [w1, _, w2, b2, w3, b3] = network.tensors();
        let first = self.entropy.len();
        let count = self.nodes.len() - first;
        if count == 0 {
            return;
        }
        for (node, sum) in self.nodes.iter().zip(sums.chunks_exact(hidden)).skip(first) {
            let now = network.sizes.position_row(node.position) * hidden;
            let sum = sum.iter().zip(&w1[now..]);
            self.h1.extend(sum.map(|(&x, &now)| relu(x + now)));
        }
        let h1 = rows(&self.h1[first * hidden..], hidden);
        self.h2.extend(b2.repeat(count));
        let mut h2 = rows_mut(&mut self.h2[first * hidden..], hidden);
        general_mat_mul(F::one(), &h1, &rows(w2, hidden), F::one(), &mut h2);
        h2.mapv_inplace(relu);
        let mut logits = b3.repeat(count);
        let mut output = rows_mut(&mut logits, task.vocabulary);
        let w3 = rows(w3, task.vocabulary);
        general_mat_mul(F::one(), &h2, &w3, F::one(), &mut output);
        for logits in logits.chunks_exact(task.vocabulary) {
            self.distribute(logits);
        }
    }

    /// Appends the distribution that the logits give, in f64: exact log-probs of a vocabulary this small cost nothing.
    fn distribute(&mut self, logits: &[F]) {
        let largest = logits.iter().map(|&z| z.into()).fold(f64::MIN, f64::max);
        let start = self.logp.len();
        self.logp.extend(logits.iter().map(|&z| z.into() - largest));
        let logp = &mut self.logp[start..];
        let total: f64 = logp.iter().map(|z| z.exp()).sum();
        let log_total = total.ln();
        let mut entropy = 0.0;
        for logp in logp {
            *logp -= log_total;
            let probability = logp.exp();
            self.probabilities.push(probability);
            // A probability of 0 adds nothing, whatever its log-prob.
            if probability > 0.0 {
                entropy -= probability * *logp;
            }
        }
        self.entropy.push(entropy);
    }

    /// Chooses the next token of each live response, and makes the nodes that follow with their sums. Gives
    /// (response, node) for each response that goes on.
    fn branch(
        &mut self,
        network: &Network<F>,
        live: &[(usize, usize)],
        sources: &mut [TokenSource<'_>],
        sums: &mut Vec<F>,
    ) -> Vec<(usize, usize)> {
        let Sizes { task, hidden } = network.sizes;
        let [w1, ..] = network.tensors();
        // Nodes of a position follow the order of the responses.
        let first = live[0].1;
        let mut children = vec![None; (self.nodes.len() - first) * task.vocabulary];
        let mut next = Vec::with_capacity(live.len());
        for &(response, node) in live {
            let Prefix {
                prompt, position, ..
            } = self.nodes[node];
            let (token, is_last) = match &mut sources[response] {
                TokenSource::Given(tokens) => (tokens[position], position + 1 == tokens.len()),
                TokenSource::Sample(stream) => {
                    let probabilities = &self.probabilities[node * task.vocabulary..];
                    let token = draw(stream.uniform(), &probabilities[..task.vocabulary]);
                    let is_longest = position + 1 == task.max_response_tokens;
                    (token, token == task.stop || is_longest)
                }
            };
            self.tokens[response].push(token);
            self.visits[response].push(node);
            if is_last {
                continue;
            }
            let child = (node - first) * task.vocabulary + token as usize;
            let child = children[child].get_or_insert_with(|| {
                let row = network.sizes.token_row(position, token);
                let start = sums.len();
                sums.extend_from_within(node * hidden..(node + 1) * hidden);
                add(&mut sums[start..], &w1[row * hidden..][..hidden]);
                self.add_node(prompt, Some((node, row)), position + 1)
            });
            next.push((response, *child));
        }
        next
    }
}

/// max(x, 0), but a NaN stays one: parameters that have become NaN must show.
fn relu<F: Real>(x: F) -> F {
    if x < F::zero() { F::zero() } else { x }
}
