//! The published formulas: every golden case, through the scripts in `stdlib/`, in f64 at 1e-9.
//!
//! `tests/golden/` holds a few cases of each method that always run; the whole set runs where `../shared` is there.

use std::path::{Path, PathBuf};

use advlab::batch::Batch;
use advlab::script::{Host, Recipe, Setting};
use serde_json::Value;

const TOLERANCE: f64 = 1e-9;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The cases of a golden file: the repository's own selection, and the whole set where it is there.
fn cases(file: &str) -> Vec<Value> {
    let mut cases = Vec::new();
    for (folder, always) in [("tests/golden", true), ("../shared/golden", false)] {
        let path = here(folder).join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let json: Value = serde_json::from_str(&text).expect("golden files are JSON");
                cases.extend(
                    json["cases"]
                        .as_array()
                        .expect("golden files have cases")
                        .iter()
                        .cloned(),
                );
            }
            Err(error) if always => panic!("{}: {error}", path.display()),
            Err(_) => eprintln!("skipped: {} is not there", path.display()),
        }
    }
    cases
}

fn numbers(value: &Value) -> Vec<f64> {
    let array = value
        .as_array()
        .unwrap_or_else(|| panic!("an array, not {value}"));
    array
        .iter()
        .map(|x| x.as_f64().unwrap_or_else(|| panic!("a number, not {x}")))
        .collect()
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    value
        .as_array()
        .expect("an array of arrays")
        .iter()
        .map(numbers)
        .collect()
}

fn ids(value: &Value) -> Vec<i64> {
    numbers(value).into_iter().map(|id| id as i64).collect()
}

fn close(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: number of values");
    for (place, (got, expected)) in got.iter().zip(expected).enumerate() {
        let bound = TOLERANCE * expected.abs().max(1.0);
        assert!(
            (got - expected).abs() <= bound,
            "{what} [{place}]: {got} instead of {expected}"
        );
    }
}

fn recipe(name: &str, settings: &[(&str, Setting)]) -> Recipe {
    let mut recipe = Host::new()
        .load(name)
        .unwrap_or_else(|error| panic!("{}", error.render(false)));
    for (parameter, setting) in settings {
        recipe
            .set(parameter, setting.clone())
            .expect("a golden case's parameter");
    }
    recipe
}

fn advantage(recipe: &Recipe, batch: &Batch<'_>) -> Vec<f64> {
    let mut state = recipe.init().expect("no state");
    match recipe.advantage(batch, &mut state) {
        Ok(outcome) => outcome.advantage.floats().iter().collect(),
        Err(error) => panic!("{}", error.render(false)),
    }
}

fn number(value: &Value) -> Setting {
    Setting::Number(value.as_f64().expect("a number"))
}

fn outcome_batch(inputs: &Value) -> Batch<'static> {
    Batch::builder()
        .groups(ids(&inputs["groups"]))
        .response("reward", numbers(&inputs["rewards"]))
        .build()
        .expect("a golden case's batch")
}

#[test]
fn grpo_dr_grpo_and_rloo() {
    let mut ran = 0;
    for case in cases("baselines.json") {
        let params = &case["params"];
        let recipe = match case["method"].as_str() {
            Some("grpo") => {
                let std = if params["ddof"] == 0 {
                    "population"
                } else {
                    "sample"
                };
                recipe(
                    "grpo",
                    &[
                        ("std", Setting::Text(std.into())),
                        ("eps", number(&params["eps"])),
                    ],
                )
            }
            Some(name @ ("dr_grpo" | "rloo")) => recipe(name, &[]),
            _ => continue,
        };
        let got = advantage(&recipe, &outcome_batch(&case["inputs"]));
        close(
            &got,
            &numbers(&case["expected"]["advantages"]),
            case["name"].as_str().unwrap_or(""),
        );
        ran += 1;
    }
    assert!(ran >= 3, "{ran} cases ran");
}

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

#[test]
fn grpo_lambda() {
    let mut ran = 0;
    for case in cases("grpo_lambda.json") {
        let (params, inputs) = (&case["params"], &case["inputs"]);
        let name = case["name"].as_str().unwrap_or("");
        let batch = Batch::builder()
            .groups(ids(&inputs["groups"]))
            .response("correct", numbers(&inputs["correct"]))
            .response("length", numbers(&inputs["lengths"]))
            .build()
            .expect("a golden case's batch");
        for (key, std, eps) in [
            ("advantages_ddof0", "population", 0.0),
            ("advantages_ddof1_eps1e6", "sample", 1e-6),
        ] {
            let recipe = recipe(
                "grpo_lambda",
                &[
                    ("acc_top_lambda", number(&params["lam"])),
                    ("length_penalty_alpha", number(&params["alpha"])),
                    ("length_eps", number(&params["len_std_eps"])),
                    ("std", Setting::Text(std.into())),
                    ("eps", Setting::Number(eps)),
                ],
            );
            let outcome = recipe
                .advantage(&batch, &mut recipe.init().expect("no state"))
                .unwrap_or_else(|error| panic!("{}", error.render(false)));
            let reward: Vec<f64> = outcome
                .reward
                .expect("a reward recipe")
                .floats()
                .iter()
                .collect();
            close(
                &reward,
                &numbers(&case["expected"]["rewards"]),
                &format!("{name} rewards"),
            );
            let got: Vec<f64> = outcome.advantage.floats().iter().collect();
            close(
                &got,
                &numbers(&case["expected"][key]),
                &format!("{name} {key}"),
            );
        }
        ran += 1;
    }
    assert!(ran >= 2, "{ran} cases ran");
}

/// Golden masks are ragged rows of 0 and 1.
fn masks(value: &Value) -> Vec<Vec<bool>> {
    rows(value)
        .into_iter()
        .map(|row| row.into_iter().map(|m| m == 1.0).collect())
        .collect()
}

#[test]
fn reinforce_pp() {
    let mut ran = 0;
    for case in cases("reinforce_pp.json") {
        let (params, inputs, method) = (
            &case["params"],
            &case["inputs"],
            case["method"].as_str().unwrap_or(""),
        );
        let mut settings = vec![
            ("kl_beta", number(&params["beta"])),
            (
                "kl",
                Setting::Text(params["kl"].as_str().expect("a kind").into()),
            ),
            ("gamma", number(&params["gamma"])),
            ("std", Setting::Truth(params.get("no_std").is_none())),
        ];
        if let Some(clip) = params.get("reward_clip") {
            settings.push(("reward_clip", number(&clip[1])));
        }
        let mask = masks(&inputs["mask"]);
        let groups = match inputs.get("groups") {
            Some(groups) => ids(groups),
            None => (0..mask.len() as i64).collect(),
        };
        let batch = Batch::builder()
            .groups(groups)
            .ragged_mask(&mask)
            .response("reward", numbers(&inputs["rewards"]))
            .ragged("old_logp", rows(&inputs["logp_old"]))
            .ragged("ref_logp", rows(&inputs["logp_ref"]))
            .build()
            .expect("a golden case's batch");
        let got = advantage(&recipe(method, &settings), &batch);
        let expected: Vec<f64> = case["expected"]["advantages"]
            .as_array()
            .expect("rows")
            .iter()
            .zip(&mask)
            .flat_map(|(row, mask)| {
                let row = row.as_array().expect("a row").clone();
                row.into_iter()
                    .zip(mask.clone())
                    .filter(|(_, m)| *m)
                    .map(|(x, _)| x.as_f64().expect("a number"))
            })
            .collect();
        close(&got, &expected, case["name"].as_str().unwrap_or(""));
        ran += 1;
    }
    assert!(ran >= 3, "{ran} cases ran");
}

#[test]
fn pacs() {
    let mut ran = 0;
    for case in cases("pacs.json") {
        if case["method"] != "pacs" {
            continue;
        }
        let (params, inputs, expected) = (&case["params"], &case["inputs"], &case["expected"]);
        let name = case["name"].as_str().unwrap_or("");
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
        let loss = recipe
            .loss(&batch, None, &mut recipe.init().expect("no state"))
            .unwrap_or_else(|error| panic!("{name}: {}", error.render(false)));
        close(
            &[loss.value],
            &[expected["loss"].as_f64().expect("a loss")],
            &format!("{name} loss"),
        );
        let gradient = loss.gradient.to_padded_f64();
        for (response, row) in rows(&expected["grad_logp"]).iter().enumerate() {
            let got: Vec<f64> = gradient
                .row(response)
                .iter()
                .take(row.len())
                .copied()
                .collect();
            close(&got, row, &format!("{name} grad_logp[{response}]"));
        }
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

/// The estimators of `kl`, clamped and not, and their derivatives by logp.
#[test]
fn kl_estimators() {
    for case in cases("baselines.json") {
        if case["method"] != "kl_estimator" {
            continue;
        }
        let (inputs, expected) = (&case["inputs"], &case["expected"]);
        let logp = numbers(&inputs["logp"]);
        let batch = Batch::builder()
            .groups(vec![0; logp.len()])
            .ragged("old_logp", logp.iter().map(|&x| vec![x]))
            .ragged(
                "ref_logp",
                numbers(&inputs["logp_ref"]).iter().map(|&x| vec![x]),
            )
            .build()
            .expect("a golden case's batch");
        let host = Host::new();
        let values = |text: &str| match host.evaluate(text, &batch) {
            Ok(evaluated) => evaluated.numbers(),
            Err(error) => panic!("{}", error.render(false)),
        };
        for kind in ["k1", "k2", "k3"] {
            let kl = format!("kl(batch.old_logp, batch.ref_logp, \"{kind}\")");
            close(&values(&kl), &numbers(&expected[kind]), kind);
            let clamped = format!("{kl}.clamp(-10, 10)");
            close(
                &values(&clamped),
                &numbers(&expected[format!("{kind}_clamp10")]),
                &clamped,
            );
            let gradient = format!("grad({kl}.sum(\"batch\"), batch.old_logp)");
            close(
                &values(&gradient),
                &numbers(&expected[format!("grad_{kind}")]),
                &gradient,
            );
        }
    }
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
