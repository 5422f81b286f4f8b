//! Plans: the derivation and the file of PyTorch of some built-ins, kin among recipes, and what cannot be exported. That a file
//! gives the recipe's numbers is tested where torch is: `python/tests/test_plan.py`.

use std::sync::Arc;

use advlab::Batch;
use advlab::batch::Buffer;
use advlab::plan::{Plan, steps, terms};
use advlab::script::{BUILTINS, Host, Recipe};

use crate::cases;

fn load(name: &str, settings: &str) -> Recipe {
    let mut recipe = Host::new().load(name).expect("a built-in");
    for setting in settings.split_whitespace() {
        let (name, value) = setting.split_once('=').expect("name=value");
        recipe.set_text(name, value).expect("a setting");
    }
    recipe
}

fn plan(recipe: &Recipe) -> Plan {
    let plan = Plan::of(recipe, None, false);
    plan.unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn script(text: &str) -> Recipe {
    let recipe = Host::new().compile("mine", text);
    recipe.unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[test]
fn derivations() {
    let shown = [
        ("grpo", "", false),
        ("passk", "k=2", false),
        ("gae", "", false),
        ("gae", "", true),
        ("ppo_clip", "kl_beta=0.1", false),
    ];
    let shown = shown.map(|(name, settings, is_expanded)| {
        let plan = Plan::of(&load(name, settings), None, is_expanded).expect("a plan");
        (name, plan.text())
    });
    cases::snapshot("plan", "derivations", shown);
}

#[test]
fn files_of_torch() {
    let shown = ["grpo", "reinforce_pp", "gae", "pacs"];
    let shown = shown.map(|name| (name, plan(&load(name, "")).torch().expect("a file")));
    cases::snapshot("plan", "torch", shown);
}

/// A parameter may have any name in a script; a keyword of Python gets an underscore.
#[test]
fn keywords_of_python_are_no_arguments() {
    let text = "fn params() { #{ pass: #{ value: 1.5 }, del: #{ value: 2.0 } } }\n\
        fn advantage(batch, p) { batch.reward * p.pass + p.del }";
    let file = plan(&script(text)).torch().expect("a file");
    for argument in ["pass_: float = 1.5", "del_: float = 2.0"] {
        assert!(file.contains(argument), "{file}");
    }
}

/// The part of a loss that one response has, and why some losses have none.
#[test]
fn one_response() {
    let files = ["ppo_clip", "vespo"].map(|name| (name, load(name, "aggregate=token_sum")));
    let shown = files.map(|(name, recipe)| {
        let file = plan(&recipe).torch_per_response().expect(name);
        let (_, function) = file.split_once("\ndef loss").expect("the function");
        (name, format!("def loss{function}"))
    });
    cases::snapshot("plan", "one_response", shown);
    let refused = [
        ("no_loss", load("grpo", "")),
        ("a_mean", load("ppo_clip", "")),
        (
            "other_responses",
            script(
                "fn loss(batch, p) { (batch.logp * batch.reward.mean(\"group\")).sum(\"batch\") }",
            ),
        ),
        (
            "over_tokens",
            script("fn loss(batch, p) { batch.logp.suffix_sum(0.9).sum(\"batch\") }"),
        ),
    ];
    let told = refused.map(|(name, recipe)| {
        let error = plan(&recipe).torch_per_response().expect_err(name);
        (name, error.render(false))
    });
    cases::snapshot("plan", "one_response_refused", told);
}

/// A key is compared with the name that the script writes, not with the name's code.
#[test]
fn a_key_is_compared_with_names() {
    let text = "fn advantage(batch, p) { let agent = batch.key(\"agent\"); batch.reward * (agent == \"solver\") + (agent != \"judge\") }";
    let said = plan(&script(text)).text();
    for shown in ["agent == \"solver\"", "agent != \"judge\""] {
        assert!(said.contains(shown), "{said}");
    }
}

/// Two groupings of the same responses are two nodes, although the operation and its argument are the same.
#[test]
fn groupings_stay_apart() {
    let text = |by: &str| {
        format!(
            "fn advantage(batch, p) {{ let a = batch.group_by(batch.length).reward.mean(\"group\");\n\
             let b = batch.group_by({by}).reward.mean(\"group\");\n\
             a.expand(\"response\") - b.expand(\"response\") }}"
        )
    };
    let (same, other) = (
        plan(&script(&text("batch.length"))),
        plan(&script(&text("batch.reward"))),
    );
    let means = |plan: &Plan, by: &str| {
        let node = format!("= group_by(reward, {by})");
        plan.text().matches(&node).count()
    };
    let found = [(&same, "length"), (&other, "length"), (&other, "reward")];
    let found = found.map(|(plan, by)| means(plan, by));
    assert_eq!(found, [2, 1, 1], "{}", other.text());
}

#[test]
fn json_has_each_node() {
    let text = "fn params() { #{ low: #{ value: 0.2 }, unused: #{ value: 1.0 } } }\n\
        fn loss(batch, p) { let kl = kl(batch.logp, batch.ref_logp, \"k3\"); max(kl, 1 - p.low).mean(\"batch\") }";
    let plan = plan(&script(text));
    cases::snapshot("plan", "json", [("a loss", format!("{:#}", plan.json()))]);
}

/// The shares of the summands, against sums by hand.
#[test]
fn terms_of_sums() {
    let batch = Batch::builder()
        .groups([0, 0, 1])
        .response("reward", vec![1.0, -1.0, 4.0])
        .response("bonus", vec![0.0, 1.0, -2.0])
        .build()
        .expect("a batch");
    let recipe = script(
        "fn reward(batch, p) { let penalty = 0.5 * batch.bonus; batch.reward - (penalty - 1) }\n\
         fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }",
    );
    let state = recipe.init().expect("a state");
    let found = terms(&recipe, &batch, &state).expect("summands");
    let found: Vec<(String, f64, f64)> = found
        .into_iter()
        .map(|term| {
            let name = format!("{} {}", term.hook.name(), term.name);
            (name, term.std, term.share)
        })
        .collect();
    let std = |values: [f64; 3]| {
        let mean = values.iter().sum::<f64>() / 3.0;
        (values.map(|x| (x - mean).powi(2)).iter().sum::<f64>() / 2.0).sqrt()
    };
    // The shaped reward is 1 + 0 + 1, -1 - 0.5 + 1, 4 + 1 + 1, with the group means 0.75, 0.75 and 6.
    let expected = [
        ("reward reward", std([1.0, -1.0, 4.0]), 6.0 / 10.5),
        ("reward -penalty", std([0.0, -0.5, 1.0]), 1.5 / 10.5),
        ("reward 1", 0.0, 3.0 / 10.5),
        ("advantage shaped_reward", std([2.0, -0.5, 6.0]), 8.5 / 16.0),
        (
            "advantage -shaped_reward.mean(group)",
            std([0.75, 0.75, 6.0]),
            7.5 / 16.0,
        ),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((name, deviation, share), (expected, by_hand, of_all)) in found.iter().zip(expected) {
        assert_eq!(name, expected);
        assert!((deviation - by_hand).abs() < 1e-12, "{name}: {deviation}");
        assert!((share - of_all).abs() < 1e-12, "{name}: {share}");
    }
    let grpo = load("grpo", "");
    let none = terms(&grpo, &batch, &state).expect("no summands");
    assert!(none.is_empty(), "a quotient is no sum");
}

/// Each statement of a hook and of what it imports, with its values.
#[test]
fn steps_are_the_statements() {
    let batch = Batch::builder()
        .groups([0, 0])
        .response("reward", vec![1.0, 0.0])
        .build()
        .expect("a batch");
    let text = "import \"grpo\" as grpo;\nfn params() { grpo::params() }\n\
        fn advantage(batch, p) {\n    let r = batch.reward;\n    let centred = r - r.mean(\"group\");\n    \
        centred += grpo::advantage(batch, p);\n    -centred\n}";
    let steps = steps(&script(text), &batch).expect("steps");
    let found: Vec<(String, String, Vec<f64>)> = steps
        .into_iter()
        .map(|step| (step.line, step.name, step.value.iter().collect()))
        .collect();
    let line = |line: &str| line.split(": ").next().expect("a place").to_string();
    let places: Vec<(String, &str)> = found
        .iter()
        .map(|(at, name, _)| (line(at), &**name))
        .collect();
    let expected = [
        ("line 4", "r"),
        ("line 5", "centred"),
        ("line 6", "centred"),
        ("grpo:16", "r"),
        ("grpo:17", "std"),
        ("line 7", "advantage"),
    ];
    let expected = expected.map(|(place, name)| (place.to_string(), name));
    assert_eq!(places, expected);
    assert_eq!(found[1].2, [0.5, -0.5]);
    assert_eq!(found[4].2, [0.5_f64.sqrt()]);
}

/// Equations, which LaTeX takes if it is there.
#[test]
fn equations() {
    let all = BUILTINS.iter().map(|builtin| {
        let text = plan(&load(builtin.name, "")).latex();
        format!("\\[{text}\\]\n")
    });
    let (folder, body) = (
        tempfile::tempdir().expect("a folder"),
        all.collect::<String>(),
    );
    let document = format!(
        "\\documentclass{{article}}\\usepackage{{amsmath,amssymb}}\\begin{{document}}{body}\\end{{document}}"
    );
    std::fs::write(folder.path().join("plan.tex"), document).expect("a file");
    let latex = std::process::Command::new("pdflatex")
        .args(["-interaction=nonstopmode", "-halt-on-error", "plan.tex"])
        .current_dir(folder.path())
        .output();
    match latex {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        ),
        Err(_) => eprintln!("skipped: there is no pdflatex"),
    }
    let shown = ["grpo", "passk", "grpo_lambda", "gae", "gigpo", "ppo_clip"];
    let shown = shown.map(|name| (name, plan(&load(name, "")).latex()));
    cases::snapshot("plan", "latex", shown);
    // A variable keeps its name, also if it comes after a value without a name.
    let taken = "fn advantage(batch, p) { twice(batch.reward + 1) }\n\
        fn twice(y) { let x = y * y; x / x.mean(\"group\") }";
    let equations = plan(&script(taken)).latex();
    let is_named = |of: &str| equations.contains(of);
    assert!(is_named("x^{(1)}_i &= r_i + 1"), "{equations}");
    assert!(is_named("x_i &= x^{(1)}_i \\, x^{(1)}_i"), "{equations}");
    let compared =
        "fn advantage(batch, p) { batch.reward * (batch.key(\"agent\") == \"5% a_b & #1 {x}\") }";
    let equations = plan(&script(compared)).latex();
    let name = r#"\operatorname{"5\%\ a\_b\ \&\ \#1\ \{x\}"}"#;
    assert!(equations.contains(name), "{equations}");
}

/// The built-ins that are refused are those that docs/torch.md names.
#[test]
fn refused_built_ins_are_those_of_the_page() {
    let page = crate::docs::read("docs/torch.md");
    let start = "These built-ins are refused: ";
    let (_, listed) = page.split_once(start).expect("the list of the page");
    let listed = listed.split("\n\n").next().expect("a paragraph");
    for builtin in BUILTINS {
        let is_refused = plan(&load(builtin.name, "")).torch().is_err();
        let is_listed = listed.contains(&format!("`{}`", builtin.name));
        assert_eq!(is_refused, is_listed, "{}", builtin.name);
    }
}

#[test]
fn a_recipe_is_recognised_at_other_parameters() {
    let grpo = load("grpo", "").text().to_string();
    for (text, expected) in [
        (grpo.replace("value: 1e-6", "value: 1e-4"), "`grpo` with eps=0.0001"),
        (grpo.replace("value: \"sample\"", "value: \"population\""), "`grpo` with std=population"),
        ("fn advantage(batch, p) { let x = batch.reward; x - x.mean(\"group\") }".into(), "`dr_grpo`"),
        // The order of summands does not count.
        (grpo.replace("std + p.eps", "p.eps + std"), "`grpo`"),
        (
            "import \"ppo_clip\" as ppo; fn params() { ppo::params() + #{ clip_high: #{ value: 0.28 } } } fn loss(batch, p) { ppo::loss(batch, p) }".into(),
            "`ppo_clip` with clip_high=0.28",
        ),
    ] {
        let said = plan(&script(&text)).text();
        assert!(said.contains(&format!("This is {expected}.")), "{expected}: {said}");
    }
    let other = "fn advantage(batch, p) { batch.reward - 2 * batch.reward.mean(\"group\") }";
    assert!(plan(&script(other)).kin().is_none());
    // Each has GRPO's formula on this batch, at this step, or from the first state.
    for line in [
        "if r.mean(\"batch\").value() > 9.0 { return r; }",
        "if batch.step > 9 { return r; }",
        "this.n += 1; r *= this.n;",
        "if batch.groups.len() > 1 { r += 0.0; }",
    ] {
        let text = grpo
            .replace(
                "let r = batch.reward;",
                &format!("let r = batch.reward; {line}"),
            )
            .replace("fn params()", "fn init(p) { #{ n: 0 } }\nfn params()");
        let changed = plan(&script(&text));
        assert!(changed.kin().is_none(), "{line}");
        assert!(!changed.is_same(&changed), "{line}");
        assert!(changed.torch().is_err(), "{line}");
        assert!(changed.text().contains("of this batch"), "{line}");
    }
}

/// The lines of `text` that name the script's places, and the names before them.
#[test]
fn operations_are_in_the_order_of_the_script_and_once() {
    let text = "fn reward(batch, p) { let r = batch.reward * 2; r - 1e-9 }\n\
        fn advantage(batch, p) {\n    let late = batch.reward + 1e30;\n    let early = batch.reward - 1;\n    \
        early * late * batch.length.mean(\"group\")\n}\n\
        fn weight(batch, p) { half(batch) * 2 }\n\
        fn half(batch) { batch.length.mean(\"group\") / 2 }";
    let said = plan(&script(text)).text();
    let rows = said.lines().filter(|line| line.starts_with("  "));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let expected = [
        "r",
        "shaped_reward",
        "x1",
        "half",
        "weight",
        "late",
        "early",
        "x2",
        "advantage",
    ];
    assert_eq!(names, expected, "{said}");
    for number in ["1e-9", "1e30"] {
        assert!(said.contains(number), "{number}: {said}");
    }
    // The statement alone, although it is not alone in its line, and once.
    let statement = said.matches("let r = batch.reward * 2").count();
    assert!(statement == 1 && !said.contains("fn "), "{said}");
}

#[test]
fn two_recipes_differ_by_statements() {
    let (a, b) = (
        plan(&load("grpo", "")),
        plan(&load("grpo", "std=population")),
    );
    assert!(!a.is_same(&b) && a.is_same(&plan(&load("grpo", ""))));
    // The order of summands does not count, even if they differ only in numbers.
    let sum = |sum: &str| {
        let text = format!("fn advantage(batch, p) {{ let x = batch.reward; {sum} }}");
        plan(&script(&text))
    };
    let sums = ["x * 2 + x * 3", "x * 3 + x * 2", "x * 2 + x * 4"].map(sum);
    assert!(sums[0].is_same(&sums[1]) && !sums[0].is_same(&sums[2]));
    let difference = a.difference(&b);
    let lines: Vec<&str> = difference
        .lines()
        .filter(|line| !line.starts_with(' '))
        .collect();
    assert_eq!(
        lines,
        [
            "- std = reward.std(group)",
            "+ std = reward.population_std(group)"
        ]
    );
}

/// Groups have their function and keys in the formula, so recipes that differ only there have different statements.
#[test]
fn the_keys_of_groups_are_arguments() {
    let own = |groups: &str, of: &str| {
        let text = format!(
            "fn advantage(batch, p) {{ let turns = batch.with(#{{ late: batch.turn > 1 }});\n\
             let by = {groups};\nbatch.reward - by.{of} }}"
        );
        plan(&script(&text))
    };
    let cases = [
        ("batch.regroup(batch.length)", "regroup(reward, length)"),
        ("batch.group_by(batch.length)", "group_by(reward, length)"),
        (
            "batch.group_by(batch.length / 2)",
            "group_by(reward, length / 2)",
        ),
        // A key of columns, which may be texts.
        (
            "batch.regroup(batch.key(\"agent\"))",
            "regroup(reward, agent)",
        ),
        (
            "batch.regroup(batch.key(\"agent\", \"turn\"))",
            "regroup(reward, agent, turn)",
        ),
        (
            "turns.regroup(turns.key(\"agent\", \"late\"))",
            "regroup(reward, agent, turn > 1)",
        ),
        // If several calls made the groups, all their keys are arguments, except keys that `group_by` ignores.
        (
            "batch.regroup(batch.turn).regroup(batch.length)",
            "regroup(reward, turn, length)",
        ),
        (
            "batch.group_by(batch.turn).regroup(batch.length)",
            "group_by(reward, turn, length)",
        ),
        (
            "batch.regroup(batch.turn).group_by(batch.step_reward)",
            "group_by(reward, step_reward)",
        ),
        (
            "batch.regroup(batch.turn).with(#{ reward: batch.step_reward })",
            "regroup(step_reward, turn)",
        ),
        // A column from other groups: the next mean is over the groups of the batch.
        (
            "batch.with(#{ reward: batch.regroup(batch.turn).reward.mean(\"group\") })",
            "group_by(regroup(reward, turn).mean(group), group)",
        ),
    ];
    for (groups, mean) in cases {
        let plan = own(groups, "reward.mean(\"group\")");
        let expected = format!("  advantage = reward - {mean}.mean(group)\n");
        assert_eq!(plan.difference(&plan), expected, "{groups}");
    }
    for of in [
        "reward.mean(\"group\")",
        "reward.count(\"group\")",
        "reward.mean(\"group\").count(\"batch\")",
    ] {
        let plans = cases.map(|(groups, _)| own(groups, of));
        for (index, a) in plans.iter().enumerate() {
            for b in &plans[index + 1..] {
                let difference = a.difference(b);
                assert!(difference.contains("\n+ advantage = "), "{difference}");
                assert!(!a.is_same(b) && a.latex() != b.latex());
            }
        }
    }
}

#[test]
fn what_another_batch_would_compute_otherwise_is_refused() {
    let bodies = [
        (
            "a branch on a value",
            "let r = batch.reward;\n    if r.mean(\"batch\").value() > 0.5 { r } else { -r }",
        ),
        (
            "a branch on a comparison",
            "let r = batch.reward;\n    if r.mean(\"batch\") > 0.5 { r } else { -r }",
        ),
        (
            "values in an array",
            "let x = batch.reward.values();\n    batch.reward * x.len()",
        ),
        (
            "groups that look",
            "batch.map_groups(|g| if g.reward.sum(\"batch\").value() > 1.0 { g.reward } else { -g.reward })",
        ),
        (
            "groups that report",
            "batch.map_groups(|g| { metric(\"m\", 1); g.reward - g.reward.mean(\"batch\") })",
        ),
        (
            "a loop over groups",
            "let n = 0;\n    for g in batch.groups { n += 1; }\n    batch.reward * n",
        ),
        (
            "a memory",
            "running(\"mean\", batch.key(\"group\"), 0, 0.5, batch.reward)",
        ),
        (
            "other groups",
            "batch.group_by(batch.length).reward.mean(\"group\").expand(\"response\") * batch.reward",
        ),
        ("the step", "batch.reward * batch.step"),
        (
            "a position",
            "batch.old_logp.std(\"position\").expand(\"token\")",
        ),
    ];
    let told = bodies.map(|(name, body)| {
        let recipe = script(&format!("fn advantage(batch, p) {{\n    {body}\n}}\n"));
        let error = plan(&recipe).torch().expect_err(name);
        (name, error.render(false))
    });
    cases::snapshot("plan", "refused", told);
}

/// A function that looks at no value is one call for all groups.
#[test]
fn groups_in_one_call_are_exported() {
    let recipe = script(
        "fn advantage(batch, p) { batch.map_groups(|g| g.reward - g.reward.mean(\"batch\")) }",
    );
    assert!(plan(&recipe).is_same(&plan(&load("dr_grpo", ""))));
    assert!(plan(&recipe).torch().is_ok());
}

#[test]
fn a_plan_keeps_no_memory_of_its_batch() {
    let recipe = load("gae", "");
    let example = Batch::example();
    let rewards = example.response_column("reward").unwrap();
    let rewards: Arc<[f64]> = rewards.to_vec().into();
    let is_kept = Arc::downgrade(&rewards);
    let batch = Batch::builder()
        .groups([0, 0, 0, 1, 1])
        .lengths([2, 3, 1, 2, 1]);
    let batch = batch.response("reward", Buffer::new(rewards));
    let batch = batch.token("value", vec![0.5; 9]).build().unwrap();
    let plan = Plan::of(&recipe, Some(&batch), false).unwrap();
    recipe.observe(&batch, &mut |_, _| {});
    drop((plan, batch));
    assert!(is_kept.upgrade().is_none());
}
