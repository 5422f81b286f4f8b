//! The hooks: what each sees of the others, and what each may return.

use std::time::{Duration, Instant};

use advlab::Diagnostics;
use advlab::batch::Batch;
use advlab::native::{Mode, Native};
use advlab::script::{Computed, Hook, Host, Limits, Recipe};
use advlab::tensor::Level;

use super::lab::{advantage_on, batch, batch_with_logp, recipe, run_on, values};

/// Ends what hangs.
const PATIENCE: Duration = Duration::from_secs(300);

fn are_near(found: &Computed, expected: &[f64]) {
    let found = values(found);
    assert_eq!(found.len(), expected.len());
    let mut pairs = found.iter().zip(expected);
    assert!(
        pairs.all(|(a, b)| (a - b).abs() < 1e-12),
        "{found:?} {expected:?}"
    );
}

#[test]
fn the_advantage_sees_the_shaped_reward_at_both_levels() {
    let text = r#"
        fn reward(batch, p) { batch.reward * 2 }
        fn advantage(batch, p) {
            print(batch.token_reward.values());
            print(batch.correct.values());
            batch.reward
        }
    "#;
    let outcome = run_on(text, &batch()).unwrap();
    let shaped = [2., 0., 0., 1., -2.];
    assert_eq!(values(&outcome.advantage), shaped);
    assert_eq!(values(outcome.reward.as_ref().unwrap()), shaped);
    let expected = [
        "[2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -2.0]",
        // Right and wrong are the verifier's, whatever the reward is shaped to.
        "[1.0, 0.0, 0.0, 1.0, 0.0]",
    ];
    assert_eq!(outcome.reports.prints, expected);
}

#[test]
fn a_reward_by_token_is_summed_for_the_response() {
    let text = r#"
        fn reward(batch, p) { batch.token_reward - 0.1 }
        fn advantage(batch, p) { batch.reward }
    "#;
    let outcome = run_on(text, &batch()).unwrap();
    assert_eq!(outcome.reward.as_ref().unwrap().level(), Level::Token);
    are_near(&outcome.advantage, &[0.9, -0.2, -0.3, 0.4, -1.2]);
}

/// Where there is no `loss`, the advantage goes over the tokens as it is; where there is no `advantage`, it is
/// -M dloss/dlogp: with loss = -mean over tokens of A logp, that is A again.
#[test]
fn a_loss_alone_gives_its_equivalent_advantage() {
    let text = "fn loss(batch, p) { -(batch.reward * batch.logp).mean(\"batch\") }";
    let outcome = run_on(text, &batch_with_logp()).unwrap();
    are_near(&outcome.advantage, &[1., 0., 0., 0., 0., 0., 0.5, -1., -1.]);
    assert!(outcome.loss.is_some());
}

#[test]
fn a_loss_sees_the_advantage_that_it_is_given() {
    let batch = batch_with_logp();
    let grpo = recipe("fn advantage(batch, p) { batch.reward }");
    let advantage = grpo
        .advantage(&batch, &mut grpo.init().unwrap())
        .unwrap()
        .advantage;
    let loss = recipe("fn loss(batch, p) { -(batch.advantage * batch.logp).mean(\"batch\") }");
    let found = loss
        .loss(&batch, Some(&advantage), &mut loss.init().unwrap())
        .unwrap();
    let expected: Vec<f64> = advantage.per_token().map(|a| -a / 9.0).collect();
    are_near(&found.gradient, &expected);
}

#[test]
fn a_loss_with_a_reward_hook_sees_the_shaped_reward() {
    let text = r#"
        fn reward(batch, p) { batch.reward * 2 }
        fn loss(batch, p) { -(batch.reward * batch.logp).mean("batch") }
    "#;
    let plain = "fn loss(batch, p) { -(2 * batch.reward * batch.logp).mean(\"batch\") }";
    let batch = batch_with_logp();
    assert_eq!(advantage_on(text, &batch), advantage_on(plain, &batch));
}

#[test]
fn a_recipe_tells_its_hooks_and_its_doc() {
    let grpo_lambda = advlab::Host::new().load("grpo_lambda").unwrap();
    assert!(grpo_lambda.has(Hook::Reward) && grpo_lambda.has(Hook::Advantage));
    assert!(!grpo_lambda.has(Hook::Loss) && !grpo_lambda.has(Hook::Init));
    let recipe = recipe("//! One line.\n//!\n//! More.\n\nfn advantage(batch, p) { batch.reward }");
    assert_eq!(recipe.doc(), "One line.\n\nMore.");
    assert_eq!(recipe.summary(), "One line");
}

/// One response, no token at all: the least that a batch can be.
#[test]
fn the_smallest_batches() {
    let text = "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }";
    let one = Batch::builder().groups([1]);
    let one = one.response("reward", vec![0.3]).build().unwrap();
    assert_eq!(advantage_on(text, &one), [0.0]);
    let silent = Batch::builder().groups([1, 1]).lengths([0, 0]);
    let silent = silent.response("reward", vec![1.0, 0.0]).build().unwrap();
    let outcome = run_on(text, &silent).unwrap();
    assert_eq!(values(&outcome.advantage), [0.5, -0.5]);
    assert_eq!(outcome.advantage.per_token().count(), 0);
}

/// In f32 the sum of 0.1, 0.2 and 0.4 is another than 0.7; a hook that returns what is there changes nothing of that.
#[test]
fn a_group_without_signal_has_none_after_a_hook() {
    let batch = Batch::builder()
        .groups([0, 0])
        .ragged("token_reward", [vec![0.1f32, 0.2, 0.4], vec![0.7]])
        .build()
        .unwrap();
    let whitened = "batch.reward.whiten(\"group\")";
    for (hook, batch_of_it) in [
        ("", "batch"),
        ("fn reward(batch, p) { batch.token_reward }", "batch"),
        ("fn reward(batch, p) { batch.reward }", "batch"),
        ("", "batch.with(#{ token_reward: batch.token_reward })"),
        ("", "batch.with(#{ token_reward: batch.token_reward + 0 })"),
        ("", "batch.regroup(0 * batch.reward)"),
    ] {
        let text =
            format!("{hook} fn advantage(batch, p) {{ let batch = {batch_of_it}; {whitened} }}");
        assert_eq!(
            advantage_on(&text, &batch),
            [0.0; 2],
            "{hook} {batch_of_it}"
        );
    }
}

/// Its slope is d - k3 where both are finite and apart.
#[test]
fn the_gradient_of_k3_is_1_far_out() {
    let reference = ndarray::array![[f32::NEG_INFINITY, -1e8, -50.0, -39.0]];
    let batch = Batch::builder()
        .groups([0])
        .token("logp", ndarray::Array2::<f32>::zeros((1, 4)))
        .token("ref_logp", reference)
        .build()
        .unwrap();
    let text = "fn advantage(batch, p) { grad(kl(batch.logp, batch.ref_logp, \"k3\").sum(\"batch\"), batch.logp) }";
    assert_eq!(advantage_on(text, &batch), [1.0; 4]);
}

/// By a script and by a kernel alike.
#[test]
fn a_loss_takes_no_advantage_of_another_batch() {
    let large = batch_with_logp();
    let small = Batch::builder()
        .groups([0, 0])
        .response("reward", vec![1.0, 0.0])
        .token("old_logp", ndarray::Array2::<f32>::zeros((2, 3)))
        .build()
        .unwrap();
    let of_same_size = Batch::builder()
        .groups(["a", "a", "b", "b", "b"])
        .lengths([1, 2, 3, 1, 2])
        .response("reward", vec![1.0; 5])
        .build()
        .unwrap();
    for mode in [Mode::Off, Mode::On] {
        let host = Host::new().with_native(&Native::new(mode));
        let grpo = host.load("grpo").unwrap();
        let mut state = grpo.init().unwrap();
        for (own, other) in [(&large, &small), (&small, &large), (&large, &of_same_size)] {
            let given = grpo.advantage(other, &mut state).unwrap().advantage;
            let loss = host.load("ppo_clip").unwrap();
            let error = loss.loss(own, Some(&given), &mut state).unwrap_err();
            let message = "the advantage belongs to another batch";
            assert_eq!(error.iter().next().unwrap().message, message, "{mode:?}");
        }
    }
}

/// A step's hooks have one time limit where they are called of the recipe `for_step`.
#[test]
fn the_hooks_of_a_step_have_one_limit() {
    let limits = Limits {
        time: Duration::from_millis(20),
        ..Limits::default()
    };
    let text = "fn advantage(batch, p) { batch.reward } fn returns(batch, p) { batch.reward.mean(\"batch\") - batch.reward }
        fn loss(batch, p) { -batch.logp.mean(\"batch\") }";
    let host = Host::new().with_limits(limits);
    let (recipe, batch) = (host.compile("test", text).unwrap(), batch_with_logp());
    let state = recipe.init().unwrap();
    type Called<'a> = &'a dyn Fn(&Recipe) -> Result<(), Diagnostics>;
    let hooks: [Called<'_>; 2] = [
        &|recipe| recipe.returns(&batch, &state).map(drop),
        &|recipe| recipe.loss(&batch, None, &mut state.clone()).map(drop),
    ];
    let step = recipe.for_step();
    // Again and again, until the step's time is over.
    let started = Instant::now();
    while hooks[0](&step).is_ok() {
        assert!(
            started.elapsed() < PATIENCE,
            "each hook has a time of its own"
        );
    }
    for hook in hooks {
        let late = hook(&step).unwrap_err()[0].message.clone();
        assert!(late.starts_with("stopped after 0.020 s"), "{late}");
        // Alone it has a time of its own, which a machine that does much else may let pass.
        while hook(&recipe).is_err() {
            assert!(
                started.elapsed() < PATIENCE,
                "no hook has a time of its own"
            );
        }
    }
}

#[test]
fn reports_of_a_loss_join_those_of_its_advantage() {
    let by_group =
        "batch.map_groups(|g| if g.reward.sum(\"batch\") > 0 { g.reward } else { -g.reward })";
    let text = format!(
        "fn reward(batch, p) {{ metric(\"shaped\", 3); batch.reward }}
        fn advantage(batch, p) {{ metric(\"of\", 1); {by_group} }}
        fn loss(batch, p) {{ metric(\"of\", 2); metric(\"shaped\", 4); print(1); ({by_group} * batch.logp).mean(\"batch\") }}"
    );
    let (recipe, batch) = (recipe(&text), batch_with_logp());
    let mut state = recipe.init().unwrap();
    let mut outcome = recipe.advantage(&batch, &mut state).unwrap();
    let mut loss = recipe.loss(&batch, None, &mut state).unwrap();
    outcome.reports.native = Some(Duration::from_millis(2));
    loss.reports.native = Some(Duration::from_millis(3));
    let time = outcome.reports.time + loss.reports.time;
    outcome.reports.add(loss.reports);
    assert_eq!(
        (outcome.reports.time, outcome.reports.native),
        (time, Some(Duration::from_millis(5)))
    );
    assert_eq!(
        (
            outcome.reports.map_groups.len(),
            outcome.reports.prints.len()
        ),
        (2, 1)
    );
    let metrics = outcome
        .reports
        .metrics
        .iter()
        .map(|(name, _)| name.as_str());
    assert!(metrics.eq(["reward/shaped", "advantage/of", "loss/of", "loss/shaped"]));
}

/// The key of a trajectory may be a text, and counts within a group only.
#[test]
fn turns_of_a_trajectory_have_one_advantage_where_a_trainer_takes_one() {
    let text = "fn advantage(batch, p) { batch.reward }";
    let keys = [["x", "x", "x", "y"], ["x", "y", "y", "y"]];
    let rewards = [1.0, 1.0, 0.0, 0.5];
    for (trajectory, refused) in keys.into_iter().zip([false, true]) {
        let batch = Batch::builder()
            .groups([1, 1, 2, 2])
            .text("trajectory", trajectory)
            .response("reward", rewards.to_vec())
            .response("length", vec![1.0; 4])
            .build();
        let batch = batch
            .unwrap()
            .with_one_advantage_per(Level::Trajectory, "so it is");
        let error = run_on(text, &batch).map(drop).err();
        let told = error.map(|error| error.to_string()).unwrap_or_default();
        let wanted = "different values for the turns of a trajectory, but so it is";
        assert_eq!(told.contains(wanted), refused, "{trajectory:?} {told}");
    }
}
