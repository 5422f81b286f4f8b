//! Compares the network with plain loops in f64 that share no code with it.

use super::*;
use crate::task::{Arithmetic, Maze, Task, training_prompts};

const HIDDEN: usize = 7;
const GROUP: usize = 6;

struct Case {
    task: TaskShape,
    policy: Mlp,
    responses: Responses,
    /// The loss is the sum of the log-probs, each multiplied by its weight.
    weights: Vec<f64>,
}

fn cases() -> [Case; 2] {
    cases_of(3)
}

fn cases_of(prompts: usize) -> [Case; 2] {
    let tasks: [Box<dyn Task>; 2] = [
        Box::new(Maze::new(2).unwrap()),
        Box::new(Arithmetic::new(1).unwrap()),
    ];
    tasks.map(|task| {
        let mut policy = Mlp::new(&task.shape(), HIDDEN, AdamWConfig::default(), 4);
        // The parameters are doubled, so that no distribution is close to uniform.
        let parameters = &mut policy.network.parameters;
        parameters.iter_mut().for_each(|value| *value *= 2.0);
        let prompts = training_prompts(&*task, 4, 0, prompts).unwrap();
        let key = StreamKey::new(4, Purpose::Responses, 1);
        let responses = policy.sample(&prompts, GROUP, key).unwrap().responses;
        let mut random = StreamKey::new(4, Purpose::Responses, 2).stream(0);
        let weights = responses.tokens().iter().map(|_| random.uniform() - 0.5);
        Case {
            task: task.shape(),
            weights: weights.collect(),
            policy,
            responses,
        }
    })
}

/// Returns the outputs of a linear layer, whose weights and biases are taken from the front of `rest`.
fn linear(rest: &mut &[f64], inputs: &[f64], outputs: usize) -> Vec<f64> {
    let weights = rest.split_off(..inputs.len() * outputs).unwrap();
    let bias = rest.split_off(..outputs).unwrap();
    let sum = |output: usize| {
        let terms = inputs.iter().enumerate();
        let terms = terms.map(|(input, x)| x * weights[input * outputs + output]);
        terms.sum::<f64>() + bias[output]
    };
    (0..outputs).map(sum).collect()
}

impl Case {
    /// Returns the log-probs of the tokens of a response.
    fn logp(&self, values: &[f64], response: usize) -> Vec<f64> {
        let TaskShape {
            vocabulary,
            max_response_tokens: longest,
            ..
        } = self.task;
        let prompt = &self.responses.prompts()[self.responses.owners()[response]];
        let tokens = self.responses.response(response);
        let of_token = |(position, &token): (usize, &u32)| {
            let mut inputs: Vec<f64> = prompt.features.iter().map(|&x| x.into()).collect();
            let features = inputs.len();
            inputs.resize(features + longest * vocabulary + longest, 0.0);
            for (before, &token) in tokens[..position].iter().enumerate() {
                inputs[features + before * vocabulary + token as usize] = 1.0;
            }
            inputs[features + longest * vocabulary + position] = 1.0;
            let mut rest = values;
            for _ in 0..2 {
                inputs = linear(&mut rest, &inputs, HIDDEN);
                inputs.iter_mut().for_each(|x| *x = x.max(0.0));
            }
            let logits = linear(&mut rest, &inputs, vocabulary);
            let total: f64 = logits.iter().map(|z| z.exp()).sum();
            logits[token as usize] - total.ln()
        };
        tokens.iter().enumerate().map(of_token).collect()
    }

    fn loss(&self, values: &[f64]) -> f64 {
        let logp = (0..self.responses.len()).flat_map(|response| self.logp(values, response));
        logp.zip(&self.weights).map(|(logp, w)| logp * w).sum()
    }

    fn values(&self) -> Vec<f64> {
        let values = self.policy.network.parameters.iter();
        values.map(|&value| value.into()).collect()
    }

    fn gradient(&mut self) -> Vec<f32> {
        self.policy.gradient.fill(0.0);
        let added = self.policy.accumulate(&self.responses, &self.weights);
        added.unwrap();
        self.policy.gradient.clone()
    }
}

#[test]
fn scores_are_those_of_plain_loops() {
    for mut case in cases() {
        let scores = case.policy.score(&case.responses).unwrap();
        let values = case.values();
        for response in 0..case.responses.len() {
            let found = &scores.logp[case.responses.range(response)];
            for (found, expected) in found.iter().zip(case.logp(&values, response)) {
                let difference = f64::from(*found) - expected;
                assert!(difference.abs() < 1e-6, "{found} {expected}");
            }
        }
    }
}

#[test]
fn the_gradient_agrees_with_central_differences_but_for_rounding() {
    for mut case in cases() {
        let gradient = case.gradient();
        let nonzero = gradient.iter().filter(|&&g| g != 0.0).count();
        // The rows of positions that no response reached have gradient 0.
        assert!(nonzero > gradient.len() / 3, "{nonzero} nonzero");
        let mut values = case.values();
        let (mut error, mut length) = (0.0, 0.0);
        for (index, &g) in gradient.iter().enumerate() {
            let (x, h) = (values[index], 1e-5);
            let mut loss_at = |value: f64| {
                values[index] = value;
                case.loss(&values)
            };
            // The truncation error is of the order h^2 and the rounding error of 1e-16 * loss / h: both are near 1e-10.
            let difference = (loss_at(x + h) - loss_at(x - h)) / (2.0 * h);
            values[index] = x;
            error += (f64::from(g) - difference).powi(2);
            length += difference.powi(2);
        }
        assert!(error < 1e-12 * length, "{error} of {length}, squared");
    }
}

/// A replay depends on this, because it may still have a step's passes from sampling although the run had to compute new passes.
#[test]
fn the_passes_that_sampled_give_the_gradient_of_new_ones() {
    // One group is split between two parts.
    for mut case in cases_of(PART / GROUP + 10) {
        for (response, prompt) in case.responses.owners().iter().enumerate() {
            if prompt % 3 == 0 {
                case.weights[case.responses.range(response)].fill(0.0);
            }
        }
        assert!(case.policy.last.is_some());
        let gradient = case.gradient();
        case.policy.last = None;
        assert_eq!(case.gradient(), gradient);
        assert!(case.policy.last.is_none());
    }
}

#[test]
fn tokens_without_a_derivative_leave_no_trace() {
    let [mut case, _] = cases();
    let range = case.responses.range(GROUP);
    let own = case.weights[range.clone()].to_vec();
    case.weights.fill(0.0);
    assert!(case.gradient().iter().all(|&g| g == 0.0));
    case.weights[range].copy_from_slice(&own);
    let among_others = case.gradient();
    case.responses = case.responses.select(&[GROUP]);
    case.weights = own;
    assert_eq!(case.gradient(), among_others);
}
