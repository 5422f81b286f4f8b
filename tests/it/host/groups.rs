//! Group by group: `batch.groups`, `map_groups` with gradients through it, and `regroup`.

use super::lab::{batch, batch_with_logp, builder, message, run_on, tensor, tensor_on};

#[test]
fn each_group_is_a_batch_of_its_own() {
    let text = r#"
        fn advantage(batch, p) {
            for g in batch.groups {
                print(g.to_string());
                print(g.reward.values());
                print(g.length.sum("batch").value());
                print(g.reward.mean("group").values());
            }
            0 * batch.reward
        }
    "#;
    let outcome = run_on(text, &batch()).unwrap();
    let expected = [
        "batch of 1 groups, 3 responses, 6 tokens",
        "[1.0, 0.0, -1.0]",
        "6.0",
        "[0.0]",
        "batch of 1 groups, 2 responses, 3 tokens",
        "[0.0, 0.5]",
        "3.0",
        "[0.25]",
    ];
    assert_eq!(outcome.prints, expected);
}

/// Said group by group or at once, it is the same, bit for bit; interleaved groups come back in the batch's order.
#[test]
fn map_groups_is_the_formula_at_once() {
    for (by_group, at_once) in [
        (
            "g.reward - g.reward.mean(\"batch\")",
            "batch.reward - batch.reward.mean(\"group\")",
        ),
        ("g.reward.mean(\"batch\")", "batch.reward.mean(\"group\")"),
        ("3", "0 * batch.reward.mean(\"group\") + 3"),
        ("g.token_reward.cumsum()", "batch.token_reward.cumsum()"),
        (
            "g.token_reward.sum(\"position\")",
            "batch.token_reward.sum(\"position\")",
        ),
        (
            "g.reward + g.token_reward.sum(\"position\")",
            "batch.reward + batch.token_reward.sum(\"position\")",
        ),
    ] {
        let mapped = tensor(&format!("batch.map_groups(|g| {by_group})"));
        assert_eq!(mapped, tensor(at_once), "{by_group}");
    }
}

/// Groups whose results are of different levels meet at the finer one.
#[test]
fn results_of_different_levels_meet() {
    let mixed = tensor(
        "batch.map_groups(|g| if g.length.sum(\"batch\") > 5 { g.reward } else { g.reward.mean(\"batch\") })",
    );
    let expected = vec![1.0, 0.25, 0.0, 0.25, -1.0];
    assert_eq!(mixed, ("response".to_string(), expected));
}

#[test]
fn a_gradient_goes_through_map_groups() {
    let at_once =
        "fn loss(batch, p) { -(batch.reward * exp(batch.logp - batch.old_logp)).mean(\"batch\") }";
    let by_group = r#"
        fn loss(batch, p) {
            let surrogate = batch.map_groups(|g| g.reward * exp(g.logp - g.old_logp));
            -surrogate.mean("batch")
        }
    "#;
    let batch = batch_with_logp();
    let (at_once, by_group) = (
        run_on(at_once, &batch).unwrap(),
        run_on(by_group, &batch).unwrap(),
    );
    assert_eq!(at_once.loss, by_group.loss);
    let bits = |outcome: &advlab::script::Outcome| -> Vec<u64> {
        outcome
            .advantage
            .buffer()
            .iter()
            .map(f64::to_bits)
            .collect()
    };
    assert_eq!(bits(&at_once), bits(&by_group));
    assert!(at_once.advantage.buffer().iter().any(|x| x != 0.0));
}

#[test]
fn a_function_of_one_groups_tensor_cannot_leave_it() {
    let text =
        "fn advantage(batch, p) { let last = 0; for g in batch.groups { last = g.reward; } last }";
    assert!(message(run_on(text, &batch())).contains("one group"));
    let mixed =
        "fn advantage(batch, p) { let a = batch.groups[0].reward; batch.map_groups(|g| a) }";
    assert!(run_on(mixed, &batch()).is_err());
}

#[test]
fn regroup_splits_groups_by_a_key() {
    // Group a has responses 0, 2 and 4, of which 2 is long: it becomes a group of its own.
    let split = tensor("batch.regroup(batch.length > 2).reward.mean(\"group\")");
    assert_eq!(split.0, "group");
    let mut means = split.1.clone();
    means.sort_by(f64::total_cmp);
    assert_eq!(means, [0.0, 0.0, 0.25]);

    let centred =
        tensor("{ let b = batch.regroup(batch.length > 2); b.reward - b.reward.mean(\"group\") }");
    assert_eq!(centred.1, [1.0, -0.25, 0.0, 0.25, -1.0]);
}

/// What was computed in finer groups is a tensor of the same responses: the hook may return it, or go on with it.
#[test]
fn what_regroup_gave_goes_back_into_the_batch() {
    let text = r#"
        fn advantage(batch, p) {
            let split = batch.regroup(batch.length > 2);
            let baseline = split.reward.mean("group").expand("response");
            batch.reward - baseline
        }
    "#;
    let outcome = run_on(text, &batch()).unwrap();
    let found: Vec<f64> = outcome.advantage.buffer().iter().collect();
    assert_eq!(found, [1.0, -0.25, 0.0, 0.25, -1.0]);
}

#[test]
fn regroup_splits_further_and_never_joins() {
    let same = tensor("batch.regroup(0 * batch.reward).reward.mean(\"group\")");
    assert_eq!(same, tensor("batch.reward.mean(\"group\")"));
    let alone = tensor("batch.regroup(batch.reward.index(\"group\")).reward.count(\"group\")");
    assert_eq!(alone.1, [1.0; 5]);
}

#[test]
fn a_nan_in_the_key_is_a_key_like_any_other() {
    let batch = builder()
        .response("key", vec![f64::NAN, 1.0, f64::NAN, 1.0, 2.0])
        .build()
        .unwrap();
    let count = tensor_on("batch.regroup(batch.key).reward.count(\"group\")", &batch);
    let mut sizes = count.1;
    sizes.sort_by(f64::total_cmp);
    assert_eq!(sizes, [1.0, 2.0, 2.0]);
}
