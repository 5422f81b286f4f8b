//! Reads golden cases, and compares what a recipe gives with them.

use std::path::{Path, PathBuf};

use advlab::batch::Batch;
use advlab::script::{Host, Recipe, Setting};
use serde_json::Value;

const TOLERANCE: f64 = 1e-9;

fn here(path: &str) -> PathBuf {
    Path::new(crate::ROOT).join(path)
}

/// The cases of a golden file: the repository's own selection, and the whole set where it is there.
pub fn cases(file: &str) -> Vec<Value> {
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

pub fn numbers(value: &Value) -> Vec<f64> {
    let array = value
        .as_array()
        .unwrap_or_else(|| panic!("an array, not {value}"));
    array
        .iter()
        .map(|x| x.as_f64().unwrap_or_else(|| panic!("a number, not {x}")))
        .collect()
}

pub fn rows(value: &Value) -> Vec<Vec<f64>> {
    value
        .as_array()
        .expect("an array of arrays")
        .iter()
        .map(numbers)
        .collect()
}

pub fn ids(value: &Value) -> Vec<i64> {
    numbers(value).into_iter().map(|id| id as i64).collect()
}

pub fn close(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: number of values");
    for (place, (got, expected)) in got.iter().zip(expected).enumerate() {
        let bound = TOLERANCE * expected.abs().max(1.0);
        assert!(
            (got - expected).abs() <= bound,
            "{what} [{place}]: {got} instead of {expected}"
        );
    }
}

pub fn recipe(name: &str, settings: &[(&str, Setting)]) -> Recipe {
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

pub fn advantage(recipe: &Recipe, batch: &Batch) -> Vec<f64> {
    let mut state = recipe.init().expect("no state");
    match recipe.advantage(batch, &mut state) {
        Ok(outcome) => outcome.advantage.buffer().iter().collect(),
        Err(error) => panic!("{}", error.render(false)),
    }
}

/// The loss and its gradient by `logp` are those that the case expects.
pub fn loss_and_gradient(case: &Value, recipe: &Recipe, batch: &Batch) {
    let (name, expected) = (&case["name"], &case["expected"]);
    let loss = recipe
        .loss(batch, None, &mut recipe.init().expect("no state"))
        .unwrap_or_else(|error| panic!("{name}: {}", error.render(false)));
    let value = expected["loss"].as_f64().expect("a loss");
    close(&[loss.value], &[value], &format!("{name} loss"));
    let gradient = loss.gradient.buffer();
    for (response, row) in rows(&expected["grad_logp"]).iter().enumerate() {
        let mut got = vec![0.0; batch.layout().width()];
        let layout = loss.gradient.layout();
        layout.scatter(response, &mut got, |token| gradient.get(token));
        got.truncate(row.len());
        close(&got, row, &format!("{name} grad_logp[{response}]"));
    }
}

pub fn number(value: &Value) -> Setting {
    Setting::Number(value.as_f64().expect("a number"))
}

pub fn outcome_batch(inputs: &Value) -> Batch {
    Batch::builder()
        .groups(ids(&inputs["groups"]))
        .response("reward", numbers(&inputs["rewards"]))
        .build()
        .expect("a golden case's batch")
}

/// Golden masks are ragged rows of 0 and 1.
pub fn masks(value: &Value) -> Vec<Vec<bool>> {
    rows(value)
        .into_iter()
        .map(|row| row.into_iter().map(|m| m == 1.0).collect())
        .collect()
}
