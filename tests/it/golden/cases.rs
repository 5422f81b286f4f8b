//! Reads golden cases, and compares what a recipe gives with them.

use std::path::{Path, PathBuf};

use advlab::batch::Batch;
use advlab::script::{Computed, Host, Recipe};
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
                cases.extend(array(&json["cases"]).iter().cloned());
            }
            Err(error) if always => panic!("{}: {error}", path.display()),
            Err(_) => eprintln!("skipped: {} is not there", path.display()),
        }
    }
    cases
}

/// The cases of one method.
pub fn cases_of(file: &str, method: &str) -> Vec<Value> {
    let mut cases = cases(file);
    cases.retain(|case| case["method"] == method);
    cases
}

pub fn array(value: &Value) -> &[Value] {
    let array = value.as_array();
    array.unwrap_or_else(|| panic!("an array, not {value}"))
}

/// Numbers, truths as 0 and 1, or null as NaN.
pub fn numbers(value: &Value) -> Vec<f64> {
    let truth = |x: &Value| x.as_bool().map(f64::from);
    let number = |x: &Value| x.as_f64().or_else(|| truth(x));
    let number = |x: &Value| number(x).or_else(|| x.is_null().then_some(f64::NAN));
    let number = |x| number(x).unwrap_or_else(|| panic!("a number, not {x}"));
    array(value).iter().map(number).collect()
}

pub fn rows(value: &Value) -> Vec<Vec<f64>> {
    array(value).iter().map(numbers).collect()
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

/// Compares a result with one value a response, or with a row of them for each, 0 where a token does not count.
pub fn compare(got: &Computed, expected: &Value, what: &str) {
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

/// A built-in with settings, such as `k=2 eps=0`.
pub fn recipe(name: &str, settings: &str) -> Recipe {
    let mut recipe = Host::new().load(name).expect("a built-in");
    for setting in settings.split_whitespace() {
        let (parameter, value) = setting.split_once('=').expect("a setting");
        let set = recipe.set_text(parameter, value);
        set.unwrap_or_else(|error| panic!("{name} {setting}: {error}"));
    }
    recipe
}

/// A script that is no built-in.
pub fn script(text: &str) -> Recipe {
    Host::new().compile("own", text).expect("a recipe")
}

pub fn advantage(recipe: &Recipe, batch: &Batch) -> Vec<f64> {
    let outcome = recipe.advantage(batch, &mut recipe.init().expect("a state"));
    let outcome = outcome.unwrap_or_else(|error| panic!("{}", error.render(false)));
    outcome.advantage.buffer().iter().collect()
}
