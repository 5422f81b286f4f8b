//! What `check` says of recipes: of losses above all, whose mistakes no advantage shows.

use std::time::Duration;

use advlab::batch::Batch;
use advlab::check::{CheckResult, Finding, check, groups_are_independent};
use advlab::script::{Host, Limits};
use advlab::session::{Answer, Session};

use super::lab::recipe;

fn findings(text: &str, input: Option<&Batch>) -> Vec<Finding> {
    check(&recipe(text), input)
}

/// The checks that come out so, with what they say.
fn of(findings: &[Finding], result: CheckResult) -> Vec<(&str, &str)> {
    findings
        .iter()
        .filter(|finding| finding.result == result)
        .map(|finding| (finding.check, finding.detail.as_str()))
        .collect()
}

fn with_loss(body: &str) -> String {
    format!(
        "fn advantage(batch, p) {{ batch.reward - batch.reward.mean(\"group\") }}
         fn loss(batch, p) {{
             let a = batch.advantage;
             let ratio = exp(batch.logp - batch.old_logp);
             {body}
         }}"
    )
}

/// A flipped sign of a loss that has no advantage is told by the reward; a `detach` that nothing calls excuses nothing.
#[test]
fn every_mistake_in_a_loss_fails() {
    for case in [
        r#"sign of the loss | (ratio * a).mean("batch") => a smaller loss lowers what the advantage says is good: is a minus missing? (correlation -1.00)"#,
        r#"sign of the loss | -(ratio * a).mean("batch") + 0.01 * sqrt((batch.logp - batch.old_logp) ** 2).mean("batch") => dloss/dlogp is NaN at token 0 of response 0 of group 7"#,
        r#"sign of the loss | fn loss(batch, p) { -bce_with_logits((batch.logp - batch.old_logp).sum("response"), batch.correct).mean("batch") } => what the reward says is good"#,
        r#"the loss | -(ratio.detach() * a).mean("batch") => the loss does not depend on `batch.logp`"#,
        r#"the loss | -(batch.old_logp * a).mean("batch") => the loss does not depend on `batch.logp`"#,
        r#"the loss | -(ratio * a).mean("response") => `loss` must return a batch tensor, it returned a response tensor"#,
        r#"the loss | -(ratio * a).mean("batch").value() => `loss` must return a batch tensor, it returned a number ("#,
        r#"gradient of the loss | -(ratio * a).mean("batch") / ratio.mean("batch").value() => off its slope: does the loss use a number from `value()`, which the gradient takes as a constant?"#,
        "gradient of the loss | /* detach() */ let s = \"detach()\"; // x.detach()\n -(ratio * a).mean(\"batch\") / ratio.mean(\"batch\").value() => off its slope",
        r#"gradient of the loss | (0 * batch.logp * a).mean("batch") => is 0 everywhere"#,
        r#"gradient of the loss | -(ratio.clamp(5.0, 6.0) * a).mean("batch") => is 0 everywhere"#,
        r#"gradient of the loss | -(ratio.detach() * a).mean("batch") + (0 * batch.logp).mean("batch") => is 0 everywhere"#,
    ] {
        let (body, detail) = case.split_once(" => ").unwrap();
        let (check, body) = body.split_once(" | ").unwrap();
        let text = if body.starts_with("fn ") {
            body.to_string()
        } else {
            with_loss(body)
        };
        let findings = findings(&text, None);
        let fails = of(&findings, CheckResult::Fails);
        let is_told = |(found, told): &(&str, &str)| *found == check && told.contains(detail);
        assert!(fails.iter().any(is_told), "{body}: {fails:?}");
    }
}

/// What is right holds: clipped, with a KL that pulls elsewhere, or with a ratio that is detached on purpose.
#[test]
fn losses_of_the_field_hold() {
    for case in [
        r#"clipped.mean("batch") => "#,
        r#"clipped.mean("response").mean("batch") => "#,
        r#"(clipped + 10.0 * kl).mean("batch") => "#,
        r#"-(ratio.clamp(0.0, 1.2).detach() * a * batch.logp).mean("batch") => gradient of the loss"#,
        r#"kl.mean("batch") => sign of the loss"#,
    ] {
        let (body, note) = case.split_once(" => ").unwrap();
        let clipped = "let clipped = -min(ratio * a, ratio.clamp(0.8, 1.2) * a)";
        let kl = "let kl = kl(batch.logp, batch.ref_logp, \"k3\")";
        let findings = findings(&with_loss(&format!("{clipped}; {kl}; {body}")), None);
        assert_eq!(of(&findings, CheckResult::Fails), [], "{body}");
        let notes = of(&findings, CheckResult::Note).into_iter();
        let mut noted = notes.map(|(check, _)| check);
        let noted = noted.find(|check| check.contains("of the loss"));
        assert_eq!(noted.unwrap_or(""), note, "{body}");
    }
}

/// What goes down where it should go up fails; what only weighs groups or responses otherwise is no mistake.
#[test]
fn a_flipped_advantage_fails() {
    let sign = |body: &str| {
        let text = format!("fn advantage(batch, p) {{ let r = batch.reward; {body} }}");
        let findings = findings(&text, None);
        let finding = findings
            .into_iter()
            .find(|f| f.check == "right up, wrong down");
        finding.unwrap().result
    };
    for (body, expected) in [
        ("r - r.mean(\"group\")", CheckResult::Holds),
        ("r.mean(\"group\") - r", CheckResult::Fails),
        ("-r + 0.5", CheckResult::Fails),
        ("r - 1", CheckResult::Holds),
        ("r * (r.mean(\"group\") - 0.5)", CheckResult::Note),
        (
            "r - r.mean(\"batch\") + 0.1 * batch.length",
            CheckResult::Note,
        ),
    ] {
        assert_eq!(sign(body), expected, "{body}");
    }
}

/// What is promised of groups is tried on groups of one too, which have no others.
#[test]
fn groups_of_one_are_looked_at() {
    let rloo = |baseline: &str| {
        let text = format!(
            "fn advantage(batch, p) {{ let r = batch.reward; let n = r.count(\"group\"); let others = r.sum(\"group\") - r; {baseline} }}"
        );
        findings(&text, None)
    };
    let names = [
        "groups of one",
        "equal rewards give 0",
        "sums to 0 in a group",
    ];
    for (baseline, expected) in [
        (
            "where(n > 1, r - others / (n - 1), 0)",
            [
                "holds they get 0",
                "holds exactly, whatever the reward",
                "holds ",
            ],
        ),
        (
            "r - safe_div(others, n - 1)",
            [
                "holds they get up to 1.000",
                "note not in groups of one, see above",
                "note not in groups of one, see above",
            ],
        ),
        (
            "if n.min(\"batch\").value() < 2 { throw \"alone\"; } r - others / (n - 1)",
            ["note alone", "holds exactly, whatever the reward", "holds "],
        ),
    ] {
        let found = rloo(baseline);
        let said = names.map(|name| {
            let one = found.iter().find(|one| one.check == name).unwrap();
            format!("{} {}", one.result.name(), one.detail)
        });
        assert_eq!(said, expected, "{baseline}");
    }
    let text = "fn advantage(batch, p) { let r = batch.reward; r - (r.sum(\"group\") - r) / (r.count(\"group\") - 1) }";
    let found = findings(text, None);
    let fails = found
        .iter()
        .find(|one| one.check == "groups of one")
        .unwrap();
    let help = fails.error.as_ref().unwrap()[0].help.as_ref().unwrap();
    assert!(
        help.contains("`where(n > 1, r - a / (n - 1), 0)`"),
        "{help}"
    );
    let text = "fn advantage(batch, p) { let r = batch.reward; (r - r.mean(\"group\")) / r.std(\"group\") }";
    let found = findings(text, None);
    let mut helps = found
        .iter()
        .filter_map(|one| one.error.as_ref()?[0].help.as_ref());
    assert!(helps.all(|help| help.contains("`safe_div(a, b)`")));
}

#[test]
fn a_column_of_its_own_comes_from_the_input() {
    let text = "fn advantage(batch, p) { batch.score - batch.score.mean(\"group\") }";
    let alone = findings(text, None);
    assert_eq!(of(&alone, CheckResult::Fails).len(), 1);

    let mask = ndarray::array![[1, 0, 1], [1, 1, 1], [1, 0, 0], [0, 0, 0]];
    let batch = Batch::builder()
        .groups([1, 1, 2, 2])
        .mask(mask.view())
        .response("reward", vec![1.0, 0.0, 0.5, 0.0])
        .response("score", vec![1.0, 0.5, 0.25, 0.0])
        .token("old_logp", mask.mapv(|x| -f64::from(x)))
        .build()
        .unwrap();
    let on_input = findings(text, Some(&batch));
    assert_eq!(of(&on_input, CheckResult::Fails), []);
    assert_eq!(on_input[0].detail, "its 2 groups");
    for name in ["grpo", "gae", "ppo_clip", "pacs"] {
        let findings = check(&Host::new().load(name).unwrap(), Some(&batch));
        let fails = of(&findings, CheckResult::Fails);
        // There is no `value` for gae.
        assert_eq!(fails.len(), usize::from(name == "gae"), "{name}: {fails:?}");
    }
}

/// A length is a claim, and no memory: what is made of it must not be as large.
#[test]
fn huge_lengths_are_cut() {
    let batch = Batch::builder()
        .groups([1, 1, 2, 2])
        .response("reward", vec![1.0, 0.0, 1.0, 0.0])
        .response("length", vec![f64::from(u32::MAX), 3.0, 5.0, 1.0])
        .build()
        .unwrap();
    let text = "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }";
    let findings = findings(text, Some(&batch));
    assert_eq!(of(&findings, CheckResult::Fails), []);
    let expected = "its 2 groups, the first 524288 tokens of each response";
    assert_eq!(findings[0].detail, expected);
}

/// Here the function `deep` needs a larger stack than the thread's own.
#[test]
fn an_input_has_the_stack_of_a_hook() {
    let run = || {
        let (open, close) = ("[".repeat(15), "]".repeat(15));
        let deep =
            format!("fn deep(n) {{ if n == 0 {{ 0 }} else {{ {open}deep(n - 1){close}.len() }} }}");
        let mut session = Session::new(&Host::new(), &Batch::example());
        session.evaluate(&format!("{deep} deep(28)")).unwrap();
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn designs_normalised_over_the_batch_are_no_groups_apart() {
    for (body, expected) in [
        ("batch.reward - batch.reward.mean(\"group\")", true),
        (
            "let w = batch.reward.std(\"group\"); batch.reward * w / w.mean(\"batch\")",
            false,
        ),
        ("batch.reward - batch.reward.mean(\"batch\")", false),
        (
            "batch.reward }
             fn weight(batch, p) { batch.reward.std(\"group\") > 0",
            true,
        ),
        (
            "batch.reward }
             fn weight(batch, p) { batch.reward.mean(\"group\") / batch.reward.mean(\"batch\")",
            false,
        ),
    ] {
        let recipe = recipe(&format!("fn advantage(batch, p) {{ {body} }}"));
        // All groups are alike here.
        let batch = Batch::builder()
            .groups([0, 0, 1, 1, 2, 2])
            .response("reward", vec![1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
            .build()
            .unwrap();
        let independent = groups_are_independent(&recipe, &batch).unwrap();
        assert_eq!(independent, expected, "{body}");
    }
    let reinforce = Host::new().load("reinforce_pp").unwrap();
    assert!(!groups_are_independent(&reinforce, &Batch::example()).unwrap());
    let fails = recipe("fn advantage(batch, p) { batch.score }");
    assert!(groups_are_independent(&fails, &Batch::example()).is_err());
}

/// Weights by the rank of groups: ties in batch order make it depend on that, and their mean does not.
#[test]
fn ties_show_that_the_order_matters() {
    for (ties, is_told) in [("", true), (", \"average\"", false)] {
        let script = format!(
            "fn advantage(batch, p) {{
                let rank = batch.correct.mean(\"group\").rank(\"batch\"{ties});
                (1 + rank) * (batch.reward - batch.reward.mean(\"group\"))
            }}"
        );
        let findings = findings(&script, None);
        let notes = of(&findings, CheckResult::Note);
        let told = notes
            .iter()
            .any(|(check, _)| *check == "permuted responses");
        assert_eq!(told, is_told, "{notes:?}");
    }
}

/// All checks of a recipe have one time limit, whatever a script does with it.
#[test]
fn a_check_ends_in_its_time() {
    let limited = |text: &str, time: Duration| {
        let limits = Limits {
            time,
            ..Limits::default()
        };
        let recipe = Host::new().with_limits(limits).compile("test", text);
        let findings = check(&recipe.unwrap(), None);
        let failed = of(&findings, CheckResult::Fails).last().copied();
        failed.map(|(check, detail)| (check.to_string(), detail.to_string()))
    };
    for body in [
        "let a = [3, 1, 2]; a.pad(1000, 1); a.sort(|x, y| { loop {} });",
        "loop { this.inner = #{ inner: this }; }",
        "loop { print(`a line of ${batch.step}`); }",
        "loop { let a = []; a.pad(30000, 1); }",
        "let x = batch.reward; loop { x = x + x.mean(\"batch\").value(); x.mean(\"batch\").value(); }",
    ] {
        let script = format!("fn advantage(batch, p) {{ {body} batch.reward }}");
        let failed = limited(&script, Duration::from_millis(500));
        let is_stopped = failed.is_some_and(|(_, why)| why.contains("stopped"));
        assert!(is_stopped, "{body}");
    }
    // Without an end on one of the later batches; a machine that does much else may not get there at once.
    let late = "fn advantage(batch, p) { if batch.reward.min(\"batch\") == 1 { loop { batch.reward.mean(\"group\").values(); } } batch.reward }";
    let late = (1..100).filter_map(|n| limited(late, n * Duration::from_millis(300)));
    let mut late = late.filter(|(check, _)| check == "time for all checks");
    let (_, why) = late.next().unwrap();
    assert!(why.contains("the remaining checks are skipped"), "{why}");
}

/// A comparer's error is the sort's, and what it gives is taken as a number or as "comes before". Of equal values, the first in
/// the array comes first.
#[test]
fn a_sort_ends_with_the_error_of_its_comparer() {
    for case in [
        "|x, y| x - y => [1.5, 2, 2.25, 3]",
        "|x, y| x <= y => [1.5, 2, 2.25, 3]",
        "|x, y| if x < y { -1 } else { 1 } => [1.5, 2, 2.25, 3]",
        "|x, y| x % 1 - y % 1 => [3, 2, 2.25, 1.5]",
        "|x, y| x % 1 < y % 1 => [3, 2, 2.25, 1.5]",
        "\"nothing\" => there is no function `nothing`",
        "|x, y| x.nothing() => there is no function `nothing`",
        "|x, y| throw \"no order\" => no order",
        "|x, y| \"less\" => a comparer gives a number or a boolean",
    ] {
        let (comparer, expected) = case.split_once(" => ").unwrap();
        let text = format!("let a = [3, 1.5, 2, 2.25]; a.sort({comparer}); a.to_string()");
        let sorted = match Host::new().evaluate(&text, &super::lab::batch()) {
            Ok(Answer::String(sorted)) => sorted,
            Ok(other) => panic!("{other:?}"),
            Err(error) => error[0].message.clone(),
        };
        assert!(sorted.starts_with(expected), "{comparer}: {sorted}");
    }
}
