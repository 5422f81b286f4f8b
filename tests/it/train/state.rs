//! A policy goes on from its snapshot to the same bits, and a reference stays what it was.

use advlab_train::policy::{Policy, Samples};
use advlab_train::task::training_prompts;

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
fn a_reference_stays_as_it_was_and_comes_back_from_its_files() {
    let task = maze();
    let mut first = policy(&task, 1);
    let prompts = training_prompts(&task, 1, 0, 4).unwrap();
    let Samples { responses, scores } = first.sample(&prompts, GROUP, key(0)).unwrap();
    step(&task, &mut first, 0, 8, GROUP);
    assert_ne!(first.score(&prompts, &responses).unwrap(), scores);
    let folder = tempfile::tempdir().unwrap();
    first.save(folder.path()).unwrap();
    let mut again = policy(&task, 2);
    again.load(folder.path()).unwrap();
    for policy in [&mut first, &mut again] {
        let reference = policy.reference_logp(&prompts, &responses).unwrap();
        assert_eq!(reference, scores.logp);
    }
    assert_eq!(first.snapshot(), again.snapshot());
}

#[test]
fn a_policy_goes_back_to_its_savepoint() {
    let task = maze();
    let mut policy = policy(&task, 1);
    step(&task, &mut policy, 0, 8, GROUP);
    let before = policy.snapshot();
    policy.savepoint().unwrap();
    for s in 1..3 {
        step(&task, &mut policy, s, 8, GROUP);
    }
    assert_ne!(policy.snapshot(), before);
    policy.rollback().unwrap();
    assert_eq!(policy.snapshot(), before);
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let before = policy.snapshot();
    let name = "policy.layer2.bias";
    let (mut missing, mut short, mut other) = (before.clone(), before.clone(), before.clone());
    missing.remove(name);
    short.insert(name.into(), vec![0.0; 3]);
    other.insert("policy.layer4.bias".into(), vec![0.0; 3]);
    for (state, expected) in [
        (missing, "the state has no array \"policy.layer2.bias\""),
        (
            short,
            "\"policy.layer2.bias\" has 3 values; this policy's has 64",
        ),
        (
            other,
            "the state has an array \"policy.layer4.bias\" which this policy does not have",
        ),
    ] {
        assert_eq!(policy.restore(&state).unwrap_err()[0].message, expected);
    }
    assert_eq!(policy.snapshot(), before);
}
