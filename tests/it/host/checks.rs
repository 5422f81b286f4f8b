//! What `check` says of recipes: of losses above all, whose mistakes no advantage shows.

use std::time::Duration;

use advlab::batch::Batch;
use advlab::check::{CheckResult, Finding, check, groups_are_independent, usual};
use advlab::script::{BUILTINS, Host, Limits};
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
        r#"sign of the loss | (ratio * a).mean("batch") => lowering the loss lowers the probability of responses that the advantage favours: is a minus sign missing? (correlation -1.00)"#,
        r#"sign of the loss | -(ratio * a).mean("batch") + 0.01 * sqrt((batch.logp - batch.old_logp) ** 2).mean("batch") => dloss/dlogp is NaN at token 0 of response 0 of group 7"#,
        r#"sign of the loss | fn loss(batch, p) { -bce_with_logits((batch.logp - batch.old_logp).sum("response"), batch.correct).mean("batch") } => lowers the probability of responses that the reward favours"#,
        r#"the loss | -(ratio.detach() * a).mean("batch") => the loss does not depend on `batch.logp`"#,
        r#"the loss | -(batch.old_logp * a).mean("batch") => the loss does not depend on `batch.logp`"#,
        r#"the loss | -(ratio * a).mean("response") => `loss` must return a batch tensor, but it returned a response tensor"#,
        r#"the loss | -(ratio * a).mean("batch").value() => `loss` must return a batch tensor, but it returned a number ("#,
        r#"gradient of the loss | -(ratio * a).mean("batch") / ratio.mean("batch").value() => %: does the loss use a number from `value()`, which the gradient treats as a constant?"#,
        "gradient of the loss | /* detach() */ let s = \"detach()\"; // x.detach()\n -(ratio * a).mean(\"batch\") / ratio.mean(\"batch\").value() => differs from finite differences of the loss by",
        r#"gradient of the loss | (0 * batch.logp * a).mean("batch") => is 0 both at logp = old_logp and near it"#,
        r#"gradient of the loss | -(ratio.clamp(5.0, 6.0) * a).mean("batch") => is 0 both at logp = old_logp and near it"#,
        r#"gradient of the loss | -(ratio.detach() * a).mean("batch") + (0 * batch.logp).mean("batch") => is 0 both at logp = old_logp and near it"#,
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

/// Weights that a loss does not see are noted: those of a loss over groups of any size but 0, and all of a loss without `batch.weight`.
#[test]
fn weights_without_effect_on_a_loss_are_noted() {
    let policy = r#"aggregate::of(batch, -batch.advantage * batch.logp, #{ aggregate: "token" })"#;
    let plain = r#"(-batch.advantage * batch.logp).mean("batch")"#;
    for (weight, loss, is_noted) in [
        (
            "1 + batch.correct",
            "gvpo::loss(batch, #{ beta: 0.1 })",
            true,
        ),
        (
            "1 + batch.correct",
            "real::loss(batch, #{ tau: 0.5 })",
            true,
        ),
        ("1 + batch.correct", policy, false),
        ("1 + batch.correct", plain, true),
        (
            "batch.length > 3",
            "gvpo::loss(batch, #{ beta: 0.1 })",
            false,
        ),
        ("batch.length > 3", policy, false),
        ("batch.length > 3", plain, true),
        // Equal weights do what none do.
        ("batch.correct >= 0", plain, false),
    ] {
        let imports =
            ["gvpo", "real", "aggregate"].map(|name| format!("import \"{name}\" as {name};\n"));
        let hooks = format!(
            "fn weight(batch, p) {{ {weight} }}\nfn advantage(batch, p) {{ batch.reward }}\nfn loss(batch, p) {{ {loss} }}"
        );
        let findings = findings(&(imports.concat() + hooks.as_str()), None);
        let mut notes = of(&findings, CheckResult::Note).into_iter();
        let noted = notes.any(|(check, _)| check == "weights of the loss");
        assert_eq!(noted, is_noted, "{hooks}: {findings:?}");
    }
}

/// Notes on terms and tokens that train nothing. A column of the user's own is known to be of the prompt if it has one value at the
/// first token of all responses of a group, although other tokens were sampled there.
#[test]
fn terms_that_train_nothing_are_noted() {
    let a = r#"let a = batch.reward - batch.reward.mean("group");"#;
    let policy = "-ratio * a";
    let advantage = |body: &str| format!("fn advantage(batch, p) {{ {a} {body} }}");
    let loss = |term: &str| with_loss(&format!("({policy} + {term}).mean(\"batch\")"));
    let (first, tokens) = (
        "a * (batch.entropy.cumsum() == batch.entropy)",
        "signal on every token",
    );
    let (terms, of_loss) = ("terms follow the tokens", "terms of the loss");
    for (script, check, expected) in [
        (
            advantage("a + 0.01 * batch.entropy"),
            terms,
            "note a term made of `entropy`",
        ),
        (
            advantage("a + 0.01 * min(batch.entropy, 0.3)"),
            terms,
            "note a term made of `entropy`",
        ),
        (
            advantage("a + 0.01 * batch.of_prompt"),
            terms,
            "note a term made of `of_prompt`",
        ),
        (advantage("a + 0.01 * batch.of_token"), terms, "none"),
        (advantage("a + 0.01 * batch.same"), terms, "none"),
        (advantage("a + batch.value"), terms, "none"),
        // A factor of the advantage is no term.
        (
            "fn loss(batch, p) { -(exp(batch.logp - batch.old_logp) * batch.advantage * batch.entropy).mean(\"batch\") }"
                .to_string(),
            terms,
            "holds",
        ),
        (
            advantage("a + 0.01 * batch.entropy.suffix_sum(1.0)"),
            terms,
            "holds",
        ),
        (
            advantage("a + 0.01 * batch.entropy.next(0)"),
            terms,
            "holds",
        ),
        (advantage("a * (1 + 0.01 * batch.entropy)"), terms, "holds"),
        (
            advantage("a + 0.01 * (batch.old_logp - batch.ref_logp)"),
            terms,
            "none",
        ),
        (
            loss("0.01 * batch.entropy * batch.logp"),
            terms,
            "note a term made of `entropy`",
        ),
        (
            loss("-0.01 * batch.entropy"),
            of_loss,
            "note the loss depends on `entropy`,",
        ),
        (
            loss("0.1 * kl(batch.logp, batch.ref_logp, \"k1\")"),
            of_loss,
            "note the loss depends on `ref_logp`,",
        ),
        (
            loss("0.1 * kl(batch.logp, batch.ref_logp, \"k2\")"),
            of_loss,
            "holds",
        ),
        (
            loss("0.1 * kl(batch.logp, batch.ref_logp, \"k3\")"),
            of_loss,
            "holds",
        ),
        (
            loss("0.0 - min(ratio * a, ratio.clamp(0.8, 1.001 + 0.001 * abs(batch.entropy)) * a)"),
            of_loss,
            "holds",
        ),
        (
            loss("0.1 * abs(batch.logp - batch.ref_logp)"),
            of_loss,
            "holds",
        ),
        (advantage(first), tokens, "note 78 of 104 tokens have advantage 0,"),
        (advantage("a * batch.entropy"), tokens, "holds"),
        (advantage("batch.token_reward"), tokens, "note 30 of 104"),
        (advantage("a"), tokens, "none"),
    ] {
        let findings = findings(&script, Some(&with_columns_of_prompts()));
        let found = findings.iter().find(|finding| finding.check == check);
        let found = found.map_or("none".to_string(), |one| {
            format!("{} {}", one.result.name(), one.detail)
        });
        assert!(found.starts_with(expected), "{script}: {found}");
    }
}

/// The check's own batch with a column that has one value for each prompt at the first token, with a column of the sampled token, and
/// with a column that is 0 at each first token.
fn with_columns_of_prompts() -> Batch {
    let usual = usual();
    let layout = usual.layout().clone();
    let old = usual.token_column("old_logp").unwrap();
    let rows = |value: &dyn Fn(usize, usize, f64) -> f64| -> Vec<Vec<f64>> {
        let row = |i: usize| {
            old.of_response(&layout, i)
                .enumerate()
                .map(move |(t, x)| (i, t, x))
        };
        (0..layout.responses())
            .map(|i| row(i).map(|(i, t, x)| value(i, t, x)).collect())
            .collect()
    };
    let group = |i: usize| layout.group_of(i) as f64;
    let mut batch =
        Batch::builder().groups((0..layout.responses()).map(|i| layout.group_of(i) as i64));
    for (name, values) in [
        (
            "of_prompt",
            rows(&|i, t, x| if t == 0 { 0.5 + group(i) } else { x }),
        ),
        ("of_token", rows(&|_, _, x| 2.0 * x)),
        ("same", rows(&|_, t, x| if t == 0 { 0.0 } else { x })),
    ] {
        batch = batch.ragged(name, values);
    }
    for (name, values) in usual.token_columns() {
        let row = |i: usize| values.of_response(&layout, i).collect::<Vec<f64>>();
        batch = batch.ragged(name, (0..layout.responses()).map(row));
    }
    batch = batch.response("reward", usual.response_column("reward").unwrap().to_vec());
    batch.build().unwrap()
}

/// Nothing of the built-ins is blamed, except where a parameter asks for it.
#[test]
fn no_built_in_has_a_term_that_trains_nothing() {
    for builtin in BUILTINS {
        for finding in check(&Host::new().load(builtin.name).unwrap(), None) {
            let is_of_terms =
                finding.check.starts_with("terms") || finding.check.contains("every token");
            assert!(
                !is_of_terms || finding.result == CheckResult::Holds,
                "{}: {finding:?}",
                builtin.name
            );
            let is_nothing = finding.detail.contains("no learning signal");
            assert!(!is_nothing, "{}: {finding:?}", builtin.name);
        }
    }
    let mut k1 = Host::new().load("ppo_clip").unwrap();
    k1.set_text("kl", "k1").unwrap();
    k1.set_text("kl_beta", "0.1").unwrap();
    let notes = check(&k1, None);
    let noted = of(&notes, CheckResult::Note).into_iter();
    assert_eq!(
        noted
            .filter(|(check, _)| *check == "terms of the loss")
            .count(),
        1
    );
}

/// A value of 0 is said to be so by construction only where the gradient is not 0 too.
#[test]
fn a_loss_of_zero_is_explained() {
    let zero = |text: &str, check: &str| {
        let findings = findings(text, None);
        let found = findings.into_iter().find(|finding| finding.check == check);
        found.unwrap().detail
    };
    let centred = "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }";
    let detail = zero(centred, "sums to 0 in a group");
    assert!(
        detail
            .starts_with("a loss averaged over responses is 0 at ratio 1, but its gradient is not"),
        "{detail}"
    );
    let nothing = "fn advantage(batch, p) { 0 * batch.reward }";
    assert_eq!(zero(nothing, "sums to 0 in a group"), "");
    let over_responses = "-(ratio * a).mean(\"response\").mean(\"batch\")";
    for (body, is_zero) in [
        (over_responses, true),
        ("-(ratio * a).mean(\"batch\")", false),
    ] {
        let detail = zero(&with_loss(body), "sign of the loss");
        assert_eq!(
            detail.contains("at logp = old_logp, the loss is 0 by construction"),
            is_zero,
            "{body}: {detail}"
        );
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
                "holds exactly 0, whatever the reward is",
                "holds a loss averaged over responses is 0 at ratio 1, but its gradient is not 0: the mean of |A| is 0.516",
            ],
        ),
        (
            "r - safe_div(others, n - 1)",
            [
                "holds the largest |A| is 1.000",
                "note except in groups of one (see above)",
                "note except in groups of one (see above)",
            ],
        ),
        (
            "if n.min(\"batch\").value() < 2 { throw \"alone\"; } r - others / (n - 1)",
            [
                "note alone",
                "holds exactly 0, whatever the reward is",
                "holds a loss averaged over responses is 0 at ratio 1, but its gradient is not 0: the mean of |A| is 0.516",
            ],
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
    assert_eq!(on_input[0].detail, "the batch's 2 groups");
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
    let expected = "the batch's 2 groups, the first 524288 tokens of each response";
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
        "|x, y| \"less\" => a comparison must return a number or a boolean",
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
