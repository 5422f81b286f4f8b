//! Group by group: `batch.groups`, `map_groups` with gradients through it, and `regroup`.

use advlab::script::{ByGroup, Outcome};

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
    let bits = |outcome: &Outcome| -> Vec<u64> {
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

/// Functions, and whether one call is enough for all groups (`None`), or why not.
const FUNCTIONS: &[(&str, Option<ByGroup>)] = &[
    ("g.reward - g.reward.mean(\"batch\")", None),
    (
        "(g.reward - g.reward.mean(\"group\")) / (g.reward.std(\"group\") + p.eps)",
        None,
    ),
    ("g.reward.rank(\"batch\") + g.reward.index(\"group\")", None),
    ("g.reward.others_mean(\"batch\")", None),
    (
        "g.reward.median(\"batch\") * g.reward.count(\"batch\")",
        None,
    ),
    (
        "g.reward.population_std(\"batch\") + g.reward.any(\"batch\", g.length > 1)",
        None,
    ),
    ("g.reward.mean(\"batch\", g.length > 1)", None),
    (
        "g.token_reward.suffix_sum(0.9) - g.token_reward.mean(\"batch\")",
        None,
    ),
    ("g.token_reward.sum(\"position\").max(\"batch\")", None),
    ("whiten(g.reward, \"batch\")", None),
    ("binomial_ratio(g.length, g.length.sum(\"batch\"), 1)", None),
    (
        "if g.reward.level == \"response\" { g.reward } else { 0 }",
        None,
    ),
    ("mean + g.reward", None),
    ("g.reward - overall", None),
    ("outer.step + 2", None),
    ("2.5", None),
    ("true", None),
    ("overall", None),
    ("helper(g)", None),
    (
        "{ let sums = []; for x in [1, 2] { sums.push(x * g.reward); } sums[0] + sums[1] }",
        None,
    ),
    (
        "{ let sum = 0; for x in range { sum += x; } g.reward * sum }",
        None,
    ),
    ("try { g.reward.sum(\"token\") } catch { g.reward }", None),
    (
        "g.reward * g.reward.mean(\"batch\").value()",
        Some(ByGroup::Looks),
    ),
    (
        "if g.reward.mean(\"batch\") > 0.1 { 1 } else { 0 }",
        Some(ByGroup::Looks),
    ),
    ("g.reward[0]", Some(ByGroup::Looks)),
    ("g.reward.len()", Some(ByGroup::Looks)),
    ("g.reward.values()[0]", Some(ByGroup::Looks)),
    ("g.to_string().len()", Some(ByGroup::Looks)),
    ("`${g.reward}`.len()", Some(ByGroup::Looks)),
    ("g.groups.len()", Some(ByGroup::Looks)),
    ("g.map_groups(|h| h.reward)", Some(ByGroup::Looks)),
    (
        "g.regroup(g.length).reward.mean(\"group\").expand(\"response\")",
        Some(ByGroup::Looks),
    ),
    (
        "(overall * g.reward.mean(\"batch\")).value()",
        Some(ByGroup::Looks),
    ),
    ("{ print(\"here\"); g.reward }", Some(ByGroup::Reports)),
    (
        "{ metric(\"mean\", g.reward.mean(\"batch\")); g.reward }",
        Some(ByGroup::Reports),
    ),
    ("g.random(\"response\")", Some(ByGroup::Draws)),
    ("outer.random(\"batch\")", Some(ByGroup::Draws)),
    ("{ count += 1; g.reward * count }", Some(ByGroup::Writes)),
    (
        "{ last = g.reward.mean(\"batch\"); last }",
        Some(ByGroup::Writes),
    ),
    (
        "{ list.push(1); g.reward * list.len() }",
        Some(ByGroup::Writes),
    ),
    (
        "{ map.inner.x += 1; g.reward * map.inner.x }",
        Some(ByGroup::Writes),
    ),
    ("outer.groups[0].reward", Some(ByGroup::Mixes)),
    (
        "(outer.reward * g.reward.mean(\"batch\")).sum(\"batch\")",
        Some(ByGroup::Mixes),
    ),
    // What a later group does wrong is told as ever.
    (
        "binomial_ratio(g.length - 1.5 * (g.reward.sum(\"batch\") > 0.2), 4, 1)",
        Some(ByGroup::Looks),
    ),
    (
        "binomial_ratio(4, 0.5 + g.reward.sum(\"batch\"), 1)",
        Some(ByGroup::Fails),
    ),
    ("1 / (g.reward - 0.5)", None),
    ("g.reward + outer.reward", None),
    ("g.reward.sum(\"token\")", None),
    ("g.rewrad", None),
    ("\"no\"", None),
];

/// All that comes of a function in `map_groups`; `first` is a statement before it.
fn of_function(function: &str, first: &str) -> Result<Outcome, String> {
    let text = format!(
        r#"
        fn params() {{ #{{ eps: #{{ value: 0.1, doc: "x" }} }} }}
        fn helper(g) {{ g.length * g.reward.max("batch") }}
        fn advantage(batch, p) {{
            let mean = 0.25;
            let overall = batch.reward.mean("batch");
            let count = 0;
            let last = 0;
            let list = [];
            let map = #{{ inner: #{{ x: 1 }} }};
            let range = 1..4;
            let outer = batch;
            let mapped = batch.map_groups(|g| {{
                {first}
                {function}
            }});
            print(count); print(list); print(map); print(last);
            metric("after", batch.random("batch"));
            batch.reward + mapped
        }}
    "#
    );
    run_on(&text, &batch()).map_err(|error| error.render(false))
}

/// Whether it is called once for all or for each group, a function gives the same: the same bits, reports, random
/// numbers, variables and messages.
#[test]
fn one_call_for_all_groups_gives_what_a_call_for_each_gives() {
    for (function, why) in FUNCTIONS {
        let as_it_is = of_function(function, "");
        let looped = of_function(function, "g.to_string();");
        let (as_it_is, looped) = match (as_it_is, looped) {
            (Ok(as_it_is), Ok(looped)) => (as_it_is, looped),
            (as_it_is, looped) => {
                let message = as_it_is.expect_err(function).replace("g.to_string();", "");
                assert_eq!(
                    message,
                    looped.expect_err(function).replace("g.to_string();", "")
                );
                continue;
            }
        };
        assert_eq!(
            as_it_is.map_groups.last().unwrap().by_group,
            *why,
            "{function}"
        );
        assert!(looped.map_groups.last().unwrap().by_group.is_some());
        let bits = |outcome: &Outcome| -> Vec<u64> {
            outcome
                .advantage
                .buffer()
                .iter()
                .map(f64::to_bits)
                .collect()
        };
        assert_eq!(
            as_it_is.advantage.level(),
            looped.advantage.level(),
            "{function}"
        );
        assert_eq!(bits(&as_it_is), bits(&looped), "{function}");
        assert_eq!(as_it_is.prints, looped.prints, "{function}");
        assert_eq!(as_it_is.metrics, looped.metrics, "{function}");
    }
}

/// A number is one branch of a function: it does not matter how many groups take that.
#[test]
fn a_number_stands_for_the_responses_of_its_group() {
    for (least, expected) in [(0.0, "some"), (99.0, "none")] {
        let body = format!(
            "batch.map_groups(|g| if g.reward.max(\"batch\") > {least} {{ g.reward }} else {{ 0.5 }})"
        );
        let text = format!("fn advantage(batch, p) {{ {body} }}");
        let outcome =
            run_on(&text, &batch()).unwrap_or_else(|error| panic!("{}", error.render(false)));
        assert_eq!(outcome.advantage.level().to_string(), "response", "{body}");
        let values: Vec<f64> = outcome.advantage.buffer().iter().collect();
        let is_all_half = values.iter().all(|&value| value == 0.5);
        assert_eq!(is_all_half, expected == "none", "{values:?}");
    }
    // A tensor of one value a group is another thing than a number: it says how groups are to be told apart.
    let text = "fn advantage(batch, p) { batch.map_groups(|g| g.reward.mean(\"batch\")) }";
    assert!(run_on(text, &batch()).is_err());
}

/// A metric of a function is the mean over the groups that report it; one of a loop or of the hook is the last one.
#[test]
fn a_metric_of_a_function_is_a_mean_over_the_groups() {
    let metric = |body: &str| {
        let text = format!("fn advantage(batch, p) {{ {body} batch.reward }}");
        let outcome =
            run_on(&text, &batch()).unwrap_or_else(|error| panic!("{}", error.render(false)));
        assert_eq!(outcome.metrics.len(), 1, "{body}");
        outcome.metrics[0].1
    };
    let sizes: Vec<f64> = {
        let layout = batch();
        let layout = layout.layout();
        (0..layout.groups())
            .map(|group| layout.members(group).len() as f64)
            .collect()
    };
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let last = sizes[sizes.len() - 1];
    assert_ne!(mean, last);
    let of_group = "metric(\"size\", 0); metric(\"size\", g.reward.count(\"batch\"));";
    assert_eq!(
        metric(&format!("batch.map_groups(|g| {{ {of_group} g.reward }});")),
        mean
    );
    assert_eq!(
        metric(&format!(
            "metric(\"size\", 7); batch.map_groups(|g| {{ {of_group} g.reward }});"
        )),
        mean
    );
    assert_eq!(
        metric(&format!(
            "batch.map_groups(|g| {{ {of_group} g.reward }}); metric(\"size\", 7);"
        )),
        7.0
    );
    assert_eq!(
        metric(&format!("for g in batch.groups {{ {of_group} }}")),
        last
    );
}

/// The state is no variable of a function's: what is changed there is changed for each group.
#[test]
fn a_state_that_a_function_changes_is_changed_for_each_group() {
    let text = r#"
        fn init(p) { #{ seen: [] } }
        fn advantage(batch, p) {
            let seen = this.seen;
            let mapped = batch.map_groups(|g| { seen.push(1); g.reward });
            this.seen = seen;
            print(this.seen.len());
            mapped
        }
    "#;
    assert_eq!(run_on(text, &batch()).unwrap().prints, ["2"]);
}
