//! GRPO-lambda: its reward and its advantage.

use advlab::batch::Batch;
use advlab::script::Setting;

use super::cases::{cases, close, ids, number, numbers, recipe};

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
                .buffer()
                .iter()
                .collect();
            close(
                &reward,
                &numbers(&case["expected"]["rewards"]),
                &format!("{name} rewards"),
            );
            let got: Vec<f64> = outcome.advantage.buffer().iter().collect();
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
