//! Pass@k training, and the estimator of pass@k.

use advlab::batch::Batch;
use advlab::script::Setting;

use super::cases::{advantage, cases, close, host, numbers, outcome_batch, recipe};

#[test]
pub fn passk_analytic() {
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
pub fn passk_curves() {
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

/// The unbiased pass@k, as a recipe would write it with `binomial_ratio`.
#[test]
pub fn pass_at_k_estimator() {
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
        let got = host().evaluate(text, &batch).expect("a value").numbers();
        close(&got, &numbers(&case["expected"]["pass_at_k"]), "pass@k");
    }
}
