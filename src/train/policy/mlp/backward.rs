//! The backward pass: the gradient of a loss by the parameters, from its derivative by the log-prob of each token.

use ndarray::linalg::general_mat_mul;

use super::forest::{Forest, Origin};
use super::network::{Network, Real, add, add_scaled, rows, rows_mut};
use crate::train::task::Prompt;

impl<F: Real> Forest<F> {
    /// The gradient, given dloss/dlogp for the tokens of each response of the forest.
    pub fn gradient(
        &self,
        network: &Network<F>,
        prompts: &[Prompt],
        dloss_dlogp: &[&[f64]],
    ) -> Network<F> {
        let hidden = network.sizes.hidden;
        let vocabulary = network.sizes.vocabulary;
        let layers = network.layers();
        let mut gradient = Network::zeros(network.sizes);
        let mut sums = gradient.layers_mut();

        let dlogits = self.dlogits(vocabulary, dloss_dlogp);
        // A group whose advantages are all 0 asks for nothing: its nodes drop out here.
        let active: Vec<usize> = (0..self.nodes.len())
            .filter(|node| {
                dlogits[node * vocabulary..][..vocabulary]
                    .iter()
                    .any(|&d| d != 0.0)
            })
            .collect();
        if active.is_empty() {
            return gradient;
        }
        let of_active = |values: &[F]| -> Vec<F> {
            let rows = active.iter().map(|node| &values[node * hidden..][..hidden]);
            rows.flatten().copied().collect()
        };
        let (h1, h2) = (of_active(&self.h1), of_active(&self.h2));
        let dlogits: Vec<F> = active
            .iter()
            .flat_map(|node| &dlogits[node * vocabulary..][..vocabulary])
            .map(|&d| F::rounded(d))
            .collect();

        let (one, zero) = (F::one(), F::zero());
        let (h1_rows, h2_rows) = (rows(&h1, hidden), rows(&h2, hidden));
        let dlogits_rows = rows(&dlogits, vocabulary);
        general_mat_mul(one, &h2_rows.t(), &dlogits_rows, zero, &mut sums.w3);
        for row in dlogits.chunks_exact(vocabulary) {
            add(sums.b3, row);
        }

        let mut dh2 = vec![zero; h2.len()];
        let mut dh2_rows = rows_mut(&mut dh2, hidden);
        general_mat_mul(one, &dlogits_rows, &layers.w3.t(), zero, &mut dh2_rows);
        close_where_off(&mut dh2, &h2);
        let dh2_rows = rows(&dh2, hidden);
        general_mat_mul(one, &h1_rows.t(), &dh2_rows, zero, &mut sums.w2);
        for row in dh2.chunks_exact(hidden) {
            add(sums.b2, row);
        }

        let mut dh1 = vec![zero; h1.len()];
        let mut dh1_rows = rows_mut(&mut dh1, hidden);
        general_mat_mul(one, &dh2_rows, &layers.w2.t(), zero, &mut dh1_rows);
        close_where_off(&mut dh1, &h1);
        self.first_layer(network, prompts, &active, &dh1, sums.w1, sums.b1);
        gradient
    }

    /// dloss/dlogits, [nodes, vocabulary]: a token's log-prob moves with its own logit by 1 - p and with every other by
    /// -p; the responses that pass through a node add up.
    fn dlogits(&self, vocabulary: usize, dloss_dlogp: &[&[f64]]) -> Vec<f64> {
        let mut dlogits = vec![0.0; self.nodes.len() * vocabulary];
        let responses = self.tokens.iter().zip(&self.visits).zip(dloss_dlogp);
        for ((tokens, visits), derivatives) in responses {
            for ((&token, &node), &derivative) in tokens.iter().zip(visits).zip(*derivatives) {
                if derivative == 0.0 {
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
        w1: &mut [F],
        b1: &mut [F],
    ) {
        let hidden = network.sizes.hidden;
        let mut subtrees = vec![F::zero(); self.nodes.len() * hidden];
        let mut reached = vec![false; self.nodes.len()];
        for (&node, row) in active.iter().zip(dh1.chunks_exact(hidden)) {
            let now = network.sizes.position_row(self.nodes[node].position);
            add(&mut w1[now * hidden..][..hidden], row);
            subtrees[node * hidden..][..hidden].copy_from_slice(row);
            reached[node] = true;
        }
        for node in (0..self.nodes.len()).rev() {
            if !reached[node] {
                continue;
            }
            let (before, from) = subtrees.split_at_mut(node * hidden);
            let subtree = &from[..hidden];
            match self.nodes[node].origin {
                Origin::Token { parent, row } => {
                    add(&mut w1[row * hidden..][..hidden], subtree);
                    add(&mut before[parent * hidden..][..hidden], subtree);
                    reached[parent] = true;
                }
                Origin::Prompt(prompt) => {
                    add(b1, subtree);
                    for (row, &x) in prompts[prompt].features.iter().enumerate() {
                        if x != 0.0 {
                            let x = F::rounded(x.into());
                            add_scaled(&mut w1[row * hidden..][..hidden], x, subtree);
                        }
                    }
                }
            }
        }
    }
}

/// The derivative of the ReLU: nothing passes where its output is 0.
fn close_where_off<F: Real>(derivatives: &mut [F], outputs: &[F]) {
    for (derivative, &output) in derivatives.iter_mut().zip(outputs) {
        if output == F::zero() {
            *derivative = F::zero();
        }
    }
}
