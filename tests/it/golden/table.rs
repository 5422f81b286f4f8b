//! Every built-in against its golden cases: their columns, settings and results have the recipes' own names.

use std::collections::BTreeSet;

use advlab::batch::{Batch, GroupId};
use advlab::script::{BUILTINS, Hook, Recipe, State};
use serde_json::{Value, json};

use super::cases::{array, close, compare, numbers, recipe, rows};
use super::translated;

/// Built-ins that draw, or whose formula is another one's.
const ELSEWHERE: [&str; 2] = ["passk_bootstrap", "gae"];

/// What the files call a column.
fn column(theirs: &str) -> &str {
    match theirs {
        "rewards" => "reward",
        "labels" => "correct",
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

fn batch(inputs: &Value) -> Batch {
    let columns = inputs.as_object().expect("a map of columns").iter();
    let columns = columns.filter(|(name, _)| *name != "state_before");
    let responses = columns
        .clone()
        .next()
        .map_or(0, |(_, column)| array(column).len());
    // Ids are numbers or strings; without any, each response is a group of its own.
    let id = |id: &Value| match id.as_str() {
        Some(name) => GroupId::from(name),
        None => GroupId::from(id.as_i64().expect("an id")),
    };
    let groups: Vec<GroupId> = match &inputs["groups"] {
        Value::Array(ids) => ids.iter().map(id).collect(),
        _ => (0..responses).map(GroupId::from).collect(),
    };
    let mut builder = Batch::builder().groups(groups);
    for (name, values) in columns {
        let text = |text: &Value| text.as_str().expect("a text").to_string();
        builder = match name.as_str() {
            "groups" => builder,
            "mask" => {
                let row = |row: Vec<f64>| row.iter().map(|m| *m == 1.0).collect::<Vec<bool>>();
                builder.ragged_mask(rows(values).into_iter().map(row))
            }
            _ if values[0].is_string() => {
                builder.text(column(name), array(values).iter().map(text))
            }
            _ if values[0].is_array() => builder.ragged(column(name), rows(values)),
            _ => builder.response(column(name), numbers(values)),
        };
    }
    let built = builder.build();
    built.unwrap_or_else(|error| panic!("{error}: {inputs}"))
}

fn with_settings(case: &Value) -> Recipe {
    let mut recipe = recipe(case["method"].as_str().expect("a method"), "");
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
    let entries = state.as_object().into_iter().flatten();
    let entries = entries.flat_map(|(key, values)| {
        let values = tables.iter().zip(numbers(values));
        values.map(move |(table, value)| (*table, key.clone(), value))
    });
    entries.collect()
}

fn state_before(case: &Value, recipe: &Recipe) -> State {
    let mut json = recipe.init().expect("no state").to_json();
    for (table, key, value) in remembered(&case["method"], &case["inputs"]["state_before"]) {
        let entries = &mut json["tables"][table];
        if entries.is_null() {
            *entries = json!([]);
        }
        let entries = entries.as_array_mut().expect("entries");
        entries.push(json!([key, format!("{value:?}")]));
    }
    State::from_json(&json).expect("a state")
}

fn run(case: &Value) {
    let name = case["name"].as_str().expect("a name");
    let (recipe, batch) = (with_settings(case), batch(&case["inputs"]));
    let expected = case["expected"].as_object().expect("results");
    let failed = |error: advlab::Diagnostics| -> ! { panic!("{name}: {}", error.render(false)) };
    let mut state = state_before(case, &recipe);
    if let Some(value) = expected.get("loss") {
        let loss = recipe.loss(&batch, None, &mut state);
        let loss = loss.unwrap_or_else(|error| failed(error));
        close(&[loss.value], &[value.as_f64().expect("a loss")], name);
        return compare(&loss.gradient, &expected["grad_logp"], name);
    }
    let outcome = recipe.advantage(&batch, &mut state);
    if let Some(words) = expected.get("error") {
        let text = outcome.expect_err(name).to_string();
        let says = |word: &Value| text.contains(word.as_str().expect("words"));
        return assert!(array(words).iter().all(says), "{text}");
    }
    let outcome = outcome.unwrap_or_else(|error| failed(error));
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
    for case in translated::all() {
        run(&case);
        ran.insert(case["method"].as_str().expect("a method").to_string());
    }
    for builtin in BUILTINS {
        let is_elsewhere = ELSEWHERE.contains(&builtin.name);
        assert!(
            ran.contains(builtin.name) != is_elsewhere,
            "{}: exactly one test has its cases",
            builtin.name
        );
    }
}

/// The loss of a batch in which no token counts is 0, whichever it is and however it is averaged.
#[test]
fn the_loss_of_no_tokens_is_zero() {
    let mut batch = Batch::builder()
        .groups([0, 0])
        .ragged_mask([[false], [false]])
        .response("advantage", vec![1.0, -1.0])
        .response("correct", vec![1.0, 0.0]);
    for name in ["logp", "old_logp", "ref_logp", "rollout_logp", "entropy"] {
        batch = batch.ragged(name, [[-1.0], [-2.0]]);
    }
    let batch = batch.build().expect("a batch");
    for builtin in BUILTINS {
        let plain = recipe(builtin.name, "");
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
