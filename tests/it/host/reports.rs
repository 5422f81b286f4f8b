//! What a step reports and draws: metrics, prints, the step's number, random numbers.

use advlab::deep_stack;
use advlab::script::Host;

use super::lab::{
    advantage_on, batch, batch_with_logp, bits, builder, recipe, run_on, step, tensor_on,
};

#[test]
fn metrics_are_numbers_by_name_in_order() {
    let ordered = r#"
        fn advantage(batch, p) {
            metric("second", 2);
            metric("first", batch.reward.mean("batch"));
            metric("truth", batch.reward.mean("batch") < 1);
            metric("second", 3.5);
            batch.reward
        }
    "#;
    // One hook's number does not stand for another's.
    let by_hook = r#"
        fn reward(batch, p) { metric("mean", 1); metric("own", 2); batch.reward }
        fn advantage(batch, p) { metric("mean", 3); batch.reward }
    "#;
    for (text, expected) in [
        (ordered, [("second", 3.5), ("first", 0.1), ("truth", 1.0)]),
        (
            by_hook,
            [("reward/mean", 1.0), ("own", 2.0), ("advantage/mean", 3.0)],
        ),
    ] {
        let metrics = run_on(text, &batch()).unwrap().reports.metrics;
        assert_eq!(metrics, expected.map(|(name, x)| (name.to_string(), x)));
    }
}

#[test]
fn the_step_is_the_batchs() {
    let text = "fn advantage(batch, p) { print(batch.step); batch.reward }";
    let later = builder().step(142).build().unwrap();
    assert_eq!(run_on(text, &later).unwrap().reports.prints, ["142"]);
}

#[test]
fn random_numbers_are_uniform_and_of_the_level_that_is_named() {
    for (level, size) in [
        ("batch", 1),
        ("group", 2),
        ("response", 5),
        ("position", 5),
        ("token", 9),
    ] {
        let (found, values) = tensor_on(&format!("batch.random(\"{level}\") + 0.0"), &batch());
        assert_eq!((found.as_str(), values.len()), (level, size));
        assert!(values.iter().all(|x| (0.0..1.0).contains(x)), "{values:?}");
    }
    let many = advlab::Batch::builder().groups((0..20_000).map(|i| i / 8));
    let many = many.response("reward", vec![0.0; 20_000]).build().unwrap();
    let text = "fn advantage(batch, p) { batch.random(\"response\") }";
    let mean = advantage_on(text, &many).iter().sum::<f64>() / 20_000.0;
    let five_standard_errors = 5.0 * (1.0f64 / 12.0 / 20_000.0).sqrt();
    assert!((mean - 0.5).abs() < five_standard_errors, "{mean}");
}

#[test]
fn random_numbers_follow_the_seed_the_step_and_the_call() {
    let text =
        "fn advantage(batch, p) { 0 * batch.random(\"response\") + batch.random(\"response\") }";
    let drawn = |seed: u64, step: u64, threads: usize| -> Vec<u64> {
        let recipe = Host::new().with_seed(seed).compile("test", text).unwrap();
        let batch = builder().step(step).build().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let outcome = deep_stack::pool(pool)
            .build()
            .unwrap()
            .install(|| recipe.advantage(&batch, &mut recipe.init().unwrap()));
        bits(&outcome.unwrap().advantage)
    };
    assert_eq!(drawn(1, 1, 1), drawn(1, 1, 4));
    assert_ne!(drawn(1, 1, 1), drawn(2, 1, 1));
    assert_ne!(drawn(1, 1, 1), drawn(1, 2, 1));
    let first = "fn advantage(batch, p) { batch.random(\"response\") }";
    let recipe = recipe(first);
    let once = bits(&step(&recipe, &mut recipe.init().unwrap()).advantage);
    // The second call does not draw what the first did.
    assert_ne!(once, drawn(0, 0, 1));
}

/// A mask that a loss draws is another one for each minibatch and epoch; the next step begins anew.
#[test]
fn each_loss_of_a_step_draws_numbers_of_its_own() {
    let text = r#"
        fn advantage(batch, p) { metric("drawn", batch.random("response").sum("batch")); batch.reward }
        fn loss(batch, p) { metric("drawn", batch.random("response").sum("batch")); batch.logp.mean("batch") }
    "#;
    let recipe = recipe(text);
    let mut state = recipe.init().unwrap();
    let mut drawn = |steps: [u64; 3]| {
        let losses = steps.map(|step| {
            let batch = batch_with_logp().at_step(step);
            let loss = recipe.loss(&batch, None, &mut state).unwrap();
            loss.reports.metrics[0].1
        });
        let batch = builder().step(steps[0]).build().unwrap();
        let outcome = recipe.advantage(&batch, &mut state).unwrap();
        (losses, outcome.reports.metrics[0].1)
    };
    let ([a, b, c], advantage) = drawn([7, 7, 7]);
    assert!(a != b && b != c && a != c && a != advantage);
    let ([other, first, second], _) = drawn([8, 7, 7]);
    assert!(other != a && (first, second) == (a, b));
}

/// Nothing of one call is seen by the next: metrics, prints and draws start anew.
#[test]
fn a_call_leaves_nothing_behind() {
    let text =
        "fn advantage(batch, p) { metric(\"x\", 1); print(\"y\"); batch.random(\"response\") }";
    let recipe = recipe(text);
    let told = || {
        let outcome = step(&recipe, &mut recipe.init().unwrap());
        (
            bits(&outcome.advantage),
            outcome.reports.metrics,
            outcome.reports.prints,
        )
    };
    assert_eq!(told(), told());
}
