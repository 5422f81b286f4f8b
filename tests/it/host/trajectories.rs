//! Trajectories: responses that are turns of one, reduced to it and scanned along it.

use advlab::batch::Batch;

use super::lab::{message, run_on, tensor, tensor_on};

/// A prompt with the trajectories x (three turns, out of order) and y, and one with x.
fn batch() -> Batch {
    Batch::builder()
        .groups(["a", "a", "a", "b", "a"])
        .lengths([1, 2, 1, 1, 3])
        .response("reward", vec![1.0, 2.0, 4.0, 8.0, 16.0])
        .response("turn", vec![2.0, 0.0, 1.0, 0.0, 0.0])
        .text("trajectory", ["x", "y", "x", "x", "x"])
        .build()
        .unwrap()
}

#[test]
fn they_are_a_level() {
    for (expression, level, expected) in [
        (
            "batch.reward.sum(\"trajectory\")",
            "trajectory",
            vec![21., 2., 8.],
        ),
        (
            "batch.reward.count(\"trajectory\")",
            "trajectory",
            vec![3., 1., 1.],
        ),
        (
            "batch.reward.last(\"trajectory\")",
            "trajectory",
            vec![1., 2., 8.],
        ),
        (
            "batch.length.expand(\"token\").sum(\"trajectory\")",
            "trajectory",
            vec![11., 4., 1.],
        ),
        (
            "batch.reward.sum(\"trajectory\").mean(\"group\")",
            "group",
            vec![11.5, 8.],
        ),
        (
            "batch.reward.max(\"group\").expand(\"trajectory\")",
            "trajectory",
            vec![16., 16., 8.],
        ),
        (
            "batch.reward.sum(\"trajectory\") + 0 * batch.reward",
            "response",
            vec![21., 2., 21., 8., 21.],
        ),
        (
            "batch.reward.index(\"trajectory\")",
            "response",
            vec![2., 0., 1., 0., 0.],
        ),
        (
            "batch.reward.suffix_sum(0.5)",
            "response",
            vec![1., 2., 4.5, 8., 18.25],
        ),
        (
            "batch.reward.cumsum()",
            "response",
            vec![21., 2., 20., 8., 16.],
        ),
        (
            "batch.reward.next(-1)",
            "response",
            vec![-1., -1., 1., -1., 4.],
        ),
        (
            "batch.reward.prev(-1)",
            "response",
            vec![4., -1., 16., -1., -1.],
        ),
        // A trajectory ends with its group.
        (
            "batch.regroup(batch.turn).reward.sum(\"trajectory\")",
            "trajectory",
            vec![1., 2., 16., 4., 8.],
        ),
        (
            "batch.map_groups(|g| g.reward.suffix_sum() - g.reward.sum(\"trajectory\").mean(\"group\"))",
            "response",
            vec![-10.5, -9.5, -6.5, 0., 9.5],
        ),
    ] {
        assert_eq!(
            tensor_on(expression, &batch()),
            (level.to_string(), expected),
            "{expression}"
        );
    }
}

/// An advantage of trajectories is that of their turns.
#[test]
fn a_hook_may_return_one_value_a_trajectory() {
    let outcome = run_on(
        "fn advantage(batch, p) { batch.reward.sum(\"trajectory\") }",
        &batch(),
    );
    let advantage = outcome.unwrap().advantage;
    assert_eq!(
        advantage.buffer().iter().collect::<Vec<f64>>(),
        [21., 2., 21., 8., 21.]
    );
}

#[test]
fn without_the_column_each_response_is_one() {
    let (level, values) = tensor("batch.reward.last(\"trajectory\")");
    assert_eq!(
        (&*level, values),
        ("trajectory", vec![1.0, 0.0, 0.0, 0.5, -1.0])
    );
    let refused = message(run_on(
        "fn advantage(batch, p) { batch.reward.suffix_sum() }",
        &super::lab::batch(),
    ));
    assert!(refused.contains("a column `trajectory`"), "{refused}");
}
