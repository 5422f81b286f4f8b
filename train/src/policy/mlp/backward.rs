//! The backward pass: the gradient of a loss by the parameters, from its derivative by the log-prob of each token.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;

use super::network::{Network, Real, Sizes, add, add_scaled, rows, rows_mut};
use super::trie::{Prefix, Trie};
use crate::policy::Responses;
use crate::task::Prompt;

/// A gradient that grows by the prompts of a few chunks, one after the other, in memory that is used again.
pub(super) struct Backward<F> {
    pub gradient: Network<F>,
    /// The row of each node of the trie in the arrays below; none where nothing depends on it.
    row: Vec<Option<usize>>,
    /// The nodes of these rows, parents before children.
    nodes: Vec<usize>,
    /// Derivatives of the loss by the logits, [rows, vocabulary].
    dlogits: Vec<f64>,
    rounded: Vec<F>,
    /// Hidden layers and the derivatives by them, [rows, hidden].
    h1: Vec<F>,
    h2: Vec<F>,
    dh1: Vec<F>,
    dh2: Vec<F>,
}

impl<F: Real> Backward<F> {
    /// A gradient of zeros.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            gradient: Network::zeros(sizes),
            row: Vec::new(),
            nodes: Vec::new(),
            dlogits: Vec::new(),
            rounded: Vec::new(),
            h1: Vec::new(),
            h2: Vec::new(),
            dh1: Vec::new(),
            dh2: Vec::new(),
        }
    }

    /// Adds the gradient of the part of the loss that stands on the prompts `own`, given dloss/dlogp for each token of
    /// the batch's responses.
    pub fn add(
        &mut self,
        trie: &Trie<F>,
        network: &Network<F>,
        prompts: &[Prompt],
        own: Range<usize>,
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) {
        let Sizes { task, hidden } = network.sizes;
        self.choose(trie, own, responses, dloss_dlogp);
        if self.nodes.is_empty() {
            return;
        }
        self.dlogits(trie, task.vocabulary, responses, dloss_dlogp);
        gather(&trie.h1, &self.nodes, hidden, &mut self.h1);
        gather(&trie.h2, &self.nodes, hidden, &mut self.h2);
        let [_, _, w2, _, w3, _] = network.tensors();
        let [_, _, dw2, db2, dw3, db3] = self.gradient.tensors_mut();
        self.dh2.resize(self.h2.len(), F::zero());
        let dlogits = &self.rounded;
        backward(
            &self.h2,
            w3,
            dlogits,
            task.vocabulary,
            dw3,
            db3,
            &mut self.dh2,
        );
        self.dh1.resize(self.h1.len(), F::zero());
        backward(&self.h1, w2, &self.dh2, hidden, dw2, db2, &mut self.dh1);
        self.first_layer(trie, prompts);
    }

    /// Gives a row to each node on which a token with a derivative depends, and to those before it. A group whose
    /// advantages are all 0 asks for nothing: its nodes drop out here.
    fn choose(
        &mut self,
        trie: &Trie<F>,
        own: Range<usize>,
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) {
        self.row.clear();
        self.row.resize(trie.nodes.len(), None);
        self.nodes.clear();
        for choice in &trie.choices {
            let Prefix {
                prompt, position, ..
            } = trie.nodes[choice.node];
            let token = responses.range(choice.response).start + position;
            if own.contains(&prompt) && dloss_dlogp[token] != 0.0 {
                self.row[choice.node] = Some(0);
            }
        }
        for node in (0..trie.nodes.len()).rev() {
            if let (Some(_), Some((parent, _))) = (self.row[node], trie.nodes[node].parent) {
                self.row[parent] = Some(0);
            }
        }
        for (node, row) in self.row.iter_mut().enumerate() {
            if let Some(row) = row {
                *row = self.nodes.len();
                self.nodes.push(node);
            }
        }
    }

    /// dloss/dlogits: a token's log-prob moves with its own logit by 1 - p and with every other by -p; the responses
    /// that pass through a node add up.
    fn dlogits(
        &mut self,
        trie: &Trie<F>,
        vocabulary: usize,
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) {
        self.dlogits.clear();
        self.dlogits.resize(self.nodes.len() * vocabulary, 0.0);
        for choice in &trie.choices {
            let Some(row) = self.row[choice.node] else {
                continue;
            };
            let position = trie.nodes[choice.node].position;
            let derivative = dloss_dlogp[responses.range(choice.response).start + position];
            let row = &mut self.dlogits[row * vocabulary..][..vocabulary];
            let probabilities = &trie.probabilities[choice.node * vocabulary..][..vocabulary];
            for (d, probability) in row.iter_mut().zip(probabilities) {
                *d -= derivative * probability;
            }
            row[choice.token as usize] += derivative;
        }
        self.rounded.clear();
        let rounded = self.dlogits.iter().map(|&d| F::rounded(d));
        self.rounded.extend(rounded);
    }

    /// Adds up the first layer's gradient. A token's row is an input of all nodes behind it, and a prompt's features of
    /// all its nodes, so each node hands its sum on to its parent: one addition a node instead of one for each token
    /// before it.
    fn first_layer(&mut self, trie: &Trie<F>, prompts: &[Prompt]) {
        let sizes = self.gradient.sizes;
        let hidden = sizes.hidden;
        let [dw1, db1, ..] = self.gradient.tensors_mut();
        for (&node, dh1) in self.nodes.iter().zip(self.dh1.chunks_exact(hidden)) {
            let now = sizes.position_row(trie.nodes[node].position);
            add(&mut dw1[now * hidden..][..hidden], dh1);
        }
        // Children before their parents.
        for (row, &node) in self.nodes.iter().enumerate().rev() {
            let (before, subtree) = self.dh1.split_at_mut(row * hidden);
            let subtree = &subtree[..hidden];
            let Prefix { prompt, parent, .. } = trie.nodes[node];
            if let Some((parent, token)) = parent {
                add(&mut dw1[token * hidden..][..hidden], subtree);
                if let Some(parent) = self.row[parent] {
                    add(&mut before[parent * hidden..][..hidden], subtree);
                }
                continue;
            }
            add(db1, subtree);
            for (row, &x) in dw1.chunks_exact_mut(hidden).zip(&prompts[prompt].features) {
                if x != 0.0 {
                    add_scaled(row, F::rounded(x.into()), subtree);
                }
            }
        }
    }
}

/// The rows of these nodes, one after the other.
fn gather<F: Real>(values: &[F], nodes: &[usize], columns: usize, to: &mut Vec<F>) {
    to.clear();
    for node in nodes {
        to.extend_from_slice(&values[node * columns..][..columns]);
    }
}

/// A linear layer behind a ReLU, whose outputs are `x`: from the derivatives `dy` of the layer's outputs, those of what
/// goes into the ReLU; those of its weights and biases are added. Nothing passes where the ReLU's output is 0.
fn backward<F: Real>(
    x: &[F],
    weights: &[F],
    dy: &[F],
    outputs: usize,
    dweights: &mut [F],
    dbias: &mut [F],
    dx: &mut [F],
) {
    let inputs = weights.len() / outputs;
    let (one, zero) = (F::one(), F::zero());
    let (x_rows, dy_rows) = (rows(x, inputs), rows(dy, outputs));
    general_mat_mul(
        one,
        &x_rows.t(),
        &dy_rows,
        one,
        &mut rows_mut(dweights, outputs),
    );
    for row in dy.chunks_exact(outputs) {
        add(dbias, row);
    }
    let weights = rows(weights, outputs);
    general_mat_mul(one, &dy_rows, &weights.t(), zero, &mut rows_mut(dx, inputs));
    for (dx, &x) in dx.iter_mut().zip(x) {
        // A choice instead of a branch, so that it is done for many at a time.
        *dx = if x == zero { zero } else { *dx };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::mlp::trie::TokenSource;
    use crate::task::{Arithmetic, Maze, Task, training_prompts};
    use advlab::random::{Purpose, RandomStream, StreamKey};

    const GROUP: usize = 6;

    fn stream(step: u64) -> RandomStream {
        let key = StreamKey::new(4, Purpose::Responses, step);
        key.stream(0)
    }

    struct WeightedLoss {
        network: Network<f64>,
        prompts: Vec<Prompt>,
        responses: Responses,
        /// The loss is the sum of these times the log-probs.
        weights: Vec<f64>,
    }

    impl WeightedLoss {
        fn new(task: &dyn Task) -> Self {
            let sizes = Sizes {
                task: task.shape(),
                hidden: 7,
            };
            // Twice the initial parameters, so that no distribution is close to uniform.
            let mut network = Network::<f64>::initial(sizes, &mut stream(0));
            network.values.iter_mut().for_each(|x| *x *= 2.0);
            let prompts = training_prompts(task, 4, 0, 3).unwrap();
            let owners: Vec<usize> = (0..3 * GROUP).map(|r| r / GROUP).collect();
            let all: Vec<usize> = (0..owners.len()).collect();
            let source = |response| TokenSource::Sample(Box::new(stream(response as u64 + 1)));
            let mut trie = Trie::default();
            trie.grow(&network, &prompts, &owners, &all, source, false);
            let mut responses = Responses::new();
            for (response, &owner) in owners.iter().enumerate() {
                let own = trie.choices.iter().filter(|c| c.response == response);
                responses.push(owner, &own.map(|c| c.token).collect::<Vec<_>>());
            }
            let mut random = stream(100);
            let weights = responses.tokens().iter().map(|_| random.uniform() - 0.5);
            Self {
                weights: weights.collect(),
                responses,
                network,
                prompts,
            }
        }

        fn trie<F: Real>(&self, network: &Network<F>) -> Trie<F> {
            let (responses, owners) = (&self.responses, self.responses.prompts());
            let all: Vec<usize> = (0..owners.len()).collect();
            let source = |response| TokenSource::Given(responses.response(response));
            let mut trie = Trie::default();
            trie.grow(network, &self.prompts, owners, &all, source, true);
            trie
        }

        fn loss(&self, network: &Network<f64>) -> f64 {
            let trie = self.trie(network);
            let vocabulary = network.sizes.task.vocabulary;
            let weighted = trie.choices.iter().map(|choice| {
                let position = trie.nodes[choice.node].position;
                let token = self.responses.range(choice.response).start + position;
                let logp = trie.logp[choice.node * vocabulary + choice.token as usize];
                self.weights[token] * logp
            });
            weighted.sum()
        }

        fn gradient<F: Real>(&self, network: &Network<F>) -> Network<F> {
            let (prompts, all) = (&self.prompts, 0..self.prompts.len());
            let trie = self.trie(network);
            let mut backward = Backward::new(network.sizes);
            backward.add(&trie, network, prompts, all, &self.responses, &self.weights);
            backward.gradient
        }
    }

    fn tasks() -> [Box<dyn Task>; 2] {
        [
            Box::new(Maze::new(2).unwrap()),
            Box::new(Arithmetic::new(1).unwrap()),
        ]
    }

    #[test]
    fn every_derivative_agrees_with_central_differences() {
        for task in tasks() {
            let case = WeightedLoss::new(&*task);
            let gradient = case.gradient(&case.network);
            let nonzero = gradient.values.iter().filter(|&&g| g != 0.0).count();
            // The rows of positions that no response reached have none.
            assert!(nonzero > gradient.values.len() / 3, "{nonzero} nonzero");
            let mut moved = case.network.clone();
            for (index, &g) in gradient.values.iter().enumerate() {
                let (x, h) = (case.network.values[index], 1e-5);
                moved.values[index] = x + h;
                let above = case.loss(&moved);
                moved.values[index] = x - h;
                let below = case.loss(&moved);
                moved.values[index] = x;
                let difference = (above - below) / (2.0 * h);
                // Truncation is of the order h^2, rounding of 1e-16 * loss / h: both near 1e-10.
                assert!(
                    (g - difference).abs() < 2e-9,
                    "{index}: {g} against {difference}"
                );
            }
        }
    }

    #[test]
    fn the_gradient_in_f32_is_that_in_f64_but_for_rounding() {
        for task in tasks() {
            let case = WeightedLoss::new(&*task);
            let single = Network {
                sizes: case.network.sizes,
                values: case.network.values.iter().map(|&x| x as f32).collect(),
            };
            let double = Network {
                sizes: single.sizes,
                values: single.values.iter().map(|&x| x.into()).collect(),
            };
            let (single, double) = (case.gradient(&single), case.gradient(&double));
            let norm =
                |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
            let pairs = single.values.iter().zip(&double.values);
            let error = norm(&mut pairs.map(|(&s, &d)| f64::from(s) - d));
            let length = norm(&mut double.values.iter().copied());
            assert!(error < 1e-6 * length, "{error} of {length}");
        }
    }

    #[test]
    fn tokens_without_a_derivative_leave_no_trace() {
        let mut case = WeightedLoss::new(&*tasks()[0]);
        let range = case.responses.range(GROUP);
        let keep = case.weights[range.clone()].to_vec();
        case.weights.fill(0.0);
        let nothing = case.gradient(&case.network);
        assert!(nothing.values.iter().all(|&g| g == 0.0));
        case.weights[range].copy_from_slice(&keep);
        let among_others = case.gradient(&case.network);
        case.responses = case.responses.select(&[GROUP]);
        case.weights = keep;
        assert_eq!(case.gradient(&case.network), among_others);
    }
}
