//! The losses on `batch.advantage`, with their gradients.

use advlab::batch::Batch;
use advlab::script::Setting;
use serde_json::Value;

use super::cases::{cases, loss_and_gradient, masks, number, numbers, recipe, rows};

/// The settings of a case; `None` where it asks for what a built-in does not have yet.
fn settings(params: &Value) -> Option<Vec<(&str, Setting)>> {
    let mut settings = Vec::new();
    for (name, value) in params.as_object().expect("a map of parameters") {
        match (name.as_str(), value) {
            ("dual_clip", Value::Null) | ("kl_is", Value::Bool(false)) => {}
            ("clip_low" | "clip_high" | "kl_beta", value) => {
                settings.push((name.as_str(), number(value)));
            }
            ("aggregate", Value::String(choice)) if ["token", "response"].contains(&&**choice) => {
                settings.push(("aggregate", Setting::Text(choice.clone())));
            }
            ("kl", Value::String(choice)) if !choice.ends_with('+') => {
                settings.push(("kl", Setting::Text(choice.clone())));
            }
            _ => return None,
        }
    }
    Some(settings)
}

fn batch(inputs: &Value) -> Batch {
    let columns = [
        ("logp", "logp"),
        ("logp_old", "old_logp"),
        ("logp_ref", "ref_logp"),
    ];
    let mask = masks(&inputs["mask"]);
    let groups = (0..mask.len()).map(|response| response as i64);
    let mut batch = Batch::builder().groups(groups).ragged_mask(&mask);
    for (theirs, ours) in columns {
        if let Some(column) = inputs.get(theirs) {
            batch = batch.ragged(ours, rows(column));
        }
    }
    let advantages = &inputs["advantages"];
    let batch = if advantages[0].is_array() {
        batch.ragged("advantage", rows(advantages))
    } else {
        batch.response("advantage", numbers(advantages))
    };
    batch.build().expect("a golden case's batch")
}

#[test]
pub fn losses_on_an_advantage() {
    let mut ran = 0;
    for case in cases("losses.json") {
        let method = case["method"].as_str().expect("a method");
        let has_tokens = case["name"] != "ppo_clip_none";
        if !["ppo_clip", "policy_gradient"].contains(&method) || !has_tokens {
            continue;
        }
        if let Some(settings) = settings(&case["params"]) {
            loss_and_gradient(&case, &recipe(method, &settings), &batch(&case["inputs"]));
            ran += 1;
        }
    }
    assert!(ran >= 4, "{ran} cases ran");
}
