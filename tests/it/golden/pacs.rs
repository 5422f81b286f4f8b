//! PACS: its loss with the gradient, and its weights.

use advlab::batch::Batch;
use advlab::script::Setting;

use super::cases::{cases, close, loss_and_gradient, masks, number, numbers, recipe, rows};

#[test]
fn pacs() {
    let mut ran = 0;
    for case in cases("pacs.json") {
        if case["method"] != "pacs" {
            continue;
        }
        let (params, inputs) = (&case["params"], &case["inputs"]);
        let method = if params["reward_method"] == "1" {
            "sum"
        } else {
            "mean"
        };
        let recipe = recipe(
            "pacs",
            &[
                ("beta", number(&params["beta"])),
                (
                    "adv_estimator",
                    Setting::Text(params["adv_estimator"].as_str().expect("a name").into()),
                ),
                ("reward_method", Setting::Text(method.into())),
                (
                    "weight_mode",
                    Setting::Text(params["weight_mode"].as_str().unwrap_or("none").into()),
                ),
                (
                    "std",
                    Setting::Truth(params["norm_adv_by_std"].as_bool().expect("a truth")),
                ),
                ("eps", number(&params["grpo_eps"])),
            ],
        );
        let (labels, n) = (
            numbers(&inputs["labels"]),
            params["rollout_n"].as_u64().expect("N") as usize,
        );
        let mask = masks(&inputs["mask"]);
        let batch = Batch::builder()
            .groups((0..labels.len()).map(|i| (i / n) as i64))
            .ragged_mask(&mask)
            .response("correct", labels)
            .ragged("logp", rows(&inputs["logp"]))
            .ragged("old_logp", rows(&inputs["logp_old"]))
            .build()
            .expect("a golden case's batch");
        loss_and_gradient(&case, &recipe, &batch);
        ran += 1;
    }
    assert!(ran >= 3, "{ran} cases ran");
}

/// The weights themselves: at logp = old_logp with "naive" scores, dloss/dlogp is w (sigmoid(0) - y) / B.
#[test]
fn pacs_weights() {
    for case in cases("pacs.json") {
        if case["method"] != "pacs_weight" {
            continue;
        }
        let labels = numbers(&case["inputs"]["labels"]);
        let n = case["params"]["rollout_n"].as_u64().expect("N") as usize;
        let mode = case["params"]["mode"].as_str().expect("a mode");
        let recipe = recipe(
            "pacs",
            &[
                ("weight_mode", Setting::Text(mode.into())),
                ("adv_estimator", Setting::Text("naive".into())),
            ],
        );
        let responses = labels.len();
        let batch = Batch::builder()
            .groups((0..responses).map(|i| (i / n) as i64))
            .response("correct", labels.clone())
            .ragged("old_logp", vec![vec![-1.0f64]; responses])
            .build()
            .expect("a golden case's batch");
        let loss = recipe
            .loss(&batch, None, &mut recipe.init().expect("no state"))
            .expect("a loss");
        let got: Vec<f64> = loss
            .gradient
            .per_token()
            .zip(&labels)
            .map(|(gradient, label)| gradient * responses as f64 / (0.5 - label))
            .collect();
        close(
            &got,
            &numbers(&case["expected"]["weight"]),
            case["name"].as_str().unwrap_or(""),
        );
    }
}
