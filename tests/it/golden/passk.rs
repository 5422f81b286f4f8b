//! Pass@k training, and the estimator of pass@k.

use advlab::batch::Batch;
use advlab::script::{Host, Setting};

use super::cases::{advantage, cases, close, ids, number, numbers, outcome_batch, recipe};

#[test]
fn passk_analytic() {
    let mut ran = 0;
    for case in cases("passk.json") {
        if case["method"] != "passk_analytic" {
            continue;
        }
        let name = case["name"].as_str().unwrap_or("");
        let k = case["params"]["k"].as_i64().expect("k");
        let recipe = recipe("passk", &[("k", Setting::Whole(k))]);
        let batch = outcome_batch(&case["inputs"]);
        if case["expected"].get("error").is_some() {
            let error = recipe
                .advantage(&batch, &mut recipe.init().expect("no state"))
                .unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("group 0 (4 responses)") && text.contains("k = 5"),
                "{text}"
            );
        } else {
            close(
                &advantage(&recipe, &batch),
                &numbers(&case["expected"]["advantages"]),
                name,
            );
        }
        ran += 1;
    }
    assert!(ran >= 3, "{ran} cases ran");
}

/// The advantage of right and wrong responses over the number of right ones, from a batch with a group for each number.
#[test]
fn passk_curves() {
    for case in cases("passk.json") {
        if case["method"] != "passk_analytic_curve" {
            continue;
        }
        let (k, n) = (
            case["params"]["k"].as_i64().expect("k"),
            case["params"]["N"].as_u64().expect("N") as usize,
        );
        let recipe = recipe("passk", &[("k", Setting::Whole(k))]);
        let pairs: Vec<(usize, usize)> =
            (0..=n).flat_map(|c| (0..n).map(move |i| (c, i))).collect();
        let batch = Batch::builder()
            .groups(pairs.iter().map(|&(c, _)| c as i64))
            .response(
                "reward",
                pairs
                    .iter()
                    .map(|&(c, i)| if i < c { 1.0 } else { 0.0 })
                    .collect::<Vec<f64>>(),
            )
            .build()
            .expect("a batch");
        let got = advantage(&recipe, &batch);
        for (key, first, last) in [("A_pos", 1, n), ("A_neg", 0, n - 1)] {
            let expected = case["expected"][key]
                .as_array()
                .unwrap_or_else(|| panic!("{key} in {}", case["expected"]));
            for c in first..=last {
                let Some(expected) = expected[c].as_f64() else {
                    continue;
                };
                let place = if key == "A_pos" { c * n } else { c * n + n - 1 };
                close(&[got[place]], &[expected], &format!("{key} k={k} c={c}"));
            }
        }
    }
}

/// The other ways to draw and to weigh of the paper.
#[test]
fn passk_variants() {
    let mut ran = 0;
    for case in cases("passk.json") {
        let method = case["method"].as_str().expect("a method");
        let inputs = &case["inputs"];
        let (name, batch) = match method {
            "passk_full_sampling" | "passk_exceeding" | "passk_combination" => {
                (method, outcome_batch(inputs))
            }
            "passk_adaptive_entropy" => {
                let entropy = numbers(&inputs["response_entropy"]);
                let batch = Batch::builder()
                    .groups(ids(&inputs["groups"]))
                    .response("reward", numbers(&inputs["rewards"]))
                    .ragged("entropy", entropy.iter().map(|&entropy| [entropy]));
                ("passk_by_entropy", batch.build().expect("a batch"))
            }
            _ => continue,
        };
        let mut settings = vec![(
            "k",
            Setting::Whole(case["params"]["k"].as_i64().expect("k")),
        )];
        if let Some(share) = case["params"].get("high_fraction") {
            settings.push(("high_fraction", number(share)));
        }
        close(
            &advantage(&recipe(name, &settings), &batch),
            &numbers(&case["expected"]["advantages"]),
            case["name"].as_str().unwrap_or(""),
        );
        ran += 1;
    }
    assert!(ran >= 7, "{ran} cases ran");
}

/// The sum over given draws; over all subsets, its mean is the analytic advantage.
#[test]
fn passk_of_draws() {
    let mut ran = 0;
    for case in cases("passk.json") {
        if case["method"] != "passk_bootstrap" {
            continue;
        }
        let rewards = numbers(&case["inputs"]["rewards"]);
        let size = rewards.len();
        let k = case["params"]["k"].as_u64().expect("k") as usize;
        let subsets: Vec<Vec<i64>> = match case["inputs"]["subsets"].as_array() {
            Some(subsets) => subsets.iter().map(ids).collect(),
            None => (0..1i64 << size)
                .filter(|bits| bits.count_ones() as usize == k)
                .map(|bits| (0..size as i64).filter(|i| bits >> i & 1 == 1).collect())
                .collect(),
        };
        let mut batch = Batch::builder()
            .groups(vec![0; size])
            .response("reward", rewards);
        for (draw, subset) in subsets.iter().enumerate() {
            let is_drawn = |i: usize| f64::from(u8::from(subset.contains(&(i as i64))));
            batch = batch.response(
                format!("draw{draw}"),
                (0..size).map(is_drawn).collect::<Vec<f64>>(),
            );
        }
        let draws: Vec<String> = (0..subsets.len())
            .map(|draw| format!("batch.draw{draw}"))
            .collect();
        let text = format!(
            "import \"passk_bootstrap\" as bootstrap;
            fn advantage(batch, p) {{ bootstrap::of_draws(batch.correct, [{}]) }}",
            draws.join(", ")
        );
        let recipe = Host::new().compile("draws", &text).expect("a recipe");
        let got = advantage(&recipe, &batch.build().expect("a batch"));
        let expected = &case["expected"];
        let sums = expected.get("sums").unwrap_or(&expected["advantages"]);
        close(&got, &numbers(sums), case["name"].as_str().unwrap_or(""));
        ran += 1;
    }
    assert!(ran >= 2, "{ran} cases ran");
}

/// In the mean over many draws, a response gets n_group k / N times the analytic advantage.
#[test]
fn many_draws_are_near_the_analytic_advantage() {
    let batch = Batch::builder()
        .groups([0; 6])
        .response("reward", vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
        .build()
        .expect("a batch");
    let drawn = recipe(
        "passk_bootstrap",
        &[("k", Setting::Whole(2)), ("n_group", Setting::Whole(400))],
    );
    let analytic = advantage(&recipe("passk", &[("k", Setting::Whole(2))]), &batch);
    let got = advantage(&drawn, &batch);
    assert_eq!(got, advantage(&drawn, &batch), "the draws follow the seed");
    for (got, analytic) in got.iter().zip(analytic) {
        assert!(
            (got / (400.0 * 2.0 / 6.0) - analytic).abs() < 0.15,
            "{got} {analytic}"
        );
    }
}

#[test]
fn pkpo() {
    let mut ran = 0;
    for case in cases("baselines.json") {
        if case["method"] != "pkpo" {
            continue;
        }
        let rewards = numbers(&case["inputs"]["rewards"]);
        let batch = Batch::builder()
            .groups(vec![0; rewards.len()])
            .response("reward", rewards);
        let batch = batch.build().expect("a batch");
        let k = Setting::Whole(case["params"]["k"].as_i64().expect("k"));
        for variant in ["s", "sloo", "sloo_minus_one"] {
            let variant = Setting::Text(variant.into());
            let recipe = recipe("pkpo", &[("k", k.clone()), ("variant", variant.clone())]);
            let expected = &case["expected"][variant.to_string()];
            if expected.is_null() {
                let error = recipe.advantage(&batch, &mut recipe.init().expect("no state"));
                let text = error.unwrap_err().to_string();
                assert!(text.contains("k = 8 is more"), "{text}");
                continue;
            }
            let what = format!("{} {variant}", case["name"]);
            close(&advantage(&recipe, &batch), &numbers(expected), &what);
        }
        ran += 1;
    }
    assert!(ran >= 2, "{ran} cases ran");
}

/// The unbiased pass@k, as a recipe would write it with `binomial_ratio`.
#[test]
fn pass_at_k_estimator() {
    for case in cases("baselines.json") {
        if case["method"] != "pass_at_k_estimator" {
            continue;
        }
        let inputs = &case["inputs"];
        let (n, c, k) = (
            numbers(&inputs["n"]),
            numbers(&inputs["c"]),
            numbers(&inputs["k"]),
        );
        let batch = Batch::builder()
            .groups((0..n.len()).map(|i| i as i64))
            .response("n", n)
            .response("c", c)
            .response("k", k)
            .build()
            .expect("a golden case's batch");
        let text = "1 - binomial_ratio(batch.n - batch.c, batch.n, batch.k)";
        let got = Host::new()
            .evaluate(text, &batch)
            .expect("a value")
            .numbers();
        close(&got, &numbers(&case["expected"]["pass_at_k"]), "pass@k");
    }
}
