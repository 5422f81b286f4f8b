//! The network: its tensors, the forward pass over responses and the gradient of a loss with respect to its parameters.
//!
//! The responses of a group share their prompt and, the more certain the policy is, their first tokens. Equal prefixes give
//! equal inputs, so the responses are walked in lockstep and the network runs once per distinct prefix of a position. In
//! the README's run this is a quarter of the work. A prefix's sum in the first layer is its parent's sum plus one row.

use std::collections::HashMap;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use crate::policy::Scores;
use crate::task::{Prompt, TaskShape};
use advlab::random::RandomStream;

/// Weights `[inputs, outputs]`, so that a one-hot input adds one contiguous row, each followed by its bias `[1, outputs]`.
pub(super) type Tensors = [Array2<f32>; 6];

/// The parameters of two hidden layers with ReLU and an output layer.
///
/// The inputs are the prompt's features, then for each position of the response the token there, one-hot, then the
/// position of the next token, one-hot.
#[derive(Clone)]
pub(super) struct Network {
    pub task: TaskShape,
    pub tensors: Tensors,
}

impl Network {
    /// PyTorch's default for linear layers: weights and biases uniform in +-1/sqrt(inputs of the layer).
    pub fn new(task: TaskShape, hidden: usize, stream: &mut RandomStream) -> Network {
        let inputs = task.prompt_features + task.max_response_tokens * (task.vocabulary + 1);
        let mut layer = |inputs: usize, outputs: usize| {
            let bound = 1.0 / (inputs as f64).sqrt();
            let mut value = || (bound * (2.0 * stream.uniform() - 1.0)) as f32;
            [inputs, 1].map(|rows| Array2::from_shape_simple_fn((rows, outputs), &mut value))
        };
        let [w1, b1] = layer(inputs, hidden);
        let [w2, b2] = layer(hidden, hidden);
        let [w3, b3] = layer(hidden, task.vocabulary);
        let tensors = [w1, b1, w2, b2, w3, b3];
        Network { task, tensors }
    }

    fn hidden(&self) -> usize {
        self.tensors[2].nrows()
    }

    /// The most memory that a pass over so many responses takes: the hidden layers, a copy of them and their gradients,
    /// probabilities and log-probs.
    pub fn most_bytes(&self, responses: usize) -> usize {
        let floats = 6 * size_of::<f32>() * self.hidden();
        let prefix = floats + 2 * size_of::<f64>() * self.task.vocabulary;
        prefix * responses * self.task.max_response_tokens
    }

    /// The index of the input that says that `token` is at `position`.
    fn token_row(&self, position: usize, token: u32) -> usize {
        self.task.prompt_features + position * self.task.vocabulary + token as usize
    }

    /// The index of the input that says that the next token is at `position`.
    fn position_row(&self, position: usize) -> usize {
        self.token_row(self.task.max_response_tokens, 0) + position
    }
}

pub(super) fn zeros_like(tensors: &Tensors) -> Tensors {
    tensors.each_ref().map(|tensor| Array2::zeros(tensor.dim()))
}

fn matrix(values: &[f32], columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((values.len() / columns, columns), values)
        .expect("a matrix has whole rows")
}

fn matrix_mut(values: &mut [f32], columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((values.len() / columns, columns), values)
        .expect("a matrix has whole rows")
}

/// A distinct prefix of the responses to a prompt.
struct Prefix {
    prompt: usize,
    position: usize,
    /// The prefix without the last token, and the input of this token; none for the empty prefix.
    parent: Option<(usize, usize)>,
}

/// A forward pass over some responses. A response's bits do not depend on the others.
///
/// A pass is used again for other responses: asking the system for its memory each time took a seventh of the README's
/// run.
#[derive(Default)]
pub(super) struct Forward {
    /// The tokens of each response, each with the index of the prefix before it.
    choices: Vec<Vec<(u32, usize)>>,
    /// Position by position.
    prefixes: Vec<Prefix>,
    /// The newest prefixes' sums in the first layer, without the input of the position: `[prefixes, hidden]`.
    sums: Vec<f32>,
    /// The next position's.
    next: Vec<f32>,
    /// The hidden layers after their ReLU, `[prefixes, hidden]`.
    h1: Vec<f32>,
    h2: Vec<f32>,
    /// Of the next token, `[prefixes, vocabulary]`; f64, since exact log-probs of so small a vocabulary are cheap.
    probabilities: Vec<f64>,
    /// `[prefixes, vocabulary]`
    logp: Vec<f64>,
    /// `[prefixes]`
    entropies: Vec<f64>,
    /// The hidden layers of those prefixes that have a gradient, and their gradients.
    backward: [Vec<f32>; 4],
}

impl Forward {
    /// Forgets the last responses, and runs the network for responses to the prompts at the indices `owners`. `next` returns a
    /// token of a response, given its index, the position and, if the responses are being sampled, the probabilities; and whether
    /// it is the last token.
    pub fn run(
        &mut self,
        network: &Network,
        prompts: &[Prompt],
        owners: impl Iterator<Item = usize>,
        is_sampling: bool,
        mut next: impl FnMut(usize, usize, &[f64]) -> (u32, bool),
    ) {
        self.prefixes.clear();
        self.sums.clear();
        self.h1.clear();
        self.probabilities.clear();
        self.logp.clear();
        self.entropies.clear();
        let mut by_prompt = HashMap::new();
        let mut prefix = |prompt| {
            let first = by_prompt.entry(prompt);
            *first.or_insert_with(|| self.add_prompt(network, prompts, prompt))
        };
        // The responses that go on, with the indices of their prefixes.
        let mut live: Vec<(usize, usize)> = owners.map(&mut prefix).enumerate().collect();
        self.choices.clear();
        self.choices.resize_with(live.len(), Vec::new);
        self.enter(network, 0);
        while !live.is_empty() {
            if is_sampling {
                self.evaluate(network);
            }
            let probabilities = std::mem::take(&mut self.probabilities);
            let vocabulary = network.task.vocabulary * usize::from(is_sampling);
            self.extend(network, &mut live, |index, position, prefix| {
                let own = &probabilities[prefix * vocabulary..][..vocabulary];
                next(index, position, own)
            });
            self.probabilities = probabilities;
        }
        if !is_sampling {
            // One product for all positions: each packs the weights anew.
            self.evaluate(network);
        }
    }

    /// Adds the empty prefix of a prompt, and returns its index.
    fn add_prompt(&mut self, network: &Network, prompts: &[Prompt], prompt: usize) -> usize {
        let [w1, b1, ..] = &network.tensors;
        let mut sum = b1.row(0).to_owned();
        for (&x, weights) in prompts[prompt].features.iter().zip(w1.rows()) {
            if x != 0.0 {
                sum.scaled_add(x, &weights);
            }
        }
        self.sums.extend(sum);
        self.prefixes.push(Prefix {
            prompt,
            position: 0,
            parent: None,
        });
        self.prefixes.len() - 1
    }

    /// Chooses the next token of each live response, given its index, the position and its prefix, and adds the prefixes of
    /// the next position.
    fn extend(
        &mut self,
        network: &Network,
        live: &mut Vec<(usize, usize)>,
        mut choose: impl FnMut(usize, usize, usize) -> (u32, bool),
    ) {
        let (task, hidden) = (&network.task, network.hidden());
        let weights = network.tensors[0]
            .as_slice()
            .expect("tensors are contiguous");
        let Self { sums, next, .. } = self;
        let first = self.prefixes.len() - sums.len() / hidden;
        let position = self.prefixes[first].position;
        let mut children = vec![None; sums.len() / hidden * task.vocabulary];
        next.clear();
        live.retain_mut(|(index, prefix)| {
            let (token, is_last) = choose(*index, position, *prefix);
            self.choices[*index].push((token, *prefix));
            if !is_last {
                let own = *prefix - first;
                let child = &mut children[own * task.vocabulary + token as usize];
                *prefix = *child.get_or_insert_with(|| {
                    let row = network.token_row(position, token);
                    let weights = &weights[row * hidden..][..hidden];
                    let sums = sums[own * hidden..][..hidden].iter().zip(weights);
                    next.extend(sums.map(|(sum, weight)| sum + weight));
                    self.prefixes.push(Prefix {
                        prompt: self.prefixes[*prefix].prompt,
                        position: position + 1,
                        parent: Some((*prefix, row)),
                    });
                    self.prefixes.len() - 1
                });
            }
            !is_last
        });
        std::mem::swap(sums, next);
        if !live.is_empty() {
            self.enter(network, position + 1);
        }
    }

    /// Computes the first hidden layer of the newest prefixes.
    fn enter(&mut self, network: &Network, position: usize) {
        let start = self.h1.len();
        self.h1.extend_from_slice(&self.sums);
        let position = network.position_row(position);
        let mut h1 = matrix_mut(&mut self.h1[start..], network.hidden());
        h1 += &network.tensors[0].row(position);
        h1.mapv_inplace(relu);
    }

    /// Runs the network for the prefixes for which it has not run: the probabilities of their next tokens and the entropies.
    fn evaluate(&mut self, network: &Network) {
        let [_, _, w2, b2, w3, b3] = &network.tensors;
        let (hidden, vocabulary) = w3.dim();
        let start = self.entropies.len() * hidden;
        self.h2.resize(self.h1.len(), 0.0);
        let h1 = matrix(&self.h1[start..], hidden);
        let mut h2 = matrix_mut(&mut self.h2[start..], hidden);
        h2.assign(b2);
        general_mat_mul(1.0, &h1, w2, 1.0, &mut h2);
        h2.mapv_inplace(relu);
        let mut logits = Array2::zeros((h1.nrows(), vocabulary));
        logits += b3;
        general_mat_mul(1.0, &h2, w3, 1.0, &mut logits);
        for logits in logits.rows() {
            let first = self.probabilities.len();
            let largest = f64::from(logits.fold(f32::MIN, |most, &z| most.max(z)));
            let exponentials = logits.iter().map(|&z| (f64::from(z) - largest).exp());
            self.probabilities.extend(exponentials);
            let probabilities = &mut self.probabilities[first..];
            let total: f64 = probabilities.iter().sum();
            let log_total = largest + total.ln();
            let mut entropy = 0.0;
            for (probability, &z) in probabilities.iter_mut().zip(logits) {
                *probability /= total;
                let logp = f64::from(z) - log_total;
                self.logp.push(logp);
                // A probability of 0 adds nothing, even though its log-prob is infinite.
                if *probability > 0.0 {
                    entropy -= *probability * logp;
                }
            }
            self.entropies.push(entropy);
        }
    }

    /// The tokens of each response.
    pub fn tokens(&self) -> impl Iterator<Item = Vec<u32>> {
        let responses = self.choices.iter();
        responses.map(|own| own.iter().map(|(token, _)| *token).collect())
    }

    /// Adds the scores of all tokens, response after response.
    pub fn add_scores(&self, network: &Network, scores: &mut Scores) {
        for &(token, prefix) in self.choices.iter().flatten() {
            let place = prefix * network.task.vocabulary + token as usize;
            scores.logp.push(self.logp[place] as f32);
            scores.entropy.push(self.entropies[prefix] as f32);
        }
    }

    /// The gradient of a loss with respect to the network's parameters, given dloss/dlogp of each token of each response;
    /// those to prompts that have no signal are left out.
    pub fn gradient<'d>(
        &mut self,
        network: &Network,
        prompts: &[Prompt],
        has_signal: &[bool],
        dloss_dlogp: impl Iterator<Item = &'d [f64]>,
    ) -> Tensors {
        let (task, hidden) = (&network.task, network.hidden());
        let mut rows = vec![usize::MAX; self.prefixes.len()];
        let mut chosen = Vec::new();
        let [h1, h2, dh1, dh2] = &mut self.backward;
        h1.clear();
        h2.clear();
        for (index, prefix) in self.prefixes.iter().enumerate() {
            if has_signal[prefix.prompt] {
                rows[index] = chosen.len();
                chosen.push(prefix);
                h1.extend_from_slice(&self.h1[index * hidden..][..hidden]);
                h2.extend_from_slice(&self.h2[index * hidden..][..hidden]);
            }
        }
        let mut dlogits = vec![0.0; chosen.len() * task.vocabulary];
        for (choices, dlogp) in self.choices.iter().zip(dloss_dlogp) {
            for (&(token, prefix), derivative) in choices.iter().zip(dlogp) {
                let row = rows[prefix];
                if row == usize::MAX {
                    break;
                }
                // A token's log-prob has the derivative 1 - p by its own logit, and -p by each other logit.
                let probabilities = &self.probabilities[prefix * task.vocabulary..];
                let row = &mut dlogits[row * task.vocabulary..][..task.vocabulary];
                let own = row.iter_mut().zip(probabilities);
                own.for_each(|(d, p)| *d -= derivative * p);
                row[token as usize] += derivative;
            }
        }
        let dlogits: Vec<f32> = dlogits.into_iter().map(|d| d as f32).collect();
        let mut gradient = zeros_like(&network.tensors);
        let [_, _, w2, _, w3, _] = &network.tensors;
        let [dw1, db1, dw2, db2, dw3, db3] = &mut gradient;
        let dlogits = matrix(&dlogits, task.vocabulary);
        let dh2 = backward(h2, w3, dlogits, dw3, db3, dh2);
        let mut dh1 = backward(h1, w2, dh2.view(), dw2, db2, dh1);
        for (prefix, dh1) in chosen.iter().zip(dh1.rows()) {
            let mut row = dw1.row_mut(network.position_row(prefix.position));
            row += &dh1;
        }
        // A token is an input of all later prefixes, so each prefix adds its sum to its parent, which comes before it.
        for (index, prefix) in chosen.iter().enumerate().rev() {
            let own = dh1.row(index).to_owned();
            if let Some((parent, row)) = prefix.parent {
                dw1.row_mut(row).scaled_add(1.0, &own);
                dh1.row_mut(rows[parent]).scaled_add(1.0, &own);
                continue;
            }
            db1.row_mut(0).scaled_add(1.0, &own);
            let features = &prompts[prefix.prompt].features;
            for (mut row, &x) in dw1.rows_mut().into_iter().zip(features) {
                if x != 0.0 {
                    row.scaled_add(x, &own);
                }
            }
        }
        gradient
    }
}

/// The backward pass of a linear layer after a ReLU, with outputs `x`: adds the gradients of its weights and bias, and returns
/// the gradient of the ReLU's input, in the memory `dx`. `dy` is the gradient of the layer's outputs.
fn backward<'a>(
    x: &[f32],
    weights: &Array2<f32>,
    dy: ArrayView2<'_, f32>,
    dweights: &mut Array2<f32>,
    dbias: &mut Array2<f32>,
    dx: &'a mut Vec<f32>,
) -> ArrayViewMut2<'a, f32> {
    dx.resize(x.len(), 0.0);
    let mut dx = matrix_mut(dx, weights.nrows());
    let x = matrix(x, weights.nrows());
    general_mat_mul(1.0, &x.t(), &dy, 1.0, dweights);
    for row in dy.rows() {
        dbias.row_mut(0).scaled_add(1.0, &row);
    }
    general_mat_mul(1.0, &dy, &weights.t(), 0.0, &mut dx);
    dx.zip_mut_with(&x, |dx, &x| *dx = if x == 0.0 { 0.0 } else { *dx });
    dx
}

/// max(x, 0), except that NaN stays NaN: parameters that have become NaN must show.
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// The token whose share of [0, 1) contains `uniform`.
pub(super) fn draw(uniform: f64, probabilities: &[f64]) -> u32 {
    let mut below = 0.0;
    let found = probabilities.iter().position(|probability| {
        below += probability;
        uniform < below
    });
    // The probabilities may sum to a few 1e-16 less than 1.
    let last = || probabilities.iter().rposition(|&own| own > 0.0);
    found.or_else(last).unwrap_or(0) as u32
}
