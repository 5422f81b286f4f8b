//! REINFORCE++, without and with a baseline of the group.

use advlab::batch::Batch;
use advlab::script::Setting;

use super::cases::{advantage, cases, close, ids, masks, number, numbers, recipe, rows};

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
