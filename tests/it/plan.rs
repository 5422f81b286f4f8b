//! Plans: the derivation and the file of PyTorch of some built-ins, kin among recipes, and what cannot be exported. That a file
//! gives the recipe's numbers is tested where torch is: `python/tests/test_plan.py`.

use advlab::plan::Plan;
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
    let shown = ["grpo", "reinforce_pp", "pacs"];
    let shown = shown.map(|name| (name, plan(&load(name, "")).torch().expect("a file")));
    cases::snapshot("plan", "torch", shown);
}

/// Equations, which LaTeX takes if it is there.
#[test]
fn equations() {
    let shown = ["grpo", "passk", "ppo_clip"].map(|name| (name, plan(&load(name, "")).latex()));
    let folder = tempfile::tempdir().expect("a folder");
    let body: String = shown
        .iter()
        .map(|(_, text)| format!("\\[{text}\\]\n"))
        .collect();
    let document = format!(
        "\\documentclass{{article}}\\usepackage{{amsmath}}\\begin{{document}}{body}\\end{{document}}"
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
    cases::snapshot("plan", "latex", shown);
}

/// The built-ins that are refused are those that docs/torch.md names.
#[test]
fn refused_built_ins_are_those_of_the_page() {
    let page = crate::docs::read("docs/torch.md");
    let start = "Of the built-ins, these are ";
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

#[test]
fn two_recipes_differ_by_statements() {
    let (a, b) = (
        plan(&load("grpo", "")),
        plan(&load("grpo", "std=population")),
    );
    assert!(!a.is_same(&b) && a.is_same(&plan(&load("grpo", ""))));
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
