//! GRPO, Dr. GRPO, RLOO and MaxRL.

use advlab::script::Setting;

use super::cases::{advantage, cases, close, number, numbers, outcome_batch, recipe};

#[test]
fn grpo_dr_grpo_rloo_and_maxrl() {
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
            Some(name @ ("dr_grpo" | "rloo" | "maxrl")) => recipe(name, &[]),
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
