//! The golden cases in the form of the table: `method` is the recipe, `params` are its parameters. Those of the older files have
//! names of their own.

use serde_json::{Value, json};

use super::cases::{array, cases, numbers};

/// The cases of all files that a recipe is to give.
pub fn all() -> Vec<Value> {
    let own = ["estimators.json", "losses.json", "methods.json"]
        .into_iter()
        .flat_map(cases);
    let older = ["baselines", "grpo_lambda", "reinforce_pp", "pacs", "passk"];
    let older = older.iter().flat_map(|file| cases(&format!("{file}.json")));
    own.chain(older.flat_map(|case| translated(&case)))
        .collect()
}

/// The case with other fields.
fn with(case: &Value, fields: Value) -> Value {
    let mut case = case.clone();
    for (name, value) in fields.as_object().expect("fields") {
        case[name] = value.clone();
    }
    case
}

/// The case in the names of the table; several if it has several results of one kind, and none if no recipe gives them.
fn translated(case: &Value) -> Vec<Value> {
    let (params, inputs) = (&case["params"], &case["inputs"]);
    let expected = json!({ "advantages": case["expected"]["advantages"] });
    let of = |method: &str, params| {
        vec![with(
            case,
            json!({ "method": method, "params": params, "expected": expected }),
        )]
    };
    let k = json!({ "k": params["k"] });
    match case["method"].as_str().expect("a method") {
        "grpo" => {
            let std = ["population", "sample"][usize::from(params["ddof"] == 1)];
            of("grpo", json!({ "std": std, "eps": params["eps"] }))
        }
        name @ ("dr_grpo" | "rloo" | "maxrl") => of(name, json!({})),
        name @ ("reinforce_pp" | "reinforce_pp_baseline") => {
            let std = params.get("no_std").is_none();
            let mut own = json!({ "kl_beta": params["beta"], "kl": params["kl"], "std": std });
            own["gamma"] = params["gamma"].clone();
            if let Some(clip) = params.get("reward_clip") {
                own["reward_clip"] = clip[1].clone();
            }
            of(name, own)
        }
        "grpo_lambda" => grpo_lambda(case),
        "pkpo" => pkpo(case),
        "pacs" | "pacs_weight" => vec![pacs(case)],
        "passk_analytic" if case["expected"].get("error").is_some() => {
            let error = json!({ "error": ["group 0 (4 responses)", "k = 5"] });
            vec![with(case, json!({ "method": "passk", "expected": error }))]
        }
        "passk_analytic" => of("passk", k),
        "passk_analytic_curve" => vec![curve(case)],
        name @ ("passk_full_sampling" | "passk_exceeding" | "passk_combination") => of(name, k),
        "passk_adaptive_entropy" => {
            let entropy = array(&inputs["response_entropy"]).iter();
            let entropy: Vec<_> = entropy.map(|entropy| [entropy]).collect();
            let mut own = of(
                "passk_by_entropy",
                with(&k, json!({ "high_fraction": params["high_fraction"] })),
            );
            own[0]["inputs"] = json!({ "groups": inputs["groups"], "rewards": inputs["rewards"], "entropy": entropy });
            own
        }
        // Tests of their own.
        "passk_bootstrap" | "kl_estimator" | "pass_at_k_estimator" => Vec::new(),
        method => panic!("{method}: which recipe gives it?"),
    }
}

fn grpo_lambda(case: &Value) -> Vec<Value> {
    let (params, expected) = (&case["params"], &case["expected"]);
    let population = ("advantages_ddof0", "population", 0.0);
    let sample = ("advantages_ddof1_eps1e6", "sample", 1e-6);
    let cases = [population, sample].map(|(key, std, eps)| {
        let params = json!({
            "std": std,
            "eps": eps,
            "acc_top_lambda": params["lam"],
            "length_penalty_alpha": params["alpha"],
            "length_eps": params["len_std_eps"],
        });
        let expected = json!({ "rewards": expected["rewards"], "advantages": expected[key] });
        with(case, json!({ "params": params, "expected": expected }))
    });
    cases.into()
}

fn pkpo(case: &Value) -> Vec<Value> {
    let rewards = &case["inputs"]["rewards"];
    let groups: Vec<i64> = array(rewards).iter().map(|_| 0).collect();
    let cases = ["s", "sloo", "sloo_minus_one"].map(|variant| {
        let expected = match &case["expected"][variant] {
            Value::Null => json!({ "error": ["k = 8 is more"] }),
            values => json!({ "advantages": values }),
        };
        let params = json!({ "k": case["params"]["k"], "variant": variant });
        let inputs = json!({ "rewards": rewards, "groups": groups });
        with(
            case,
            json!({ "params": params, "inputs": inputs, "expected": expected }),
        )
    });
    cases.into()
}

/// PACS's loss; or its weights: at logp = old_logp with "naive" scores a response's loss is w ln 2, and w (0.5 - y) / B is
/// its derivative.
fn pacs(case: &Value) -> Value {
    let (params, mut inputs) = (&case["params"], case["inputs"].clone());
    let labels = numbers(&inputs["labels"]);
    let size = params["rollout_n"].as_u64().expect("N") as usize;
    inputs["groups"] = (0..labels.len()).map(|response| response / size).collect();
    if case["method"] == "pacs" {
        let method = ["mean", "sum"][usize::from(params["reward_method"] == "1")];
        let own = json!({
            "beta": params["beta"],
            "adv_estimator": params["adv_estimator"],
            "reward_method": method,
            "weight_mode": params["weight_mode"],
            "std": params["norm_adv_by_std"],
            "eps": params["grpo_eps"],
        });
        return with(case, json!({ "params": own, "inputs": inputs }));
    }
    inputs["logp_old"] = labels.iter().map(|_| json!([-1.0])).collect();
    let (weights, count) = (numbers(&case["expected"]["weight"]), labels.len() as f64);
    let slope = |(weight, label): (&f64, &f64)| [weight * (0.5 - label) / count];
    let slopes: Vec<[f64; 1]> = weights.iter().zip(&labels).map(slope).collect();
    let loss = weights.iter().sum::<f64>() / count * 2f64.ln();
    let own = json!({ "weight_mode": params["mode"], "adv_estimator": "naive" });
    let expected = json!({ "loss": loss, "grad_logp": slopes });
    with(
        case,
        json!({ "method": "pacs", "params": own, "inputs": inputs, "expected": expected }),
    )
}

/// The advantage of right and wrong responses over the number of right ones: a batch with a group for each number.
fn curve(case: &Value) -> Value {
    let (params, expected) = (&case["params"], &case["expected"]);
    let size = params["N"].as_u64().expect("N") as usize;
    let all = || (0..=size).flat_map(|right| (0..size).map(move |i| (right, i < right)));
    let groups: Vec<usize> = all().map(|(right, _)| right).collect();
    let rewards: Vec<f64> = all().map(|(_, is_right)| f64::from(is_right)).collect();
    let advantage = |(right, is_right)| &expected[if is_right { "A_pos" } else { "A_neg" }][right];
    let advantages: Vec<&Value> = all().map(advantage).collect();
    let fields = json!({
        "method": "passk",
        "params": { "k": params["k"] },
        "inputs": { "groups": groups, "rewards": rewards },
        "expected": { "advantages": advantages },
    });
    with(case, fields)
}
