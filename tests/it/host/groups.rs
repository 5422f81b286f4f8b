//! Group by group: `batch.groups`, `map_groups` with gradients through it, and `regroup`.

use advlab::batch::Batch;
use advlab::script::{Host, Limits, Outcome};
use advlab::tensor::Level;

use super::lab::{
    agree_on, are_on, batch, batch_with_logp, bits, builder, fail_on, run_on, tensor_on, values,
};

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
    assert_eq!(outcome.reports.prints, expected);
}

/// Said group by group or at once, it is the same, bit for bit; interleaved groups come back in the batch's order.
#[test]
fn map_groups_is_the_formula_at_once() {
    agree_on(
        &batch(),
        &[
            r#"batch.map_groups(|g| g.reward - g.reward.mean("batch")) === batch.reward - batch.reward.mean("group")"#,
            r#"batch.map_groups(|g| g.reward.mean("batch")) === batch.reward.mean("group")"#,
            // The engine locks a captured variable while a method of it runs; closures get the batch all the same.
            r#"batch.map_groups(|g| g.reward - batch.reward.mean("batch")) === batch.reward - batch.reward.mean("batch")"#,
            r#"batch.map_groups(|g| 3) === 0 * batch.reward.mean("group") + 3"#,
            "batch.map_groups(|g| g.token_reward.cumsum()) === batch.token_reward.cumsum()",
            r#"batch.map_groups(|g| g.token_reward.sum("position")) === batch.token_reward.sum("position")"#,
            r#"batch.map_groups(|g| g.reward + g.token_reward.sum("position")) === batch.reward + batch.token_reward.sum("position")"#,
        ],
    );
    // Groups whose results are of different levels meet at the finer one.
    let mixed = r#"batch.map_groups(|g| if g.length.sum("batch") > 5 { g.reward } else { g.reward.mean("batch") })"#;
    are_on(
        &batch(),
        &[&format!("{mixed} => response 1 0.25 0 0.25 -1")],
    );
}

#[test]
fn a_gradient_goes_through_map_groups() {
    let loss = |surrogate: &str| {
        let text = format!("fn loss(batch, p) {{ -{surrogate}.mean(\"batch\") }}");
        run_on(&text, &batch_with_logp()).unwrap()
    };
    let at_once = loss("(batch.reward * exp(batch.logp - batch.old_logp))");
    let by_group = loss("batch.map_groups(|g| g.reward * exp(g.logp - g.old_logp))");
    assert_eq!(at_once.loss, by_group.loss);
    assert_eq!(bits(&at_once.advantage), bits(&by_group.advantage));
    assert!(values(&at_once.advantage).iter().any(|x| *x != 0.0));
}

#[test]
fn a_function_of_one_groups_tensor_cannot_leave_it() {
    fail_on(
        &batch(),
        &[
            "let last = 0; for g in batch.groups { last = g.reward; } last => one group",
            "let a = batch.groups[0].reward; batch.map_groups(|g| a) => different batches",
        ],
    );
}

#[test]
fn regroup_splits_groups_further_and_never_joins() {
    // Group a has responses 0, 2 and 4, of which 2 is long: it becomes a group of its own. What was computed in finer groups is
    // a tensor of the same responses: the hook may return it, or go on with it.
    are_on(
        &batch(),
        &[
            r#"batch.regroup(batch.length > 2).reward.mean("group") => group 0 0.25 0"#,
            r#"{ let b = batch.regroup(batch.length > 2); b.reward - b.reward.mean("group") } => response 1 -0.25 0 0.25 -1"#,
            r#"batch.reward - batch.regroup(batch.length > 2).reward.mean("group").expand("response") => response 1 -0.25 0 0.25 -1"#,
            r#"batch.regroup(batch.reward.index("group")).reward.count("group") => group 1 1 1 1 1"#,
        ],
    );
    let same =
        r#"batch.regroup(0 * batch.reward).reward.mean("group") === batch.reward.mean("group")"#;
    agree_on(&batch(), &[same]);
    // NaN is a key like any other.
    let keys = vec![f64::NAN, 1.0, f64::NAN, 1.0, 2.0];
    let batch = builder().response("key", keys).build().unwrap();
    let mut sizes = tensor_on("batch.regroup(batch.key).reward.count(\"group\")", &batch).1;
    sizes.sort_by(f64::total_cmp);
    assert_eq!(sizes, [1.0, 2.0, 2.0]);
}

/// Functions for which one call is enough for all groups.
const ONCE: &[&str] = &[
    r#"g.reward - g.reward.mean("batch")"#,
    r#"(g.reward - g.reward.mean("group")) / (g.reward.std("group") + p.eps)"#,
    r#"g.reward.rank("batch") + g.reward.index("group")"#,
    r#"g.reward.others_mean("batch")"#,
    r#"g.reward.median("batch") * g.reward.count("batch")"#,
    r#"g.reward.population_std("batch") + g.reward.any("batch", g.length > 1)"#,
    r#"g.reward.mean("batch", g.length > 1)"#,
    r#"g.token_reward.suffix_sum(0.9) - g.token_reward.mean("batch")"#,
    r#"g.token_reward.sum("position").max("batch")"#,
    r#"whiten(g.reward, "batch")"#,
    r#"if g.reward.level == "response" { g.reward } else { 0 }"#,
    "mean + g.reward",
    "g.reward - overall",
    "outer.step + 2",
    "2.5",
    "true",
    "overall",
    "helper(g)",
    "{ let sums = []; for x in [1, 2] { sums.push(x * g.reward); } sums[0] + sums[1] }",
    "{ let sum = 0; for x in range { sum += x; } g.reward * sum }",
    r#"try { g.reward.sum("token") } catch { g.reward }"#,
    "1 / (g.reward - 0.5)",
    "g.reward + outer.reward",
    r#"g.reward.sum("token")"#,
    "g.rewrad",
    r#""no""#,
];

/// Functions that are called for each group: they look at values, report, draw, write, mix or fail.
const EACH: &[&str] = &[
    r#"g.reward * g.reward.mean("batch").value()"#,
    r#"if g.reward.mean("batch") > 0.1 { 1 } else { 0 }"#,
    "g.reward[0]",
    "g.reward.len()",
    "g.reward.values()[0]",
    "g.to_string().len()",
    "`${g.reward}`.len()",
    "g.groups.len()",
    "g.map_groups(|h| h.reward)",
    r#"g.regroup(g.length).reward.mean("group").expand("response")"#,
    r#"(overall * g.reward.mean("batch")).value()"#,
    r#"binomial_ratio(g.length, g.length.sum("batch"), 1)"#,
    // What a later group does wrong is told as ever.
    r#"binomial_ratio(g.length - 1.5 * (g.reward.sum("batch") > 0.2), 4, 1)"#,
    r#"{ print("here"); g.reward }"#,
    r#"{ metric("mean", g.reward.mean("batch")); g.reward }"#,
    r#"g.random("response")"#,
    r#"outer.random("batch")"#,
    "{ count += 1; g.reward * count }",
    r#"{ last = g.reward.mean("batch"); last }"#,
    "{ list.push(1); g.reward * list.len() }",
    "{ map.inner.x += 1; g.reward * map.inner.x }",
    r#"{ key = g.key("group"); g.reward }"#,
    "outer.groups[0].reward",
    r#"(outer.reward * g.reward.mean("batch")).sum("batch")"#,
    r#"binomial_ratio(4, 0.5 + g.reward.sum("batch"), 1)"#,
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
            let key = batch.key("group");
            let outer = batch;
            let mapped = batch.map_groups(|g| {{
                {first}
                {function}
            }});
            print(count); print(list); print(map); print(last); print(key);
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
    let looks = "g.to_string();";
    let once = ONCE.iter().map(|function| (true, function));
    for (once, function) in once.chain(EACH.iter().map(|function| (false, function))) {
        let (found, looped) = match (of_function(function, ""), of_function(function, looks)) {
            (Ok(found), Ok(looped)) => (found, looped),
            (found, looped) => {
                let messages =
                    [found, looped].map(|one| one.expect_err(function).replace(looks, ""));
                assert_eq!(messages[0], messages[1]);
                continue;
            }
        };
        let by_one_call =
            |outcome: &Outcome| outcome.reports.map_groups.last().unwrap().by_one_call;
        assert_eq!(by_one_call(&found), once, "{function}");
        assert!(!by_one_call(&looped));
        let told = |outcome: &Outcome| {
            let (level, bits) = (outcome.advantage.level(), bits(&outcome.advantage));
            (
                level,
                bits,
                outcome.reports.prints.clone(),
                outcome.reports.metrics.clone(),
            )
        };
        assert_eq!(told(&found), told(&looped), "{function}");
    }
}

/// A number is one branch of a function: it does not matter how many groups take that.
#[test]
fn a_number_stands_for_the_responses_of_its_group() {
    for (least, expected) in [(0.0, [1.0, 0.0, 0.0, 0.5, -1.0]), (99.0, [0.5; 5])] {
        let text = format!(
            "fn advantage(batch, p) {{
                batch.map_groups(|g| if g.reward.max(\"batch\") > {least} {{ g.reward }} else {{ 0.5 }})
            }}"
        );
        let advantage = run_on(&text, &batch()).unwrap().advantage;
        assert_eq!(advantage.level(), Level::Response);
        assert_eq!(values(&advantage), expected);
    }
    // A tensor of one value a group is another thing than a number: it says how groups are to be told apart.
    let by_group = "batch.map_groups(|g| g.reward.mean(\"batch\")) => must return";
    fail_on(&batch(), &[by_group]);
}

/// A metric of a function is the mean over the groups that report it, which have 3 and 2 responses; one of a loop or of the hook
/// is the last one.
#[test]
fn a_metric_of_a_function_is_a_mean_over_the_groups() {
    let report = "metric(\"size\", 0); metric(\"size\", g.reward.count(\"batch\"));";
    let mapped = format!("batch.map_groups(|g| {{ {report} g.reward }});");
    let caught = "try { batch.map_groups(|g| { metric(\"size\", 1); throw 1 }); } catch {}";
    for (body, expected) in [
        (mapped.clone(), 2.5),
        (format!("metric(\"size\", 7); {mapped}"), 2.5),
        (format!("{mapped} metric(\"size\", 7);"), 7.0),
        (format!("for g in batch.groups {{ {report} }}"), 2.0),
        (format!("metric(\"other\", 2); {caught}"), 2.0),
    ] {
        let text = format!("fn advantage(batch, p) {{ {body} batch.reward }}");
        assert_eq!(
            run_on(&text, &batch()).unwrap().reports.metrics[0].1,
            expected,
            "{body}"
        );
    }
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
    assert_eq!(run_on(text, &batch()).unwrap().reports.prints, ["2"]);
}

/// Memory that runs out in a function of the script is told of the line that needed it.
#[test]
fn a_limit_is_told_of_its_line() {
    const RESPONSES: usize = 4000;
    let keys = (0..RESPONSES).map(|i| i.to_string());
    let batch = Batch::builder()
        .groups([0; RESPONSES])
        .lengths([1; RESPONSES]);
    let batch = batch
        .response("reward", vec![1.0; RESPONSES])
        .text("agent", keys);
    let batch = batch.build().unwrap();
    let limits = Limits {
        memory: 8 * RESPONSES,
        ..Limits::default()
    };
    let host = Host::new().with_limits(limits);
    for line in [
        "batch.regroup(batch.reward).reward",
        "batch.group_by(batch.reward).reward",
        "recall(\"t\", batch.key(\"agent\"), batch.reward)",
        "remember(\"t\", batch.key(\"agent\"), batch.reward)",
    ] {
        let text = format!(
            "fn inner(batch) {{\n    {line};\n}}\nfn advantage(batch, p) {{\n    inner(batch);\n    batch.reward\n}}\n"
        );
        let recipe = host.compile("test", &text).unwrap();
        let failed = recipe.advantage(&batch, &mut recipe.init().unwrap());
        let told = failed.expect_err(line).render(false);
        assert!(
            told.contains("MiB") && told.contains("test:2:"),
            "{line}: {told}"
        );
    }
}
