//! The backward pass: the gradient of a loss with respect to the parameters, from its derivatives with respect to the log-probs.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;

use super::forward::{Prefix, Trie};
use super::network::{Network, Real, Sizes, add, add_scaled, rows, rows_mut};
use crate::policy::Responses;
use crate::task::Prompt;

/// Adds to `gradient` that of the part of the loss that belongs to the prompts `own`, given dloss/dlogp for each token of the
/// batch's responses. The trie has its hidden layers.
pub(super) fn add_gradient<F: Real>(
    gradient: &mut Network<F>,
    trie: &Trie<F>,
    network: &Network<F>,
    prompts: &[Prompt],
    own: Range<usize>,
    responses: &Responses,
    dloss_dlogp: &[f64],
) {
    let Sizes { task, hidden } = network.sizes;
    let (row_of, nodes) = choose(trie, own, responses, dloss_dlogp);
    if nodes.is_empty() {
        return;
    }
    let vocabulary = task.vocabulary;
    let mut dlogits = vec![0.0; nodes.len() * vocabulary];
    for choice in &trie.choices {
        let Some(row) = row_of[choice.node] else {
            continue;
        };
        // A token's log-prob moves with its own logit by 1 - p and with every other by -p; the responses that pass
        // through a node add up.
        let position = trie.nodes[choice.node].position;
        let derivative = dloss_dlogp[responses.range(choice.response).start + position];
        let row = &mut dlogits[row * vocabulary..][..vocabulary];
        let probabilities = &trie.probabilities[choice.node * vocabulary..][..vocabulary];
        for (d, probability) in row.iter_mut().zip(probabilities) {
            *d -= derivative * probability;
        }
        row[choice.token as usize] += derivative;
    }
    let dlogits: Vec<F> = dlogits.into_iter().map(F::rounded).collect();
    let gather = |values: &[F]| -> Vec<F> {
        let rows = nodes.iter().map(|node| &values[node * hidden..][..hidden]);
        rows.flatten().copied().collect()
    };
    let (h1, h2) = (gather(&trie.h1), gather(&trie.h2));
    let [_, _, w2, _, w3, _] = network.tensors();
    let [_, _, dw2, db2, dw3, db3] = gradient.tensors_mut();
    let dh2 = backward(&h2, w3, &dlogits, vocabulary, dw3, db3);
    let dh1 = backward(&h1, w2, &dh2, hidden, dw2, db2);
    first_layer(gradient, trie, prompts, &row_of, &nodes, dh1);
}

/// Gives a row to each node on which a token with a derivative depends, and to its ancestors: the row of each node, and the nodes
/// of the rows, parents before children. A group whose advantages are all 0 needs nothing: its nodes drop out here.
fn choose<F>(
    trie: &Trie<F>,
    own: Range<usize>,
    responses: &Responses,
    dloss_dlogp: &[f64],
) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut is_needed = vec![false; trie.nodes.len()];
    for choice in &trie.choices {
        let Prefix {
            prompt, position, ..
        } = trie.nodes[choice.node];
        let token = responses.range(choice.response).start + position;
        is_needed[choice.node] |= own.contains(&prompt) && dloss_dlogp[token] != 0.0;
    }
    for node in (0..trie.nodes.len()).rev() {
        if let Some((parent, _)) = trie.nodes[node].parent {
            is_needed[parent] |= is_needed[node];
        }
    }
    let mut nodes = Vec::new();
    let rows = is_needed.into_iter().enumerate().map(|(node, is_needed)| {
        is_needed.then(|| {
            nodes.push(node);
            nodes.len() - 1
        })
    });
    (rows.collect(), nodes)
}

/// Adds up the first layer's gradient. A token's row is an input of all nodes behind it, and a prompt's features of
/// all its nodes, so each node hands its sum on to its parent: one addition per node instead of one for each token
/// before it.
fn first_layer<F: Real>(
    gradient: &mut Network<F>,
    trie: &Trie<F>,
    prompts: &[Prompt],
    row_of: &[Option<usize>],
    nodes: &[usize],
    mut dh1: Vec<F>,
) {
    let sizes = gradient.sizes;
    let hidden = sizes.hidden;
    let [dw1, db1, ..] = gradient.tensors_mut();
    for (&node, dh1) in nodes.iter().zip(dh1.chunks_exact(hidden)) {
        let now = sizes.position_row(trie.nodes[node].position);
        add(&mut dw1[now * hidden..][..hidden], dh1);
    }
    // Children before their parents.
    for (row, &node) in nodes.iter().enumerate().rev() {
        let (before, subtree) = dh1.split_at_mut(row * hidden);
        let subtree = &subtree[..hidden];
        let Prefix { prompt, parent, .. } = trie.nodes[node];
        if let Some((parent, token)) = parent {
            add(&mut dw1[token * hidden..][..hidden], subtree);
            if let Some(parent) = row_of[parent] {
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

/// A linear layer behind a ReLU, whose outputs are `x`: from the derivatives `dy` of the layer's outputs, gives those of what
/// goes into the ReLU, and adds those of its weights and biases. Nothing passes where the ReLU's output is 0.
fn backward<F: Real>(
    x: &[F],
    weights: &[F],
    dy: &[F],
    outputs: usize,
    dweights: &mut [F],
    dbias: &mut [F],
) -> Vec<F> {
    let inputs = weights.len() / outputs;
    let (one, zero) = (F::one(), F::zero());
    let (x_rows, dy_rows) = (rows(x, inputs), rows(dy, outputs));
    let mut dweights = rows_mut(dweights, outputs);
    general_mat_mul(one, &x_rows.t(), &dy_rows, one, &mut dweights);
    for row in dy.chunks_exact(outputs) {
        add(dbias, row);
    }
    let mut dx = vec![zero; x.len()];
    let weights = rows(weights, outputs);
    general_mat_mul(
        one,
        &dy_rows,
        &weights.t(),
        zero,
        &mut rows_mut(&mut dx, inputs),
    );
    for (dx, &x) in dx.iter_mut().zip(x) {
        // A choice instead of a branch, so that it is done for many at a time.
        *dx = if x == zero { zero } else { *dx };
    }
    dx
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::mlp::forward::TokenSource;
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
            let trie = Trie::grow(&network, &prompts, &owners, &all, source, false);
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
            Trie::grow(network, &self.prompts, owners, &all, source, true)
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
            let mut gradient = Network::zeros(network.sizes);
            let (responses, weights) = (&self.responses, &self.weights);
            add_gradient(
                &mut gradient,
                &trie,
                network,
                prompts,
                all,
                responses,
                weights,
            );
            gradient
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
