//! The forward pass: the responses to some prompts as a trie of prefixes, each distinct prefix computed once.
//!
//! The responses of a group share their prompt and, most of all once the policy has become sure, the first of their
//! tokens. Equal prefixes give equal inputs, so the network runs once for each node of the trie instead of once for
//! each token. The first layer costs a row or two a node: a child's sum is its parent's plus the row of one token.

use ndarray::linalg::general_mat_mul;

use super::network::{Layers, Network, Real, Sizes, add, add_scaled, rows, rows_mut};
use crate::train::random::Stream;
use crate::train::task::Prompt;

pub(super) enum Source<'a> {
    /// One slice a response.
    Given(Vec<&'a [u32]>),
    /// One stream a response.
    Sample(Vec<Stream>),
}

impl Source<'_> {
    fn is_empty(&self, response: usize) -> bool {
        matches!(self, Source::Given(tokens) if tokens[response].is_empty())
    }

    fn next(&mut self, response: usize, position: usize, probabilities: &[f64]) -> u32 {
        match self {
            Source::Given(tokens) => tokens[response][position],
            Source::Sample(streams) => draw(streams[response].uniform(), probabilities),
        }
    }

    fn ends(&self, response: usize, position: usize, token: u32, sizes: &Sizes) -> bool {
        match self {
            Source::Given(tokens) => position + 1 == tokens[response].len(),
            _ => token == sizes.stop || position + 1 == sizes.max_tokens,
        }
    }
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

/// How a node's input differs from that of the node before it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// No token came before it: its input is the prompt at this index.
    Prompt(usize),
    /// The node `parent` and a token, which is input number `row`.
    Token { parent: usize, row: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub origin: Origin,
    /// Number of tokens before it.
    pub position: usize,
}

/// All prefixes of some responses, parents before children, with what the network computes from each.
#[derive(Default)]
pub(super) struct Trie<F> {
    pub nodes: Vec<Node>,
    /// Hidden layers behind their ReLU, [nodes, hidden].
    pub h1: Vec<F>,
    pub h2: Vec<F>,
    /// Probabilities and log-probs of the next token, [nodes, vocabulary].
    pub probabilities: Vec<f64>,
    pub logp: Vec<f64>,
    /// Entropy of the next token, [nodes].
    pub entropy: Vec<f64>,
    pub tokens: Vec<Vec<u32>>,
    /// The node from which each token of each response was chosen.
    pub visits: Vec<Vec<usize>>,
}

impl<F: Real> Trie<F> {
    /// Walks all responses at once, position by position; `owners` has the prompt of each response.
    pub fn grow(
        network: &Network<F>,
        prompts: &[Prompt],
        owners: &[usize],
        mut source: Source<'_>,
    ) -> Self {
        let sizes = network.sizes;
        let layers = network.layers();
        let mut trie = Self {
            tokens: vec![Vec::with_capacity(sizes.max_tokens); owners.len()],
            visits: vec![Vec::with_capacity(sizes.max_tokens); owners.len()],
            ..Self::default()
        };
        let mut sums = Vec::new();
        let mut live = trie.plant(&layers, prompts, owners, &source, &mut sums);
        let mut position = 0;
        while !live.is_empty() {
            trie.evaluate(&layers, sizes.position_row(position), &sums);
            live = trie.branch(&layers, &sizes, position, &live, &mut source, &mut sums);
            position += 1;
        }
        trie
    }

    /// A node for each prompt that has a response; gives (response, node) for each response that has a token.
    fn plant(
        &mut self,
        layers: &Layers<'_, F>,
        prompts: &[Prompt],
        owners: &[usize],
        source: &Source<'_>,
        sums: &mut Vec<F>,
    ) -> Vec<(usize, usize)> {
        let mut roots = vec![None; prompts.len()];
        let mut live = Vec::with_capacity(owners.len());
        for (response, &owner) in owners.iter().enumerate() {
            if source.is_empty(response) {
                continue;
            }
            let node = *roots[owner].get_or_insert_with(|| {
                let start = sums.len();
                sums.extend_from_slice(layers.b1);
                for (weights, &x) in layers.w1.rows().into_iter().zip(&prompts[owner].features) {
                    if x != 0.0 {
                        add_scaled(
                            &mut sums[start..],
                            F::rounded(x.into()),
                            contiguous(weights),
                        );
                    }
                }
                self.nodes.push(Node {
                    origin: Origin::Prompt(owner),
                    position: 0,
                });
                self.nodes.len() - 1
            });
            live.push((response, node));
        }
        live
    }

    /// Runs the network for the last nodes, those of one position, whose first-layer sums (but for the row of the
    /// position) are `sums`.
    fn evaluate(&mut self, layers: &Layers<'_, F>, position_row: usize, sums: &[F]) {
        let (hidden, vocabulary) = (layers.b2.len(), layers.b3.len());
        let count = sums.len() / hidden;
        let start = self.h1.len();

        let now = layers.w1.row(position_row);
        let now = contiguous(now);
        for sum in sums.chunks_exact(hidden) {
            self.h1
                .extend(sum.iter().zip(now).map(|(&x, &add)| relu(x + add)));
            self.h2.extend_from_slice(layers.b2);
        }
        let mut h2 = rows_mut(&mut self.h2[start..], hidden);
        let h1 = rows(&self.h1[start..], hidden);
        general_mat_mul(F::one(), &h1, &layers.w2, F::one(), &mut h2);
        h2.mapv_inplace(relu);

        let mut logits = layers.b3.repeat(count);
        let mut output = rows_mut(&mut logits, vocabulary);
        general_mat_mul(F::one(), &h2, &layers.w3, F::one(), &mut output);
        for logits in logits.chunks_exact(vocabulary) {
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

    /// Chooses the next token of each live response and makes the nodes that follow; `sums` becomes theirs. Gives
    /// (response, node) for each response that goes on.
    fn branch(
        &mut self,
        layers: &Layers<'_, F>,
        sizes: &Sizes,
        position: usize,
        live: &[(usize, usize)],
        source: &mut Source<'_>,
        sums: &mut Vec<F>,
    ) -> Vec<(usize, usize)> {
        let Sizes {
            vocabulary, hidden, ..
        } = *sizes;
        let first = self.nodes.len() - sums.len() / hidden;
        let mut children = vec![None; sums.len() / hidden * vocabulary];
        let mut next_sums = Vec::with_capacity(sums.len());
        let mut next_live = Vec::with_capacity(live.len());
        for &(response, node) in live {
            let probabilities = &self.probabilities[node * vocabulary..][..vocabulary];
            let token = source.next(response, position, probabilities);
            self.tokens[response].push(token);
            self.visits[response].push(node);
            if source.ends(response, position, token, sizes) {
                continue;
            }
            let sibling = node - first;
            let child = children[sibling * vocabulary + token as usize].get_or_insert_with(|| {
                let row = sizes.token_row(position, token as usize);
                let start = next_sums.len();
                next_sums.extend_from_slice(&sums[sibling * hidden..][..hidden]);
                add(&mut next_sums[start..], contiguous(layers.w1.row(row)));
                self.nodes.push(Node {
                    origin: Origin::Token { parent: node, row },
                    position: position + 1,
                });
                self.nodes.len() - 1
            });
            next_live.push((response, *child));
        }
        *sums = next_sums;
        next_live
    }
}

/// max(x, 0), but a NaN stays one: parameters that have become NaN must show.
fn relu<F: Real>(x: F) -> F {
    if x < F::zero() { F::zero() } else { x }
}

fn contiguous<F>(row: ndarray::ArrayView1<'_, F>) -> &[F] {
    row.to_slice()
        .expect("the rows of a weight matrix are contiguous")
}
