//! The golden cases in the form of the table: `method` is the recipe, `params` are its parameters. Those of the older files have
//! names of their own.

use serde_json::{Value, json};

use super::cases::{array, cases, numbers};

/// The cases of all files that a recipe is to give.
pub fn all() -> Vec<Value> {
    let own = ["estimators.json", "losses.json"]
        .into_iter()
        .flat_map(cases);
    let older = ["baselines", "grpo_lambda", "reinforce_pp", "pacs", "passk"];
    let older = older.iter().flat_map(|file| cases(&format!("{file}.json")));
    own.chain(older.flat_map(|case| translated(&case)))
        .collect()
}

/// The case in the names of the table; several if it has several results of one kind, and none if no recipe gives them.
fn translated(case: &Value) -> Vec<Value> {
    let (params, inputs, expected) = (&case["params"], &case["inputs"], &case["expected"]);
    let to = |method: &str, params: Value, inputs: Value, expected: Value| json!({ "name": case["name"], "method": method, "params": params, "inputs": inputs, "expected": expected });
    let advantages = || json!({ "advantages": expected["advantages"] });
    let with_k = |method| {
        vec![to(
            method,
            json!({ "k": params["k"] }),
            inputs.clone(),
            advantages(),
        )]
    };
    let std = |ddof: &Value| if *ddof == 0 { "population" } else { "sample" };
    match case["method"].as_str().expect("a method") {
        "grpo" => {
            let params = json!({ "std": std(&params["ddof"]), "eps": params["eps"] });
            vec![to("grpo", params, inputs.clone(), advantages())]
        }
        name @ ("dr_grpo" | "rloo" | "maxrl") => {
            vec![to(name, json!({}), inputs.clone(), advantages())]
        }
        name @ ("reinforce_pp" | "reinforce_pp_baseline") => {
            let mut own =
                json!({ "kl_beta": params["beta"], "kl": params["kl"], "gamma": params["gamma"] });
            own["std"] = json!(params.get("no_std").is_none());
            if let Some(clip) = params.get("reward_clip") {
                own["reward_clip"] = clip[1].clone();
            }
            vec![to(name, own, inputs.clone(), advantages())]
        }
        "grpo_lambda" => [
            ("advantages_ddof0", 0, 0.0),
            ("advantages_ddof1_eps1e6", 1, 1e-6),
        ]
        .map(|(key, ddof, eps)| {
            let mut own = json!({ "std": std(&json!(ddof)), "eps": eps });
            own["acc_top_lambda"] = params["lam"].clone();
            own["length_penalty_alpha"] = params["alpha"].clone();
            own["length_eps"] = params["len_std_eps"].clone();
            let expected = json!({ "rewards": expected["rewards"], "advantages": expected[key] });
            to("grpo_lambda", own, inputs.clone(), expected)
        })
        .into(),
        "pkpo" => ["s", "sloo", "sloo_minus_one"]
            .map(|variant| {
                let mut inputs = inputs.clone();
                inputs["groups"] = array(&inputs["rewards"]).iter().map(|_| 0).collect();
                let expected = match &expected[variant] {
                    Value::Null => json!({ "error": ["k = 8 is more"] }),
                    values => json!({ "advantages": values }),
                };
                let params = json!({ "k": params["k"], "variant": variant });
                to("pkpo", params, inputs, expected)
            })
            .into(),
        "pacs" | "pacs_weight" => vec![pacs(case)],
        "passk_analytic" if expected.get("error").is_some() => {
            let error = json!({ "error": ["group 0 (4 responses)", "k = 5"] });
            vec![to("passk", params.clone(), inputs.clone(), error)]
        }
        "passk_analytic" => with_k("passk"),
        "passk_analytic_curve" => vec![curve(case)],
        name @ ("passk_full_sampling" | "passk_exceeding" | "passk_combination") => with_k(name),
        "passk_adaptive_entropy" => {
            let params = json!({ "k": params["k"], "high_fraction": params["high_fraction"] });
            let entropy = numbers(&inputs["response_entropy"]).into_iter();
            let entropy: Vec<[f64; 1]> = entropy.map(|entropy| [entropy]).collect();
            let inputs = json!({ "groups": inputs["groups"], "rewards": inputs["rewards"], "entropy": entropy });
            vec![to("passk_by_entropy", params, inputs, advantages())]
        }
        // Tests of their own.
        "passk_bootstrap" | "kl_estimator" | "pass_at_k_estimator" => Vec::new(),
        method => panic!("{method}: which recipe gives it?"),
    }
}

/// PACS's loss; or its weights: at logp = old_logp with "naive" scores a response's loss is w ln 2, and w (0.5 - y) / B is
/// its derivative.
fn pacs(case: &Value) -> Value {
    let (params, mut inputs, expected) =
        (&case["params"], case["inputs"].clone(), &case["expected"]);
    let labels = numbers(&inputs["labels"]);
    let size = params["rollout_n"].as_u64().expect("N") as usize;
    inputs["groups"] = (0..labels.len()).map(|response| response / size).collect();
    if case["method"] == "pacs" {
        let is_sum = params["reward_method"] == "1";
        let own = json!({
            "beta": params["beta"],
            "adv_estimator": params["adv_estimator"],
            "reward_method": if is_sum { "sum" } else { "mean" },
            "weight_mode": params["weight_mode"],
            "std": params["norm_adv_by_std"],
            "eps": params["grpo_eps"],
        });
        return json!({ "name": case["name"], "method": "pacs", "params": own, "inputs": inputs, "expected": expected });
    }
    inputs["logp_old"] = labels.iter().map(|_| json!([-1.0])).collect();
    let (weights, count) = (numbers(&expected["weight"]), labels.len() as f64);
    let slopes = weights
        .iter()
        .zip(&labels)
        .map(|(weight, label)| [weight * (0.5 - label) / count]);
    let loss = weights.iter().sum::<f64>() / count * 2f64.ln();
    let expected = json!({ "loss": loss, "grad_logp": slopes.collect::<Vec<_>>() });
    let own = json!({ "weight_mode": params["mode"], "adv_estimator": "naive" });
    json!({ "name": case["name"], "method": "pacs", "params": own, "inputs": inputs, "expected": expected })
}

/// The advantage of right and wrong responses over the number of right ones: a batch with a group for each number.
fn curve(case: &Value) -> Value {
    let (params, expected) = (&case["params"], &case["expected"]);
    let size = params["N"].as_u64().expect("N") as usize;
    let all = || (0..=size).flat_map(|right| (0..size).map(move |i| (right, i < right)));
    let groups: Vec<usize> = all().map(|(right, _)| right).collect();
    let rewards: Vec<f64> = all().map(|(_, is_right)| f64::from(is_right)).collect();
    let advantage = |(right, is_right)| &expected[if is_right { "A_pos" } else { "A_neg" }][right];
    json!({
        "name": case["name"],
        "method": "passk",
        "params": { "k": params["k"] },
        "inputs": { "groups": groups, "rewards": rewards },
        "expected": { "advantages": all().map(advantage).collect::<Vec<_>>() },
    })
}
