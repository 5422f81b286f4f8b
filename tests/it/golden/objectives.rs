//! What designs optimise: exact objectives, their limits for large groups, and the updates of whole policies.

use advlab::Recipe;
use advlab::script::{Host, Setting};
use advlab_cli::report::study::{Curve, Known, Objective};
use serde_json::Value;

use super::cases::{cases, numbers, recipe};

/// The recipe of a design of the golden cases.
fn design(name: &str) -> Recipe {
    let text = |text: &str| Setting::Text(text.to_string());
    let zero = ("eps", Setting::Number(0.0));
    let pacs = |weight| recipe("pacs", &[("weight_mode", text(weight))]);
    let k = name
        .trim_end_matches("_unnorm")
        .trim_start_matches(|c: char| !c.is_ascii_digit());
    let with_k = |of: &str| recipe(of, &[("k", Setting::Whole(k.parse().expect("k")))]);
    match name {
        "grpo_pop" => recipe("grpo", &[("std", text("population")), zero]),
        "grpo_sample" => recipe("grpo", &[zero]),
        "pacs_rloo_psi0" => pacs("none"),
        "pacs_rloo_balanced_psi0" => pacs("question"),
        "reinforce01" => Host::new()
            .compile("01", "fn advantage(batch, p) { batch.reward }")
            .expect("a recipe"),
        name if name.ends_with("_unnorm") => {
            let script = "fn params() { #{ k: 2 } }
fn advantage(batch, p) {
    let right = batch.correct;
    let n = right.count(\"group\");
    let wrong = n - right.sum(\"group\");
    binomial_ratio(wrong, n, p.k) - where(right, 0, binomial_ratio(wrong - 1, n - 1, p.k - 1))
}";
            let script = script.replace("k: 2", &format!("k: #{{ value: {k} }}"));
            Host::new().compile("unnorm", &script).expect("a recipe")
        }
        name if name.starts_with("passk") => with_k("passk"),
        name if name.starts_with("exceeding") => with_k("passk_exceeding"),
        name if name.starts_with("combination") => with_k("passk_combination"),
        name => recipe(name, &[]),
    }
}

fn close(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        "{what}: {found} {expected}"
    );
}

fn objective(case: &Value) -> Objective {
    let name = case["params"]["design"].as_str().expect("a design");
    let size = case["params"]["N"].as_u64().expect("N") as usize;
    let objective = Objective::of(&design(name), None, size);
    let objective = objective.unwrap_or_else(|error| panic!("{name}: {}", error.render(false)));
    assert!(objective.is_exact(), "{name}: {:?}", objective.notes);
    objective
}

#[test]
fn objectives_are_those_of_the_golden_cases() {
    let mut ran = 0;
    for case in cases("objectives.json") {
        let (name, expected) = (case["name"].as_str().expect("a name"), &case["expected"]);
        match case["method"].as_str() {
            Some("implied_objective") => {
                let objective = objective(&case);
                let (slopes, values) = (numbers(&expected["F_prime"]), numbers(&expected["F"]));
                for (index, p) in numbers(&case["inputs"]["p"]).into_iter().enumerate() {
                    close(
                        objective.slope(p).0,
                        slopes[index],
                        &format!("{name}, F' at {p}"),
                    );
                    close(
                        objective.value(p).0,
                        values[index],
                        &format!("{name}, F at {p}"),
                    );
                }
            }
            Some("implied_objective_limit") => limits(&case),
            Some("expected_update_enumeration") => {
                let p = expected["p"].as_f64().expect("p");
                let objective = objective(&case);
                let slope = objective.slope(p).0;
                let (along, update) = (
                    numbers(&expected["grad_p"]),
                    numbers(&expected["expected_update"]),
                );
                for (along, update) in along.iter().zip(update) {
                    close(slope * along, update, name);
                }
            }
            Some("eta_curve") => {
                let recipe = design(case["params"]["design"].as_str().expect("a design"));
                let curve =
                    Curve::of(&recipe, &advlab_cli::prompt::builtin(), 32).expect("a curve");
                let eta = numbers(&expected["eta"]);
                assert_eq!(curve.points.len(), eta.len());
                for (point, eta) in curve.points.iter().zip(eta) {
                    close(point.total, eta, name);
                }
            }
            method => panic!("{name}: {method:?}"),
        }
        ran += 1;
    }
    assert!(ran >= 22, "{ran} cases ran");
}

/// The known objectives are the limits of large groups.
fn limits(case: &Value) {
    let known = [
        ("grpo", Known::Arcsine(1)),
        ("passk2", Known::Arcsine(2)),
        ("passk4", Known::Arcsine(4)),
        ("passk8", Known::Arcsine(8)),
        ("pacs_balanced", Known::Logit),
        ("maxrl", Known::Log),
    ];
    for (name, known) in known {
        let slopes = numbers(&case["expected"][name]);
        for (p, slope) in numbers(&case["inputs"]["p"]).into_iter().zip(slopes) {
            close(known.slope(p), slope, &format!("{name} at {p}"));
        }
    }
}

/// What depends on more than how many are right is drawn from rollouts, or refused with the reason.
#[test]
fn what_is_no_function_of_p_is_estimated_or_refused() {
    let rollouts = advlab_cli::prompt::builtin();
    for (name, why) in [
        ("reinforce_pp", "the other groups of the batch"),
        ("grpo_lambda", "the other groups of the batch"),
        ("gspo", "such as its tokens"),
        ("remax", "columns that only rollouts have"),
    ] {
        let refused = Objective::of(&recipe(name, &[]), None, 8).expect_err(name);
        let text = refused.render(false);
        assert!(text.contains(why) && text.contains("--input"), "{text}");
    }
    let drawn = Objective::of(&recipe("grpo_lambda", &[]), Some(&rollouts), 8).expect("rollouts");
    let (slope, error) = drawn.slope(0.5);
    assert!(
        !drawn.is_exact() && error > 0.0 && error < slope.abs(),
        "{slope} {error}"
    );
    assert!(
        drawn.notes.iter().any(|note| note.contains("64 batches")),
        "{:?}",
        drawn.notes
    );

    // A loss is seen through the advantage whose objective is the reward: at logp = old_logp clipping does nothing.
    let clip = Objective::of(&recipe("ppo_clip", &[]), None, 8).expect("a loss");
    for p in [0.1, 0.5, 0.9] {
        close(clip.slope(p).0, 1.0, "ppo_clip");
    }
    assert!(
        clip.notes.iter().any(|note| note.contains("rloo")),
        "{:?}",
        clip.notes
    );
    // Draws of k depend on the order: their mean over orders has the analytic objective.
    let sampled = Objective::of(&recipe("passk_full_sampling", &[]), None, 8).expect("an estimate");
    assert!(!sampled.is_exact());
    let nearest = Objective::of(&recipe("rloo", &[]), None, 8)
        .expect("exact")
        .nearest();
    assert!(
        nearest[0].0 == Known::Reward && nearest[0].1 < 1e-9,
        "{nearest:?}"
    );
}

/// What teaches the opposite has its sign, and nothing is nearest; of groups of two p = 1/2 says nothing; a recipe's own
/// error stays what it is.
#[test]
fn nothing_is_nearest_to_the_opposite() {
    let of = |body: &str, size| {
        let script = format!("fn advantage(batch, p) {{ {body} }}");
        let recipe = Host::new().compile("own", &script).expect("a recipe");
        Objective::of(&recipe, None, size)
    };
    let against = of("-batch.reward", 8).expect("exact");
    assert!(against.nearest().is_empty() && against.slope(0.5).0 < 0.0);
    let table =
        advlab_cli::report::study::objectives::table(&[against], advlab::paint::Paint::PLAIN);
    assert!(
        table.contains(" -1.00") && table.contains("F' is below 0"),
        "{table}"
    );
    let two = of("batch.reward", 2).expect("exact");
    assert!(two.nearest().is_empty(), "{:?}", two.nearest());
    let text = of("throw \"no such thing\"", 8)
        .expect_err("it throws")
        .render(false);
    assert!(
        text.contains("no such thing") && !text.contains("rollouts alone"),
        "{text}"
    );
}

/// A weight that a loss has seen is not counted again.
#[test]
fn the_weight_of_a_loss_counts_once() {
    let text = "fn weight(batch, p) { where(batch.correct == 1, 3, 1) }
fn loss(batch, p) { (-batch.logp * batch.reward * batch.weight).mean(\"batch\") }";
    let once = Host::new().compile("once", text).expect("a recipe");
    let plain = text.replace(
        "fn weight(batch, p) { where(batch.correct == 1, 3, 1) }",
        "",
    );
    let plain = plain.replace(" * batch.weight", "");
    let plain = Host::new().compile("plain", &plain).expect("a recipe");
    let slope = |recipe: &Recipe| Objective::of(recipe, None, 8).expect("exact").slope(0.5).0;
    close(slope(&once) / slope(&plain), 3.0, "the weight");
}

/// Each row of the page on objectives is what the command computes.
#[test]
fn the_page_says_what_is_computed() {
    let path = std::path::Path::new(crate::ROOT).join("docs/objectives.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let mut ran = 0;
    for line in page.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let size = cells[1].parse().expect("N");
        let objective = Objective::of(&recipe(cells[0], &[]), None, size).expect("exact");
        let scale = objective.scale(None);
        let nearest = objective.nearest();
        let off = |of: Option<&(Known, f64)>| format!("{:.1} %", 100.0 * of.expect("known").1);
        let reward = nearest.iter().find(|(known, _)| *known == Known::Reward);
        let slope = |p| format!("{:.2}", objective.slope(p).0 / scale);
        let expected = [
            slope(0.1),
            slope(0.5),
            slope(0.9),
            nearest[0].0.name(),
            off(nearest.first()),
            off(reward),
        ];
        assert_eq!(cells[2..], expected, "{line}");
        ran += 1;
    }
    assert_eq!(ran, 12);
}
