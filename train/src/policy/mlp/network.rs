//! The network: its parameters, the forward pass over responses, and the gradient of a loss with respect to the parameters.
//!
//! The responses of a group share their prompt and, if the policy is certain, many of their first tokens. Equal prefixes give
//! equal inputs, so the responses are processed in lockstep, and at each position the network runs once per distinct prefix. In
//! the README's run this reduces the work to a quarter. In the first layer, the sum for a prefix equals the sum for its parent
//! (the prefix without the last token) plus one row of weights.

use std::collections::HashMap;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut2};

use crate::policy::Scores;
use crate::random::RandomStream;
use crate::task::{Prompt, TaskShape};

/// A network with two hidden layers with ReLU and an output layer.
///
/// The inputs are the prompt's features, followed by a one-hot vector of the token at each position of the response, and by a
/// one-hot vector of the position of the next token.
#[derive(Clone)]
pub(super) struct Network {
    pub task: TaskShape,
    hidden: usize,
    /// The weights and the bias of each layer, layer after layer. Weights are `[inputs, outputs]`, so that a one-hot input adds
    /// one contiguous row.
    pub parameters: Vec<f32>,
}

impl Network {
    /// Returns a network that is initialized as PyTorch initializes linear layers: weights and biases are uniform between -b and
    /// b with b = 1/sqrt(inputs of the layer).
    pub fn new(task: TaskShape, hidden: usize, stream: &mut RandomStream) -> Network {
        let mut network = Network {
            task,
            hidden,
            parameters: Vec::new(),
        };
        for (inputs, outputs) in network.layers() {
            let bound = 1.0 / (inputs as f64).sqrt();
            let value = |_| (bound * (2.0 * stream.uniform() - 1.0)) as f32;
            let values = (0..(inputs + 1) * outputs).map(value);
            network.parameters.extend(values);
        }
        network
    }

    /// Returns the numbers of inputs and outputs of each layer.
    fn layers(&self) -> [(usize, usize); 3] {
        let (task, hidden) = (&self.task, self.hidden);
        let inputs = task.prompt_features + task.max_response_tokens * (task.vocabulary + 1);
        [
            (inputs, hidden),
            (hidden, hidden),
            (hidden, task.vocabulary),
        ]
    }

    /// Returns views of the weights and the bias `[1, outputs]` of each layer, in the parameters or in other values of the same
    /// order.
    pub fn matrices<'a>(&self, mut values: &'a [f32]) -> [[ArrayView2<'a, f32>; 2]; 3] {
        self.layers().map(|(inputs, outputs)| {
            [inputs, 1].map(|rows| {
                let own = values.split_off(..rows * outputs);
                matrix(own.expect("each parameter has a value"), outputs)
            })
        })
    }

    fn matrices_mut<'a>(&self, mut values: &'a mut [f32]) -> [[ArrayViewMut2<'a, f32>; 2]; 3] {
        self.layers().map(|(inputs, outputs)| {
            [inputs, 1].map(|rows| {
                let own = values.split_off_mut(..rows * outputs);
                matrix_mut(own.expect("each parameter has a value"), outputs)
            })
        })
    }

    /// Returns the first layer's weights for an input.
    fn input_weights(&self, input: usize) -> &[f32] {
        &self.parameters[input * self.hidden..][..self.hidden]
    }

    /// Returns the maximum number of bytes that a pass over `responses` responses takes: for the hidden layers, their copies and
    /// gradients, the probabilities and the log-probs.
    pub fn most_bytes(&self, responses: usize) -> usize {
        let floats = 6 * size_of::<f32>() * self.hidden;
        let prefix = floats + 2 * size_of::<f64>() * self.task.vocabulary;
        prefix * responses * self.task.max_response_tokens
    }

    /// Returns the index of the input that is 1 if the token at `position` is `token`.
    fn token_row(&self, position: usize, token: u32) -> usize {
        self.task.prompt_features + position * self.task.vocabulary + token as usize
    }

    /// Returns the index of the input that is 1 if the next token is at `position`.
    fn position_row(&self, position: usize) -> usize {
        self.token_row(self.task.max_response_tokens, 0) + position
    }
}

fn matrix(values: &[f32], columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((values.len() / columns, columns), values)
        .expect("a matrix should have whole rows")
}

fn matrix_mut(values: &mut [f32], columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((values.len() / columns, columns), values)
        .expect("a matrix should have whole rows")
}

/// A distinct prefix of the responses to a prompt.
struct Prefix {
    prompt: usize,
    position: usize,
    /// The index of the prefix without the last token, and the index of the last token's input; `None` for the empty prefix.
    parent: Option<(usize, usize)>,
}

/// A forward pass over some responses. The bits of a response's results do not depend on the other responses.
///
/// A pass is reused for other responses, because allocating its memory each time took a seventh of the time of the README's run.
#[derive(Default)]
pub(super) struct Forward {
    /// The tokens of each response, each with the index of the prefix before it.
    choices: Vec<Vec<(u32, usize)>>,
    /// The distinct prefixes, sorted by position.
    prefixes: Vec<Prefix>,
    /// The first layer's sums for the prefixes of the current position, without the input for the position, `[prefixes, hidden]`.
    sums: Vec<f32>,
    /// The sums for the prefixes of the next position.
    next_sums: Vec<f32>,
    /// The hidden layers after their ReLU, `[prefixes, hidden]`.
    h1: Vec<f32>,
    h2: Vec<f32>,
    /// The probabilities of the next token, `[prefixes, vocabulary]`; they are f64, because exact log-probs are cheap if the
    /// vocabulary is small.
    probabilities: Vec<f64>,
    /// The log-probs of the next token, `[prefixes, vocabulary]`.
    logp: Vec<f64>,
    /// The entropies of the next token, `[prefixes]`.
    entropies: Vec<f64>,
    /// The hidden layers of the prefixes that have a gradient, and the gradients of these layers.
    backward: [Vec<f32>; 4],
}

impl Forward {
    /// Clears the pass, and runs the network for responses to the prompts at the indices `owners`. `next` gets the index of a
    /// response, a position and, if the responses are being sampled, the probabilities; it returns the next token, and whether
    /// this token is the response's last.
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
        // The responses that continue, with the indices of their prefixes.
        let mut live: Vec<(usize, usize)> = owners.map(&mut prefix).enumerate().collect();
        self.choices.clear();
        self.choices.resize_with(live.len(), Vec::new);
        let mut position = 0;
        while !live.is_empty() {
            self.enter(network, position);
            if is_sampling {
                self.evaluate(network);
            }
            self.extend(network, position, &mut live, &mut next);
            position += 1;
        }
        if !is_sampling {
            // A single matrix product is used for all positions, because each product copies the weights to its own layout.
            self.evaluate(network);
        }
    }

    /// Adds the empty prefix of a prompt, and returns its index.
    fn add_prompt(&mut self, network: &Network, prompts: &[Prompt], prompt: usize) -> usize {
        let [[w1, b1], ..] = network.matrices(&network.parameters);
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

    /// Adds the token that `next` gives for this position of each response that continues, and the prefixes that end with these
    /// tokens.
    fn extend(
        &mut self,
        network: &Network,
        position: usize,
        live: &mut Vec<(usize, usize)>,
        next: &mut impl FnMut(usize, usize, &[f64]) -> (u32, bool),
    ) {
        let (vocabulary, hidden) = (network.task.vocabulary, network.hidden);
        let count = self.sums.len() / hidden;
        let first = self.prefixes.len() - count;
        let mut children = vec![None; count * vocabulary];
        self.next_sums.clear();
        live.retain_mut(|(index, prefix)| {
            // The probabilities are known here only if the responses are being sampled.
            let own = *prefix * vocabulary..(*prefix + 1) * vocabulary;
            let probabilities = self.probabilities.get(own).unwrap_or_default();
            let (token, is_last) = next(*index, position, probabilities);
            self.choices[*index].push((token, *prefix));
            if !is_last {
                let own = *prefix - first;
                let child = &mut children[own * vocabulary + token as usize];
                *prefix = *child.get_or_insert_with(|| {
                    let row = network.token_row(position, token);
                    let sums = self.sums[own * hidden..][..hidden].iter();
                    let sums = sums.zip(network.input_weights(row));
                    self.next_sums
                        .extend(sums.map(|(sum, weight)| sum + weight));
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
        std::mem::swap(&mut self.sums, &mut self.next_sums);
    }

    /// Computes the first hidden layer for the prefixes of the current position.
    fn enter(&mut self, network: &Network, position: usize) {
        let start = self.h1.len();
        self.h1.extend_from_slice(&self.sums);
        let weights = network.input_weights(network.position_row(position));
        let mut h1 = matrix_mut(&mut self.h1[start..], network.hidden);
        h1 += &ArrayView1::from(weights);
        h1.mapv_inplace(relu);
    }

    /// Computes the probabilities of the next token and the entropies for the prefixes that do not have them yet.
    fn evaluate(&mut self, network: &Network) {
        let [_, [w2, b2], [w3, b3]] = network.matrices(&network.parameters);
        let (hidden, vocabulary) = w3.dim();
        let start = self.entropies.len() * hidden;
        self.h2.resize(self.h1.len(), 0.0);
        let h1 = matrix(&self.h1[start..], hidden);
        let mut h2 = matrix_mut(&mut self.h2[start..], hidden);
        h2.assign(&b2);
        general_mat_mul(1.0, &h1, &w2, 1.0, &mut h2);
        h2.mapv_inplace(relu);
        let mut logits = Array2::zeros((h1.nrows(), vocabulary));
        logits += &b3;
        general_mat_mul(1.0, &h2, &w3, 1.0, &mut logits);
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

    /// Returns the gradient of a loss with respect to the network's parameters, given dloss/dlogp of each token of each response;
    /// responses to prompts without a signal are skipped.
    pub fn gradient<'d>(
        &mut self,
        network: &Network,
        prompts: &[Prompt],
        has_signal: &[bool],
        dloss_dlogp: impl Iterator<Item = &'d [f64]>,
    ) -> Vec<f32> {
        let (task, hidden) = (&network.task, network.hidden);
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
                // The derivative of a token's log-prob is 1 - p with respect to the token's logit, and -p with respect to any
                // other logit.
                let probabilities = &self.probabilities[prefix * task.vocabulary..];
                let row = &mut dlogits[row * task.vocabulary..][..task.vocabulary];
                let own = row.iter_mut().zip(probabilities);
                own.for_each(|(d, p)| *d -= derivative * p);
                row[token as usize] += derivative;
            }
        }
        let dlogits: Vec<f32> = dlogits.into_iter().map(|d| d as f32).collect();
        let mut gradient = vec![0.0; network.parameters.len()];
        let [_, [w2, _], [w3, _]] = network.matrices(&network.parameters);
        let [[mut dw1, mut db1], layer2, layer3] = network.matrices_mut(&mut gradient);
        let dlogits = matrix(&dlogits, task.vocabulary);
        let dh2 = backward(h2, w3, dlogits, layer3, dh2);
        let mut dh1 = backward(h1, w2, dh2.view(), layer2, dh1);
        for (prefix, dh1) in chosen.iter().zip(dh1.rows()) {
            let mut row = dw1.row_mut(network.position_row(prefix.position));
            row += &dh1;
        }
        // A token is an input of all later prefixes, so each prefix adds its gradient to its parent's gradient. The order is
        // reversed, because parents come before their children.
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

/// Computes the backward pass of a linear layer after a ReLU with outputs `x`: adds the gradients of the layer's weights and
/// bias, and returns the gradient of the ReLU's input, in the buffer `dx`. `dy` is the gradient of the layer's outputs.
fn backward<'a>(
    x: &[f32],
    weights: ArrayView2<'_, f32>,
    dy: ArrayView2<'_, f32>,
    [mut dweights, mut dbias]: [ArrayViewMut2<'_, f32>; 2],
    dx: &'a mut Vec<f32>,
) -> ArrayViewMut2<'a, f32> {
    dx.resize(x.len(), 0.0);
    let mut dx = matrix_mut(dx, weights.nrows());
    let x = matrix(x, weights.nrows());
    general_mat_mul(1.0, &x.t(), &dy, 1.0, &mut dweights);
    for row in dy.rows() {
        dbias.row_mut(0).scaled_add(1.0, &row);
    }
    general_mat_mul(1.0, &dy, &weights.t(), 0.0, &mut dx);
    dx.zip_mut_with(&x, |dx, &x| *dx = if x == 0.0 { 0.0 } else { *dx });
    dx
}

/// Returns max(x, 0), except that NaN stays NaN, so that parameters that have become NaN are noticed.
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// Returns the token whose interval of [0, 1) contains `uniform`.
pub(super) fn draw(uniform: f64, probabilities: &[f64]) -> u32 {
    let mut below = 0.0;
    let found = probabilities.iter().position(|probability| {
        below += probability;
        uniform < below
    });
    // The sum of the probabilities may be a few 1e-16 below 1. If `uniform` is above the sum, the last token with a probability
    // above 0 is drawn.
    let last = || probabilities.iter().rposition(|&own| own > 0.0);
    found.or_else(last).unwrap_or(0) as u32
}
