//! The forward pass: responses as a trie of prefixes, each distinct prefix computed once.
//!
//! The responses of a group share their prompt and, most of all once the policy has become sure, the first of their
//! tokens. Equal prefixes give equal inputs, so the network runs once for each node of the trie instead of once for
//! each token. The first layer costs a row or two a node: a child's sum is its parent's plus the row of one token.
//! A trie is walked position by position, so that the network runs for all prefixes of a length at a time; its memory is
//! used again when it is grown for other responses.

use std::collections::HashMap;

use ndarray::linalg::general_mat_mul;

use super::network::{Network, Real, Sizes, add_scaled, rows, rows_mut};
use crate::task::Prompt;
use advlab::random::RandomStream;
use advlab::tensor::exponentials;

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
    /// The node before its last token, and the input that says this token; none where no token came before it.
    pub parent: Option<(usize, usize)>,
    /// Number of tokens before it.
    pub position: usize,
}

/// A response's token at a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The index of the response in the batch.
    pub response: usize,
    /// The prefix behind which the token stands.
    pub node: usize,
    pub token: u32,
}

/// All prefixes of some responses, parents before children, with what the network computes from each.
#[derive(Default)]
pub(super) struct Trie<F> {
    /// Those of each position in the order of the responses that come to them first.
    pub nodes: Vec<Prefix>,
    /// Hidden layers behind their ReLU, [nodes, hidden] and what is left of longer ones; where they are not remembered,
    /// those of the last position.
    pub h1: Vec<F>,
    pub h2: Vec<F>,
    /// Probabilities and log-probs of the next token, [nodes, vocabulary].
    pub probabilities: Vec<f64>,
    pub logp: Vec<f64>,
    /// Entropy of the next token, [nodes].
    pub entropy: Vec<f64>,
    /// The tokens of all responses, position by position.
    pub choices: Vec<Choice>,
    front: Front<F>,
}

/// The position to which a trie has been grown.
#[derive(Default)]
struct Front<F> {
    /// Its first node.
    first: usize,
    /// Sums of the first layer but for the row of the position, [nodes of this position, hidden].
    sums: Vec<F>,
    /// The weights of the last layer, [vocabulary, hidden].
    transposed: Vec<F>,
    logits: Vec<F>,
    /// The responses that have a token here, by their number in the trie, with their nodes.
    live: Vec<(usize, usize)>,
    /// The node behind each token of each node of this position.
    children: Vec<Option<usize>>,
    /// The sums and the responses of the position that follows.
    next_sums: Vec<F>,
    next: Vec<(usize, usize)>,
}

impl<F: Real> Trie<F> {
    /// Walks some of a batch's responses at once, position by position; `owners` has the prompt of each of the batch,
    /// `source` their tokens. What the trie had before is gone.
    pub fn grow<'a>(
        &mut self,
        network: &Network<F>,
        prompts: &[Prompt],
        owners: &[usize],
        responses: &[usize],
        source: impl Fn(usize) -> TokenSource<'a>,
        remembers: bool,
    ) {
        self.clear();
        let sources = responses.iter().map(|&index| source(index));
        let mut sources: Vec<TokenSource<'a>> = sources.collect();
        self.plant(network, prompts, owners, responses, &sources);
        while !self.front.live.is_empty() {
            self.evaluate(network, remembers);
            self.branch(network, responses, &mut sources);
        }
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.probabilities.clear();
        self.logp.clear();
        self.entropy.clear();
        self.choices.clear();
        self.front.first = 0;
        self.front.sums.clear();
        self.front.live.clear();
    }

    /// A node for each prompt that has a response with a token.
    fn plant(
        &mut self,
        network: &Network<F>,
        prompts: &[Prompt],
        owners: &[usize],
        responses: &[usize],
        sources: &[TokenSource<'_>],
    ) {
        let [w1, b1, ..] = network.tensors();
        let mut roots = HashMap::new();
        for (number, source) in sources.iter().enumerate() {
            if matches!(source, TokenSource::Given([])) {
                continue;
            }
            let prompt = owners[responses[number]];
            let root = *roots.entry(prompt).or_insert_with(|| {
                let sums = &mut self.front.sums;
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
            self.front.live.push((number, root));
        }
    }

    /// Runs the network for the nodes of the front.
    fn evaluate(&mut self, network: &Network<F>, remembers: bool) {
        let Sizes { task, hidden } = network.sizes;
        let [w1, _, w2, b2, w3, b3] = network.tensors();
        let front = &mut self.front;
        let row = network.sizes.position_row(self.nodes[front.first].position);
        let now = &w1[row * hidden..][..hidden];
        let start = if remembers { front.first * hidden } else { 0 };
        let h1 = room(&mut self.h1, start, front.sums.len());
        let h2 = room(&mut self.h2, start, front.sums.len());
        let sums = front.sums.chunks_exact(hidden);
        for (h1, sum) in h1.chunks_exact_mut(hidden).zip(sums) {
            for ((h1, &x), &now) in h1.iter_mut().zip(sum).zip(now) {
                *h1 = relu(x + now);
            }
        }
        let (h1, mut products) = (rows(h1, hidden), rows_mut(h2, hidden));
        general_mat_mul(F::one(), &h1, &rows(w2, hidden), F::zero(), &mut products);
        front.transposed.clear();
        let columns =
            (0..task.vocabulary).flat_map(|token| w3[token..].iter().step_by(task.vocabulary));
        front.transposed.extend(columns);
        front.logits.clear();
        for h2 in h2.chunks_exact_mut(hidden) {
            for (h2, &bias) in h2.iter_mut().zip(b2) {
                *h2 = relu(*h2 + bias);
            }
            let weights = front.transposed.chunks_exact(hidden).zip(b3);
            let logits = weights.map(|(weights, &bias)| bias + dot(h2, weights));
            front.logits.extend(logits);
        }
        self.distribute(task.vocabulary);
    }

    /// Appends the distributions that the logits give, in f64: exact log-probs of a vocabulary this small cost nothing.
    fn distribute(&mut self, vocabulary: usize) {
        let start = self.logp.len();
        for logits in self.front.logits.chunks_exact(vocabulary) {
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

    /// Chooses the next token of each live response, and makes the nodes that follow, which are the front then.
    fn branch(
        &mut self,
        network: &Network<F>,
        responses: &[usize],
        sources: &mut [TokenSource<'_>],
    ) {
        let Sizes { task, hidden } = network.sizes;
        let [w1, ..] = network.tensors();
        let front = &mut self.front;
        let (first, behind) = (front.first, self.nodes.len());
        let position = self.nodes[first].position;
        front.children.clear();
        front
            .children
            .resize((behind - first) * task.vocabulary, None);
        front.next_sums.clear();
        front.next.clear();
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
            let child = &mut front.children[own * task.vocabulary + token as usize];
            let child = *child.get_or_insert_with(|| {
                let row = network.sizes.token_row(position, token);
                let sum = &front.sums[own * hidden..][..hidden];
                let sum = sum.iter().zip(&w1[row * hidden..]);
                front.next_sums.extend(sum.map(|(&x, &weight)| x + weight));
                self.nodes.push(Prefix {
                    prompt: self.nodes[node].prompt,
                    parent: Some((node, row)),
                    position: position + 1,
                });
                self.nodes.len() - 1
            });
            front.next.push((number, child));
        }
        front.first = behind;
        std::mem::swap(&mut front.sums, &mut front.next_sums);
        std::mem::swap(&mut front.live, &mut front.next);
    }
}

/// `count` values from `start` on, for which room is made.
fn room<F: Real>(values: &mut Vec<F>, start: usize, count: usize) -> &mut [F] {
    if values.len() < start + count {
        values.resize(start + count, F::zero());
    }
    &mut values[start..][..count]
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
