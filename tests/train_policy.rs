//! What every training run relies on: exact log-probs, the same bits for any number of threads and after a restore, and
//! a policy that learns.

use advlab::train::policy::{
    AdamWConfig, Decoding, Mlp, NamedArray, Policy, PolicyError, Responses, Samples, Scorer,
};
use advlab::train::random::{Key, Purpose};
use advlab::train::task::{Arithmetic, Maze, Prompt, Task, evaluation_prompts, training_prompts};

const GROUP: usize = 8;

fn key(step: u64) -> Key {
    Key {
        seed: 1,
        purpose: Purpose::Responses,
        step,
    }
}

fn policy(task: &dyn Task, seed: u64) -> Mlp {
    Mlp::new(&task.shape(), 64, AdamWConfig::default(), seed)
}

fn maze() -> Maze {
    Maze::new(4).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// One step of policy gradient with group-normalised rewards, weighing tokens alike; gives the mean reward.
fn step(task: &dyn Task, policy: &mut Mlp, step: u64, prompts: usize, group_size: usize) -> f64 {
    let prompts = training_prompts(task, 1, step, prompts).unwrap();
    let Samples { responses, .. } = policy
        .sample(&prompts, group_size, Decoding::Sample(key(step)))
        .unwrap();
    let rewards = rewards(task, &prompts, &responses);
    let tokens = responses.tokens().len() as f64;
    let mut derivatives = vec![0.0; responses.tokens().len()];
    for (group, rewards) in rewards.chunks(group_size).enumerate() {
        let mean = rewards.iter().sum::<f64>() / group_size as f64;
        let squares = rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>();
        let std = (squares / (group_size - 1) as f64).sqrt();
        for (index, reward) in rewards.iter().enumerate() {
            let advantage = (reward - mean) / (std + 1e-6);
            derivatives[responses.range(group * group_size + index)].fill(-advantage / tokens);
        }
    }
    policy
        .accumulate(&prompts, &responses, &derivatives)
        .unwrap();
    policy.update(Some(1.0)).unwrap();
    rewards.iter().sum::<f64>() / rewards.len() as f64
}

fn rewards(task: &dyn Task, prompts: &[Prompt], responses: &Responses) -> Vec<f64> {
    (0..responses.len())
        .map(|r| {
            let prompt = &prompts[responses.prompts()[r]];
            task.verify(prompt, responses.response(r)).reward
        })
        .collect()
}

fn pass_at_1(task: &dyn Task, policy: &Mlp) -> f64 {
    let prompts = evaluation_prompts(task, 128);
    let sampled = policy
        .sample(&prompts, 4, Decoding::Sample(key(0)))
        .unwrap();
    let rewards = rewards(task, &prompts, &sampled.responses);
    rewards.iter().sum::<f64>() / rewards.len() as f64
}

#[test]
fn responses_end_with_their_stop_token_or_at_the_longest() {
    let task = maze();
    let prompts = training_prompts(&task, 1, 0, 10).unwrap();
    let Samples { responses, scores } = policy(&task, 1)
        .sample(&prompts, GROUP, Decoding::Sample(key(0)))
        .unwrap();
    assert_eq!(responses.len(), 10 * GROUP);
    assert_eq!(scores.logp.len(), responses.tokens().len());
    assert_eq!(scores.entropy.len(), responses.tokens().len());
    for response in 0..responses.len() {
        assert_eq!(responses.prompts()[response], response / GROUP);
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
            step(task, &mut policy, s, 8, GROUP);
        }
        let prompts = training_prompts(task, 1, 9, 10).unwrap();
        let Samples { responses, scores } = policy
            .sample(&prompts, GROUP, Decoding::Sample(key(9)))
            .unwrap();
        // A reference has no forward pass to remember.
        let reference = policy.frozen();
        assert_eq!(reference.score(&prompts, &responses).unwrap(), scores);
        assert_eq!(policy.score(&prompts, &responses).unwrap(), scores);

        let thirds: Vec<usize> = (0..responses.len()).rev().step_by(3).collect();
        for part in [&thirds[..], &[17], &[]] {
            let selected = responses.select(part);
            let found = policy.score(&prompts, &selected).unwrap();
            let ranges = part.iter().map(|&r| responses.range(r));
            let logp: Vec<f32> = ranges
                .clone()
                .flat_map(|r| scores.logp[r].to_vec())
                .collect();
            let entropy: Vec<f32> = ranges.flat_map(|r| scores.entropy[r].to_vec()).collect();
            assert_eq!(
                (bits(&found.logp), bits(&found.entropy)),
                (bits(&logp), bits(&entropy))
            );
        }
    }
}

#[test]
fn the_probabilities_of_all_tokens_sum_to_one_and_give_the_entropy() {
    let task = maze();
    let policy = policy(&task, 1);
    let prompts = training_prompts(&task, 1, 0, 3).unwrap();
    let prefix = [3, 1, 0];
    let mut responses = Responses::new();
    for prompt in 0..3 {
        for token in 0..5 {
            responses.push(prompt, &[&prefix[..], &[token]].concat());
        }
    }
    let scores = policy.score(&prompts, &responses).unwrap();
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
        step(&task, &mut policy, s, 8, GROUP);
    }
    let prompts = training_prompts(&task, 1, 99, 1).unwrap();
    let count = 20_000;
    let Samples { responses, scores } = policy
        .sample(&prompts, count, Decoding::Sample(key(99)))
        .unwrap();
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
fn greedy_decoding_takes_the_most_probable_token() {
    let task = maze();
    let policy = policy(&task, 1);
    let prompts = training_prompts(&task, 1, 0, 6).unwrap();
    let greedy = policy.sample(&prompts, 1, Decoding::Greedy).unwrap();
    for r in 0..greedy.responses.len() {
        let tokens = greedy.responses.response(r);
        for (position, place) in greedy.responses.range(r).enumerate() {
            let mut all = Responses::new();
            for token in 0..5 {
                all.push(r, &[&tokens[..position], &[token]].concat());
            }
            let scores = policy.score(&prompts, &all).unwrap();
            let best = (0..5)
                .map(|v| scores.logp[all.range(v).end - 1])
                .fold(f32::MIN, f32::max);
            assert_eq!(best, greedy.scores.logp[place]);
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let task = maze();
            let mut policy = policy(&task, 1);
            let rewards: Vec<f64> = (0..4)
                .map(|s| step(&task, &mut policy, s, 22, GROUP))
                .collect();
            (rewards, policy.snapshot())
        })
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(4));
}

#[test]
fn an_update_on_the_batch_just_sampled_gives_the_bits_of_one_that_computes_it_again() {
    let task = maze();
    let mut sampled = policy(&task, 1);
    let mut fresh = policy(&task, 1);
    let prompts = training_prompts(&task, 1, 0, 10).unwrap();
    let Samples { responses, .. } = sampled
        .sample(&prompts, GROUP, Decoding::Sample(key(0)))
        .unwrap();
    let count = responses.tokens().len();
    let derivatives: Vec<f64> = (0..count)
        .map(|i| (i as f64).sin() / count as f64)
        .collect();
    for policy in [&mut sampled, &mut fresh] {
        policy
            .accumulate(&prompts, &responses, &derivatives)
            .unwrap();
        policy.update(None).unwrap();
    }
    assert_eq!(sampled.snapshot(), fresh.snapshot());
    // What was remembered was of the old parameters.
    let scores = sampled.score(&prompts, &responses).unwrap();
    assert_eq!(scores, fresh.frozen().score(&prompts, &responses).unwrap());
}

#[test]
fn the_gradient_of_a_batch_is_the_sum_of_those_of_its_minibatches() {
    let task = maze();
    let (mut whole, mut parts) = (policy(&task, 1), policy(&task, 1));
    let prompts = training_prompts(&task, 1, 0, 6).unwrap();
    let Samples { responses, .. } = whole
        .sample(&prompts, GROUP, Decoding::Sample(key(0)))
        .unwrap();
    let derivatives: Vec<f64> = (0..responses.tokens().len())
        .map(|i| (i as f64).sin())
        .collect();
    whole
        .accumulate(&prompts, &responses, &derivatives)
        .unwrap();
    for parity in 0..2 {
        let part: Vec<usize> = (parity..responses.len()).step_by(2).collect();
        let of_part: Vec<f64> = part
            .iter()
            .flat_map(|&r| derivatives[responses.range(r)].to_vec())
            .collect();
        parts
            .accumulate(&prompts, &responses.select(&part), &of_part)
            .unwrap();
    }
    let (whole, parts) = (whole.update(None).unwrap(), parts.update(None).unwrap());
    assert!((whole - parts).abs() < 1e-5 * whole, "{whole} and {parts}");
}

#[test]
fn a_restored_policy_goes_on_to_the_same_bits() {
    let task = maze();
    let mut policy_a = policy(&task, 1);
    for s in 0..3 {
        step(&task, &mut policy_a, s, 8, GROUP);
    }
    let snapshot = policy_a.snapshot();
    let mut policy_b = policy(&task, 2);
    assert_ne!(policy_b.snapshot(), snapshot);
    policy_b.restore(&snapshot).unwrap();
    assert_eq!(policy_b.snapshot(), snapshot);
    for s in 3..6 {
        let rewards = [&mut policy_a, &mut policy_b].map(|p| step(&task, p, s, 8, GROUP));
        assert_eq!(rewards[0], rewards[1]);
    }
    assert_ne!(policy_a.snapshot(), snapshot);
    assert_eq!(policy_a.snapshot(), policy_b.snapshot());
}

#[test]
fn a_reference_stays_as_it_was_and_comes_back_from_its_parameters() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let prompts = training_prompts(&task, 1, 0, 4).unwrap();
    let Samples { responses, scores } = policy
        .sample(&prompts, GROUP, Decoding::Sample(key(0)))
        .unwrap();
    let reference = policy.frozen();
    step(&task, &mut policy, 0, 8, GROUP);
    assert_ne!(policy.score(&prompts, &responses).unwrap(), scores);
    assert_eq!(reference.score(&prompts, &responses).unwrap(), scores);
    let again = policy.frozen_from(&reference.parameters()).unwrap();
    assert_eq!(again.score(&prompts, &responses).unwrap(), scores);
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let before = policy.snapshot();
    let name = "policy.layer2.bias".to_string();

    let mut state = before.clone();
    state.remove(&name);
    let missing = PolicyError::StateMissing { name: name.clone() };
    assert_eq!(policy.restore(&state), Err(missing));

    let mut state = before.clone();
    let short = NamedArray {
        shape: vec![3],
        values: vec![0.0; 3],
    };
    state.insert(name, short.clone());
    assert_eq!(
        policy.restore(&state).unwrap_err().to_string(),
        "\"policy.layer2.bias\" has the shape [3] with 3 values; this policy's is [64]"
    );

    let mut state = before.clone();
    state.insert("policy.layer4.bias".into(), short);
    assert!(matches!(
        policy.restore(&state),
        Err(PolicyError::StateUnknown { .. })
    ));
    assert!(policy.frozen_from(&before).is_err());
    assert_eq!(policy.snapshot(), before);
}

#[test]
fn a_gradient_that_is_not_finite_is_refused_and_dropped() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let prompts = training_prompts(&task, 1, 0, 2).unwrap();
    let mut responses = Responses::new();
    responses.push(0, &[1, 4]);
    responses.push(1, &[2, 2, 4]);
    let before = policy.snapshot();
    policy
        .accumulate(&prompts, &responses, &[f64::NAN, 0.0, 0.0, 0.0, 0.0])
        .unwrap();
    assert!(matches!(
        policy.update(None),
        Err(PolicyError::NonFiniteGradient { .. })
    ));
    assert_eq!(policy.snapshot(), before);
    policy.accumulate(&prompts, &responses, &[1.0; 5]).unwrap();
    assert!(policy.update(None).unwrap() > 0.0);
}

#[test]
fn clipping_gives_the_norm_before_it_and_scales_the_gradient_alone() {
    let task = maze();
    let prompts = training_prompts(&task, 1, 0, 2).unwrap();
    let mut responses = Responses::new();
    responses.push(0, &[1, 4]);
    let first_moment = |derivative: f64, max| {
        let mut policy = policy(&task, 1);
        policy
            .accumulate(&prompts, &responses, &[derivative; 2])
            .unwrap();
        let norm = policy.update(max).unwrap();
        let state = policy.snapshot();
        let first = state
            .iter()
            .filter(|(name, _)| name.starts_with("adamw.first"));
        let squares = first
            .flat_map(|(_, array)| &array.values)
            .map(|&m| f64::from(m).powi(2));
        // The first moment is a tenth of the gradient.
        (norm, 10.0 * squares.sum::<f64>().sqrt())
    };
    let (norm, followed) = first_moment(1.0, None);
    assert!((norm - followed).abs() < 1e-5 * norm);
    let (same, clipped) = first_moment(1.0, Some(norm / 4.0));
    assert_eq!(same, norm);
    assert!((clipped - norm / 4.0).abs() < 1e-5 * norm);
    assert_eq!(first_moment(1.0, Some(norm * 2.0)), (norm, followed));
}

#[test]
fn what_is_not_of_the_task_is_refused() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let prompts = training_prompts(&task, 1, 0, 2).unwrap();
    let refused = |prompt: usize, tokens: &[u32]| {
        let mut responses = Responses::new();
        responses.push(0, &[4]);
        responses.push(prompt, tokens);
        policy.score(&prompts, &responses).unwrap_err().to_string()
    };
    assert_eq!(
        refused(2, &[4]),
        "response 1 belongs to prompt 2; the batch has 2 prompts"
    );
    assert_eq!(
        refused(0, &[5]),
        "response 1 has the token 5; the vocabulary has 5 tokens"
    );
    assert_eq!(
        refused(0, &[0; 17]),
        "response 1 has 17 tokens; the longest has 16"
    );
    let other = training_prompts(&Maze::new(3).unwrap(), 1, 0, 1).unwrap();
    assert_eq!(
        policy
            .sample(&other, 1, Decoding::Greedy)
            .unwrap_err()
            .to_string(),
        "prompt 0 has 27 features; this policy reads 48"
    );
    let mut responses = Responses::new();
    responses.push(0, &[1, 4]);
    assert_eq!(
        policy
            .accumulate(&prompts, &responses, &[1.0])
            .unwrap_err()
            .to_string(),
        "dloss/dlogp has 1 values; the responses have 2 tokens"
    );
}

#[test]
fn an_empty_batch_is_no_trouble() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let nothing = policy.sample(&[], GROUP, Decoding::Greedy).unwrap();
    assert!(nothing.responses.is_empty());
    let prompts = training_prompts(&task, 1, 0, 2).unwrap();
    assert!(
        policy
            .sample(&prompts, 0, Decoding::Greedy)
            .unwrap()
            .responses
            .is_empty()
    );
    policy
        .accumulate(&prompts, &nothing.responses, &[])
        .unwrap();
    assert_eq!(policy.update(Some(1.0)).unwrap(), 0.0);
}

/// Mean rewards of the first and of the last five of `steps` steps, and the policy that they lead to.
fn learn(task: &dyn Task, lr: f64, steps: u64) -> (f64, f64, Mlp) {
    let config = AdamWConfig {
        lr,
        ..AdamWConfig::default()
    };
    let mut policy = Mlp::new(&task.shape(), 128, config, 1);
    let rewards: Vec<f64> = (0..steps)
        .map(|s| step(task, &mut policy, s, 32, 16))
        .collect();
    let mean = |rewards: &[f64]| rewards.iter().sum::<f64>() / rewards.len() as f64;
    (
        mean(&rewards[..5]),
        mean(&rewards[rewards.len() - 5..]),
        policy,
    )
}

#[test]
fn policy_gradient_learns_to_walk_mazes_that_it_has_not_seen() {
    let task = Maze::new(3).unwrap();
    let (first, last, policy) = learn(&task, 3e-3, 60);
    let unseen = pass_at_1(&task, &policy);
    assert!(
        last > first + 0.3 && unseen > first + 0.3,
        "{first} -> {last}, unseen {unseen}"
    );
}

#[test]
fn policy_gradient_learns_to_add_digits() {
    let task = Arithmetic::new(1).unwrap();
    let (first, last, _) = learn(&task, 3e-3, 300);
    assert!(last > first + 0.3, "{first} -> {last}");
}
