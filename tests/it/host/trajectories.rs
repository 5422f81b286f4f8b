//! Trajectories: responses that are turns of one, reduced to it and scanned along it.

use advlab::batch::Batch;

use super::lab::{advantage_on, are_on, fail_on};

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
    are_on(
        &batch(),
        &[
            r#"batch.reward.sum("trajectory") => trajectory 21 2 8"#,
            r#"batch.reward.count("trajectory") => trajectory 3 1 1"#,
            r#"batch.reward.last("trajectory") => trajectory 1 2 8"#,
            r#"batch.length.expand("token").sum("trajectory") => trajectory 11 4 1"#,
            r#"batch.reward.sum("trajectory").mean("group") => group 11.5 8"#,
            r#"batch.reward.max("group").expand("trajectory") => trajectory 16 16 8"#,
            r#"batch.reward.sum("trajectory") + 0 * batch.reward => response 21 2 21 8 21"#,
            r#"batch.reward.index("trajectory") => response 2 0 1 0 0"#,
            "batch.reward.suffix_sum(0.5) => response 1 2 4.5 8 18.25",
            "batch.reward.cumsum() => response 21 2 20 8 16",
            "batch.reward.next(-1) => response -1 -1 1 -1 4",
            "batch.reward.prev(-1) => response 4 -1 16 -1 -1",
            // A trajectory ends with its group.
            r#"batch.regroup(batch.turn).reward.sum("trajectory") => trajectory 1 2 16 4 8"#,
            r#"batch.map_groups(|g| g.reward.suffix_sum() - g.reward.sum("trajectory").mean("group")) => response -10.5 -9.5 -6.5 0 9.5"#,
        ],
    );
}

/// An advantage of trajectories is that of their turns.
#[test]
fn a_hook_may_return_one_value_a_trajectory() {
    let text = "fn advantage(batch, p) { batch.reward.sum(\"trajectory\") }";
    assert_eq!(advantage_on(text, &batch()), [21., 2., 21., 8., 21.]);
}

#[test]
fn without_the_column_each_response_is_one() {
    let without = super::lab::batch();
    let last = r#"batch.reward.last("trajectory") => trajectory 1 0 0 0.5 -1"#;
    are_on(&without, &[last]);
    fail_on(
        &without,
        &["batch.reward.suffix_sum() => a column `trajectory`"],
    );
}

/// The tokens between two holes of a mask are a turn. They are credited without a level of their own: sums up to a token and from
/// it on stop at a hole if a turn's value is on its last token only.
#[test]
fn the_turns_of_a_whole_response_are_between_its_holes() {
    let mask = [[1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]];
    let mask = mask.map(|row| row.map(|counts| counts == 1));
    let scores = [
        [1.0, 2.0, 9.0, 3.0, 9.0, 4.0],
        [9.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        [9.0; 6],
    ];
    let whole = Batch::builder()
        .groups([0, 0, 0])
        .ragged_mask(mask)
        .ragged("score", scores)
        .response("reward", vec![1.0, 2.0, 4.0]);
    let whole = whole.build().unwrap();
    are_on(
        &whole,
        &[
            "batch.turn => token 0 0 1 2 0 0 0 0 0",
            r#"batch.turn.max("response") + 1 => response 3 1 1"#,
            "batch.score * (batch.turn != batch.turn.next(-1)) => token 0 2 3 4 0 0 0 0 1",
            "(batch.score * (batch.turn != batch.turn.next(-1))).suffix_sum() => token 9 9 7 4 1 1 1 1 1",
        ],
    );
    // A response that is a turn says itself which.
    are_on(&batch(), &["batch.turn => response 2 0 1 0 0"]);
    let unordered = Batch::builder()
        .groups([0, 0])
        .lengths([1, 2])
        .text("trajectory", ["x", "x"]);
    fail_on(
        &unordered.build().unwrap(),
        &["batch.turn => the batch has no column `turn`"],
    );
}

/// A trajectory's rows may share its weight, so that a long one does not count more.
#[test]
fn a_weight_is_divided_by_the_rows_of_a_trajectory() {
    let text = "fn weight(batch, p) { 1.0 / batch.reward.count(\"trajectory\") } fn advantage(batch, p) { batch.reward }";
    let outcome = super::lab::run_on(text, &batch()).unwrap();
    let weights: Vec<f64> = (0..5).map(|response| outcome.counts(response)).collect();
    assert_eq!(weights, [1.0 / 3.0, 1.0, 1.0 / 3.0, 1.0, 1.0 / 3.0]);
}
