//! The network: its tensors, the forward pass over responses and the gradient of a loss with respect to its parameters.
//!
//! The responses of a group share their prompt and, the more certain the policy is, their first tokens. Equal prefixes give
//! equal inputs, so the responses are walked in lockstep and the network runs once per distinct prefix of a position. In
//! the README's run this is a quarter of the work. A prefix's sum in the first layer is its parent's sum plus one row.

use std::collections::HashMap;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use crate::task::{Prompt, TaskShape};
use advlab::random::RandomStream;

/// Name, shape and values.
type NamedTensor<'a> = (String, Vec<usize>, &'a [f32]);

/// The parameters of two hidden layers with ReLU and an output layer.
///
/// The inputs are the prompt's features, then for each position of the response the token there, one-hot, then the
/// position of the next token, one-hot.
#[derive(Clone)]
pub(super) struct Network {
    pub task: TaskShape,
    hidden: usize,
    /// All tensors, one after the other.
    pub values: Vec<f32>,
}

impl Network {
    /// PyTorch's default for linear layers: weights and biases uniform in +-1/sqrt(inputs of the layer).
    pub fn new(task: TaskShape, hidden: usize, stream: &mut RandomStream) -> Network {
        let mut network = Network {
            task,
            hidden,
            values: Vec::new(),
        };
        let tensors = network.tensors();
        for (index, (_, shape)) in tensors.iter().enumerate() {
            // A layer's weight precedes its bias.
            let inputs = tensors[index / 2 * 2].1[0];
            let bound = 1.0 / (inputs as f64).sqrt();
            let count: usize = shape.iter().product();
            let values = (0..count).map(|_| (bound * (2.0 * stream.uniform() - 1.0)) as f32);
            network.values.extend(values);
        }
        network
    }

    /// Name and shape of each tensor. Weights are `[inputs, outputs]`, so that a one-hot input adds one contiguous row.
    pub fn tensors(&self) -> [(&'static str, Vec<usize>); 6] {
        let (hidden, vocabulary) = (self.hidden, self.task.vocabulary);
        let inputs = self.position_row(self.task.max_response_tokens);
        [
            ("layer1.weight", vec![inputs, hidden]),
            ("layer1.bias", vec![hidden]),
            ("layer2.weight", vec![hidden, hidden]),
            ("layer2.bias", vec![hidden]),
            ("layer3.weight", vec![hidden, vocabulary]),
            ("layer3.bias", vec![vocabulary]),
        ]
    }

    /// The index of the input for: `token` is at `position`.
    fn token_row(&self, position: usize, token: u32) -> usize {
        self.task.prompt_features + position * self.task.vocabulary + token as usize
    }

    /// The index of the input for: the next token is at `position`.
    fn position_row(&self, position: usize) -> usize {
        self.token_row(self.task.max_response_tokens, 0) + position
    }

    /// The tensors as matrices; a bias has one row.
    fn matrices(&self) -> [ArrayView2<'_, f32>; 6] {
        let mut rest = &self.values[..];
        self.tensors().map(|(_, shape)| {
            let own = rest.split_off(..shape.iter().product());
            matrix(own.unwrap_or_default(), shape[shape.len() - 1])
        })
    }

    /// A group of values, one per parameter, as tensors for a file.
    pub fn named<'a>(&self, group: &str, mut values: &'a [f32]) -> Vec<NamedTensor<'a>> {
        let tensors = self.tensors().into_iter();
        let named = tensors.map(|(name, shape)| {
            let own = values.split_off(..shape.iter().product());
            (format!("{group}.{name}"), shape, own.unwrap_or_default())
        });
        named.collect()
    }

    /// As [`Network::matrices`], of a gradient.
    fn matrices_of<'a>(&self, mut gradient: &'a mut [f32]) -> [ArrayViewMut2<'a, f32>; 6] {
        self.tensors().map(|(_, shape)| {
            let own = gradient.split_off_mut(..shape.iter().product());
            matrix_mut(own.unwrap_or_default(), shape[shape.len() - 1])
        })
    }
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

/// A token of a response.
pub(super) struct Choice {
    pub token: u32,
    /// The index of the prefix before it.
    prefix: usize,
    pub logp: f32,
    /// The entropy of the distribution at this token.
    pub entropy: f32,
}

/// A forward pass over some responses. A response's bits do not depend on the others.
pub(super) struct Forward<'a> {
    network: &'a Network,
    prompts: &'a [Prompt],
    /// The tokens of each response.
    pub choices: Vec<Vec<Choice>>,
    /// Position by position.
    prefixes: Vec<Prefix>,
    keeps_hidden: bool,
    /// The newest prefixes' sums in the first layer, without the input of the position: `[prefixes, hidden]`.
    sums: Vec<f32>,
    /// Memory for the next sums: allocating it at each position would cost more than computing them.
    next: Vec<f32>,
    /// The hidden layers after their ReLU, `[prefixes, hidden]`, of all positions if they are kept, else of the newest one.
    h1: Vec<f32>,
    h2: Vec<f32>,
    /// Probabilities of the next token, `[prefixes, vocabulary]`; f64, since exact log-probs of so small a vocabulary are cheap.
    probabilities: Vec<f64>,
}

impl<'a> Forward<'a> {
    /// Runs the network for responses to the prompts at the indices `owners`, each with at least one token. `choose` returns
    /// the token of a response at a position, given its probabilities, and whether it is the last token. The hidden layers are
    /// only needed for [`Forward::gradient`].
    pub fn new(
        network: &'a Network,
        prompts: &'a [Prompt],
        owners: impl Iterator<Item = usize>,
        keeps_hidden: bool,
        mut choose: impl FnMut(usize, usize, &[f64]) -> (u32, bool),
    ) -> Self {
        let mut pass = Forward {
            network,
            prompts,
            choices: Vec::new(),
            prefixes: Vec::new(),
            keeps_hidden,
            sums: Vec::new(),
            next: Vec::new(),
            h1: Vec::new(),
            h2: Vec::new(),
            probabilities: Vec::new(),
        };
        let mut by_prompt = HashMap::new();
        let mut prefix = |prompt| {
            *by_prompt
                .entry(prompt)
                .or_insert_with(|| pass.begin(prompt))
        };
        // The responses that go on, with their prefixes.
        let mut live: Vec<(usize, usize)> = owners.map(&mut prefix).enumerate().collect();
        pass.choices.resize_with(live.len(), Vec::new);
        while !live.is_empty() {
            let scores = pass.evaluate();
            pass.extend(&scores, &mut live, &mut choose);
        }
        pass
    }

    /// Adds the empty prefix of a prompt, and returns its index.
    fn begin(&mut self, prompt: usize) -> usize {
        let [w1, b1, ..] = self.network.matrices();
        let mut sum = b1.row(0).to_owned();
        for (&x, weights) in self.prompts[prompt].features.iter().zip(w1.rows()) {
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

    /// Runs the network for the prefixes of the newest position: log-probs `[prefixes, vocabulary]` and entropies of their
    /// next tokens.
    fn evaluate(&mut self) -> (Vec<f64>, Vec<f64>) {
        let [w1, _, w2, b2, w3, b3] = self.network.matrices();
        let (hidden, vocabulary) = w3.dim();
        let count = self.sums.len() / hidden;
        let position = self.prefixes[self.prefixes.len() - count].position;
        if !self.keeps_hidden {
            self.h1.clear();
            self.h2.clear();
        }
        let start = self.h1.len();
        self.h1.extend_from_slice(&self.sums);
        self.h2.resize(self.h1.len(), 0.0);
        let mut h1 = matrix_mut(&mut self.h1[start..], hidden);
        h1 += &w1.row(self.network.position_row(position));
        h1.mapv_inplace(relu);
        let mut h2 = matrix_mut(&mut self.h2[start..], hidden);
        h2.assign(&b2);
        general_mat_mul(1.0, &h1, &w2, 1.0, &mut h2);
        h2.mapv_inplace(relu);
        let mut logits = Array2::zeros((count, vocabulary));
        logits += &b3.row(0);
        general_mat_mul(1.0, &h2, &w3, 1.0, &mut logits);
        let (mut logp, mut entropies) = (Vec::new(), Vec::new());
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
                logp.push(f64::from(z) - log_total);
                // A probability of 0 adds nothing, even though its log-prob is infinite.
                if *probability > 0.0 {
                    entropy -= *probability * (f64::from(z) - log_total);
                }
            }
            entropies.push(entropy);
        }
        (logp, entropies)
    }

    /// Chooses the next token of each live response, and adds the prefixes of the next position.
    fn extend(
        &mut self,
        (logp, entropies): &(Vec<f64>, Vec<f64>),
        live: &mut Vec<(usize, usize)>,
        choose: &mut impl FnMut(usize, usize, &[f64]) -> (u32, bool),
    ) {
        let Network { task, hidden, .. } = *self.network;
        let [w1, ..] = self.network.matrices();
        let first = self.prefixes.len() - entropies.len();
        let position = self.prefixes[first].position;
        let mut children = vec![None; logp.len()];
        self.next.clear();
        live.retain_mut(|(index, prefix)| {
            let own = *prefix - first;
            let probabilities = &self.probabilities[*prefix * task.vocabulary..];
            let (token, is_last) = choose(*index, position, &probabilities[..task.vocabulary]);
            let place = own * task.vocabulary + token as usize;
            self.choices[*index].push(Choice {
                token,
                prefix: *prefix,
                logp: logp[place] as f32,
                entropy: entropies[own] as f32,
            });
            if !is_last {
                *prefix = *children[place].get_or_insert_with(|| {
                    let row = self.network.token_row(position, token);
                    let sum = &self.sums[own * hidden..][..hidden];
                    let sums = sum.iter().zip(w1.row(row));
                    self.next.extend(sums.map(|(sum, weight)| sum + weight));
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
        std::mem::swap(&mut self.sums, &mut self.next);
    }

    /// The gradient of a loss with respect to the network's parameters, given dloss/dlogp of each token of each response.
    pub fn gradient<'d>(&self, dloss_dlogp: impl Iterator<Item = &'d [f64]>) -> Vec<f32> {
        let network = self.network;
        let vocabulary = network.task.vocabulary;
        let mut dlogits = vec![0.0; self.probabilities.len()];
        for (choices, dlogp) in self.choices.iter().zip(dloss_dlogp) {
            for (choice, derivative) in choices.iter().zip(dlogp) {
                // A token's log-prob has the derivative 1 - p by its own logit, and -p by each other logit.
                let place = choice.prefix * vocabulary;
                let probabilities = &self.probabilities[place..];
                let row = dlogits[place..].iter_mut().zip(probabilities);
                row.take(vocabulary).for_each(|(d, p)| *d -= derivative * p);
                dlogits[place + choice.token as usize] += derivative;
            }
        }
        let dlogits: Vec<f32> = dlogits.into_iter().map(|d| d as f32).collect();
        let mut gradient = vec![0.0; network.values.len()];
        let [_, _, w2, _, w3, _] = network.matrices();
        let [mut dw1, mut db1, dw2, db2, dw3, db3] = network.matrices_of(&mut gradient);
        let dh2 = backward(&self.h2, w3, matrix(&dlogits, vocabulary), dw3, db3);
        let mut dh1 = backward(&self.h1, w2, dh2.view(), dw2, db2);
        for (prefix, dh1) in self.prefixes.iter().zip(dh1.rows()) {
            let mut row = dw1.row_mut(network.position_row(prefix.position));
            row += &dh1;
        }
        // A token is an input of all later prefixes, so each prefix adds its sum to its parent, which comes before it.
        for (index, prefix) in self.prefixes.iter().enumerate().rev() {
            let own = dh1.row(index).to_owned();
            if let Some((parent, row)) = prefix.parent {
                dw1.row_mut(row).scaled_add(1.0, &own);
                dh1.row_mut(parent).scaled_add(1.0, &own);
                continue;
            }
            db1.row_mut(0).scaled_add(1.0, &own);
            let features = &self.prompts[prefix.prompt].features;
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
/// the gradient of the ReLU's input. `dy` is the gradient of the layer's outputs.
fn backward(
    x: &[f32],
    weights: ArrayView2<'_, f32>,
    dy: ArrayView2<'_, f32>,
    mut dweights: ArrayViewMut2<'_, f32>,
    mut dbias: ArrayViewMut2<'_, f32>,
) -> Array2<f32> {
    let x = matrix(x, weights.nrows());
    general_mat_mul(1.0, &x.t(), &dy, 1.0, &mut dweights);
    for row in dy.rows() {
        dbias.row_mut(0).scaled_add(1.0, &row);
    }
    let mut dx = dy.dot(&weights.t());
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
