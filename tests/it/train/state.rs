//! A policy goes on from its snapshot to the same bits, and a reference stays what it was.

use advlab::train::policy::Samples;
use advlab::train::task::training_prompts;

use super::{GROUP, key, maze, policy, step};

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
    let Samples { responses, scores } = policy.sample(&prompts, GROUP, key(0)).unwrap();
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
    assert_eq!(
        policy.restore(&state).unwrap_err()[0].message,
        "the state has no array \"policy.layer2.bias\""
    );

    let mut state = before.clone();
    let short = ndarray::ArrayD::zeros(vec![3]);
    state.insert(name, short.clone());
    assert_eq!(
        policy.restore(&state).unwrap_err().to_string(),
        "\"policy.layer2.bias\" has the shape [3]; this policy's is [64]"
    );

    let mut state = before.clone();
    state.insert("policy.layer4.bias".into(), short);
    assert_eq!(
        policy.restore(&state).unwrap_err()[0].message,
        "the state has an array \"policy.layer4.bias\" which this policy does not have"
    );
    assert!(policy.frozen_from(&before).is_err());
    assert_eq!(policy.snapshot(), before);
}
