//! A policy goes on from its files to the same bits, and a reference stays what it was.

use advlab_train::policy::{AdamWConfig, Mlp, Policy, Samples};
use advlab_train::task::Task;

use super::{POLICY, maze, policy, sampled, state, step};

#[test]
fn a_restored_policy_goes_on_to_the_same_bits_and_its_reference_stays_what_it_was() {
    let task = maze();
    let mut first = policy(&task, 1);
    let Samples { responses, scores } = sampled(&task, &mut first, 0, 4);
    for s in 0..3 {
        step(&task, &mut first, s);
    }
    assert_ne!(first.score(&responses).unwrap(), scores);
    let folder = tempfile::tempdir().unwrap();
    first.save(folder.path()).unwrap();
    let saved = state(&mut first);
    let mut again = policy(&task, 2);
    assert_ne!(state(&mut again), saved);
    again.load(folder.path()).unwrap();
    assert_eq!(state(&mut again), saved);
    for s in 3..6 {
        let rewards = [&mut first, &mut again].map(|p| step(&task, p, s));
        assert_eq!(rewards[0], rewards[1]);
    }
    assert_ne!(state(&mut first), saved);
    assert_eq!(state(&mut first), state(&mut again));
    for policy in [&mut first, &mut again] {
        let reference = policy.reference_logp(&responses).unwrap();
        assert_eq!(reference, scores.logp);
    }
}

#[test]
fn a_policy_goes_back_to_its_savepoint() {
    let task = maze();
    let mut policy = policy(&task, 1);
    step(&task, &mut policy, 0);
    let before = state(&mut policy);
    policy.savepoint().unwrap();
    for s in 1..3 {
        step(&task, &mut policy, s);
    }
    assert_ne!(state(&mut policy), before);
    policy.rollback().unwrap();
    assert_eq!(state(&mut policy), before);
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let before = state(&mut policy);
    let folder = tempfile::tempdir().unwrap();
    policy.save(folder.path()).unwrap();
    let path = folder.path().join(POLICY);
    let whole = std::fs::read(&path).unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut wider = Mlp::new(&task.shape(), 65, AdamWConfig::default(), 1);
    wider.save(other.path()).unwrap();
    let wider = std::fs::read(other.path().join(POLICY)).unwrap();
    let text = "policy.layer2.bias";
    let at = whole
        .windows(text.len())
        .position(|window| window == text.as_bytes());
    let mut renamed = whole.clone();
    renamed[at.unwrap()] = b'q';
    for (bytes, expected) in [
        (&whole[..whole.len() - 1], "it is cut off"),
        (
            &renamed[..],
            "`policy.layer2.bias`: there is no tensor of this name",
        ),
        (
            &wider[..],
            "`policy.layer1.weight`: the tensor's shape is not the model's",
        ),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = policy.load(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(state(&mut policy), before);
    }
}
