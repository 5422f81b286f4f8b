//! What is not of the task, and a gradient that cannot be followed, is refused and changes nothing.

use advlab_train::policy::{AdamWConfig, Mlp, NonFinite, Policy};
use advlab_train::task::{Maze, Task, training_prompts};

use super::{GROUP, key, maze, policy, responses, state};

/// NaN; or finite, but its squares are not in f32: the optimizer's moments would stay infinite, and the policy stop to learn.
#[test]
fn a_gradient_that_cannot_be_followed_is_refused_and_dropped() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let responses = responses(&task, 2, &[(0, &[1, 4]), (1, &[2, 2, 4])]);
    let before = state(&mut policy);
    for gradient in [[f64::NAN, 0.0, 0.0, 0.0, 0.0], [1e25, -1e25, 0.0, 0.0, 0.0]] {
        policy.accumulate(&responses, &gradient).unwrap();
        let refused = policy.update(None).unwrap();
        assert!(matches!(refused, Err(NonFinite::Gradient(_))));
        assert_eq!(state(&mut policy), before);
    }
    policy.accumulate(&responses, &[1.0; 5]).unwrap();
    assert!(policy.update(None).unwrap().unwrap() > 0.0);
}

#[test]
fn an_update_that_would_ruin_the_policy_is_left_out() {
    let task = maze();
    let adamw = AdamWConfig {
        lr: 1e39,
        ..AdamWConfig::default()
    };
    let mut policy = Mlp::new(&task.shape(), 8, adamw, 1);
    let responses = responses(&task, 2, &[(0, &[1, 4])]);
    let before = state(&mut policy);
    policy.accumulate(&responses, &[1.0; 2]).unwrap();
    assert_eq!(policy.update(None).unwrap(), Err(NonFinite::Parameters));
    assert_eq!(state(&mut policy), before);
}

#[test]
fn clipping_gives_the_norm_before_it_and_scales_the_gradient_alone() {
    let task = maze();
    let responses = responses(&task, 2, &[(0, &[1, 4])]);
    let first_moment = |derivative: f64, max| {
        let mut policy = policy(&task, 1);
        policy.accumulate(&responses, &[derivative; 2]).unwrap();
        let norm = policy.update(max).unwrap().unwrap();
        let state = state(&mut policy).into_iter();
        let first = state.filter(|(name, _)| name.starts_with("adamw.first"));
        let squares = first
            .flat_map(|(_, array)| array)
            .map(|m| f64::from(m).powi(2));
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
    for (prompt, tokens, expected) in [
        (2, &[4][..], "belongs to prompt 2; the batch has 2 prompts"),
        (0, &[5], "has the token 5; the vocabulary has 5 tokens"),
        (0, &[0; 17], "has 17 tokens; at most 16 are allowed"),
    ] {
        let responses = responses(&task, 2, &[(0, &[4]), (prompt, tokens)]);
        let error = policy.score(&responses).unwrap_err().to_string();
        assert_eq!(error, format!("response 1 {expected}"));
    }
    let other = training_prompts(&Maze::new(3).unwrap(), 1, 0, 1).unwrap();
    let error = policy.sample(&other, 1, key(0)).unwrap_err().to_string();
    assert_eq!(error, "prompt 0 has 27 features; this policy reads 48");
    let responses = responses(&task, 2, &[(0, &[1, 4])]);
    let error = policy.accumulate(&responses, &[1.0]).unwrap_err();
    let expected = "dloss/dlogp has 1 values; the responses have 2 tokens";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_empty_batch_is_no_trouble() {
    let task = maze();
    let mut policy = policy(&task, 1);
    let nothing = policy.sample(&[], GROUP, key(0)).unwrap();
    assert!(nothing.responses.is_empty());
    let prompts = training_prompts(&task, 1, 0, 2).unwrap();
    let no_groups = policy.sample(&prompts, 0, key(0)).unwrap();
    assert!(no_groups.responses.is_empty());
    policy.accumulate(&nothing.responses, &[]).unwrap();
    assert_eq!(policy.update(Some(1.0)).unwrap(), Ok(0.0));
}
