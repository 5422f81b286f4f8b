//! Pass@k training by draws, and the formulas that recipes are made of.

use advlab::batch::Batch;
use advlab::script::Host;
use serde_json::Value;

use super::cases::{advantage, array, cases_of, close, numbers, recipe, script};

/// The sum over given draws; over all subsets, its mean is the analytic advantage.
#[test]
fn passk_of_draws() {
    let cases = cases_of("passk.json", "passk_bootstrap");
    assert!(cases.len() >= 2);
    for case in cases {
        let rewards = numbers(&case["inputs"]["rewards"]);
        let (size, k) = (rewards.len(), case["params"]["k"].as_u64().expect("k"));
        let subsets: Vec<Vec<usize>> = match &case["inputs"]["subsets"] {
            Value::Array(subsets) => {
                let indices = |subset| numbers(subset).iter().map(|&i| i as usize).collect();
                subsets.iter().map(indices).collect()
            }
            _ => (0..1u64 << size)
                .filter(|bits| u64::from(bits.count_ones()) == k)
                .map(|bits| (0..size).filter(|i| bits >> i & 1 == 1).collect())
                .collect(),
        };
        let mut batch = Batch::builder().groups(vec![0; size]);
        batch = batch.response("reward", rewards);
        let mut draws = String::new();
        for (draw, subset) in subsets.iter().enumerate() {
            let drawn: Vec<f64> = (0..size).map(|i| f64::from(subset.contains(&i))).collect();
            batch = batch.response(format!("draw{draw}"), drawn);
            draws += &format!("batch.draw{draw}, ");
        }
        let recipe = script(&format!(
            "import \"passk_bootstrap\" as bootstrap;
            fn advantage(batch, p) {{ bootstrap::of_draws(batch.correct, [{draws}]) }}"
        ));
        let got = advantage(&recipe, &batch.build().expect("a batch"));
        let expected = &case["expected"];
        let sums = expected.get("sums").unwrap_or(&expected["advantages"]);
        close(&got, &numbers(sums), &case["name"].to_string());
    }
}

/// In the mean over many draws, a response gets n_group k / N times the analytic advantage.
#[test]
fn many_draws_are_near_the_analytic_advantage() {
    let batch = Batch::builder()
        .groups([0; 6])
        .response("reward", vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    let batch = batch.build().expect("a batch");
    let drawn = recipe("passk_bootstrap", "k=2 n_group=400");
    let got = advantage(&drawn, &batch);
    assert_eq!(got, advantage(&drawn, &batch), "the draws follow the seed");
    for (got, analytic) in got.iter().zip(advantage(&recipe("passk", "k=2"), &batch)) {
        let off = got / (400.0 * 2.0 / 6.0) - analytic;
        assert!(off.abs() < 0.15, "{got} {analytic}");
    }
}

/// The estimators of `kl`, clamped and not, and their derivatives by logp; and the unbiased pass@k, as a recipe would write it
/// with `binomial_ratio`.
#[test]
fn formulas_of_recipes() {
    let mut formulas = vec![(
        "pass_at_k_estimator",
        "pass_at_k".to_string(),
        "1 - binomial_ratio(batch.n - batch.c, batch.n, batch.k)".to_string(),
    )];
    for kind in ["k1", "k2", "k3"] {
        let kl = format!("kl(batch.old_logp, batch.ref_logp, \"{kind}\")");
        let clamped = format!("{kl}.clamp(-10, 10)");
        let gradient = format!("grad({kl}.sum(\"batch\"), batch.old_logp)");
        for (key, text) in [
            (kind.to_string(), kl),
            (format!("{kind}_clamp10"), clamped),
            (format!("grad_{kind}"), gradient),
        ] {
            formulas.push(("kl_estimator", key, text));
        }
    }
    for (method, key, text) in formulas {
        for case in cases_of("baselines.json", method) {
            let inputs = case["inputs"].as_object().expect("columns");
            let size = inputs
                .values()
                .next()
                .map_or(0, |column| array(column).len());
            let mut batch = Batch::builder().groups(0..size);
            for (name, values) in inputs {
                let values = numbers(values);
                let ragged = values.iter().map(|&x| [x]);
                batch = match name.as_str() {
                    "logp" => batch.ragged("old_logp", ragged),
                    "logp_ref" => batch.ragged("ref_logp", ragged),
                    name => batch.response(name, values),
                };
            }
            let got = Host::new().evaluate(&text, &batch.build().expect("a batch"));
            let got = got.unwrap_or_else(|error| panic!("{}", error.render(false)));
            close(&got.numbers(), &numbers(&case["expected"][&key]), &text);
        }
    }
}
