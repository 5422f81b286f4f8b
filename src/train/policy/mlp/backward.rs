//! The backward pass: the gradient of a loss by the parameters, from its derivative by the log-prob of each token.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;

use super::network::{Network, Real, Sizes, add, add_scaled, rows, rows_mut};
use super::trie::{Prefix, Trie};
use crate::train::policy::Responses;
use crate::train::task::Prompt;

impl<F: Real> Trie<F> {
    /// The gradient of the part of the loss that stands on the prompts `own`, given dloss/dlogp for each token of the
    /// batch's responses.
    pub fn gradient(
        &self,
        network: &Network<F>,
        prompts: &[Prompt],
        own: Range<usize>,
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Network<F> {
        let Sizes { task, hidden } = network.sizes;
        let [_, _, w2, _, w3, _] = network.tensors();
        let mut gradient = Network::zeros(network.sizes);
        let [dw1, db1, dw2, db2, dw3, db3] = gradient.tensors_mut();

        let dlogits = self.dlogits(task.vocabulary, &own, responses, dloss_dlogp);
        let of_node = |node: usize| &dlogits[node * task.vocabulary..][..task.vocabulary];
        // A group whose advantages are all 0 asks for nothing: its nodes drop out here.
        let active: Vec<usize> = (0..self.nodes.len())
            .filter(|&node| of_node(node).iter().any(|&d| d != 0.0))
            .collect();
        if active.is_empty() {
            return gradient;
        }
        let of_active = |values: &[F]| -> Vec<F> {
            let rows = active.iter().map(|node| &values[node * hidden..][..hidden]);
            rows.collect::<Vec<_>>().concat()
        };
        let (h1, h2) = (of_active(&self.h1), of_active(&self.h2));
        let dlogits = active.iter().flat_map(|&node| of_node(node));
        let dlogits: Vec<F> = dlogits.map(|&d| F::rounded(d)).collect();

        let mut dh2 = vec![F::zero(); h2.len()];
        backward(&h2, w3, &dlogits, task.vocabulary, dw3, db3, &mut dh2);
        let mut dh1 = vec![F::zero(); h1.len()];
        backward(&h1, w2, &dh2, hidden, dw2, db2, &mut dh1);
        self.first_layer(network, prompts, &active, &dh1, dw1, db1);
        gradient
    }

    /// dloss/dlogits, [nodes, vocabulary]: a token's log-prob moves with its own logit by 1 - p and with every other by
    /// -p; the responses that pass through a node add up.
    fn dlogits(
        &self,
        vocabulary: usize,
        own: &Range<usize>,
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Vec<f64> {
        let mut dlogits = vec![0.0; self.nodes.len() * vocabulary];
        for (&response, visits) in self.responses.iter().zip(&self.visits) {
            let range = responses.range(response);
            let tokens = responses.response(response).iter().zip(visits);
            for ((&token, &node), &derivative) in tokens.zip(&dloss_dlogp[range]) {
                if derivative == 0.0 || !own.contains(&self.nodes[node].prompt) {
                    continue;
                }
                let row = &mut dlogits[node * vocabulary..][..vocabulary];
                let probabilities = &self.probabilities[node * vocabulary..][..vocabulary];
                for (d, probability) in row.iter_mut().zip(probabilities) {
                    *d -= derivative * probability;
                }
                row[token as usize] += derivative;
            }
        }
        dlogits
    }

    /// Adds up the first layer's gradient. A token's row is an input of all nodes behind it, and a prompt's features of
    /// all its nodes, so each node hands its sum on to its parent: one addition a node instead of one for each token
    /// before it.
    fn first_layer(
        &self,
        network: &Network<F>,
        prompts: &[Prompt],
        active: &[usize],
        dh1: &[F],
        dw1: &mut [F],
        db1: &mut [F],
    ) {
        let hidden = network.sizes.hidden;
        let mut subtrees = vec![Vec::new(); self.nodes.len()];
        for (&node, row) in active.iter().zip(dh1.chunks_exact(hidden)) {
            let now = network.sizes.position_row(self.nodes[node].position);
            add(&mut dw1[now * hidden..][..hidden], row);
            subtrees[node] = row.to_vec();
        }
        // Children before their parents.
        for (node, &Prefix { prompt, parent, .. }) in self.nodes.iter().enumerate().rev() {
            let subtree = std::mem::take(&mut subtrees[node]);
            if subtree.is_empty() {
                continue;
            }
            if let Some((parent, row)) = parent {
                add(&mut dw1[row * hidden..][..hidden], &subtree);
                if subtrees[parent].is_empty() {
                    subtrees[parent] = subtree;
                } else {
                    add(&mut subtrees[parent], &subtree);
                }
                continue;
            }
            add(db1, &subtree);
            for (row, &x) in dw1.chunks_exact_mut(hidden).zip(&prompts[prompt].features) {
                if x != 0.0 {
                    add_scaled(row, F::rounded(x.into()), &subtree);
                }
            }
        }
    }
}

/// A linear layer behind a ReLU, whose outputs are `x`: from the derivatives `dy` of the layer's outputs, those of its
/// weights, its biases and of what goes into the ReLU. Nothing passes where the ReLU's output is 0.
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
        zero,
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
    use crate::train::policy::mlp::trie::TokenSource;
    use crate::train::random::{Key, Purpose, Stream};
    use crate::train::task::{Arithmetic, Maze, Task, training_prompts};

    const GROUP: usize = 6;

    fn stream(step: u64) -> Stream {
        let key = Key::new(4, Purpose::Responses, step);
        key.stream(0)
    }

    struct Case {
        network: Network<f64>,
        prompts: Vec<Prompt>,
        responses: Responses,
        /// The loss is the sum of these times the log-probs.
        weights: Vec<f64>,
    }

    impl Case {
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
            let all = (0..owners.len()).collect();
            let source = |response| TokenSource::Sample(Box::new(stream(response as u64 + 1)));
            let trie = Trie::grow(&network, &prompts, &owners, all, source);
            let mut responses = Responses::new();
            for (&owner, tokens) in owners.iter().zip(&trie.tokens) {
                responses.push(owner, tokens);
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
            let all = (0..owners.len()).collect();
            let source = |response| TokenSource::Given(responses.response(response));
            Trie::grow(network, &self.prompts, owners, all, source)
        }

        fn loss(&self, network: &Network<f64>) -> f64 {
            let trie = self.trie(network);
            let vocabulary = network.sizes.task.vocabulary;
            let visits = trie.visits.concat();
            let tokens = visits.iter().zip(self.responses.tokens());
            let logp = tokens.map(|(node, &token)| trie.logp[node * vocabulary + token as usize]);
            logp.zip(&self.weights)
                .map(|(logp, weight)| weight * logp)
                .sum()
        }

        fn gradient<F: Real>(&self, network: &Network<F>) -> Network<F> {
            let (prompts, all) = (&self.prompts, 0..self.prompts.len());
            self.trie(network)
                .gradient(network, prompts, all, &self.responses, &self.weights)
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
            let case = Case::new(&*task);
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
            let case = Case::new(&*task);
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
        let mut case = Case::new(&*tasks()[0]);
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
