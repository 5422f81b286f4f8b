//! What designs optimise: exact objectives, their limits for large groups, and the updates of whole policies.

use advlab::paint::Paint;
use advlab::{Batch, Host, Recipe};
use advlab_cli::report::study::{Curve, KnownObjective, Objective, Update, mass, objectives};
use advlab_train::random::{Purpose, RandomStream, StreamKey};
use serde_json::Value;

use super::cases::{cases, numbers, recipe, script};

/// The recipe of a design of the golden cases.
fn design(name: &str) -> Recipe {
    let k = name.trim_end_matches("_unnorm");
    let k = k.trim_start_matches(|c: char| !c.is_ascii_digit());
    let with_k = |of: &str| recipe(of, &format!("k={k}"));
    match name {
        "grpo_pop" => recipe("grpo", "std=population eps=0"),
        "grpo_sample" => recipe("grpo", "eps=0"),
        "pacs_rloo_psi0" => recipe("pacs", "weight_mode=none"),
        "pacs_rloo_balanced_psi0" => recipe("pacs", "weight_mode=question"),
        "reinforce01" => script("fn advantage(batch, p) { batch.reward }"),
        name if name.ends_with("_unnorm") => script(&format!(
            "fn params() {{ #{{ k: #{{ value: {k} }} }} }}
fn advantage(batch, p) {{
    let right = batch.correct;
    let n = right.count(\"group\");
    let wrong = n - right.sum(\"group\");
    binomial_ratio(wrong, n, p.k) - where(right, 0, binomial_ratio(wrong - 1, n - 1, p.k - 1))
}}"
        )),
        name if name.starts_with("passk") => with_k("passk"),
        name if name.starts_with("exceeding") => with_k("passk_exceeding"),
        name if name.starts_with("combination") => with_k("passk_combination"),
        name => recipe(name, ""),
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
                    let (slope, value) = (objective.slope(p).0, objective.value(p).0);
                    close(slope, slopes[index], &format!("{name}, F' at {p}"));
                    close(value, values[index], &format!("{name}, F at {p}"));
                }
            }
            Some("implied_objective_limit") => limits(&case),
            Some("expected_update_enumeration") => {
                let slope = objective(&case).slope(expected["p"].as_f64().expect("p")).0;
                let along = numbers(&expected["grad_p"]).into_iter();
                for (along, update) in along.zip(numbers(&expected["expected_update"])) {
                    close(slope * along, update, name);
                }
            }
            Some("eta_curve") => {
                let recipe = design(case["params"]["design"].as_str().expect("a design"));
                let curve = Curve::of(&recipe, &advlab_cli::prompt::builtin(), 32);
                let (points, eta) = (curve.expect("a curve").points, numbers(&expected["eta"]));
                assert_eq!(points.len(), eta.len());
                for (point, eta) in points.iter().zip(eta) {
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
        ("grpo", KnownObjective::Arcsine(1)),
        ("passk2", KnownObjective::Arcsine(2)),
        ("passk4", KnownObjective::Arcsine(4)),
        ("passk8", KnownObjective::Arcsine(8)),
        ("pacs_balanced", KnownObjective::Logit),
        ("maxrl", KnownObjective::Log),
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
        ("remax", "columns that only real rollouts have"),
    ] {
        let refused = Objective::of(&recipe(name, ""), None, 8).expect_err(name);
        let text = refused.render(false);
        assert!(text.contains(why) && text.contains("--input"), "{text}");
    }
    let noisy = "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"batch\") + batch.random(\"response\") }";
    let scaled = "fn advantage(batch, p) { let a = batch.reward - batch.reward.mean(\"group\"); a * (1 + batch.random(\"group\")) / (a.std(\"batch\") + 0.1) }";
    for (text, size) in [(noisy, 8), (scaled, 2), (scaled, 3), (scaled, 8)] {
        let refused =
            Objective::of(&script(text), None, size).expect_err("random and of the batch");
        assert!(refused[0].message.contains("the other groups"), "{refused}");
    }
    let drawn = Objective::of(&recipe("grpo_lambda", ""), Some(&rollouts), 8).expect("rollouts");
    let (slope, error) = drawn.slope(0.5);
    let is_near = error > 0.0 && error < slope.abs();
    assert!(!drawn.is_exact() && is_near, "{slope} {error}");
    let says = |of: &Objective, words| of.notes.iter().any(|note| note.contains(words));
    assert!(says(&drawn, "64 batches"), "{:?}", drawn.notes);
    // A loss is seen through the advantage whose objective is the reward: at logp = old_logp clipping does nothing.
    let clip = Objective::of(&recipe("ppo_clip", ""), None, 8).expect("a loss");
    for p in [0.1, 0.5, 0.9] {
        close(clip.slope(p).0, 1.0, "ppo_clip");
    }
    assert!(says(&clip, "rloo"), "{:?}", clip.notes);
    // Draws of k depend on the order: their mean over orders has the analytic objective. Chance is no other group.
    for name in ["passk_full_sampling", "passk_bootstrap"] {
        let sampled = Objective::of(&recipe(name, ""), None, 8).expect("an estimate");
        assert!(!sampled.is_exact(), "{name}");
    }
    let exact = Objective::of(&recipe("rloo", ""), None, 8).expect("exact");
    let (known, off) = exact.nearest()[0];
    assert!(known == KnownObjective::Reward && off < 1e-9, "{off}");
}

/// The text of the report on objectives in groups of 8.
fn text_of(recipes: &[Recipe], noise: Option<f64>) -> String {
    let report = objectives::report(recipes, None, Some(8), noise, Paint::PLAIN);
    report.expect("a report").text
}

/// What teaches the opposite has its sign, and nothing is nearest; of groups of two p = 1/2 says nothing; a recipe's own
/// error stays what it is.
#[test]
fn nothing_is_nearest_to_the_opposite() {
    let recipe = |body: &str| script(&format!("fn advantage(batch, p) {{ {body} }}"));
    let of = |body: &str, size| Objective::of(&recipe(body), None, size);
    let against = of("-batch.reward", 8).expect("exact");
    assert!(against.nearest().is_empty() && against.slope(0.5).0 < 0.0);
    let table = text_of(&[recipe("-batch.reward")], None);
    assert!(
        table.contains(" -1.00") && table.contains("F' is below 0"),
        "{table}"
    );
    let two = of("batch.reward", 2).expect("exact");
    assert!(two.nearest().is_empty(), "{:?}", two.nearest());
    let error = of("throw \"no such thing\"", 8).expect_err("it throws");
    let text = error.render(false);
    assert!(
        text.contains("no such thing") && !text.contains("rollouts alone"),
        "{text}"
    );
}

/// A weight that a loss has seen is not counted again.
#[test]
fn the_weight_of_a_loss_counts_once() {
    let once = script(
        "fn weight(batch, p) { where(batch.correct == 1, 3, 1) }
fn loss(batch, p) { (-batch.logp * batch.reward * batch.weight).mean(\"batch\") }",
    );
    let plain = script("fn loss(batch, p) { (-batch.logp * batch.reward).mean(\"batch\") }");
    let slope = |recipe: &Recipe| Objective::of(recipe, None, 8).expect("exact").slope(0.5).0;
    close(slope(&once) / slope(&plain), 3.0, "the weight");
}

/// Designs whose noise is simulated.
const NOISY: [&str; 12] = [
    "rloo",
    "dr_grpo",
    "grpo",
    "grpo_loo",
    "passk",
    "pkpo",
    "maxrl",
    "pacs",
    "grpo_passk",
    "passk_exceeding",
    "asymre",
    "w_reinforce",
];

/// Updates of simulated groups: the recipe's own advantages, times scores that are drawn as `docs/objectives.md` says.
fn simulated(
    recipe: &Recipe,
    (size, p, correlation): (usize, f64, f64),
    groups: usize,
    stream: &mut RandomStream,
) -> (Vec<f64>, usize) {
    let (mut updates, mut silent) = (Vec::with_capacity(groups), 0);
    while updates.len() < groups {
        let responses = size * (groups - updates.len()).min(20_000);
        let labels = (0..responses).map(|_| f64::from(u8::from(stream.uniform() < p)));
        let labels: Vec<f64> = labels.collect();
        let logp = vec![[-0.5]; responses];
        let batch = Batch::builder()
            .groups((0..responses).map(|response| (response / size) as i64))
            .lengths(vec![1; responses])
            .response("reward", labels.clone())
            .ragged("old_logp", &logp)
            .ragged("logp", &logp)
            .build();
        let batch = batch.expect("a batch");
        let mut state = recipe.init().expect("a state");
        let outcome = recipe.advantage(&batch, &mut state).expect("an advantage");
        let advantage = outcome.advantage.by_response();
        for (labels, advantage) in labels.chunks(size).zip(advantage.chunks(size)) {
            let mut score = |right: f64| {
                let other = (2.0 * stream.uniform() - 1.0) * 3f64.sqrt();
                let label = (right - p) / (p * (1.0 - p)).sqrt();
                correlation * label + (1.0 - correlation * correlation).sqrt() * other
            };
            let products = labels
                .iter()
                .zip(advantage)
                .map(|(right, a)| a * score(*right));
            updates.push(products.sum::<f64>() / size as f64);
            silent += usize::from(advantage.iter().all(|a| a.abs() < 1e-9));
        }
    }
    (updates, silent)
}

/// Compares mean, variance and the share of silent groups with those of simulated groups: each within five standard errors, which
/// are estimated from the groups too. So in no setting a design gets its variance from groups that are rarer than 1 in 100.
fn noise_is_that_of_simulated_groups(groups: usize) {
    let mut stream = StreamKey::new(7, Purpose::Estimates, 0).stream(1);
    println!(
        "design, N, p, correlation: mean, simulated +- error; variance; groups without signal"
    );
    for name in NOISY {
        let recipe = recipe(name, "");
        for setting in [(8, 0.1, 0.1), (8, 0.4, 0.6), (6, 0.75, 0.3)] {
            let (size, p, correlation) = setting;
            let objective = Objective::of(&recipe, None, size).expect(name);
            assert!(objective.is_exact(), "{name}: {:?}", objective.notes);
            let exact = objective.update(p, correlation);
            let (updates, silent) = simulated(&recipe, setting, groups, &mut stream);
            let number = updates.len() as f64;
            let mean = updates.iter().sum::<f64>() / number;
            let moment =
                |power| updates.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / number;
            let (variance, fourth) = (moment(2), moment(4));
            let errors = [
                (variance / number).sqrt(),
                ((fourth - variance * variance) / number).sqrt(),
                (exact.silent * (1.0 - exact.silent) / number).sqrt(),
            ];
            let pairs = [
                (exact.mean, mean),
                (exact.variance, variance),
                (exact.silent, silent as f64 / number),
            ];
            let mut line = format!("{name}, {size}, {p}, {correlation}:");
            for ((exact, found), error) in pairs.into_iter().zip(errors) {
                line += &format!(" {exact:.6}, {found:.6} +- {error:.6};");
                assert!((exact - found).abs() <= 5.0 * error + 1e-12, "{line}");
            }
            println!("{line}");
        }
    }
}

#[test]
fn noise_is_that_of_a_few_simulated_groups() {
    noise_is_that_of_simulated_groups(5_000);
}

/// `cargo test --release --features full --test it -- --ignored --nocapture million`
#[test]
#[ignore = "takes minutes"]
fn noise_is_that_of_a_million_simulated_groups() {
    noise_is_that_of_simulated_groups(1_000_000);
}

/// No design beats the best baseline where correctness explains little of the scores; leave-one-out costs one response.
#[test]
fn the_best_baseline_is_the_bound() {
    for name in NOISY {
        let objective = Objective::of(&recipe(name, ""), None, 8).expect(name);
        for p in [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98] {
            let ratio = objective.update(p, 1e-6).ratio() / Update::best(8, p, 1e-6).ratio();
            assert!(ratio <= 1.0 + 1e-9, "{name} at {p}: {ratio}");
            if ["rloo", "dr_grpo"].contains(&name) {
                close(ratio, (7f64 / 8.0).sqrt(), name);
            }
        }
    }
    // The baseline p itself reaches it.
    let best = script("fn advantage(batch, p) { batch.reward - 0.3 }");
    let best = Objective::of(&best, None, 8)
        .expect("exact")
        .update(0.3, 1e-6);
    close(
        best.ratio() / Update::best(8, 0.3, 1e-6).ratio(),
        1.0,
        "the best",
    );
}

/// The page's section, the rows of its tables, and the lines of its blocks of text that begin with blanks.
fn section(page: &str, title: &str) -> (Vec<Vec<String>>, Vec<String>) {
    let (_, text) = page.split_once(title).expect("the section");
    let text = text.split("\n## ").next().unwrap_or_default();
    let lines = || text.lines();
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_string())
            .collect()
    };
    let rows = lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(cells);
    let shown = lines().filter(|line| {
        line.starts_with("  ") && line.ends_with(|c: char| c.is_ascii_digit() || c == '%')
    });
    (rows.collect(), shown.map(String::from).collect())
}

/// Each row of the page on objectives is what the commands compute.
#[test]
fn the_page_says_what_is_computed() {
    let read = |path: &str| std::fs::read_to_string(std::path::Path::new(crate::ROOT).join(path));
    let page = read("docs/objectives.md").expect("the page");
    let (rows, _) = section(&page, "# Which advantage optimises what");
    assert_eq!(rows.len(), 12);
    for cells in rows {
        let size = cells[1].parse().expect("N");
        let objective = Objective::of(&recipe(&cells[0], ""), None, size).expect("exact");
        let scale = objective.scale(None);
        let nearest = objective.nearest();
        let off =
            |of: Option<&(KnownObjective, f64)>| format!("{:.1} %", 100.0 * of.expect("known").1);
        let reward = nearest
            .iter()
            .find(|(known, _)| *known == KnownObjective::Reward);
        let slope = |p| format!("{:.2}", objective.slope(p).0 / scale);
        let slopes = [0.1, 0.5, 0.9].map(slope);
        let name = nearest[0].0.name().to_string();
        let known = [name, off(nearest.first()), off(reward)];
        let expected = [slopes, known].concat();
        assert_eq!(cells[2..], expected);
    }
    let of = |name: &&str| Objective::of(&recipe(name, ""), None, 8).expect("exact");
    let four = ["grpo", "dr_grpo", "passk", "maxrl"];
    let (rows, shown) = section(&page, "\n## Noise");
    let text = text_of(&four.map(|name| recipe(name, "")), Some(0.1));
    assert!(shown.len() == 15 && rows.len() == NOISY.len(), "{shown:?}");
    for line in shown {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    for (cells, name) in rows.iter().zip(NOISY) {
        let update = of(&name).update(0.1, 0.1);
        let exact = [update.mean, update.variance].map(|number| format!("{number:.6}"));
        let silent = format!("{:.2} %", 100.0 * update.silent);
        assert_eq!(
            [&*cells[0], &cells[1], &cells[3], &cells[5]],
            [name, &exact[0], &exact[1], &silent]
        );
    }
    let rollouts = std::path::Path::new(crate::ROOT).join("examples/rollouts.jsonl");
    let batch = advlab::files::read(&rollouts, &Default::default())
        .expect("rollouts")
        .batch;
    let recipes = four.map(|name| recipe(name, ""));
    let loss = Host::new().loss().expect("the default loss");
    let report = mass::report(&recipes, &loss, &batch, None, Paint::PLAIN).expect("a report");
    let (_, shown) = section(&page, "\n## Your own batch");
    assert_eq!(shown.len(), 15);
    for line in shown {
        assert!(report.text.contains(&line), "{line}\n{}", report.text);
    }
}
