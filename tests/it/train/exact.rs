//! Log-probs, sampling and gradients are exact, and the same bits however they are computed.

use advlab_train::policy::{Policy, Samples};
use advlab_train::task::{Arithmetic, Task, training_prompts};

use super::{GROUP, key, maze, policy, responses, sampled, step};

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn responses_end_with_their_stop_token_or_at_the_longest() {
    let task = maze();
    let Samples { responses, scores } = sampled(&task, &mut policy(&task, 1), 0, 10);
    assert_eq!(responses.len(), 10 * GROUP);
    assert_eq!(scores.logp.len(), responses.tokens().len());
    assert_eq!(scores.entropy.len(), responses.tokens().len());
    for response in 0..responses.len() {
        assert_eq!(responses.owners()[response], response / GROUP);
        let (last, before) = responses.response(response).split_last().unwrap();
        assert!(!before.contains(&4));
        assert!(*last == 4 || before.len() == 15);
    }
}

#[test]
fn scoring_gives_the_bits_of_sampling_for_the_batch_and_for_any_part_of_it() {
    for task in [&maze() as &dyn Task, &Arithmetic::new(3).unwrap()] {
        let mut policy = policy(task, 1);
        for s in 0..3 {
            step(task, &mut policy, s);
        }
        let Samples { responses, scores } = sampled(task, &mut policy, 9, 10);
        policy.freeze().unwrap();
        let reference = policy.reference_logp(&responses);
        assert_eq!(reference.unwrap(), scores.logp);
        assert_eq!(policy.score(&responses).unwrap(), scores);

        let thirds: Vec<usize> = (0..responses.len()).rev().step_by(3).collect();
        for part in [&thirds[..], &[17], &[]] {
            let selected = responses.select(part);
            let found = policy.score(&selected).unwrap();
            let ranges = part.iter().map(|&r| responses.range(r));
            let own = |all: &[f32]| ranges.clone().flat_map(|r| bits(&all[r])).collect();
            let expected: (Vec<u32>, Vec<u32>) = (own(&scores.logp), own(&scores.entropy));
            assert_eq!((bits(&found.logp), bits(&found.entropy)), expected);
        }
    }
}

#[test]
fn the_probabilities_of_all_tokens_sum_to_one_and_give_the_entropy() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let each = (0..15).map(|i| (i / 5, [3, 1, 0, i as u32 % 5]));
    let each: Vec<(usize, [u32; 4])> = each.collect();
    let all: Vec<(usize, &[u32])> = each.iter().map(|(i, own)| (*i, &own[..])).collect();
    let responses = responses(&task, 3, &all);
    let scores = policy.score(&responses).unwrap();
    for prompt in 0..3 {
        let last: Vec<usize> = (0..5)
            .map(|t| responses.range(prompt * 5 + t).end - 1)
            .collect();
        let logp = last.iter().map(|&i| f64::from(scores.logp[i]));
        let total: f64 = logp.clone().map(f64::exp).sum();
        let entropy: f64 = -logp.map(|l| l * l.exp()).sum::<f64>();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
        for &i in &last {
            assert!((f64::from(scores.entropy[i]) - entropy).abs() < 1e-6);
        }
    }
}

#[test]
fn tokens_are_drawn_as_often_as_their_probabilities_say() {
    let task = maze();
    let mut policy = policy(&task, 1);
    for s in 0..20 {
        step(&task, &mut policy, s);
    }
    let prompts = training_prompts(&task, 1, 99, 1).unwrap();
    let count = 20_000;
    let Samples { responses, scores } = policy.sample(&prompts, count, key(99)).unwrap();
    let mut seen = [0.0; 5];
    let mut probability = [0.0; 5];
    for response in 0..count {
        let token = responses.response(response)[0] as usize;
        seen[token] += 1.0;
        probability[token] = f64::from(scores.logp[responses.range(response).start]).exp();
    }
    for (seen, p) in seen.iter().zip(probability) {
        let deviation = (count as f64 * p * (1.0 - p)).sqrt();
        assert!(
            (seen - count as f64 * p).abs() < 4.0 * deviation,
            "{seen} with p {p}"
        );
    }
}

#[test]
fn the_gradient_of_a_batch_is_the_sum_of_those_of_its_minibatches() {
    let task = maze();
    let (mut whole, mut parts) = (policy(&task, 1), policy(&task, 1));
    let Samples { responses, .. } = sampled(&task, &mut whole, 0, 6);
    let derivatives = (0..responses.tokens().len()).map(|i| (i as f64).sin());
    let derivatives: Vec<f64> = derivatives.collect();
    whole.accumulate(&responses, &derivatives).unwrap();
    for parity in 0..2 {
        let part: Vec<usize> = (parity..responses.len()).step_by(2).collect();
        let of_part: Vec<f64> = part
            .iter()
            .flat_map(|&r| derivatives[responses.range(r)].to_vec())
            .collect();
        parts
            .accumulate(&responses.select(&part), &of_part)
            .unwrap();
    }
    let [whole, parts] = [whole, parts].map(|mut policy| policy.update(None).unwrap().unwrap());
    assert!((whole - parts).abs() < 1e-5 * whole, "{whole} and {parts}");
}
