//! Every built-in against its golden cases: their columns, settings and results have the recipes' own names.

use std::collections::BTreeSet;

use advlab::batch::{Batch, BatchBuilder, GroupId};
use advlab::script::{BUILTINS, Hook, Recipe, State};
use serde_json::Value;

use super::cases::{cases, close, loss_and_gradient, masks, numbers, recipe, rows};

/// The golden files whose cases are a row of the table each: `method` is the recipe, `params` are its parameters.
const FILES: [&str; 2] = ["estimators.json", "losses.json"];

/// Methods of these files that are no built-ins.
const LEFT: &[&str] = &[];

/// Built-ins whose cases have a form of their own, in a test beside this one.
const ELSEWHERE: &[&str] = &[
    "grpo",
    "dr_grpo",
    "rloo",
    "passk",
    "passk_full_sampling",
    "passk_bootstrap",
    "passk_exceeding",
    "passk_combination",
    "passk_by_entropy",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gae",
    "grpo_lambda",
    "pacs",
];

/// What the files call a column.
fn column(theirs: &str) -> &str {
    match theirs {
        "rewards" => "reward",
        "logp_old" => "old_logp",
        "logp_ref" => "ref_logp",
        "logp_rollout" => "rollout_logp",
        "logp_teacher" => "teacher_logp",
        "values" => "value",
        "token_rewards" => "token_reward",
        "advantages" => "advantage",
        "lengths" => "length",
        "run" | "traj" => "trajectory",
        "step" => "turn",
        same => same,
    }
}

/// Ids are numbers or strings; without any, each response is a group of its own.
fn groups(inputs: &Value, responses: usize) -> Vec<GroupId> {
    match inputs.get("groups").and_then(Value::as_array) {
        None => (0..responses).map(GroupId::from).collect(),
        Some(ids) => ids
            .iter()
            .map(|id| match id.as_str() {
                Some(name) => GroupId::from(name),
                None => GroupId::from(id.as_i64().expect("an id")),
            })
            .collect(),
    }
}

fn batch(inputs: &Value) -> Batch {
    let columns = inputs.as_object().expect("a map of columns");
    let of_responses = columns.iter().find(|(name, _)| *name != "state_before");
    let responses = of_responses.map_or(0, |(_, column)| column.as_array().expect("rows").len());
    let mut builder = Batch::builder().groups(groups(inputs, responses));
    if let Some(mask) = columns.get("mask") {
        builder = builder.ragged_mask(masks(mask));
    }
    let columns = columns
        .iter()
        .filter(|(name, _)| !["groups", "mask", "state_before"].contains(&name.as_str()));
    let with = |builder: BatchBuilder, (name, values): (&String, &Value)| {
        if values[0].is_string() {
            let texts = values
                .as_array()
                .into_iter()
                .flatten()
                .map(|text| text.as_str().expect("a text"));
            builder.text(column(name), texts)
        } else if values[0].is_array() {
            builder.ragged(column(name), rows(values))
        } else {
            builder.response(column(name), flags(values))
        }
    };
    let built = columns.fold(builder, with).build();
    built.unwrap_or_else(|error| panic!("{error}: {inputs}"))
}

/// Numbers, or truths as 0 and 1.
fn flags(values: &Value) -> Vec<f64> {
    let values = values.as_array().expect("a column").iter();
    let number = |x: &Value| {
        x.as_bool()
            .map_or_else(|| x.as_f64(), |x| Some(f64::from(x)))
    };
    values.map(|x| number(x).expect("a number")).collect()
}

fn with_settings(case: &Value) -> Recipe {
    let mut recipe = recipe(case["method"].as_str().expect("a method"), &[]);
    for (name, value) in case["params"].as_object().expect("a map of parameters") {
        let text = match value {
            Value::Null => "none".to_string(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let set = recipe.set_text(name, &text);
        set.unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
    }
    recipe
}

/// Compares a result with one value a response, or with a row of them for each, 0 where a token does not count.
fn compare(got: &advlab::batch::Computed, expected: &Value, what: &str) {
    let layout = got.layout();
    if !expected[0].is_array() {
        let got: Vec<f64> = got.buffer().iter().collect();
        return close(&got, &numbers(expected), what);
    }
    for (response, expected) in rows(expected).iter().enumerate() {
        let mut row = vec![0.0; layout.width().max(expected.len())];
        let tokens = layout.tokens_of(response).start;
        layout.scatter(response, &mut row, |token| got.at(response, token - tokens));
        row.truncate(expected.len());
        close(&row, expected, &format!("{what} [{response}]"));
    }
}

/// What is remembered: the table, the key and the number.
fn remembered(method: &Value, state: &Value) -> Vec<(&'static str, String, f64)> {
    let tables: &[&str] = match method.as_str() {
        Some("spo") => &["right", "wrong"],
        _ => &["baseline"],
    };
    let numbers = |values: &Value| match values.as_array() {
        Some(_) => numbers(values),
        None => vec![values.as_f64().expect("a number")],
    };
    let of = |(key, values): (&String, &Value)| {
        let values = tables.iter().zip(numbers(values));
        values
            .map(|(table, value)| (*table, key.clone(), value))
            .collect::<Vec<_>>()
    };
    state
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(of)
        .collect()
}

fn state_before(case: &Value, recipe: &Recipe) -> State {
    let mut json = recipe.init().expect("no state").to_json();
    for (table, key, value) in remembered(&case["method"], &case["inputs"]["state_before"]) {
        let entries = &mut json["tables"][table];
        if entries.is_null() {
            *entries = serde_json::json!([]);
        }
        let entries = entries.as_array_mut().expect("entries");
        entries.push(serde_json::json!([key, format!("{value:?}")]));
    }
    State::from_json(&json).expect("a state")
}

fn run(case: &Value) {
    let name = case["name"].as_str().expect("a name");
    let (recipe, batch) = (with_settings(case), batch(&case["inputs"]));
    let expected = case["expected"].as_object().expect("results");
    if expected.contains_key("loss") {
        return loss_and_gradient(case, &recipe, &batch);
    }
    let mut state = state_before(case, &recipe);
    let outcome = recipe.advantage(&batch, &mut state);
    let outcome = outcome.unwrap_or_else(|error| panic!("{name}: {}", error.render(false)));
    for (result, values) in expected {
        let what = format!("{name} {result}");
        match result.as_str() {
            "advantages" => compare(&outcome.advantage, values, &what),
            "returns" => {
                let returns = recipe.returns(&batch, &recipe.init().expect("no state"));
                compare(&returns.expect("returns").expect("the hook"), values, &what);
            }
            "rewards" => compare(&outcome.reward.clone().expect("a reward"), values, &what),
            "state" => {
                for (table, key, expected) in remembered(&case["method"], values) {
                    let got = state.recall(table, &key).expect("a key");
                    close(&[got], &[expected], &what);
                }
            }
            // Parts of the formula.
            "raw" | "episode" | "step" | "step_return" => {}
            "weights" => compare(&outcome.weight.clone().expect("weights"), values, &what),
            other => panic!("{name}: nothing gives `{other}`"),
        }
    }
}

#[test]
fn built_ins_give_their_golden_values() {
    let mut ran = BTreeSet::new();
    for case in FILES.iter().flat_map(|file| cases(file)) {
        let method = case["method"].as_str().expect("a method");
        if LEFT.contains(&method) {
            continue;
        }
        run(&case);
        ran.insert(method.to_string());
    }
    for builtin in BUILTINS {
        let is_elsewhere = ELSEWHERE.contains(&builtin.name);
        assert!(
            ran.contains(builtin.name) != is_elsewhere,
            "{}: exactly one test has its golden cases",
            builtin.name
        );
    }
}

/// The loss of a batch in which no token counts is 0, whichever it is and however it is averaged.
#[test]
fn the_loss_of_no_tokens_is_zero() {
    let batch = Batch::builder()
        .groups([0, 0])
        .ragged_mask([[false], [false]])
        .response("advantage", vec![1.0, -1.0])
        .response("correct", vec![1.0, 0.0])
        .ragged("logp", [[-1.0], [-2.0]])
        .ragged("old_logp", [[-1.0], [-1.0]])
        .ragged("ref_logp", [[-1.0], [-1.0]])
        .ragged("rollout_logp", [[-1.0], [-1.0]])
        .ragged("entropy", [[-1.0], [-1.0]])
        .build()
        .expect("a batch");
    for builtin in BUILTINS {
        let plain = recipe(builtin.name, &[]);
        // PACS has a loss for a response without tokens: its score is 0.
        if !plain.has(Hook::Loss) || builtin.name == "pacs" {
            continue;
        }
        let aggregates = plain.params().iter().find(|(p, _)| p.name == "aggregate");
        let choices = aggregates.map_or(Vec::new(), |(parameter, _)| parameter.choices.clone());
        let with = |choice: &String| {
            let mut recipe = plain.clone();
            recipe.set_text("aggregate", choice).expect("a choice");
            let _ = recipe.set_text("horizon", "8");
            recipe
        };
        for recipe in choices.iter().map(with).chain([plain.clone()]) {
            let loss = recipe.loss(&batch, None, &mut recipe.init().expect("no state"));
            let loss = loss.unwrap_or_else(|error| panic!("{}", error.render(false)));
            assert_eq!(loss.value, 0.0, "{}", builtin.name);
        }
    }
}
